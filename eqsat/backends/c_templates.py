"""Templates of C in any package."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from eqsat.text import c_string, plain

if TYPE_CHECKING:
    import jinja2


@lru_cache(maxsize=8)
def environment(package: str, folder: str) -> jinja2.Environment:
    """The templates in a folder of a package."""
    # Only programs in C need it.
    import jinja2

    # C, not HTML: nothing to escape. Undefined names are errors.
    made = jinja2.Environment(
        loader=jinja2.PackageLoader(package, folder),
        undefined=jinja2.StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters["comment"] = plain
    made.filters["string"] = c_string
    return made
