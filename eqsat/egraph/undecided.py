"""Matches that do not apply because of free sizes: their conditions hold at some sizes, but not at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import onnx_ir as ir

from eqsat.rules.ast import Condition
from eqsat.rules.evaluation import TensorFacts, holds
from eqsat.rules.print_term import flat
from eqsat.schema.free_sizes import at_sizes

Names = Callable[[Mapping[str, TensorFacts]], Mapping[str, object] | None]


class UndecidedCount:
    """Counts such matches of one clause.

    Args:
        places: Sizes, by symbol, at which the conditions are tried: those at which costs are taken.

    Attributes:
        signatures: Number of their signatures.
        example: The first such condition, and sizes at which all conditions hold; empty if there is none.
    """

    def __init__(self, places: Sequence[Mapping[str, int]]) -> None:
        self.places = tuple(places)
        self.signatures = 0
        self.example = ""

    def look(
        self, failed: Condition, conditions: Sequence[Condition], facts: Mapping[str, TensorFacts], names: Names
    ) -> None:
        """Checks whether a failed condition would hold if sizes were numbers.

        Args:
            failed: The first condition that does not hold or cannot be answered.
            conditions: All conditions of the clause.
            facts: Facts by egglog variable.
            names: Gives names of the pattern from such facts; None if it does not match.
        """
        symbols = _symbols(facts)
        for place in self.places if symbols else ():
            used = {name: size for name, size in place.items() if name in symbols}
            bound = {variable: _bound(known, used) for variable, known in facts.items()}
            env = names(bound) if used else None
            if env is not None and holds(conditions, env) is None:
                self.signatures += 1
                self.example = self.example or f"{_text(failed)} holds at {_sizes(used)}"
                return


def _symbols(facts: Mapping[str, TensorFacts]) -> set[str]:
    shapes = (known.type.shape for known in facts.values() if known.type is not None and not known.type.is_static)
    dims = {dim for shape in shapes for dim in shape or () if isinstance(dim, str)}
    return {name for dim in dims for name in ir.SymbolicDim(dim).free_symbols()}


def _bound(known: TensorFacts, sizes: Mapping[str, int]) -> TensorFacts:
    return known if known.type is None else replace(known, type=at_sizes(known.type, sizes))


def _text(condition: Condition) -> str:
    reason = "" if condition.because is None else f" ({condition.because})"
    return f"`{flat(condition.expr)}`{reason}"


def _sizes(place: Mapping[str, int]) -> str:
    return ", ".join(f"{name} = {size}" for name, size in place.items())
