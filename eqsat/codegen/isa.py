"""The instruction sets that kernels are written for, and how C code asks for them.

A kernel is generated once for each; the entry function of the model picks one at run time. On x86 the functions of a
variant carry ``__attribute__((target(...)))`` and ``__builtin_cpu_supports`` decides: ``target_clones`` would leave
the vector code of the generic version in every clone (measured: 204 ms instead of 6 for MobileNetV2).
``PORTABLE`` is the vector extension of GCC and clang without assumptions on the machine, ``SCALAR`` is C11 alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eqsat.errors import CodegenError


@dataclass(frozen=True, slots=True)
class Isa:
    """An instruction set.

    Attributes:
        name: The suffix of functions, a C identifier.
        vector_bytes: Width of a register; 0 where there are no vectors.
        registers: Vector registers that a kernel may count on.
        target: The argument of ``__attribute__((target(...)))``; empty for the compiler's default.
        features: Arguments of ``__builtin_cpu_supports``; the machine must have all of them.
        dot4: Name of the instruction that multiplies 4 unsigned by 4 signed bytes and sums into 32 bits, or empty.
    """

    name: str
    vector_bytes: int
    registers: int
    target: str = ""
    features: tuple[str, ...] = ()
    dot4: str = ""

    @property
    def vectors(self) -> bool:
        """Whether the vector extensions of GCC and clang may be used."""
        return self.vector_bytes > 0

    @property
    def x86(self) -> bool:
        """Whether it exists only on x86-64."""
        return bool(self.target)

    def lanes(self, bytes_per_element: int = 4) -> int:
        """Elements in a register, 1 without vectors."""
        return max(self.vector_bytes // bytes_per_element, 1)


AVX512 = Isa(
    "avx512",
    64,
    32,
    target="avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,bmi2",
    features=("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni", "avx2", "fma", "bmi2"),
    dot4="vpdpbusd",
)
"""Skylake-X with VNNI: Cascade Lake, Ice Lake, Zen 4 and later."""
AVX2 = Isa("avx2", 32, 16, target="avx2,fma,bmi2,f16c", features=("avx2", "fma", "bmi2"), dot4="vpmaddubsw")
"""Haswell, Zen and later. All of them have F16C, which many compilers cannot test for."""
PORTABLE = Isa("portable", 16, 16)
"""Vectors of 16 bytes, as SSE2, NEON and AltiVec have them; the compiler's default flags decide the rest."""
SCALAR = Isa("scalar", 0, 16)
"""C11 without extensions."""

ALL = (AVX512, AVX2, PORTABLE, SCALAR)
"""From the most special to the most general; the last two are always generated."""


def find(names: Sequence[str]) -> tuple[Isa, ...]:
    """Instruction sets by name, in the order of ``ALL``, with those that every program has.

    Raises:
        CodegenError: A name is unknown.
    """
    known = {isa.name: isa for isa in ALL}
    for name in names:
        if name not in known:
            raise CodegenError(
                "an instruction set that eqsat knows is required", actual=name, hint=f"one of {', '.join(known)}"
            )
    return tuple(isa for isa in ALL if isa.name in names or isa in (PORTABLE, SCALAR))
