"""Corrects rules of ``onnx-shape-inference`` that claim too much if dimensions are open.

A wrong claim would make an unsound rewrite look sound, and a sound one unsound.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import onnx_ir as ir
import onnx_shape_inference as osi

from eqsat.model.inference.carried import CARRIED_SHAPE, is_true, keeps_condition
from eqsat.ops.operators import standard
from eqsat.ops.traits import Trait
from eqsat.schema.types import OpKey

_Rule = Callable[[osi.ShapeInferenceContext, ir.Node], None]

LONGEST = 160
"""Characters of an expression for a size; a longer one becomes a symbol of its own."""
_SIZES = frozenset({ir.DataType.INT32, ir.DataType.INT64})
"""Element types of shapes."""
ENDLESS = 10**9
"""Ends of a Slice from here on mean "to the end": no axis of an open size is that long."""


def _wrap(op: OpKey, wrapped: Callable[[_Rule], _Rule]) -> None:
    """Puts other rules in the place of an operator's; of two rules registered for one version the later one counts."""
    for since in osi.registry.version_boundaries(op.domain, op.name):
        rule = osi.registry.get(op.domain, op.name, since)
        assert rule is not None
        osi.registry.register(op.domain, op.name, since)(wrapped(rule))


def _keep_broadcasts_sound() -> None:
    """Wraps the package's rules of operators that broadcast.

    They infer ``[N]`` for ``[N] + [M]``. If N is 1 it is ``[M]``, so the size is the greater of both, and a rewrite
    that swaps the operands must not change the type.
    """
    for operator in standard():
        if Trait.BROADCASTS in operator.traits:
            _wrap(operator.op, partial(_sound, inner=0))
    _wrap(OpKey("", "MatMul"), partial(_sound, inner=2))


def _sound(rule: _Rule, inner: int) -> _Rule:
    """The rule with the greatest of distinct symbols that meet; the last ``inner`` dimensions do not broadcast."""

    def sound(context: osi.ShapeInferenceContext, node: ir.Node) -> None:
        output = node.outputs[0]
        before = output.shape
        rule(context, node)
        shapes = [v.shape for v in node.inputs if v is not None]
        shape = output.shape
        if shape is None or any(s is None for s in shapes):
            return
        dims = list(shape)
        for i in range(inner + 1, len(dims) + 1):
            met = {s[-i] for s in shapes if s is not None and len(s) >= max(i, inner)} - {1}
            declared = before is not None and len(before) == len(dims) and before[-i] == dims[-i]
            if len(met) > 1 and not any(isinstance(d, int) for d in met) and not declared:
                dims[-i] = _greatest(context, met)
        if dims != list(shape):
            output.shape = ir.Shape(dims)

    return sound


def _greatest(context: osi.ShapeInferenceContext, sizes: set[int | ir.SymbolicDim]) -> int | ir.SymbolicDim:
    """The size to which several broadcast: they are equal or 1, so it is the greatest of them, if none can be 0."""
    names = [str(d.value) for d in sizes if isinstance(d, ir.SymbolicDim) and d.value is not None]
    symbols = {name for d in sizes if isinstance(d, ir.SymbolicDim) for name in d.free_symbols()}
    if len(names) < len(sizes) or any(map(context.is_generated_symbol, symbols)):
        return context.new_symbolic_dim()
    return ir.SymbolicDim(f"Max({', '.join(sorted(names))})") + 0


def _keep_ranks_sound() -> None:
    """Wraps the package's rules of operators whose rank depends on axes: the package treats unknown axes as no axes."""
    for operator in standard():
        if operator.axes is not None and not operator.axes.ordered:
            _wrap(operator.op, _with_known_axes)


def _with_known_axes(rule: _Rule) -> _Rule:
    def sound(context: osi.ShapeInferenceContext, node: ir.Node) -> None:
        axes = node.inputs[1] if len(node.inputs) > 1 else None
        data = node.inputs[0]
        if axes is None or data is None or context.get_symbolic_value(axes) is not None:
            rule(context, node)
        elif data.dtype is not None:
            context.set_shape_and_dtype(node.outputs[0], None, data.dtype)

    return sound


