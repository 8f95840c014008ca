"""The kernels that ONNX Runtime has for a model: each operator and each fused operator of the host's e-graph.

A kernel is a model of its own, with the expression that prices it and the values over which that is evaluated. The
e-graph contains the operators of the model, what rules make of them, and the composites of the host, so that all
kernels among which a search would choose are measured, in the sizes of this model.
"""

from __future__ import annotations
