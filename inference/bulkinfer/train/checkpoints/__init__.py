"""Checkpoints: written, read, checked, continued from."""
