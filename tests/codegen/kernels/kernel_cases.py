"""What tests of single kernels share: memory as the planner would give it, one library of many kernels, the calls.

Gaps and halo of outputs hold a pattern that must survive, and so does what lies after scratch memory.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import onnx_ir as ir

from eqsat.codegen import c_types
from eqsat.codegen.isa import ALL, Isa
from eqsat.codegen.kernel import Epilogue, Family, GeneratedKernel, Step, Task, View
from eqsat.codegen.parallel import BLOCK_WITHIN, in_parts
from eqsat.schema.types import OpKey

INCLUDES = "#include <math.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <string.h>\n#include <float.h>\n"
INCLUDES += f"{BLOCK_WITHIN}\n"
FLAGS = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared")
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g")
UNDEFINED = ("-fsanitize=undefined", "-fno-sanitize-recover=all")
"""Those that need nothing loaded before the process."""
QUICK = os.environ.get("EQSAT_TEST_OPTIMIZATION", "-O0")
"""How kernels are compiled whose values are what counts: vectors are written out, so that the compiler has nothing to
find and takes a quarter of the time. Some tests set their own level; `make check-c` runs all of them with `-O3`.
"""
IN_PARTS = bool(os.environ.get("EQSAT_TEST_PARTS"))
"""Whether kernels are executed block by block, as threads would, the last one first."""
MOST_OWNERS = 500
"""Blocks of a kernel up to which it is checked which of them writes what."""
FILL = 0xA5
"""What bytes hold that no kernel may write."""


@dataclass
class Memory:
    """A view and its bytes; ``offset`` is that of element [0, ..., 0]."""

    view: View
    buffer: np.ndarray
    offset: int

    def array(self) -> np.ndarray:
        """The elements, writable, in the type that holds them."""
        return self._seen(self.offset, self.view.shape)

    def around(self) -> np.ndarray:
        """The elements and the halo."""
        view = self.view
        halo = view.halo or ((0, 0),) * view.rank
        before = c_types.size(view.dtype) * sum(b * s for (b, _), s in zip(halo, view.strides, strict=True))
        return self._seen(self.offset - before, tuple(n + b + a for n, (b, a) in zip(view.shape, halo, strict=True)))

    def _seen(self, start: int, shape: tuple[int, ...]) -> np.ndarray:
        held = held_in(self.view.dtype)
        strides = tuple(held.itemsize * s for s in self.view.strides)
        return np.lib.stride_tricks.as_strided(self.buffer[start:].view(held), shape, strides)

    def untouched(self) -> bool:
        """Whether a buffer that was full of ``FILL`` still is, but for the elements."""
        copy = Memory(self.view, self.buffer.copy(), self.offset)
        copy.array()[...] = np.frombuffer(bytes([FILL]) * 8, copy.array().dtype)[0]
        return bool((copy.buffer == FILL).all())


def held_in(dtype: ir.DataType) -> np.dtype:
    """The integer or float type in which C holds elements of a type."""
    storage = c_types.storage(dtype)
    return np.dtype({"float": "f4", "double": "f8"}.get(storage) or storage.removesuffix("_t"))


def aligned(size: int, rng: np.random.Generator | None = None) -> np.ndarray:
    """Bytes at a multiple of 64: ``FILL``, or random ones."""
    raw = np.full(size + 64, FILL, np.uint8) if rng is None else rng.integers(0, 256, size + 64).astype(np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size]


def strided(
    shape: Sequence[int], order: Sequence[int], halo: Sequence[tuple[int, int]], gap: int
) -> tuple[tuple[int, ...], int, int]:
    """Strides with ``gap`` elements after each innermost line, the offset of element [0, ..., 0], and the extent."""
    strides, extent = [0] * len(shape), 1
    for axis in reversed(order):
        strides[axis] = extent
        extent *= max(shape[axis] + sum(halo[axis]), 1)
        if axis == order[-1]:
            extent += gap
    return tuple(strides), sum(b * s for (b, _), s in zip(halo, strides, strict=True)), extent


class Case(Protocol):
    """An operator with its data, and what is fused after it."""

    operator: OpKey
    attributes: Mapping[str, Any]
    inputs: Sequence[np.ndarray | None]
    constant: frozenset[int]
    steps: Sequence[Step]
    operands: Sequence[np.ndarray]
    constant_operands: frozenset[int]
    memory: dict[str, Memory]

    def build(self, rng: np.random.Generator | None) -> tuple[Family, Task]:
        """Find the family by provisional views, then place everything as it wants."""
        ...


def task_of(
    case: Case,
    result: np.ndarray,
    view: Callable[[str, tuple[int, ...], ir.DataType], View],
    dtype: ir.DataType | None = None,
) -> Task:
    """The task of a case.

    Args:
        case: The case.
        result: What comes out; only its type and shape count.
        view: The view of a tensor by name, shape and element type.
        dtype: Of the operator's own result; that of what comes out by default.
    """

    def given(name: str, x: np.ndarray, spread: bool) -> View:
        lead = (1,) * (result.ndim - x.ndim) if spread else ()
        made = view(name, lead + x.shape, ir.DataType.from_numpy(x.dtype))
        return made.broadcast(result.shape) if spread else made

    own = ir.DataType.from_numpy(result.dtype)
    chain = case.operator.name == "Identity"
    inputs = [x if x is None or i in case.constant else given(f"x{i}", x, chain) for i, x in enumerate(case.inputs)]
    operands = [x if k in case.constant_operands else given(f"e{k}", x, True) for k, x in enumerate(case.operands)]
    outputs = (view("y0", result.shape, own),)
    epilogue = Epilogue(own if dtype is None else dtype, tuple(operands), tuple(case.steps))
    return Task(case.operator, case.attributes, tuple(inputs), outputs, epilogue)


def fill(case: Case) -> None:
    """Write the case's data into its memory, padding into halos, and the pattern into its output."""
    for name, m in case.memory.items():
        if name == "y0":
            m.buffer[:] = FILL
            continue
        value = np.asarray((case.inputs if name[0] == "x" else case.operands)[int(name[1:])])
        if any(lo or hi for lo, hi in m.view.halo):
            m.around()[...] = m.view.pad
        m.array()[...] = value.reshape(m.view.shape)


