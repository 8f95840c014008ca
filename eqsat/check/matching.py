"""Finds composites and plain operators that have no instance: their conditions contradict each other or an operator."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Iterator

from eqsat.check.attempt import draw
from eqsat.check.draw_state import Drawing
from eqsat.check.plain_entries import never_runs
from eqsat.errors import reason
from eqsat.ops.sampling.chance import Chance
from eqsat.rules.ast import Composite, Rule, Target
from eqsat.rules.expand import expand
from eqsat.rules.listing import short_place
from eqsat.rules.location import is_shipped
from eqsat.rules.signatures import signature
from eqsat.rules.tensor_types import impossible, never_held
from eqsat.schema.declared_operators import declared

ATTEMPTS = 2_000
"""Attempts for each composite."""


def unmatched(targets: Iterable[Target]) -> Iterator[str]:
    """A sentence on each composite and each operator of an entry of one's own that may never match.

    Composites that are written as operators are left out: they are checked as rules.
    """
    for target in targets:
        if is_shipped(target.place.file):
            continue
        with declared(target.operators):
            for entry in target.supports:
                for op in entry.ops:
                    if signature(op) is None or never_held(op, entry.where) is not None:
                        continue  # Other checks report that.
                    why = never_runs(op, entry)
                    if why:
                        yield f"{short_place(entry.place)}: `{op}` may never run here: {why}"
            for composite in target.composites:
                if composite.written is None:
                    yield from _doubts(target, composite)


def _doubts(target: Target, composite: Composite) -> Iterator[str]:
    never = impossible(expand(composite.patterns), [condition.expr for condition in composite.where])
    if never is not None:
        yield f"{never[0]}: {never[1]}: the composite `{composite.name}` never matches"
        return
    why = _why_none(target, composite)
    if why:
        yield (
            f"{short_place(composite.place)}: `{composite.name}` may never match: no instance of its pattern was found "
            f"in {ATTEMPTS:,} attempts: {why}"
        )


def _why_none(target: Target, composite: Composite) -> str:
    """The most frequent reason why no instance was found; empty if one was."""
    rule = Rule(
        composite.name,
        composite.numerics,
        composite.patterns,
        (),
        composite.where,
        composite.place,
        composite.doc,
        composite.span,
        target.operators,
    )
    reasons: Counter[str] = Counter()
    drawings = [Drawing(rule, clause, pointed=True, executed=False) for clause in expand(rule.left)]
    for attempt in range(ATTEMPTS):
        chance = Chance(zlib.crc32(rule.name.encode()), attempt)
        try:
            draw(drawings[attempt % len(drawings)], chance)
        except Exception as error:  # operators of users may be among the drawn ones
            reasons[reason(error).splitlines()[0]] += 1
        else:
            return ""
    (text, _), *_ = reasons.most_common(1)
    return text
