"""The origins of a result: in memory, in saved models, through composites, bodies and roundings."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

import eqsat
from eqsat import op
from eqsat.api import load
from eqsat.cli import main
from eqsat.errors import ModelError
from eqsat.explain.origin import ORIGINS, DerivationStep, FoldedConstant, Origin, Origins, find, pack, unpack
from eqsat.explain.saved_origins import read_origins

STEP = DerivationStep("r", "a.rules:1", "exact", "Relu(Relu(x))", "Relu(x)")


def weights(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0.5, 1.5, shape).astype(np.float32)


def network():
    x = eqsat.input("x", (1, 64, 56, 56))
    return eqsat.graph(op.Relu(op.Conv(x, weights(64, 64, 3, 3), pads=[1, 1, 1, 1]) * weights(64, 1, 1)))


def test_packed_origins_are_read_back() -> None:
    origins = Origins(
        [
            Origin("a", "Relu", ("a",)),
            Origin("b \ud800\n", "t.k", ("a", "b"), (STEP, STEP), (FoldedConstant("c", ("d", "e")),)),
            Origin("a", "Relu", ("a",), body="body of `loop`"),
        ],
        {"/layer/Relu": "a"},
    )
    assert list(origins) == ["a", "b \ud800\n", "a in the body of `loop`"]
    read = unpack(pack(origins, 1 << 20))
    assert read == origins and read.nodes == origins.nodes


def test_terms_are_left_out_where_they_are_too_long() -> None:
    (origin,) = unpack(pack(Origins([Origin("a", "Relu", ("b",), (STEP,))]), 10)).values()
    assert origin.steps == (DerivationStep("r", "a.rules:1", "exact", "", ""),)


@pytest.mark.parametrize("text", ("", "abc", "§", pack(Origins(), 99)[:-4]))
def test_damaged_metadata_are_an_error(text: str) -> None:
    with pytest.raises(ModelError, match=r"metadata `eqsat\.origins` as eqsat writes them are required"):
        unpack(text)


def test_a_composite_of_folded_weights() -> None:
    result = eqsat.optimize(network(), ["dnnl"])
    origin = result.explain("output")
    assert origin.op == "dnnl.conv_eltwise"
    assert set(origin.sources) == {"conv", "mul", "output"}
    assert [s.rule for s in origin.steps] == ["fold_scale_into_conv", "dnnl.conv_eltwise"]
    assert [s.numerics for s in origin.steps] == ["real", ""]
    assert all(s.place.startswith("rules/") for s in origin.steps)
    assert [set(c.sources) for c in origin.constants] == [{"constant", "constant_1"}]


@pytest.mark.parametrize("flat", (False, True))
def test_saved_models_keep_them(flat: bool, tmp_path: Path) -> None:
    result = eqsat.optimize(network(), ["dnnl"])
    result.save(tmp_path / "out.onnx", flat=flat)
    assert read_origins(load(tmp_path / "out.onnx")) == result.origins


def test_every_operator_of_the_input_is_accounted_for() -> None:
    """Also those whose results another node computes: nothing disappears without a rule."""
    x = eqsat.input("x", (2, 3, 4))
    y = op.Transpose(op.Transpose(x, perm=[0, 2, 1]), perm=[0, 2, 1])
    y = op.Relu(op.Relu(op.Sigmoid(y) + np.float32(0))) * np.float32(1)
    result = eqsat.optimize(eqsat.graph(y))
    sources = {s for origin in result.origins.values() for s in origin.sources}
    assert {"relu", "relu_1", "output", "sigmoid", "add"} <= sources
    for origin in result.origins.values():
        assert origin.sources
        assert origin.steps or origin.sources == (origin.name,)


def test_several_outputs() -> None:
    x = eqsat.input("x", (2, 6))
    a, b = op.Split(x, axis=1, num_outputs=2)
    result = eqsat.optimize(eqsat.graph(op.Concat(op.Relu(op.Relu(a)), op.Sigmoid(b), axis=1)))
    split = next(origin for origin in result.origins.values() if origin.op == "Split")
    assert len(split.sources) == 1
    relu = next(origin for origin in result.origins.values() if origin.op == "Relu")
    assert [s.rule for s in relu.steps] == ["relu_twice"]
    assert len(relu.sources) == 2


def test_bodies() -> None:
    text = """
    <ir_version: 10, opset_import: ["": 21]>
    g (bool c, float[4] x) => (float[4] y) {
      y = If (c) <then_branch = t () => (float[4] a) { r = Relu (x) a = Relu (r) },
                  else_branch = e () => (float[4] b) { b = Sigmoid (x) }>
    }"""
    result = eqsat.optimize(onnx.parser.parse_model(text))
    inside = [origin for origin in result.origins.values() if origin.body]
    assert {s for origin in inside for s in origin.sources} == {"r", "a", "b"}
    made = next(origin for origin in inside if origin.op == "Relu")
    assert [s.rule for s in made.steps] == ["relu_twice"]
    assert "branch" in made.body


def test_names_that_are_unknown() -> None:
    result = eqsat.optimize(network(), ["dnnl"])
    with pytest.raises(ModelError, match=r"did you mean `output`"):
        result.explain("outputt")
    with pytest.raises(ModelError, match="it is part of output"):
        result.explain("conv")
    assert find(result.origins, "conv") == (result.origins["output"],)


def test_another_optimization_explains_itself(tmp_path: Path) -> None:
    first = eqsat.optimize(network(), ["dnnl"])
    first.save(tmp_path / "first.onnx")
    again = eqsat.optimize(tmp_path / "first.onnx", ["dnnl"])
    rules = [s.rule for origin in again.origins.values() for s in origin.steps]
    assert "dnnl.conv_eltwise" in rules
    assert "fold_scale_into_conv" not in rules
    assert again.model.metadata_props[ORIGINS] != first.model.metadata_props[ORIGINS]


def test_the_command(tmp_path: Path, capsys) -> None:
    path = tmp_path / "out.onnx"
    eqsat.optimize(network(), ["dnnl"]).save(path)
    assert main(["explain", str(path), "conv", "--json"]) == 0
    (origin,) = json.loads(capsys.readouterr().out)
    assert origin["name"] == "output"
    assert [s["rule"] for s in origin["steps"]] == ["fold_scale_into_conv", "dnnl.conv_eltwise"]
    assert main(["explain", str(path)]) == 0
    assert "1. fold_scale_into_conv (real, rules/fusion.rules:" in capsys.readouterr().out
    assert main(["explain", str(path), "nothing"]) == 1
    assert "the name of a node of the result" in capsys.readouterr().err
    assert main(["explain", str(path), "conv", "--all"]) == 2


def test_the_command_on_a_model_of_others(tmp_path: Path, capsys) -> None:
    onnx.save(onnx.parser.parse_model('<ir_version: 10, opset_import: ["": 21]> g (float[4] x) => (float[4] y) '
                                      "{ y = Relu (x) }"), tmp_path / "m.onnx")  # fmt: skip
    assert main(["explain", str(tmp_path / "m.onnx")]) == 1
    assert "a model that eqsat optimized is required" in capsys.readouterr().err


def test_attributes_that_tell_the_operators_of_a_step_apart() -> None:
    text = """<ir_version: 9, opset_import: ["": 18]> g (float[2, 3, 4] x) => (float[3, 2, 4] y) {
        t = Transpose<perm = [1, 2, 0]>(x) u = Transpose<perm = [0, 2, 1]>(t) c = Cast<to = 11>(u) y = Cast<to = 1>(c)
    }"""
    steps = {step.rule: step for step in eqsat.optimize(text).explain("y").steps}
    twice = steps["transpose_twice"]
    assert twice.before == "Transpose(Transpose(x, perm=[1, 2, 0]), perm=[0, 2, 1])"
    assert twice.after == "Transpose(x, perm=[1, 0, 2])"
    assert steps["cast_of_wider"].before == "Cast(Cast(u, to=float64), to=float32)"
