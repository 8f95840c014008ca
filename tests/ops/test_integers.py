"""Integers at the ends of their range, in numpy, in constants, in values of shapes and in C: two's complement."""

from __future__ import annotations

import warnings

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import eqsat
from eqsat.model.inference.shape_values import propagate
from eqsat.ops.evaluate import evaluate
from eqsat.schema.integers import divided
from eqsat.schema.types import OpKey, TensorType

_TYPES = ("int8", "int16", "int32", "int64")
_BODIES = ("y = Div(x, z)", "y = Mod(x, z)", "y = Mod<fmod=1>(x, z)", "y = Neg(x)", "y = Abs(x)", "y = Mul(x, z)")


def _operands(dtype: str) -> tuple[list[int], list[int]]:
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    return [low, low, 7, -7, low, low + 1, high, low], [-1, 1, -2, 2, low, -1, -1, 2]


def _wanted(body: str, dtype: str) -> list[int]:
    """By Python's integers of any size, wrapped around."""

    def towards_zero(a: int, b: int) -> int:
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)

    functions = {
        "y = Div(x, z)": towards_zero,
        "y = Mod(x, z)": lambda a, b: a % b,
        "y = Mod<fmod=1>(x, z)": lambda a, b: a - b * towards_zero(a, b),
        "y = Neg(x)": lambda a, b: -a,
        "y = Abs(x)": lambda a, b: abs(a),
        "y = Mul(x, z)": lambda a, b: a * b,
    }
    bits = np.iinfo(dtype).bits
    wrap = lambda v: (v + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)  # noqa: E731
    return [wrap(functions[body](a, b)) for a, b in zip(*_operands(dtype), strict=True)]


@pytest.mark.parametrize("dtype", _TYPES)
@pytest.mark.parametrize("body", _BODIES)
def test_ends_of_the_range(body: str, dtype: str) -> None:
    x, z = (np.array(v, dtype) for v in _operands(dtype))
    text = f'<ir_version: 10, opset_import: ["": 21]> g ({dtype}[8] x, {dtype}[8] z) => ({dtype}[8] y) {{ {body} }}'
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for got in (eqsat.run(text, {"x": x, "z": z}), eqsat.optimize(text).run({"x": x, "z": z})):
            assert got["y"].tolist() == _wanted(body, dtype)


def test_ends_of_the_range_in_c() -> None:
    cases = [(body, dtype) for body in _BODIES for dtype in _TYPES]
    inputs = ", ".join(f"{dtype}[8] x_{dtype}, {dtype}[8] z_{dtype}" for dtype in _TYPES)
    outputs = ", ".join(f"{dtype}[8] y{i}" for i, (_, dtype) in enumerate(cases))
    nodes = "\n".join(
        body.replace("y", f"y{i}", 1).replace("(x", f"(x_{dtype}").replace(" z)", f" z_{dtype})")
        for i, (body, dtype) in enumerate(cases)
    )
    text = f'<ir_version: 10, opset_import: ["": 21]> g ({inputs}) => ({outputs}) {{ {nodes} }}'
    feeds = {
        f"{n}_{dtype}": np.array(v, dtype) for dtype in _TYPES for n, v in zip("xz", _operands(dtype), strict=True)
    }
    got = eqsat.run(text, feeds, backend="c")
    for i, case in enumerate(cases):
        assert got[f"y{i}"].tolist() == _wanted(*case), case


@pytest.mark.parametrize("dtype", _TYPES)
@pytest.mark.parametrize("body", _BODIES)
def test_ends_of_the_range_in_constants(body: str, dtype: str) -> None:
    x, z = (", ".join(map(str, v)) for v in _operands(dtype))
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["": 21]>
        g ({dtype}[8] q) => ({dtype}[8] w) {{
            x = Constant<value={dtype}[8] {{{x}}}>() z = Constant<value={dtype}[8] {{{z}}}>()
            {body} w = BitwiseXor(y, q) }}""")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = eqsat.optimize(model)
    assert result.run({"q": np.zeros(8, dtype)})["w"].tolist() == _wanted(body, dtype)


def test_64_bits_are_divided_to_the_bit() -> None:
    # float64 holds 53 of them.
    a, b = np.array([2**62 + 1, -(2**62) - 1, 2**63 - 1]), np.array([1, 1, -1])
    wanted = [2**62 + 1, -(2**62) - 1, 1 - 2**63]
    kind, op = TensorType(ir.DataType.INT64, (3,)), OpKey("", "Div")
    (in_shapes,) = propagate(op, (), [kind, kind], [a, b], [kind])
    assert in_shapes is not None
    (computed,) = evaluate(op, (), [a, b])
    assert computed is not None
    assert divided(a, b).tolist() == in_shapes.tolist() == computed.tolist() == wanted
