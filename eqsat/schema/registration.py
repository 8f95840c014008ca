"""Functions that belong to operators, by decorators that name the operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from eqsat.schema.types import OpKey

_Function = TypeVar("_Function")


def registering(
    table: dict[OpKey, _Function], names: Sequence[str], domain: str, twice: str
) -> Callable[[_Function], _Function]:
    """A decorator that adds a function to a table, for each of some operators.

    Args:
        table: By operator.
        names: Names of the operators.
        domain: Of all of them.
        twice: What is wrong with an operator that the table has already, as ``has two spellings``.
    """

    def add(function: _Function) -> _Function:
        for name in names:
            if OpKey(domain, name) in table:
                raise ValueError(f"{name} {twice}")
            table[OpKey(domain, name)] = function
        return function

    return add
