"""The Relax flow against TVM itself, by its answers on random programs, and by what the programs compute."""

import json
import random
from pathlib import Path

import numpy as np
import pytest

from benchmarks.baseline import relax
from eqsat.errors import OptimizationError
from tests.benchmarks.programs import SHAPE, Data, as_program, as_tables, random_program, run

ANSWERS = json.loads((Path(__file__).parent / "data" / "tvm_relax_0.27.json").read_text("utf-8"))


def _partition(data: Data) -> dict[str, int] | None:
    try:
        found = relax.partition(as_program(data), as_tables(data))
    except OptimizationError:
        return None
    return {"composites": found.composites, "regions": len(found.regions), "host": found.host_operators}


def test_counts_are_those_of_tvm() -> None:
    assert len(ANSWERS) >= 300
    for data in ANSWERS:
        expected = None if "error" in data["tvm"] else data["tvm"]
        assert _partition(data) == expected, data


def test_the_answers_cover_what_matters() -> None:
    told = [data["tvm"] for data in ANSWERS]
    assert sum("error" in t for t in told) >= 3
    assert sum(t.get("composites", 0) > 2 and t["regions"] > 1 for t in told) >= 50


@pytest.mark.parametrize("seed", range(10))
def test_partitioned_programs_compute_the_same(seed: int) -> None:
    rng = random.Random(1000 + seed)
    for _ in range(20):
        data = random_program(rng)
        arrays = np.random.default_rng(seed)
        inputs = {name: arrays.standard_normal(SHAPE, np.float32) * np.float32(0.5) for name in data["inputs"]}
        expected = run(as_program(data), inputs)
        try:
            found = relax.partition(as_program(data), as_tables(data, supported=("Tanh", "Sub")))
        except OptimizationError:
            continue
        for a, b in zip(expected, run(found.program, inputs), strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_composite_that_waits_for_itself_is_refused() -> None:
    data = {
        "inputs": ["p"],
        "nodes": [["y", "Relu", "p"], ["z", "Exp", "y"], ["w", "Add", "y", "z"]],
        "outputs": ["w"],
        "patterns": [["relu_add", ["Add", ["Relu", "_"], "_"]]],
    }
    with pytest.raises(OptimizationError, match="must not wait for themselves"):
        relax.partition(as_program(data), as_tables(data))
