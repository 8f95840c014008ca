"""Element types by their names in the rule language, and tests of them."""

from __future__ import annotations

import re

import onnx_ir as ir

from eqsat.schema.dtypes import dtype_name
from eqsat.schema.opset import did_you_mean

_ALIASES = {"float": "float32", "double": "float64"}
DTYPES: dict[str, ir.DataType] = {dtype_name(d): d for d in ir.DataType if d != ir.DataType.UNDEFINED}
DTYPES |= {alias: DTYPES[name] for alias, name in _ALIASES.items()}
"""Element type by name: ``float32``, ``int8``, ``bool``, ...; ``float`` and ``double`` are ONNX's names of two."""

_FLOATS = tuple(d for n, d in DTYPES.items() if ("float" in n) and n not in _ALIASES)
_SIGNED = tuple(d for n, d in DTYPES.items() if n.startswith("int"))
_UNSIGNED = tuple(d for n, d in DTYPES.items() if n.startswith("uint"))
DTYPE_LISTS: dict[str, tuple[ir.DataType, ...]] = {
    "floats": _FLOATS,
    "integers": _SIGNED + _UNSIGNED,
    "signed_integers": _SIGNED,
    "unsigned_integers": _UNSIGNED,
}

_SHORT = re.compile(r"(?P<kind>fp|bf|f|i|s|u)(?P<bits>[0-9]+)\Z", re.IGNORECASE)
_KINDS = {"fp": "float", "bf": "bfloat", "f": "float", "i": "int", "s": "int", "u": "uint"}
_WORDS = {
    "half": "float16",
    "single": "float32",
    "real": "float32",
    "str": "string",
    "boolean": "bool",
    "byte": "uint8",
}


def dtype_hint(name: str) -> str:
    """A hint for an unknown element type such as ``fp32``: a similar one; empty if there is none."""
    short = _SHORT.match(name)
    meant = _KINDS[short["kind"].lower()] + short["bits"] if short else _WORDS.get(name.lower(), "")
    return f"did you mean `{meant}`?" if meant in DTYPES else did_you_mean(name, (*DTYPES, *DTYPE_LISTS))
