"""bulkinfer validate: accuracy of checkpoints and networks, and their speed."""
