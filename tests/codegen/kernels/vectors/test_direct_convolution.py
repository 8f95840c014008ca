"""Direct convolution in C for every instruction set, against float64."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

import eqsat
from eqsat import op
from eqsat.codegen.compiler import FLAGS, find_compiler
from eqsat.codegen.folder import write_program
from eqsat.codegen.isa import AVX2, SCALAR
from eqsat.codegen.kernels.shared.tiling import choose, texts
from eqsat.model.load import load
from eqsat.schema.types import OpKey
from tests.codegen.kernels.vectors.harness import UNIT, Case, run

CONV = OpKey("", "Conv")


def convolution(x, w, b, strides, dilations, pads, group):
    """Convolution in float64, and the same with absolute values: what errors are proportional to."""
    rank = x.ndim - 2
    widths = [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)]

    def compute(x, w):
        x = np.pad(x.astype(np.float64), widths)
        span = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilations, strict=True)]
        windows = np.lib.stride_tricks.sliding_window_view(x, span, tuple(range(2, 2 + rank)))
        spatial = tuple(slice(None, None, s) for s in strides)
        windows = windows[(slice(None), slice(None), *spatial, *(slice(None, None, d) for d in dilations))]
        n, c = windows.shape[:2]
        out = windows.shape[2 : 2 + rank]
        windows = windows.reshape(n, group, c // group, int(np.prod(out)), -1)
        weights = w.astype(np.float64).reshape(group, w.shape[0] // group, c // group, -1)
        return np.einsum("ngcpk,gock->ngop", windows, weights).reshape(n, w.shape[0], *out)

    y, scale = compute(x, w), compute(np.abs(x), np.abs(w))
    if b is not None:
        offset = b.astype(np.float64).reshape(1, -1, *[1] * rank)
        y, scale = y + offset, scale + np.abs(offset)
    return y, scale


def conv_case(rng, shape, outputs, kernel, *, strides=None, dilations=None, pads=None, group=1, bias=True, **more):
    """A case with random data; ``finish(y, scale)`` gives what the epilogue makes of both."""
    rank = len(kernel)
    strides, dilations = strides or (1,) * rank, dilations or (1,) * rank
    pads = pads or (0,) * (2 * rank)
    x = rng.standard_normal(shape).astype(np.float32)
    w = rng.standard_normal((outputs, shape[1] // group, *kernel)).astype(np.float32)
    b = rng.standard_normal(outputs).astype(np.float32) if bias else None
    y, scale = convolution(x, w, b, strides, dilations, pads, group)
    finish = more.pop("finish", lambda y, scale: (y, scale))
    y, scale = finish(y, scale)
    terms = int(np.prod(w.shape[1:])) + 2
    attributes = dict(
        strides=strides, dilations=dilations, pads=pads, group=group, auto_pad="NOTSET", kernel_shape=kernel
    )
    tolerance = (4 + 2 * np.sqrt(terms)) * UNIT * scale
    return Case(CONV, attributes, [x, w, b], frozenset({1, 2}), y, tolerance, **more)


SHAPES = {
    "pointwise": ((1, 24, 5, 7), 40, (1, 1), {}),
    "pointwise_batch": ((3, 16, 4, 4), 64, (1, 1), {}),
    "pointwise_stride": ((1, 20, 9, 8), 17, (1, 1), dict(strides=(2, 2))),
    "first_layer": ((1, 3, 21, 23), 16, (7, 7), dict(strides=(2, 2), pads=(3, 3, 3, 3))),
    "same": ((1, 16, 14, 14), 64, (3, 3), dict(pads=(1, 1, 1, 1))),
    "tall": ((2, 8, 30, 1), 48, (3, 1), dict(pads=(1, 0, 1, 0))),
    "uneven_pads": ((1, 5, 10, 9), 7, (2, 4), dict(pads=(0, 1, 1, 3))),
    "dilated": ((1, 12, 15, 17), 33, (3, 3), dict(dilations=(2, 3), pads=(2, 3, 2, 3))),
    "taps_in_padding": ((1, 12, 6, 7), 33, (3, 3), dict(dilations=(6, 9), pads=(6, 9, 6, 9))),
    "some_taps_in_padding": ((1, 9, 5, 8), 17, (5, 3), dict(dilations=(3, 8), pads=(6, 9, 6, 10), strides=(2, 3))),
    "half_in_padding": ((1, 12, 9, 20), 33, (3, 3), dict(dilations=(5, 12), pads=(5, 12, 5, 12))),
    "half_in_padding_of_groups": ((2, 10, 9, 20), 34, (3, 3), dict(dilations=(5, 12), pads=(5, 12, 5, 12), group=2)),
    "half_in_padding_of_a_row": ((1, 12, 20), 33, (3,), dict(dilations=(12,), pads=(12, 12))),
    "half_in_padding_strided": (
        (1, 5, 18, 40),
        33,
        (3, 3),
        dict(dilations=(11, 24), pads=(11, 24, 11, 24), strides=(2, 2)),
    ),
    "nothing_but_padding": ((1, 6, 3, 3), 17, (2, 2), dict(dilations=(7, 9), pads=(3, 5, 3, 5))),
    "groups": ((1, 24, 6, 6), 36, (3, 3), dict(group=3, pads=(1, 1, 1, 1), strides=(2, 1))),
    "narrow_groups": ((1, 32, 5, 5), 16, (3, 3), dict(group=8, pads=(1, 1, 1, 1))),
    "one_channel": ((1, 1, 12, 12), 1, (5, 5), {}),
    "window_is_all": ((2, 6, 4, 4), 130, (4, 4), {}),
    "conv1d": ((2, 10, 40), 20, (5,), dict(pads=(2, 2), strides=(2,))),
    "conv3d": ((1, 4, 5, 6, 7), 18, (2, 3, 3), dict(pads=(1, 1, 1, 0, 1, 1))),
    "many_channels": ((1, 256, 3, 3), 200, (1, 1), {}),
    "pages": ((1, 1024, 7, 7), 32, (1, 1), {}),
    "far_weights": ((1, 130, 5, 7), 250, (3, 3), dict(pads=(1, 1, 1, 1))),
    "part_of_a_vector_remains": ((1, 13, 9, 11), 43, (3, 3), dict(pads=(1, 1, 1, 1))),
    "pads_beyond": ((1, 3, 4, 4), 8, (3, 3), dict(pads=(3, 4, 4, 3), strides=(3, 3))),
}


@pytest.mark.slow
@pytest.mark.parametrize("gaps", [False, True])
def test_shapes(gaps):
    rng = np.random.default_rng(1)
    cases = [conv_case(rng, shape, outputs, kernel, **rest) for shape, outputs, kernel, rest in SHAPES.values()]
    run(cases, rng=np.random.default_rng(2) if gaps else None)


DEPTHWISE = {
    "square": ((1, 32, 14, 14), (3, 3), dict(pads=(1, 1, 1, 1))),
    "stride": ((2, 24, 13, 15), (3, 3), dict(pads=(1, 1, 1, 1), strides=(2, 2))),
    "odd": ((1, 37, 9, 7), (5, 5), dict(pads=(2, 1, 2, 3))),
    "few": ((1, 3, 9, 19), (3, 3), dict(dilations=(2, 2))),
    "large": ((1, 20, 12, 12), (7, 7), dict(pads=(3, 3, 3, 3))),
    "wide": ((1, 18, 40), (31,), dict(pads=(15, 15))),
    "solid": ((1, 17, 4, 5, 6), (3, 3, 3), dict(pads=(1, 1, 1, 1, 1, 1))),
    "far": ((1, 96, 28, 28), (3, 3), dict(pads=(1, 1, 1, 1))),
}


@pytest.mark.parametrize("gaps", [False, True])
def test_depthwise(gaps):
    rng = np.random.default_rng(1)
    cases = [
        conv_case(rng, shape, shape[1], kernel, group=shape[1], rank=20, **rest)
        for shape, kernel, rest in DEPTHWISE.values()
    ]
    run(cases, rng=np.random.default_rng(2) if gaps else None)


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("many", [2, 4])
def test_several_windows_of_a_channel(gaps: bool, many: int):
    rng = np.random.default_rng(4)
    cases = [
        conv_case(rng, shape, many * shape[1], kernel, group=shape[1], rank=20, **rest)
        for shape, kernel, rest in DEPTHWISE.values()
    ]
    run(cases, rng=np.random.default_rng(5) if gaps else None)


NARROW = {
    "image": ((1, 16, 9, 40), 3, (3, 3), dict(pads=(1, 1, 1, 1))),
    "mask": ((2, 10, 5, 67), 1, (1, 1), {}),
    "style": ((1, 4, 12, 30), 3, (9, 9), dict(pads=(4, 4, 4, 4))),
    "dilated": ((1, 6, 9, 33), 2, (3, 2), dict(dilations=(2, 5), pads=(1, 3, 2, 2), strides=(2, 1))),
    "groups": ((1, 12, 5, 19), 8, (3, 3), dict(group=4, pads=(0, 1, 1, 0))),
    "sound": ((1, 7, 200), 1, (41,), dict(pads=(20, 20))),
    "solid": ((1, 3, 4, 5, 16), 4, (2, 3, 3), dict(pads=(1, 1, 1, 0, 1, 1))),
}


@pytest.mark.parametrize("gaps", [False, True])
def test_few_channels(gaps):
    rng = np.random.default_rng(1)
    cases = [conv_case(rng, *given, rank=12, **rest) for *given, rest in NARROW.values()]
    run(cases, rng=np.random.default_rng(2) if gaps else None)


def test_taps_in_padding_take_no_time():
    """Of a window that is dilated beyond the image only the middle is computed, and no halo is asked for."""
    case = conv_case(np.random.default_rng(3), (1, 12, 6, 7), 33, (3, 3), dilations=(6, 9), pads=(6, 9, 6, 9), rank=10)
    family, task = case.build(None)
    assert family.wants(task).input(0).halo == ((0, 0),) * 4
    assert family.generate(task, SCALAR).constants[0].size < 2 * 12 * 33 + 200


def test_a_window_that_is_half_in_padding_needs_no_halo():
    """Outputs are computed by the taps that reach them, from one set of weights."""
    case = conv_case(np.random.default_rng(4), (1, 12, 9, 20), 33, (3, 3), dilations=(5, 12), pads=(5, 12, 5, 12))
    family, task = case.build(None)
    assert family.wants(task).input(0).halo == ()
    assert family.generate(task, SCALAR).constants[0].size < (9 * 12 + 1) * 48 + 200
    near = conv_case(np.random.default_rng(4), (1, 12, 9, 10), 33, (3, 3), pads=(1, 1, 1, 1))
    family, task = near.build(None)
    assert family.wants(task).input(0).halo == ((0, 0), (0, 0), (1, 1), (1, 1))


def test_far_weights_are_read_once():
    """Tiles of all sizes use a panel of weights before the next one is read."""
    case = conv_case(np.random.default_rng(5), (1, 256, 7, 7), 256, (3, 3), pads=(1, 1, 1, 1))
    family, task = case.build(None)
    text = family.generate(task, AVX2).body
    assert text.count("(size_t o = 0;") == 1 < text.count("const float *wr")


@pytest.mark.parametrize("gaps", [False, True])
def test_tiles_go_on_in_the_next_row(gaps: bool):
    """Tiles of rows alone would leave registers empty."""
    rng = np.random.default_rng(8)
    cases = [
        conv_case(rng, (1, 256, 7, 7), 200, (3, 3), pads=(1, 1, 1, 1)),
        conv_case(rng, (2, 300, 3, 11), 104, (3, 3), pads=(1, 1, 1, 1)),
        conv_case(rng, (1, 300, 27, 9), 110, (3, 3), strides=(2, 1), pads=(1, 1, 1, 1)),
    ]
    assert choose(7, 7, 9216, 1024, 25, 2304, AVX2, across=True).across
    run(cases, rng=rng if gaps else None)


@pytest.mark.parametrize("gaps", [False, True])
def test_blocks_of_rows(gaps: bool):
    """Input and result are larger than the second cache; images, and rows of them, go around the weights."""
    rng = np.random.default_rng(9)
    cases = [
        conv_case(rng, (2, 40, 38, 33), 170, (3, 3), pads=(1, 1, 1, 1)),
        conv_case(rng, (1, 24, 79, 45), 270, (2, 1), strides=(2, 1)),
    ]
    for case in cases:
        family, task = case.build(None)
        assert "size_t m = 0" in family.generate(task, AVX2).body
    run(cases, rng=rng if gaps else None)


def test_narrow_parts_of_padding():
    """Parts of one and two columns are computed apart if much of the windows is padding."""
    rng = np.random.default_rng(10)
    cases = [
        conv_case(rng, (1, 40, 14, 14), 34, (3, 3), dilations=(12, 12), pads=(12, 12, 12, 12), rank=10),
        conv_case(rng, (1, 9, 15, 13), 20, (3, 3), dilations=(7, 6), pads=(7, 6, 7, 6), rank=10),
    ]
    for case in cases:
        family, task = case.build(None)
        assert family.wants(task).input(0).halo == ()
    run(cases)


@pytest.mark.parametrize("rows", [1, 2, 7, 14, 30])
@pytest.mark.parametrize("columns", [2, 7, 9, 14])
@pytest.mark.parametrize("size", [2, 3, 4, 5, 6, 8, 12])
def test_tiles_across_rows_cover_each_pixel_once(rows: int, columns: int, size: int):
    found = [
        first + turn * period * columns + pixel
        for first, count, turns, period in texts(rows, columns, size)
        for turn in range(turns)
        for pixel in range(count)
    ]
    assert sorted(found) == list(range(rows * columns))


def test_few_channels_that_remain_have_tiles_of_their_own():
    """A single vector of channels has more pixels in registers than two vectors."""
    case = conv_case(np.random.default_rng(6), (1, 16, 12, 12), 24, (3, 3), pads=(1, 1, 1, 1))
    family, task = case.build(None)
    text = family.generate(task, AVX2).body
    assert "c5_1" in text
    assert "c6_1" not in text
    assert "c11_0" in text


def test_loads_of_few_channels_are_not_kept_in_registers(tmp_path: Path):
    """gcc would keep elements for the next pixels, whose sums then have no registers: a fifth to two thirds slower."""
    command = find_compiler()
    if "gcc" not in subprocess.run([*command, "-v"], capture_output=True, encoding="utf-8", check=False).stderr:
        pytest.skip("this is about gcc")
    x = eqsat.input("x", (1, 3, 24, 24))
    w = np.random.default_rng(8).standard_normal((32, 3, 9, 9)).astype(np.float32)
    write_program(load(eqsat.graph(op.Conv(x, w, pads=[4, 4, 4, 4]))), tmp_path)
    flags = [*FLAGS, "-fdump-tree-pcom-details=dump", "-c", "model.c"]
    subprocess.run([*command, *flags], cwd=tmp_path, check=True)
    dump = tmp_path / "dump"
    assert "Executing predictive commoning" not in (dump.read_text("utf-8") if dump.exists() else "")
