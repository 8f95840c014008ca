"""Models as ``onnx_ir.Model``: loading with strict checks, normal form, type inference, building, text, saving."""

import eqsat.ops.own_operators  # noqa: F401  # Models call our functions, which are declared there.
