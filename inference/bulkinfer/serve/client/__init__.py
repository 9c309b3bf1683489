"""bulkinfer request: sends pictures to a server, and measures."""
