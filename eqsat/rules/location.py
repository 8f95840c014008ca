"""Where the shipped rules are: inside an installed package, or at the top of a checkout."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from eqsat.errors import RuleError

PRELUDE = "prelude.rules"
"""The file in the shipped rules whose ``let``s hold everywhere."""


def rules_dir() -> Path:
    """The folder of the shipped ``*.rules``, ``prelude.rules`` and ``targets/``.

    Raises:
        RuleError: The installation lacks it.
    """
    return _beside(__file__)


@cache
def is_shipped(file: str) -> bool:
    """Whether a file of rules or targets is a shipped one."""
    return Path(file).resolve().is_relative_to(rules_dir())


@cache
def _beside(file: str) -> Path:
    package = Path(file).resolve().parent.parent
    for candidate in (package / "_rules", package.parent / "rules"):
        if candidate.is_dir():
            return candidate
    raise RuleError(
        "the rules that eqsat ships with are required",
        place=str(package),
        actual="neither `_rules` in the package nor `rules` beside it",
        hint="install eqsat again",
    )
