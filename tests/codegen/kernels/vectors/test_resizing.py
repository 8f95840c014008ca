"""Resize in C for every instruction set, against the interpolation in float64."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from eqsat.codegen.isa import SCALAR
from eqsat.ops.families.resize import resize
from eqsat.schema.types import OpKey
from tests.codegen.kernels.vectors.harness import UNDEFINED, UNIT, Case, run
from tests.codegen.kernels.vectors.test_random import with_epilogue

RESIZE = OpKey("", "Resize")
TRANSFORMS = (
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_half_pixel_for_nn",
)  # fmt: skip
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


def resize_case(
    rng: np.random.Generator, shape: Sequence[int], *, scales: Sequence[float] = (), sizes: Sequence[int] = (), **more
) -> Case:
    """A case with random data; ``more`` are attributes."""
    attributes = dict(mode="linear") | more
    x = rng.standard_normal(tuple(shape)).astype(np.float32)
    by_scale = np.array(scales, np.float32) if scales else None
    by_size = np.array(sizes, np.int64) if sizes else None
    y = resize(attributes, x.astype(np.float64), None, by_scale, by_size)
    reach = resize(attributes, np.abs(x).astype(np.float64), None, by_scale, by_size)
    tolerance = 0.0 if attributes["mode"] == "nearest" else 40 * UNIT * (np.abs(reach) + 3 * np.abs(x).max())
    return Case(RESIZE, attributes, [x, None, by_scale, by_size], frozenset({2, 3}), y, tolerance)


CASES = {
    "doubled": dict(shape=(1, 5, 9, 21), scales=(1, 1, 2, 2)),
    "doubled nearest": dict(
        shape=(1, 5, 9, 21),
        scales=(1, 1, 2, 2),
        mode="nearest",
        nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    ),
    "tripled": dict(shape=(2, 3, 5, 18), scales=(1, 1, 3, 3)),
    "four times": dict(shape=(1, 4, 5, 35), scales=(1, 1, 4, 4), mode="cubic"),
    "eight times": dict(shape=(1, 3, 4, 17), scales=(1, 1, 8, 8), mode="nearest"),
    "corners": dict(shape=(1, 3, 8, 30), scales=(1, 1, 4, 2), coordinate_transformation_mode="align_corners"),
    "halved": dict(shape=(1, 3, 16, 66), scales=(1, 1, 0.5, 0.5)),
    "halved smoothly": dict(shape=(1, 3, 16, 66), scales=(1, 1, 0.5, 0.5), antialias=1),
    "shrunk": dict(shape=(1, 3, 40, 70), sizes=(1, 3, 13, 17), mode="cubic", antialias=1),
    "odd sizes": dict(shape=(1, 6, 7, 23), sizes=(1, 6, 12, 57)),
    "some outside": dict(shape=(1, 6, 7, 23), scales=(1, 1, 2, 2), mode="cubic", exclude_outside=1),
    "one axis": dict(shape=(3, 7, 50), scales=(1, 1, 2), mode="nearest"),
    "columns": dict(shape=(1, 3, 20, 40), scales=(1, 1, 1, 1.7)),
    "rows": dict(shape=(1, 3, 20, 40), scales=(1, 1, 1.7, 1)),
    "three axes": dict(shape=(1, 3, 4, 5, 20), scales=(1, 1, 2, 2, 2)),
    "channels last": dict(shape=(1, 6, 7, 37), scales=(1, 2, 2, 1)),
    "tiny": dict(shape=(1, 2, 3, 3), scales=(1, 1, 2, 2)),
    "from one element": dict(shape=(1, 9, 1, 1), sizes=(1, 9, 6, 5)),
    "to one element": dict(shape=(1, 9, 6, 5), sizes=(1, 9, 1, 1)),
}


@pytest.mark.parametrize("gaps", [False, True])
def test_cases(gaps):
    rng = np.random.default_rng(1)
    run([resize_case(rng, **given) for given in CASES.values()], rng=np.random.default_rng(2) if gaps else None)


def random_case(rng: np.random.Generator) -> Case:
    """All modes, any axes, a random epilogue."""
    rank = int(rng.choice([3, 4, 4, 4, 5]))
    shape = [int(n) for n in rng.integers(1, 9, rank)]
    shape[-1] = int(rng.choice([shape[-1], 17, 32, 45]))
    changed = rng.random(rank) < 0.6
    changed[: rank - 3] = False
    mode = str(rng.choice(["nearest", "linear", "linear", "cubic"]))
    if rng.integers(2):
        scales = [float(rng.choice([0.4, 0.5, 1.3, 2, 2, 3, 4, 5])) if c else 1.0 for c in changed]
        scales = [s if s * n >= 1 else 1.0 for s, n in zip(scales, shape, strict=True)]
        given = dict(scales=scales)
    else:
        given = dict(sizes=[int(rng.integers(1, 40)) if c else n for c, n in zip(changed, shape, strict=True)])
    case = resize_case(
        rng, shape, **given, mode=mode, coordinate_transformation_mode=str(rng.choice(TRANSFORMS)),
        nearest_mode=str(rng.choice(ROUNDINGS)), exclude_outside=int(mode == "cubic" and rng.integers(2)),
        antialias=int(mode != "nearest" and rng.integers(2)),
    )  # fmt: skip
    return with_epilogue(rng, case)


@pytest.mark.parametrize("seed", range(3))
def test_random(seed):
    rng = np.random.default_rng([3, seed])
    run([random_case(rng) for _ in range(12)], rng=rng)


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(16))
def test_many(seed):
    rng = np.random.default_rng([4, seed])
    cases = [random_case(rng) for _ in range(16)]
    run(cases, rng=rng if seed % 2 else None, optimization="-O2" if seed % 3 else "-O3")


def test_undefined_behaviour():
    rng = np.random.default_rng(5)
    run([random_case(rng) for _ in range(6)], rng=rng, optimization="-O1", flags=UNDEFINED)


def test_scalar_kernels_are_standard_c():
    rng = np.random.default_rng(6)
    cases = [random_case(rng) for _ in range(8)]
    run(cases, rng=rng, isas=[SCALAR], optimization="-O3", flags=["-pedantic", "-Wshadow", "-Wconversion"])
