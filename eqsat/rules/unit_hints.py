"""Converts numbers with units for hints: target files have plain numbers, in SI units."""

from __future__ import annotations

import re

_POWERS = {"n": -9, "u": -6, "µ": -6, "m": -3, "k": 3, "K": 3, "M": 6, "G": 9, "T": 12, "P": 15}
_BASES = ("B", "Bytes", "bytes", "byte", "b", "bit", "s", "sec", "Hz", "FLOP", "FLOPS", "FLOPs", "flops", "OPS", "OPs",
          "ops", "MAC", "MACS", "MACs", "macs", "W")  # fmt: skip
_UNIT = re.compile(rf"(?P<prefix>[nuµmkKMGTP]?)(?P<binary>i?)(?P<base>{'|'.join(_BASES)})(?P<per>(/[A-Za-z]+|ps)?)\Z")
_WITH_UNIT = re.compile(r"(?P<number>[0-9][0-9_]*(?:\.[0-9]+)?)(?P<exponent>e[+-]?[0-9]+)?[ \t]*(?P<unit>[A-Za-zµ/]+)")


def without_unit(text: str) -> tuple[str, str] | None:
    """The number and unit at the beginning of a text such as ``4 GB``, and the spelling of the language, ``4e9``.

    Returns:
        None if the text does not begin with a number and a unit.
    """
    found = _WITH_UNIT.match(text)
    if found is None:
        return None
    unit = _UNIT.match(found["unit"])
    if unit is None:
        bare = found["unit"] in _POWERS and found["unit"] != "m"
        power, binary = (_POWERS[found["unit"]], False) if bare else (None, False)
    else:
        power, binary = _POWERS.get(unit["prefix"], 0), bool(unit["binary"])
    if power is None:
        return None
    number, exponent = found["number"], int((found["exponent"] or "e0")[1:])
    if binary and power > 0:
        return found.group(), f"{number}{found['exponent'] or ''} * 2**{power // 3 * 10}"
    power += exponent
    return found.group(), f"{number}e{power}" if power else number


def plain_number(found: str, wanted: str) -> tuple[str, str, str]:
    """Requirement, what was found and the hint for a number with a unit."""
    return "a number without a unit is required", f"`{found}`", f"write `{wanted}`; units are those of the SI: B/s, s"
