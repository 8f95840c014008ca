"""What files say that models in memory need not: bodies of our functions, operators that ONNX Runtime lacks, text."""
