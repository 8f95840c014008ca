"""Integer kernels for every instruction set, with views as the planner would give them, against the numpy executor.

What kernels promise is bit-equality. Gaps of inputs hold random bytes, so that reading them shows; gaps and halo of
outputs hold a pattern that must survive. All kernels of a test are compiled together.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.codegen import dtypes
from eqsat.codegen.isa import Isa
from eqsat.codegen.kernel import Epilogue, Family, Kernel, Step, Task, View, Want
from eqsat.codegen.kernels import families
from eqsat.model.attributes import make_attrs
from eqsat.model.types import OpKey
from eqsat.ops.evaluate import evaluate
from tests.codegen.vector_harness import INCLUDES, compiled, runnable

MS = "com.microsoft"
VNNI_256 = Isa(
    "vnni256",
    32,
    16,
    target="avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma",
    features=("avx512vnni", "avx512vl"),
    fma=True,
    dot4="vpdpbusd",
)
"""Half registers with the dot product of bytes, as AVX-VNNI has them."""
_FILL = 0xA5


def isas(*, all_widths: bool = False) -> tuple[Isa, ...]:
    """Instruction sets that this machine has; with ``all_widths`` also one that is no variant of programs yet."""
    found = runnable()
    return (*found, VNNI_256) if all_widths and any(isa.dot4 == "vpdpbusd" for isa in found) else found


def step(name: str, *inputs: int | None, dtype: Any, domain: str = "", **attributes: Any) -> Step:
    """A step of an epilogue."""
    return Step(OpKey(domain, name), attributes, inputs, ir.DataType.from_numpy(np.dtype(dtype)))


@dataclass
class Memory:
    """A view and its bytes."""

    view: View
    buffer: np.ndarray
    offset: int

    def array(self) -> np.ndarray:
        """The elements, writable."""
        held = self.view.dtype.numpy()
        strides = tuple(held.itemsize * s for s in self.view.strides)
        return np.lib.stride_tricks.as_strided(self.buffer[self.offset :].view(held), self.view.shape, strides)

    def around(self) -> np.ndarray:
        """The elements and the halo."""
        view, held = self.view, self.view.dtype.numpy()
        halo = view.halo or ((0, 0),) * view.rank
        first = self.offset - held.itemsize * sum(b * s for (b, _), s in zip(halo, view.strides, strict=True))
        shape = tuple(n + b + a for n, (b, a) in zip(view.shape, halo, strict=True))
        strides = tuple(held.itemsize * s for s in view.strides)
        return np.lib.stride_tricks.as_strided(self.buffer[first:].view(held), shape, strides)


def aligned(size: int, rng: np.random.Generator | None = None) -> np.ndarray:
    """Bytes at a multiple of 64."""
    raw = np.full(size + 64, _FILL, np.uint8) if rng is None else rng.integers(0, 256, size + 64).astype(np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size]


def place(
    shape: Sequence[int], dtype: ir.DataType, want: Want, rng: np.random.Generator | None, *, output: bool = False
) -> Memory:
    """Memory for a tensor as a kernel would like it; gaps and more halo than asked for with ``rng``."""
    rank, size = len(shape), dtypes.size(dtype)
    order = want.order or tuple(range(rank))
    if rng is not None and not want.strict and want.order is None:
        order = tuple(int(a) for a in rng.permutation(rank))
    halo = want.halo or ((0, 0),) * rank
    if rng is not None and output and not want.dense:
        halo = tuple(
            (int(rng.integers(0, 2)), int(rng.integers(0, 3))) if a != order[-1] else (0, 0) for a in range(rank)
        )
    strides, step_ = [0] * rank, 1
    for axis in reversed(order):
        strides[axis] = step_
        step_ *= max(shape[axis] + sum(halo[axis]), 1)
        if rng is not None and not want.dense and axis == order[-1]:
            step_ += int(rng.integers(0, 9))
    slack = 64 if rng is None or output or rng.integers(2) else 0
    if slack:
        buffer = aligned(step_ * size + slack, None if output else rng)
    else:
        # Nothing behind the last element: sanitizers see whoever reads there.
        assert rng is not None
        buffer = rng.integers(0, 256, step_ * size).astype(np.uint8)
    offset = size * sum(b * s for (b, _), s in zip(halo, strides, strict=True))
    return Memory(View(dtype, tuple(shape), tuple(strides), halo, want.pad, 1, slack), buffer, offset)


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
        task = self._task(dtype, lambda name, shape, kind: View.dense(kind, shape))
        family = next((f for f in families(self.operator) if f.accepts(task)), None)
        assert family is not None and family.name == self.family, f"{self.operator} {self.attributes}: {family}"
        wants = family.wants(task)
        self.memory = {}

        def placed(name: str, shape: tuple[int, ...], kind: ir.DataType) -> View:
            if name == "y0":
                self.memory[name] = place(shape, kind, wants.output(0), rng, output=True)
            elif name.startswith("e"):
                order = wants.output(0).order
                self.memory[name] = place(shape, kind, Want(order, strict=True), rng)
            else:
                want = wants.input(int(name[1:]))
                if want.follows is not None and rng is not None:
                    want = replace(want, order=None)
                self.memory[name] = place(shape, kind, want, rng)
            return self.memory[name].view

        self.task = self._task(dtype, placed)
        for name, m in self.memory.items():
            if name == "y0":
                m.buffer[:] = _FILL
            else:
                source = self.inputs if name[0] == "x" else self.operands
                value = np.asarray(source[int(name[1:])])
                if any(lo or hi for lo, hi in m.view.halo):
                    m.around()[...] = m.view.pad
                m.array()[...] = value.reshape(m.view.shape)
        return family, self.task

    def _task(self, dtype: ir.DataType, view: Callable[[str, tuple[int, ...], ir.DataType], View]) -> Task:
        assert self.expected is not None
        shape = self.expected.shape

        def given(name: str, x: np.ndarray, full: bool = False) -> View:
            kind = ir.DataType.from_numpy(x.dtype)
            lead = (1,) * (len(shape) - x.ndim) if full else ()
            made = view(name, lead + x.shape, kind)
            return made.broadcast(shape) if full else made

        chain = self.operator.name == "Identity"
        output = view("y0", shape, ir.DataType.from_numpy(self.expected.dtype))
        return Task(
            self.operator,
            self.attributes,
            tuple(
                x if x is None or i in self.constant else given(f"x{i}", x, chain) for i, x in enumerate(self.inputs)
            ),
            (output,),
            Epilogue(
                dtype,
                tuple(
                    x if k in self.constant_operands else given(f"e{k}", x, True) for k, x in enumerate(self.operands)
                ),
                tuple(self.steps),
            ),
        )


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


def signature(name: str, task: Task, kernel: Kernel, isa: Isa) -> tuple[str, list[str]]:
    """The head of a kernel's function, and the names of its parameters."""
    parameters = []
    for letter, views in (("x", task.inputs), ("e", task.epilogue.operands), ("y", task.outputs)):
        constant = "" if letter == "y" else "const "
        parameters += [
            (constant + dtypes.storage(v.dtype), f"{letter}{i}") for i, v in enumerate(views) if isinstance(v, View)
        ]
    parameters += [("const " + dtypes.c_type(dtypes.as_stored(c)), f"w{i}") for i, c in enumerate(kernel.constants)]
    if kernel.scratch:
        parameters.append(("void", "scratch"))
    target = f'__attribute__((target("{isa.target}"))) ' if isa.target else ""
    return f"{target}void {name}({', '.join(f'{c} *restrict {n}' for c, n in parameters)})", [n for _, n in parameters]


