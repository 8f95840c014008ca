"""Files without functions are read back with their placement, or not at all; what they say of it is never trusted."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper

import eqsat
from benchmarks import graphs
from benchmarks.models import light
from eqsat import op
from eqsat.cli import main
from eqsat.codegen.generate import generate
from eqsat.errors import Note
from eqsat.execute.inputs import complete_inputs
from eqsat.model.load import GivenModel, load
from eqsat.schema.metadata import FUNCTIONS
from eqsat.schema.packed import packed
from tests.fuzz.check import ort_outputs

CONVOLUTION = """<ir_version: 8, opset_import: ["": 17]>
g (float[1, 8, 32, 32] x, float[8, 8, 3, 3] w) => (float[1, 8, 32, 32] y)
    <float[8] b = {0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2}> {
    c = Conv <pads = [1, 1, 1, 1]> (x, w, b)
    r = Relu(c)
    a = Add(r, x)
    d = Conv <pads = [1, 1, 1, 1]> (a, w, b)
    e = Relu(d)
    f = Add(e, a)
    y = Sigmoid(f)
}"""
TWO_RESULTS = """
target kiwi
    peak float32 = 4e13
    bandwidth = 8e11, launch = 1e-9, dispatch = 1e-9
    link bandwidth = 4e13, latency = 1e-9
    region call "{name}({inputs}, {outputs})"
    supports MatMul
    composite add_norm : real
        s = x + y, d = LayerNormalization(s, scale, bias?, epsilon=e)
        where d.axis == x.rank - 1
        call "kiwi_add_norm({y}, {x}, {scale}, {bias}, {s.size}, {e}, {s}, {d})"
"""


def both(result: eqsat.Result, folder: Path, **options: Any) -> tuple[Path, Path]:
    """A result with functions and without."""
    result.save(folder / "functions.onnx", **options)
    result.save(folder / "flat.onnx", flat=True, **options)
    assert len(onnx.load(folder / "flat.onnx").functions) == 0
    return folder / "functions.onnx", folder / "flat.onnx"


def content(source: GivenModel, **options: Any) -> bytes:
    """A model as it is loaded, without a note."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", Note)
        return ir.to_proto(load(source, **options)).SerializeToString(deterministic=True)


def weights(*shape: int) -> np.ndarray:
    return np.random.default_rng([1, *shape]).standard_normal(shape).astype(np.float32)


def two_results(folder: Path) -> eqsat.Result:
    """A composite with two results, of which one is not read, and an operand that is absent; calls of whole regions."""
    (folder / "kiwi.target").write_text(TWO_RESULTS, "utf-8")
    x, y = eqsat.input("x", (3, 8)), eqsat.input("y", (3, 8))
    total = op.MatMul(x, weights(8, 8)) + y
    normed = op.MatMul(op.LayerNormalization(total, weights(1, 8)[0]), weights(8, 8))
    return eqsat.optimize(eqsat.graph(op.Exp(normed)), targets=[folder / "kiwi.target"])


def integers(folder: Path) -> eqsat.Result:
    """A model of integers, with operators that ONNX lacks inside of composites."""
    rng = np.random.default_rng(0)
    samples = [{"x": rng.standard_normal((1, 8, 128, 128)).astype(np.float32)} for _ in range(2)]
    model = onnx.parser.parse_model(CONVOLUTION.replace("32, 32", "128, 128"))
    model.graph.input.pop()
    model.graph.initializer.append(numpy_helper.from_array(weights(8, 8, 3, 3) / 8, "w"))
    return eqsat.quantize(model, samples, targets=["ethos_n"])


