"""get_model: from the zoo, a checkpoint or an ONNX file to models/<name>/."""
