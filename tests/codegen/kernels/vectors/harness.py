"""Vector kernels for every instruction set, with views as the planner would give them, against float64.

Inputs and outputs are placed as the family's wants say: order of axes, halo with its padding, and random gaps (slices
of wider buffers) where dense memory was not asked for. Gaps of inputs hold NaN, so that reading them shows; gaps and
halo of outputs hold a pattern that must survive; after every tensor lies a page that must not be read. All kernels of
a test are compiled together.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.codegen.isa import Isa
from eqsat.codegen.kernel import Family, Step, Task, View, Want, Wants
from eqsat.codegen.kernels import find
from eqsat.codegen.kernels.shared.families import families
from eqsat.schema.types import OpKey
from tests.codegen.kernels import kernel_cases
from tests.codegen.kernels.kernel_cases import (
    INCLUDES,
    QUICK,
    SANITIZERS,
    UNDEFINED,
    Memory,
    compiled,
    compiler_environment,
    fill,
    runnable,
    strided,
    task_of,
)

UNIT = 2.0**-24
"""Half the distance from 1 to the next float32: the error of one rounding, relative."""


def guarded(length: int) -> np.ndarray:
    """Bytes at the end of a page that is followed by one which must not be touched."""
    page = mmap.PAGESIZE
    size = -(-length // page) * page
    block = mmap.mmap(-1, size + page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(block))
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    assert protect(ctypes.c_void_p(start + size), ctypes.c_size_t(page), 0) == 0
    return np.frombuffer(block, np.uint8, length, size - length)


def place(shape: Sequence[int], want: Want, rng: np.random.Generator | None, *, room: bool = False) -> Memory:
    """Memory for a tensor as a kernel would like it.

    Args:
        shape: Of the tensor.
        want: Of the kernel.
        rng: For gaps and more halo than asked for; without it as dense as the wish lets it be.
        room: Whether there may be a halo nobody asked for.
    """
    rank = len(shape)
    order = want.order if want.order is not None else tuple(range(rank))
    if rng is not None and not want.strict:
        order = tuple(int(a) for a in rng.permutation(rank))
    halo = want.halo or ((0, 0),) * rank
    if rng is not None and room:
        halo = tuple(
            (int(rng.integers(0, 3)), int(rng.integers(0, 3))) if a != order[-1] else (0, 0) for a in range(rank)
        )
    gap = int(rng.integers(0, 9)) if rng is not None and not want.dense else 0
    strides, offset, extent = strided(shape, order, halo, gap)
    buffer = guarded(4 * extent)
    buffer.view(np.float32)[:] = np.nan
    return Memory(View(ir.DataType.FLOAT, tuple(shape), strides, halo, want.pad), buffer, 4 * offset)


@dataclass
class Case:
    """An operator with its data and what must come out; ``chosen`` names a family that is not the first choice."""

    operator: OpKey
    attributes: Mapping[str, Any]
    inputs: Sequence[np.ndarray | None]
    constant: frozenset[int]
    expected: np.ndarray
    tolerance: np.ndarray | float
    steps: Sequence[Step] = ()
    operands: Sequence[np.ndarray] = ()
    constant_operands: frozenset[int] = frozenset()
    rank: int = 1
    chosen: str = ""
    memory: dict[str, Memory] = field(default_factory=dict)
    task: Task | None = None
    family: Family | None = None

    def build(self, rng: np.random.Generator | None) -> tuple[Family, Task]:
        """Find the family by provisional views, then place everything as it wants."""
        result = np.broadcast_to(np.float32(0), self.expected.shape)
        task = task_of(self, result, lambda name, shape, dtype: View.dense(dtype, shape))
        family = next(f for f in families(self.operator) if f.name == self.chosen) if self.chosen else find(task)
        assert not self.chosen or (family is not None and family.accepts(task))
        assert family is not None and family.rank >= self.rank, f"{self.operator} {self.attributes}: {family}"
        wants = family.wants(task)
        self.memory, self.family = {}, family

        def placed(name: str, shape: tuple[int, ...], dtype: ir.DataType) -> View:
            self.memory[name] = self._place(name, shape, wants, rng)
            return self.memory[name].view

        self.task = task_of(self, result, placed)
        fill(self)
        return family, self.task

    def _place(self, name: str, shape: tuple[int, ...], wants: Wants, rng: np.random.Generator | None) -> Memory:
        if name == "y0":
            return place(shape, wants.output(0), rng, room=True)
        if name.startswith("e"):
            return place(shape, Want(order=wants.output(0).order), None)
        return place(shape, wants.input(int(name[1:])), rng)


def step(name: str, *inputs: int | None, domain: str = "", **attributes: Any) -> Step:
    """A float32 step of an epilogue."""
    return Step(OpKey(domain, name), attributes, inputs, ir.DataType.FLOAT)


def run(
    cases: Sequence[Case],
    *,
    rng: np.random.Generator | None = None,
    isas: Sequence[Isa] | None = None,
    optimization: str = QUICK,
    flags: Sequence[str] = (),
) -> dict[tuple[int, str], np.ndarray]:
    """Generate, compile and call every case on every instruction set; checks values and what lies around them."""
    text, kernels = kernel_cases.source(cases, tuple(isas) if isas is not None else runnable(), rng)
    library = compiled(text, optimization, flags)
    results = {}
    for (i, isa), (kernel, names) in kernels.items():
        found = kernel_cases.call(library, f"k{i}_{isa}", cases[i], kernel, names)
        _check(f"k{i}_{isa}", cases[i], found)
        results[i, isa] = found
    return results


def _check(name: str, case: Case, found: np.ndarray) -> None:
    with np.errstate(invalid="ignore"):
        error = np.abs(found.astype(np.float64) - case.expected)
    bad = ~(error <= case.tolerance) & ~(np.isnan(found) & np.isnan(case.expected)) & ~(found == case.expected)
    if bad.any():
        at = tuple(int(k) for k in np.argwhere(bad)[0])
        allowed = np.broadcast_to(case.tolerance, found.shape)[at]
        raise AssertionError(
            f"{name}: {case.operator} {dict(case.attributes)} at {at}: {found[at]} instead of {case.expected[at]}, "
            f"off by {error[at]:.3g}, allowed {allowed:.3g}; {int(bad.sum())} of {bad.size} elements"
        )


__all__ = [
    "INCLUDES",
    "SANITIZERS",
    "UNDEFINED",
    "UNIT",
    "Case",
    "Memory",
    "compiled",
    "compiler_environment",
    "place",
    "replace",
    "run",
    "runnable",
    "step",
]
