"""ONNX Runtime: sessions, devices, providers."""