def branches(folder: Path) -> eqsat.Result:
    """Regions inside of bodies, which have weights of their own."""
    then = helper.make_graph(
        [helper.make_node("MatMul", ["c", "w1"], ["t"]), helper.make_node("Relu", ["t"], ["u"])],
        "then",
        [],
        [helper.make_tensor_value_info("u", 1, [64, 64])],
        [numpy_helper.from_array(weights(64, 64), "w1")],
    )
    other = helper.make_graph(
        [helper.make_node("Tanh", ["c"], ["v"])], "other", [], [helper.make_tensor_value_info("v", 1, [64, 64])]
    )
    nodes = [
        helper.make_node("MatMul", ["x", "x"], ["c"]),
        helper.make_node("If", ["q"], ["z"], then_branch=then, else_branch=other),
        helper.make_node("Relu", ["z"], ["y"]),
    ]
    ins = [helper.make_tensor_value_info("x", 1, [64, 64]), helper.make_tensor_value_info("q", 9, [1])]
    graph = helper.make_graph(nodes, "g", ins, [helper.make_tensor_value_info("y", 1, [64, 64])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (folder / "kiwi.target").write_text(TWO_RESULTS, "utf-8")
    return eqsat.optimize(model, targets=[folder / "kiwi.target"])


def chosen_for_c(folder: Path) -> eqsat.Result:
    """Kernels and layouts of generated C."""
    return eqsat.optimize(CONVOLUTION, host="c")


def declared(folder: Path) -> eqsat.Result:
    """Operators of a user, and of eqsat."""
    (folder / "own.rules").write_text("operator acme.Twice(x: floats) = x + x\n", "utf-8")
    text = """<ir_version: 10, opset_import: ["": 21, "acme": 1, "eqsat": 1]>
    g (float[4] x) => (float[4] y) { t = acme.Twice(x) h = eqsat.CastHint <dtype = 2> (t) y = Tanh(h) }"""
    return eqsat.optimize(text, targets=["dnnl"], declarations=[folder / "own.rules"])


RESULTS: dict[str, Callable[[Path], eqsat.Result]] = {
    "dnnl": lambda folder: eqsat.optimize(CONVOLUTION, targets=["dnnl"]),
    "two targets": lambda folder: eqsat.optimize(graphs.residual_chain(3), targets=["dnnl", "ethos_n"]),
    "example": lambda folder: eqsat.optimize(graphs.ccompiler_example(), targets=["ccompiler"]),
    "two results": two_results,
    "integers": integers,
    "branches": branches,
    "C": chosen_for_c,
    "declared": declared,
}


@pytest.mark.parametrize("name", RESULTS)
def test_it_is_read_like_the_file_with_functions(name: str, tmp_path: Path) -> None:
    result = RESULTS[name](tmp_path)
    assert result.model.functions or name in ("C", "declared")
    functions, flat = both(result, tmp_path)
    assert content(flat) == content(functions)
    # Also from memory.
    assert content(onnx.load(flat)) == content(ir.load(flat)) == content(functions)


@pytest.mark.parametrize("name", ["dnnl", "two results", "example"])
def test_it_becomes_the_same_c(name: str, tmp_path: Path) -> None:
    functions, flat = both(RESULTS[name](tmp_path), tmp_path)
    first, second = generate(load(functions)), generate(load(flat))
    assert second.source == first.source
    assert second.coverage == first.coverage


@pytest.mark.parametrize("options", [{"opset": 13}, {"external_data": True}])
def test_in_other_forms(options: dict[str, Any], tmp_path: Path) -> None:
    functions, flat = both(RESULTS["dnnl"](tmp_path), tmp_path, **options)
    found = load(flat)
    assert generate(found).source == generate(load(functions)).source
    assert any(function.domain == "eqsat.dnnl" for function in found.functions.values())


def test_a_network(tmp_path: Path) -> None:
    functions, flat = both(eqsat.optimize(light("squeezenet"), targets=["dnnl"], verify=False), tmp_path)
    assert content(flat) == content(functions)
    # The record takes a small part of what the names and marks of the nodes take.
    assert flat.stat().st_size - functions.stat().st_size < 30_000


# ---- what other tools do ----------------------------------------------------------------------------------------


def _rename(model: onnx.ModelProto) -> None:
    kept = {v.name for v in (*model.graph.input, *model.graph.output, *model.graph.initializer)} | {""}
    for node in model.graph.node:
        node.name = f"node/{node.name}"
        for names in (node.input, node.output):
            names[:] = [name if name in kept else f"tensor/{name}" for name in names]
    del model.graph.value_info[:]


def _reorder(model: onnx.ModelProto) -> None:
    """Puts constants last that were first, as far as that is still an order."""
    constants = [node for node in model.graph.node if node.op_type == "Constant"]
    others = [node for node in model.graph.node if node.op_type != "Constant"]
    nodes = [onnx.NodeProto.FromString(n.SerializeToString()) for n in (*reversed(constants), *others)]
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def _other_weights(model: onnx.ModelProto) -> None:
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        tensor.CopyFrom(numpy_helper.from_array((array * 2).astype(array.dtype), tensor.name))


def _infer(model: onnx.ModelProto) -> None:
    model.CopyFrom(onnx.shape_inference.infer_shapes(model))


@pytest.mark.parametrize("change", [_rename, _reorder, _other_weights, _infer])
def test_changes_that_keep_the_graph(change: Callable[[onnx.ModelProto], None], tmp_path: Path) -> None:
    _, flat = both(two_results(tmp_path), tmp_path)
    model = onnx.load(flat)
    change(model)
    onnx.checker.check_model(model)
    assert content(model)
    found = eqsat.load(model)
    assert {f.domain for f in found.functions.values()} == {"eqsat.kiwi", "eqsat.kiwi.composite"}
    arrays = complete_inputs(found, seed=1)
    ((name, want),) = ort_outputs(model.SerializeToString(), arrays).items()
    np.testing.assert_allclose(eqsat.run(found, arrays)[name], want, rtol=1e-4)


def _another_operator(model: onnx.ModelProto) -> None:
    next(node for node in model.graph.node if node.op_type == "Relu").op_type = "Tanh"


def _another_attribute(model: onnx.ModelProto) -> None:
    node = next(node for node in model.graph.node if node.op_type == "Conv")
    next(a for a in node.attribute if a.name == "pads").ints[:] = [0, 1, 2, 1]


def _another_operand(model: onnx.ModelProto) -> None:
    node = next(node for node in model.graph.node if node.op_type == "Sigmoid")
    node.input[0] = "a"


def _another_node(model: onnx.ModelProto) -> None:
    model.graph.node.append(helper.make_node("Relu", ["y"], ["more"]))
    model.graph.output.append(helper.make_tensor_value_info("more", 1, [1, 8, 32, 32]))


def _another_place(model: onnx.ModelProto) -> None:
    next(e for n in model.graph.node for e in n.metadata_props if e.key == "eqsat.region").value = "dnnl_7"


def _no_record(model: onnx.ModelProto) -> None:
    kept = [entry for entry in model.metadata_props if entry.key != FUNCTIONS]
    del model.metadata_props[:]
    model.metadata_props.extend(kept)


def _record(data: bytes) -> Callable[[onnx.ModelProto], None]:
    def change(model: onnx.ModelProto) -> None:
        next(entry for entry in model.metadata_props if entry.key == FUNCTIONS).value = packed(data)

    return change


def _text(model: onnx.ModelProto) -> None:
    next(entry for entry in model.metadata_props if entry.key == FUNCTIONS).value = "no record"


def _functions(*functions: onnx.FunctionProto) -> bytes:
    call = helper.make_node("f0", ["x"], ["y"], domain="eqsat.dnnl")
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("eqsat.dnnl", 1)]
    record = onnx.ModelProto(functions=functions, opset_import=imports)
    record.graph.node.append(call)
    return record.SerializeToString()


def _function(name: str, *nodes: onnx.NodeProto) -> onnx.FunctionProto:
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("eqsat.dnnl", 1)]
    return helper.make_function("eqsat.dnnl", name, ["a"], ["b"], nodes, imports)


