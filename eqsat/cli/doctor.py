"""``eqsat doctor``: what of this machine eqsat can use, what is missing, and the command that brings it."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from eqsat.cli.console import UNBOUNDED, echo, echo_json, page_width
from eqsat.cli.shared_options import debug_option, json_option

NEEDED = ("egglog", "numpy", "onnx", "onnx-ir", "networkx")
"""Packages whose versions decide results or messages."""
OPTIONAL = {"onnxruntime": "verification then runs the input with numpy alone: pip install onnxruntime"}
"""Packages that eqsat uses where they are installed, and what is missing without them."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line.

    Attributes:
        topic: The subject of the check.
        found: The thing found; empty if it is missing.
        missing: The requirement or advice if it is missing.
    """

    topic: str
    found: str
    missing: str = ""


@click.command(short_help="Show what eqsat finds on this machine.")
@json_option()
@debug_option
def doctor(as_json: bool) -> None:
    """Show what eqsat finds on this machine: packages, C compiler, instruction sets, libraries, cache.

    Only the packages are required; without a compiler, models run with numpy.
    """
    from eqsat.report.fitting import hanging

    findings = list(examine())
    if as_json:
        echo_json([asdict(finding) for finding in findings])
        return
    width = max(len(finding.topic) for finding in findings)
    for finding in findings:
        colour = None if finding.found else "yellow"
        head = f"{finding.topic:<{width}}  "
        line = hanging(head + (finding.found or f"missing: {finding.missing}"), len(head), page_width(UNBOUNDED))
        echo(line.removeprefix(head), head=head, colour=colour)


def examine() -> Iterator[Finding]:
    """All findings; none of the checks raises an error on any machine."""
    from eqsat.version import __version__

    yield Finding("eqsat", __version__)
    yield Finding("Python", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    yield from _packages()
    yield from _machine()
    command = yield from _compiler()
    yield from _backends(command)
    yield from _caches()


def _packages() -> Iterator[Finding]:
    from importlib.metadata import PackageNotFoundError, version

    for name in (*NEEDED, *OPTIONAL):
        try:
            yield Finding(name, version(name))
        except PackageNotFoundError:
            yield Finding(name, "", OPTIONAL.get(name) or f"pip install {name}")


def _machine() -> Iterator[Finding]:
    from eqsat import bounds
    from eqsat.codegen.compiler import native_isas

    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    yield Finding("processors", f"{usable}")
    with bounds.bounded(memory=None):
        yield Finding("memory limit", f"{bounds.show_bytes(bounds.current().memory)} for tensors (--memory-limit)")
    yield Finding("instruction sets", ", ".join(isa.name for isa in native_isas()))


def _compiler() -> Iterator[Finding]:
    """The compiler, which must compile and load a program; returns its command, or nothing."""
    import ctypes
    import subprocess

    from eqsat.codegen.compiler import compile_library, find_compiler
    from eqsat.errors import EqsatError

    try:
        command = find_compiler()
        library = ctypes.CDLL(
            str(compile_library({"doctor.c": "int doctor(int x);\nint doctor(int x) { return x + 1; }\n"}))
        )
        if library.doctor(41) != 42:
            yield Finding("C compiler", "", f"{' '.join(command)} makes programs that compute wrong results")
            return []
        done = subprocess.run([*command, "--version"], capture_output=True, encoding="utf-8", check=False)
        yield Finding("C compiler", f"{' '.join(command)}: {(done.stdout.splitlines() or ['no version'])[0]}")
        return command
    except EqsatError as error:
        yield Finding("C compiler", "", _one_line(error))
    except OSError as error:
        yield Finding("C compiler", "", f"its programs cannot be loaded: {error}")
    return []


def _backends(command: list[str]) -> Iterator[Finding]:
    from eqsat.backends import find_backends
    from eqsat.errors import EqsatError

    for name in find_backends.names():
        try:
            backend = find_backends.named(name)
            if backend.emits and not command:
                yield Finding(f"backend {name}", "", "a C compiler is required")
                continue
            backend.require(command)
            yield Finding(f"backend {name}", backend.library or type(backend).__name__)
        except EqsatError as error:
            yield Finding(f"backend {name}", "", _one_line(error))


def _caches() -> Iterator[Finding]:
    from eqsat import bounds
    from eqsat.codegen import cache
    from eqsat.errors import EqsatError
    from eqsat.files import cache_folder

    folder = cache_folder()
    sizes = list(_sizes(folder))
    try:
        limit = f"compiled models take at most {bounds.show_bytes(cache.limit())} (EQSAT_CACHE_LIMIT, in megabytes)"
    except EqsatError as error:
        limit = _one_line(error)
    yield Finding("cache", f"{folder} (EQSAT_CACHE): {len(sizes):,} files, {bounds.show_bytes(sum(sizes))}; {limit}")


def _sizes(folder: Path) -> Iterator[int]:
    """Bytes of each file below a folder, but for those that other processes remove meanwhile."""
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                yield Path(place, name).stat().st_size


def _one_line(error: Exception) -> str:
    return "; ".join(line.strip() for line in str(error).splitlines())