def _keep_branches_sound() -> None:
    """Wraps the package's rule of ``If``, which ignores a branch of open shape and takes the shape of the other."""
    _wrap(OpKey("", "If"), _of_both_branches)


def _of_both_branches(rule: _Rule) -> _Rule:
    def sound(context: osi.ShapeInferenceContext, node: ir.Node) -> None:
        before = [output.shape for output in node.outputs]
        rule(context, node)
        branches = [node.attributes[name].as_graph() for name in ("then_branch", "else_branch")]
        for i, output in enumerate(node.outputs):
            if any(i < len(b.outputs) and b.outputs[i].shape is None for b in branches):
                output.shape = before[i]

    return sound


def _keep_slices_sound() -> None:
    """Wraps the package's rule of ``Slice``: where a size is open, it takes the part between two numbers to exist."""
    _wrap(OpKey("", "Slice"), _within_size)


def _within_size(rule: _Rule) -> _Rule:
    def sound(context: osi.ShapeInferenceContext, node: ir.Node) -> None:
        output = node.outputs[0]
        before = output.shape
        rule(context, node)
        data, shape = node.inputs[0], output.shape
        if data is None or data.shape is None or shape is None or len(shape) != len(data.shape):
            return
        starts, ends, axes, steps = (_integers(context, node, position) for position in range(1, 5))
        if starts is None or ends is None:
            return
        dims = list(shape)
        for i, (start, end) in enumerate(zip(starts, ends, strict=False)):
            axis = (axes[i] if axes else i) % len(dims)
            step = steps[i] if steps else 1
            size = data.shape[axis]
            declared = before is not None and len(before) == len(dims) and isinstance(before[axis], int)
            if (start, step) == (-1, -1) and end <= -ENDLESS and not declared:
                dims[axis] = size
                continue
            if isinstance(size, int) or step < 1 or start < 0 or end < 0 or declared:
                continue
            last = size if end >= ENDLESS else _least(size, end)
            dims[axis] = size if last is size and (start, step) == (0, 1) else _steps(context, last, start, step)
        if dims != list(shape):
            output.shape = ir.Shape(dims)

    return sound


def _integers(context: osi.ShapeInferenceContext, node: ir.Node, position: int) -> list[int] | None:
    value = node.inputs[position] if position < len(node.inputs) else None
    known = None if value is None else context.get_symbolic_value(value)
    if known is None or not all(isinstance(x, int) for x in known):
        return None
    return [x for x in known if isinstance(x, int)]


def _least(size: ir.SymbolicDim, end: int) -> ir.SymbolicDim:
    return ir.SymbolicDim(f"Min({end}, {size.value})") if size.value is not None else size


def _steps(context: osi.ShapeInferenceContext, last: ir.SymbolicDim, start: int, step: int) -> int | ir.SymbolicDim:
    """How often one can step from a start to an end that is not before the beginning."""
    can_be_empty = any(map(context.is_generated_symbol, last.free_symbols()))
    if last.value is None or (start and can_be_empty):
        return context.new_symbolic_dim()
    # The sum brings the expression to the form in which the package compares expressions.
    return ir.SymbolicDim(f"Max(0, floor(({last.value} - {start} + {step - 1})/{step}))") + 0


def _keep_parts_sound() -> None:
    """Wraps the package's rule of ``Split``: it takes parts for equal whose sizes are data."""
    _wrap(OpKey("", "Split"), _of_known_parts)


def _of_known_parts(rule: _Rule) -> _Rule:
    def sound(context: osi.ShapeInferenceContext, node: ir.Node) -> None:
        before = [output.shape for output in node.outputs]
        rule(context, node)
        parts = node.inputs[1] if len(node.inputs) > 1 else None
        if parts is None or context.get_symbolic_value(parts) is not None:
            return
        axis = node.attributes["axis"].as_int() if "axis" in node.attributes else 0
        for output, said in zip(node.outputs, before, strict=True):
            if output.shape is None:
                continue
            dims = list(output.shape)
            declared = said is not None and len(said) == len(dims)
            dims[axis] = said[axis] if said is not None and declared else context.new_symbolic_dim()
            output.shape = ir.Shape(dims)

    return sound


