"""Attention in C for every instruction set, against the numpy executor and ONNX Runtime."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from eqsat.codegen.isa import ALL, Isa
from eqsat.codegen.runtime import CModel
from eqsat.model.load import load
from tests.codegen.kernels.joined_cases import Built, Joined, joined

FAMILY = "attention of rows"
TYPES = {"f": TensorProto.FLOAT, "b": TensorProto.BOOL, "i": TensorProto.INT64}
NAMES = ("q", "k", "v", "mask", "past_key", "past_value", "lengths")


def built(
    q: tuple[int, ...],
    k: tuple[int, ...],
    size: int | None = None,
    *,
    mask: np.ndarray | None = None,
    past: int | None = None,
    lengths: list[int] | None = None,
    wide: bool = False,
    **attributes: Any,
) -> Built:
    """A model of one node, and its inputs; ``wide`` has operands of three axes."""
    rng = np.random.default_rng(7)
    v = (*k[:-1], size or k[-1])

    def some(shape: tuple[int, ...]) -> np.ndarray:
        x = rng.standard_normal(shape).astype(np.float32)
        return np.ascontiguousarray(x.transpose(0, 2, 1, 3)).reshape(shape[0], shape[2], -1) if wide else x

    feeds = {"q": some(q), "k": some(k), "v": some(v)}
    if mask is not None:
        feeds["mask"] = mask
    results = {"y": (*q[:3], v[3]) if not wide else (q[0], q[2], q[1] * v[3])}
    if past is not None:
        for name, shape in (("key", k), ("value", v)):
            feeds[f"past_{name}"] = rng.standard_normal((*k[:2], past, shape[3])).astype(np.float32)
            results[f"present_{name}"] = (*k[:2], past + k[2], shape[3])
    if lengths is not None:
        feeds["lengths"] = np.array(lengths)
    if wide:
        attributes |= {"q_num_heads": q[1], "kv_num_heads": k[1]}
    node = helper.make_node("Attention", [n if n in feeds else "" for n in NAMES], list(results), **attributes)
    graph = helper.make_graph(
        [node],
        "attention",
        [helper.make_tensor_value_info(n, TYPES[x.dtype.kind], x.shape) for n, x in feeds.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in results.items()],
    )
    opset = 25 if "left_window_size" in attributes or "right_window_size" in attributes else 24
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10), feeds


def cases() -> dict[str, Built]:
    rng = np.random.default_rng(3)

    def bias(*shape: int) -> np.ndarray:
        return np.where(rng.random(shape) < 0.2, -np.inf, rng.standard_normal(shape)).astype(np.float32)

    empty = rng.random((6, 9)) < 0.5
    empty[2] = False
    return {
        "one_row": built((1, 4, 1, 64), (1, 4, 83, 64)),
        "grouped_row": built((2, 8, 1, 32), (2, 2, 133, 32)),
        "primes": built((2, 3, 13, 7), (2, 3, 17, 7), 5),
        "several_blocks": built((1, 2, 131, 16), (1, 2, 197, 16)),
        "a_block_of_many_rows": built((1, 6, 197, 16), (1, 6, 131, 16)),
        "several_blocks_of_many_rows": built((2, 4, 215, 16), (2, 4, 70, 16)),
        "causal": built((2, 4, 70, 16), (2, 2, 131, 16), 24, is_causal=1),
        "bias": built((1, 2, 33, 8), (1, 2, 77, 8), mask=bias(33, 77), softcap=2.0, scale=0.5),
        "bias_of_heads": built((1, 2, 2, 32), (1, 2, 90, 32), mask=bias(1, 2, 2, 90)),
        "booleans": built((2, 2, 33, 8), (2, 2, 77, 8), mask=rng.random((2, 1, 33, 77)) < 0.1, is_causal=1),
        "rows_without_keys": built((1, 2, 6, 4), (1, 2, 9, 4), mask=empty),
        "short_mask": built((1, 2, 6, 4), (1, 2, 90, 4), mask=bias(6, 70)),
        "three_axes": built((2, 4, 50, 32), (2, 4, 50, 32), wide=True),
        "cache": built((2, 4, 5, 8), (2, 2, 5, 8), past=9, wide=True, is_causal=1),
        "cache_of_a_row": built((1, 4, 1, 64), (1, 2, 1, 64), past=99),
        "lengths": built((2, 2, 3, 16), (2, 2, 40, 16), lengths=[0, 37], is_causal=1),
        "window": built((1, 2, 150, 4), (1, 2, 200, 4), left_window_size=20, right_window_size=3),
        "one_element": built((1, 1, 1, 1), (1, 1, 1, 1)),
    }


OURS_ALONE = {"window", "short_mask"}
"""What ONNX Runtime refuses."""


@functools.cache
def every_case() -> Joined:
    return joined(cases(), OURS_ALONE)


@pytest.mark.parametrize("isa", ALL, ids=lambda isa: isa.name)
def test_values(isa: Isa) -> None:
    compiled = every_case().compiled(isa)
    kernels = [k.family for k in compiled.emitted.kernels]
    assert kernels.count(FAMILY) == len(cases())
    assert {*kernels} <= {FAMILY, "elementwise vectors"}
    every_case().check(compiled, lambda size: 2e-6)


def test_masked_keys_have_no_influence() -> None:
    """Whatever lies where a cache is not filled yet."""
    model, feeds = built((2, 2, 3, 16), (2, 2, 150, 16), lengths=[5, 90], is_causal=1)
    compiled = CModel(load(model))
    expected = compiled.run(feeds)["y"]
    for row, length in enumerate(feeds["lengths"]):
        feeds["k"][row, :, length:] = np.nan
        feeds["v"][row, :, length:] = np.nan
    np.testing.assert_array_equal(compiled.run(feeds)["y"], expected)


def test_threads_share_rows() -> None:
    model, feeds = built((1, 4, 300, 32), (1, 2, 300, 32), is_causal=1)
    alone, shared = CModel(load(model)), CModel(load(model), threads=2)
    assert shared.emitted.shared == 1
    np.testing.assert_array_equal(shared.run(feeds)["y"], alone.run(feeds)["y"])


def test_nothing_but_a_cache_is_copied() -> None:
    model, _ = built((1, 4, 1, 64), (1, 2, 1, 64), past=99)
    compiled = CModel(load(model))
    kernels = [k for k in compiled.emitted.kernels if k.family != FAMILY]
    moved = sum(np.prod(k.task.output.shape) for k in kernels)
    assert moved == 2 * 2 * 100 * 64