def signature(name: str, task: Task, kernel: GeneratedKernel, isa: Isa) -> tuple[str, list[str]]:
    """The head of a kernel's function, and the names of its parameters."""
    parameters = []
    for letter, views in (("x", task.inputs), ("e", task.epilogue.operands), ("y", task.outputs)):
        constant = "" if letter == "y" else "const "
        parameters += [
            (constant + c_types.storage(v.dtype), f"{letter}{i}") for i, v in enumerate(views) if isinstance(v, View)
        ]
    parameters += [("const " + c_types.c_type(c_types.as_stored(c)), f"w{i}") for i, c in enumerate(kernel.constants)]
    if kernel.scratch:
        parameters.append(("void", "scratch"))
    target = f'__attribute__((target("{isa.target}"))) ' if isa.target else ""
    return f"{target}void {name}({', '.join(f'{c} *restrict {n}' for c, n in parameters)})", [n for _, n in parameters]


def function(name: str, task: Task, kernel: GeneratedKernel, isa: Isa) -> tuple[str, list[str]]:
    """A kernel as a C function, and the names of its parameters."""
    head, names = signature(name, task, kernel, isa)
    unused = "".join(f"    (void){n};\n" for n in names)
    parts = in_parts(kernel.body, {}) if IN_PARTS else None
    if parts is None:
        return f"{head};\n{head}\n{{\n{unused}{kernel.body}\n}}\n", names
    # The last block first, each with scratch memory that holds nothing.
    clear = f"memset(scratch, {FILL}, {kernel.scratch}); " if kernel.scratch else ""
    calls = (
        f"for (ptrdiff_t k = {parts.blocks}; k-- > 0;) {{ {clear}{name}_part({', '.join([*names, 'k', 'k + 1'])}); }}"
    )
    part = head.replace(f"void {name}(", f"void {name}_part(")[:-1] + ", ptrdiff_t begin, ptrdiff_t end)"
    blocks = f"ptrdiff_t {name}_blocks(void)"
    return (
        f"{blocks};\n{blocks}\n{{\nreturn {parts.blocks};\n}}\n{part};\n{part}\n{{\n{unused}{parts.body}\n}}\n"
        f"{head};\n{head}\n{{\n{calls}\n}}\n"
    ), names


