"""The pictures of a run: found or fetched, prepared, augmented, put in order."""
