"""Annotations of composites: by a function in Python, or by ``annotate`` in a target file."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import eqsat
from eqsat import op
from eqsat.errors import OptimizationError
from eqsat.model.expression import Tensor
from eqsat.partition.partition_functions import RequestedCall
from tests.explain.saved import without_origins

PRODUCT = "ccompiler.add_subtract_multiply"
TARGET = """
target chip
    peak float32 = 1e12
    bandwidth = 1e12, launch = 1e-9
    link bandwidth = 1e12, latency = 0
    composite conv : exact
        let c = Conv(x, w, b?)
        let s = c + r | c
        Relu(s) | s
        where const(w)
        {annotate}
    composite dot : exact
        MatMul(x, w)
"""


def product(size: int = 16) -> ir.Model:
    x, y = eqsat.input("x", (size, size)), eqsat.input("y", (size, size))
    return eqsat.graph(op.Exp((x + y) * (x - y)))


def bodies(model: ir.Model) -> dict[str, list[str]]:
    """Operators of each composite, by name."""
    own = (f for f in model.functions.values() if f.domain.endswith(".composite"))
    return {f.name: [n.op_type.partition("_")[0] for n in f] for f in own}


def optimized(model: ir.Model, function: Callable[..., Tensor], name: str = PRODUCT) -> eqsat.Result:
    result = eqsat.optimize(model, targets="ccompiler", partition_functions={name: function})
    assert eqsat.compare(model, result.model).agrees
    onnx.checker.check_model(ir.to_proto(result.model), full_check=True)
    return result


def test_result_and_operands() -> None:
    seen: list[RequestedCall] = []

    def annotate(call: RequestedCall, x: Tensor, y: Tensor) -> Tensor:
        seen.append(call)
        assert (x.shape, y.shape, x.dtype) == ((16, 16), (16, 16), np.float32)
        return op.StopFusion(op.CastHint(call(op.CastHint(x, dtype="uint8"), op.StopFusion(y)), dtype="int8"))

    result = optimized(product(), annotate)
    assert bodies(result.model) == {
        "add_subtract_multiply": ["CastHint", "StopFusion", "Add", "Sub", "Mul", "CastHint", "StopFusion"]
    }
    (call,) = seen
    assert (call.name, call.operators) == (PRODUCT, ("Add", "Sub", "Mul"))
    (function,) = (f for f in result.model.functions.values() if f.name == "add_subtract_multiply")
    first, second, add = list(function)[:3]
    assert first.attributes["dtype"].as_int() == ir.DataType.UINT8
    assert [v.producer() for v in add.inputs if v is not None] == [first, second]


def test_a_function_may_decide_and_may_do_nothing() -> None:
    def annotate(call: RequestedCall, x: Tensor, y: Tensor) -> Tensor:
        large = x.shape is not None and isinstance(x.shape[0], int) and x.shape[0] > 100
        return op.StopFusion(call(x, y)) if large else call(x, y)

    assert bodies(optimized(product(16), annotate).model)["add_subtract_multiply"] == ["Add", "Sub", "Mul"]
    assert bodies(optimized(product(128), annotate).model)["add_subtract_multiply"][-1] == "StopFusion"


def test_it_changes_neither_the_choice_nor_the_cost() -> None:
    plain = eqsat.optimize(product(), targets="ccompiler")
    result = optimized(product(), lambda call, *operands: op.StopFusion(call(*operands)))
    assert result.cost == plain.cost
    assert [r.nodes for r in result.regions] == [r.nodes for r in plain.regions]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda call, x, y: op.Relu(call(x, y)), "got a result of <eqsat Relu"),
        (lambda call, x, y: op.StopFusion(x), "got a result of <eqsat input 'x'"),
        (lambda call, x, y: call(y, x), "'y' .* in the place of .*'x'"),
        (lambda call, x, y: call(op.Neg(x), y), "<eqsat Neg .* in the place of"),
        (lambda call, x, y: call(x), "1 operands instead of 2"),
        (lambda call, x, y: None, "NoneType as its result"),
        (lambda call, x, y: call, "Call as its result"),
    ],
)
def test_only_annotations(function: Callable[..., Tensor], message: str) -> None:
    with pytest.raises(OptimizationError, match=message) as error:
        optimized(product(), function)
    assert f"partition function of {PRODUCT}" in str(error.value) and "for example" in str(error.value)


def test_unknown_composites() -> None:
    for name, hint in (("ccompiler.add_multiply", "did you mean `ccompiler.add_subtract"), ("npu.x", "composites:")):
        with pytest.raises(OptimizationError, match=hint):
            optimized(product(), lambda call, *operands: call(*operands), name)


def test_annotations_that_are_there_are_taken_over() -> None:
    x, y = eqsat.input("x", (16, 16)), eqsat.input("y", (16, 16))
    inner = op.StopFusion(op.CastHint((op.StopFusion(x) + y) * (op.StopFusion(x) - y), dtype="int8"))

    def annotate(call: RequestedCall, a: Tensor, b: Tensor) -> Tensor:
        return op.StopFusion(op.CastHint(call(a, b), dtype="int8"))

    result = optimized(eqsat.graph(op.Exp(inner)), annotate)
    assert bodies(result.model)["add_subtract_multiply"] == ["Add", "Sub", "Mul", "CastHint", "StopFusion"]
    outside = [n.op_type for f in result.model.functions.values() if f.name == "ccompiler_0" for n in f]
    assert [n for n in (*outside, *(n.op_type for n in result.model.graph)) if n.startswith("CastHint")] == []
    # Where somebody else reads what lies between, it has to stay as well.
    product_ = (x + y) * (x - y)
    model = eqsat.graph({"a": op.Exp(op.CastHint(product_, dtype="int8")), "b": op.Tanh(product_)})
    assert bodies(optimized(model, annotate).model)["add_subtract_multiply"][-2:] == ["CastHint", "StopFusion"]


def test_again_and_again(tmp_path: Path) -> None:
    def annotate(call: RequestedCall, x: Tensor, y: Tensor) -> Tensor:
        return op.StopFusion(op.CastHint(call(op.CastHint(x, dtype="uint8"), y), dtype="int8"))

    files = [tmp_path / f"{i}.onnx" for i in range(4)]
    eqsat.save(product(), files[0])
    for before, after in itertools.pairwise(files):
        eqsat.optimize(before, targets="ccompiler", partition_functions={PRODUCT: annotate}).save(after)
    assert files[2].read_bytes() == files[3].read_bytes()
    # Where the nodes come from is the first time another graph.
    assert without_origins(files[1]) == without_origins(files[2])


# ---- annotate in a target file ---------------------------------------------------------------------------


def chip(folder: Path, annotate: str) -> Path:
    path = folder / "chip.target"
    path.write_text(TARGET.format(annotate=annotate), "utf-8")
    return path


def convolutions() -> ir.Model:
    rng = np.random.default_rng(0)
    w = [rng.standard_normal((4, 4, 3, 3)).astype(np.float32) / 4 for _ in range(3)]
    x = eqsat.input("x", (1, 4, 12, 12))
    y = op.Relu(op.Conv(x, w[0], pads=[1, 1, 1, 1]))
    return eqsat.graph(op.Relu(op.Conv(op.Conv(y, w[1], w[1][0, :, 0, 0], pads=[1, 1, 1, 1]), w[2], pads=[1] * 4) + x))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("annotate StopFusion", ["StopFusion"]),
        ("annotate CastHint", ["CastHint"]),
        ("annotate CastHint(dtype=uint8), StopFusion", ["CastHint", "StopFusion"]),
        ("annotate StopFusion, eqsat.CastHint(dtype=int8)", ["StopFusion", "CastHint"]),
    ],
)
def test_every_definition_of_the_composite_is_annotated(tmp_path: Path, text: str, expected: list[str]) -> None:
    model = convolutions()
    result = eqsat.optimize(model, targets=[chip(tmp_path, text)])
    found = bodies(result.model)
    assert len(found) == 3 and all(b[-len(expected) :] == expected for b in found.values()), found
    assert all("casthint" not in name and "stop" not in name for name in found), "names say what is computed"
    assert eqsat.compare(model, result.model).agrees
    plain = eqsat.optimize(model, targets=[chip(tmp_path, "")])
    assert plain.cost == result.cost


def test_a_function_takes_the_place_of_the_clause(tmp_path: Path) -> None:
    path = chip(tmp_path, "annotate CastHint(dtype=uint8), StopFusion")
    function = {"chip.conv": lambda call, *operands: op.StopFusion(call(*operands))}
    result = eqsat.optimize(convolutions(), targets=[path], partition_functions=function)
    assert all(b[-1] == "StopFusion" and "CastHint" not in b for b in bodies(result.model).values())


def test_operands_have_the_names_of_the_pattern(tmp_path: Path) -> None:
    seen = []

    def annotate(call: RequestedCall, *operands: Tensor) -> Tensor:
        by_name = dict(zip(call.names, operands, strict=True))
        seen.append({name: o.shape for name, o in by_name.items()})
        return call(*(op.CastHint(o, dtype="uint8") if name == "x" else o for name, o in by_name.items()))

    result = eqsat.optimize(convolutions(), targets=[chip(tmp_path, "")], partition_functions={"chip.conv": annotate})
    image, weight = (1, 4, 12, 12), (4, 4, 3, 3)
    assert seen == [
        {"x": image, "w": weight},
        {"x": image, "w": weight, "b": (4,)},
        {"x": image, "w": weight, "r": image},
    ]
    assert all(b[0] == "CastHint" for b in bodies(result.model).values())
    assert eqsat.compare(convolutions(), result.model).agrees


TWO_RESULTS = """
target chip
    peak float32 = 1e12
    bandwidth = 1e12, launch = 1e-9
    link bandwidth = 1e12, latency = 0
    composite pair : exact
        s = x + y, d = Relu(s)