def source(
    cases: Sequence[Case], chosen: Sequence[Isa], rng: np.random.Generator | None
) -> tuple[str, dict[tuple[int, str], tuple[GeneratedKernel, list[str]]]]:
    """All kernels of some cases as one file of C: functions ``k<case>_<instruction set>``."""
    kernels: dict[tuple[int, str], tuple[GeneratedKernel, list[str]]] = {}
    helpers: dict[str, None] = {}
    functions: list[str] = []
    for i, case in enumerate(cases):
        family, task = case.build(rng)
        for isa in chosen:
            kernel = family.generate(task, isa)
            text, names = function(f"k{i}_{isa.name}", task, kernel, isa)
            helpers.update(dict.fromkeys(kernel.helpers))
            functions.append(text)
            kernels[i, isa.name] = (kernel, names)
    return INCLUDES + "\n".join([*helpers, *functions]), kernels


def compiler_environment() -> dict[str, str]:
    """Variables for the compiler, into which the sanitizers of a test must not be preloaded."""
    return {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}


def compiled(text: str, optimization: str, flags: Sequence[str] = ()) -> ctypes.CDLL:
    """A library from C text, kept for the next run."""
    folder = Path(tempfile.gettempdir()) / f"eqsat-kernels-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    options = [*FLAGS, optimization, *flags]
    key = hashlib.sha256((text + " ".join(options)).encode()).hexdigest()[:20]
    library = folder / f"{key}.so"
    if not library.exists():
        file = folder / f"{key}.{os.getpid()}.c"
        file.write_text(text, "utf-8")
        partial = folder / f"{key}.{os.getpid()}.tmp"
        command = ["gcc", *options, str(file), "-o", str(partial), "-lm"]
        made = subprocess.run(command, env=compiler_environment(), capture_output=True, encoding="utf-8", check=False)
        assert made.returncode == 0, f"{file}\n{made.stderr[:6000]}"
        partial.replace(library)
        file.unlink()
    return ctypes.CDLL(str(library))


@functools.cache
def runnable() -> tuple[Isa, ...]:
    """Instruction sets that this machine has."""
    checks = ""
    for isa in ALL:
        asked = " && ".join(f'__builtin_cpu_supports("{feature}")' for feature in isa.features)
        checks += f"int has_{isa.name}(void);\nint has_{isa.name}(void) {{ return {asked or 1}; }}\n"
    library = compiled(checks, "-O1")
    return tuple(isa for isa in ALL if getattr(library, f"has_{isa.name}")())


def stored(kernel: GeneratedKernel, slack: int = 64) -> dict[str, np.ndarray]:
    """Constants of a kernel, with bytes after them that may be read, and its scratch memory, by parameter."""
    held = {}
    for i, constant in enumerate(kernel.constants):
        value = np.ascontiguousarray(c_types.as_stored(constant))
        held[f"w{i}"] = aligned(value.nbytes + slack)
        held[f"w{i}"][: value.nbytes] = np.frombuffer(value.tobytes(), np.uint8)
    held["scratch"] = aligned(kernel.scratch + 64)
    return held


def call(library: ctypes.CDLL, name: str, case: Case, kernel: GeneratedKernel, names: Sequence[str]) -> np.ndarray:
    """Run one kernel; checks what lies around its output."""
    y = case.memory["y0"]
    y.buffer[:] = FILL
    held = stored(kernel)
    pointers = [
        case.memory[n].buffer.ctypes.data + case.memory[n].offset if n in case.memory else held[n].ctypes.data
        for n in names
    ]
    getattr(library, name)(*(ctypes.c_void_p(p) for p in pointers))
    assert (held["scratch"][kernel.scratch :] == FILL).all(), f"{name} writes after its scratch"
    assert y.untouched(), f"{name} writes beside its output"
    result = y.array().copy()
    if hasattr(library, f"{name}_part"):
        check_owners(library, name, [ctypes.c_void_p(p) for p in pointers], y.buffer, held["scratch"])
    return result


def check_owners(
    library: ctypes.CDLL, name: str, pointers: Sequence[ctypes.c_void_p], output: np.ndarray, scratch: np.ndarray
) -> None:
    """No byte is written by two blocks: threads that write the same element race, also where they write the same."""
    blocks, part = getattr(library, f"{name}_blocks"), getattr(library, f"{name}_part")
    blocks.restype = ctypes.c_ssize_t
    count = blocks()
    if count > MOST_OWNERS:
        return
    owner = np.full(output.shape, -1)
    for k in range(count):
        output[:], scratch[:] = FILL, FILL
        part(*pointers, ctypes.c_ssize_t(k), ctypes.c_ssize_t(k + 1))
        written = output != FILL
        taken = written & (owner >= 0)
        assert not taken.any(), f"{name}: block {k} writes what block {owner[taken][0]} of {count} wrote"
        owner[written] = k
