"""How much work the extraction of transformers takes: each further spelling of an operator is a choice in every layer.

Work is counted and not timed (``eqsat.extract.effort``), so that a rule which multiplies it fails on any machine.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.zoo import read
from eqsat.extract.solve import solve
from eqsat.search import Search

_GRAPHS = Path(__file__).parents[2] / "benchmarks" / "fusion_graphs"

_MOST = {"cross_cache": 0.4, "eager": 0.03, "gqa_rope": 0.09, "module": 0.25, "sdpa": 0.04}
"""By graph up to twice what it took when this was written, in units."""


@pytest.mark.parametrize("exporter", ["dynamo", "ts"])
@pytest.mark.parametrize("name", _MOST)
def test_work_of_a_transformer(name: str, exporter: str) -> None:
    formulation = Search.of(read(_GRAPHS / f"{name}_{exporter}.onnx.xz"), ["dnnl"]).formulation
    solution = solve(formulation.problem, incumbent=formulation.original)
    assert solution.stop_reason == "optimal"
    assert 0 < solution.work <= _MOST[name]
