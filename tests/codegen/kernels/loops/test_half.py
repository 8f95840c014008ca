"""Conversions between float16 and float32 in C, to the bit: every float16, and floats at the limits of rounding."""

from __future__ import annotations

import functools

import numpy as np
import onnx
import pytest

from eqsat.codegen.isa import ALL, PORTABLE, SCALAR, Isa
from eqsat.codegen.runtime import CModel
from eqsat.model.load import load
from tests.codegen.kernels.vectors.harness import runnable

HALVES = np.arange(1 << 16, dtype=np.uint16).view(np.float16)


@functools.cache
def floats() -> np.ndarray:
    """Every float16, the middle between it and the next one, the floats beside that, and any bits."""
    exact = HALVES.astype(np.float32)
    with np.errstate(all="ignore"):
        middle = ((exact[:-1].astype(np.float64) + exact[1:]) / 2).astype(np.float32)
    beside = [(middle.view(np.int32) + by).view(np.float32) for by in (-1, 1)]
    bits = np.random.default_rng(0).integers(0, 1 << 32, 1 << 18, dtype=np.uint64).astype(np.uint32)
    return np.concatenate([exact, middle, *beside, bits.view(np.float32)])


def converted(x: np.ndarray, isa: Isa) -> np.ndarray:
    source, target, number = ("float16", "float", 1) if x.dtype == np.float16 else ("float", "float16", 10)
    graph = f"g ({source}[{len(x)}] x) => ({target}[{len(x)}] y) {{y = Cast<to={number}>(x)}}"
    model = load(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> {graph}'))
    isas, flags = ((PORTABLE, SCALAR), ("-DMODEL_SCALAR",)) if isa is SCALAR else ((isa,), ())
    return CModel(model, isas=isas, flags=flags).run({"x": x})["y"]


@pytest.mark.parametrize("isa", ALL, ids=lambda isa: isa.name)
@pytest.mark.parametrize("x", [HALVES, floats()], ids=["to_float32", "to_float16"])
def test_bits(x: np.ndarray, isa: Isa):
    if isa not in runnable():
        pytest.skip(f"no {isa.name} here")
    found = converted(x, isa)
    with np.errstate(all="ignore"):
        wanted = x.astype(found.dtype)
    numbers = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.isnan(found), ~numbers)
    unsigned = np.uint16 if found.dtype == np.float16 else np.uint32
    np.testing.assert_array_equal(found[numbers].view(unsigned), wanted[numbers].view(unsigned))
