"""Activations that end ONNX Runtime's fused convolutions and products; mirrors ``eqsat/ops/families/fused.py``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx_ir as ir

from eqsat.codegen import c_types
from eqsat.codegen.expressions.activations import FUSED
from eqsat.codegen.kernel import Task


def parameters(attributes: Mapping[str, Any]) -> tuple[float, ...]:
    """Parameters of the activation: of a convolution a list, of a product by name."""
    if "activation_params" in attributes:
        return tuple(attributes["activation_params"])
    names = ("activation_alpha", "activation_beta", "activation_gamma")
    return tuple(attributes[name] for name in names if name in attributes)


def can_activate(task: Task) -> bool:
    """Whether the activation is known and has its parameters; it works in float32."""
    text = FUSED.get(str(task.attributes.get("activation") or ""))
    needed = 0 if text is None else ("{p}" in text) + ("{q}" in text)
    return (
        text is not None
        and len(parameters(task.attributes)) >= needed
        and c_types.computed(task.epilogue.dtype) == "float"
    )


def activated(name: str, value: str, attributes: Mapping[str, Any]) -> str:
    """C expression of the activation of a value."""
    numbers = [c_types.literal(p, ir.DataType.FLOAT) for p in (*parameters(attributes), 0.0, 0.0)]
    return FUSED[name].format(v=value, p=numbers[0], q=numbers[1])
