"""The table of operators: one record each, made by one declaration.

An operator's home is the file of its family in ``eqsat/ops/families``, which declares it together with all facts about
it. Facets that a declaration omits have the default that holds for most operators. Declarations are set as the lines of
a table, which the formatter leaves alone. Look-ups are in :mod:`eqsat.ops.operators`, which imports all families.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypedDict, Unpack

from eqsat.ops import over_reals
from eqsat.ops.checks.check import Check
from eqsat.ops.constant_bounds import BoundsRule
from eqsat.ops.counters import Counter, output_elements
from eqsat.ops.definition import BodyOf
from eqsat.ops.equal_axes import EqualAxesRule
from eqsat.ops.magnitude import Magnitude
from eqsat.ops.need import NeedRule
from eqsat.ops.need_by_shapes import need_broadcasting
from eqsat.ops.normal import Axes, NormalForm
from eqsat.ops.numpy_kernel import NumpyKernel, Versions, kernels
from eqsat.ops.quantization_role import Role
from eqsat.ops.sampling.elementwise import binary
from eqsat.ops.sampling.node import Sampler
from eqsat.ops.scales import Scale
from eqsat.ops.selection import Selection
from eqsat.ops.traits import NONE, Trait
from eqsat.ops.typed_like import Like, TypeRule
from eqsat.ops.undefined import OperandRequirement
from eqsat.schema.types import OpKey


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorFacets:
    """The facts about an operator besides its schema; each field is a facet.

    Attributes:
        op: Domain and name.
        kernels: Its numpy kernels, the oldest version first.
        traits: The kinds of operators that it belongs to.
        shaped_by: Inputs whose *value*, not only shape and type, determines the outputs' shapes or types.
        contracted: Inputs whose elements are multiplied and summed up, as weights are.
        macs: Counts multiply-accumulates.
        need: Computes its needs in advance; None if they are at most a few times its operands.
        checks: Requirements on its inputs and attributes, in the order in which they are checked.
        normal_form: The normal form of its attributes.
        axes: The input that lists axes.
        sampling: Draws operands for the checks of rules; None for operands of one shape.
        quantization: How it takes part in quantization; None if it takes part only on request.
        bias: The input that is a bias.
        bends_at: Numbers at which its formula changes, besides those that its attributes and operands give.
        typed_like: The standard operator whose types it has.
        types: Computes the types of its results if no standard operator has the same.
        definition: Its definition by standard operators, from which types, values and C follow.
        scale: The scale of its result on constants, see :mod:`eqsat.ops.wide`; None if that is the magnitude.
        bounds: The bounds of its result on constants; None if they are unknown.
        undefined: Refuses data for which its standard leaves the result open; None if there is no such data.
        over_reals: Its definition over the reals, for proofs; None if it is basic, or has none.
        inverse: Its inverse function, at least on the positive numbers among its arguments or results; other arguments
            raise an ``ArithmeticError`` or a ``ValueError``. None if it has none.
        magnitude: Properties that bound its result; None if nothing follows from the operator alone.
        selects: Operands whose elements its result has; None if it computes its elements, or none are stated.
        together: Axes of its operands that have one size; None if there are none, or if it is elementwise: then
            operands are broadcast.
    """

    op: OpKey
    kernels: tuple[NumpyKernel, ...] = ()
    traits: Trait = NONE
    shaped_by: tuple[int, ...] = ()
    contracted: tuple[int, ...] = ()
    macs: Counter = output_elements
    need: NeedRule | None = None
    checks: tuple[Check, ...] = ()
    normal_form: tuple[NormalForm, ...] = ()
    axes: Axes | None = None
    sampling: Sampler | None = None
    quantization: Role | None = None
    bias: int | None = None
    bends_at: tuple[float, ...] = ()
    typed_like: Like | None = None
    types: TypeRule | None = None
    definition: BodyOf | None = None
    scale: Scale | None = None
    bounds: BoundsRule | None = None
    undefined: OperandRequirement | None = None
    over_reals: over_reals.RealDefinition | None = None
    inverse: Callable[[float], float] | None = None
    magnitude: Magnitude | None = None
    selects: Selection | None = None
    together: EqualAxesRule | None = None


TABLE: dict[OpKey, OperatorFacets] = {}
"""All declared operators."""


class Facets(TypedDict, total=False):
    """Facets that a declaration states; see :class:`OperatorFacets`."""

    traits: Trait
    shaped_by: tuple[int, ...]
    contracted: tuple[int, ...]
    macs: Counter
    need: NeedRule | None
    checks: tuple[Check, ...]
    normal_form: tuple[NormalForm, ...]
    axes: Axes | None
    sampling: Sampler | None
    quantization: Role | None
    bias: int | None
    bends_at: tuple[float, ...]
    typed_like: Like | None
    types: TypeRule | None
    definition: BodyOf | None
    scale: Scale | None
    bounds: BoundsRule | None
    undefined: OperandRequirement | None
    over_reals: over_reals.RealDefinition | None
    inverse: Callable[[float], float] | None
    magnitude: Magnitude | None
    selects: Selection | None
    together: EqualAxesRule | None


_NO_FACETS: Facets = {}
_OF_BROADCASTS: Facets = {"need": need_broadcasting, "sampling": binary}
"""Facets implied by :attr:`Trait.BROADCASTS`."""


def declare(
    *names: str,
    domain: str = "",
    numpy: Versions | None = None,
    common: Facets = _NO_FACETS,
    **facets: Unpack[Facets],
) -> None:
    """Declares operators that have all facets in common.

    Args:
        names: Names of the operators.
        domain: Domain of all of them.
        numpy: A kernel, or kernels by the first version of the operator that they implement.
        common: Facets that a family shares.
        facets: Facets of these operators; see :class:`OperatorFacets`.

    Raises:
        ValueError: An operator is declared a second time.
    """
    found = kernels(numpy)
    implied = _OF_BROADCASTS if Trait.BROADCASTS in facets.get("traits", NONE) else _NO_FACETS
    stated: Facets = {**implied, **common, **facets}
    for name in names:
        op = OpKey(domain, name)
        if op in TABLE:
            raise ValueError(f"{op} is declared a second time")
        TABLE[op] = OperatorFacets(op=op, kernels=found, **stated)