def source(
    cases: Sequence[Case], chosen: Sequence[Isa], rng: np.random.Generator | None
) -> tuple[str, dict[tuple[int, str], tuple[Kernel, list[str]]]]:
    """All kernels as one file of C."""
    kernels: dict[tuple[int, str], tuple[Kernel, list[str]]] = {}
    helpers: dict[str, None] = {}
    functions: list[str] = []
    for i, case in enumerate(cases):
        family, task = case.build(rng)
        for isa in chosen:
            kernel = family.generate(task, isa)
            head, names = signature(f"k{i}_{isa.name}", task, kernel, isa)
            helpers.update(dict.fromkeys(kernel.helpers))
            unused = "".join(f"(void){n}; " for n in names)
            functions.append(f"{head};\n{head}\n{{\n{unused}\n{kernel.body}\n}}\n")
            kernels[i, isa.name] = (kernel, names)
    return INCLUDES + "\n".join([*helpers, *functions]), kernels


def run(
    cases: Sequence[Case],
    *,
    rng: np.random.Generator | None = None,
    chosen: Sequence[Isa] | None = None,
    optimization: str = "-O1",
    flags: Sequence[str] = tuple(os.environ.get("EQSAT_TEST_FLAGS", "").split()),
) -> None:
    """Generate, compile and call every case on every instruction set; each must give the executor's bits."""
    text, kernels = source(cases, tuple(chosen) if chosen is not None else isas(), rng)
    library = compiled(text, optimization, flags)
    for (i, isa), (kernel, names) in kernels.items():
        call(library, f"k{i}_{isa}", cases[i], kernel, names)


def call(library: ctypes.CDLL, name: str, case: Case, kernel: Kernel, names: list[str]) -> np.ndarray:
    """One kernel; checks values and what lies around them."""
    y = case.memory["y0"]
    y.buffer[:] = _FILL
    held = {}
    for i, c in enumerate(kernel.constants):
        stored = np.ascontiguousarray(dtypes.as_stored(c))
        held[f"w{i}"] = aligned(stored.nbytes + 64)
        held[f"w{i}"][: stored.nbytes] = np.frombuffer(stored.tobytes(), np.uint8)
    held["scratch"] = aligned(kernel.scratch + 64)
    pointers = [
        case.memory[n].buffer.ctypes.data + case.memory[n].offset if n in case.memory else held[n].ctypes.data
        for n in names
    ]
    getattr(library, name)(*(ctypes.c_void_p(p) for p in pointers))
    assert (held["scratch"][kernel.scratch :] == _FILL).all(), f"{name} writes behind its scratch"
    found = y.array().copy()
    y.array()[...] = np.frombuffer(bytes([_FILL]) * 8, found.dtype)[0]
    assert (y.buffer == _FILL).all(), f"{name} writes beside its output"
    expected = case.expected
    assert expected is not None and found.dtype == expected.dtype
    same = (found == expected) | ((found != found) & (expected != expected))
    if not same.all():
        at = tuple(int(k) for k in np.argwhere(~same)[0])
        raise AssertionError(
            f"{name}: {case.operator} {dict(case.attributes)} at {at}: {found[at]} instead of {expected[at]}; "
            f"{int((~same).sum())} of {same.size} elements"
        )
    return found
