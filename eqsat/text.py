"""Escapes text from other authors for the programs that read it next.

Names, documentation and strings of a model come from its author, and must never act as an instruction to a
compiler, to CMake, to a terminal, to a browser. Each medium has one function here that all text goes through on its way
there.
"""

from __future__ import annotations

import json
import re
from typing import Any

LONGEST = 160
"""Characters of a name that are shown in C."""
NAME = 1000
"""Characters of a name that are shown to people."""
_OTHER = re.compile(r"[^0-9A-Za-z _.,:;+=()\[\]<>/-]")


def plain(text: object) -> str:
    """Text for a comment or a string of C, or a comment of CMake: letters, digits and a few marks, one line.

    Neither a comment nor a string can end inside the result, and no preprocessor finds a splice or a trigraph in it.
    """
    kept = _OTHER.sub("_", str(text)[: LONGEST + 1])
    return kept if len(kept) <= LONGEST else f"{kept[: LONGEST - 3]}..."


def c_string(text: object) -> str:
    """A string literal of C that holds a name as :func:`plain` leaves it."""
    return f'"{plain(text)}"'


def c_bytes(text: str) -> str:
    """A string literal of C that holds exactly this text in UTF-8; what :func:`plain` would not leave is in octal."""
    encoded = text.encode("utf-8", "surrogatepass")
    # Three digits, because a digit after a shorter escape would belong to it.
    return '"' + "".join(f"\\{b:03o}" if _OTHER.match(chr(b)) else chr(b) for b in encoded) + '"'


def shown(text: object) -> str:
    """Readable text on one line: characters that a terminal or a page would obey or hide become escapes."""
    given = str(text)
    return given if given.isprintable() else "".join(c if c.isprintable() else _escape(c) for c in given)


def name_of(text: object) -> str:
    """A name as :func:`shown` has it; one that is longer than anybody would read is cut in the middle."""
    given = str(text)
    if len(given) <= NAME:
        return shown(given)
    return f"{shown(given[: NAME - 200])}... ({len(given):,} characters) ...{shown(given[-100:])}"


def shown_lines(text: object) -> str:
    """The same for text of several lines."""
    return "\n".join("\t".join(shown(cell) for cell in line.split("\t")) for line in str(text).split("\n"))


def json_text(value: Any) -> str:
    """JSON, indented, that can be printed: unprintable characters are escapes of JSON."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    if text.isascii() and "\x7f" not in text:
        return text
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1].replace("\x7f", "\\u007f") for c in text)


def _escape(character: str) -> str:
    found = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(character)
    if found is not None:
        return found
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
