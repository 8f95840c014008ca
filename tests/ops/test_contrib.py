"""Operators of ``com.microsoft`` by their definitions and kernels, against ONNX Runtime: values, types, C."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

import eqsat
from eqsat.codegen.canonical import is_known
from eqsat.codegen.runtime import CModel
from eqsat.model.load import load
from eqsat.ops.operators import operator
from eqsat.schema import opset
from eqsat.schema.free_sizes import at_sizes
from eqsat.schema.types import OpKey, tensor_type
from tests.model.running import run_ort
from tests.ops.contrib_cases import CASES, MS, Case
from tests.ops.oracle import same
from tests.quantization.runtime import INEXACT, has_exact_products

SIZES = {2: "B", 5: "S", 7: "T", 3: "P"}


OF_BYTES = ("DynamicQuantizeLSTM", "QAttention")
"""Whose products ONNX Runtime computes from unsigned and signed bytes."""
COUNTED = ("Unique", "GroupQueryAttention")
"""The values decide how many there are."""


def compare(found: list[np.ndarray], expected: list[np.ndarray], case: Case, factor: float = 1) -> None:
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        exact = b.dtype.kind in "iub"
        size = 1 if exact or not b.size else max(1.0, float(np.abs(b).max()))
        tolerance = 0 if exact else case.tolerance * factor
        same(a, b, tolerance, tolerance * size, str(case))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_values(case: Case) -> None:
    if case.name in OF_BYTES and not has_exact_products():
        pytest.skip(INEXACT)
    model = case.model()
    expected = run_ort(model, case.feed())
    found = eqsat.run(model, case.feed())
    compare([found[f"o{i}"] for i in range(case.outputs)], expected, case)
    for value, array in zip(load(model).graph.outputs, expected, strict=True):
        assert value.shape is not None and len(value.shape) == array.ndim
        assert all(d == n for d, n in zip(value.shape, array.shape, strict=True) if isinstance(d, int))
        assert value.shape.is_static() or case.name in COUNTED
        assert value.dtype is not None and value.dtype.numpy() == array.dtype


def free(case: Case) -> dict[int, list[int | str]]:
    """The batch and the lengths of sequences as symbols, in operands of activations; heads and widths are numbers."""
    named = {}
    for i, x in enumerate(case.inputs):
        if x is not None and i not in case.weights and x.ndim > 1 and case.name not in ("MatMulNBits",):
            named[i] = [SIZES.get(d, d) for d in x.shape]
    return named


ATTENTION = [c for c in CASES if c.name in ("Attention", "MultiHeadAttention", "EmbedLayerNormalization")]


def is_typed(case: Case) -> bool:
    """Whether a vector has ends, or ends and starts, depends on the size of the batch."""
    return not any(x is not None and x.shape == (4,) for x in case.inputs)


@pytest.mark.parametrize("case", list(filter(is_typed, ATTENTION)), ids=str)
def test_types_with_free_sizes(case: Case) -> None:
    if case.inputs[0] is not None and any(x is not None and x.shape == (2,) for x in case.inputs):
        named = {**free(case), 3: ["B"]}
    else:
        named = free(case)
    model = load(case.model(named))
    expected = run_ort(case.model(), case.feed())
    sizes = {name: size for size, name in SIZES.items()}
    for value, array in zip(model.graph.outputs, expected, strict=True):
        known = tensor_type(value)
        assert known is not None and known.shape is not None
        assert len(known.shape) == array.ndim
        for d, actual in zip(at_sizes(known, sizes).shape or (), array.shape, strict=True):
            assert not isinstance(d, int) or d == actual
        assert known.shape[0] in ("B", 2) or case.outputs == 2, known


CODE = {
    (c.name, *(None if x is None else x.ndim for x in c.inputs), c.attrs.get("unidirectional"), c.outputs): c
    for c in CASES
}
"""One case of each form."""


def is_c(case: Case) -> bool:
    """Whether C has it: it has a definition, and C the types of its tensors."""
    types = {x.dtype.name for x in case.inputs if x is not None}
    return operator(OpKey(MS, case.name)).definition is not None and types.isdisjoint(("int4", "uint4"))


@pytest.mark.parametrize("case", list(filter(is_c, CODE.values())), ids=str)
def test_c(case: Case) -> None:
    model = case.model()
    found = CModel(load(model)).run(case.feed())
    compare([found[f"o{i}"] for i in range(case.outputs)], run_ort(model, case.feed()), case, 4)


@pytest.mark.parametrize("case", CODE.values(), ids=str)
def test_whole_models(case: Case) -> None:
    """What follows it is rewritten, the model is verified as a whole, and the result runs in ONNX Runtime."""
    model = case.model()
    for before, after in (("o0", "a"), ("a", "b")):
        model.graph.node.append(helper.make_node("Relu", [before], [after]))
    model.graph.output.append(helper.make_value_info("b", onnx.TypeProto()))
    result = eqsat.optimize(model)
    assert result.summary.verification.agrees, result.summary.verification.skipped
    compare(run_ort(ir.to_proto(result.model), case.feed()), run_ort(model, case.feed()), case)


def test_the_documentation_lists_what_is_executed() -> None:
    text = (Path(__file__).parents[2] / "docs" / "optimize.md").read_text("utf-8")
    rows = {
        r.split("|")[1].strip(): set(re.findall(r"`(\w+)`", r.split("|")[2])) for r in text.split("\n") if r[:1] == "|"
    }
    stated = [rows[name] for name in ("executed, and written as C", "typed", "opaque")]
    names = opset.operator_names(MS)
    assert sum(map(len, stated)) == len(names)
    assert set().union(*stated) == set(names)
    for name in names:
        found = operator(OpKey(MS, name))
        executed = bool(found.kernels) or found.definition is not None
        assert (name in stated[0]) == executed, name
        assert not executed or is_known(OpKey(MS, name)), name
