"""Sizes that a model leaves open: what inference says of them holds for every size, and stays short."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from eqsat.model.inference import annotate
from eqsat.model.inference.infer import infer_types
from eqsat.model.load import load
from eqsat.schema.attributes import default_attrs
from eqsat.schema.types import OpKey, TensorType

ENDS = (0, 1, 5, 128, -1, -3, 10**9, 2**31 - 1, 2**63 - 1)


def _sliced(start: int, end: int, step: int) -> int | ir.SymbolicDim:
    model = load(
        f"""<ir_version: 8, opset_import: ["": 13]>
        g (float[N, 4] x) => (float[M, 4] y)
        <int64[1] start = {{{start}}}, int64[1] end = {{{end}}}, int64[1] axis = {{0}}, int64[1] step = {{{step}}}>
        {{ y = Slice(x, start, end, axis, step) }}"""
    )
    shape = model.graph.outputs[0].shape
    assert shape is not None
    return shape[0]


@pytest.mark.parametrize(("start", "end", "step"), [*itertools.product((0, 1, 7, -2), ENDS, (1, 2, 3))])
def test_the_size_of_a_slice_holds_for_every_size_of_its_input(start: int, end: int, step: int):
    size = _sliced(start, end, step)
    for n in (1, 2, 3, 7, 127, 128, 129, 1000):
        if isinstance(size, int):
            assert size == len(range(n)[start:end:step])
        elif "N" in size.free_symbols():
            assert size.evaluate({"N": n}) == len(range(n)[start:end:step])


@pytest.mark.parametrize("end", [10**9, 2**31 - 1, 2**63 - 1])
def test_a_slice_to_a_far_end_keeps_the_size(end: int):
    assert str(_sliced(0, end, 1)) == "N"
    assert str(_sliced(1, end, 1)) == "N - 1"


@pytest.mark.parametrize("end", [-(10**9), -(2**31), -(2**63)])
def test_a_slice_that_turns_an_axis_around_keeps_the_size(end: int):
    assert str(_sliced(-1, end, -1)) == "N"
    for start, step in ((-2, -1), (-1, -2)):
        assert str(_sliced(start, end, step)) != "N"


def test_sizes_that_depend_on_data_stay_short():
    found = 200
    nodes = "\n".join(f"i{k} = NonZero(x{k}) j{k} = Transpose(i{k})" for k in range(found))
    inputs = ", ".join(f"float[N] x{k}" for k in range(found))
    sums = "\n".join(f"s{k} = Concat <axis=0> ({'j0' if k == 1 else f's{k - 1}'}, j{k})" for k in range(1, found))
    model = load(
        f"""<ir_version: 8, opset_import: ["": 13]>
        g ({inputs}) => (int64[M, 1] s{found - 1}) {{ {nodes} {sums} }}"""
    )
    sizes = [d for node in model.graph for v in node.outputs for d in v.shape or ()]
    longest = max(len(d.value or "") for d in sizes if isinstance(d, ir.SymbolicDim))
    assert 3 < longest <= 200


def test_a_broadcast_of_two_open_sizes_is_the_greater_one():
    model = load(
        """<ir_version: 8, opset_import: ["": 13]>
        g (float[N] x, float[2, M] y) => (float[2, K] z) { z = Add(x, y) }"""
    )
    shape = model.graph.outputs[0].shape
    assert shape is not None
    size = shape[1]
    assert isinstance(size, ir.SymbolicDim)
    for n, m in ((1, 5), (5, 1), (7, 7), (1, 1)):
        assert size.evaluate({"N": n, "M": m}) == max(n, m)


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ("MaxPool<kernel_shape = [4]>(x)", "N - 3"),  # no less than 0, as any size
        ("Slice(x, zero, four, two)", None),  # Min(N, 4)
        ("Identity(y)", None),
        ("Slice(x, zero, back, two)", "Max((N - 3), 0)"),
        ("Slice(x, zero, one, two)", "Max((N - 3), 0)"),
        ("Identity(c)", "Max((N - 3), 0)"),
    ],
)
def test_what_a_slice_may_leave_empty_is_broadcast(other: str, expected: str | None):
    model = load(
        f"""<ir_version: 8, opset_import: ["": 13]>
        g (float[1, 2, N] x, float[1, 2, M] y) => (float[1, 2, K] z)
        <int64[1] zero = {{0}}, int64[1] one = {{1}}, int64[1] two = {{2}}, int64[1] four = {{4}},
        int64[1] back = {{-3}},
        float[1, 2, 1] c = {{1, 1}}> {{
            a = Slice(x, zero, back, two) b = {other} z = Add(a, b) }}"""
    )
    shape = model.graph.outputs[0].shape
    assert shape is not None and isinstance(shape[2], ir.SymbolicDim)
    if expected is None:
        assert not {"N", "M"} & shape[2].free_symbols()
    else:
        assert shape[2].value == expected


@pytest.mark.parametrize("keepdims", [0, 1])
def test_sizes_are_followed_through_products_and_maxima(keepdims: int):
    model = load(
        f"""<ir_version: 8, opset_import: ["": 13]>
        g (float[N, 4, M] x, float[N, 4] b, int64[2] other) => (float[A, B] y, float[C] z)
        <int64[1] open = {{-1}}, int64[2] both = {{0, 1}}> {{
            s = Shape(x) t = Shape(b) lead = Gather(s, both) same = Max(lead, t)
            n = ReduceProd<axes=[0], keepdims={keepdims}>(same) n1 = Reshape(n, open)
            to = Concat<axis=0>(n1, open) y = Reshape(x, to)
            unlike = Max(lead, other) m = ReduceProd<axes=[0], keepdims={keepdims}>(unlike) m1 = Reshape(m, open)
            z = Expand(one, m1) }}""".replace("<int64[1] open", "<float one = {1}, int64[1] open")
    )
    y, z = (value.shape for value in model.graph.outputs)
    assert y is not None and z is not None
    rows, columns = y
    assert isinstance(rows, ir.SymbolicDim) and isinstance(columns, ir.SymbolicDim)
    for n, m in ((1, 1), (3, 5)):
        assert rows.evaluate({"N": n, "M": m}) == 4 * n
        assert columns.evaluate({"N": n, "M": m}) == m
    assert isinstance(z[0], ir.SymbolicDim) and not {"N", "M"} & z[0].free_symbols()


@pytest.mark.parametrize(
    ("data", "indices", "expected"),
    [
        ("3", "N, 1", (1, "N")),  # the label of a classifier that scikit-learn's exporter writes
        ("3", "N", (1, "N")),
        ("3", "N, 4", (1, "4*N")),
        ("3", "2, 4", (1, 8)),
        ("N, 3", "2", ("N", 2)),
        ("3", "N, M", (1, "M*N")),
    ],
)
def test_extracted_features_keep_their_row(data: str, indices: str, expected: tuple[int | str, ...]):
    model = load(
        f"""<ir_version: 8, opset_import: ["": 18, "ai.onnx.ml": 1]>
        g (float[{data}] x, int64[{indices}] at) => (float[P] y)
        <int64[1] all = {{-1}}>
        {{ z = ai.onnx.ml.ArrayFeatureExtractor(x, at)  y = Reshape(z, all) }}"""
    )
    shape = next(n for n in model.graph if n.op_type == "ArrayFeatureExtractor").outputs[0].shape
    assert shape is not None and len(shape) == len(expected)
    for size, wanted in zip(shape, expected, strict=True):
        assert (size if isinstance(size, int) else str(size.value)) == wanted


def _inferred(monkeypatch: pytest.MonkeyPatch, layers: int) -> int:
    """How many nodes are inferred in a model of equal layers."""
    called = 0

    def counting(*args: Any, **given: Any) -> tuple[TensorType | None, ...]:
        nonlocal called
        called += 1
        return infer_types(*args, **given)

    monkeypatch.setattr(annotate, "infer_types", counting)
    nodes = "\n".join(
        f"s{k} = Shape(x{k}) n{k} = Gather(s{k}, i) m{k} = Unsqueeze(n{k}, at) c{k} = Concat <axis=0> (m{k}, all, two) "
        f"r{k} = Reshape(x{k}, c{k}) t{k} = Transpose <perm=[0, 2, 1]> (r{k}) x{k + 1} = Reshape(t{k}, s{k})"
        for k in range(layers)
    )
    load(
        f"""<ir_version: 8, opset_import: ["": 13]>
        g (float[N, M, 2] x0) => (float[N, M, 2] x{layers})
        <int64 i = {{0}}, int64[1] at = {{0}}, int64[1] all = {{-1}}, int64[1] two = {{2}}> {{ {nodes} }}"""
    )
    return called


def test_equal_layers_are_inferred_once(monkeypatch: pytest.MonkeyPatch):
    assert _inferred(monkeypatch, 2) == _inferred(monkeypatch, 40) <= 14


def test_branches_that_agree_say_the_size_of_an_if():
    model = load(
        """<ir_version: 8, opset_import: ["": 13]>
        g (float[N, 4] x, bool c) => (float[A, B] y) {
            z = If (c) <then_branch = t () => (float[A, B] u) { u = Relu(x) },
                        else_branch = e () => (float[C, D] v) { w = Concat<axis=1>(x, x) s = Neg(x) v = Abs(s) }>
            y = Neg(z)
        }"""
    )
    assert str(model.graph.outputs[0].shape) == "[N,4]"


def test_made_up_names_give_way_to_declared_ones():
    model = load(
        """<ir_version: 8, opset_import: ["": 13]>
        g (float[N] x) => (int64[found, 1] y, int64[7] z) {
            i = NonZero(x) t = Transpose(i) n = Neg(t) y = Abs(n)
            d = NonZero(x) e = Squeeze(d) z = Neg(e)
        }"""
    )
    assert [str(v.shape) for v in model.graph.outputs] == ["[found,1]", "[7]"]
    assert [str(node.outputs[0].shape) for node in model.graph][:2] == ["[1,found]", "[found,1]"]


def test_the_shape_of_an_expand_that_pytorch_writes_is_followed():
    """``expand(-1, n, -1)`` replaces -1 by 1, with a comparison of sizes whose outcome is known."""
    model = load(
        """<ir_version: 8, opset_import: ["": 17]>
        g (float[N, 1, M] x, float[K, 2] z, int64[3] other) => (float[N, K, M] y, float[A, B, C] u)
        <int64 minus = {-1}, int64 zero = {0}, int64[1] at = {0}, int64[1] keep = {-1}, int64[1] three = {3}> {
            s = Shape(z) k = Gather(s, zero) k1 = Unsqueeze(k, at) to = Concat<axis=0>(keep, k1, keep)
            ones = ConstantOfShape<value: tensor = int64[1] {1}>(three) negative = Mul(ones, minus)
            open = Equal(to, negative) shape = Where(open, ones, to) y = Expand(x, shape)
            unknown = Equal(other, negative) unlike = Where(unknown, ones, to) u = Expand(x, unlike) }"""
    )
    y, u = (value.shape for value in model.graph.outputs)
    assert y is not None and u is not None
    assert [d.value for d in y if isinstance(d, ir.SymbolicDim)] == ["N", "K", "M"]
    assert "K" not in str(u)


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
def test_a_resized_image_without_pixels_has_no_known_proportions(policy: str) -> None:
    resize = OpKey("", "Resize")
    attributes = tuple(sorted({**dict(default_attrs(resize)), "keep_aspect_ratio_policy": policy}.items()))
    types = [TensorType(ir.DataType.FLOAT, (1, 1, 0, 4)), None, None, TensorType(ir.DataType.INT64, (4,))]
    (found,) = infer_types(resize, attributes, types, [None, None, None, np.array([1, 1, 3, 4])], 1)
    assert found is not None and found.shape is not None and found.shape[2] is None
