"""Bodies that read values whose rank is unknown, as exporters write ``squeeze``: optimized, verified, priced, run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import eqsat
from tests.model.running import run_ort

F = TensorProto.FLOAT
_node = helper.make_node
_value = helper.make_tensor_value_info


def _squeezed() -> list[onnx.NodeProto]:
    """``y``: ``x`` without its second axis where that is one, of unknown rank."""
    then = helper.make_graph([_node("Squeeze", ["x", "axis"], ["t"])], "then", [], [_value("t", F, None)])
    other = helper.make_graph([_node("Identity", ["x"], ["e"])], "else", [], [_value("e", F, None)])
    return [
        _node("Shape", ["x"], ["shape"]),
        _node("Gather", ["shape", "at"], ["size"]),
        _node("Equal", ["size", "at"], ["is_one"]),
        _node("If", ["is_one"], ["y"], then_branch=then, else_branch=other),
    ]


def _branch(name: str, nodes: list[onnx.NodeProto]) -> onnx.GraphProto:
    return helper.make_graph(nodes, name, [], [_value(nodes[-1].output[0], F, None)])


def _of_branches(then: list[onnx.NodeProto], other: list[onnx.NodeProto], result: str = "z") -> list[onnx.NodeProto]:
    return [_node("If", ["c"], [result], then_branch=_branch("a", then), else_branch=_branch("b", other))]


_LOOP = helper.make_graph(
    [
        _node("Identity", ["go"], ["goes"]),
        _node("Neg", ["s"], ["n"]),
        _node("Neg", ["n"], ["m"]),
        _node("Tanh", ["y"], ["q"]),
        _node("Mul", ["m", "one"], ["p"]),
        _node("Add", ["p", "q"], ["next"]),
    ],
    "body",
    [_value("i", TensorProto.INT64, []), _value("go", TensorProto.BOOL, []), _value("s", F, None)],
    [_value("goes", TensorProto.BOOL, []), _value("next", F, None)],
)
MODELS = {
    "elements": _of_branches(
        [_node("Mul", ["y", "one"], ["p"]), _node("Neg", ["p"], ["q"]), _node("Neg", ["q"], ["r"])],
        [_node("Sigmoid", ["y"], ["v"]), _node("Mul", ["y", "v"], ["w"])],
    ),
    "shapes": _of_branches(
        [_node("Transpose", ["y"], ["u"]), _node("Transpose", ["u"], ["p"])],
        [_node("Shape", ["y"], ["v"]), _node("Relu", ["y"], ["r"]), _node("Reshape", ["r", "v"], ["w"])],
    ),
    "sums": _of_branches(
        [_node("ReduceMean", ["y"], ["m"], keepdims=0)],
        [_node("Softmax", ["y"], ["e"], axis=-1), _node("ReduceSum", ["e", "last"], ["w"])],
    ),
    "products": _of_branches(
        [_node("MatMul", ["y", "weights"], ["m"]), _node("Add", ["m", "bias"], ["p"])],
        [_node("Concat", ["y", "y"], ["e"], axis=0), _node("Exp", ["e"], ["w"])],
    ),
    "nested": _of_branches(
        [*_of_branches([_node("Neg", ["y"], ["k"])], [_node("Abs", ["y"], ["l"])], "i"), _node("Exp", ["i"], ["m"])],
        [_node("Exp", ["y"], ["w"])],
    ),
    "both": _of_branches(
        [
            _node("Neg", ["x"], ["k"]),
            _node("Neg", ["k"], ["l"]),
            _node("Exp", ["l"], ["e"]),
            _node("Add", ["e", "y"], ["m"]),
        ],
        [_node("Exp", ["y"], ["w"])],
    ),
    "loop": [_node("Loop", ["rounds", "", "y"], ["z"], body=_LOOP)],
}


def _model(name: str) -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    weights = [
        helper.make_tensor("axis", TensorProto.INT64, [1], [1]),
        helper.make_tensor("at", TensorProto.INT64, [], [1]),
        helper.make_tensor("last", TensorProto.INT64, [1], [-1]),
        helper.make_tensor("one", F, [], [1.0]),
        onnx.numpy_helper.from_array(rng.standard_normal((3, 5)).astype(np.float32), "weights"),
        onnx.numpy_helper.from_array(rng.standard_normal(5).astype(np.float32), "bias"),
    ]
    inputs = [
        _value("x", F, ["a", "b", 3]),
        _value("c", TensorProto.BOOL, []),
        _value("rounds", TensorProto.INT64, []),
    ]
    graph = helper.make_graph([*_squeezed(), *MODELS[name]], name, inputs, [_value("z", F, None)], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


FEEDS = [
    {
        "x": np.random.default_rng(size).standard_normal((2, size, 3)).astype(np.float32) ** 2,
        "c": np.array(c),
        "rounds": np.array(rounds),
    }
    for size, c, rounds in ((1, True, 2), (1, False, 0), (4, True, 1), (4, False, 3))
]


def _agree(found: list[np.ndarray], wanted: list[np.ndarray]) -> None:
    for a, b in zip(found, wanted, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("targets", [(), ("dnnl",)], ids=str)
@pytest.mark.parametrize("name", list(MODELS))
def test_bodies_of_unknown_rank(name: str, targets: tuple[str, ...], flat: bool, tmp_path: Path) -> None:
    model = _model(name)
    result = eqsat.optimize(model, targets)
    assert not any("left unchanged" in note for note in result.summary.notes)
    seen = result.summary.verification
    assert seen is not None and seen.agrees is not False and not any("rank" in reason for reason in seen.skipped)
    assert result.cost <= result.baseline_cost * (1 + 1e-9)
    path = tmp_path / "m.onnx"
    result.save(path, flat=flat)
    saved = eqsat.load(path)
    for feed in FEEDS:
        wanted = run_ort(model, feed)
        _agree(run_ort(onnx.load(path), feed), wanted)
        _agree(list(result.run(feed).values()), wanted)
        _agree(list(eqsat.run(saved, feed).values()), wanted)


def test_what_has_a_rank_in_them_is_optimized() -> None:
    result = eqsat.optimize(_model("both"))
    operators = [node.op_type for node in result.model.graph.all_nodes()]
    assert "If" in operators and "Neg" not in operators and result.cost < result.baseline_cost


def _loop(hoists: bool) -> onnx.ModelProto:
    """A loop that carries a growing matrix, and with ``hoists`` computes something anew that no round changes."""
    text = """<ir_version: 8, opset_import: ["": 17]>
      g (float[a,64] x, float[1,64] k, int64 n) => (float[o,64] z) <float[64,64] w> { %s
        z = Loop<body = b (int64 i, bool go, float[?,64] v) => (bool goes, float[?,64] next) {
          goes = Identity(go) %s q = MatMul(v, w) next = Concat<axis=0>(q, t) }>(n, , x) }"""
    model = onnx.parser.parse_model(text % (("", "t = Tanh(k)") if hoists else ("t = Tanh(k)", "")))
    weights = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    del model.graph.value_info[:]
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    return model


@pytest.mark.parametrize("dims", [{}, {"a": 128}, {"a": (1, 512, 128)}], ids=str)
def test_free_sizes_of_bodies_cost_the_same_before_and_after(dims: dict[str, int | tuple[int, ...]]) -> None:
    """What no round changes is computed once; the rest of a round costs what it costs by itself."""
    changed, as_it_is = (eqsat.optimize(_loop(hoists), dims=dims) for hoists in (True, False))
    assert changed.cost == pytest.approx(as_it_is.cost)
    assert as_it_is.cost <= as_it_is.baseline_cost < changed.baseline_cost < 1.3 * as_it_is.baseline_cost


def test_a_body_that_cannot_be_searched_costs_the_same_before_and_after(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = eqsat.optimize(_loop(True), default_rules=False, verify=False)
    monkeypatch.setattr("eqsat.search.MOST_PLACED", 2)
    result = eqsat.optimize(_loop(True), verify=False)
    assert any("left unchanged" in note for note in result.summary.notes)
    assert result.baseline_cost == pytest.approx(usual.baseline_cost)
    assert result.cost == pytest.approx(usual.cost)
