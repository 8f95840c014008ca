"""``eqsat targets``: which accelerators there are, and what one can do."""

from __future__ import annotations

import click


@click.group(short_help="List, show and check targets.")
def targets() -> None:
    """Targets say which kernels an accelerator has and what they cost; docs/targets.md describes their files."""
