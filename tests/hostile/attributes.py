"""Attributes that no operator can have, on which the libraries below end the process, count for ever, or throw."""

from __future__ import annotations

from collections.abc import Callable

from tests.hostile.case import hostile


def _model(body: str, version: int = 26) -> str:
    inputs = "float[4,1,3] x, int64[1] i, int64[N,1] k"
    return f'<ir_version: 8, opset_import: ["": {version}]>\ng ({inputs}) => (y) {{ {body} }}'


def _called(version: int, own: int, body: str, defaults: str = "b", call: str = "l.f<b=-6>(x, i)") -> str:
    """A model whose function hands its attribute on."""
    model = f'<ir_version: 8, opset_import: ["": {version}, "l": 1]>\n'
    model += f"g (float[4,1,3] x, int64[1] i) => (y) {{ y = {call} }}\n"
    head = f'<domain: "l", opset_import: ["": {own}, "l": 1]>\n'
    return f"{model}{head}f <{defaults}>(x, i) => (y) {{ y = {body} }}\n"


GATHER = "GatherND<batch_dims: int = @b>(x, i)"
MODELS: dict[str, Callable[[], str]] = {
    "negative_batch": lambda: _model("y = GatherND<batch_dims=-6>(x, i)"),
    "least_batch": lambda: _model("y = GatherND<batch_dims=-2147483648>(x, k)"),
    "negative_batch_of_an_old_opset": lambda: _model(
        "z = GatherND<batch_dims=-6>(x, i)  y = ReduceMax<axes=[0]>(z)", 13
    ),
    "negative_batch_in_a_branch": lambda: _model("""c = Constant<value: tensor = bool {1}>()  y = If(c)<
        then_branch = t () => (p) { p = GatherND<batch_dims=-6>(x, i) },
        else_branch = e () => (q) { q = Identity(x) }>"""),
    "negative_batch_in_a_call": lambda: _called(26, 26, GATHER),
    "negative_batch_in_a_call_of_another_opset": lambda: _called(26, 13, GATHER),
    "negative_batch_in_a_call_of_a_newer_opset": lambda: _called(13, 26, GATHER),
    "negative_batch_by_default": lambda: _called(26, 13, GATHER, "b: int = -6", "l.f(x, i)"),
    "negative_batch_in_a_call_of_a_call": lambda: (
        _called(26, 13, "l.h<c: int = @b>(x, i)")
        + '<domain: "l", opset_import: ["": 13]>\nh <c>(x, i) => (y) { y = GatherND<batch_dims: int = @c>(x, i) }\n'
    ),
    "no_element_type": lambda: _model("y = RandomNormalLike<dtype=99>(x)"),
    "no_element_type_of_a_sequence": lambda: _model("s = SequenceEmpty<dtype=-5>()  y = SequenceLength(s)"),
    "one_output_of_two": lambda: _model("y, p = Attention(x, x, x, x, x)"),
    "half_an_output_shape": lambda: _model("y = ConvTranspose<output_shape=[1], kernel_shape=[2,2]>(x, x)"),
    "too_many_strides": lambda: _model(
        'y = ConvTranspose<kernel_shape=[1], strides=[1,3,2], auto_pad="SAME_UPPER">(x, x)'
    ),
    "stride_of_nothing": lambda: _model('y = MaxPool<kernel_shape=[2], strides=[0], auto_pad="SAME_UPPER">(x)'),
}

for _name, _make in MODELS.items():
    _make.__name__ = _name
    hostile("optimize", "run", refused=True)(_make)
