"""Transposed convolutions whose weights are inputs, in C for every instruction set, against float64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import eqsat
from eqsat import op
from eqsat.codegen import sharing
from eqsat.codegen.isa import SCALAR
from eqsat.codegen.runtime import CModel
from eqsat.execute.executor import Executor
from eqsat.model.load import load
from tests.codegen.kernels.vectors.harness import UNDEFINED, Case, run
from tests.codegen.kernels.vectors.test_random import with_epilogue
from tests.codegen.kernels.vectors.test_transposed_convolution import SHAPES, transposed_case

NAME = "transposed convolution of computed weights"


def cases(rng: np.random.Generator) -> list[Case]:
    """By turns with a constant bias and a computed one."""
    made = [transposed_case(rng, *given, **rest) for *given, rest in SHAPES.values()]
    return [replace(case, constant=frozenset({2} if k % 2 else ()), chosen=NAME) for k, case in enumerate(made)]


@pytest.mark.parametrize("gaps", [False, True])
def test_shapes(gaps: bool) -> None:
    run(cases(np.random.default_rng(1)), rng=np.random.default_rng(2) if gaps else None)


def test_epilogues() -> None:
    rng = np.random.default_rng(3)
    run([with_epilogue(rng, case) for case in cases(rng)[::2]], rng=rng)


@pytest.mark.slow
def test_undefined_behaviour() -> None:
    rng = np.random.default_rng(5)
    run(cases(rng)[1::3], rng=rng, optimization="-O1", flags=UNDEFINED)


def test_scalar_kernels_are_standard_c() -> None:
    rng = np.random.default_rng(6)
    run(cases(rng)[::2], isas=[SCALAR], optimization="-O3", flags=["-pedantic", "-Wshadow", "-Wconversion"])


def test_threads_and_types(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same with three threads, and with weights of float16, which are converted first."""
    for name in ("WORTH", "ENOUGH"):
        monkeypatch.setattr(sharing, name, 0.0)
    monkeypatch.setattr(sharing, "LEAST", 1e-15)
    x, w = eqsat.input("x", (2, 12, 9, 10)), eqsat.input("w", (12, 20, 3, 3))
    h, v = eqsat.input("h", (1, 8, 7), "float16"), eqsat.input("v", (8, 6, 4), "float16")
    made = [op.Relu(op.ConvTranspose(x, w, strides=[2, 2])), op.ConvTranspose(h, v, strides=[2], group=2)]
    loaded = load(eqsat.graph(made))
    rng = np.random.default_rng(7)
    feeds = {
        "x": rng.standard_normal((2, 12, 9, 10)).astype(np.float32),
        "w": rng.standard_normal((12, 20, 3, 3)).astype(np.float32),
        "h": rng.standard_normal((1, 8, 7)).astype(np.float16),
        "v": rng.standard_normal((8, 6, 4)).astype(np.float16),
    }
    compiled = CModel(loaded, threads=3)
    assert sum(kernel.family == NAME for kernel in compiled.emitted.kernels) == 2
    wanted, alone = Executor(loaded).run(feeds), CModel(loaded).run(feeds)
    for (name, found), tolerance in zip(compiled.run(feeds).items(), (1e-5, 2e-2), strict=True):
        np.testing.assert_allclose(found, np.asarray(wanted[name]), rtol=tolerance, atol=tolerance)
        np.testing.assert_array_equal(found, alone[name])


def test_no_images_have_a_price_and_a_kernel() -> None:
    x, w = eqsat.input("x", (0, 4, 5, 5)), eqsat.input("w", (4, 6, 3, 3))
    result = eqsat.optimize(eqsat.graph(op.ConvTranspose(x, w, strides=[2, 2])), host="c")
    feeds = {"x": np.zeros((0, 4, 5, 5), np.float32), "w": np.ones((4, 6, 3, 3), np.float32)}
    for backend in ("numpy", "c"):
        (found,) = result.run(feeds, backend=backend).values()
        assert found.shape == (0, 6, 11, 11)
