"""Models as ``onnx_ir.Model``: loading with strict checks, normal form, type inference, building, text, saving."""
