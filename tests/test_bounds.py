"""Meters count what is held and done, inside of each other as well, and say so once it is too much."""

from __future__ import annotations

import gc

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import eqsat
from eqsat import bounds
from eqsat.errors import LimitError, OptimizationError
from eqsat.execute.executor import Executor

HEAD = '<ir_version: 8, opset_import: ["": 17]>\n'
LOOP = (
    HEAD + "g (float[2] x, int64 n) => (float[2] y) <bool c = {1}> { y = Loop(n, c, x) <body = "
    "b (int64 i, bool d, float[2] s) => (bool e, float[2] t) { e = Identity(d) t = Add(s, s) }> }"
)


@pytest.mark.parametrize(
    ("text", "size"),
    [("1000", 1000), ("500MB", 5 * 10**8), ("8 GiB", 8 << 30), ("1.5G", 1_500_000_000), ("2kb", 2000), (7, 7)],
)
def test_sizes(text: str | int, size: int) -> None:
    assert bounds.to_bytes(text) == size


@pytest.mark.parametrize("text", ["", "much", "-1", "0", "inf", "nan", "8XB", 0, -5, float("nan"), True])
def test_sizes_that_are_none(text: str | int) -> None:
    with pytest.raises(OptimizationError, match="size in bytes"):
        bounds.to_bytes(text)


def test_memory_is_counted_while_it_is_held() -> None:
    with bounds.metered(memory=10**6) as outer:
        first = np.zeros(100_000)
        outer.hold(first)
        with bounds.metered() as inner:
            assert inner.held == 800_000
            second = np.zeros(20_000)
            inner.hold(second)
        assert outer.held == 960_000
        with pytest.raises(LimitError, match="memory limit of 1 MB is required; got 100 kB beside 960 kB in use"):
            outer.admit(100_000)
        del first
        gc.collect()
        assert outer.held == 160_000
        outer.admit(100_000)


def test_an_inner_limit_does_not_widen_the_outer() -> None:
    with bounds.metered(memory=1000), bounds.metered(memory=10**9) as inner, pytest.raises(LimitError):
        inner.admit(2000)


def test_steps_are_counted_for_each_execution() -> None:
    model = ir.from_proto(onnx.parser.parse_model(LOOP))
    executor = Executor(model)
    x = {"x": np.ones(2, np.float32), "n": np.array(100, np.int64)}
    with bounds.metered(steps=400):
        for _ in range(3):
            executor.run(x)
        with pytest.raises(LimitError, match="at most 400 executed operators"):
            executor.run({**x, "n": np.array(1000, np.int64)})


def test_a_loop_is_ended_and_its_place_said() -> None:
    x = {"x": np.ones(2, np.float32), "n": np.array(10**12, np.int64)}
    with pytest.raises(LimitError, match=r"node 'y' \(Loop\)"):
        eqsat.run(LOOP, x, steps=1000)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), True, "30"])
def test_time_limits_that_are_none(seconds: float) -> None:
    with pytest.raises(OptimizationError, match="number of seconds is required"):
        eqsat.run(LOOP, {}, time_limit=seconds)


def test_what_the_machine_refuses_is_one_message() -> None:
    def deeper() -> int:
        return deeper() + 1

    with pytest.raises(LimitError, match="less deeply nested"), bounds.bounded(place="m"):
        deeper()
    with pytest.raises(LimitError, match="memory of this process"), bounds.bounded(place="m"):
        raise MemoryError


def test_the_default_is_below_what_the_process_may_have() -> None:
    import resource

    bounds.default_memory.cache_clear()
    before = bounds.default_memory()
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    try:
        resource.setrlimit(resource.RLIMIT_DATA, (1 << 34, hard))
        bounds.default_memory.cache_clear()
        assert bounds.default_memory() <= min(before, 1 << 33)
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
        bounds.default_memory.cache_clear()


def test_the_arena_of_a_compiled_program_is_counted() -> None:
    x = eqsat.input("x", (512, 512))
    model = eqsat.graph(eqsat.op.Softmax(x @ x) @ x)
    values = {"x": np.eye(512, dtype=np.float32)}
    eqsat.run(model, values, backend="c", memory_limit="64 MB")
    with pytest.raises(LimitError, match=r"an arena that fits into the memory limit of 200 kB"):
        eqsat.run(model, values, backend="c", memory_limit="200 kB")
