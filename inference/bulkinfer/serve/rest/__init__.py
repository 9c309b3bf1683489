"""The protocol over HTTP: JSON, with tensors as JSON numbers or as bytes behind it."""
