"""Names of ``int8.h.jinja`` in generated C, filled in like those of ``vectors.h.jinja``, on which they build."""

from __future__ import annotations

import re
from functools import lru_cache

from eqsat.codegen import vectors
from eqsat.codegen.isa import Isa
from eqsat.codegen.kernels.registry import render

_USED = re.compile(r"\b(\w+)@")
_STARTS = re.compile(r"^(?=(?:/\*|static|typedef|#define|#if))", re.MULTILINE)
_COMMENT = re.compile(r"/\*.*?\*/\s*", re.DOTALL)


def finish(text: str, isa: Isa) -> tuple[str, tuple[str, ...]]:
    """C text with ``name@`` filled in, and the declarations that it needs, each after what it is built on."""
    table = _declarations(isa)
    wanted: set[str] = set()
    floats: set[str] = set()
    pending = _USED.findall(text)
    while pending:
        name = pending.pop()
        if name not in table:
            floats.add(name)
        elif name not in wanted:
            wanted.add(name)
            pending.extend(table[name][1])
    own = [declaration for name, (declaration, _) in table.items() if name in wanted]
    below = vectors.helpers(" ".join(f"{name}@" for name in sorted(floats)), isa)
    if isa.x86 and any("_mm" in h for h in own):
        below = tuple(dict.fromkeys(("#include <immintrin.h>", *below)))
    return text.replace("@", f"_{isa.name}"), (*below, *own)


@lru_cache(maxsize=16)
def _declarations(isa: Isa) -> dict[str, tuple[str, tuple[str, ...]]]:
    """By name, in the order of the file: the declaration and the names that it uses."""
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    comment = ""
    for part in _STARTS.split(render("int8.h.jinja", isa=isa, lanes=isa.lanes())):
        code = _COMMENT.sub("", part).strip()
        if not code:
            comment = part.rstrip() + "\n" if part.strip() else ""
            continue
        defined = re.search(r"\b(\w+)@\(" if code.startswith("static") else r"\b(\w+)@", code)
        assert defined is not None, code
        name = defined.group(1)
        used = tuple(sorted(set(_USED.findall(code)) - {name}))
        found[name] = ((comment + code).replace("@", f"_{isa.name}"), used)
        comment = ""
    return found
