"""Random graphs, and the graphs that once failed."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from tests.fuzz.check import DisagreementError, check, compare
from tests.fuzz.generator import generate
from tests.fuzz.shrink import shrink

FAILURES = sorted((Path(__file__).parent / "failures").glob("*.onnx"))
GRAPHS, CHUNK = 300, 5


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, GRAPHS, CHUNK))
def test_extractions_compute_what_the_graph_computes(start):
    for seed in range(start, start + CHUNK):
        check(generate(seed), seed)


@pytest.mark.parametrize("path", FAILURES, ids=lambda p: p.stem)
def test_what_once_failed(path):
    check(onnx.load(path), int(path.stem.removeprefix("seed_")))


def test_generator_is_deterministic():
    assert generate(5).SerializeToString(deterministic=True) == generate(5).SerializeToString(deterministic=True)


def test_a_wrong_rule_is_caught_and_shrunk(tmp_path, monkeypatch):
    """The net must be able to catch something: negation does not distribute over Relu."""
    from eqsat import search

    wrong = tmp_path / "wrong.rules"
    wrong.write_text("rule wrong : exact\n    Relu(x)  =>  Neg(Relu(Neg(x)))\n", encoding="utf-8")
    original = search.Search.__init__

    def with_wrong_rule(self, source, targets=(), **options):
        original(self, source, targets, rules=[wrong], **options)

    monkeypatch.setattr(search.Search, "__init__", with_wrong_rule)

    def fails(model: onnx.ModelProto) -> bool:
        try:
            check(model)
        except DisagreementError:
            return True
        return False

    model = next(m for m in map(generate, range(50)) if any(n.op_type == "Relu" for n in m.graph.node) and fails(m))
    small = shrink(model, fails)
    assert len(small.graph.node) <= 3
    assert any(n.op_type == "Relu" for n in small.graph.node)


def test_comparison_notices_types_names_and_values():
    import numpy as np

    x = {"y": np.ones(3, np.float32)}
    compare("same", x, {"y": x["y"] + np.float32(1e-6)})
    for other in ({"z": x["y"]}, {"y": x["y"].astype(np.float64)}, {"y": x["y"] * 1.001}, {"y": x["y"][:2]}):
        with pytest.raises(DisagreementError):
            compare("other", x, other)
