"""All shipped rules and targets together: no class of any e-graph holds expressions that compute different values."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.models import SHARED
from eqsat.search import Search
from tests.fuzz.generator import generate

GRAPHS = range(36)
QUANTIZED = sorted(SHARED.glob("tiny_*.q*.onnx"))
SMALL = [path for path in QUANTIZED if path.stem.startswith(("tiny_ae", "tiny_dscnn"))]
TARGETS = ([], ["dnnl"], ["ethos_n"])


@pytest.mark.slow
@pytest.mark.parametrize("seed", GRAPHS)
def test_random_graphs(seed: int) -> None:
    report = Search.of(generate(seed), TARGETS[seed % len(TARGETS)]).audit(2)
    assert report.ok, str(report)


@pytest.mark.parametrize("path", SMALL, ids=lambda p: p.stem)
def test_small_quantized_networks(path: Path) -> None:
    report = Search.of(path, ["ethos_n", "dnnl"]).audit(1)
    assert report.ok, str(report)


@pytest.mark.heavy
@pytest.mark.parametrize("target", ["dnnl", "ethos_n"])
@pytest.mark.parametrize("path", QUANTIZED, ids=lambda p: p.stem)
def test_quantized_networks(path: Path, target: str) -> None:
    report = Search.of(path, [target]).audit(1)
    assert report.ok, str(report)


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(1000, 1300))
def test_many_random_graphs(seed: int) -> None:
    report = Search.of(generate(seed), TARGETS[seed % len(TARGETS)]).audit()
    assert report.ok, str(report)
