"""Measures this host, and tunes the plan of threads."""
