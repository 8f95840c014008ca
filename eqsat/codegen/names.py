"""Names of a model's tensors as identifiers of C, each once."""

from __future__ import annotations

import re
from collections.abc import Iterable

from eqsat.errors import CodegenError

_RESERVED = frozenset(
    word
    for line in (
        "auto break case char const continue default do double else enum extern float for goto if inline int long",
        "register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while",
        "asm typeof arena weights main int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t size_t NULL",
        "bool true false nullptr constexpr alignas alignof and and_eq bitand bitor catch class compl delete explicit",
        "export friend mutable namespace new not not_eq operator or or_eq private protected public template this throw",
        "try typeid typename using virtual xor xor_eq unix linux ptrdiff_t",
    )
    for word in line.split()
)
"""Words of C and C++, and names that the entry function has already."""


def identifier(text: str, fallback: str = "x") -> str:
    """What is left of a name as an identifier."""
    found = re.sub(r"[^0-9A-Za-z_]+", "_", text).strip("_")
    if not found:
        found = fallback
    if found[0].isdigit() or found in _RESERVED:
        found = f"{fallback}_{found}"
    return found


def unique(names: Iterable[str], fallback: str = "x") -> list[str]:
    """Identifiers for names, numbered where two would be equal."""
    taken: set[str] = set()
    result = []
    for name in names:
        base = candidate = identifier(name, fallback)
        number = 1
        while candidate in taken:
            number += 1
            candidate = f"{base}_{number}"
        taken.add(candidate)
        result.append(candidate)
    return result


def check_prefix(name: str) -> str:
    """A name that files and functions may begin with.

    Raises:
        CodegenError: It is no identifier, or a word of C or C++.
    """
    if not re.fullmatch(r"[A-Za-z][0-9A-Za-z_]*", name) or name in _RESERVED:
        raise CodegenError(
            "a name of letters, digits and underscores that is no word of C is required", actual=repr(name)
        )
    return name
