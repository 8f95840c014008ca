"""One program whatever the spelling: blocks and phases of pixels, rows of tables, circular padding, groups."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest

import eqsat
from tests.model.running import run_ort

HEAD = '<ir_version: 8, opset_import: ["": 17]>\n'
RNG = np.random.default_rng(0)

Feed = dict[str, np.ndarray]


def _floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def _check(text: str, feed: Feed, folder: Path, **constants: np.ndarray) -> tuple[Counter[str], float]:
    """The operators of the optimized model and its cost; numpy and the saved file compute what the input does."""
    model = onnx.parser.parse_model(HEAD + text)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(v, n) for n, v in constants.items())
    result = eqsat.optimize(model)
    result.save(folder / "out.onnx")
    wanted = run_ort(model, feed)
    for found in (list(result.run(feed).values()), run_ort(onnx.load(folder / "out.onnx"), feed)):
        for x, y in zip(found, wanted, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-4)
    return Counter(node.op_type for node in result.model.graph if node.op_type != "Constant"), result.cost


# ---- blocks of pixels ------------------------------------------------------------------------------------------------

PARTS = {"a": (0, 0), "b": (1, 0), "c": (0, 1), "d": (1, 1)}
ORDERS = {"columns": "a, b, c, d", "rows": "a, c, b, d"}


def _sliced(order: str, axes: tuple[int, int], joined: int) -> str:
    """Four slices with a step of two, as exporters write ``x[..., i::2, j::2]``, and their concatenation ``z``."""
    step = "<int64[1] s0 = {0}, int64[1] s1 = {1}, int64[1] two = {2}, int64[1] end = {9223372036854775807}, "
    step += f"int64[1] u = {{{axes[0]}}}, int64[1] v = {{{axes[1]}}}>"
    body = " ".join(
        f"{n}0 = Slice(x, s{i}, end, u, two) {n} = Slice({n}0, s{j}, end, v, two)" for n, (i, j) in PARTS.items()
    )
    return f"{step} {{ {body} z = Concat <axis = {joined}> ({ORDERS[order]})"


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("joined, axes", [(1, (2, 3)), (3, (1, 2))])
def test_blocks_are_cut_without_slices(order: str, joined: int, axes: tuple[int, int], tmp_path: Path) -> None:
    sizes = "1, 12, 4, 3" if joined == 1 else "1, 4, 3, 12"
    model = f"g (float[{'1, 3, 8, 6' if joined == 1 else '1, 8, 6, 3'}] x) => (float[{sizes}] y)"
    shape = (1, 3, 8, 6) if joined == 1 else (1, 8, 6, 3)
    kinds, _ = _check(f"{model} {_sliced(order, axes, joined)} y = Identity(z) }}", {"x": _floats(*shape)}, tmp_path)
    assert not kinds["Slice"] and not kinds["Concat"]


@pytest.mark.parametrize("size", ["7, 6", "8, 5"])
def test_blocks_that_do_not_fit_stay_slices(size: str, tmp_path: Path) -> None:
    """Of an odd size the last parts are shorter, so that only those in which it is left out may be joined."""
    height, width = map(int, size.split(", "))
    step = "<int64[1] s0 = {0}, int64[1] s1 = {1}, int64[1] two = {2}, int64[1] end = {6}, int64[1] far = {4}, "
    step += "int64[1] u = {2}, int64[1] v = {3}>"
    ends = ("end" if height == 7 else "far", "far" if width == 5 else "end")
    body = " ".join(
        f"{n}0 = Slice(x, s{i}, {ends[0]}, u, two) {n} = Slice({n}0, s{j}, {ends[1]}, v, two)"
        for n, (i, j) in PARTS.items()
    )
    model = (
        f"g (float[1, 3, {size}] x) => (float[1, 12, H, W] y) {step} {{ {body} y = Concat <axis = 1> (a, b, c, d) }}"
    )
    _check(model, {"x": _floats(1, 3, height, width)}, tmp_path)


STEMS = {
    "slices by columns": _sliced("columns", (2, 3), 1),
    "slices by rows": _sliced("rows", (2, 3), 1),
    "space to depth": "{ z = SpaceToDepth <blocksize = 2> (x)",
    **{
        name: "<int64[6] six = {2, 3, 4, 2, 5, 2}, int64[4] four = {2, 12, 4, 5}> "
        f"{{ v = Reshape(x, six) t = Transpose <perm = {perm}> (v) z = Reshape(t, four)"
        for name, perm in {
            "pixels as channels": [0, 1, 3, 5, 2, 4],
            "channels of each pixel": [0, 3, 5, 1, 2, 4],
            "channels by columns": [0, 5, 3, 1, 2, 4],
        }.items()
    },
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "kernel, pads, strides", [(3, [1, 1, 1, 1], [1, 1]), (1, [0, 0, 0, 0], [1, 1]), (3, [1, 0, 2, 1], [2, 1])]
)
@pytest.mark.parametrize("bias", ["", ", bias"])
@pytest.mark.parametrize("stem", STEMS.values(), ids=STEMS)
def test_a_convolution_of_blocks_is_one_of_pixels(
    stem: str, bias: str, kernel: int, pads: list[int], strides: list[int], tmp_path: Path
) -> None:
    model = f"g (float[2, 3, 8, 10] x) => (float[2, 5, H, W] y) {stem} "
    model += f"y = Conv <pads = {pads}, strides = {strides}> (z, w{bias}) }}"
    weights = {"w": _floats(5, 12, kernel, kernel)} | ({"bias": _floats(5)} if bias else {})
    kinds, _ = _check(model, {"x": _floats(2, 3, 8, 10)}, tmp_path, **weights)
    assert kinds == {"Conv": 1}


# ---- phases ----------------------------------------------------------------------------------------------------------


def _reshaped(n: int, inner: str, *sizes: int) -> tuple[str, str]:
    """A Reshape of what ``inner`` names, and its shape as a constant."""
    return f"r{n} = Reshape({inner}, c{n})", f"int64[{len(sizes)}] c{n} = {{{', '.join(map(str, sizes))}}}"


@pytest.mark.parametrize("batch, channels, taps", [(1, 4, 3), (3, 4, 2), (2, 6, 3)])
@pytest.mark.parametrize("group", [1, 2])
def test_phases_of_rows_are_a_dilation(batch: int, channels: int, taps: int, group: int, tmp_path: Path) -> None:
    n, length = 4, 40
    phase, left = length // n, length // n - taps + 1
    a, c0 = _reshaped(0, "x", batch, phase, n, channels)
    b, c1 = _reshaped(1, "t", n * batch, 1, phase, channels)
    c, c2 = _reshaped(2, "e", n, batch, left, 6)
    d, c3 = _reshaped(3, "h", batch, left * n, 6)
    text = (
        f"g (float[{batch}, {length}, {channels}] x) => (float[{batch}, {left * n}, 6] y)"
        f" <float[6, {channels // group}, 1, {taps}] w, float[6] v, {c0}, {c1}, {c2}, {c3}>"
        f" {{ {a} t = Transpose <perm = [2, 0, 1, 3]> (r0) {b} i = Transpose <perm = [0, 3, 1, 2]> (r1)"
        f" o = Conv <group = {group}> (i, w, v) e = Transpose <perm = [0, 2, 3, 1]> (o) {c}"
        f" h = Transpose <perm = [1, 2, 0, 3]> (r2) {d} y = Relu(r3) }}"
    )
    weights = {"w": _floats(6, channels // group, 1, taps), "v": _floats(6)}
    feed = {"x": _floats(batch, length, channels)}
    kinds, cost = _check(text, feed, tmp_path, **weights)
    plain = (
        f"g (float[{batch}, {length}, {channels}] x) => (float[{batch}, {left * n}, 6] y)"
        f" <float[6, {channels // group}, {taps}] w, float[6] v>"
        f" {{ i = Transpose <perm = [0, 2, 1]> (x) o = Conv <group = {group}, dilations = [{n}]> (i, w, v)"
        " z = Relu(o) y = Transpose <perm = [0, 2, 1]> (z) }"
    )
    _, wanted = _check(plain, feed, tmp_path, w=weights["w"][:, :, 0], v=weights["v"])
    assert kinds["Conv"] == 1 and kinds["Transpose"] <= 2
    # A Reshape may stay, which moves nothing.
    assert cost <= wanted + 2.1e-6


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("pads", [[0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 2, 0]])
def test_phases_of_rows_and_columns_are_a_dilation(batch: int, pads: list[int], tmp_path: Path) -> None:
    n, m, height, width = 2, 3, 12, 15
    tall, wide = height // n + pads[0] + pads[2] - 2, width // m + pads[1] + pads[3] - 2
    a, c0 = _reshaped(0, "x", batch, height // n, n, width // m, m, 4)
    b, c1 = _reshaped(1, "t", n * m * batch, height // n, width // m, 4)
    c, c2 = _reshaped(2, "e", n, m, batch, tall, wide, 5)
    d, c3 = _reshaped(3, "h", batch, tall * n, wide * m, 5)
    text = (
        f"g (float[{batch}, {height}, {width}, 4] x) => (float[{batch}, {tall * n}, {wide * m}, 5] y)"
        f" <float[5, 4, 3, 3] w, {c0}, {c1}, {c2}, {c3}>"
        f" {{ {a} t = Transpose <perm = [2, 4, 0, 1, 3, 5]> (r0) {b} i = Transpose <perm = [0, 3, 1, 2]> (r1)"
        f" o = Conv <pads = {pads}> (i, w) e = Transpose <perm = [0, 2, 3, 1]> (o) {c}"
        f" h = Transpose <perm = [2, 3, 0, 4, 1, 5]> (r2) {d} y = Relu(r3) }}"
    )
    weights, feed = _floats(5, 4, 3, 3), {"x": _floats(batch, height, width, 4)}
    _, cost = _check(text, feed, tmp_path, w=weights)
    plain = (
        f"g (float[{batch}, {height}, {width}, 4] x) => (float[{batch}, {tall * n}, {wide * m}, 5] y)"
        f" <float[5, 4, 3, 3] w> {{ i = Transpose <perm = [0, 3, 1, 2]> (x)"
        f" o = Conv <dilations = [{n}, {m}], pads = {[pads[0] * n, pads[1] * m, pads[2] * n, pads[3] * m]}> (i, w)"
        " z = Relu(o) y = Transpose <perm = [0, 2, 3, 1]> (z) }"
    )
    _, wanted = _check(plain, feed, tmp_path, w=weights)
    assert cost <= wanted + 2.1e-6


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("n", [2, 3])
def test_phases_as_blocks_of_channels_are_a_dilation(batch: int, n: int, tmp_path: Path) -> None:
    into = f"a = Transpose <perm = [1, 0, 2, 3]> (x) s = SpaceToDepth <blocksize = {n}> (a)"
    into += " i = Transpose <perm = [1, 0, 2, 3]> (s)"
    back = f"b = Transpose <perm = [1, 0, 2, 3]> (o) d = DepthToSpace <blocksize = {n}> (b)"
    back += " y = Transpose <perm = [1, 0, 2, 3]> (d)"
    text = (
        f"g (float[{batch}, 4, 12, 18] x) => (float[{batch}, 5, {12 - 2 * n}, {18 - 2 * n}] y) <float[5, 4, 3, 3] w>"
        f" {{ {into} o = Conv (i, w) {back} }}"
    )
    kinds, _ = _check(text, {"x": _floats(batch, 4, 12, 18)}, tmp_path, w=_floats(5, 4, 3, 3))
    assert kinds == {"Conv": 1}


def test_phases_with_a_stride_stay(tmp_path: Path) -> None:
    text = (
        "g (float[2, 4, 12, 12] x) => (float[8, 5, 2, 2] y) <float[5, 4, 3, 3] w>"
        " { a = Transpose <perm = [1, 0, 2, 3]> (x) s = SpaceToDepth <blocksize = 2> (a)"
        " i = Transpose <perm = [1, 0, 2, 3]> (s) y = Conv <strides = [2, 2]> (i, w) }"
    )
    kinds, _ = _check(text, {"x": _floats(2, 4, 12, 12)}, tmp_path, w=_floats(5, 4, 3, 3))
    assert kinds["SpaceToDepth"] == 1


# ---- rows of a table -------------------------------------------------------------------------------------------------

ONE_HOT = "<int64 depth = {DEPTH}, float[2] values = {0, 1}> { h = OneHot <axis = -1> (i, depth, values)"
COMPARED = "<int64[1] last = {2}> { u = Unsqueeze(i, last) e = Equal(u, all) h = Cast <to = 1> (e)"


@pytest.mark.parametrize("depth", [10, 1000])
@pytest.mark.parametrize("written", [ONE_HOT, COMPARED], ids=["one-hot", "compared"])
def test_a_product_with_a_row_of_one_selects_a_row(written: str, depth: int, tmp_path: Path) -> None:
    """Any index, also one that the row does not represent: its row is 0."""
    constants = {"w": _floats(depth, 64)} | ({"all": np.arange(depth)} if written == COMPARED else {})
    model = f"g (int64[3, 3] i) => (float[3, 3, 64] y) {written.replace('DEPTH', str(depth))} y = MatMul(h, w) }}"
    indices = np.array([[3, -1, 0], [depth - 1, -depth, 5], [depth, -depth - 1, 2**40]])
    kinds, _ = _check(model, {"i": indices}, tmp_path, **constants)
    if written == COMPARED or depth > 10:
        # Counting from the end takes more operators, which pay for themselves in a larger table.
        assert kinds["Gather"] == 1 and not kinds["MatMul"]


def test_a_row_of_an_identity_selects_a_row(tmp_path: Path) -> None:
    model = "g (int64[2, 3] i) => (float[2, 3, 4] y) { h = Gather(t, i) y = MatMul(h, w) }"
    constants = {"t": np.eye(10, dtype=np.float32), "w": _floats(10, 4)}
    kinds, _ = _check(model, {"i": np.array([[3, -1, 0], [9, -10, 5]])}, tmp_path, **constants)
    assert kinds == {"Gather": 1}


def test_experts_are_chosen_alike(tmp_path: Path) -> None:
    """Indices of the greatest elements, as rows of a one: an operator, or a comparison with all of them."""
    heads = "g (float[3, 10] x) => (float[3, 2, 10] y) <int64[1] k = {2}"
    chosen = "v, i = TopK(x, k)"
    spellings = [
        f"{heads}, int64 d = {{10}}, int64[2] values = {{0, 1}}> {{ {chosen} h = OneHot <axis = -1> (i, d, values)"
        " y = Cast <to = 1> (h) }",
        f"{heads}, int64[1] j = {{2}}> {{ {chosen} u = Unsqueeze(i, j) e = Equal(u, all) y = Cast <to = 1> (e) }}",
    ]
    found = [
        _check(s, {"x": _floats(3, 10)}, tmp_path, **({"all": np.arange(10)} if "all" in s else {})) for s in spellings
    ]
    assert found[0] == found[1]
    assert found[0][0] == {"TopK": 1, "OneHot": 1}


# ---- elements and ends -----------------------------------------------------------------------------------------------


def test_pairs_of_features_are_gathered_alike(tmp_path: Path) -> None:
    heads = "g (float[4, 4, 5] x) => (float[6, 5] y)"
    pairs = np.array([[1, 0], [2, 0], [2, 1], [3, 0], [-1, 1], [3, -2]])
    flat = np.array([4, 8, 9, 12, -3, 14])
    spellings = {
        f"{heads} {{ y = GatherND(x, i) }}": pairs,
        f"{heads} <int64[2] s = {{16, 5}}> {{ v = Reshape(x, s) y = Gather(v, i) }}": flat,
    }
    found = [_check(text, {"x": _floats(4, 4, 5)}, tmp_path, i=i) for text, i in spellings.items()]
    assert found[0] == found[1]


@pytest.mark.parametrize("before, after", [(1, 1), (2, 3), (6, 6)])
def test_circular_padding_has_one_cost(before: int, after: int, tmp_path: Path) -> None:
    shape, size = "float[2, 3, 6] x", 6 + before + after
    heads = f"g ({shape}) => (float[2, 3, {size}] y)"
    parts = (
        f"<int64[1] s = {{{-before}}}, int64[1] end = {{9223372036854775807}}, int64[1] z = {{0}}, int64[1] k = {{2}}, "
    )
    parts += (
        f"int64[1] e = {{{after}}}> {{ a = Slice(x, s, end, k) b = Slice(x, z, e, k) y = Concat <axis = 2> (a, x, b) }}"
    )
    newer = HEAD.replace("17", "19")
    padded = f'<int64[6] w = {{0, 0, {before}, 0, 0, {after}}}> {{ y = Pad <mode = "wrap"> (x, w) }}'
    feed = {"x": _floats(2, 3, 6)}
    kinds, cost = _check(f"{heads} {parts}", feed, tmp_path)
    assert kinds == {"Pad": 1}
    (opset,) = onnx.load(tmp_path / "out.onnx").opset_import
    assert opset.version == 19
    result = eqsat.optimize(newer + heads + padded)
    assert result.cost == pytest.approx(cost)
    # An older opset has the parts only.
    result = eqsat.optimize(newer + heads + padded, opset=17)
    result.save(tmp_path / "old.onnx")
    old = onnx.load(tmp_path / "old.onnx")
    assert {n.op_type for n in old.graph.node} <= {"Slice", "Concat", "Constant"}
    (wanted,) = run_ort(onnx.parser.parse_model(newer + heads + padded), feed)
    assert np.array_equal(run_ort(old, feed)[0], wanted)


def test_features_are_joined_once(tmp_path: Path) -> None:
    heads = "g (float[2, 3] x, float[2, 4] u, float[2, 5] v) => (float[2, 13] y)"
    feed = {"x": _floats(2, 3), "u": _floats(2, 4), "v": _floats(2, 5)}
    body = f"{heads} {{ r = Relu(x) a = Concat <axis = 1> (u, v, CONST) y = Concat <axis = 1> (r, a) }}"
    kinds, _ = _check(body.replace("CONST", "one"), feed, tmp_path, one=np.ones((2, 1), np.float32))
    assert kinds == {"Relu": 1, "Concat": 1}


# ---- groups of channels ----------------------------------------------------------------------------------------------


def test_groups_of_channels_have_one_cost(tmp_path: Path) -> None:
    """Of rows, of images of rows, and as frameworks write the normalization of groups."""
    heads = "g (float[2, 8, 4, 4] x) => (float[2, 8, 4, 4] y)"
    tail = "y = Reshape(n, four) }"
    four = "int64[4] four = {2, 8, 4, 4}"
    chain = "m = ReduceMean <axes = {axes}> (r) d = Sub(r, m) q = Mul(d, d) v = ReduceMean <axes = {axes}> (q) "
    chain += "a = Add(v, e) s = Sqrt(a) n = Div(d, s) "
    spellings = [
        f"{heads} <{four}, int64[3] g = {{2, 2, -1}}, float e = {{0.001}}> {{ r = Reshape(x, g) "
        + chain.format(axes="[2]")
        + tail,
        f"{heads} <{four}, int64[5] g = {{2, 2, 4, 4, 4}}, float e = {{0.001}}> {{ r = Reshape(x, g) "
        + chain.format(axes="[2, 3, 4]")
        + tail,
        f"{heads} <{four}, int64[3] g = {{0, 2, -1}}, float[2] o = {{1, 1}}, float[2] z = {{0, 0}}> {{ "
        f"r = Reshape(x, g) n = InstanceNormalization <epsilon = 0.001> (r, o, z) {tail}",
    ]
    found = [_check(s, {"x": _floats(2, 8, 4, 4)}, tmp_path) for s in spellings]
    assert all(x == found[0] for x in found)
    assert found[0][0] == {"Reshape": 2, "InstanceNormalization": 1}
