"""`bulkinfer score`: the rows of a job against known labels."""
