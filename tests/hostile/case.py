"""What a hostile case is: files in a folder, and the arguments of a command that reads them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx

Build = Callable[[Path], Sequence[str]]
"""Writes files into a folder and returns the arguments of ``eqsat``."""


@dataclass(frozen=True)
class Case:
    """One input that must end well.

    Attributes:
        name: Of the case, such as ``optimize-range``.
        build: Makes it.
        refused: Whether it must be refused; else a right result will do as well.
    """

    name: str
    build: Build
    refused: bool = False


CASES: dict[str, Case] = {}


def add(name: str, build: Build, refused: bool = False) -> None:
    """Registers a case."""
    assert name not in CASES, f"two cases are called {name!r}"
    CASES[name] = Case(name, build, refused)


Source = str | bytes | onnx.ModelProto
COMMANDS: dict[str, tuple[str, ...]] = {
    "optimize": ("optimize", "{model}", "-o", "{out}", "-q"),
    "optimize-dnnl": ("optimize", "{model}", "-t", "dnnl", "-o", "{out}", "-q"),
    "run": ("run", "{model}", "-q"),
    "codegen": ("codegen", "{model}", "-o", "{folder}", "-q"),
    "compare": ("compare", "{model}", "{model}", "-q"),
}


def hostile(*commands: str, refused: bool = False) -> Callable[[Callable[[], Source]], Callable[[], Source]]:
    """Decorates a function that makes a model: it is given to some commands, ``optimize`` and ``run`` by default.

    Args:
        commands: Names of :data:`COMMANDS`.
        refused: Whether all must refuse it.
    """

    def register(make: Callable[[], Source]) -> Callable[[], Source]:
        for command in commands or ("optimize", "run"):
            add(f"{command}-{make.__name__}", _given_to(command, make), refused)
        return make

    return register


def _given_to(command: str, make: Callable[[], Source]) -> Build:
    def build(folder: Path) -> Sequence[str]:
        path = write(folder, make())
        names = {"model": str(path), "out": str(folder / "out.onnx"), "folder": str(folder / "program")}
        return [part.format(**names) for part in COMMANDS[command]]

    return build


def write(folder: Path, source: Source) -> Path:
    """A model as a file: text, bytes or a protobuf."""
    path = folder / ("model.onnxtxt" if isinstance(source, str) else "model.onnx")
    if isinstance(source, str):
        path.write_text(source, "utf-8")
    else:
        path.write_bytes(source if isinstance(source, bytes) else source.SerializeToString())
    return path
