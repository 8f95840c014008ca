"""C whose sizes data decides and only operators bound: the lengths of masks, and literal shapes of what is found."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pytest

from eqsat.codegen.runtime import CModel
from eqsat.errors import CodegenError, ExecutionError
from eqsat.model.load import load
from tests.codegen.test_data_sizes import expected, model

F = np.float32
RNG = np.random.default_rng(0)
LENGTHS = "m = ReduceMax<keepdims=0>(n) r = Range(zero, m, one) c = Unsqueeze(n, last)"
SCALARS = (
    "int64[1] start = {0}, int64[1] two = {2}, int64 zero = {0}, int64 one = {1}, "
    "int64[1] last = {1}, int64[2] middle = {1,2}, float low = {-9}"
)
MASKS = {
    "broadcast": f"""(float[2,3,5,5] x, int64[2] n) => (float[2,3,5,5] y) {{{LENGTHS}
        b = Less(r, c) k = Unsqueeze(b, middle) y = Where(k, x, low)}} <{SCALARS}>""",
    "expanded": f"""(float[2,3,5,5] x, int64[2] n) => (float[2,3,5,5] y) {{{LENGTHS}
        v = Unsqueeze(m, start) s = Concat<axis=0>(two, v) e = Expand(r, s)
        b = Less(e, c) k = Unsqueeze(b, middle) y = Where(k, x, low)}} <{SCALARS}>""",
    "reshaped": f"""(float[2,3,5,5] x, int64[2] n) => (float[2,3,5,5] y) {{{LENGTHS}
        b = Less(r, c) f = Cast<to=1>(b) k = Reshape(f, s) y = Mul(k, x)}} <{SCALARS}, int64[4] s = {{2,1,1,5}}>""",
}


@pytest.mark.parametrize("name", MASKS)
def test_masks_are_as_long_as_what_they_mask(name: str) -> None:
    compiled = CModel(load(model(MASKS[name])))
    x = RNG.standard_normal((2, 3, 5, 5)).astype(F)
    for n in ([5, 2], [0, 5], [1, 1]):
        feeds = {"x": x, "n": np.array(n)}
        if name != "reshaped" or max(n) == 5:
            np.testing.assert_array_equal(compiled.run(feeds)["y"], expected(model(MASKS[name]), feeds)[0])
    for n in ([6, 2], [2**40, 1], [3, 4]):
        with pytest.raises(ExecutionError, match=r"within the bounds of the generated program|does not fit"):
            compiled.run({"x": x, "n": np.array(n)})


def test_masks_of_received_sizes() -> None:
    text = MASKS["reshaped"].replace("5", "t").replace("{2,1,1,t}", "{2,1,1,-1}")
    compiled = CModel(load(model(text)), dims={"t": (2, 6)})
    for t in (2, 6):
        feeds = {"x": RNG.standard_normal((2, 3, t, t)).astype(F), "n": np.array([t, 1])}
        np.testing.assert_array_equal(compiled.run(feeds)["y"], expected(model(text), feeds)[0])


def test_a_length_beside_a_size_of_one_has_no_bound() -> None:
    text = "(float[2,1] x, int64 n) => (float[2,k] y) {r = Range(zero, n, one) f = Cast<to=1>(r) y = Add(x, f)}"
    with pytest.raises(CodegenError, match="nothing bounds"):
        CModel(load(model(f"{text} <int64 zero = {{0}}, int64 one = {{1}}>")))


EVEN = (0, 2, 4, 6)


@pytest.mark.parametrize(
    ("shape", "fit"), [("-1,2", EVEN), ("2,-1", EVEN), ("1,0", range(7)), ("2,1,2", (4,)), ("", (1,))]
)
def test_literal_shapes_of_what_is_found(shape: str, fit: Collection[int]) -> None:
    rank = len(shape.split(",")) if shape else 0
    text = f"""(float[6] x) => (float[{",".join("abc"[:rank])}] y) {{
        i = NonZero(x) z = Squeeze(i, first) v = Gather(x, z)
        {"w = Unsqueeze(v, first)" if shape == "1,0" else "w = Identity(v)"}
        t = Reshape(w, s) y = Exp(t)}} <int64[1] first = {{0}}, int64[{rank}] s = {{{shape}}}>""".replace("[]", "")
    compiled = CModel(load(model(text)))
    for count in range(7):
        feeds = {"x": np.where(np.arange(6) < count, RNG.random(6) + 1, 0).astype(F)}
        if count in fit:
            np.testing.assert_allclose(compiled.run(feeds)["y"], expected(model(text), feeds)[0], rtol=1e-6)
        else:
            with pytest.raises(ExecutionError):
                compiled.run(feeds)


@pytest.mark.parametrize("shape", ["four", "s"])
def test_what_is_found_expands_to_its_own_size_or_from_one(shape: str) -> None:
    text = f"""(float[6] x, int64 k) => (float[a] y) {{
        i = NonZero(x) z = Squeeze(i, first) v = Gather(x, z) m = Min(k, n) s = Unsqueeze(m, first)
        e = Expand(v, {shape}) y = Exp(e)}} <int64[1] first = {{0}}, int64[1] four = {{4}}, int64 n = {{6}}>"""
    compiled = CModel(load(model(text)))
    for count in range(7):
        feeds = {"x": np.where(np.arange(6) < count, RNG.random(6) + 1, 0).astype(F), "k": np.array(4)}
        if count in (1, 4):
            np.testing.assert_allclose(compiled.run(feeds)["y"], expected(model(text), feeds)[0], rtol=1e-6)
        else:
            with pytest.raises(ExecutionError):
                compiled.run(feeds)
