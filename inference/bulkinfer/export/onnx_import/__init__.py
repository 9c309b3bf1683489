"""Somebody else's ONNX graph: opened, checked, rewritten."""
