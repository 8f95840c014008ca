"""What ONNX does not say about operators: kernels, MAC counts, algebraic properties, functions of our own."""