def _keep_windows_sound() -> None:
    """Wraps the package's rules of pools.

    They count a last window that begins in the padding after the input, and know no size of ``SAME_UPPER``.
    """
    for name in ("AveragePool", "LpPool", "MaxPool"):
        _wrap(OpKey("", name), _of_windows_inside)


def _of_windows_inside(rule: _Rule) -> _Rule:
    def sound(context: osi.ShapeInferenceContext, node: ir.Node) -> None:
        rule(context, node)
        data, known = node.inputs[0], node.outputs[0].shape
        if data is None or data.shape is None or known is None or len(known) != len(data.shape):
            return
        rank = len(known) - 2
        kernel, strides, dilations, pads = (
            node.attributes[name].as_ints() if name in node.attributes else ()
            for name in ("kernel_shape", "strides", "dilations", "pads")
        )
        mode = node.attributes["auto_pad"].as_string() if "auto_pad" in node.attributes else "NOTSET"
        ceil = "ceil_mode" in node.attributes and node.attributes["ceil_mode"].as_int()
        dims = list(known)
        for i, size in enumerate(data.shape[2:]):
            stride = strides[i] if strides else 1
            span = (kernel[i] - 1) * (dilations[i] if dilations else 1) + 1
            begin, end = (pads[i], pads[rank + i]) if pads and mode == "NOTSET" else (0, 0)
            if isinstance(size, int) or size.value is None:
                continue
            most = f"floor(({size.value} + {begin + stride - 1})/{stride})"
            if mode.startswith("SAME"):
                dims[2 + i] = ir.SymbolicDim(most) + 0
            elif ceil and end <= span < end + stride:
                room = f"{size.value} + {begin + end - span + 2 * stride - 1}"
                dims[2 + i] = ir.SymbolicDim(f"Min(floor(({room})/{stride}), {most})") + 0
        for output in node.outputs:
            output.shape = ir.Shape(dims)

    return sound


def _keep_expressions_short() -> None:
    """Wraps all rules of the package: expressions that grow with the model take time that grows with its square."""
    for domain, name, _ in list(osi.registry.iter_supported()):
        _wrap(OpKey(domain, name), _with_short_expressions)


def _with_short_expressions(rule: _Rule) -> _Rule:
    def short(context: osi.ShapeInferenceContext, node: ir.Node) -> None:
        rule(context, node)
        for value in node.outputs:
            if value.shape is not None and any(map(_is_long, value.shape)):
                value.shape = ir.Shape([context.new_symbolic_dim() if _is_long(d) else d for d in value.shape])
            known = context.get_symbolic_value(value) if osi.SYM_DATA_KEY in value.metadata_props else None
            if known is not None and any(map(_is_long, known)):
                context.set_symbolic_value(value, [context.new_symbolic_dim() if _is_long(d) else d for d in known])

    return short


def _is_long(size: int | ir.SymbolicDim) -> bool:
    return isinstance(size, ir.SymbolicDim) and size.value is not None and len(size.value) > LONGEST


@cache
def _keep_loops_sound() -> None:
    """Wraps the package's rules of Loop and Scan.

    They take the shapes of the first round for those of all rounds, and the limit of a Loop for its number of rounds,
    and refuse a Loop without a condition, which is optional.
    """
    _wrap(OpKey("", "Loop"), _with_condition)
    _wrap(OpKey("", "Loop"), _until_condition)
    _wrap(OpKey("", "Loop"), partial(_for_all_rounds, before=2, after=1))
    _wrap(OpKey("", "Scan"), partial(_for_all_rounds, before=0, after=0))


def _with_condition(rule: _Rule) -> _Rule:
    """The rule for a Loop that begins in any case."""

    def with_condition(context: osi.ShapeInferenceContext, node: ir.Node) -> None:
        if len(node.inputs) < 2 or node.inputs[1] is not None:
            return rule(context, node)
        node.replace_input_with(1, ir.Value(type=ir.TensorType(ir.DataType.BOOL), shape=ir.Shape(())))
        try:
            rule(context, node)
        finally:
            node.replace_input_with(1, None)

    return with_condition


