"""Bytes of a picture file -> RGB pixels -> a slot of a batch."""
