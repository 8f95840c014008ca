"""Convolutions from few channels in C for every instruction set, against float64, and where they are chosen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat import op
from eqsat.codegen import sharing
from eqsat.codegen.isa import SCALAR
from eqsat.codegen.runtime import CModel
from eqsat.model.load import load
from tests.codegen.kernels.vectors.harness import UNDEFINED, Case, run
from tests.codegen.kernels.vectors.test_direct_convolution import conv_case
from tests.codegen.kernels.vectors.test_random import with_epilogue

NAME = "convolution along rows"
SHAPES: dict[str, tuple[tuple[int, ...], int, tuple[int, ...], dict[str, Any]]] = {
    "sound": ((1, 1, 400), 37, (10,), dict(strides=(5,))),
    "far_apart": ((2, 2, 300), 12, (3,), dict(strides=(7,), pads=(4, 9))),
    "digits": ((1, 1, 28, 28), 33, (5, 5), {}),
    "colours": ((2, 3, 21, 23), 17, (7, 7), dict(strides=(2, 2), pads=(3, 3, 3, 3))),
    "dilated": ((1, 2, 19, 40), 5, (3, 4), dict(dilations=(2, 3), strides=(1, 2), pads=(2, 3, 1, 5))),
    "long": ((1, 1, 500), 9, (60,), dict(strides=(8,), pads=(30, 30))),
    "long_dilated": ((1, 3, 90), 9, (20,), dict(dilations=(3,), pads=(28, 29))),
    "longer_than_its_stride": ((1, 2, 300), 6, (17,), dict(strides=(31,), pads=(3, 0))),
    "groups": ((1, 12, 9, 17), 30, (3, 3), dict(group=6, pads=(1, 1, 1, 1), strides=(2, 1))),
    "solid": ((1, 1, 6, 7, 16), 7, (3, 3, 3), dict(pads=(1, 1, 1, 1, 1, 1), strides=(2, 1, 1))),
    "many_columns": ((1, 1, 9001), 6, (4,), dict(pads=(2, 1))),
    "many_strided": ((1, 2, 9000), 7, (5,), dict(strides=(2,), pads=(3, 4))),
    "parts_of_one_vector": ((1, 4, 6, 60), 11, (31, 1), dict(pads=(15, 0, 15, 0))),
    "beyond": ((1, 1, 3, 4), 5, (2, 2), dict(pads=(4, 5, 5, 6))),
    "before": ((1, 2, 5), 5, (3,), dict(pads=(40, 0), strides=(4,))),
    "pixels": ((2, 3, 9, 11), 21, (1, 1), dict(strides=(2, 1))),
}


def cases(rng: np.random.Generator) -> list[Case]:
    return [conv_case(rng, *given, chosen=NAME, **rest) for *given, rest in SHAPES.values()]


@pytest.mark.parametrize("gaps", [False, True])
def test_shapes(gaps: bool) -> None:
    run(cases(np.random.default_rng(1)), rng=np.random.default_rng(2) if gaps else None)


def test_epilogues() -> None:
    rng = np.random.default_rng(3)
    run([with_epilogue(rng, case) for case in cases(rng)[::2]], rng=rng)


@pytest.mark.slow
def test_undefined_behaviour() -> None:
    rng = np.random.default_rng(5)
    run(cases(rng)[::3], rng=rng, optimization="-O1", flags=UNDEFINED)


def test_scalar_kernels_are_standard_c() -> None:
    rng = np.random.default_rng(6)
    some = [conv_case(rng, *given, chosen=NAME, **rest) for *given, rest in list(SHAPES.values())[:8]]
    run(some, rng=rng, isas=[SCALAR], optimization="-O3", flags=["-pedantic", "-Wshadow", "-Wconversion"])


def model(*, last: bool = False) -> Any:
    """A first layer of sounds, and of images; ``last`` makes one that the channels' layout suits."""
    rng = np.random.default_rng(7)
    sound, image = eqsat.input("sound", (2, 1, 3000)), eqsat.input("image", (1, 1, 28, 28))
    w = rng.standard_normal((48, 1, 10)).astype(np.float32)
    y = op.Relu(op.Conv(sound, w, strides=[5]))
    v = rng.standard_normal((32, 1, 5, 5)).astype(np.float32)
    z = op.Relu(op.Conv(image, v, rng.standard_normal(32).astype(np.float32)))
    if last:
        z = op.Conv(z, rng.standard_normal((64, 32, 3, 3)).astype(np.float32))
    return eqsat.graph([y, z])


def test_first_layers_write_the_layout_of_their_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WORTH", "ENOUGH"):
        monkeypatch.setattr(sharing, name, 0.0)
    monkeypatch.setattr(sharing, "LEAST", 1e-15)
    loaded = load(model())
    compiled = CModel(loaded, threads=3)
    assert [kernel.family for kernel in compiled.emitted.kernels] == [NAME, NAME]
    rng = np.random.default_rng(8)
    inputs = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in
              (("sound", (2, 1, 3000)), ("image", (1, 1, 28, 28)))}  # fmt: skip
    found, alone = compiled.run(inputs), CModel(loaded).run(inputs)
    for name, array in found.items():
        np.testing.assert_array_equal(array, alone[name])
    families = [kernel.family for kernel in CModel(load(model(last=True))).emitted.kernels]
    assert families.count(NAME) == 1 and families.count("direct convolution") == 2
