"""What contradicts the specification is refused when a model is loaded, before a kernel or generated C meets it."""

from __future__ import annotations

import onnx
import pytest

import eqsat
from eqsat.errors import ModelError


def _ints(name: str, *values: int) -> str:
    return f"{name} = Constant<value_ints=[{', '.join(map(str, values))}]>()"


_X = "g (float[2,3] x) => (float y)"
_IMAGE = "g (float[1,1,8,8] x) => (float y)"
_CONV = "g (float[1,4,8,8] x, float[4,4,2,2] w) => (float y)"
_LINE = "g (float[6] x, float[1] u) => (float y)"
_INT = "g (int64[3] x) => (int64 y)"
_WRONG = {
    "window larger than the input": ("g (float[1,1,3,3] x) => (float y)", "y = AveragePool<kernel_shape=[5,5]>(x)"),
    "window larger than the input, with a stride": (
        "g (float[1,1,3] x) => (float y)",
        "y = MaxPool<kernel_shape=[4], strides=[2]>(x)",
    ),
    "filter larger than the input, with a stride": (
        "g (float[1,1,3] x, float[1,1,5] w) => (float y)",
        "y = Conv<strides=[4]>(x, w)",
    ),
    "dilated window": ("g (float[1,1,3,3] x) => (float y)", "y = MaxPool<kernel_shape=[2,2], dilations=[4,4]>(x)"),
    "kernel of zero": (_IMAGE, "y = MaxPool<kernel_shape=[0,2]>(x)"),
    "negative kernel": (_IMAGE, "y = AveragePool<kernel_shape=[-1,2]>(x)"),
    "stride of zero": (_IMAGE, "y = MaxPool<kernel_shape=[2,2], strides=[0,1]>(x)"),
    "dilation of zero": (_CONV, "y = Conv<dilations=[0,1]>(x, w)"),
    "negative pads": (_CONV, "y = Conv<pads=[-1,-1,-1,-1]>(x, w)"),
    "too few pads": (_IMAGE, "y = AveragePool<kernel_shape=[2,2], pads=[1,1]>(x)"),
    "padding by no such word": (_IMAGE, 'y = AveragePool<kernel_shape=[2,2], auto_pad="FOO">(x)'),
    "groups that do not divide": (_CONV, "y = Conv<group=3>(x, w)"),
    "no groups": (_CONV, "y = ConvTranspose<group=0>(x, w)"),
    "permutation with an axis twice": (_X, "y = Transpose<perm=[0,0]>(x)"),
    "permutation of too few axes": (_X, "y = Transpose<perm=[0]>(x)"),
    "reduced axis twice": (_X, f"{_ints('a', 0, 0)} y = ReduceSum(x, a)"),
    "reduced axis by two names": (_X, f"{_ints('a', 1, -1)} y = ReduceMax(x, a)"),
    "reduced axis that is not there": (_X, f"{_ints('a', 2)} y = ReduceMean(x, a)"),
    "squeezed axis twice": ("g (float[1,1] x) => (float y)", f"{_ints('a', 0, -2)} y = Squeeze(x, a)"),
    "inserted axis twice": (_X, f"{_ints('a', 0, -4)} y = Unsqueeze(x, a)"),
    "padded axis twice": (_X, f"{_ints('p', 1, 1, 1, 1)} {_ints('a', 0, 0)} y = Pad(x, p, , a)"),
    "sliced axis twice": (_X, f"{_ints('s', 0, 0)} {_ints('e', 1, 1)} {_ints('a', 0, 0)} y = Slice(x, s, e, a)"),
    "step of zero": (_LINE, f"{_ints('s', 0)} {_ints('e', 1)} y = Slice(x, s, e, s, s)"),
    "starts without ends": (_LINE, f"{_ints('s', 0, 1)} {_ints('e', 1)} y = Slice(x, s, e)"),
    "axis beyond the rank": (_X, "y = Softmax<axis=2>(x)"),
    "axis before the rank": (_X, "y = LogSoftmax<axis=-3>(x)"),
    "axis of Hardmax": (_X, "y = Hardmax<axis=-3>(x)"),
    "axis of Concat": (_X, "y = Concat<axis=2>(x, x)"),
    "axis of Flatten": (_X, "y = Flatten<axis=-3>(x)"),
    "axis of ArgMax": ("g (float[2,3] x) => (int64 y)", "y = ArgMax<axis=-3>(x)"),
    "axis of LayerNormalization": ("g (float[2,3] x, float[3] s) => (float y)", "y = LayerNormalization<axis=4>(x, s)"),
    "index beyond the data": (_LINE, f"{_ints('i', 6)} y = Gather(x, i)"),
    "index of GatherElements": (_LINE, f"{_ints('i', -7)} y = GatherElements(x, i)"),
    "index of GatherND": (_LINE, f"{_ints('i', 6)} y = GatherND(x, i)"),
    "index of ScatterElements": (_LINE, f"{_ints('i', 6)} y = ScatterElements(x, i, u)"),
    "index of ScatterND": (_LINE, "i = Constant<value=int64[1,1] {7}>() y = ScatterND(x, i, u)"),
    "reduction by no such word": (_LINE, f'{_ints("i", 1)} y = ScatterElements<reduction="foo">(x, i, u)'),
    "negative batch": ("g (float[2,2] x, int64[2,1] i) => (float y)", "y = GatherND<batch_dims=-1>(x, i)"),
    "parts that do not add up": (_LINE, f"{_ints('k', 2, 3)} y, z = Split(x, k)"),
    "negative part": (_LINE, f"{_ints('k', -2, 8)} y, z = Split(x, k)"),
    "two dimensions to infer": (_LINE, f"{_ints('s', -1, -1)} y = Reshape(x, s)"),
    "negative dimensions": (_LINE, f"{_ints('s', -2, -3)} y = Reshape(x, s)"),
    "elements that do not divide": (_LINE, f"{_ints('s', -1, 4)} y = Reshape(x, s)"),
    "negative repeats": (_LINE, f"{_ints('s', -1)} y = Tile(x, s)"),
    "crop of more than there is": (_LINE, f"{_ints('s', -4, -4)} y = Pad(x, s)"),
    "padding mode": (_LINE, f'{_ints("s", 1, 1)} y = Pad<mode="foo">(x, s)'),
    "nothing to repeat": ("g (float[0] x) => (float y)", f'{_ints("s", 1, 1)} y = Pad<mode="edge">(x, s)'),
    "element type 99": (_X, "y = Cast<to=99>(x)"),
    "element type 0": (_X, "y = Cast<to=0>(x)"),
    "division by zero": (_INT, f"{_ints('s', 1, 0, 1)} y = Div(x, s)"),
    "division by a computed zero": (_INT, f"{_ints('a', 5)} {_ints('b', -5)} s = Add(a, b) y = Div(x, s)"),
    "remainder by zero": (_INT, f"{_ints('s', 0)} y = Mod(x, s)"),
    "8 bits by zero": ("g (int8[3] x) => (int8 y)", "s = Constant<value=int8 {0}>() y = Div(x, s)"),
    "constant by zero": ("g () => (int64 y)", f"{_ints('x', 5)} {_ints('s', 0)} y = Div(x, s)"),
    "remainder of floats": (_X, "y = Mod(x, x)"),
    "range without an end": ("g () => (int64 y)", "s = Constant<value_int=0>() y = Range(s, s, s)"),
    "window of LRN": (_IMAGE, "y = LRN<size=0>(x)"),
    "power of LpPool": (_IMAGE, "y = LpPool<kernel_shape=[2,2], p=0>(x)"),
    "power of a norm": (_X, "y = LpNormalization<p=3>(x)"),
    "blocks of channels": ("g (float[1,4,2,2] x) => (float y)", "y = DepthToSpace<blocksize=3>(x)"),
    "blocks of pixels": ("g (float[1,4,2,2] x) => (float y)", "y = SpaceToDepth<blocksize=3>(x)"),
    "order of blocks": ("g (float[1,4,2,2] x) => (float y)", 'y = DepthToSpace<blocksize=2, mode="foo">(x)'),
    "scale of zero": (_IMAGE, "s = Constant<value_floats=[1.0,1.0,0.0,2.0]>() y = Resize(x, , s)"),
    "interpolation": (_IMAGE, 's = Constant<value_floats=[1.0,1.0,2.0,2.0]>() y = Resize<mode="foo">(x, , s)'),
    "direction": (
        "g (float[2,1,3] x, float[1,16,3] w, float[1,16,4] r) => (float y)",
        'y = LSTM<hidden_size=4, direction="foo">(x, w, r)',
    ),
    "shift": ("g (uint8[2] x) => (uint8 y)", 'y = BitShift<direction="UP">(x, x)'),
    "one axis for time and batch": (
        "g (float[2,3] x, int64[3] l) => (float y)",
        "y = ReverseSequence<time_axis=0, batch_axis=0>(x, l)",
    ),
    **{
        f"{op} with {heads} heads": (
            "g (float[2,4,16] x, float[16,48] w, float[48] b, int32[2] l, int32[1] t) => (float y)",
            f"y = com.microsoft.{op}<num_heads={heads}, {more}>({operands})",
        )
        for op, operands, more in (
            ("Attention", "x, w, b", "unidirectional=0"),
            ("MultiHeadAttention", "x, x, x", "unidirectional=0"),
            ("GroupQueryAttention", "x, x, x, , , l, t", "kv_num_heads=3"),
        )
        for heads in (0, -2, 5)
    },
    **{
        f"attention whose {what} differ": (
            f"g (float[{q}] q, float[{k}] k, float[{v}] v) => (float y)",
            f"y = Attention<scale=1.0{more}>(q, k, v)",
        )
        for what, q, k, v, more in (
            ("batches", "1,2,4,8", "3,2,4,8", "3,2,4,8", ""),
            ("batches of values", "2,2,4,8", "2,2,4,8", "1,2,4,8", ""),
            ("heads", "1,3,4,8", "1,2,4,8", "1,2,4,8", ""),
            ("heads of values", "1,2,4,8", "1,2,4,8", "1,1,4,8", ""),
            ("rows", "1,2,4,8", "1,2,5,8", "1,2,6,8", ""),
            ("sizes of heads", "1,2,4,8", "1,2,4,6", "1,2,4,8", ""),
            ("ranks", "1,4,16", "1,2,4,8", "1,2,4,8", ", q_num_heads=2, kv_num_heads=2"),
            ("widths", "1,4,16", "1,4,12", "1,4,12", ", q_num_heads=2, kv_num_heads=2"),
            ("columns from heads", "1,4,15", "1,4,15", "1,4,15", ", q_num_heads=2, kv_num_heads=2"),
            ("heads from a positive number", "1,4,16", "1,4,16", "1,4,16", ""),
        )
    },
    "mask of another number of queries": (
        "g (float[1,2,4,8] q, float[3,4] m) => (float y)",
        "y = Attention<scale=1.0>(q, q, q, m)",
    ),
    "past of another number of heads": (
        "g (float[1,2,4,8] q, float[1,1,3,8] p) => (float y)",
        "y, a, b = Attention<scale=1.0>(q, q, q, , p, p)",
    ),
    "a constant without a value": ("g () => (float y)", "y = Constant()"),
    "a constant with two values": ("g () => (float y)", "y = Constant<value_int=1, value_float=2.0>()"),
}


