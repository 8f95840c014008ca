"""Models that are too large for what the search would do: they fall back in steps, and the summary says so."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import eqsat
from eqsat import search
from eqsat.cli import main
from eqsat.egraph.approximate import Approximation
from eqsat.egraph.engine import ROUNDS, Engine
from eqsat.egraph.limits import MOST_ENODES, LastGuard, Limits
from eqsat.errors import LimitError, OptimizationError
from tests.egraph.helpers import model

TEXT = """
    w = Constant <value = float[4, 4] {1, 2, 3, 4, 5, 6, 7, 8, 1, 0, 2, 0, 3, 0, 4, 0}> ()
    a = MatMul(x, w)
    b = Add(a, y)
    c = Relu(b)
    d = Mul(c, y)
    e = Add(d, c)
    out = Relu(e)
"""
VALUES = {"x": np.array([[1, -2, 3, 0.5]], np.float32), "y": np.array([[2, 1, -1, 4]], np.float32)}


def small() -> ir.Model:
    return model(TEXT, "float[1,4] x, float[1,4] y", "float[1,4] out")


def expected() -> np.ndarray:
    w = np.array([1, 2, 3, 4, 5, 6, 7, 8, 1, 0, 2, 0, 3, 0, 4, 0], np.float32).reshape(4, 4)
    c = np.maximum(VALUES["x"] @ w + VALUES["y"], 0)
    return np.maximum(c * VALUES["y"] + c, 0)


def test_without_rules_a_model_is_still_placed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MOST_REWRITTEN", 5)
    result = eqsat.optimize(small(), "dnnl")
    assert all(row.matches == 0 for row in result.summary.rules if not row.name.startswith("dnnl."))
    assert any(row.matches for row in result.summary.rules if row.name.startswith("dnnl."))
    (note,) = result.summary.notes
    assert "no rule was applied" in note and "6 operators" in note
    np.testing.assert_allclose(result.run(VALUES)["out"], expected(), rtol=1e-5)


@pytest.mark.parametrize("targets", ["", "dnnl"])
def test_a_model_that_is_larger_is_left_as_it_stands(
    targets: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    usual = eqsat.optimize(small(), [], default_rules=False)
    monkeypatch.setattr(search, "MOST_PLACED", 5)
    result = eqsat.optimize(small(), targets or ())
    assert result.stop_reason == result.summary.saturation.stop_reason == "size limit"
    assert result.cost == result.baseline_cost == pytest.approx(usual.baseline_cost)
    assert result.bound == 0 and result.gap == 1
    assert "left unchanged" in str(result) and "note " in str(result)
    np.testing.assert_allclose(result.run(VALUES)["out"], expected(), rtol=1e-5)
    for name in ("report.json", "report.html", "report.txt"):
        result.report(tmp_path / name)
        assert "left unchanged" in (tmp_path / name).read_text("utf-8")
    result.save(tmp_path / "out.onnx")
    found = eqsat.run(eqsat.load(tmp_path / "out.onnx"), VALUES)["out"]
    np.testing.assert_allclose(found, expected(), rtol=1e-5)


def test_constants_of_a_model_as_it_stands_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = model("w = Constant <value = float[4] {1, 2, 3, 4}> ()\nv = Exp(w)\nu = Neg(v)\nout = Add(x, u)")
    usual = eqsat.optimize(graph, default_rules=False)
    monkeypatch.setattr(search, "MOST_PLACED", 0)
    result = eqsat.optimize(graph)
    assert result.summary.after.operators == 1
    assert result.cost == pytest.approx(usual.baseline_cost)


@pytest.mark.slow
def test_wherever_the_time_is_over_the_result_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is looked at so many times, then the time is over: nothing in between is taken for a result."""
    reasons = []
    for looks in itertools.chain(range(0, 60, 7), range(60, 4000, 271)):
        left = iter(range(looks))
        monkeypatch.setattr(LastGuard, "is_over", lambda _, left=left: next(left, None) is None)
        result = eqsat.optimize(small(), "dnnl")
        np.testing.assert_allclose(result.run(VALUES)["out"], expected(), rtol=1e-5)
        reasons.append(result.stop_reason)
        saturation = result.summary.saturation
        assert saturation is not None
        # If only the extraction is cut, its best program is the result.
        assert (saturation.stop_reason == "time limit") == bool(result.summary.notes)
    assert reasons[0] == "time limit" and reasons[-1] == "optimal"


