"""The C functions of ``functions.c``, found by name: a piece of C needs the functions that it calls."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

_NAME = re.compile(r"[A-Za-z_]\w*")
_HEAD = re.compile(r"^static inline [\w ]+?(\w+)\(", re.MULTILINE)


@cache
def _functions() -> dict[str, str]:
    """Definitions by name, in the order of the file; a comment belongs to the function after it."""
    text = files("eqsat.codegen.expressions").joinpath("functions.c").read_text(encoding="utf-8")
    found = {}
    for part in text.split("\n\n"):
        head = _HEAD.search(part)
        if head is not None:
            found[head[1]] = part.strip() + "\n"
    return found


def needed(text: str) -> tuple[str, ...]:
    """Definitions of the functions that a piece of C calls, and of those that these call, callees first."""
    functions = _functions()
    wanted: set[str] = set()
    todo = [text]
    while todo:
        names = set(_NAME.findall(todo.pop())) & functions.keys() - wanted
        wanted |= names
        todo.extend(functions[name] for name in names)
    return tuple(definition for name, definition in functions.items() if name in wanted)
