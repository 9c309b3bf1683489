"""The main path, and the process around it."""
