"""Evaluation of one operator on arrays: eqsat's kernel if there is one, otherwise ``onnx.reference``.

Constant folding and the executor share this; only whole models need more (see ``eqsat/execute``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from eqsat import bounds
from eqsat.errors import EqsatError, ExecutionError, LimitError
from eqsat.ops.blas import LARGE, all_threads
from eqsat.ops.definition import BodyOf
from eqsat.ops.need import Need
from eqsat.ops.needs import is_parametric, need_of, product_of_sizes
from eqsat.ops.numpy_kernel import Fallback, NumpyKernel, find
from eqsat.ops.operators import has, operator
from eqsat.ops.schemas import defaults, since_version
from eqsat.ops.traits import Trait
from eqsat.schema import opset
from eqsat.schema.attributes import to_protos
from eqsat.schema.body import Body, BodyNode
from eqsat.schema.declared_operators import Function, Reference, find_declared, find_reference, function_body
from eqsat.schema.types import CONSTANT, Attrs, AttrValue, GraphAttr, OpKey, TensorAttr, TensorType, type_of_array

if TYPE_CHECKING:
    from eqsat.ops.reference import ReferenceNode

TensorValue = Any
"""A value along an edge: an array, a list of values (sequence), or None (an absent input, an empty optional)."""

EvaluateOperator = Callable[[Sequence[TensorValue]], tuple[TensorValue, ...]]


def evaluate(
    op: OpKey, attrs: Attrs, inputs: Sequence[np.ndarray | None], outputs: int = 1
) -> tuple[np.ndarray | None, ...]:
    """Evaluates one operator of the pinned opset, of ``com.microsoft``, or a function of eqsat.

    Args:
        op: The operator.
        attrs: Its attributes; defaults need not be filled in.
        inputs: Arrays, None for an absent optional input. The values that its subgraphs capture
            follow the operator's own inputs, in the order of ``GraphAttr.captured``.
        outputs: Number of outputs wanted.

    Raises:
        ExecutionError: There is no implementation, or it refuses these inputs.
        LimitError: It takes more memory or work than is left.
    """
    if op == CONSTANT:
        # A function of its own, because its attributes are too large to be keys of a cache.
        constant = constant_value(attrs)
        if constant is None:
            actual = ", ".join(name for name, _ in attrs) or "none"
            raise ExecutionError("a dense value is required", place="Constant", actual=actual)
        return (constant,)
    declared = find_declared(op)
    if isinstance(declared, Function):
        return evaluate_body(declared.body(dict(declared.complete(attrs))), inputs)[:outputs]
    if declared is not None:
        return reference_operation(declared, dict(attrs))(inputs)[:outputs]
    with np.errstate(all="ignore"):
        return _cached_operation(op, attrs, outputs)(inputs)[:outputs]


def evaluate_body(body: Body, inputs: Sequence[np.ndarray | None]) -> tuple[np.ndarray | None, ...]:
    """Evaluates a straight-line program.

    Args:
        body: The program.
        inputs: Its inputs; missing ones at the end are absent.

    Raises:
        ExecutionError: A node cannot be evaluated, or there are too many inputs.
    """
    if len(inputs) > body.inputs:
        raise ExecutionError(f"at most {body.inputs} inputs are required", place="body", actual=str(len(inputs)))
    values: list[np.ndarray | None] = [*inputs, *[None] * (body.inputs - len(inputs))]
    for node in body.nodes:
        arguments = [None if i is None else values[i] for i in node.inputs]
        values.extend(evaluate(node.op, node.attrs, arguments, node.outputs))
    return tuple(values[i] for i in body.results)


def constant_value(attrs: Attrs) -> np.ndarray | None:
    """Value of a ``Constant`` node, None if it is sparse."""
    for name, value in attrs:
        if isinstance(value, TensorAttr):
            return value.array
        if name in _CONSTANT_DTYPES:
            return np.array(value, _CONSTANT_DTYPES[name])
    return None


_CONSTANT_DTYPES = {
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_int": np.int64,
    "value_ints": np.int64,
    "value_string": object,
    "value_strings": object,
}


@lru_cache(maxsize=4096)
def _cached_operation(op: OpKey, attrs: Attrs, outputs: int) -> EvaluateOperator:
    return operation(op, dict(attrs), None, outputs, lambda: to_protos(attrs, op))


def operation(
    op: OpKey,
    attrs: Mapping[str, AttrValue],
    version: int | None,
    outputs: int,
    protos: Callable[[], Sequence[onnx.AttributeProto]],
    place: str = "",
) -> EvaluateOperator:
    """The function that evaluates a node, chosen once and called for each run.

    Args:
        op: The operator. The caller handles functions and control flow with captured values.
        attrs: Its attributes; defaults are filled in here.
        version: Opset of its domain, None for the pinned one.
        outputs: Number of its outputs.
        protos: Returns its attributes as protobuf; only called if ``onnx.reference`` is needed.
        place: Where the node is, for messages.

    Raises:
        ExecutionError: Raised by the result when called: there is no implementation, or it refuses the inputs.
    """
    place = place or str(op)
    declared = find_reference(op)
    if declared is not None:
        return reference_operation(declared, attrs, place)
    known = operator(op)
    found = find(known.kernels, since_version(op, version))
    if not has_meaning(op):
        return partial(_refuse, op, place)
    complete = {**defaults(op), **defaults(op, version), **attrs}
    fallback = _reference(op, version, outputs, protos, attrs)
    if known.definition is not None:
        fallback = _defined(known.definition, complete, outputs, fallback, place)
    call = _guarded(fallback, place) if found is None else _kernel_call(found, complete, outputs, fallback, place)
    return call if has(op, Trait.FORWARDS) else _admitted(call, op, complete, place)


def has_meaning(op: OpKey) -> bool:
    """Whether ONNX, eqsat or a declaration says what an operator computes."""
    domain, known = opset.canonical_domain(op.domain), operator(op)
    by_onnx = domain in opset.OPSETS and domain != opset.MICROSOFT
    return by_onnx or bool(known.kernels) or known.definition is not None or find_declared(op) is not None


def how_to_declare(op: OpKey) -> str:
    """A hint for an operator without a meaning; operators of ONNX Runtime cannot be declared."""
    if op.domain in opset.OPSETS:
        return ""
    return f"declare what it computes: `operator {op}(...) = ...` in a file of rules, or for --declarations"


def _refuse(op: OpKey, place: str, inputs: Sequence[TensorValue]) -> tuple[TensorValue, ...]:
    requirement = "an operator that ONNX, eqsat or a declaration defines is required"
    raise ExecutionError(requirement, place=place, actual=f"`{op}`", hint=how_to_declare(op))


def reference_operation(reference: Reference, attrs: Mapping[str, AttrValue], place: str = "") -> EvaluateOperator:
    """The Python function of a declared operator; its results must have the types that the declaration states."""
    place = place or str(reference.op)
    complete = dict(reference.complete(tuple(attrs.items())))

    def call(inputs: Sequence[TensorValue]) -> tuple[TensorValue, ...]:
        with np.errstate(all="ignore"):
            # Copies: the function may be anybody's, and the operands are read by others.
            found = reference.compute(*(np.array(x) for x in inputs), **complete)
        results = tuple(np.asarray(r) for r in (found if isinstance(found, tuple | list) else (found,)))
        stated = reference.infer([type_of_array(np.asarray(x)) for x in inputs], tuple(complete.items()))
        if len(results) != len(stated) or not all(map(_is_of_type, results, stated)):
            raise ExecutionError(
                f"results of the types that {reference.op} declares are required: {', '.join(map(str, stated))}",
                place=place,
                actual=", ".join(map(describe, results)),
            )
        return results

    return _guarded(call, place)


def _is_of_type(array: np.ndarray, stated: TensorType) -> bool:
    found = type_of_array(array)
    dims = stated.shape
    fits = dims is None or len(dims) == array.ndim
    return (
        found.dtype == stated.dtype
        and fits
        and all(a == b for a, b in zip(array.shape, dims or (), strict=False) if isinstance(b, int))
    )


def _admitted(call: EvaluateOperator, op: OpKey, attrs: Mapping[str, AttrValue], place: str) -> EvaluateOperator:
    """An operator that asks before it allocates and computes much."""
    always = is_parametric(op)

    def admitted(inputs: Sequence[TensorValue]) -> tuple[TensorValue, ...]:
        operations = 0
        if always or product_of_sizes(inputs) > bounds.FREE:
            need = try_need(op, attrs, inputs)
            if need is not None and max(need) > bounds.FREE:
                bounds.current().admit(need.elements * _width(inputs), need.operations, place)
                operations = need.operations
        if operations < LARGE:
            results = call(inputs)
        else:
            with all_threads():
                results = call(inputs)
        for result in results:
            if type(result) is np.ndarray and result.nbytes >= bounds.HELD:
                bounds.current().hold(result)
        return results

    return admitted


def _width(inputs: Sequence[TensorValue]) -> int:
    return max((x.dtype.itemsize for x in inputs if isinstance(x, np.ndarray)), default=8)


def fold(
    op: OpKey, attrs: Attrs, inputs: Sequence[np.ndarray | None], outputs: int = 1, *, largest: int = 0
) -> tuple[np.ndarray | None, ...]:
    """Evaluates an operator whose operands are constants, if the result is worth storing.

    Args:
        op: The operator.
        attrs: Its attributes.
        inputs: Its operands.
        outputs: Number of outputs wanted.
        largest: Elements of the largest constant of the model: results of that size are worth it.

    Raises:
        ExecutionError: There is no implementation, or it refuses these inputs.
        LimitError: The result is too large or takes too long; it may still be computed at run time.
    """
    body = function_body(op, attrs)
    for _, value in attrs:
        if isinstance(value, GraphAttr):
            raise LimitError("only a constant without control flow can be computed in advance", place=str(op))
    need = None if body is not None else try_need(op, {**defaults(op), **dict(attrs)}, inputs)
    if need is not None and not may_fold(need, largest):
        raise LimitError(
            f"a constant of at most {max(bounds.FOLD_ELEMENTS, 2 * largest):,} elements and {bounds.FOLD_OPERATIONS:,} "
            "operations can be computed in advance",
            place=str(op),
            actual=f"{need.elements:,} elements and {need.operations:,} operations",
        )
    return evaluate(op, attrs, inputs, outputs)


def may_fold(need: Need, largest: int = 0) -> bool:
    """Whether to compute a constant with such needs once and store it; ``largest`` as in :func:`fold`."""
    return need.elements <= max(bounds.FOLD_ELEMENTS, 2 * largest) and need.operations <= bounds.FOLD_OPERATIONS


def try_need(op: OpKey, attrs: Mapping[str, AttrValue], inputs: Sequence[TensorValue]) -> Need | None:
    """The needs of an operator, None if the inputs do not fit together: evaluating them reports the reason."""
    try:
        return need_of(op, attrs, inputs)
    except Exception:  # counters do not check their operands, so those that do not fit raise anything
        return None


def _kernel_call(
    found: NumpyKernel, attrs: Mapping[str, AttrValue], outputs: int, fallback: EvaluateOperator, place: str
) -> EvaluateOperator:
    """A kernel of ours; one function without further calls, as small operators take a microsecond."""
    run = found.run
    assert run is not None
    if found.counts_outputs:
        run = partial(run, outputs=outputs)
    instead = _guarded(fallback, place)

    def call(inputs: Sequence[TensorValue]) -> tuple[TensorValue, ...]:
        try:
            result = run(attrs, *inputs)
        except Fallback:
            return instead(inputs)
        except Exception as error:
            raise _failure(error, inputs, place) from error
        if type(result) is np.ndarray:
            return (result,)
        if type(result) is tuple:
            return tuple([np.asarray(r) if isinstance(r, np.generic) else r for r in result])
        return (np.asarray(result) if isinstance(result, np.generic) else result,)

    return call


def _reference(
    op: OpKey,
    version: int | None,
    outputs: int,
    protos: Callable[[], Sequence[onnx.AttributeProto]],
    attrs: Mapping[str, AttrValue],
) -> EvaluateOperator:
    node: ReferenceNode | None = None
    graphs = [a for a in attrs.values() if isinstance(a, GraphAttr)]

    def call(inputs: Sequence[TensorValue]) -> tuple[TensorValue, ...]:
        nonlocal node
        if node is None:
            from eqsat.ops.reference import ReferenceNode

            number = opset.opset_version(op.domain) if version is None else version
            node = ReferenceNode(op, number, protos(), outputs, None if op.domain else number)
        if not graphs:
            return node(inputs)
        names = _captured_names(graphs, len(inputs))
        own = len(inputs) - len(names)
        return node(inputs[:own], dict(zip(names, inputs[own:], strict=True)))

    return call


def _defined(
    definition: BodyOf, attrs: Mapping[str, AttrValue], outputs: int, otherwise: EvaluateOperator, place: str
) -> EvaluateOperator:
    """An operator by its definition, which is made once for each signature."""
    bodies: dict[tuple[TensorType | None, ...], _Prepared | None] = {}

    def call(inputs: Sequence[TensorValue]) -> tuple[TensorValue, ...]:
        types = tuple([None if x is None else type_of_array(x) for x in inputs])
        if types not in bodies:
            body = definition(attrs, types)
            bodies[types] = None if body is None or len(body.results) < outputs else _Prepared(body)
        prepared = bodies[types]
        if prepared is None:
            return otherwise(inputs)
        try:
            return prepared(inputs)[:outputs]
        except ExecutionError as error:
            # The operators of the definition are not in the model.
            raise _failure(ValueError(error.hint or str(error)), inputs, place) from error

    return call


class _Prepared:
    """A body whose operators are chosen once: attributes of trained models are too large to look up in each run."""

    def __init__(self, body: Body) -> None:
        self._body = body
        self._operations = [_chosen(node) for node in body.nodes]

    def __call__(self, inputs: Sequence[TensorValue]) -> tuple[TensorValue, ...]:
        values: list[TensorValue] = [*inputs, *[None] * (self._body.inputs - len(inputs))]
        with np.errstate(all="ignore"):
            for node, run in zip(self._body.nodes, self._operations, strict=True):
                values.extend(run([None if i is None else values[i] for i in node.inputs])[: node.outputs])
        return tuple(values[i] for i in self._body.results)


def _chosen(node: BodyNode) -> EvaluateOperator:
    if node.op == CONSTANT or find_declared(node.op) is not None:
        return partial(evaluate, node.op, node.attrs, outputs=node.outputs)
    return operation(node.op, dict(node.attrs), None, node.outputs, partial(to_protos, node.attrs, node.op))


def _captured_names(graphs: Sequence[GraphAttr], inputs: int) -> list[str]:
    return [name for graph in graphs for name in graph.captured][:inputs]


def _guarded(call: EvaluateOperator, place: str) -> EvaluateOperator:
    """Turn any error inside an implementation into one message with the place and the inputs."""

    def guarded(inputs: Sequence[TensorValue]) -> tuple[TensorValue, ...]:
        try:
            return call(inputs)
        except Exception as error:
            raise _failure(error, inputs, place) from error

    return guarded


def _failure(error: Exception, inputs: Sequence[TensorValue], place: str) -> EqsatError:
    if isinstance(error, EqsatError):
        return error
    if isinstance(error, MemoryError):
        return bounds.out_of_memory(place)
    if isinstance(error, RecursionError):
        return bounds.too_deep(place)
    given = ", ".join(describe(x) for x in inputs) or "no inputs"
    reason = " ".join(str(error).split()) or type(error).__name__
    return ExecutionError(
        "inputs that the operator is defined for are required", place=place, actual=given, hint=reason[:300]
    )


def describe(value: TensorValue) -> str:
    """Type and shape of a value, for messages."""
    if value is None:
        return "absent"
    if isinstance(value, list):
        return f"sequence of {len(value)}"
    if isinstance(value, dict):
        return f"map of {len(value)}"
    array = np.asarray(value)
    return f"{array.dtype}[{', '.join(str(d) for d in array.shape)}]"
