"""One file for each way to name the pictures of a data set."""
