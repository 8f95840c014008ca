"""``eqsat rules``: which rules there are, what one says and compiles to, and the one way to write them."""

from __future__ import annotations

import click


@click.group(short_help="List, show and format rules.")
def rules() -> None:
    """Rules say which programs are equal; docs/rules.md describes their language."""
