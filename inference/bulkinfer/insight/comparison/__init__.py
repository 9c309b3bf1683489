"""`bulkinfer compare`: the rows of two jobs over the same pictures."""