"""


def pair() -> ir.Model:
    x, y = eqsat.input("x", (8,)), eqsat.input("y", (8,))
    total = x + y
    return eqsat.graph([op.Sigmoid(op.Relu(total)), op.Exp(total)])


def paired(tmp_path: Path, function: Any, clause: str = "") -> eqsat.Result:
    path = tmp_path / "chip.target"
    path.write_text(f"{TWO_RESULTS}        {clause}\n", "utf-8")
    functions = None if function is None else {"chip.pair": function}
    return eqsat.optimize(pair(), targets=[path], partition_functions=functions)


def test_results_are_annotated_one_by_one(tmp_path: Path) -> None:
    def annotate(call: RequestedCall, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        total, rectified = call(op.CastHint(x, dtype="int8"), y)
        return total, op.StopFusion(rectified)

    result = paired(tmp_path, annotate)
    assert bodies(result.model) == {"pair": ["CastHint", "Add", "Relu", "StopFusion"]}
    assert eqsat.compare(pair(), result.model).agrees


def test_the_clause_annotates_each_result(tmp_path: Path) -> None:
    result = paired(tmp_path, None, "annotate StopFusion")
    assert bodies(result.model) == {"pair": ["Add", "Relu", "StopFusion", "StopFusion"]}
    assert eqsat.compare(pair(), result.model).agrees


@pytest.mark.parametrize(
    ("function", "actual"),
    [
        (lambda call, x, y: call(x, y)[0], "1 of 2 results"),
        (lambda call, x, y: call(x, y)[::-1], "a result of"),
        (lambda call, x, y: (call(x, y)[0], call(x, y)[1]), "results of several calls"),
        (lambda call, x, y: (call(x, y)[0], 3), "int as its result"),
    ],
)
def test_all_results_of_one_call_are_returned(tmp_path: Path, function: Callable[..., object], actual: str) -> None:
    with pytest.raises(OptimizationError, match=actual):
        paired(tmp_path, function)
