"""Excludes e-nodes from programs: integers where the user requires floats, and floats where the user forbids them.

It also finds why an operator has no integer form, for errors and reports.
"""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

from eqsat.egraph.snapshot import ENode, Snapshot
from eqsat.execute.trace import Trace
from eqsat.quantization.node_role import role
from eqsat.quantization.options import Options
from eqsat.quantization.scheme import Scheme
from eqsat.schema.attributes import op_key
from eqsat.schema.dtypes import BYTES
from eqsat.simplify.site import is_control


def reasons(model: ir.Model, scheme: Scheme, options: Options) -> dict[str, str]:
    """Why nodes do not take part in a scheme, by the name of each float output; constants are left out."""
    constants = Trace(model).constants
    taking_part = set(scheme.operators)
    found: dict[str, str] = {}
    for i, node in enumerate(model.graph):
        if i in taking_part:
            continue
        for value in node.outputs:
            if value.name and value.name not in constants and is_float(value):
                found[value.name] = _reason(i, node, scheme, options)
    return found


def _reason(i: int, node: ir.Node, scheme: Scheme, options: Options) -> str:
    if is_skipped(node, options):
        return "skipped on request"
    if options.operators is not None and role(node, None) is not None and role(node, options.operators) is None:
        return f"{node.op_type} is not among the operators to quantize"
    if i in scheme.unranged:
        return f"tensor {scheme.unranged[i]!r} has no range: it is empty, NaN or infinite"
    if is_control(node):
        return "bodies of control flow stay in floats"
    if role(node, options.operators) is None:
        return f"{op_key(node)} has no integer form"
    other = next(
        (v for v in (*node.inputs, *node.outputs) if v is not None and is_float(v) and not is_float32(v)), None
    )
    if other is not None and other.dtype is not None:
        return f"only float32 is quantized, and {other.name!r} is {other.dtype.name.lower()}"
    return "its operands are not quantized"


def is_float(value: ir.Value) -> bool:
    """Whether a value is a floating-point tensor."""
    return value.dtype is not None and value.dtype.is_floating_point()


def is_float32(value: ir.Value) -> bool:
    """Whether a value is of the type that is quantized."""
    return value.dtype == ir.DataType.FLOAT


def is_skipped(node: ir.Node, options: Options) -> bool:
    """Whether the user excludes a node from integers."""
    return node.name in options.skip or any(v.name in options.skip for v in node.outputs)


def wanted_as_floats(model: ir.Model, options: Options) -> list[ir.Value]:
    """Outputs of the nodes that the user keeps in floats.

    If only some operators are to be quantized, operators that compute nothing are not excluded: they may pass on the
    integers of the quantized ones.
    """
    found = []
    for node in model.graph:
        left_out = options.operators is not None and role(node, options.operators) is None
        usual = role(node, None)
        if is_skipped(node, options) or (left_out and not (usual is not None and (usual.moves or usual.limits))):
            found += [v for v in node.outputs if v.name and is_float(v)]
    return found


def integer_spellings(snapshot: Snapshot, values: Iterable[ir.Value]) -> set[int]:
    """E-nodes that compute a value, or its integers, from integers."""
    classes = {snapshot.refs[v] for v in values}
    rounded = {n.eclass for n in snapshot.nodes if _quantizes(n) and n.children[0] in classes}
    found: set[int] = set()
    for n, node in enumerate(snapshot.nodes):
        if node.eclass in rounded:
            if not _quantizes(node):
                found.add(n)
        elif node.eclass in classes and node.rule and any(_holds_bytes(snapshot, c) for c in node.children):
            found.add(n)
    return found


def floats_inside(snapshot: Snapshot, outputs: Iterable[ir.Value]) -> set[int]:
    """E-nodes that touch floats, except those that quantize inputs of the model and dequantize its outputs."""
    inputs = {n.eclass for n in snapshot.nodes if n.kind == "input"}
    roots = {snapshot.refs[v] for v in outputs}
    found: set[int] = set()
    for n, node in enumerate(snapshot.nodes):
        if node.kind in ("input", "const", "part"):
            continue
        reads = [c for c in node.children if c is not None and not snapshot.is_fixed(c)]
        if _quantizes(node) and set(reads) <= inputs:
            continue
        if _dequantizes(node) and node.eclass in roots:
            reads = [c for c in reads if not _holds_bytes(snapshot, c)]
        elif _floating(snapshot, node.eclass):
            found.add(n)
            continue
        if any(_floating(snapshot, c) for c in reads):
            found.add(n)
    return found


def without_integer_form(snapshot: Snapshot, model: ir.Model) -> list[tuple[ir.Node, ir.Value]]:
    """Nodes of the model for whose float result no integers are computed from integers."""
    rounded: dict[int, list[int]] = {}
    for node in snapshot.nodes:
        if _quantizes(node) and node.children[0] is not None:
            rounded.setdefault(node.children[0], []).append(node.eclass)
    found = []
    for node in model.graph:
        for value in node.outputs:
            if not value.name or not is_float(value) or snapshot.is_fixed(snapshot.refs[value]):
                continue
            if not any(_from_integers(snapshot, c) for c in rounded.get(snapshot.refs[value], ())):
                found.append((node, value))
    return found


def _from_integers(snapshot: Snapshot, eclass: int) -> bool:
    """Whether an e-node of the class reads nothing but integers at run time."""
    for n in snapshot.classes[eclass]:
        node = snapshot.nodes[n]
        reads = [c for c in node.children if c is not None and not snapshot.is_fixed(c)]
        if reads and eclass not in reads and not any(_floating(snapshot, c) for c in reads):
            return True
    return False


def _quantizes(node: ENode) -> bool:
    return node.kind == "op" and node.op.name == "QuantizeLinear"


def _dequantizes(node: ENode) -> bool:
    return node.kind == "op" and node.op.name == "DequantizeLinear"


def _floating(snapshot: Snapshot, eclass: int) -> bool:
    kind = snapshot.types[eclass]
    return kind is not None and kind.dtype.is_floating_point()


def _holds_bytes(snapshot: Snapshot, eclass: int | None) -> bool:
    kind = None if eclass is None else snapshot.types[eclass]
    return kind is not None and kind.dtype in BYTES
