"""`bulkinfer report`: one HTML page about a job or a training run, without scripts and without anything from elsewhere."""
