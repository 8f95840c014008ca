"""Facts about operators that ONNX does not give: kernels, MAC counts, algebraic properties, functions of eqsat."""
