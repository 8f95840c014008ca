"""The C call of a composite, with the expressions of its target file evaluated for one use of it.

What is left open is where the tensors lie: ``{0}``, ``{1}``, ... are the operands of the call in the partitioned model,
``{result}`` is its result. Braces of C are doubled.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.egraph.snapshot import ENode, Snapshot
from eqsat.errors import TargetError
from eqsat.rules import ast
from eqsat.rules.call_text import RESULT
from eqsat.rules.expression import NodeFacts, TensorFacts, Unknown, evaluate
from eqsat.text import c_bytes

RESULT_HOLE = "{result}"
ABSENT = "NULL"


def vendor_call(node: ENode, snapshot: Snapshot) -> str:
    """Text of the call for a chosen composite; empty if its target file gives none.

    Raises:
        TargetError: An expression of the call has no value here.
    """
    instance = node.composite
    if instance is None or not instance.composite.call_parts:
        return ""
    env: dict[str, object] = {name: NodeFacts(op, attrs) for name, op, attrs in instance.nodes}
    env.update(instance.attributes)
    holes: dict[str, str] = {}
    number = 0
    for name, child in zip(instance.leaves, node.children, strict=True):
        if child is None:
            continue
        if name is not None:
            value = snapshot.value[child]
            fixed = snapshot.constant[child] or value is not None
            env[name] = TensorFacts(snapshot.types[child], None if value is None else value.numpy(), fixed)
            holes.setdefault(name, f"{{{number}}}")
        number += 1
    parts = []
    for part in instance.composite.call_parts:
        if isinstance(part, str):
            parts.append(part.replace("{", "{{").replace("}", "}}"))
        elif isinstance(part, ast.Name) and part.name in holes:
            parts.append(holes[part.name])
        elif isinstance(part, ast.Name) and (part.name == RESULT or isinstance(env.get(part.name), NodeFacts)):
            parts.append(RESULT_HOLE)
        elif isinstance(part, ast.Name) and part.name not in env:
            parts.append(ABSENT)
        else:
            try:
                parts.append(_text(evaluate(part, env)))
            except Unknown as error:
                raise TargetError(
                    "the expressions of a call must have values",
                    place=str(instance.composite.place),
                    actual=f"{instance.target}.{instance.composite.name}: {error}",
                ) from error
    return "".join(parts)


def _text(value: Any) -> str:
    """A value as a C expression; several are separated by commas.

    Raises:
        Unknown: It is none that C has.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, ir.DataType):
        return str(int(value))
    if isinstance(value, str):
        return c_bytes(value)
    if isinstance(value, np.ndarray):
        return ", ".join(_text(v) for v in value.ravel().tolist())
    if isinstance(value, tuple | list):
        return ", ".join(_text(v) for v in value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else "NAN" if math.isnan(value) else f"{'-' * (value < 0)}INFINITY"
    raise Unknown(f"{type(value).__name__} is no value of C")
