"""Requirements on inputs and attributes of operators beyond those that ONNX's own inference checks."""
