"""Options in other words: another trainer's flags and names of networks, and named sets of options in a file."""
