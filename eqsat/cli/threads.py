"""The option ``--threads`` of the commands that make C."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

_Command = TypeVar("_Command", bound=Callable[..., Any])


def threads_option(what: str) -> Callable[[_Command], _Command]:
    """``--threads``."""
    return click.option(
        "--threads", type=click.IntRange(min=1, max=1024), default=1, show_default=True, metavar="N", help=what
    )
