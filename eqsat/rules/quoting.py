"""String literals of the rule language."""

from __future__ import annotations


def quote(text: str) -> str:
    """A string as it is written, with its quotes."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'


def unescape(text: str) -> str:
    r"""``\"``, ``\\``, ``\n`` and ``\t`` of a string."""
    out, i = [], 0
    while i < len(text):
        if text[i] == "\\" and i + 1 < len(text):
            i += 1
            out.append({"n": "\n", "t": "\t"}.get(text[i], text[i]))
        else:
            out.append(text[i])
        i += 1
    return "".join(out)
