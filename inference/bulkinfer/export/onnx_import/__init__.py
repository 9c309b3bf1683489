"""A foreign ONNX graph: opened, checked, rewritten."""