def _until_condition(rule: _Rule) -> _Rule:
    """The rule with an open number of rows where a condition may end the loop before its limit."""

    def until_condition(context: osi.ShapeInferenceContext, node: ir.Node) -> None:
        rule(context, node)
        body = node.attributes["body"].as_graph()
        first = node.inputs[1]
        if keeps_condition(body) and (first is None or is_true(first)):
            return
        rows = [v for v in node.outputs[len(body.inputs) - 2 :] if v.shape is not None]
        count = context.new_symbolic_dim() if rows else None
        for value in rows:
            value.shape = ir.Shape([count, *list(value.shape or ())[1:]])

    return until_condition


def _for_all_rounds(rule: _Rule, before: int, after: int) -> _Rule:
    """The rule with open dimensions where the body changes the shape of a value that it carries.

    Args:
        rule: Of the package.
        before: Inputs of the body before the carried values.
        after: Outputs of the body before them.
    """

    def keeping_what_is_proven(context: osi.ShapeInferenceContext, node: ir.Node) -> None:
        proven = {value: value.shape for value in node.outputs if CARRIED_SHAPE in value.meta}
        for_all_rounds(context, node)
        for value, shape in proven.items():
            value.shape = shape

    def for_all_rounds(context: osi.ShapeInferenceContext, node: ir.Node) -> None:
        rule(context, node)
        body = node.attributes["body"].as_graph()
        scanned = node.attributes.get("num_scan_inputs")
        carried = len(body.inputs) - before - (0 if scanned is None else scanned.as_int())
        given = [v.shape for v in body.inputs[before : before + carried]]
        made = [v.shape for v in body.outputs[after : after + carried]]
        if given == made and None not in given:
            return
        # One value that changes may change the others in a later round.
        keep_rank = all(g is not None and m is not None and len(g) == len(m) for g, m in zip(given, made, strict=True))
        for value in node.outputs:
            known = value.shape
            rank = None if known is None or not keep_rank else len(known)
            value.shape = None if rank is None else ir.Shape([context.new_symbolic_dim() for _ in range(rank)])

    return keeping_what_is_proven


@cache
def _follow_sizes() -> None:
    """Wraps the package's rules of operators that lose the sizes that make up a shape.

    tf2onnx multiplies sizes by ReduceProd, and takes the greater sizes of two operands by Max.
    """
    _wrap(OpKey("", "ReduceProd"), _with_product)
    for name in ("Max", "Min"):
        _wrap(OpKey("", name), _with_common_sizes)


def _with_product(rule: _Rule) -> _Rule:
    """Wraps a rule: the result for a vector of sizes is their product."""

    def with_product(context: osi.ShapeInferenceContext, node: ir.Node) -> None:
        rule(context, node)
        source, made = node.inputs[0], node.outputs[0].shape
        is_one = made is not None and all(d == 1 for d in made)
        sizes = context.get_symbolic_value(source) if is_one and source is not None else None
        if sizes is not None and source is not None and source.dtype in _SIZES:
            product: int | ir.SymbolicDim = 1
            for size in sizes:
                product = product * size
            context.set_symbolic_value(node.outputs[0], [product])

    return with_product


def _with_common_sizes(rule: _Rule) -> _Rule:
    """Wraps a rule: operands with equal vectors of sizes give that vector."""

    def with_common_sizes(context: osi.ShapeInferenceContext, node: ir.Node) -> None:
        rule(context, node)
        known = [None if v is None else context.get_symbolic_value(v) for v in node.inputs]
        first = known[0]
        if first is not None and node.outputs[0].dtype in _SIZES and all(sizes == first for sizes in known):
            context.set_symbolic_value(node.outputs[0], first)

    return with_common_sizes


def make_sound() -> None:
    """Puts the wrapped rules into the package's registry, once."""
    osi.registry.collect()
    _keep_broadcasts_sound()
    _keep_ranks_sound()
    _keep_branches_sound()
    _keep_loops_sound()
    _keep_slices_sound()
    _keep_parts_sound()
    _keep_windows_sound()
    _follow_sizes()
    _keep_expressions_short()
