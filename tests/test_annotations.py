"""Annotations: identities in value, barriers for composites, kept in every file.

Whether something reaches across an annotation is tested by its value: after optimizing, its definition is exchanged for
one that computes something, in the model and in the result. Both still agree exactly if every annotation is still
between what it was between, whatever the rules did on either side.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

import eqsat
from eqsat import op
from eqsat.errors import ModelError
from eqsat.execute.executor import Executor
from eqsat.execute.inputs import complete_inputs
from eqsat.model.expression import Tensor
from eqsat.model.load import load
from eqsat.model.write.written_definitions import with_definitions
from eqsat.ops.own_operators import ANNOTATIONS
from eqsat.partition.place import places_annotations
from eqsat.rules.ast import Alternatives, Match, Pattern, Rule
from eqsat.rules.reader import read_text
from eqsat.rules.selection import select_rules
from eqsat.search import Search
from eqsat.targets.find_targets import list_targets, load_targets
from tests.fuzz.check import compare, ort_outputs
from tests.fuzz.generator import generate
from tests.fuzz.worlds import values_of

SHAPE = (1, 8, 6, 6)


# ---- what they are -----------------------------------------------------------------------------------


def both(x: Tensor, dtype: str = "int8") -> Tensor:
    return op.StopFusion(op.CastHint(x, dtype=dtype))


def test_they_are_functions_with_identities_as_bodies(tmp_path: Path) -> None:
    x = eqsat.input("x", (2, 3))
    model = eqsat.graph(both(op.Exp(both(x, "uint8"))))
    eqsat.save(model, tmp_path / "m.onnx")
    proto = onnx.load(tmp_path / "m.onnx")
    onnx.checker.check_model(proto, full_check=True)
    assert [[n.op_type for n in f.node] for f in proto.functions] == [["Identity"]] * 3
    a = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
    (found,) = ort_outputs(proto.SerializeToString(), {"x": a}).values()
    np.testing.assert_allclose(found, np.exp(a), rtol=1e-6)
    loaded = load(tmp_path / "m.onnx")
    assert not loaded.functions
    assert [str(n.op_type) for n in loaded.graph] == [n.op_type for n in model.graph]
    assert [n.attributes["dtype"].as_int() for n in loaded.graph if n.op_type == "CastHint"] == [2, 3]


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int8", "int64", "bool"])
def test_any_type(dtype: str) -> None:
    x = eqsat.input("x", (2, 3), dtype)
    result = eqsat.optimize(eqsat.graph(both(op.Reshape(both(x), [6]))))
    a = np.random.default_rng(0).integers(0, 2, (2, 3)).astype(dtype)
    (found,) = result.run({"x": a}).values()
    np.testing.assert_array_equal(found, a.reshape(6))


def test_as_text() -> None:
    text = """<ir_version: 10, opset_import: ["": 21, "eqsat": 1]>
    g (float[4] x) => (float[4] y) { h = eqsat.CastHint<dtype=2>(x) s = eqsat.StopFusion(h) y = Relu(s) }"""
    model = load(text)
    assert [n.op_type for n in model.graph] == ["CastHint", "StopFusion", "Relu"]
    (y,) = Executor(model).run({"x": np.arange(-2, 2, dtype=np.float32)}).values()
    np.testing.assert_array_equal(y, [0, 0, 0, 1])


def test_wrong_uses() -> None:
    x = eqsat.input("x", (4,))
    with pytest.raises(ModelError, match=r"did you mean `dtype`"):
        op.CastHint(x, dtyp="int8")
    with pytest.raises(ModelError, match=r"did you mean `int8`"):
        op.CastHint(x, dtype="int9")
    with pytest.raises(ModelError, match="the inputs x are required"):
        op.StopFusion()
    with pytest.raises(ModelError, match=r"an attribute of eqsat\.StopFusion"):
        op.StopFusion(x, dtype="int8")


@pytest.mark.parametrize("target", ["", *list_targets()])
def test_they_cost_nothing_anywhere(target: str) -> None:
    x, y = eqsat.input("x", (256, 256)), eqsat.input("y", (256, 256))

    def model(mark) -> ir.Model:
        return eqsat.graph(op.Relu(mark(mark(x + y) * y)) + x)

    annotated = eqsat.optimize(model(lambda t: op.CastHint(t)), targets=target or (), default_rules=False)
    plain = eqsat.optimize(model(lambda t: t), targets=target or (), default_rules=False)
    assert annotated.baseline_cost == pytest.approx(plain.baseline_cost)
    assert annotated.summary.before.operators == plain.summary.before.operators
    assert annotated.summary.after.operators >= plain.summary.after.operators - 1
    assert not [row for row in annotated.summary.host_operators if row.op.startswith("eqsat.")]


def test_a_stop_separates_what_a_composite_would_take() -> None:
    x, y = eqsat.input("x", (64, 64)), eqsat.input("y", (64, 64))

    def kernels(inside) -> list[str]:
        model = eqsat.graph(inside(x + y) * (x - y))
        result = eqsat.optimize(model, targets="ccompiler")
        assert eqsat.compare(model, result.model, numerics="exact").agrees
        return [k for r in result.regions for k in r.nodes if not k.startswith("eqsat.")]

    assert kernels(lambda t: t) == ["ccompiler.add_subtract_multiply"]
    for annotation in (op.StopFusion, op.CastHint):
        assert sorted(kernels(annotation)) == ["Add", "Mul", "Sub"]


def test_in_c() -> None:
    x, y = eqsat.input("x", (5, 7)), eqsat.input("y", (5, 7))
    model = eqsat.graph({"a": both(op.Exp(both((x + y) * (x - y)))), "b": op.StopFusion(x)})
    annotate = {"ccompiler.add_subtract_multiply": lambda call, *operands: both(call(*operands))}
    result = eqsat.optimize(model, targets="ccompiler", partition_functions=annotate)
    rng = np.random.default_rng(0)
    arrays = {name: rng.standard_normal((5, 7)).astype(np.float32) for name in ("x", "y")}
    expected = ort_outputs(ir.to_proto(result.model).SerializeToString(), arrays)
    for name, array in result.run(arrays, backend="c").items():
        np.testing.assert_allclose(array, expected[name], rtol=2e-6)


# ---- files -------------------------------------------------------------------------------------------


def test_a_foreign_function_of_the_name_is_not_taken_for_ours() -> None:
    text = """<ir_version: 10, opset_import: ["": 26, "eqsat": 1]>
    g (float[4] x) => (float[4] y) { h = eqsat.CastHint_1<dtype=2>(x) y = Relu(h) }
    <domain: "eqsat", opset_import: ["": 26]> CastHint_1 <dtype> (x) => (y) { y = Neg(x) }"""
    model = load(text)
    assert [n.op_type for n in model.graph] == ["CastHint_1", "Relu"] and len(model.functions) == 1
    (y,) = Executor(model).run({"x": np.array([-1, 2, -3, 4], np.float32)}).values()
    np.testing.assert_array_equal(y, [1, 0, 3, 0])


def test_definitions_of_an_older_opset_are_recognized() -> None:
    text = """<ir_version: 8, opset_import: ["": 17, "eqsat": 1]>
    g (float[4] x) => (float[4] y) { h = eqsat.StopFusion(x) y = Relu(h) }
    <domain: "eqsat", opset_import: ["": 17]> StopFusion (x) => (y) { y = Identity(x) }"""
    model = load(text)
    assert [n.op_type for n in model.graph] == ["StopFusion", "Relu"] and not model.functions


def test_definitions_of_other_operators_of_ours_are_recognized(tmp_path: Path) -> None:
    x = eqsat.input("x", (2, 3), "int32")
    one, zero = np.float32(0.5), np.int32(0)
    parts = [op.Requantize(x, one, zero, np.float32(s), zero, axis=1, dtype=t) for s, t in ((1, "int8"), (2, "uint8"))]
    model = eqsat.graph({"a": parts[0], "b": parts[1]})
    eqsat.save(model, tmp_path / "m.onnx")
    loaded = load(tmp_path / "m.onnx")
    assert [n.op_type for n in loaded.graph] == ["Requantize", "Requantize"] and not loaded.functions
    feed = {"x": np.array([[-500, -3, 0], [1, 2, 900]], np.int32)}
    expected = ort_outputs((tmp_path / "m.onnx").read_bytes(), feed)
    for name, array in Executor(loaded).run(feed).items():
        np.testing.assert_array_equal(array, expected[name])


def test_optimizing_a_partitioned_file_again(tmp_path: Path) -> None:
    x, y = eqsat.input("x", (64, 64)), eqsat.input("y", (64, 64))
    model = eqsat.graph(op.Exp(both((x + y) * (x - y))) - both(x, "uint8"))
    first = eqsat.optimize(model, targets="ccompiler")
    first.save(tmp_path / "a.onnx")
    second = eqsat.optimize(tmp_path / "a.onnx", targets="ccompiler")
    assert second.cost == pytest.approx(first.cost)
    assert [(r.target, r.nodes) for r in second.regions] == [(r.target, r.nodes) for r in first.regions]
    hints = {n.attributes["dtype"].as_int() for n in _everything(second.model) if n.op_type.startswith("CastHint")}
    assert hints == {int(ir.DataType.INT8), int(ir.DataType.UINT8)}
    assert eqsat.compare(model, second.model, numerics="exact").agrees
    # For another target, too.
    other = eqsat.optimize(tmp_path / "a.onnx", targets="dnnl")
    assert eqsat.compare(model, other.model).agrees
    assert sum(n.op_type.startswith("StopFusion") for n in _everything(other.model)) == 2


def _everything(model: ir.Model) -> list[ir.Node]:
    own = (f for f in model.functions.values() if f.domain != "eqsat")
    return [*model.graph, *(n for f in own for n in f)]


# ---- barriers ----------------------------------------------------------------------------------------


def test_no_shipped_rule_places_or_drops_an_annotation() -> None:
    for rule in select_rules((), "approximate", default_rules=True).rules:
        assert not places_annotations(rule)
        if any(map(_mentions, rule.left)):
            assert rule.name in ("quantize_of_annotated", "annotated_dequantize"), rule.name
    for target in (load_targets(name)[-1] for name in list_targets()):
        assert not [c.name for c in target.composites if _mentions(c.patterns[0])]


def _mentions(pattern: Pattern | None) -> bool:
    if isinstance(pattern, Alternatives):
        return any(map(_mentions, pattern.options))
    return isinstance(pattern, Match) and (
        any(o in ANNOTATIONS for o in pattern.ops) or any(map(_mentions, pattern.args))
    )


def weights(seed: int, *shape: int) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) / 8).astype(np.float32)


def _conv(x: Tensor, seed: int) -> Tensor:
    return op.Conv(x, weights(seed, 8, 8, 3, 3), weights(seed, 8), pads=[1, 1, 1, 1])


def _normalized(x: Tensor, seed: int) -> Tensor:
    one = np.ones(8, np.float32)
    return op.BatchNormalization(x, weights(seed, 8) + 1, weights(seed + 1, 8), weights(seed + 2, 8), one)


ADVERSARIES = {
    "normalization": lambda x, stop: _normalized(stop(_conv(x, 1)), 2),
    "activation": lambda x, stop: op.Relu(stop(_conv(x, 1))),
    "residual": lambda x, stop: op.Relu(stop(stop(_conv(x, 1)) + x)),
    "factors": lambda x, stop: stop(x * np.float32(2)) * np.float32(3) * np.float32(0.5),
    "sums": lambda x, stop: np.float32(1) + stop(x + np.float32(2)) - np.float32(3),
    "double": lambda x, stop: stop(x) + stop(x),
    "twice": lambda x, stop: stop(stop(x) + x) + stop(x),
    "inverse": lambda x, stop: op.Neg(stop(op.Neg(x))),
    "transposes": lambda x, stop: op.Transpose(stop(op.Transpose(x, perm=[0, 2, 3, 1])), perm=[0, 3, 1, 2]),
    "reshapes": lambda x, stop: op.Reshape(stop(op.Reshape(x, [8, 36])), list(SHAPE)),
    "identities": lambda x, stop: op.Identity(stop(op.Identity(x))) * np.float32(1) + np.float32(0),
    "commuted": lambda x, stop: (op.Exp(x) + stop(op.Tanh(x))) * (stop(op.Tanh(x)) - op.Exp(x)),
    "squares": lambda x, stop: stop(x + op.Tanh(x)) * (x - op.Tanh(x)),
    "logarithm": lambda x, stop: op.Log(stop(op.Exp(x))),
    "sigmoid": lambda x, stop: x * op.Sigmoid(stop(x)),
    "clips": lambda x, stop: op.Clip(stop(op.Relu(x)), np.float32(0), np.float32(6)),
    "hard swish": lambda x, stop: x * stop(op.Clip(x + np.float32(3), np.float32(0), np.float32(6)) / np.float32(6)),
    "padding": lambda x, stop: op.Conv(stop(op.Pad(x, [0, 0, 1, 1, 0, 0, 1, 1])), weights(1, 8, 8, 3, 3)),
    "matrices": lambda x, stop: op.Relu(stop(op.MatMul(stop(x), weights(1, 6, 6))) + weights(2, 6)),
    "pool": lambda x, stop: stop(op.ReduceMean(x, np.array([2, 3]), keepdims=1)) * x,
}


def exchanged(model: ir.Model | bytes) -> bytes:
    """The model with definitions of its annotations that compute something: the arc tangent, and x / (1 + |x|).

    Neither commutes with arithmetic. Both leave zero as it is: a value that rules find to be zero is a constant, and
    what is said of a constant goes with it.
    """
    proto = onnx.load_from_string(model) if isinstance(model, bytes) else ir.to_proto(with_definitions(model))
    for function in proto.functions:
        if function.domain == "eqsat" and function.name.startswith(("CastHint", "StopFusion")):
            kind = "Atan" if function.name.startswith("CastHint") else "Softsign"
            node = helper.make_node(kind, list(function.input), list(function.output))
            del function.node[:]
            function.node.append(node)
    return proto.SerializeToString()


def assert_nothing_crosses(model: ir.Model, result: eqsat.Result, place: str) -> None:
    arrays = {"x": np.abs(np.random.default_rng(3).standard_normal(SHAPE)).astype(np.float32)}
    (expected,) = ort_outputs(exchanged(model), arrays).values()
    (plain,) = ort_outputs(ir.to_proto(with_definitions(model)).SerializeToString(), arrays).values()
    assert not np.allclose(expected, plain), "the exchange shows"
    (found,) = ort_outputs(exchanged(ir.to_proto(result.model).SerializeToString()), arrays).values()
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5, err_msg=place)


@pytest.mark.parametrize("name", ADVERSARIES)
@pytest.mark.parametrize("annotation", ["StopFusion", "CastHint"])
def test_nothing_reaches_across(name: str, annotation: str) -> None:
    x = eqsat.input("x", SHAPE)
    model = eqsat.graph(ADVERSARIES[name](x, getattr(op, annotation)))
    search = Search.of(model, ["dnnl", "ccompiler"], iterations=8)
    assert_nothing_crosses(model, search.extract("best"), "best")
    assert_nothing_crosses(model, search.extract("worst"), "worst")
    for seed in range(4):
        assert_nothing_crosses(model, search.extract("random", seed), f"random {seed}")


def test_an_adversary_that_drops_it_is_seen() -> None:
    """The test above can fail: a rule that says what an annotation is lets everything through."""
    (drop,) = read_text("rule drop : exact\n    StopFusion(x)  =>  x").rules
    assert isinstance(drop, Rule)
    x = eqsat.input("x", SHAPE)
    model = eqsat.graph(ADVERSARIES["activation"](x, op.StopFusion))
    result = eqsat.optimize(model, targets="dnnl", rules=[drop], default_rules=False)
    with pytest.raises(AssertionError):
        assert_nothing_crosses(model, result, "dropped")
    assert eqsat.compare(model, result.model).agrees


def test_rules_rewrite_on_either_side() -> None:
    x = eqsat.input("x", SHAPE)
    model = eqsat.graph(op.Relu(op.Relu(both(_normalized(_conv(x, 1), 2)))) * np.float32(1))
    result = eqsat.optimize(model)
    kernels = [k for r in result.regions for k in r.nodes if not k.startswith("eqsat.")]
    assert kernels == ["Conv", "Relu"], "the normalization in the weights, one activation, nothing that does nothing"
    assert_nothing_crosses(model, result, "best")


def annotated_at_random(model: onnx.ModelProto, seed: int) -> onnx.ModelProto:
    """A model with annotations after some of the float values that its inputs change.

    What is zero whatever the inputs are makes constants of what is computed from it, and annotations go with those.
    """
    rng = np.random.default_rng([7, seed])
    loaded = load(model)
    first, second = (values_of(model, complete_inputs(loaded, seed=s)) for s in (seed, seed + 1))
    copy = onnx.ModelProto.FromString(model.SerializeToString())
    copy.opset_import.add(domain="eqsat", version=1)
    inferred = onnx.shape_inference.infer_shapes(model).graph
    known = (*inferred.input, *inferred.value_info, *inferred.output)
    floats = {v.name for v in known if v.type.tensor_type.elem_type == onnx.TensorProto.FLOAT}
    depends = {n for n, value in first.items() if n in second and not np.array_equal(value, second[n])}
    outputs = {v.name for v in model.graph.output}
    nodes: list[onnx.NodeProto] = []
    renamed: dict[str, str] = {}
    for node in copy.graph.node:
        for i, name in enumerate(node.input):
            node.input[i] = renamed.get(name, name)
        nodes.append(node)
        for name in node.output:
            if name in floats and name in depends and name not in outputs and rng.random() < 0.3:
                kind = "CastHint" if rng.random() < 0.5 else "StopFusion"
                renamed[name] = f"{name}_annotated"
                nodes.append(helper.make_node(kind, [name], [renamed[name]], domain="eqsat"))
    del copy.graph.node[:]
    copy.graph.node.extend(nodes)
    return copy


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, 30, 5))
def test_nothing_reaches_across_in_random_graphs(start: int) -> None:
    compared = 0
    for seed in range(start, start + 5):
        graph = generate(seed)
        if any("Linear" in node.op_type for node in graph.graph.node):
            continue  # Where there are integers, annotations lie between those.
        model = load(annotated_at_random(graph, seed))
        arrays = complete_inputs(model, seed=seed)
        expected = ort_outputs(exchanged(model), arrays)
        if not all(np.isfinite(a).all() for a in expected.values() if a.dtype.kind == "f"):
            continue
        compared += 1
        search = Search.of(model, [(), ("dnnl",), ("ccompiler",)][seed % 3], time_limit=20.0, iterations=6)
        programs = {"best": search.extract("best"), "worst": search.extract("worst")}
        for name, result in (programs | {"random": search.extract("random", seed)}).items():
            found = ort_outputs(exchanged(ir.to_proto(result.model).SerializeToString()), arrays)
            compare(f"seed {seed}, {name}", expected, found)
    assert compared
