"""From an ONNX model to a folder of C code that runs it, and from there back into Python."""
