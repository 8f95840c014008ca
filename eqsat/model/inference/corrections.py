"""Corrects rules of ``onnx-shape-inference`` that claim more than holds where dimensions are open.

A wrong claim would make an unsound rewrite look sound, and a sound one unsound.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import onnx_ir as ir
import onnx_shape_inference as osi

from eqsat.ops.operators import standard
from eqsat.ops.traits import Trait

_Rule = Callable[[osi.ShapeInferenceContext, ir.Node], None]


def _keep_broadcasts_sound() -> None:
    """Wraps the package's rules of operators that broadcast.

    They infer ``[N]`` for ``[N] + [M]``. If N is 1 it is ``[M]``, so it is neither, and a rewrite that swaps the
    operands must not change the type.
    """
    osi.registry.collect()
    for name in (*(o.op.name for o in standard() if Trait.BROADCASTS in o.traits), "MatMul"):
        for since in osi.registry.version_boundaries("", name):
            rule = osi.registry.get("", name, since)
            assert rule is not None
            # Of two rules registered for one version the later one counts.
            osi.registry.register("", name, since)(_sound(rule, 2 if name == "MatMul" else 0))


def _sound(rule: _Rule, inner: int) -> _Rule:
    """The rule with open dimensions where distinct symbols meet; the last ``inner`` dimensions do not broadcast."""

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
                dims[-i] = context.new_symbolic_dim()
        if dims != list(shape):
            output.shape = ir.Shape(dims)

    return sound


def _keep_ranks_sound() -> None:
    """Wraps the package's rules of operators whose rank depends on axes: the package treats unknown axes as no axes."""
    for name in (o.op.name for o in standard() if o.axes is not None and not o.axes.ordered):
        for since in osi.registry.version_boundaries("", name):
            rule = osi.registry.get("", name, since)
            assert rule is not None
            osi.registry.register("", name, since)(_with_known_axes(rule))


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
    """Wraps the package's rule of ``If``: where the shape of one branch is open, it takes that of the other."""
    for since in osi.registry.version_boundaries("", "If"):
        rule = osi.registry.get("", "If", since)
        assert rule is not None
        osi.registry.register("", "If", since)(_of_both_branches(rule))


def _of_both_branches(rule: _Rule) -> _Rule:
    def sound(context: osi.ShapeInferenceContext, node: ir.Node) -> None:
        before = [output.shape for output in node.outputs]
        rule(context, node)
        branches = [node.attributes[name].as_graph() for name in ("then_branch", "else_branch")]
        for i, output in enumerate(node.outputs):
            if any(i < len(b.outputs) and b.outputs[i].shape is None for b in branches):
                output.shape = before[i]

    return sound


@cache
def make_sound() -> None:
    """Puts the wrapped rules into the package's registry, once."""
    _keep_broadcasts_sound()
    _keep_ranks_sound()
    _keep_branches_sound()
