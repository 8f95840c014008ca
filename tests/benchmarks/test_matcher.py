"""Matching, form by form of the pattern language."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from benchmarks.baseline.expr import Expr, from_model
from benchmarks.baseline.matcher import Found, find
from benchmarks.baseline.tables import tables
from eqsat.model.load import load
from eqsat.rules.reader import read_files
from eqsat.targets.find_targets import load_targets
from eqsat.targets.kernel_cost import CostModel

_HEAD = """target t
    peak float32 = 1e9
    bandwidth = 1e9, launch = 0
    link bandwidth = 1e9, latency = 0
    composite c : exact
        """


def _find(pattern: str, text: str, tmp_path, where: str = "") -> Found | None:
    """Matches a pattern at the first output of a graph in ONNX text, conditions included."""
    path = tmp_path / "t.target"
    path.write_text(_HEAD + pattern + ("\n        where " + where if where else "") + "\n", "utf-8")
    (file,) = read_files([path])
    (composite,) = file.targets[0].composites
    table = tables(CostModel(load_targets(path)))
    found = find(composite.patterns[0], _root(text), table.evaluate)
    if found is None or not table.accepts(composite, table.names(composite, found)):
        return None
    return found


def _root(text: str) -> Expr:
    source = f'<ir_version: 8, opset_import: ["": 18]>\n{text}'
    return from_model(load(onnx.parser.parse_model(source))).outputs[0]


TRANSPOSED = "g (float[2,3,4] x) => (float[4,2,3] y) { y = Transpose<perm=[2,0,1]>(x) }"
CLIPPED = "g (float[4] x) => (float[4] y) <float lo = {0.0}, float hi = {6.0}> { y = Clip(x, lo, hi) }"
ONE_SIDED = "g (float[4] x) => (float[4] y) <float lo = {0.0}> { y = Clip(x, lo) }"
JOINED = "g (float[4] a, float[4] b, float[4] c) => (float[12] y) { y = Concat<axis=0>(a, b, c) }"
SPLIT = "g (float[4] x) => (float[2] y, float[2] z) { z, y = Split<axis=0, num_outputs=2>(x) }"
SWISH = "g (float[4] x) => (float[4] y) { s = Tanh(x) t = Sigmoid(s) y = Mul(t, s) }"


@pytest.mark.parametrize(
    ("pattern", "text", "where", "matches"),
    [
        ("Transpose(x, perm=[2, 0, 1])", TRANSPOSED, "", True),
        ("Transpose(x, perm=[0, 2, 1])", TRANSPOSED, "", False),
        ("Transpose(x, perm=p)", TRANSPOSED, "p[0] == 2, x.rank == 3", True),
        ("Transpose(x, perm=p)", TRANSPOSED, "p[0] == 1", False),
        ("t: Transpose(x)", TRANSPOSED, "t.perm == [2, 0, 1], t.shape[0] == 4", True),
        ("Clip(x, 0, 6)", CLIPPED, "", True),
        ("Clip(x, 0, 5)", CLIPPED, "", False),
        ("Clip(x, lo, hi?)", CLIPPED, "const(lo, hi), hi.value == 6", True),
        ("Clip(x, lo, hi?)", ONE_SIDED, "not hi.is_present", True),
        ("Clip(x, lo, hi)", ONE_SIDED, "", False),
        ("Clip(x, lo)", CLIPPED, "", False),
        ("Clip(x, lo)", CLIPPED.replace("{0.0}", "{-1.0}"), "lo.value == -1", False),
        ("Concat(a, rest..., axis=0)", JOINED, "len(rest) == 2", True),
        ("Concat(a, b, axis=0)", JOINED, "", False),
        ("Split(x)[1]", SPLIT, "", True),
        ("Split(x)[0]", SPLIT, "", False),
        ("(op: Sigmoid | Transpose)(x)", TRANSPOSED, "", True),
        ("Relu(x) | Transpose(x)", TRANSPOSED, "", True),
        ("s * Sigmoid(s)", SWISH, "", True),
        ("Tanh(x) * Sigmoid(x)", SWISH, "", False),
        ("maybe(Relu)(Transpose(x))", TRANSPOSED, "", True),
        ("Relu(_)", TRANSPOSED, "", False),
    ],
)
def test_forms(pattern: str, text: str, where: str, matches: bool, tmp_path) -> None:
    assert (_find(pattern, text, tmp_path, where) is not None) == matches


def test_a_let_used_twice_is_one_value(tmp_path) -> None:
    pattern = "let s = Tanh(x)\n        s * Sigmoid(s)"
    other = "g (float[4] x) => (float[4] y) { s = Tanh(x) r = Tanh(x) t = Sigmoid(r) y = Mul(t, s) }"
    assert _find(pattern, SWISH, tmp_path) is not None
    assert _find(pattern, other, tmp_path) is None


def test_what_is_bound(tmp_path) -> None:
    found = _find("c: Clip(x, 0, hi)", CLIPPED, tmp_path)
    assert found is not None
    assert sorted(found.tensors) == ["c", "hi", "x"]
    assert [e.name for e in found.leaves] == ["x", "hi"]
    assert [e.name for e in found.literals] == ["lo"]
    assert [str(e.op) for e in found.calls] == ["Clip"]


def test_a_failed_alternative_leaves_nothing_behind(tmp_path) -> None:
    text = "g (float[4] x, float[4] b) => (float[4] y) { t = Tanh(x) y = Add(t, b) }"
    found = _find("(Relu(v) + w) | (Tanh(v) + w)", text, tmp_path)
    assert found is not None
    assert {name: e.name for name, e in found.tensors.items() if e} == {"v": "x", "w": "b"}
    assert [e.name for e in found.leaves] == ["x", "b"]


def test_numbers_match_constants_that_are_equal_everywhere() -> None:
    from benchmarks.baseline.matcher import _is_filled_with

    def constant(*values: float) -> Expr:
        return Expr("constant", value=ir.tensor(np.array(values, np.float32)))

    assert _is_filled_with(constant(2, 2, 2), 2)
    assert not _is_filled_with(constant(2, 2, 3), 2)
    assert not _is_filled_with(constant(), 2)
    assert not _is_filled_with(Expr("input"), 2)
