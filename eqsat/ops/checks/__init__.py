"""What inputs and attributes of operators must be, beyond what ONNX's own inference refuses."""
