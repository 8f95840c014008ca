"""Operators of several outputs in every objective, whichever of the outputs are used; values by ONNX Runtime."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator

import eqsat
from eqsat.search import Search
from eqsat.stages.options import Objective

# Operator -> inputs, call, types of the outputs.
_CALLS = {
    "BatchNormalization": (
        "float[2,3,4] x, float[3] s",
        "BatchNormalization<training_mode=1>(x, s, s, s, s)",
        ("float[2,3,4]", "float[3]", "float[3]"),
    ),
    "LSTM": (
        "float[2,1,3] x, float[1,16,3] w, float[1,16,4] r",
        "LSTM<hidden_size=4>(x, w, r)",
        ("float[2,1,1,4]", "float[1,1,4]", "float[1,1,4]"),
    ),
    "GRU": (
        "float[2,1,3] x, float[1,12,3] w, float[1,12,4] r",
        "GRU<hidden_size=4>(x, w, r)",
        ("float[2,1,1,4]", "float[1,1,4]"),
    ),
    "TopK": ("float[2,5] x", "TopK(x, k)", ("float[2,2]", "int64[2,2]")),
    "Split": ("float[6] x", "Split<num_outputs=3>(x)", ("float[2]",) * 3),
    "Dropout": ("float[6] x", "Dropout(x)", ("float[6]", "bool[6]")),
    "LayerNormalization": (
        "float[2,6] x, float[6] s",
        "LayerNormalization(x, s)",
        ("float[2,6]", "float[2,1]", "float[2,1]"),
    ),
    "MaxPool": ("float[1,1,4,4] x", "MaxPool<kernel_shape=[2,2]>(x)", ("float[1,1,3,3]", "int64[1,1,3,3]")),
    "Unique": ("float[6] x", "Unique(x)", ("float[?]", "int64[?]", "int64[?]", "int64[?]")),
    "DynamicQuantizeLinear": ("float[6] x", "DynamicQuantizeLinear(x)", ("uint8[6]", "float", "uint8")),
    "Attention": (
        "float[1,2,3,4] x, float[1,2,5,4] p",
        "Attention(x, x, x, , p, p)",
        ("float[1,2,3,4]", "float[1,2,8,4]", "float[1,2,8,4]"),
    ),
    "If": (
        "float[2] x, bool c",
        "If(c)<then_branch=t () => (float[2] p, float[2] q) { p = Add(x, x) q = Mul(x, x) },"
        "else_branch=e () => (float[2] u, float[2] v) { u = Sub(x, x) v = Identity(x) }>",
        ("float[2]", "float[2]"),
    ),
    "Loop": (
        "float[2] x",
        "Loop(n, t, x, x)<body=b (int64 i, bool c, float[2] a, float[2] f)"
        "=> (bool d, float[2] a2, float[2] f2, float[2] z) {"
        "d = Identity(c) a2 = Add(a, f) f2 = Mul(a, a) z = Identity(a2) }>",
        ("float[2]", "float[2]", "float[2,2]"),
    ),
    "Scan": (
        "float[2] x, float[3,2] s",
        "Scan<num_scan_inputs=1, body=b (float[2] a, float[2] e) => (float[2] a2, float[2] z) {"
        "a2 = Add(a, e) z = Mul(a, e) }>(x, s)",
        ("float[2]", "float[3,2]"),
    ),
}
OBJECTIVES: tuple[Objective, ...] = ("best", "random", "worst")
_ABSOLUTE = {"bool": "Not", "uint8": "BitwiseNot"}


def _model(name: str, uses: tuple[str, ...]) -> onnx.ModelProto:
    """The call with each output unused, an output of the graph, read by an operator, or both."""
    inputs, call, types = _CALLS[name]
    results, reads = [], []
    for i, (use, kind) in enumerate(zip(uses, types, strict=True)):
        if use in ("returned", "both"):
            results.append(f"{kind} o{i}")
        if use in ("read", "both"):
            reads.append(f"w{i} = {_ABSOLUTE.get(kind.split('[')[0], 'Abs')}(o{i})")
            results.append(f"{kind} w{i}")
    names = ", ".join(f"o{i}" for i in range(len(types)))
    constants = {
        "TopK": "k = Constant<value_ints=[2]>()",
        "Loop": "n = Constant<value_int=2>() t = Constant<value=bool {1}>()",
    }
    head = f'<ir_version: 10, opset_import: ["": 23]>\ng ({inputs}) => ({", ".join(results)})'
    return onnx.parser.parse_model(f"{head} {{ {constants.get(name, '')} {names} = {call} {' '.join(reads)} }}")


def _feeds(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    feeds = {}
    for value in model.graph.input:
        shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
        is_float = value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
        feeds[value.name] = np.abs(rng.standard_normal(shape)).astype(np.float32) if is_float else np.array(True)
    return feeds


def _run(name: str, model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list:
    if name in ("BatchNormalization", "Unique"):  # at some subsets of their outputs ONNX Runtime ends the process
        return list(ReferenceEvaluator(model).run(None, feeds))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def _uses(name: str) -> list[tuple[str, ...]]:
    count = len(_CALLS[name][2])
    kinds = ("unused", "returned", "read", "both") if count < 3 else ("unused", "returned", "read")
    every = [u for u in itertools.product(kinds, repeat=count) if set(u) != {"unused"}]
    return every if count < 3 else every[:: count - 1]


@pytest.mark.slow
@pytest.mark.parametrize("name", _CALLS)
def test_each_subset_of_outputs(name: str, tmp_path: Path) -> None:
    for uses in _uses(name):
        model = _model(name, uses)
        feeds = _feeds(model)
        wanted = _run(name, model, feeds)
        search = Search.of(model)
        known = set()
        for objective in OBJECTIVES:
            result = search.extract(objective, verify=False)
            saved = tmp_path / "m.onnx"
            result.save(saved)
            content = saved.read_bytes()
            if content in known:
                continue
            known.add(content)
            written = onnx.load(saved)
            onnx.checker.check_model(written, full_check=True)
            # A Split with its sizes is another operator than one with its number of parts, and costs the same.
            most = 2 if name == "Split" and objective != "best" else 1
            assert Counter(n.op_type for n in written.graph.node)[name] <= most, uses
            for got in (list(result.run(feeds).values()), _run(name, written, feeds)):
                for a, b in zip(got, wanted, strict=True):
                    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6, err_msg=f"{uses} {objective}")


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_equal_operators_with_other_outputs_used(objective: Objective) -> None:
    text = """<ir_version: 10, opset_import: ["": 23]>
    g (float[2,5] x) => (float[2,2] a, int64[2,2] b, float[2,2] c, float[2,2] d) {
        k = Constant<value_ints=[2]>() a, i = TopK(x, k) v, b = TopK(x, k) c, j = TopK(x, k) d = Identity(v) }"""
    x = np.random.default_rng(0).standard_normal((2, 5)).astype(np.float32)
    wanted = eqsat.run(text, {"x": x})
    got = eqsat.optimize(text, objective=objective).run({"x": x})
    for name, array in wanted.items():
        np.testing.assert_array_equal(got[name], array)
