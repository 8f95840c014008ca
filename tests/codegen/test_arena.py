"""No kernel reads or writes what is not its own in the arena, which sanitizers cannot see: it is one block to them.

Before each kernel, all bytes that hold nothing at that time are overwritten; after it they must still be there, and
the results must not depend on what they were.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

import numpy as np
import onnx
import pytest

from eqsat.codegen.compiler import compile_library, native_isas
from eqsat.codegen.emitted import Emitted
from eqsat.codegen.generate import generate
from eqsat.codegen.isa import AVX2, PORTABLE, SCALAR, Isa
from eqsat.execute.executor import Executor
from eqsat.execute.inputs import complete_inputs
from eqsat.model.load import load
from tests.codegen import nodes
from tests.codegen.calling import Call, call
from tests.codegen.random_bodies import in_bodies
from tests.codegen.random_graphs import random_model
from tests.fuzz.generator import generate as fuzzed

pytestmark = pytest.mark.slow
PLAIN = "#define MODEL_KERNEL(k, call) call\n"
HOOK = """
int junk, damaged = -1;
static unsigned char held[MODEL_ARENA_SIZE];
static const struct { size_t offset, size; int first, last; } blocks[] = {BLOCKS};
static void before(int k, unsigned char *arena) {
    memset(held, 0, sizeof held);
    for (size_t b = 0; b < sizeof blocks / sizeof *blocks; b++)
        if (blocks[b].first <= k && k <= blocks[b].last) memset(held + blocks[b].offset, 1, blocks[b].size);
    for (size_t i = 0; i < sizeof held; i++) if (!held[i]) arena[i] = (unsigned char)junk;
}
static void after(int k, const unsigned char *arena) {
    for (size_t i = 0; i < sizeof held; i++)
        if (!held[i] && arena[i] != (unsigned char)junk && damaged < 0) damaged = k;
}
#define MODEL_KERNEL(k, call) do { before(k, arena); call; EXTRA after(k, arena); } while (0)
"""
ISAS = {"native": native_isas(), "avx2": (AVX2,), "portable": (PORTABLE,), "scalar": (PORTABLE, SCALAR)}


def watched(emitted: Emitted, flags: tuple[str, ...], extra: str = "") -> ctypes.CDLL:
    """The program with its arena watched."""
    blocks = ", ".join(f"{{{e.offset}, {e.size}, {e.first}, {e.last}}}" for e in emitted.memory_map)
    hook = HOOK.replace("BLOCKS", blocks or "{0, 0, -1, -1}").replace("EXTRA", extra)
    assert emitted.source.count(PLAIN) == 1
    text = emitted.source.replace(PLAIN, hook)
    return ctypes.CDLL(str(compile_library({"model.h": emitted.header, "model.c": text}, flags=("-O1", *flags))))


def run(library: ctypes.CDLL, given: Call, junk: int) -> tuple[list[np.ndarray], int]:
    ctypes.c_int.in_dll(library, "junk").value = junk
    ctypes.c_int.in_dll(library, "damaged").value = -1
    return call(library, given), ctypes.c_int.in_dll(library, "damaged").value


def prepared(model: onnx.ModelProto, isas: tuple[Isa, ...]) -> tuple[nodes.Prepared, Mapping[str, np.ndarray]]:
    loaded = load(model)
    inputs = complete_inputs(loaded, seed=1)
    emitted = generate(loaded, isas=isas, embedded=False)
    expected = Executor(loaded).run(inputs)
    return nodes.Prepared("g", emitted, dict(inputs), [expected[y.name] for y in emitted.outputs]), expected


def check(model: onnx.ModelProto, how: str) -> None:
    if how in ("native", "avx2") and not any(isa.x86 for isa in native_isas()):
        pytest.skip("another processor")
    made, expected = prepared(model, ISAS[how])
    library = watched(made.emitted, ("-DMODEL_SCALAR",) if how == "scalar" else ())
    given = nodes.as_call(made)
    names = [y.name for y in made.emitted.outputs]
    # Bytes that make NaN of floats, zero, and ordinary numbers.
    runs = [run(library, given, junk) for junk in (0xFF, 0x00, 0x3E)]
    for outputs, damaged in runs:
        assert damaged == -1, f"kernel {damaged}: {made.emitted.kernels[damaged]}"
        for found, first in zip(outputs, runs[0][0], strict=True):
            np.testing.assert_array_equal(found.view(np.uint8), first.view(np.uint8))
    for name, found in zip(names, runs[0][0], strict=True):
        nearly_equal(name, found, np.asarray(expected[name]))


def nearly_equal(name: str, found: np.ndarray, wanted: np.ndarray) -> None:
    """Equal integers; floats within a small share of the largest."""
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape), name
    if wanted.dtype.kind != "f":
        np.testing.assert_array_equal(found, wanted, err_msg=name)
    else:
        scale = max(float(np.abs(wanted).max(initial=0.0)), 1e-3)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-4 * scale, err_msg=name)


@pytest.mark.parametrize("how", ISAS)
@pytest.mark.parametrize("seed", range(4000, 4004))
def test_networks(seed: int, how: str):
    check(random_model(seed), how)


@pytest.mark.parametrize("how", ["native", "scalar"])
@pytest.mark.parametrize("seed", range(7000, 7004))
def test_control_flow(seed: int, how: str):
    check(in_bodies(seed), how)


@pytest.mark.parametrize("how", ["native", "portable"])
@pytest.mark.parametrize("seed", range(5000, 5004))
def test_random_graphs(seed: int, how: str):
    check(fuzzed(seed), how)


@pytest.mark.heavy
@pytest.mark.parametrize("how", ISAS)
@pytest.mark.parametrize("first", range(6000, 6060, 10))
def test_many(first: int, how: str):
    for seed in range(first, first + 10):
        check(random_model(seed, count=20), how)


def test_what_writes_elsewhere_is_found():
    made, _ = prepared(random_model(4000), native_isas())
    emitted = made.emitted
    kernel = len(emitted.kernels) // 2
    held = np.zeros(emitted.arena, bool)
    for entry in emitted.memory_map:
        if entry.first <= kernel <= entry.last:
            held[entry.offset : entry.offset + entry.size] = True
    free = int(np.flatnonzero(~held)[0])
    library = watched(emitted, (), f"if (k == {kernel}) arena[{free}] ^= 1;")
    assert run(library, nodes.as_call(made), 0x3E)[1] == kernel
