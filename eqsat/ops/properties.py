"""Algebraic and structural properties of operators that their ONNX schemas do not state.

The declarations follow the ONNX operator specification at opset 26 and, for ``com.microsoft``, ONNX Runtime's
contrib operator documentation. A test walks every schema, so that an operator added by a newer opset cannot
silently be taken for one without special inputs.
"""

from __future__ import annotations

from functools import lru_cache

import onnx_ir as ir

from eqsat.ops.operators import has, operator
from eqsat.ops.traits import Trait
from eqsat.schema import opset
from eqsat.schema.declared_operators import Function, find_function, find_reference, function_body
from eqsat.schema.types import Attrs, GraphAttr, OpKey

_BY_TYPE = frozenset({OpKey("", "Shape"), OpKey("", "Size")})
_KNOWN_DOMAINS = frozenset({"", "ai.onnx.ml", "ai.onnx.preview", opset.MICROSOFT, opset.EQSAT})


def is_commutative(op: OpKey) -> bool:
    """Whether any order of the operands gives the same result.

    Of the variadic operators this holds over the reals; in floating point, more than two operands of ``Sum`` or
    ``Mean`` in another order may round differently. Two operands always commute exactly.
    """
    return has(op, Trait.COMMUTATIVE)


def value_inputs(op: OpKey) -> tuple[int, ...]:
    """Indices of the inputs whose *value* (not only shape and type) determines the outputs' shapes or types.

    An index may lie beyond the inputs that a node gives: optional inputs count by their position in the schema.
    """
    function = find_function(op)
    return operator(op).shaped_by if function is None else _shaping(function)


@lru_cache(maxsize=1024)
def _shaping(function: Function) -> tuple[int, ...]:
    """The operands of a function whose values determine shapes or types in its body."""
    body = function.body(dict(function.attributes))
    maker = {}
    number = body.inputs
    pending: list[int | None] = []
    for node in body.nodes:
        pending += [node.inputs[i] for i in value_inputs(node.op) if i < len(node.inputs)]
        maker |= dict.fromkeys(range(number, number + node.outputs), node)
        number += node.outputs
    found: set[int] = set()
    while pending:
        value = pending.pop()
        if value is None or value in found:
            continue
        found.add(value)
        # The shape of an operand is known without its value.
        if value in maker and maker[value].op not in _BY_TYPE:
            pending += maker[value].inputs
    return tuple(sorted(i for i in found if i < body.inputs))


def is_deterministic(op: OpKey, attrs: Attrs = (), *, training: bool = True) -> bool:
    """Whether equal inputs give equal outputs, so that two such nodes are the same value.

    An operator with a Python function is assumed to be deterministic: its declaration promises that.

    A seed does not make a generator deterministic: it starts a stream, whose state each run advances.

    Args:
        op: The operator.
        attrs: Its attributes; subgraphs are searched for random operators.
        training: ``Dropout`` only: False where its ``training_mode`` is absent or constant false, which makes
            it an identity. The default is the answer that is right without looking.
    """
    body = function_body(op, attrs)
    if body is not None:
        return all(is_deterministic(node.op, node.attrs) for node in body.nodes)
    if find_reference(op) is not None:
        return True
    if op.domain not in _KNOWN_DOMAINS or has(op, Trait.RANDOM):
        return False
    if op == OpKey("", "Dropout"):
        return not training
    return all(_graph_is_deterministic(v.graph) for _, v in attrs if isinstance(v, GraphAttr))


def _graph_is_deterministic(graph: ir.Graph) -> bool:
    for node in graph.all_nodes():
        domain = "" if node.domain == "ai.onnx" else node.domain
        if not is_deterministic(OpKey(domain, node.op_type)):
            return False
    return True


def is_data_movement(op: OpKey) -> bool:
    """Whether the operator only moves, copies, generates or selects elements: no arithmetic on them."""
    return has(op, Trait.MOVES)


def contracted_inputs(op: OpKey) -> tuple[int, ...]:
    """Indices of the inputs whose elements are multiplied and summed up, as weights are.

    The rounding of a small element is compared with the largest one of the sum.
    """
    return operator(op).contracted


def requires_finite(op: OpKey) -> bool:
    """Whether algebra over the reals needs the operator's operands to be finite.

    Not where elements are moved, compared or selected: a bound of ``Clip`` may be infinite. Nor in sums, so that masks
    of ``-inf`` move freely: a finite number plus ``-inf`` is ``-inf`` in any order.
    """
    return not operator(op).traits & (Trait.MOVES | Trait.SELECTS | Trait.SUMS)
