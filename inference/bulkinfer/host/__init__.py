"""This machine: cores, processes, package versions, memory and time used, console."""
