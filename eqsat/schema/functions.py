"""Operators that have a body instead of a schema: their meaning and their types follow from it.

They are looked up here. Those of eqsat are declared in :mod:`eqsat.ops.functions`; a module that needs them
imports that module, as the rooms ``model`` and ``rules`` do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from eqsat.schema.body import Body
from eqsat.schema.types import Attrs, AttrValue, OpKey


@dataclass(frozen=True, slots=True)
class Function:
    """One declared operator.

    Attributes:
        op: Domain and name; the domain is ``EQSAT`` or one of its subdomains for functions of eqsat.
        inputs: Names of the inputs, in order; all are required.
        attributes: Names and default values, sorted by name.
        body: The definition for given attributes (defaults filled in).
        doc: Its meaning.
    """

    op: OpKey
    inputs: tuple[str, ...]
    attributes: Attrs
    body: Callable[[Mapping[str, AttrValue]], Body]
    doc: str = ""

    def complete(self, attrs: Attrs) -> Attrs:
        """The attributes with defaults filled in."""
        return tuple(sorted((dict(self.attributes) | dict(attrs)).items(), key=lambda pair: pair[0]))


_FUNCTIONS: dict[OpKey, Function] = {}


def declare_function(function: Function) -> Function:
    """Makes an operator known to loading, checking, type inference, rules and evaluation."""
    _FUNCTIONS[function.op] = function
    return function


def find_function(op: OpKey) -> Function | None:
    """The declared function, None for anything else."""
    return _FUNCTIONS.get(op)


def function_body(op: OpKey, attrs: Attrs = ()) -> Body | None:
    """Body of a declared function for some attributes (defaults filled in), None for anything else."""
    found = _FUNCTIONS.get(op)
    return None if found is None else found.body(dict(found.complete(attrs)))


def functions() -> tuple[OpKey, ...]:
    """All declared functions, sorted."""
    return tuple(sorted(_FUNCTIONS))
