"""One file per way to name pictures."""
