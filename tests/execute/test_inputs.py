"""Random inputs are deterministic and runnable."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from eqsat.errors import ExecutionError
from eqsat.execute.inputs import complete_inputs, input_names


def model(text: str) -> ir.Model:
    return ir.from_proto(onnx.parser.parse_model('<ir_version: 10, opset_import: ["" : 21, "f" : 1]>\n' + text))


KINDS = model(
    """
    g (float[N, 3] x, float16[2] h, bool[N] b, uint8[500] u, int8[500] i, int64[200] k, double[N, M] d)
      => (float[N, 3] y) { y = Identity(x) }
    """
)


def test_types_shapes_and_ranges() -> None:
    arrays = complete_inputs(KINDS, dims={"N": 4, "M": 1})
    assert {n: (a.dtype.name, a.shape) for n, a in arrays.items()} == {
        "x": ("float32", (4, 3)),
        "h": ("float16", (2,)),
        "b": ("bool", (4,)),
        "u": ("uint8", (500,)),
        "i": ("int8", (500,)),
        "k": ("int64", (200,)),
        "d": ("float64", (4, 1)),
    }
    assert arrays["u"].max() > 200
    assert arrays["i"].min() < -100
    assert arrays["i"].max() > 100
    assert set(arrays["k"].tolist()) == {0, 1}


def test_same_seed_same_arrays_and_each_input_its_own() -> None:
    first, again, other = (complete_inputs(KINDS, dims={"N": 1, "M": 1}, seed=s) for s in (3, 3, 4))
    assert all(np.array_equal(first[n], again[n]) for n in first)
    assert not np.array_equal(first["x"], other["x"])
    twice = model("g (float[9] a, float[9] b) => (float[9] y) { y = Add(a, b) }")
    arrays = complete_inputs(twice)
    assert not np.array_equal(arrays["a"], arrays["b"])


def test_given_arrays_are_kept_and_bind_dimensions() -> None:
    x = np.zeros((7, 3), np.float32)
    arrays = complete_inputs(KINDS, {"x": x}, dims={"M": 1})
    assert arrays["x"] is x
    assert arrays["b"].shape == (7,)


@pytest.mark.parametrize(
    "text",
    [
        "g (int64[300] k, float[5, 2] t) => (float[300, 2] y) { y = Gather(t, k) }",
        "g (int64[300] k, float[2, 5] t) => (float[2, 300] y) { y = Gather<axis = 1>(t, k) }",
        "g (int64[300] k, float[5, 2] t, float[9] s) => (float[300, 2] y, float[300] z) "
        "{ y = Gather(t, k) z = Gather(s, k) }",
        "g (int64[300] k, float[5, 2] t) => (float[300, 2] y) { j = Cast<to = 6>(k) y = Gather(t, j) }",
        "g (int64[300] k, float[5, 2] t) => (float[300, 2] y) { y = f.look(k, t) }\n"
        '<domain: "f", opset_import: ["" : 21]> look (k, t) => (y) { j = Identity(k) y = Gather(t, j) }',
    ],
)
def test_indices_stay_within_what_they_index(text: str) -> None:
    loaded = model(text)
    if loaded.functions:
        # Shapes inside a function are those that shape inference left there.
        function = next(iter(loaded.functions.values()))
        function.inputs[1].shape = ir.Shape([5, 2])
    indices = complete_inputs(loaded)["k"]
    assert set(indices.tolist()) == set(range(5))


@pytest.mark.parametrize("read", ["r = Gather(edges, row) k = Reshape(r, all)", "k, o = Split<num_outputs = 2>(edges)"])
def test_indices_into_a_free_size_stay_within_it(read: str) -> None:
    """The edges of a graph network: the number of nodes is free, and one row of the edges is taken."""
    loaded = model(
        f"g (int64[2, 300] edges, float[nodes, 4] features) => (y) <int64 row = {{1}}, int64[1] all = {{-1}}>"
        f" {{ {read} y = Gather(features, k) }}"
    )
    for nodes in (1, 5):
        drawn = complete_inputs(loaded, dims={"nodes": nodes})["edges"]
        assert set(drawn.flat) == set(range(nodes))


def test_initialisers_among_the_inputs_need_no_value() -> None:
    loaded = model("g (float[2] x, float[2] w) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }")
    assert input_names(loaded) == ["x"]
    assert list(complete_inputs(loaded)) == ["x"]


def test_a_sequence_has_a_few_elements_and_an_optional_is_there() -> None:
    first, second = complete_inputs(model("g (seq(float[2]) x) => (seq(float[2]) y) { y = Identity(x) }"))["x"]
    assert first.shape == second.shape == (2,) and first.dtype == np.float32 and not np.array_equal(first, second)
    loaded = model("g (optional(int64[3]) x) => (int64[3] y) { y = OptionalGetElement(x) }")
    assert complete_inputs(loaded)["x"].shape == (3,)


@pytest.mark.parametrize("kind", ["seq(float[])", "complex64[2]"])
def test_what_cannot_be_drawn_is_said(kind: str) -> None:
    with pytest.raises(ExecutionError, match="to draw a random input"):
        complete_inputs(model(f"g ({kind} x) => ({kind} y) {{ y = Identity(x) }}"))
