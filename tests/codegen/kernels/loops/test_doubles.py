"""Products, functions and reductions of float64 and one-hot vectors in C, on every instruction set, against numpy."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import eqsat
from eqsat import op
from eqsat.codegen import sharing
from eqsat.codegen.isa import ALL, PORTABLE, SCALAR, Isa
from eqsat.codegen.runtime import CModel
from eqsat.execute.inputs import complete_inputs
from eqsat.model.load import load
from tests.codegen.kernels.kernel_cases import runnable

UNDEFINED = ("-fsanitize=undefined", "-fsanitize-undefined-trap-on-error")
PRODUCTS = (
    ((8, 16), (16, 16)),
    ((5, 7), (7, 33)),
    ((13, 40), (40, 1)),
    ((3, 12), (12, 20)),
    ((2, 3, 9, 6), (3, 6, 21)),
    ((4, 9, 6), (6, 17)),
    ((31, 1), (1, 31)),
    ((5, 0), (0, 4)),
)


def products() -> tuple[ir.Model, list[tuple[str, str]]]:
    """Products in several shapes, and Gemm with transposed operands, factors and an addend."""
    results, names = [], []
    for number, (left, right) in enumerate(PRODUCTS):
        a, b = (eqsat.input(f"{name}{number}", shape, "float64") for name, shape in (("a", left), ("b", right)))
        results.append(op.Relu(op.MatMul(a, b)))
        names.append((f"a{number}", f"b{number}"))
    a, b, c = (eqsat.input(n, s, "float64") for n, s in (("a", (19, 11)), ("b", (23, 19)), ("c", (23,))))
    results.append(op.Gemm(a, b, c, transA=1, transB=1, alpha=0.5, beta=2.0))
    return eqsat.graph(results), names


def compiled(model: ir.Model, isa: Isa, threads: int = 1) -> CModel:
    if isa not in (*runnable(), SCALAR):
        pytest.skip(f"this machine does not have {isa.name}")
    flags = (*UNDEFINED, "-DMODEL_SCALAR") if isa is SCALAR else UNDEFINED
    return CModel(load(model), isas=[PORTABLE, SCALAR] if isa is SCALAR else [isa], flags=flags, threads=threads)


@pytest.mark.parametrize("isa", ALL, ids=[isa.name for isa in ALL])
def test_products(isa: Isa, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WORTH", "ENOUGH"):
        monkeypatch.setattr(sharing, name, 0.0)
    monkeypatch.setattr(sharing, "LEAST", 1e-15)
    model, names = products()
    feeds = complete_inputs(load(model), seed=3)
    wanted = [np.maximum(feeds[a] @ feeds[b], 0) for a, b in names]
    wanted.append(0.5 * feeds["a"].T @ feeds["b"].T + 2.0 * feeds["c"])
    alone = compiled(model, isa).run(feeds)
    shared = compiled(model, isa, threads=3).run(feeds)
    for (name, found), exact in zip(alone.items(), wanted, strict=True):
        np.testing.assert_allclose(found, exact, rtol=0, atol=1e-14 * np.abs(exact).max(initial=0))
        np.testing.assert_array_equal(shared[name], found)


@pytest.mark.parametrize("isa", ALL, ids=[isa.name for isa in ALL])
def test_hardmax(isa: Isa) -> None:
    rng = np.random.default_rng(5)
    draws = []
    for shape, axis in (((3, 70), 1), ((3, 70), 0), ((2, 5, 37), 1), ((7,), 0), ((4, 1), 1)):
        draws.append((rng.standard_normal(shape), axis))
        draws.append((rng.choice([np.nan, 1.0, -np.inf, np.inf, 0.0], shape), axis))
    inputs = [eqsat.input(f"x{i}", x.shape) for i, (x, _) in enumerate(draws)]
    model = eqsat.graph([op.Hardmax(x, axis=axis) for x, (_, axis) in zip(inputs, draws, strict=True)])
    feeds = {f"x{i}": x.astype(np.float32) for i, (x, _) in enumerate(draws)}
    for found, (x, axis) in zip(compiled(model, isa).run(feeds).values(), draws, strict=True):
        wanted = np.zeros(x.shape, np.float32)
        np.put_along_axis(wanted, np.expand_dims(x.astype(np.float32).argmax(axis), axis), 1, axis)
        np.testing.assert_array_equal(found, wanted)


def units(found: np.ndarray, exact: np.ndarray) -> float:
    """The greatest distance from exact results, in units of their last place; NaN and infinities must agree."""
    wanted = exact.astype(np.float64)
    finite = np.isfinite(wanted)
    np.testing.assert_array_equal(found[~finite], wanted[~finite])
    ulp = np.spacing(np.abs(wanted[finite])).astype(np.longdouble)
    return float((np.abs(found[finite].astype(np.longdouble) - exact[finite]) / ulp).max())


@pytest.mark.parametrize("isa", ALL, ids=[isa.name for isa in ALL])
def test_functions(isa: Isa) -> None:
    """Over the whole range, denormals and their neighbours, and where functions are almost linear."""
    rng = np.random.default_rng(8)
    edges = [0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, 1.0, 709.79]
    edges += [-708.4, -745.13, -745.14, 22.0, 0.34657359, 0.7071067811865476, 1.4142135623730951]
    wide = np.exp(rng.uniform(-700, 700, 4000)) * rng.choice([-1, 1], 4000)
    near = np.concatenate([rng.uniform(-2, 2, 4000), rng.uniform(-745, 710, 4001), 1 + rng.normal(0, 1e-3, 4000)])
    x = np.concatenate([edges, wide, near])
    a = eqsat.input("x", x.shape, "float64")
    with np.errstate(all="ignore"):
        exact = x.astype(np.longdouble)
        wanted = [np.exp(exact), np.log(exact), np.tanh(exact), 1 / (1 + np.exp(-exact))]
        rounded = [w.astype(np.float64) for w in wanted]
    assert all(np.isfinite(w).sum() > len(x) / 3 for w in rounded)
    found = compiled(eqsat.graph([op.Exp(a), op.Log(a), op.Tanh(a), op.Sigmoid(a)]), isa).run({"x": x})
    small = x < -700  # where 1 + e^-x is too large for a double
    for (name, y), want, most in zip(found.items(), wanted, (1.0, 1.0, 3.0, 3.0), strict=True):
        distance = units(y[~small], want[~small]) if name == list(found)[3] else units(y, want)
        assert distance <= most, f"{name}: {distance}"
    tanh = list(found.values())[2]
    assert np.array_equal(np.signbit(tanh[:4]), [False, True, False, True])


@pytest.mark.parametrize("isa", ALL, ids=[isa.name for isa in ALL])
def test_softmax(isa: Isa) -> None:
    """Lines shorter and longer than what is summed at once, along any axis; infinities and NaN."""
    rng = np.random.default_rng(9)
    results, wanted, feeds = [], [], {}
    for number, (shape, axis) in enumerate([((3, 1), 1), ((5, 15), 1), ((3, 16), 1), ((4, 77), 1), ((40, 6), 0)]):
        x = rng.normal(0, 20, shape)
        x.flat[0] = (np.inf, -np.inf, np.nan)[number % 3]
        feeds[f"x{number}"] = x
        a = eqsat.input(f"x{number}", shape, "float64")
        results += [op.Softmax(a, axis=axis), op.LogSoftmax(a, axis=axis)]
        with np.errstate(invalid="ignore"):
            less = x.astype(np.longdouble) - x.max(axis, keepdims=True)
            total = np.exp(less).sum(axis, keepdims=True)
            wanted += [np.exp(less) / total, less - np.log(total)]
    for (name, found), want in zip(compiled(eqsat.graph(results), isa).run(feeds).items(), wanted, strict=True):
        np.testing.assert_allclose(found, want.astype(np.float64), rtol=1e-13, atol=1e-14, err_msg=name)


@pytest.mark.parametrize("isa", ALL, ids=[isa.name for isa in ALL])
@pytest.mark.parametrize("dtype", ["float64", "int32", "int64"])
def test_reductions_across_rows(dtype: str, isa: Isa, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neighbours of the result are summed together: fewer than are at once, as many, and more, by several threads."""
    for name in ("WORTH", "ENOUGH"):
        monkeypatch.setattr(sharing, name, 0.0)
    monkeypatch.setattr(sharing, "LEAST", 1e-15)
    functions = {"Sum": np.sum, "Mean": np.mean, "Max": np.max, "Min": np.min, "Prod": np.prod}
    results, wanted, feeds = [], [], {}
    rng = np.random.default_rng(10)
    draws = (((7, 5), (0,)), ((3, 256), (0,)), ((2, 3, 257), (1,)), ((4, 2, 3, 9), (0, 2)), ((9, 600), (0,)))
    for shape, axes in draws:
        x = rng.integers(-9, 9, shape).astype(dtype)
        if dtype == "float64":
            x = rng.standard_normal(shape)
            x.flat[[0, 2]] = np.nan, np.inf
        feeds[f"x{len(feeds)}"] = x
        a = eqsat.input(f"x{len(feeds) - 1}", shape, dtype)
        for keep, (name, function) in enumerate(functions.items()):
            y = getattr(op, f"Reduce{name}")(a, np.array(axes), keepdims=keep % 2)
            results.append(op.Abs(y) if keep == 2 else y)
            with np.errstate(all="ignore"):
                want = function(x, axis=axes, keepdims=bool(keep % 2))
            wanted.append(np.abs(want) if keep == 2 else want if dtype == "float64" else np.trunc(want))
    model = eqsat.graph(results)
    alone, shared = compiled(model, isa).run(feeds), compiled(model, isa, threads=3).run(feeds)
    for (name, found), want in zip(alone.items(), wanted, strict=True):
        np.testing.assert_allclose(found, want.astype(dtype), rtol=1e-14, atol=1e-13, err_msg=name)
        np.testing.assert_array_equal(shared[name], found)
