"""``Slice`` at the limits of its bounds: the specification's clamping in numpy, constants, shapes and C."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx.shape_inference import infer_shapes

import eqsat
from eqsat.model.inference.shape_values import propagate
from eqsat.ops.evaluate import evaluate
from eqsat.schema.slices import as_slice, taken
from eqsat.schema.types import OpKey, TensorType

_LIMITS = (-(2**63), -(2**31), -6, -5, -4, -1, 0, 1, 3, 4, 5, 6, 2**31 - 1, 2**63 - 1)
_STEPS = (-(2**63), -5, -2, -1, 1, 2, 5, 2**63 - 1)


def _specified(start: int, end: int, step: int, n: int) -> list[int]:
    """Word by word as the specification has it."""
    start, end = start + n if start < 0 else start, end + n if end < 0 else end
    start, end = (
        (min(max(start, 0), n), min(max(end, 0), n))
        if step > 0
        else (min(max(start, 0), n - 1), min(max(end, -1), n - 1))
    )
    found, i = [], start
    while i < end if step > 0 else i > end:
        found.append(i)
        i += step
    return found


def _cases() -> list[tuple[int, int, int]]:
    return list(itertools.product(_LIMITS, _LIMITS, _STEPS))


@pytest.mark.parametrize("n", (1, 4, 5))
def test_every_limit(n: int) -> None:
    x, op = np.arange(n), OpKey("", "Slice")
    kind, one = TensorType(ir.DataType.INT64, (n,)), TensorType(ir.DataType.INT64, (1,))
    for start, end, step in _cases():
        wanted = _specified(start, end, step, n)
        assert list(taken(start, end, step, n)) == x[as_slice(taken(start, end, step, n))].tolist() == wanted
        given = [x, np.array([start]), np.array([end]), np.array([0]), np.array([step])]
        (computed,) = evaluate(op, (), given)
        assert computed is not None
        assert computed.tolist() == wanted
        (shape,) = propagate(op, (), [kind, *[one] * 4], given, [TensorType(ir.DataType.INT64, (len(wanted),))])
        assert shape is not None
        assert shape.tolist() == wanted
        assert taken(start, end, step, 0) == range(0)


def _model(cases: list[tuple[int, int, int]]) -> onnx.ModelProto:
    """One output a case."""
    lines = "".join(
        f"s{i} = Constant<value_ints=[{s}]>() e{i} = Constant<value_ints=[{e}]>() t{i} = Constant<value_ints=[{t}]>()\n"
        f"y{i} = Slice(x, s{i}, e{i}, a, t{i})\n"
        for i, (s, e, t) in enumerate(cases)
    )
    outputs = ", ".join(f"float[{len(_specified(*case, 5))}] y{i}" for i, case in enumerate(cases))
    text = f'<ir_version: 10, opset_import: ["": 21]> g (float[5] x) => ({outputs})'
    return onnx.parser.parse_model(f"{text} {{ a = Constant<value_ints=[0]>()\n{lines} }}")


def _sample(count: int) -> list[tuple[int, int, int]]:
    """Cases that take something, and the two on which ONNX Runtime disagrees."""
    some = [c for c in _cases() if _specified(*c, 5) and abs(c[2]) < 2**62]
    chosen = np.random.default_rng(0).choice(len(some), count, replace=False)
    return [some[i] for i in chosen] + [(-1, -(2**63), -1), (-1, -(2**31), -2)]


@pytest.mark.parametrize("backend", ("numpy", "c"))
def test_constants_and_c(backend: eqsat.result.Backend) -> None:
    cases = _sample(30)
    model = _model(cases)
    onnx.checker.check_model(infer_shapes(model, strict_mode=True, data_prop=True))
    x = np.arange(5, dtype=np.float32)
    got = eqsat.optimize(model).run({"x": x}, backend=backend)
    for i, case in enumerate(cases):
        assert got[f"y{i}"].tolist() == _specified(*case, 5), case


@pytest.mark.parametrize("end", (2**31 - 1, 2**63 - 1))
def test_the_greatest_end_backwards_takes_nothing(end: int) -> None:
    # ONNX Runtime takes it for the first element.
    model = _model([(-1, end, -1)])
    assert infer_shapes(model).graph.output[0].type.tensor_type.shape.dim[0].dim_value == 0
    assert eqsat.run(model, {"x": np.arange(5, dtype=np.float32)})["y0"].tolist() == []
    assert eqsat.optimize(model).run({"x": np.arange(5, dtype=np.float32)})["y0"].tolist() == []
