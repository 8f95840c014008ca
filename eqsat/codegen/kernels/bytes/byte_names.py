"""Names of ``bytes.h.jinja`` in generated C, filled in like those of ``vectors.h.jinja``, on which they build."""

from __future__ import annotations

from eqsat.codegen import isa_names
from eqsat.codegen.isa import Isa

TEMPLATE = "bytes/bytes.h.jinja"


def finish(text: str, isa: Isa) -> tuple[str, tuple[str, ...]]:
    """C text with ``name@`` filled in, and the declarations that it needs, in the order of their dependences."""
    return isa_names.finish(text, isa, TEMPLATE)
