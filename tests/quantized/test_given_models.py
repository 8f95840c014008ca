"""Quantized networks given as files ``NAME.qdq_*.onnx`` and ``NAME.qop_*.onnx``, by ONNX Runtime's quantizer.

They are looked for in the folder that EQSAT_MODELS names, else in ``models`` here or beside this project; where there
are none, the tests say so and are skipped. ``test_two_spellings.py`` makes smaller ones of the same kind on the fly.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import onnx
import pytest

from benchmarks.models import SHARED
from eqsat.result import Result
from eqsat.search import Search
from tests.quantization.runtime import has_exact_products
from tests.quantized.checks import difference_from_pairs, float_arithmetic, greatest_difference

TARGETS = ("cpu", "dnnl", "ethos_n, dnnl")
FILES = sorted(path.name for path in SHARED.glob("*.q*_*.onnx"))
PAIRS = sorted({name.split(".qop_")[0] for name in FILES if ".qop_" in name})

needs_files = pytest.mark.skipif(
    not FILES, reason="no quantized models: EQSAT_MODELS names no folder with *.qdq_*.onnx"
)


@cache
def model_of(name: str) -> onnx.ModelProto:
    return onnx.load(SHARED / name)


@cache
def optimized(name: str, target: str) -> Result:
    return Search.of(model_of(name), () if target == "cpu" else target, time_limit=120).extract()


def cases(names: list[str]) -> list[Any]:
    """Each with each target; one network has so many programs of nearly one cost that its proof takes long."""
    long = [(n, t) for n in names for t in TARGETS if n.startswith("tiny_mbv1") and t != "cpu"]
    pairs = [(n, t) for n in names or ["none"] for t in TARGETS]
    return [pytest.param(*p, marks=pytest.mark.heavy if p in long else pytest.mark.slow) for p in pairs]


@pytest.mark.slow
@needs_files
@pytest.mark.parametrize(("name", "target"), cases(FILES))
def test_integers_throughout_and_onnx_runtimes_results(name: str, target: str) -> None:
    result = optimized(name, target)
    assert result.stop_reason == "optimal"
    assert float_arithmetic(result) == []
    if has_exact_products():
        assert greatest_difference(model_of(name), result) <= 1.01
    else:
        # In floats, values on the border of two steps become either; in BERT, layers add up to five.
        most = 5.01 if name.startswith("bert") else 1.01
        assert difference_from_pairs(model_of(name.replace(".qop_", ".qdq_")), result) <= most
    assert result.cost < result.baseline_cost or ".qop_" in name


@needs_files
@pytest.mark.parametrize(("network", "target"), cases(PAIRS))
def test_both_files_of_a_network_have_one_cost(network: str, target: str) -> None:
    files = [name for name in FILES if name.startswith(f"{network}.q") and "u8s8" in name]
    assert len(files) == 2
    one, other = (optimized(name, target) for name in files)
    assert one.cost == pytest.approx(other.cost, rel=1e-9)
    assert [r.target for r in one.regions] == [r.target for r in other.regions]
