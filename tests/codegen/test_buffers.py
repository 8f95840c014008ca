"""Places against numpy: the same views of the same memory."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from eqsat.codegen.buffers import Buffer, BufferPiece, memory_order, reshaped_strides
from eqsat.codegen.kernel import View, dense_strides
from eqsat.codegen.program import ProgramTensor

F = ir.DataType.FLOAT


def contents(place: BufferPiece, tensor: ProgramTensor, memory: np.ndarray) -> np.ndarray:
    """What a kernel would read through the view."""
    view = place.view(tensor)
    strides = tuple(s * memory.itemsize for s in view.strides)
    return np.lib.stride_tricks.as_strided(memory[place.start() :], view.shape, strides)


def make(shape: tuple[int, ...], order: tuple[int, ...], halo: tuple[tuple[int, int], ...] = ()) -> tuple:
    tensor = ProgramTensor("t", F, shape)
    buffer = Buffer(tensor, order)
    place = BufferPiece.whole(buffer)
    if halo:
        assert place.grow_halo(shape, halo, 0)
    memory = np.arange(buffer.bytes // 4, dtype=np.float32)
    values = contents(place, tensor, memory).copy()
    assert len(np.unique(values)) == values.size, "elements do not share memory"
    return tensor, place, memory, values


CASES = [
    ((2, 3, 4, 5), (0, 1, 2, 3), ()),
    ((2, 3, 4, 5), (0, 2, 3, 1), ()),
    ((1, 3, 4, 5), (0, 2, 3, 1), ((0, 0), (0, 0), (1, 1), (2, 1))),
    ((2, 3, 4, 5), (3, 1, 0, 2), ((0, 1), (2, 0), (0, 0), (1, 1))),
]


@pytest.mark.parametrize("shape, order, halo", CASES)
def test_pieces(shape: tuple[int, ...], order: tuple[int, ...], halo: tuple[tuple[int, int], ...]) -> None:
    tensor, place, memory, values = make(shape, order, halo)
    assert memory_order(place.view(tensor)) == order or 1 in shape
    perm = (2, 0, 3, 1)
    moved = ProgramTensor("m", F, tuple(shape[p] for p in perm))
    turned = place.permuted(perm)
    np.testing.assert_array_equal(contents(turned, moved, memory), values.transpose(perm))
    cut = ProgramTensor("c", F, (moved.shape[0], moved.shape[1], 2, moved.shape[3]))
    sliced = turned.sliced(2, 4, -2)
    np.testing.assert_array_equal(contents(sliced, cut, memory), values.transpose(perm)[:, :, 4:0:-2])
    one = ProgramTensor("o", F, (moved.shape[0], moved.shape[1], 1, moved.shape[3]))
    squeezed = ProgramTensor("s", F, (moved.shape[0], 1, moved.shape[1], moved.shape[3], 1))
    found = turned.sliced(2, 3).without_ones(one.shape, squeezed.shape)
    assert found is not None
    expected = values.transpose(perm)[:, :, 3:4].reshape(squeezed.shape)
    np.testing.assert_array_equal(contents(found, squeezed, memory), expected)
    wide = ProgramTensor("w", F, (3, *squeezed.shape[:-1], 7))
    spread = found.expanded(squeezed.shape, wide.shape)
    np.testing.assert_array_equal(contents(spread, wide, memory), np.broadcast_to(expected, wide.shape))


@pytest.mark.parametrize("shape, order, halo", CASES)
def test_halo_is_readable_and_apart(
    shape: tuple[int, ...], order: tuple[int, ...], halo: tuple[tuple[int, int], ...]
) -> None:
    tensor, place, memory, values = make(shape, order, halo)
    view = place.view(tensor)
    if not halo:
        assert view.halo == ()
        return
    assert view.halo == halo
    start = place.start() - sum(lo * s for (lo, _), s in zip(halo, view.strides, strict=True))
    assert start == 0
    around = tuple(lo + n + hi for n, (lo, hi) in zip(shape, halo, strict=True))
    room = np.lib.stride_tricks.as_strided(memory, around, tuple(4 * s for s in view.strides))
    assert len(np.unique(room)) == memory.size == room.size
    inside = tuple(slice(lo, lo + n) for n, (lo, _) in zip(shape, halo, strict=True))
    np.testing.assert_array_equal(room[inside], values)


def test_who_may_have_a_halo() -> None:
    tensor, place, _, _ = make((1, 8, 4, 5), (0, 2, 3, 1))
    half = place.sliced(1, 4)
    room = ((0, 0), (0, 0), (1, 1), (1, 1))
    assert half.grow_halo((1, 4, 4, 5), room, 0), "the other half has the same rows and columns"
    assert place.view(tensor).halo == room
    assert not half.grow_halo((1, 4, 4, 5), ((0, 0), (1, 0), (0, 0), (0, 0)), 0), "its neighbour lies there"
    assert not place.grow_halo(tensor.shape, room, -1.0), "it holds zeros already"
    assert not place.sliced(2, 1).grow_halo((1, 8, 3, 5), room, 0), "a row lies there"
    reshaped = BufferPiece(place.buffer, strides=(1,), offset=0)
    assert not reshaped.grow_halo((160,), ((1, 1),), 0)


def test_the_callers_memory_has_no_halo() -> None:
    tensor = ProgramTensor("x", F, (1, 3, 4, 4))
    buffer = Buffer(tensor, (0, 1, 2, 3), "input", 0, rigid=True)
    place = BufferPiece.whole(buffer)
    assert not place.grow_halo(tensor.shape, ((0, 0), (0, 0), (1, 1), (1, 1)), 0)
    view = place.view(tensor)
    assert (view.slack, view.alignment, view.halo) == (0, 4, ())


@pytest.mark.parametrize("seed", range(200))
def test_reshaping_without_a_copy_is_what_numpy_does(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(1, 5, rng.integers(1, 5)))
    order = tuple(int(a) for a in rng.permutation(len(shape)))
    memory = np.arange(4 * int(np.prod(shape)), dtype=np.float32)
    steps = int(rng.integers(1, 3))
    strides = tuple(s * steps for s in dense_strides(shape, order))
    array = np.lib.stride_tricks.as_strided(memory, shape, tuple(4 * s for s in strides))
    factors = list(shape)
    rng.shuffle(factors)
    to = tuple(factors) if rng.integers(2) else (int(np.prod(shape)),)
    if rng.integers(2) and len(to) > 1:
        to = (to[0] * to[1], *to[2:], 1)
    found = reshaped_strides(shape, strides, to)
    expected = array.reshape(to)
    is_view = np.shares_memory(expected, memory)
    assert (found is not None) == is_view
    if found is not None:
        again = np.lib.stride_tricks.as_strided(memory, to, tuple(4 * s for s in found))
        np.testing.assert_array_equal(again, expected)


def test_views() -> None:
    view = View.dense(F, (1, 3, 4, 4), (0, 2, 3, 1))
    assert view.strides == (48, 1, 12, 3)
    assert view.is_dense((0, 2, 3, 1)) and not view.is_dense()
    assert View.dense(F, (3, 1)).broadcast((2, 3, 4)).strides == (0, 1, 0)
    assert view.transpose((0, 2, 3, 1)).is_dense()
    assert View.dense(F, (0, 3)).is_dense((1, 0))
