"""The integer types that the model itself requests by ``CastHint`` annotations.

An integer kernel reads and writes one type, so a hint cannot be followed for one tensor alone: it decides for all
tensors that are connected with it. If hints of one connected part contradict each other, or request a type that is not
an 8-bit integer, the option decides as without hints.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir

from eqsat.ops.own_operators import CAST_HINT
from eqsat.schema.attributes import op_key
from eqsat.schema.dtypes import BYTES, dtype_name
from eqsat.schema.types import OpKey

_TYPES = {int(dtype): dtype_name(dtype) for dtype in BYTES}


def is_hint(op: OpKey) -> bool:
    return op == CAST_HINT.op


def hinted_types(nodes: Sequence[ir.Node], is_data: Callable[[ir.Value], bool]) -> dict[str, str]:
    """The element type that hints request, by tensor name; ``"int8"`` or ``"uint8"``.

    Args:
        nodes: Of the main graph.
        is_data: Whether a value is a tensor of floats.
    """
    import networkx as nx

    hints = [node for node in nodes if is_hint(op_key(node))]
    if not hints:
        return {}
    connected = nx.Graph()
    for node in nodes:
        values = [v.name for v in (*node.inputs, *node.outputs) if v is not None and is_data(v)]
        nx.add_path(connected, values)
    asked: dict[str | None, set[str]] = {}
    for node in hints:
        wanted = _TYPES.get(node.attributes["dtype"].as_int() if "dtype" in node.attributes else int(ir.DataType.INT8))
        if wanted is not None:
            asked.setdefault(node.outputs[0].name, set()).add(wanted)
    found: dict[str, str] = {}
    for part in nx.connected_components(connected):
        wishes = {wish for name in part for wish in asked.get(name, ())}
        if len(wishes) == 1:
            found.update(dict.fromkeys(part, *wishes))
    return found
