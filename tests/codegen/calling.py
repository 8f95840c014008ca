"""Calls compiled programs in a process of their own, which a crash ends or a sanitizer watches.

``python -m tests.codegen.calling LIBRARY CALLS RESULTS``. It loads nothing but numpy: under AddressSanitizer all else
would be slow, and libraries that throw would end it.
"""

from __future__ import annotations

import ctypes
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

_C = ctypes.CDLL(None)


@dataclass(frozen=True)
class Call:
    """One run of a program.

    Attributes:
        name: Of the case.
        symbol: The entry function.
        inputs: As C takes them.
        outputs: Shape and numpy type of each.
        arena: Bytes of working memory.
        weights: Bytes.
    """

    name: str
    symbol: str
    inputs: list[np.ndarray]
    outputs: list[tuple[tuple[int, ...], np.dtype]]
    arena: int
    weights: np.ndarray


class Block:
    """Memory of its own that ends with its last byte, so that sanitizers see what lies after it.

    Args:
        content: Dense.
        aligned: At a multiple of 64 bytes; else no further than the element's size asks for.
    """

    def __init__(self, content: np.ndarray, *, aligned: bool = False) -> None:
        self.content = np.array(content, order="C")
        before = 0 if aligned else self.content.itemsize
        memory = ctypes.c_void_p()
        size = ctypes.c_size_t(before + self.content.nbytes)
        assert _C.posix_memalign(ctypes.byref(memory), ctypes.c_size_t(64), size) == 0
        self._memory = memory
        self.pointer = ctypes.c_void_p((memory.value or 0) + before)
        ctypes.memmove(self.pointer, self.content.ctypes.data, self.content.nbytes)

    def read(self) -> np.ndarray:
        """What is there now."""
        result = np.empty_like(self.content)
        ctypes.memmove(result.ctypes.data, self.pointer, result.nbytes)
        return result

    def __del__(self) -> None:
        _C.free(self._memory)


def call(library: ctypes.CDLL, given: Call) -> list[np.ndarray]:
    """Outputs of a program, with operands that are aligned no better than they have to be."""
    blocks = [Block(x) for x in given.inputs]
    made = [Block(np.zeros(shape, dtype)) for shape, dtype in given.outputs]
    arena = Block(np.full(given.arena, 0xA5, np.uint8), aligned=True)
    weights = Block(given.weights, aligned=True)
    status = getattr(library, given.symbol)(*[block.pointer for block in (*blocks, *made, arena, weights)])
    assert status == 0, f"status {status}"
    return [block.read() for block in made]


def finding(text: str) -> str:
    """What a process that ended had to say: of a sanitizer's report its beginning, else the last lines."""
    words = text.split()
    start = next((i for i, word in enumerate(words) if word == "runtime" or "Sanitizer" in word), None)
    return " ".join(words)[-1500:] if start is None else " ".join(words[max(start - 1, 0) :])[:1500]


def apart(library: Path, calls: Sequence[Call], environment: Mapping[str, str]) -> dict[str, list[np.ndarray] | str]:
    """Outputs of each program by the case's name, or what was said when the process ended."""
    results: dict[str, list[np.ndarray] | str] = {}
    while left := [c for c in calls if c.name not in results]:
        with tempfile.TemporaryDirectory() as folder:
            given, made = Path(folder, "calls"), Path(folder, "results")
            given.write_bytes(pickle.dumps(left))
            command = [sys.executable, "-m", "tests.codegen.calling", str(library), str(given), str(made)]
            done = subprocess.run(command, env=dict(environment), capture_output=True, encoding="utf-8", check=False)
            before = len(results)
            if made.exists():
                with made.open("rb") as file:
                    while file.peek(1):
                        name, outputs = pickle.load(file)
                        results[name] = outputs
        if done.returncode and len(results) < len(calls):
            # Results are written one by one, so that the first without one is where it ended.
            crashed = next(c.name for c in left if c.name not in results)
            results[crashed] = finding(done.stderr) or f"exit code {done.returncode}"
        assert len(results) > before, done.stderr
    return results


def main(library: str, given: str, made: str) -> None:
    """Call them all."""
    loaded = ctypes.CDLL(library)
    with Path(made).open("wb", buffering=0) as file:
        for one in pickle.loads(Path(given).read_bytes()):
            file.write(pickle.dumps((one.name, call(loaded, one))))


if __name__ == "__main__":
    main(*sys.argv[1:])
