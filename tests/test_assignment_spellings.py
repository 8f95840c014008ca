"""Assignment to a part of a tensor, views and parts: what one exporter scatters, another one joins.

`x[:, a:b] = f(x[:, a:b])` is a ScatterND with an index for each element (TorchScript), one with an index for each row
between two transpositions (torch's newer exporter), or slices that are joined (written by hand).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import eqsat
from eqsat import op
from eqsat.model.builder import Tensor
from eqsat.model.load import load
from tests.model.running import random_inputs, run_ort


def _optimized(*results: Tensor, **options: object) -> tuple[Counter[str], float]:
    """The operators of the optimized model, compared with ONNX Runtime on the input, and its cost in seconds."""
    model = eqsat.graph(list(results))
    found = eqsat.optimize(model, **options)
    loaded = load(model)
    feed = random_inputs(loaded, seed=1)
    for ours, wanted in zip(found.run(feed).values(), run_ort(loaded, feed), strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=1e-5, atol=1e-6)
    return Counter(node.op_type for node in found.model.graph), found.cost


def _part(x: Tensor, axis: int, start: int, end: int) -> Tensor:
    return op.Slice(x, [start], [end], [axis])


def _by_element(x: Tensor, shape: tuple[int, ...], update: Tensor, axis: int, start: int, size: int) -> Tensor:
    part = (*shape[:axis], size, *shape[axis + 1 :])
    places = np.stack(np.indices(part), axis=-1)
    places[..., axis] += start
    return op.ScatterND(x, places.astype(np.int64), update)


def _by_row(x: Tensor, shape: tuple[int, ...], update: Tensor, axis: int, start: int, size: int) -> Tensor:
    perm = [axis, *(i for i in range(len(shape)) if i != axis)]
    rows = np.arange(start, start + size, dtype=np.int64)[:, None]
    back = [int(i) for i in np.argsort(perm)]
    scattered = op.ScatterND(op.Transpose(x, perm=perm), rows, op.Transpose(update, perm=perm))
    return op.Transpose(scattered, perm=back)


def _by_position(x: Tensor, shape: tuple[int, ...], update: Tensor, axis: int, start: int, size: int) -> Tensor:
    part = (*shape[:axis], size, *shape[axis + 1 :])
    positions = start + np.indices(part)[axis]
    return op.ScatterElements(x, positions.astype(np.int64), update, axis=axis)


def _joined(x: Tensor, shape: tuple[int, ...], update: Tensor, axis: int, start: int, size: int) -> Tensor:
    pieces = [_part(x, axis, 0, start)] * (start > 0) + [update]
    pieces += [_part(x, axis, start + size, shape[axis])] * (start + size < shape[axis])
    return op.Concat(*pieces, axis=axis) if len(pieces) > 1 else update


SPELLINGS = [_by_element, _by_row, _by_position, _joined]
CASES = [
    ((2, 9, 8), 1, 3, 4),
    ((2, 9, 8), 1, 0, 4),
    ((2, 9, 8), 2, 5, 3),
    ((6, 5), 0, 2, 1),
    ((6, 5), 1, 1, 3),
    ((2, 3, 4, 5), 3, 0, 2),
    ((2, 3, 4, 5), 2, 1, 2),
    ((7,), 0, 2, 3),
]


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "axis", "start", "size"), CASES)
def test_an_assignment_has_one_cost(shape: tuple[int, ...], axis: int, start: int, size: int) -> None:
    x = eqsat.input("x", shape)
    update = op.Sigmoid(_part(x, axis, start, start + size))
    costs = [_optimized(op.Relu(spell(x, shape, update, axis, start, size)))[1] for spell in SPELLINGS]
    assert max(costs) <= costs[-1] * (1 + 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("spell", SPELLINGS)
@pytest.mark.parametrize(("shape", "axis", "start", "size"), CASES)
def test_what_was_assigned_is_read_back(
    spell: Callable[..., Any], shape: tuple[int, ...], axis: int, start: int, size: int
) -> None:
    x, y = eqsat.input("x", shape), eqsat.input("y", (*shape[:axis], size, *shape[axis + 1 :]))
    assigned = spell(x, shape, op.Relu(y), axis, start, size)
    assert _optimized(op.Sigmoid(_part(assigned, axis, start, start + size)))[0] == {"Relu": 1, "Sigmoid": 1}


@pytest.mark.parametrize("spell", SPELLINGS)
def test_an_assignment_everywhere_is_the_update(spell: Callable[..., Any]) -> None:
    x, y = eqsat.input("x", (3, 4)), eqsat.input("y", (3, 4))
    kinds, _ = _optimized(op.Relu(spell(x, (3, 4), y, 1, 0, 4)), op.Neg(x))
    assert kinds == {"Relu": 1, "Neg": 1}


@pytest.mark.slow
@pytest.mark.parametrize("spell", SPELLINGS)
def test_a_detection_head_that_is_decoded_in_place(spell: Callable[..., Any]) -> None:
    """Centres and sizes of boxes are assigned in turn, as in older heads; newer ones join the three parts."""
    shape = (1, 3, 5, 5, 9)
    x = eqsat.input("x", shape)
    y = op.Sigmoid(x)
    grid, anchors = np.ones((1, 3, 5, 5, 2), np.float32), np.full((1, 3, 5, 5, 2), 3, np.float32)
    twice = np.float32(2)
    centres = _part(y, 4, 0, 2) * twice + grid
    sizes = _part(y, 4, 2, 4) * twice * anchors
    assigned = spell(y, shape, centres, 4, 0, 2)
    assigned = spell(assigned, shape, _part(assigned, 4, 2, 4) * twice * anchors, 4, 2, 2)
    joined = _optimized(op.Concat(centres, sizes, _part(y, 4, 4, 9), axis=4))
    assert _optimized(assigned)[1] <= joined[1] * (1 + 1e-9)


def test_other_scatters_keep_their_values() -> None:
    x, u = eqsat.input("x", (6, 3)), eqsat.input("u", (3, 3))
    for rows in ([1, 2, 4], [2, 1, 0], [5, 4, 3], [-3, -2, -1]):
        kinds, _ = _optimized(op.ScatterND(x, np.array(rows, np.int64)[:, None], u))
        assert kinds == {"ScatterND": 1}
    for reduction in ("add", "mul", "max"):
        kinds, _ = _optimized(op.ScatterND(x, np.array([1, 2, 3], np.int64)[:, None], u, reduction=reduction))
        assert kinds == {"ScatterND": 1}
    moved = np.array([[1, 1, 2], [2, 2, 1], [3, 3, 3]], np.int64)
    assert _optimized(op.ScatterElements(x, moved, u, axis=0))[0] == {"ScatterElements": 1}


# ---- parts of what was joined --------------------------------------------------------------------------------------


@pytest.mark.parametrize("parts", [(3, 4), (3, 4, 2)])
def test_a_part_of_joined_tensors_is_a_part_of_one(parts: tuple[int, ...]) -> None:
    inputs = [eqsat.input(f"x{i}", (2, n)) for i, n in enumerate(parts)]
    joined, start = op.Concat(*inputs, axis=1), 0
    for n in parts:
        assert _optimized(op.Relu(_part(joined, 1, start, start + n)))[0] == {"Relu": 1}
        assert _optimized(op.Relu(_part(joined, 1, start + 1, start + n)))[0] == {"Slice": 1, "Relu": 1}
        assert _optimized(op.Relu(_part(joined, -1, start - sum(parts), start + 1)))[0] == {"Slice": 1, "Relu": 1}
        start += n
    across = _part(joined, 1, parts[0] - 1, parts[0] + 1)
    assert _optimized(op.Relu(across))[0]["Concat"] == 1


# ---- views ---------------------------------------------------------------------------------------------------------


def test_keys_transposed_in_batches_of_heads() -> None:
    x = eqsat.input("x", (2, 4, 6, 8))
    by_three = op.Reshape(op.Transpose(op.Reshape(x, [8, 6, 8]), perm=[0, 2, 1]), [2, 4, 8, 6])
    windows = op.Reshape(op.Transpose(op.Reshape(x, [2, 2, 2, 6, 8]), perm=[0, 1, 2, 4, 3]), [8, 8, 6])
    assert _optimized(by_three)[0] == {"Transpose": 1}
    back = op.Transpose(op.Reshape(windows, [2, 4, 8, 6]), perm=[0, 1, 3, 2])
    assert set(_optimized(op.Relu(back))[0]) == {"Relu"}


def test_a_pool_of_one_dimension_by_way_of_two() -> None:
    x = eqsat.input("x", (1, 32, 16))
    for pool in (op.GlobalAveragePool, op.GlobalMaxPool):
        one = op.Reshape(pool(x), [1, 32])
        two = op.Reshape(pool(op.Unsqueeze(x, [2])), [1, 32])
        first, second = (eqsat.optimize(eqsat.graph(y)).cost for y in (one, two))
        assert first == second


def test_gathering_rows_by_tuples_of_one_index() -> None:
    table = eqsat.input("t", (10, 4))
    i = op.Constant(value=ir.tensor(np.array([[3, -1], [0, 9]])))
    rows = op.GatherND(table, op.Unsqueeze(i, [2]))
    assert _optimized(rows)[1] == _optimized(op.Gather(table, i))[1]


def test_a_layer_normalization_with_a_shift_of_zeros() -> None:
    x, ones = eqsat.input("x", (2, 7, 16)), np.linspace(1, 2, 16, dtype=np.float32)
    costs = {
        eqsat.optimize(eqsat.graph(op.LayerNormalization(x, ones, *shift))).cost
        for shift in ((), (np.zeros(16, np.float32),))
    }
    assert len(costs) == 1
