"""The numpy executor: runs any valid ONNX model, at the opset that it declares."""
