"""Rotary embeddings: one cost and one program, whether a model has the operator or writes it out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import onnx_ir as ir
import pytest

import eqsat
from eqsat import op
from eqsat.model.expression import Tensor
from tests.model.running import run_ort

BATCH, HEADS, STEPS, SIZE = 2, 4, 6, 16
"""Features of a head that turn; where only some do, half as many follow them."""
RNG = np.random.default_rng(0)
ANGLES = RNG.standard_normal((64, SIZE // 2))
COSINES, SINES = np.cos(ANGLES).astype(np.float32), np.sin(ANGLES).astype(np.float32)
Turn = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Heads (batch, heads, steps, size), cosines and sines (batch, steps, size / 2)."""


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def part(x: Tensor, first: int, end: int = 2**62, step: int = 1) -> Tensor:
    return op.Slice(x, ints(first), ints(end), ints(3), ints(step))


def before_heads(c: Tensor) -> Tensor:
    return op.Unsqueeze(c, ints(1))


# ---- halves turn -----------------------------------------------------------------------------------------------------


def twice(c: Tensor) -> Tensor:
    return op.Concat(c, c, axis=2)


def negated_half(x: Tensor, c: Tensor, s: Tensor) -> Tensor:
    a, b = part(x, 0, SIZE // 2), part(x, SIZE // 2)
    return x * before_heads(twice(c)) + op.Concat(-b, a, axis=3) * before_heads(twice(s))


def negated_half_of_split(x: Tensor, c: Tensor, s: Tensor) -> Tensor:
    a, b = op.Split(x, axis=3, num_outputs=2)
    return x * twice_of_heads(c) + op.Concat(op.Mul(b, np.float32(-1)), a, axis=3) * twice_of_heads(s)


def twice_of_heads(c: Tensor) -> Tensor:
    c = before_heads(c)
    return op.Concat(c, c, axis=3)


def negated_table(x: Tensor, c: Tensor, s: Tensor) -> Tensor:
    a, b = part(x, 0, SIZE // 2), part(x, SIZE // 2)
    return x * before_heads(twice(c)) + op.Concat(b, a, axis=3) * before_heads(op.Concat(-s, s, axis=2))


def four_products(x: Tensor, c: Tensor, s: Tensor) -> Tensor:
    a, b = part(x, 0, SIZE // 2), part(x, SIZE // 2, SIZE)
    c, s = before_heads(c), before_heads(s)
    return op.Concat(a * c - b * s, s * a + c * b, axis=3)


def heads_last(x: Tensor, c: Tensor, s: Tensor) -> Tensor:
    y = op.Transpose(x, perm=[0, 2, 1, 3])
    a, b = part(y, 0, SIZE // 2), part(y, SIZE // 2)
    turned = y * op.Unsqueeze(twice(c), ints(2)) + op.Concat(-b, a, axis=3) * op.Unsqueeze(twice(s), ints(2))
    return op.Transpose(turned, perm=[0, 2, 1, 3])


def rows(x: Tensor, c: Tensor, s: Tensor) -> Tensor:
    y = op.Reshape(op.Transpose(x, perm=[0, 2, 1, 3]), ints(BATCH, STEPS, HEADS * SIZE))
    y = op.RotaryEmbedding(y, c, s, num_heads=HEADS)
    return op.Transpose(op.Reshape(y, ints(BATCH, STEPS, HEADS, SIZE)), perm=[0, 2, 1, 3])


HALVES: dict[str, Turn] = {
    "operator": lambda x, c, s: op.RotaryEmbedding(x, c, s),
    "operator of rows": rows,
    "negated half": negated_half,
    "negated half of a split": negated_half_of_split,
    "negated table": negated_table,
    "four products": four_products,
    "heads last": heads_last,
}

# ---- neighbors turn --------------------------------------------------------------------------------------------------


def stacked(a: Tensor, b: Tensor) -> Tensor:
    pairs = op.Concat(op.Unsqueeze(a, ints(-1)), op.Unsqueeze(b, ints(-1)), axis=4)
    return op.Reshape(pairs, ints(BATCH, HEADS, STEPS, SIZE))


def each(c: Tensor) -> Tensor:
    return op.Reshape(op.Expand(op.Unsqueeze(c, ints(3)), ints(1, 1, 1, 2)), ints(BATCH, STEPS, SIZE))


def negated_neighbor(x: Tensor, c: Tensor, s: Tensor) -> Tensor:
    a, b = part(x, 0, step=2), part(x, 1, step=2)
    return x * before_heads(each(c)) + stacked(-b, a) * before_heads(each(s))


def negated_neighbor_of_indices(x: Tensor, c: Tensor, s: Tensor) -> Tensor:
    a, b = part(x, 0, step=2), part(x, 1, step=2)
    c, s = (op.Gather(before_heads(t), np.arange(SIZE) // 2, axis=3) for t in (c, s))
    return x * c + stacked(-b, a) * s


def complex_product(x: Tensor, c: Tensor, s: Tensor) -> Tensor:
    pairs = op.Reshape(x, ints(BATCH, HEADS, STEPS, SIZE // 2, 2))
    a, b = (op.Gather(pairs, np.array(k), axis=4) for k in (0, 1))
    return _four(a, b, c, s)


def complex_product_of_split(x: Tensor, c: Tensor, s: Tensor) -> Tensor:
    pairs = op.Reshape(x, ints(BATCH, HEADS, STEPS, SIZE // 2, 2))
    a, b = (op.Squeeze(p, ints(4)) for p in op.Split(pairs, axis=4, num_outputs=2))
    return _four(a, b, c, s)


def _four(a: Tensor, b: Tensor, c: Tensor, s: Tensor) -> Tensor:
    c, s = before_heads(c), before_heads(s)
    return stacked(a * c - b * s, b * c + a * s)


NEIGHBORS: dict[str, Turn] = {
    "operator": lambda x, c, s: op.RotaryEmbedding(x, c, s, interleaved=1),
    "negated neighbor": negated_neighbor,
    "negated neighbor, tables by indices": negated_neighbor_of_indices,
    "four products": lambda x, c, s: _four(part(x, 0, step=2), part(x, 1, step=2), c, s),
    "complex numbers": complex_product,
    "complex numbers of a split": complex_product_of_split,
}

# ---- only some features turn -----------------------------------------------------------------------------------------


def _some(turn: Turn) -> Turn:
    return lambda x, c, s: op.Concat(turn(part(x, 0, SIZE), c, s), part(x, SIZE), axis=3)


SOME: dict[str, Turn] = {
    "operator": lambda x, c, s: op.RotaryEmbedding(x, c, s, rotary_embedding_dim=SIZE, num_heads=HEADS),
    "operator of a part": _some(HALVES["operator"]),
    "negated half": _some(negated_half),
    "four products": _some(four_products),
}

# ---- where the angles come from --------------------------------------------------------------------------------------


def _positions() -> Tensor:
    return eqsat.input("p", (BATCH, STEPS), "int64")


def _given(turn: Turn, x: Tensor) -> Tensor:
    return turn(x, eqsat.input("c", (BATCH, STEPS, SIZE // 2)), eqsat.input("s", (BATCH, STEPS, SIZE // 2)))


def _constant(turn: Turn, x: Tensor) -> Tensor:
    shape = (BATCH, STEPS, SIZE // 2)
    c, s = (op.Identity(t[: BATCH * STEPS].reshape(shape)) for t in (COSINES, SINES))
    return turn(x, c, s)


def _looked_up(turn: Turn, x: Tensor) -> Tensor:
    p = _positions()
    return turn(x, op.Gather(COSINES, p, axis=0), op.Gather(SINES, p, axis=0))


def _computed(turn: Turn, x: Tensor) -> Tensor:
    angles = op.Unsqueeze(op.Cast(_positions(), to=1), ints(2)) * ANGLES[:1].astype(np.float32)
    return turn(x, op.Cos(angles) * np.float32(1.25), op.Sin(angles) * np.float32(1.25))


SOURCES = {"given": _given, "constant": _constant, "looked up": _looked_up, "computed": _computed}
FAMILIES = {"halves": (HALVES, SIZE), "neighbors": (NEIGHBORS, SIZE), "some": (SOME, SIZE + SIZE // 2)}


def _each(family: str, source: str) -> Iterator[tuple[str, ir.Model]]:
    spellings, width = FAMILIES[family]
    for name, turn in spellings.items():
        x = op.Relu(eqsat.input("x", (BATCH, HEADS, STEPS, width)))
        yield name, eqsat.graph(op.Sigmoid(SOURCES[source](turn, x)))


def _agrees(model: ir.Model, result: eqsat.Result) -> None:
    feeds = {}
    for value in model.graph.inputs:
        assert value.shape is not None
        shape = value.shape.numpy()
        positions = np.random.default_rng(1).integers(0, 64, shape)
        feeds[value.name] = positions if value.dtype == ir.DataType.INT64 else RNG.standard_normal(shape, np.float32)
    (wanted,) = run_ort(model, feeds)
    (found,) = result.run(feeds).values()
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("host", ["cpu", "ort", "c"])
def test_one_cost(family: str, source: str, host: str) -> None:
    costs: dict[str, list[str]] = {}
    for name, model in _each(family, source):
        result = eqsat.optimize(model, host=host, verify=False)
        _agrees(model, result)
        turns = Counter(node.op_type for node in result.model.graph)["RotaryEmbedding"]
        assert turns == (0 if host == "c" else 1), name
        costs.setdefault(f"{result.cost:.9g}", []).append(name)
    assert len(costs) == 1, costs


@pytest.mark.parametrize("host", ["cpu", "c"])
def test_tables_and_positions_of_both_domains(host: str) -> None:
    x, p = eqsat.input("x", (BATCH, HEADS, STEPS, SIZE)), _positions()
    costs = set()
    for y in (
        op.RotaryEmbedding(x, COSINES, SINES, p),
        eqsat.op("com.microsoft").RotaryEmbedding(x, p, COSINES, SINES),
    ):
        model = eqsat.graph(y)
        result = eqsat.optimize(model, host=host, verify=False)
        _agrees(model, result)
        costs.add(f"{result.cost:.9g}")
    assert len(costs) == 1


def test_positions_that_count_from_the_end_are_not_given_to_the_operator() -> None:
    """ONNX Runtime's kernel refuses them, its Gather does not."""
    x = eqsat.input("x", (1, 2, 3, 4))
    p = eqsat.input("p", (1, 3), "int64")
    c, s = COSINES[:5, :2].copy(), SINES[:5, :2].copy()
    model = eqsat.graph(op.RotaryEmbedding(x, op.Gather(c, p, axis=0), op.Gather(s, p, axis=0)))
    result = eqsat.optimize(model, host="ort")
    feeds = {"x": RNG.standard_normal((1, 2, 3, 4), np.float32), "p": ints(-1, 0, 1).reshape(1, 3)}
    (wanted,) = run_ort(model, feeds)
    (found,) = run_ort(result.model, feeds)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def _free(turn: Callable[[Tensor, Tensor, Tensor], Tensor]) -> ir.Model:
    """One table for all sequences, as exporters compute it of the number of positions."""
    x = eqsat.input("x", ("N", HEADS, "S", SIZE))
    angles = eqsat.input("angles", ("S", SIZE // 2))
    wide = op.Unsqueeze(op.Concat(angles, angles, axis=1), ints(0, 1))
    return eqsat.graph(turn(x, op.Cos(wide), op.Sin(wide)))


def test_sizes_may_be_free() -> None:
    def turn(x: Tensor, c: Tensor, s: Tensor) -> Tensor:
        a, b = part(x, 0, SIZE // 2), part(x, SIZE // 2)
        return x * c + op.Concat(-b, a, axis=3) * s

    model = _free(turn)
    result = eqsat.optimize(model, dims={"N": (1, 8), "S": (1, 64)}, verify=False)
    assert Counter(node.op_type for node in result.model.graph)["RotaryEmbedding"] == 1
    for batch, steps in ((1, 3), (3, 5)):
        feeds = {
            "x": RNG.standard_normal((batch, HEADS, steps, SIZE), np.float32),
            "angles": RNG.standard_normal((steps, SIZE // 2), np.float32),
        }
        (wanted,) = run_ort(model, feeds)
        (found,) = result.run(feeds).values()
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("differs", ["sign", "halves", "tables", "angles"])
def test_what_is_no_rotation_stays(differs: str) -> None:
    x = eqsat.input("x", (BATCH, HEADS, STEPS, SIZE))
    c, s, other = (before_heads(eqsat.input(n, (BATCH, STEPS, SIZE // 2))) for n in "cso")
    a, b = op.Split(x, axis=3, num_outputs=2)
    if differs == "sign":
        y = op.Concat(a * c + b * s, b * c - a * s, axis=3)  # Turned back.
    elif differs == "halves":
        y = op.Concat(b * c - a * s, a * c + b * s, axis=3)
    elif differs == "tables":
        y = op.Concat(a * c - b * other, b * c + a * s, axis=3)
    else:
        y = x * op.Concat(c, other, axis=3) + op.Concat(-b, a, axis=3) * op.Concat(s, s, axis=3)
    model = eqsat.graph(y)
    result = eqsat.optimize(model)
    assert "RotaryEmbedding" not in {node.op_type for node in result.model.graph}
    _agrees(model, result)
