"""The table of operators: one record each, made by one declaration.

An operator's home is the file of its family in ``eqsat/ops/families``, which declares it together with all that is
known of it. What a declaration leaves out has the default that holds for most operators. Look-ups are in
:mod:`eqsat.ops.operators`, which imports all families.
"""

from __future__ import annotations

from dataclasses import dataclass

from eqsat.ops.kernel import Kernel, Versions, kernels
from eqsat.ops.traits import NONE, Trait
from eqsat.schema.types import OpKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """What is known of an operator besides its schema; each field is a facet.

    Attributes:
        op: Domain and name.
        kernels: Its numpy kernels, the oldest version first.
        traits: The kinds of operators that it belongs to.
        shaped_by: Inputs whose *value*, not only shape and type, determines the outputs' shapes or types.
        contracted: Inputs whose elements are multiplied and summed up, as weights are.
    """

    op: OpKey
    kernels: tuple[Kernel, ...] = ()
    traits: Trait = NONE
    shaped_by: tuple[int, ...] = ()
    contracted: tuple[int, ...] = ()


TABLE: dict[OpKey, Operator] = {}
"""All declared operators."""


def declare(
    *names: str,
    domain: str = "",
    numpy: Versions | None = None,
    traits: Trait = NONE,
    shaped_by: tuple[int, ...] = (),
    contracted: tuple[int, ...] = (),
) -> None:
    """Declares operators that have all facets in common; see :class:`Operator`.

    Args:
        names: Of the operators.
        domain: Of all of them.
        numpy: A kernel, or kernels by the first version of the operator that they implement.
        traits: See :class:`Operator`, as for the others.
        shaped_by: Likewise.
        contracted: Likewise.

    Raises:
        ValueError: An operator is declared a second time.
    """
    found = kernels(numpy)
    for name in names:
        op = OpKey(domain, name)
        if op in TABLE:
            raise ValueError(f"{op} is declared a second time")
        TABLE[op] = Operator(op=op, kernels=found, traits=traits, shaped_by=shaped_by, contracted=contracted)
