"""Integer convolutions whose weights are computed, in C for every instruction set, to the bit of the numpy executor."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

import eqsat
from eqsat import op
from eqsat.codegen import sharing
from eqsat.codegen.runtime import CModel
from eqsat.execute.inputs import complete_inputs
from eqsat.model.load import load
from tests.codegen.kernels.bytes.harness import Case, isas, run, step
from tests.codegen.kernels.bytes.test_conv import INTEGER, SHAPES, TYPES, attributes, conv_case, draw

pytestmark = pytest.mark.slow

NAME = "integer convolution of computed weights"
FEW = ("narrow_groups",)
"""Shapes whose groups have too few channels."""


def linear(rng, name, **more) -> Case:
    """A QLinearConv in one of the shapes."""
    shape, outputs, kernel, geometry = SHAPES[name]
    case = conv_case(rng, shape, outputs, kernel, family=NAME, **geometry, **more)
    case.constant -= {3}
    return case


@pytest.mark.parametrize("types", TYPES, ids=["u8s8", "s8s8", "u8u8"])
def test_shapes(types):
    rng = np.random.default_rng(1)
    x_type, w_type = types
    zero = 128 if w_type == np.uint8 else 0
    cases = [linear(rng, name, x_type=x_type, w_type=w_type, w_zero=zero) for name in SHAPES if name not in FEW]
    run(cases, rng=rng, chosen=isas(all_widths=types == TYPES[0]))


def test_scales_and_zero_points():
    """One scale or one a channel, with and without bias, zero points of all weights or of each channel."""
    rng = np.random.default_rng(2)
    cases = [
        linear(rng, name, x_type=x, w_type=w, per_channel=p, bias=b, w_zero=z)
        for name in ("window_odd", "groups")
        for x, w in TYPES
        for p in (True, False)
        for b, z in ((True, 7), (False, 100))
    ]
    for name in ("window_odd", "groups"):
        cases.append(linear(rng, name, w_type=np.uint8, w_zero=rng.integers(0, 256, SHAPES[name][1])))
    run(cases, rng=rng)


@pytest.mark.parametrize("x_type,w_type", TYPES)
def test_extremes_do_not_saturate_inside(x_type, w_type):
    rng = np.random.default_rng(3)
    x, w = np.iinfo(x_type), np.iinfo(w_type)
    cases = []
    for a, z in ((x.max, x.min), (x.min, x.max)):
        for b, w_zero in ((w.min, 0), (w.max, 0), (w.max, w.min)):
            given: dict[str, Any] = dict(x_type=x_type, w_type=w_type, fill=(a, b), x_zero=z, w_zero=w_zero)
            cases.append(linear(rng, "window", spread=60.0, **given))
    run(cases, rng=rng)


def test_integer_sums():
    """No zero points, known ones, computed ones, of all channels or of each; steps after the sums."""
    rng = np.random.default_rng(4)
    cases = []
    for name in ("window_odd", "groups", "one_axis"):
        shape, outputs, kernel, more = SHAPES[name]
        attrs = attributes(len(kernel), kernel, **more)
        for x_type, w_type in TYPES:
            x, w = draw(rng, shape, x_type), draw(rng, (outputs, shape[1] // attrs["group"], *kernel), w_type)
            zero, one, each = draw(rng, (), x_type), draw(rng, (), w_type), draw(rng, outputs, w_type)
            for zeros in ((None, None), (zero, None), (zero, one), (zero, each)):
                for constant in ({2, 3}, {2}, {3}, set()):
                    if constant <= {2 + i for i, z in enumerate(zeros) if z is not None}:
                        cases.append(Case(INTEGER, attrs, [x, w, *zeros], frozenset(constant), NAME))
            steps = [step("Cast", 0, dtype=np.float32, to=1), step("Mul", 2, 1, dtype=np.float32)]
            scale = [np.full((1,) * len(shape), 0.013, np.float32)]
            cases.append(Case(INTEGER, attrs, [x, w, zero, one], frozenset(), NAME, steps, scale))
    run(cases, rng=rng)


def test_few_channels_stay_in_loops() -> None:
    x, w = eqsat.input("x", (1, 4, 9, 9), "uint8"), eqsat.input("w", (4, 1, 3, 3), "uint8")
    found = CModel(load(eqsat.graph(op.ConvInteger(x, w, group=4)))).emitted.kernels
    assert [kernel.family for kernel in found] == ["integer convolution loops"]


@pytest.mark.parametrize("threads", [1, 3])
def test_whole_programs(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against ONNX Runtime, which has no ``ConvInteger`` of signed operands."""
    monkeypatch.setattr(sharing, "WORTH", 0.0)
    monkeypatch.setattr(sharing, "ENOUGH", 0.0)
    monkeypatch.setattr(sharing, "LEAST", 1e-15)
    results = []
    for name in ("window", "window_odd", "groups", "one_axis", "first_layer"):
        shape, outputs, kernel, more = SHAPES[name]
        x = eqsat.input(f"x_{name}", shape, "uint8")
        w = eqsat.input(f"w_{name}", (outputs, shape[1] // more.get("group", 1), *kernel), "uint8")
        given: dict[str, Any] = {k: v if isinstance(v, int) else list(v) for k, v in more.items()}
        made = op.ConvInteger(x, w, np.uint8(7), np.uint8(90), **given)
        results.append(op.Cast(made, to=1) * np.float32(0.25))
    graph = eqsat.graph(results)
    compiled = CModel(load(graph), threads=threads)
    assert [kernel.family for kernel in compiled.emitted.kernels].count(NAME) == len(results)
    inputs = complete_inputs(load(graph), seed=3)
    want = onnxruntime.InferenceSession(ir.to_proto(graph).SerializeToString()).run(None, inputs)
    for found, exact in zip(compiled.run(inputs).values(), want, strict=True):
        np.testing.assert_array_equal(found, exact)
