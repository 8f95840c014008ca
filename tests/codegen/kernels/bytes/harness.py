"""Integer kernels for every instruction set, with views as the planner would give them, against the numpy executor.

What kernels promise is bit-equality. Gaps of inputs hold random bytes, so that reading them shows; gaps and halo of
outputs hold a pattern that must survive. All kernels of a test are compiled together.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.codegen import c_types
from eqsat.codegen.isa import Isa
from eqsat.codegen.kernel import Family, Step, Task, View, Want, Wants
from eqsat.codegen.kernels import families
from eqsat.ops.evaluate import evaluate
from eqsat.schema.attributes import make_attrs
from eqsat.schema.types import OpKey
from tests.codegen.kernels import kernel_cases
from tests.codegen.kernels.kernel_cases import QUICK, Memory, aligned, compiled, fill, runnable, strided, task_of

MS = "com.microsoft"
VNNI_256 = Isa(
    "vnni256",
    32,
    16,
    target="avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma",
    features=("avx512vnni", "avx512vl"),
    dot4="vpdpbusd",
)
"""Half registers with the dot product of bytes, as AVX-VNNI has them."""


def isas(*, all_widths: bool = False) -> tuple[Isa, ...]:
    """Instruction sets that this machine has; with ``all_widths`` also one that is not a variant of programs yet."""
    found = runnable()
    return (*found, VNNI_256) if all_widths and any(isa.dot4 == "vpdpbusd" for isa in found) else found


def step(name: str, *inputs: int | None, dtype: Any, domain: str = "", **attributes: Any) -> Step:
    """A step of an epilogue."""
    return Step(OpKey(domain, name), attributes, inputs, ir.DataType.from_numpy(np.dtype(dtype)))


def place(
    shape: Sequence[int], dtype: ir.DataType, want: Want, rng: np.random.Generator | None, *, output: bool = False
) -> Memory:
    """Memory for a tensor as a kernel would like it; gaps and more halo than asked for with ``rng``."""
    rank, size = len(shape), c_types.size(dtype)
    order = want.order or tuple(range(rank))
    if rng is not None and not want.strict and want.order is None:
        order = tuple(int(a) for a in rng.permutation(rank))
    halo = want.halo or ((0, 0),) * rank
    if rng is not None and output and not want.dense:
        halo = tuple(
            (int(rng.integers(0, 2)), int(rng.integers(0, 3))) if a != order[-1] else (0, 0) for a in range(rank)
        )
    gap = int(rng.integers(0, 9)) if rng is not None and not want.dense else 0
    strides, offset, extent = strided(shape, order, halo, gap)
    slack = 64 if rng is None or output or rng.integers(2) else 0
    if slack:
        buffer = aligned(extent * size + slack, None if output else rng)
    else:
        # Nothing after the last element: sanitizers see whoever reads there.
        assert rng is not None
        buffer = rng.integers(0, 256, extent * size).astype(np.uint8)
    return Memory(View(dtype, tuple(shape), strides, halo, want.pad, 1, slack), buffer, size * offset)


@dataclass
class Case:
    """An operator with its data; ``family`` is who must take it."""

    operator: OpKey
    attributes: Mapping[str, Any]
    inputs: Sequence[np.ndarray | None]
    constant: frozenset[int]
    family: str
    steps: Sequence[Step] = ()
    operands: Sequence[np.ndarray] = ()
    constant_operands: frozenset[int] = frozenset()
    memory: dict[str, Memory] = field(default_factory=dict)
    task: Task | None = None
    expected: np.ndarray | None = None

    def reference(self) -> tuple[np.ndarray, np.ndarray]:
        """The anchor's result and that of the last step, by the numpy executor."""
        if self.operator.name == "Identity":
            full = np.broadcast_shapes(*(x.shape for x in (*self.inputs, *self.operands) if x is not None))
            first = np.broadcast_to(np.asarray(self.inputs[0]), full)
        else:
            first = run_operator(self.operator, self.attributes, self.inputs)
        values: list[np.ndarray | None] = [first, *self.operands]
        for s in self.steps:
            given = [None if i is None else values[i] for i in s.inputs]
            values.append(run_operator(s.operator, s.attributes, given, s.dtype))
        last = values[-1] if self.steps else first
        assert last is not None
        return first, last

    def build(self, rng: np.random.Generator | None) -> tuple[Family, Task]:
        """Find the family by provisional views, then place everything as it wants."""
        anchor, self.expected = self.reference()
        dtype = ir.DataType.from_numpy(anchor.dtype)
        task = task_of(self, self.expected, lambda name, shape, kind: View.dense(kind, shape), dtype)
        family = next((f for f in families(self.operator) if f.accepts(task)), None)
        assert family is not None and family.name == self.family, f"{self.operator} {self.attributes}: {family}"
        wants = family.wants(task)
        self.memory = {}

        def placed(name: str, shape: tuple[int, ...], kind: ir.DataType) -> View:
            self.memory[name] = self._place(name, shape, kind, wants, rng)
            return self.memory[name].view

        self.task = task_of(self, self.expected, placed, dtype)
        fill(self)
        return family, self.task

    def _place(
        self, name: str, shape: tuple[int, ...], dtype: ir.DataType, wants: Wants, rng: np.random.Generator | None
    ) -> Memory:
        if name == "y0":
            return place(shape, dtype, wants.output(0), rng, output=True)
        if name.startswith("e"):
            return place(shape, dtype, Want(wants.output(0).order, strict=True), rng)
        want = wants.input(int(name[1:]))
        if want.pad_input is not None:
            pad = self.inputs[want.pad_input]
            assert pad is not None
            want = replace(want, pad=int(pad.reshape(())))
        if want.follows is not None and rng is not None:
            want = replace(want, order=None)
        return place(shape, dtype, want, rng)


