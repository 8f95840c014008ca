"""From the chosen program to an ONNX model: regions, their functions, and the way back."""
