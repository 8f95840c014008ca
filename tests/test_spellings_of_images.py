"""One program whatever the spelling: means, groups and shuffles of channels, and images of repeated pixels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

import eqsat
from eqsat import op

RNG = np.random.default_rng(0)
Spelling = Callable[[Any], Any]


def _weights(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) / 4).astype(np.float32)


POINTS, DENSE, WINDOWS = _weights(32, 32, 1, 1), _weights(10, 32), _weights(16, 16, 3, 3)


def _ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


# ---- means -----------------------------------------------------------------------------------------------------------

MEANS: dict[str, Spelling] = {
    "pool": lambda x: op.Flatten(op.GlobalAveragePool(x)),
    "pool and squeeze": lambda x: op.Squeeze(op.GlobalAveragePool(x), _ints(2, 3)),
    "pool and view": lambda x: op.Reshape(op.GlobalAveragePool(x), _ints(-1, 32)),
    "pool of a view": lambda x: op.Flatten(op.GlobalAveragePool(op.Reshape(x, _ints(2, 32, -1)))),
    "window": lambda x: op.Flatten(op.AveragePool(x, kernel_shape=[7, 7])),
    "mean": lambda x: op.ReduceMean(x, _ints(2, 3), keepdims=0),
    "mean of negative axes": lambda x: op.ReduceMean(x, _ints(-1, -2), keepdims=0),
    "mean that keeps its dimensions": lambda x: op.Flatten(op.ReduceMean(x, _ints(3, 2), keepdims=1)),
    "rows, then columns": lambda x: op.ReduceMean(op.ReduceMean(x, _ints(3), keepdims=0), _ints(2), keepdims=0),
    "rows, then columns, kept": lambda x: op.Flatten(op.ReduceMean(op.ReduceMean(x, _ints(3)), _ints(2))),
    "sum": lambda x: op.ReduceSum(x, _ints(2, 3), keepdims=0) / np.float32(49),
    "mean of a view": lambda x: op.ReduceMean(op.Reshape(x, _ints(2, 32, -1)), _ints(2), keepdims=0),
    "channels last": lambda x: op.ReduceMean(op.Transpose(x, perm=[0, 2, 3, 1]), _ints(1, 2), keepdims=0),
    "tokens": lambda x: op.ReduceMean(
        op.Reshape(op.Transpose(x, perm=[0, 2, 3, 1]), _ints(2, 49, 32)), _ints(1), keepdims=0
    ),
    "view, then tokens": lambda x: op.ReduceMean(
        op.Transpose(op.Reshape(x, _ints(2, 32, 49)), perm=[0, 2, 1]), _ints(1), keepdims=0
    ),
}


def _classifier(mean: Spelling) -> Spelling:
    return lambda x: op.Gemm(mean(op.Relu(op.Conv(x, POINTS))), DENSE, transB=1)


# ---- channels of groups, interleaved ---------------------------------------------------------------------------------

SHUFFLES: dict[str, Spelling] = {
    "transposed": lambda x: op.Reshape(
        op.Transpose(op.Reshape(x, _ints(2, 4, 8, 7, 7)), perm=[0, 2, 1, 3, 4]), _ints(2, 32, 7, 7)
    ),
    "transposed rows": lambda x: op.Reshape(
        op.Transpose(op.Reshape(x, _ints(2, 4, 8, 49)), perm=[0, 2, 1, 3]), _ints(2, 32, 7, 7)
    ),
    "gathered": lambda x: op.Gather(x, np.arange(32).reshape(4, 8).T.reshape(-1), axis=1),
}


def _shuffled(shuffle: Spelling) -> Spelling:
    return lambda x: op.Conv(shuffle(op.Relu(op.Conv(x, POINTS))), POINTS)


# ---- pixels, repeated ------------------------------------------------------------------------------------------------

TWICE = np.arange(28) // 2


def _nearest(x: Any, scales: Any, sizes: Any = None) -> Any:
    floor = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    resize: Callable[..., Any] = op.Resize
    return resize(x, None, scales, sizes, **floor)


def _rows_then_columns(x: Any) -> Any:
    rows = op.Reshape(op.Expand(op.Reshape(x, _ints(1, 16, 14, 1, 14)), _ints(1, 1, 1, 2, 1)), _ints(1, 16, 28, 14))
    return op.Reshape(op.Expand(op.Unsqueeze(rows, _ints(4)), _ints(1, 16, 28, 14, 2)), _ints(1, 16, 28, 28))


def _joined(x: Any) -> Any:
    row = op.Unsqueeze(x, _ints(3))
    rows = op.Unsqueeze(op.Reshape(op.Concat(row, row, axis=3), _ints(1, 16, 28, 14)), _ints(4))
    return op.Reshape(op.Concat(rows, rows, axis=4), _ints(1, 16, 28, 28))


UPSAMPLINGS: dict[str, Spelling] = {
    "scales": lambda x: _nearest(x, np.array([1, 1, 2, 2], np.float32)),
    "scales by centres": lambda x: op.Resize(x, None, np.array([1, 1, 2, 2], np.float32), mode="nearest"),
    "sizes": lambda x: _nearest(x, None, _ints(1, 16, 28, 28)),
    "tiles": lambda x: op.Reshape(
        op.Tile(op.Reshape(x, _ints(1, 16, 14, 1, 14, 1)), _ints(1, 1, 1, 2, 1, 2)), _ints(1, 16, 28, 28)
    ),
    "expansion": lambda x: op.Reshape(
        op.Expand(op.Unsqueeze(x, _ints(3, 5)), _ints(1, 1, 1, 2, 1, 2)), _ints(1, 16, 28, 28)
    ),
    "rows, then columns": _rows_then_columns,
    "joined": _joined,
    "indices": lambda x: op.Gather(op.Gather(x, TWICE, axis=2), TWICE, axis=3),
}


def _pyramid(upsampled: Spelling) -> Spelling:
    return lambda x: op.Conv(upsampled(op.Relu(op.Conv(x, WINDOWS, pads=[1] * 4))), WINDOWS, pads=[1] * 4)


# ---- groups of channels ----------------------------------------------------------------------------------------------

GROUPED, BIAS = _weights(32, 16, 3, 3), _weights(32)


def _halves(parts: tuple[Any, Any], *, biases: bool = True) -> Any:
    weights, shifts = np.split(GROUPED, 2), np.split(BIAS, 2)
    first, second = (
        op.Conv(x, w, b if biases else None, pads=[1] * 4) for x, w, b in zip(parts, weights, shifts, strict=True)
    )
    return op.Concat(first, second, axis=1)


def _slices(x: Any) -> tuple[Any, Any]:
    return op.Slice(x, _ints(0), _ints(16), _ints(1)), op.Slice(x, _ints(-16), _ints(1000), _ints(1))


GROUPS: dict[str, Spelling] = {
    "one convolution": lambda x: op.Conv(x, GROUPED, BIAS, group=2, pads=[1] * 4),
    "split": lambda x: _halves(op.Split(x, axis=1, num_outputs=2)),
    "split by sizes": lambda x: _halves(op.Split(x, _ints(16, 16), axis=1)),
    "slices": lambda x: _halves(_slices(x)),
    "biases of all": lambda x: _halves(_slices(x), biases=False) + BIAS.reshape(32, 1, 1),
}


# ---- the tests -------------------------------------------------------------------------------------------------------

FAMILIES = {
    "means": ((2, 32, 7, 7), MEANS, _classifier),
    "shuffles": ((2, 32, 7, 7), SHUFFLES, _shuffled),
    "upsamplings": ((1, 16, 14, 14), UPSAMPLINGS, _pyramid),
    "groups": ((2, 32, 9, 9), GROUPS, lambda grouped: lambda x: op.Relu(grouped(x))),
}


def _each(family: str, *, inside: bool) -> Iterator[tuple[str, ir.Model]]:
    shape, spellings, network = FAMILIES[family]
    for name, spelling in spellings.items():
        yield name, eqsat.graph((network(spelling) if inside else spelling)(eqsat.input("x", shape)))


def _agrees(model: ir.Model, result: eqsat.Result) -> None:
    given = model.graph.inputs[0].shape
    assert given is not None
    feed = {"x": np.random.default_rng(1).standard_normal(given.numpy()).astype(np.float32)}
    source = ir.to_proto(model).SerializeToString()
    session = onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])
    (wanted,) = map(np.asarray, session.run(None, feed))
    (found,) = result.run(feed).values()
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("inside", "host", "targets"),
    [
        (False, "cpu", []),
        (False, "ort", []),
        (True, "cpu", []),
        (True, "ort", []),
        (True, "c", []),
        (True, "cpu", ["dnnl"]),
        (True, "cpu", ["dnnl", "ethos_n"]),
    ],
)
def test_one_cost_and_one_partition(family: str, inside: bool, host: str, targets: list[str]) -> None:
    outcomes: dict[tuple[str, object], list[str]] = {}
    for name, model in _each(family, inside=inside):
        result = eqsat.optimize(model, targets=targets, host=host, verify=False)
        _agrees(model, result)
        regions = tuple((region.target, region.nodes) for region in result.regions if region.target != host)
        outcomes.setdefault((f"{result.cost:.9g}", regions), []).append(name)
    assert len(outcomes) == 1, outcomes


def test_a_kernel_of_three_views_takes_gathered_channels() -> None:
    weights, order = _weights(64, 64, 1, 1), np.arange(64).reshape(2, 32).T.reshape(-1)
    shuffled = op.Gather(op.Relu(op.Conv(eqsat.input("x", (8, 64, 32, 32)), weights)), order, axis=1)
    model = eqsat.graph(op.Relu(op.Conv(shuffled, weights)))
    result = eqsat.optimize(model, targets=["dnnl"])
    (region,) = result.regions
    assert "dnnl.channel_shuffle" in region.nodes
    _agrees(model, result)


def test_an_image_of_a_free_batch_is_resized() -> None:
    """Other shapes follow from the batch, as exporters compute them."""
    x = eqsat.input("x", ("N", 3, 4, 5))
    once, twice = _ints(0, 3, 4, 1, 5, 1), _ints(1, 1, 1, 3, 1, 2)
    model = eqsat.graph(op.Reshape(op.Tile(op.Reshape(x, once), twice), _ints(0, 3, 12, 10)))
    result = eqsat.optimize(model, verify=False)
    assert [node.op_type for node in result.model.graph] == ["Resize"]
    for batch in (1, 3):
        image = np.random.default_rng(batch).standard_normal((batch, 3, 4, 5)).astype(np.float32)
        (found,) = result.run({"x": image}).values()
        np.testing.assert_array_equal(found, image.repeat(3, axis=2).repeat(2, axis=3))


@pytest.mark.parametrize(
    ("once", "more"),
    [
        ((2, 3, 1, 4, 5, 1), (2, 3, 2, 4, 5, 2)),  # The whole image twice, one below the other.
        ((2, 3, 4, 1, 1, 5), (2, 3, 4, 2, 2, 5)),
        ((2, 1, 3, 4, 5), (2, 4, 3, 4, 5)),
    ],
)
def test_repetitions_of_more_than_pixels_stay(once: tuple[int, ...], more: tuple[int, ...]) -> None:
    x = eqsat.input("x", (2, 3, 4, 5))
    shape = (2, 12, 4, 5) if len(once) == 5 else (2, 3, 8, 10)
    model = eqsat.graph(op.Reshape(op.Expand(op.Reshape(x, _ints(*once)), _ints(*more)), _ints(*shape)))
    result = eqsat.optimize(model)
    assert "Resize" not in {node.op_type for node in result.model.graph}
    _agrees(model, result)


@pytest.mark.parametrize("order", [[0, 2, 1, 3, 5, 4], [0, 3, 1, 4, 2, 5], [2, 3, 0, 1, 5, 4]])
def test_channels_in_another_order_are_gathered(order: list[int]) -> None:
    model = eqsat.graph(op.Relu(op.Gather(eqsat.input("x", (2, 6, 4)), _ints(*order), axis=1)))
    result = eqsat.optimize(model)
    assert Counter(node.op_type for node in result.model.graph)["Gather"] == 1
    _agrees(model, result)


@pytest.mark.parametrize("kind", ["ReduceSum", "ReduceMax", "ReduceMin", "ReduceL2"])
def test_reductions_of_views_drop_and_keep_dimensions(kind: str) -> None:
    reduce = getattr(op, kind)
    x = eqsat.input("x", (2, 3, 4, 5))
    model = eqsat.graph(op.Squeeze(reduce(op.Reshape(x, _ints(2, 3, 20)), _ints(2), keepdims=1), _ints(2)))
    result = eqsat.optimize(model)
    assert [node.op_type for node in result.model.graph] == [kind]
    _agrees(model, result)


@pytest.mark.parametrize("differs", ["windows", "parts", "order"])
def test_other_halves_stay_apart(differs: str) -> None:
    x = eqsat.input("x", (1, 32, 9, 9))
    a, b = op.Split(x, _ints(12, 20) if differs == "parts" else _ints(16, 16), axis=1)
    first = op.Conv(a, _weights(8, a.shape[1], 3, 3), pads=[1] * 4)
    size = 1 if differs == "windows" else 3
    second = op.Conv(b, _weights(8, b.shape[1], size, size), pads=[size // 2] * 4)
    model = eqsat.graph(op.Concat(*((second, first) if differs == "order" else (first, second)), axis=1))
    result = eqsat.optimize(model)
    assert sum(node.op_type == "Conv" for node in result.model.graph) == 2
    _agrees(model, result)
