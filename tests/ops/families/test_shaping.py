"""Views, shapes, joining, cutting and padding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from eqsat.errors import ExecutionError
from eqsat.schema.types import OpKey
from tests.ops.oracle import check, run_ours, run_reference, values

DTYPES = [np.float32, np.int64, np.uint8, np.bool_]


def ints(*v: int) -> np.ndarray:
    return np.array(v, np.int64)


@pytest.mark.parametrize("dtype", DTYPES)
def test_reshape(dtype: type):
    rng = np.random.default_rng(0)
    x = values(rng, (2, 3, 4), dtype)
    for shape in ((24,), (4, 6), (0, -1), (-1, 0, 2), (2, 0, 2, 2), (1, 24, 1), (0, 0, 0)):
        check("Reshape", [x, ints(*shape)])
    check("Reshape", [values(rng, (1,), dtype), ints()])
    nothing = values(rng, (0, 3), dtype)
    for shape, allow in (((3, 0), 1), ((0, 7), 1), ((5, -1), 0)):
        check("Reshape", [nothing, ints(*shape)], {"allowzero": allow})


@pytest.mark.parametrize("axis", range(-3, 4))
def test_flatten(axis: int):
    check("Flatten", [values(np.random.default_rng(1), (2, 3, 4), np.float32)], {"axis": axis})


def test_squeeze_and_unsqueeze():
    x = values(np.random.default_rng(2), (1, 3, 1, 4, 1), np.float32)
    check("Squeeze", [x])
    for axes in (ints(0), ints(-1, 0), ints(2)):
        check("Squeeze", [x, axes])
    for axes in (ints(0), ints(-1), ints(1, -1), ints(3, 0, 5)):
        check("Unsqueeze", [x, axes])
    for version in (1, 11):
        check("Squeeze", [x], {"axes": [0, 2]}, version=version)
        check("Squeeze", [x], {}, version=version)
        check("Unsqueeze", [x], {"axes": [0, 4]}, version=version)


@pytest.mark.parametrize("dtype", DTYPES)
def test_transpose(dtype: type):
    rng = np.random.default_rng(3)
    for rank in (0, 1, 2, 3, 4, 5):
        x = values(rng, rng.integers(1, 5, rank), dtype)
        check("Transpose", [x])
        for _ in range(4):
            y = check("Transpose", [x], {"perm": rng.permutation(rank).tolist()})[0] if rank else x
            assert y.flags.c_contiguous


def test_expand():
    rng = np.random.default_rng(4)
    for shape, to in (((3, 1), (2, 1, 6)), ((), (2, 3)), ((1,), (4,)), ((3, 4), (1,)), ((3, 1), (3, 4)), ((), ())):
        check("Expand", [values(rng, shape, np.float32), ints(*to)])


def test_tile():
    rng = np.random.default_rng(5)
    for shape, repeats in (((3,), (2,)), ((2, 3), (1, 4)), ((2, 3), (3, 2)), ((2, 0), (2, 2)), ((2, 3), (0, 1))):
        check("Tile", [values(rng, shape, np.float32), ints(*repeats)])


def test_shape_and_size():
    x = values(np.random.default_rng(6), (2, 3, 4, 5), np.float32)
    for attrs in ({}, {"start": 1}, {"end": 2}, {"start": -2}, {"start": 1, "end": -1}, {"start": 9}, {"end": -9}):
        check("Shape", [x], attrs)
    check("Size", [x])
    check("Size", [np.zeros((), np.float32)])


def test_constant_of_shape():
    for shape in ((), (3,), (2, 0), (2, 3)):
        check("ConstantOfShape", [ints(*shape)])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
@pytest.mark.parametrize("limits", [(0, 5, 1), (3, -4, -2), (2, 2, 1), (5, 0, 1), (0.5, 3, 0.7), (-1, 1, 0.1)])
def test_range(dtype: type, limits: tuple[float, float, float]):
    arrays = [np.array(v, dtype) for v in limits]
    if arrays[2] == 0:
        pytest.skip("a step of zero")
    check("Range", arrays, rtol=1e-6, atol=1e-6)


def test_eye_and_triangles():
    rng = np.random.default_rng(7)
    x = values(rng, (4, 5), np.float32)
    for k in (-2, 0, 3):
        check("EyeLike", [x], {"k": k})
        check("EyeLike", [x], {"k": k, "dtype": 7})
        for upper in (0, 1):
            check("Trilu", [values(rng, (2, 4, 3), np.float32), np.array(k)], {"upper": upper})
    check("Trilu", [x])


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_to_space_and_back(mode: str):
    rng = np.random.default_rng(8)
    x = values(rng, (2, 12, 3, 4), np.float32)
    check("DepthToSpace", [x], {"blocksize": 2, "mode": mode})
    check("SpaceToDepth", [values(rng, (2, 3, 6, 9), np.float32)], {"blocksize": 3})


@pytest.mark.parametrize("dtype", DTYPES)
def test_concat(dtype: type):
    rng = np.random.default_rng(9)
    for axis in (-1, 0, 1):
        shapes = [[2, 3, 4] for _ in range(3)]
        for i, shape in enumerate(shapes):
            shape[axis] = i
        check("Concat", [values(rng, s, dtype) for s in shapes], {"axis": axis})
    check("Concat", [values(rng, (3,), dtype)], {"axis": 0})


def test_split():
    x = values(np.random.default_rng(10), (7, 4), np.float32)
    check("Split", [x, ints(3, 0, 4)], outputs=3)
    check("Split", [x, ints(1, 3)], {"axis": -1}, outputs=2)
    check("Split", [x], {"num_outputs": 3}, outputs=3)
    check("Split", [x], {"axis": 1, "num_outputs": 2}, outputs=2)
    check("Split", [x], {"axis": 1}, outputs=4, version=13)
    check("Split", [x, ints(3, 4)], outputs=2, version=13)
    check("Split", [x], {"split": [2, 5]}, outputs=2, version=2)
    check("Split", [x], {"axis": 1}, outputs=2, version=11)
    with pytest.raises(ExecutionError, match="do not make up"):
        run_ours(OpKey("", "Split"), {}, [x, ints(3, 3)], 2)


@pytest.mark.parametrize("seed", range(40))
def test_slice(seed: int):
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 4))
    x = values(rng, rng.integers(1, 7, rank), np.float32)
    axes = rng.permutation(rank)[: rng.integers(1, rank + 1)]
    signed = [int(a) - rank if rng.random() < 0.3 else int(a) for a in axes]
    far = [-(2**31), -9, *range(-7, 8), 9, 2**31, 2**63 - 1]
    starts, ends = ([int(rng.choice(far)) for _ in axes] for _ in range(2))
    steps = [int(rng.choice([-3, -2, -1, 1, 2, 3])) for _ in axes]
    check("Slice", [x, ints(*starts), ints(*ends), ints(*signed), ints(*steps)])
    check("Slice", [x, ints(*starts), ints(*ends), ints(*signed)])


def test_slice_defaults_and_types():
    x = values(np.random.default_rng(11), (5, 6), np.int32)
    for dtype in (np.int32, np.int64):
        check("Slice", [x, np.array([1, 2], dtype), np.array([4, 5], dtype)])
    check("Slice", [x], {"starts": [1], "ends": [-1], "axes": [1]}, version=1)
    check("Slice", [x], {"starts": [1, 0], "ends": [3, 100]}, version=1)


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint8])
def test_pad(mode: str, dtype: type):
    rng = np.random.default_rng(12)
    for shape in ((6,), (3, 5), (4, 5, 6)):
        x = values(rng, shape, dtype)
        widths = rng.integers(0, 3, 2 * len(shape))
        check("Pad", [x, widths], {"mode": mode})
        cropped = rng.integers(-1, 3, 2 * len(shape))
        check("Pad", [x, cropped], {"mode": mode}, judge=padded)
        if mode == "constant":
            check("Pad", [x, widths, np.array(3, dtype)], {"mode": mode})
            check("Pad", [x, ints(1, 2), None, ints(-1)], {"mode": mode})
    check("Pad", [values(rng, (3, 4), dtype), ints(2, 1), None, ints(0)], {"mode": mode})


def padded(op: OpKey, attrs: dict[str, Any], inputs: list[np.ndarray], *rest: object) -> list[np.ndarray]:
    """Crop, then pad, axis by axis."""
    x, widths = inputs
    half = len(widths) // 2
    for axis, (before, after) in enumerate(zip(widths[:half], widths[half:], strict=True)):
        x = np.take(x, range(max(0, -before), x.shape[axis] - max(0, -after)), axis)
        pads = [(0, 0)] * x.ndim
        pads[axis] = (max(0, before), max(0, after))
        x = np.pad(x, pads, mode=attrs["mode"])
    return [x]


def test_pad_before_widths_were_inputs():
    x = values(np.random.default_rng(13), (3, 4), np.float32)
    for version in (2, 10):
        check("Pad", [x], {"pads": [1, 0, 2, 1], "mode": "constant", "value": 1.5}, version=version)
        check("Pad", [x], {"pads": [1, 0, 2, 1], "mode": "reflect"}, version=version)


def test_center_crop_pad():
    x = values(np.random.default_rng(14), (5, 8, 3), np.float32)
    for shape, axes in (((7, 5, 3), None), ((6, 7), [0, 1]), ((4,), [-1]), ((5, 8, 3), None)):
        check("CenterCropPad", [x, ints(*shape)], {"axes": axes} if axes else {}, judge=run_reference)


def test_reverse_sequence():
    x = values(np.random.default_rng(15), (4, 5, 2), np.float32)
    check("ReverseSequence", [x, ints(1, 4, 2, 3, 4)], {"time_axis": 0, "batch_axis": 1})
    check("ReverseSequence", [x, ints(5, 1, 3, 2)], {"time_axis": 1, "batch_axis": 0})


def test_identity_of_everything():
    for dtype in DTYPES:
        check("Identity", [values(np.random.default_rng(16), (2, 3), dtype)])


def test_errors_say_what_was_given():
    with pytest.raises(ExecutionError, match=r"float32\[2, 3\], int64\[1\]"):
        run_ours(OpKey("", "Reshape"), {}, [np.zeros((2, 3), np.float32), ints(4)])
    with pytest.raises(ExecutionError, match="Transpose"):
        run_ours(OpKey("", "Transpose"), {"perm": (0, 0)}, [np.zeros((2, 3), np.float32)])