def test_a_model_that_is_to_be_quantized_is_not_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = model(TEXT.replace("y)", "x)"), "float[1,4] x", "float[1,4] out")
    monkeypatch.setattr(search, "_saturated", lambda *_: (_ for _ in ()).throw(search.TimeUp))
    with pytest.raises(OptimizationError, match=r"the time limit of 30 s was reached too early"):
        search.Search.of(graph, approximations=[Approximation("x", np.array(1, np.float32), np.array(0, np.int8))])


def test_the_command_line_says_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(search, "MOST_PLACED", 5)
    eqsat.save(small(), tmp_path / "in.onnx")
    assert main(["optimize", str(tmp_path / "in.onnx"), "-o", str(tmp_path / "out.onnx")]) == 0
    assert (tmp_path / "out.onnx").exists()
    said = capsys.readouterr().out
    assert "the model is left unchanged: it has 6 operators" in said
    assert "nothing was rewritten" in said


def test_e_nodes_are_bounded_however_large_the_model_is() -> None:
    assert Limits().for_model(100).nodes == 20 * 100 + 5_000
    assert Limits().for_model(1_000_000).nodes == 1_000_000 + MOST_ENODES
    assert Limits(nodes=7).for_model(1_000_000).nodes == 7


def test_a_fixed_point_is_reached_some_rounds_at_a_time() -> None:
    engine = Engine()
    length = 3 * ROUNDS + 7
    engine.run_text(["(relation n (i64))", "(ruleset r)", f"(rule ((n k) (< k {length})) ((n (+ k 1))) :ruleset r)"])
    engine.set_facts([("n", (0,), None)])
    looks = 0

    class Counting(LastGuard):
        def is_over(self) -> bool:
            nonlocal looks
            looks += 1
            return False

    engine.guard = Counting()
    assert engine.step("r", saturate=True)
    assert len(engine.tables()["n"].rows) == length + 1
    assert looks >= 4
    assert not engine.step("r", saturate=True)


@pytest.mark.slow
def test_a_long_chain_is_searched_without_recursion_and_in_few_steps() -> None:
    length = 3000
    lines = [f"t{i} = {'Relu' if i % 2 else 'Tanh'} ({f't{i - 1}' if i else 'x'})" for i in range(length)]
    result = eqsat.optimize(model("\n".join(lines) + f"\nout = Identity(t{length - 1})", "float[4] x"), time_limit=600)
    assert result.stop_reason == "optimal"
    x = np.linspace(-1, 1, 4, dtype=np.float32)
    want = x
    for i in range(length):
        want = np.maximum(want, 0) if i % 2 else np.tanh(want)
    np.testing.assert_allclose(result.run({"x": x})["out"], want, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_a_long_chain_of_large_constants_is_folded_without_recursion() -> None:
    length = 2000
    lines = [
        "s = Constant <value = int64[1] {5000}> ()",
        "t0 = ConstantOfShape <value = float[1] {2}> (s)",
        *(f"t{i + 1} = {'Neg' if i % 2 else 'Abs'} (t{i})" for i in range(length)),
        f"out = Add(x, t{length})",
    ]
    result = eqsat.optimize(
        model("\n".join(lines), "float[5000] x", "float[5000] out"), default_rules=False, time_limit=600
    )
    assert [node.op_type for node in result.model.graph] == ["Add"]
    x = np.arange(5000, dtype=np.float32)
    np.testing.assert_array_equal(result.run({"x": x})["out"], x - 2)


def test_a_model_of_a_million_operators_is_refused_before_it_is_walked() -> None:
    graph = onnx.GraphProto(name="g")
    graph.input.append(onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [4]))
    graph.output.append(onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [4]))
    node = onnx.helper.make_node("Relu", ["x"], ["y"])
    graph.node.extend([node] * 1_000_000)
    with pytest.raises(LimitError, match="at most 500,000 operators are required; got 1,000,000"):
        eqsat.optimize(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)]))
