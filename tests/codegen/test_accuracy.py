"""How near float32 results of whole programs are to the exact ones: the table of ``docs/codegen.md``, measured.

The table is read from the page, so that it says what holds. Exact is float64, on the same float32 operands: all bit
patterns evenly, denser where functions change, with denormals, infinities, NaN and both zeros.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import onnx.parser
import onnxruntime
import pytest

from eqsat.codegen.isa import ALL, PORTABLE, SCALAR, Isa
from eqsat.codegen.runtime import CModel
from eqsat.model.load import load
from tests.codegen.kernels.vectors.harness import UNIT, runnable
from tests.codegen.kernels.vectors.test_functions import samples, spacing

pytestmark = pytest.mark.slow
PAGE = Path(__file__).parents[2] / "docs" / "codegen.md"
HEAD = '<ir_version: 10, opset_import: ["": 24]> g '
_erf = np.vectorize(math.erf, otypes=[np.float64])


@pytest.fixture(autouse=True, scope="module")
def optimization() -> None:
    """Programs as users have them."""


def single(value: float) -> np.float64:
    """A constant as float32 has it."""
    return np.float64(np.float32(value))


def expm1(x: np.ndarray) -> np.ndarray:
    return np.expm1(np.minimum(x, 0))


def sigmoid(x: np.ndarray) -> np.ndarray:
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, 1) / (1 + small)


SELU = single(1.67326319217681884765625), single(1.05070102214813232421875)
UNARY: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "Abs": np.abs, "Acos": np.arccos, "Acosh": np.arccosh, "Asin": np.arcsin, "Asinh": np.arcsinh, "Atan": np.arctan,
    "Atanh": np.arctanh, "Ceil": np.ceil, "Cos": np.cos, "Cosh": np.cosh, "Erf": _erf, "Exp": np.exp,
    "Floor": np.floor, "Log": np.log, "Neg": np.negative, "Round": np.rint, "Sin": np.sin, "Sinh": np.sinh,
    "Sqrt": np.sqrt, "Tan": np.tan, "Tanh": np.tanh, "Sigmoid": sigmoid,
    "Celu": lambda x: np.where(x < 0, expm1(x), x),
    "Elu": lambda x: np.where(x < 0, expm1(x), x),
    "Gelu": lambda x: 0.5 * x * (1 + _erf(x / math.sqrt(2))),
    "HardSwish": lambda x: x * np.clip(x * single(1 / 6) + 0.5, 0, 1),
    "Mish": lambda x: x * np.tanh(np.logaddexp(0, x)),
    "Reciprocal": lambda x: 1 / x,
    "Relu": lambda x: np.maximum(x, 0),
    "Selu": lambda x: SELU[1] * np.where(x < 0, SELU[0] * expm1(x), x),
    "Softplus": lambda x: np.logaddexp(0, x),
    "Softsign": lambda x: x / (1 + np.abs(x)),
    "Swish": lambda x: x * sigmoid(x),
}  # fmt: skip
BINARY = {"Add": np.add, "Div": np.divide, "Mul": np.multiply, "Pow": np.power, "Sub": np.subtract}


@cache
def table() -> dict[str, tuple[str, str]]:
    """Bound and unit by operator."""
    text = PAGE.read_text(encoding="utf-8").partition("## Accuracy")[2].partition("\n## ")[0]
    found: dict[str, tuple[str, str]] = {}
    for names, bound, unit in re.findall(r"^\| (`.+?) \| (.+?) \| (.+?) \|$", text, re.MULTILINE):
        for name in re.findall(r"`(.+?)`", names):
            assert name not in found, name
            found[name] = (bound, unit)
    return found


def test_the_table_has_all_that_is_measured():
    elsewhere = {"Softmax", "LogSoftmax", "LayerNormalization", "RMSNormalization", "MatMul", "Gemm", "Conv"}
    assert set(table()) == {*UNARY, *BINARY, *elsewhere, "ReduceSum", "ReduceMean"}


def program(text: str, isa: Isa) -> CModel:
    if isa not in runnable():
        pytest.skip(f"no {isa.name} here")
    scalar = isa is SCALAR
    return CModel(
        load(HEAD + text), isas=(PORTABLE, SCALAR) if scalar else (isa,), flags=("-DMODEL_SCALAR",) if scalar else ()
    )


def assert_within(
    name: str, x: np.ndarray, found: np.ndarray, exact: np.ndarray, unit: np.ndarray, most: float
) -> None:
    with np.errstate(over="ignore"):
        rounded = exact.astype(np.float32)
    special = ~np.isfinite(rounded)
    np.testing.assert_array_equal(found[special], rounded[special], name)
    error = np.abs(found[~special].astype(np.float64) - exact[~special]) / unit[~special]
    worst = int(np.argmax(error))
    assert error[worst] <= most, f"{name}: {error[worst]:.3f} at {x[~special][worst]!r}, allowed {most}"


@pytest.mark.parametrize("isa", ALL, ids=lambda isa: isa.name)
def test_functions_of_one_operand(isa: Isa):
    x = samples()
    outputs = ", ".join(f"float[{len(x)}] y{k}" for k in [*UNARY, "T"])
    body = "\n".join(f"y{k} = {k}(x)" for k in UNARY)
    compiled = program(f'(float[{len(x)}] x) => ({outputs}) {{ {body}\n yT = Gelu<approximate = "tanh">(x) }}', isa)
    found = compiled.run({"x": x})
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):
        for name, function in UNARY.items():
            bound, of = table()[name]
            exact = function(wide)
            unit = {"ulp of the result": spacing(exact), "ulp of the operand": spacing(x)}[of]
            assert_within(name, x, found[f"y{name}"], exact, unit, float(bound))
        exact = 0.5 * wide * (1 + np.tanh(math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)))
        assert_within("Gelu, tanh", x, found["yT"], exact, spacing(x), float(table()["Gelu"][0]))


@pytest.mark.parametrize("isa", ALL, ids=lambda isa: isa.name)
def test_functions_of_two_operands(isa: Isa):
    x = samples()[: 1 << 17]
    rng = np.random.default_rng(5)
    other = rng.permutation(x)
    # Powers of most pairs are 0 or infinite; half the exponents are such that they are not.
    with np.errstate(all="ignore"):
        other[::2] = (rng.uniform(-140, 120, len(x)) / np.log2(np.abs(x)))[::2]
    outputs = ", ".join(f"float[{len(x)}] y{k}" for k in BINARY)
    body = "\n".join(f"y{k} = {k}(x, e)" for k in BINARY)
    found = program(f"(float[{len(x)}] x, float[{len(x)}] e) => ({outputs}) {{ {body} }}", isa).run(
        {"x": x, "e": other}
    )
    with np.errstate(all="ignore"):
        for name, function in BINARY.items():
            exact = function(x.astype(np.float64), other.astype(np.float64))
            assert table()[name][1] == "ulp of the result"
            assert_within(name, x, found[f"y{name}"], exact, spacing(exact), float(table()[name][0]))


@pytest.mark.parametrize("isa", ALL, ids=lambda isa: isa.name)
def test_powers_with_constant_exponents(isa: Isa):
    exponents = {"a": "float {-1.0}", "b": "float {2.0}", "c": "float {3.0}", "d": "int64 {3}", "e": "int64 {-2}"}
    exponents |= {"f": "double {2.2}", "g": "float {2.2}", "h": "int32 {5}", "i": "float {0.5}", "j": "double {0.5}"}
    x = samples()
    outputs = ", ".join(f"float[{len(x)}] {name}" for name in exponents)
    body = "\n".join(f"p{k} = Constant<value = {v}>()\n {k} = Pow(x, p{k})" for k, v in exponents.items())
    found = program(f"(float[{len(x)}] x) => ({outputs}) {{ {body} }}", isa).run({"x": x})
    bound = float(table()["Pow"][0])
    with np.errstate(all="ignore"):
        for name, text in exponents.items():
            kind, value = re.findall(r"[\w.-]+", text)
            exponent = single(float(value)) if kind == "float" else np.float64(value)
            exact = np.power(x.astype(np.float64), np.full(len(x), exponent))
            assert_within(f"Pow, {text}", x, found[name], exact, spacing(exact), bound)


@pytest.mark.parametrize("isa", ALL, ids=lambda isa: isa.name)
@pytest.mark.parametrize("length", [1, 7, 64, 1000])
def test_rows(length: int, isa: Isa):
    rng = np.random.default_rng(length)
    rows = 96
    x = (rng.standard_normal((rows, length)) * np.repeat([0.01, 1, 30], rows // 3)[:, None]).astype(np.float32)
    x[::5] += 1000
    scale, bias = rng.standard_normal((2, length)).astype(np.float32)
    shape = f"float[{rows}, {length}]"
    text = f"""({shape} x, float[{length}] s, float[{length}] b) => ({shape} p, {shape} l, {shape} n, {shape} r) {{
        p = Softmax(x)
        l = LogSoftmax(x)
        n = LayerNormalization(x, s, b)
        r = RMSNormalization(x, s)
    }}"""
    found = program(text, isa).run({"x": x, "s": scale, "b": bias})
    wide = x.astype(np.float64)
    below = wide - wide.max(axis=1, keepdims=True)
    total = np.exp(below).sum(axis=1, keepdims=True)
    deviation = np.sqrt(wide.var(axis=1, keepdims=True) + single(1e-5))
    square = np.sqrt((wide**2).mean(axis=1, keepdims=True) + single(1e-5))
    largest = np.abs(wide).max(axis=1, keepdims=True)
    steps = max(math.sqrt(length), 1)
    normal = (wide - wide.mean(axis=1, keepdims=True)) / deviation * scale
    units = {
        "2⁻²⁴": UNIT,
        "2⁻²⁴ of 1 + \\|result\\|": UNIT * (1 + np.log(total) - below),
        "2⁻²⁴ of \\|scale\\| max \\|x\\| / σ + \\|bias\\|": UNIT * (np.abs(scale) * largest / deviation + np.abs(bias)),
        "ulp of the result": spacing(wide / square * scale),
    }
    exact = {"Softmax": np.exp(below) / total, "LogSoftmax": below - np.log(total)}
    exact |= {"LayerNormalization": normal + bias, "RMSNormalization": wide / square * scale}
    for (name, y), output in zip(exact.items(), "plnr", strict=True):
        bound, of = table()[name]
        unit = np.broadcast_to(units[of], y.shape).ravel() + 1e-45
        most = float(bound.removesuffix(" + √n")) + (steps if bound.endswith("√n") else 0)
        assert_within(name, x.ravel(), found[output].ravel(), y.ravel(), unit, most)


SIZES = [(1, 1, 1), (5, 3, 17), (33, 64, 40), (7, 1000, 24)]


@pytest.mark.parametrize("isa", ALL, ids=lambda isa: isa.name)
@pytest.mark.parametrize(("m", "k", "n"), SIZES)
def test_sums_of_products(m: int, k: int, n: int, isa: Isa):
    rng = np.random.default_rng(k)
    a, b, c = (rng.standard_normal(s).astype(np.float32) for s in ((m, k), (k, n), (n,)))
    text = f"""(float[{m}, {k}] a, float[{k}, {n}] b, float[{n}] c) =>
        (float[{m}, {n}] p, float[{m}, {n}] q, float[{m}] s, float[{m}] t) {{
        axis = Constant<value = int64[1] {{1}}>()
        p = MatMul(a, b)
        q = Gemm(a, b, c)
        s = ReduceSum<keepdims = 0>(a, axis)
        t = ReduceMean<keepdims = 0>(a, axis)
    }}"""
    found = program(text, isa).run({"a": a, "b": b, "c": c})
    wa, wb, wc = (v.astype(np.float64) for v in (a, b, c))
    size = np.abs(wa) @ np.abs(wb)
    exact = {"MatMul": (wa @ wb, size, k), "Gemm": (wa @ wb + wc, size + np.abs(wc), k + 1)}
    exact |= {"ReduceSum": (wa.sum(1), np.abs(wa).sum(1), k), "ReduceMean": (wa.mean(1), np.abs(wa).mean(1), k)}
    for (name, (y, magnitude, count)), output in zip(exact.items(), "pqst", strict=True):
        assert table()[name] == ("1 + √n", "2⁻²⁴ of the sum of the magnitudes of the n products")
        most = 1 + math.sqrt(count)
        assert_within(name, y.ravel(), found[output].ravel(), y.ravel(), UNIT * magnitude.ravel(), most)


@pytest.mark.parametrize("isa", ALL, ids=lambda isa: isa.name)
@pytest.mark.parametrize("group", [1, 8, 24])
def test_convolutions(group: int, isa: Isa):
    rng = np.random.default_rng(group)
    x = rng.standard_normal((1, 24, 11, 13)).astype(np.float32)
    w = rng.standard_normal((48, 24 // group, 3, 3)).astype(np.float32)
    constant = ", ".join(map(repr, w.ravel().tolist()))
    text = f"""(float[1, 24, 11, 13] x) => (float[1, 48, 9, 11] y)
        <float[48, {24 // group}, 3, 3] w = {{{constant}}}> {{ y = Conv<group = {group}>(x, w) }}"""
    found = program(text, isa).run({"x": x})["y"]
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64)[0], (3, 3), (1, 2))
    windows = windows.reshape(group, 24 // group, 9, 11, 3, 3)
    kernels = w.astype(np.float64).reshape(group, 48 // group, 24 // group, 3, 3)
    parts = "gchwij,gocij->gohw"
    exact = np.einsum(parts, windows, kernels).ravel()
    magnitude = np.einsum(parts, np.abs(windows), np.abs(kernels)).ravel()
    assert table()["Conv"] == table()["MatMul"]
    assert_within("Conv", exact, found.ravel(), exact, UNIT * magnitude, 1 + math.sqrt(24 // group * 9))


@pytest.mark.parametrize("isa", ALL, ids=lambda isa: isa.name)
@pytest.mark.parametrize("size", [1, 5, 16, 33])
def test_rectified_zeros_keep_their_sign_as_in_onnxruntime(size: int, isa: Isa):
    text = f"""(float[{size}] x) => (float[{size}] r, float[{size}] l) {{
        r = Relu(x)
        l = LeakyRelu(x)
    }}"""
    x = np.where(np.arange(size) % 3 == 1, 0.0, -0.0).astype(np.float32)
    found = program(text, isa).run({"x": x})
    model = onnx.parser.parse_model(HEAD.replace("24", "21") + text)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for name, y in zip("rl", session.run(["r", "l"], {"x": x}), strict=True):
        np.testing.assert_array_equal(np.signbit(found[name]), np.signbit(np.asarray(y)), name)
