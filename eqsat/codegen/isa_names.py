"""Names of an instruction set in generated C: ``relu@`` becomes ``relu_avx512``, and its declaration is added.

Templates and vector expressions are written once for all instruction sets. The names that they use are declared in
``kernels/shared/vectors.h.jinja``; :func:`finish` finds which of them a text uses, directly or indirectly.
"""

from __future__ import annotations

import re
from functools import lru_cache

from eqsat.codegen.isa import Isa
from eqsat.codegen.kernel_text import render

BASE = "shared/vectors.h.jinja"
_USED = re.compile(r"\b(\w+)@")
_STARTS = re.compile(r"^(?=(?:/\*|static|typedef|#define|#if))", re.MULTILINE)
_COMMENT = re.compile(r"/\*.*?\*/\s*", re.DOTALL)


def finish(text: str, isa: Isa, *templates: str) -> tuple[str, tuple[str, ...]]:
    """C text with ``name@`` filled in, and the declarations that it needs, in the order of their dependences.

    Args:
        text: C with names that end in ``@``.
        isa: The instruction set.
        templates: Further files of declarations in ``kernels/``, in the order of their dependences.
    """
    table = {name: entry for file in (BASE, *templates) for name, entry in _declarations(file, isa).items()}
    wanted: set[str] = set()
    pending = _USED.findall(text)
    while pending:
        name = pending.pop()
        if name not in wanted:
            wanted.add(name)
            pending.extend(table[name][1])
    found = [declaration for name, (declaration, _) in table.items() if name in wanted]
    if isa.x86 and any("_mm" in declaration for declaration in found):
        found.insert(0, "#include <immintrin.h>")
    if any("__aarch64__" in declaration for declaration in found):
        found.insert(0, "#if defined(__aarch64__)\n#include <arm_neon.h>\n#endif")
    return _named(text, isa), tuple(found)


def helpers(text: str, isa: Isa, *templates: str) -> tuple[str, ...]:
    """The declarations alone."""
    return finish(text, isa, *templates)[1]


def _named(text: str, isa: Isa) -> str:
    return text.replace("@", f"_{isa.name}")


@lru_cache(maxsize=32)
def _declarations(file: str, isa: Isa) -> dict[str, tuple[str, tuple[str, ...]]]:
    """By name, in the order of the file: the declaration and the names that it uses."""
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    comment = ""
    for part in _STARTS.split(render(file, isa=isa, lanes=isa.lanes())):
        code = _COMMENT.sub("", part).strip()
        if not code:
            comment = part.rstrip() + "\n" if part else ""
            continue
        defined = re.search(r"\b(\w+)@\(" if code.startswith("static") else r"\b(\w+)@", code)
        assert defined is not None, code
        name = defined.group(1)
        found[name] = (_named(comment + code, isa), tuple(sorted(set(_USED.findall(code)) - {name})))
        comment = ""
    return found
