"""Training from the same zoo: a flat loop around pure functions of the step. Importing the package imports no torch."""
