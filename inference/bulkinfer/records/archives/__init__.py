"""Pictures in archives: indexed, labelled, read as a data set."""
