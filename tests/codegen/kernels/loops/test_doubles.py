"""Products of float64 and one-hot vectors of largest elements in C, on every instruction set, against numpy."""

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
