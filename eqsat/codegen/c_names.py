"""Names of a model's tensors as unique identifiers of C."""

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
        "try typeid typename using virtual xor xor_eq unix linux ptrdiff_t intptr_t uintptr_t wchar_t char8_t char16_t",
        "char32_t concept requires co_await co_return co_yield consteval constinit decltype noexcept static_assert",
        "thread_local const_cast dynamic_cast reinterpret_cast static_cast typeof_unqual i386",
        "memcpy memset contexts context status start end",
        "INFINITY NAN HUGE_VAL HUGE_VALF HUGE_VALL DECIMAL_DIG MATH_ERRNO MATH_ERREXCEPT math_errhandling signgam",
        "EOF BUFSIZ FILENAME_MAX FOPEN_MAX L_tmpnam TMP_MAX SEEK_SET SEEK_CUR SEEK_END stdin stdout stderr",
        "RAND_MAX MB_CUR_MAX CLOCKS_PER_SEC TIME_UTC SIZE_MAX OVERFLOW UNDERFLOW DOMAIN SING PLOSS TLOSS errno",
    )
    for word in line.split()
)
"""Words of C and C++, macros of the headers that a program includes, and names that the entry function has already."""
_FAMILIES = re.compile(
    r"(U?INT\w*|FLT|DBL|LDBL|FP|M|PTRDIFF|SIG_ATOMIC|WCHAR|WINT|EXIT|CLOCK|TIMER|CHAR|SCHAR|UCHAR|U?SHRT|U?L?LONG)_\w+"
)
"""Families of macros with such names."""
_SIZES = ("ARENA", "WEIGHTS")
"""Words that precede ``_SIZE`` in macros of the header, besides the names of arguments."""
LONGEST = 80
"""Characters of an identifier made from a name, at most."""


def identifier(text: str, fallback: str = "x") -> str:
    """A name reduced to the characters of an identifier."""
    found = re.sub(r"[^0-9A-Za-z_]+", "_", text).strip("_")[:LONGEST].strip("_")
    if not found:
        found = fallback
    if found[0].isdigit() or found in _RESERVED or found.upper() in _SIZES or _FAMILIES.fullmatch(found):
        found = f"{fallback}_{found}"
    return found


def unique(names: Iterable[str], fallback: str = "x", prefix: str = "") -> list[str]:
    """Identifiers for names, numbered where two of them would be equal.

    Args:
        names: Of tensors or targets.
        fallback: The beginning of an identifier if the name gives none.
        prefix: Prefix of the names that the program defines; no result begins with it.
    """
    taken: set[str] = set()
    last: dict[str, int] = {}
    result = []
    for name in names:
        base = identifier(name, fallback)
        if prefix and f"{base}_".upper().startswith(f"{prefix}_".upper()):
            base = f"{fallback}_{base}"
        # Macros contain them in upper case, and some file systems ignore case.
        candidate, number = base, last.get(base.upper(), 1)
        while candidate.upper() in taken:
            number += 1
            candidate = f"{base}_{number}"
        last[base.upper()] = number
        taken.add(candidate.upper())
        result.append(candidate)
    return result


def _suggested(name: str) -> str:
    words = re.sub(r"[^0-9A-Za-z_]+", "_", name).strip("_")[:40]
    return words if re.match(r"[A-Za-z]", words) and words not in _RESERVED else f"net_{words}".rstrip("_")


def check_prefix(name: str) -> str:
    """A name that files and functions may begin with.

    Raises:
        CodegenError: It is not an identifier, or a word of C or C++.
    """
    if not re.fullmatch(r"[A-Za-z][0-9A-Za-z_]*", name) or name in _RESERVED:
        raise CodegenError(
            "a name of letters, digits and underscores that is not a word of C is required",
            actual=repr(name),
            hint=f"for example {_suggested(name)!r}",
        )
    return name