def _call(name: str, read: str, made: str) -> onnx.NodeProto:
    return helper.make_node(name, [read], [made], domain="eqsat.dnnl")


CIRCLE = _functions(_function("f0", _call("f1", "a", "b")), _function("f1", _call("f0", "a", "b")))
MULTIPLYING = _functions(
    *(
        _function(
            f"f{i}", *(_call(f"f{i + 1}", "a" if k == 0 else f"t{k}", f"t{k + 1}" if k < 9 else "b") for k in range(10))
        )
        for i in range(40)
    ),
    _function("f40", helper.make_node("Relu", ["a"], ["b"])),
)


@pytest.mark.parametrize(
    "change",
    [
        _another_operator,
        _another_attribute,
        _another_operand,
        _another_node,
        _another_place,
        _no_record,
        _text,
        pytest.param(_record(b"\xff\xfe\x00"), id="bytes"),
        pytest.param(_record(b""), id="empty"),
        pytest.param(_record(CIRCLE), id="circle"),
        pytest.param(_record(MULTIPLYING), id="multiplying"),
        pytest.param(_record(bytes(1 << 28)), id="large"),
    ],
)
def test_other_changes_give_a_note_and_a_model_without_placement(
    change: Callable[[onnx.ModelProto], None], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    result = RESULTS["dnnl"](tmp_path)
    _, flat = both(result, tmp_path)
    model = onnx.load(flat)
    change(model)
    onnx.checker.check_model(model)
    with pytest.warns(Note, match="the regions and composites of this file are not used") as said:
        found = eqsat.load(model)
    assert len(said) == 1
    assert not found.functions
    assert not any(key.startswith("eqsat.") for node in found.graph for key in node.metadata_props)
    arrays = complete_inputs(found, seed=1)
    for name, want in ort_outputs(model.SerializeToString(), arrays).items():
        np.testing.assert_allclose(eqsat.run(found, arrays)[name], want, rtol=1e-4, atol=1e-5)
    # One line of a command, and the search as for any other model.
    onnx.save(model, flat)
    capfd.readouterr()
    assert main(["optimize", str(flat), "-t", "dnnl", "--json"]) == 0
    captured = capfd.readouterr()
    assert captured.err.count("note: ") == 1 and "functions.onnx" not in captured.err
    assert '"dnnl_0"' in captured.out


def test_a_function_in_the_file_beside_the_record(tmp_path: Path) -> None:
    _, flat = both(RESULTS["dnnl"](tmp_path), tmp_path)
    model = onnx.load(flat)
    model.functions.append(_function("f0", helper.make_node("Relu", ["a"], ["b"])))
    with pytest.warns(Note, match="it has functions"):
        assert eqsat.load(model)


def test_a_command_says_it_once_and_quietly_not_at_all(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    functions, flat = both(RESULTS["dnnl"](tmp_path), tmp_path)
    model = onnx.load(flat)
    _no_record(model)
    onnx.save(model, flat)
    assert main(["compare", str(functions), str(flat)]) == 0
    assert capfd.readouterr().err.count("note: ") == 1
    assert main(["compare", "-q", str(functions), str(flat)]) == 0
    assert "note" not in capfd.readouterr().err
    with pytest.warns(Note) as said:
        eqsat.load(flat)
    assert said[0].filename == __file__
    assert str(said[0].message).startswith(str(flat))


def test_models_without_a_plan_say_nothing() -> None:
    assert content(CONVOLUTION)
    result = eqsat.optimize(CONVOLUTION, targets=["dnnl"])
    assert content(result.model)
