"""This machine: cores, processes, versions, console."""
