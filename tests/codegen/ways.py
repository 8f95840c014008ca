"""The ways in which generated C is compiled for tests: as users do it, as fast as can be, and under sanitizers.

A sanitized way takes one instruction set, so that what the program would pick on this machine does not hide the others.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass

from eqsat.codegen.compiler import find_compiler, native_isas
from eqsat.codegen.isa import AVX2, AVX512, PORTABLE, SCALAR, Isa
from tests.codegen.kernels.vectors.harness import runnable

SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g1")


@dataclass(frozen=True)
class Way:
    """How programs are generated and compiled.

    Attributes:
        isas: Instruction sets that are written.
        flags: Further flags of the compiler.
        sanitize: Whether the process that loads the library needs the sanitizers' own.
    """

    isas: tuple[Isa, ...]
    flags: tuple[str, ...] = ()
    sanitize: bool = False

    def all_flags(self, names: Iterable[str]) -> tuple[str, ...]:
        """Those for programs of some names."""
        scalar = SCALAR in self.isas and len(self.isas) == 2
        return (*self.flags, *(f"-D{name.upper()}_SCALAR" for name in names if scalar))

    def environment(self) -> dict[str, str]:
        """Of the process that runs the programs."""
        return {**os.environ, **(sanitized() if self.sanitize else {})}


WAYS = {
    "native": Way(native_isas()),
    "quick": Way((PORTABLE,), ("-O0",)),
    "sanitize-avx512": Way((AVX512,), SANITIZERS, sanitize=True),
    "sanitize-avx2": Way((AVX2,), SANITIZERS, sanitize=True),
    "sanitize-portable": Way((PORTABLE,), SANITIZERS, sanitize=True),
    "sanitize-scalar": Way((PORTABLE, SCALAR), SANITIZERS, sanitize=True),
}
"""By name; the scalar path is the one that stands where there are no vectors, hence the macro."""


def sanitized_ways() -> list[str]:
    """Those under sanitizers that this machine can run."""
    known = {isa.name for isa in runnable()}
    return [name for name, way in WAYS.items() if way.sanitize and known.issuperset(isa.name for isa in way.isas)]


def sanitized() -> dict[str, str]:
    """What a process needs that loads a library with sanitizers.

    AddressSanitizer looks for the functions that throw C++ exceptions as it starts, so it needs their library then.
    """
    return {
        "LD_PRELOAD": " ".join(map(_library, ("libasan.so", "libstdc++.so.6"))),
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }


def _library(name: str) -> str:
    """The path of one of the compiler's libraries, or its name if the compiler does not know it."""
    command = [*find_compiler(), f"-print-file-name={name}"]
    return subprocess.run(command, capture_output=True, encoding="utf-8", check=True).stdout.strip()