@pytest.mark.parametrize("name", _WRONG)
def test_refused(name: str) -> None:
    head, body = _WRONG[name]
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 23, "com.microsoft": 1]>\n{head} {{ {body} }}'
    )
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    with pytest.raises(ModelError) as raised:
        eqsat.load(model)
    assert "node" in raised.value.place


def test_what_the_specification_allows_is_not_refused() -> None:
    for head, body in (
        (_IMAGE, 'y = AveragePool<kernel_shape=[2,2], auto_pad="SAME_LOWER">(x)'),
        (_X, "y = LogSoftmax<axis=-2>(x)"),
        (_X, f"{_ints('a', 0, -1)} y = ReduceSum(x, a)"),
        (_LINE, f"{_ints('i', -6)} y = Gather(x, i)"),
        (_LINE, f"{_ints('s', -1, 1)} y = Pad(x, s)"),
        (_X, "y = Mod<fmod=1>(x, x)"),
        ("g (float[1,1,3] x) => (float y)", "y = AveragePool<kernel_shape=[4], strides=[2], ceil_mode=1>(x)"),
        ("g (float[1,4,2,8] x, float[1,2,3,8] k, float[1,2,3,5] v) => (float y)", "y = Attention(x, k, v)"),
        ("g (float[2,4,2,8] x, bool[4,1,2] m) => (float y)", "y = Attention(x, x, x, m)"),
        ("g (float[1,1,4,8] x, float[1,1,3,8] p) => (float y)", "y, a, b = Attention(x, x, x, , p, p)"),
        (
            "g (float[N,4,16] x, float[N,T,4] k) => (float y)",
            "y = Attention<q_num_heads=8, kv_num_heads=2>(x, k, k)",
        ),
        ("g (float[3] x) => (float y)", "s = Constant<value_float=0.0>() y = Div(x, s)"),
        (_INT, f"{_ints('s', -1)} y = Div(x, s)"),
    ):
        model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 23]>\n{head} {{ {body} }}')
        model.graph.output[0].type.tensor_type.ClearField("shape")
        eqsat.load(model)