def run_operator(
    operator: OpKey,
    attributes: Mapping[str, Any],
    inputs: Sequence[np.ndarray | None],
    dtype: ir.DataType | None = None,
) -> np.ndarray:
    """One operator by the numpy executor."""
    scale = inputs[1] if operator.name in ("QuantizeLinear", "DequantizeLinear") else None
    if scale is not None and scale.ndim > 1:
        # Steps have their scales shaped so that they broadcast; the operator wants one axis of them.
        axis = int(np.argmax(scale.shape))
        attributes = {**attributes, "axis": axis}
        inputs = [inputs[0], *(None if x is None else x.reshape(-1) for x in inputs[1:])]
    (found,) = evaluate(operator, make_attrs(operator, attributes), list(inputs), 1)
    result = np.asarray(found)
    assert dtype is None or result.dtype == dtype.numpy(), (operator, result.dtype, dtype)
    return result


def run(
    cases: Sequence[Case],
    *,
    rng: np.random.Generator | None = None,
    chosen: Sequence[Isa] | None = None,
    optimization: str = QUICK,
    flags: Sequence[str] = tuple(os.environ.get("EQSAT_TEST_FLAGS", "").split()),
) -> None:
    """Generate, compile and call every case on every instruction set; each must give the executor's bits."""
    text, kernels = kernel_cases.source(cases, tuple(chosen) if chosen is not None else isas(), rng)
    library = compiled(text, optimization, flags)
    for (i, isa), (kernel, names) in kernels.items():
        _check(f"k{i}_{isa}", cases[i], kernel_cases.call(library, f"k{i}_{isa}", cases[i], kernel, names))


def _check(name: str, case: Case, found: np.ndarray) -> None:
    expected = case.expected
    assert expected is not None and found.dtype == expected.dtype
    same = (found == expected) | ((found != found) & (expected != expected))
    if not same.all():
        at = tuple(int(k) for k in np.argwhere(~same)[0])
        raise AssertionError(
            f"{name}: {case.operator} {dict(case.attributes)} at {at}: {found[at]} instead of {expected[at]}; "
            f"{int((~same).sum())} of {same.size} elements"
        )
