"""Requirements on a target beyond its grammar, so that each plan for it has a finite and meaningful cost."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Generic, TypeVar

from eqsat.errors import TargetError
from eqsat.rules.ast import Condition, Match, Name, Target, plain
from eqsat.rules.element_types import DTYPES
from eqsat.rules.expand import expand, most_clauses
from eqsat.rules.location import is_shipped
from eqsat.rules.signatures import signature
from eqsat.rules.tree import walk
from eqsat.schema.declared_operators import declared
from eqsat.schema.opset import OPSETS, did_you_mean
from eqsat.schema.types import OpKey

NUMBERS = ("bandwidth", "launch", "dispatch", "link_bandwidth", "link_latency")
"""The numbers of a target besides its peaks, as fields of ``Target``."""
MOST_CLAUSES = 256
"""Most plain patterns of one composite; each is matched by a rule of its own."""

_Name = TypeVar("_Name", OpKey, str)
_RATES = ("bandwidth", "link_bandwidth")
_RESERVED = {"eqsat", "ai", "com", *(d for d in OPSETS if d)}


@lru_cache(maxsize=256)
def validate(target: Target) -> None:
    """Checks one target.

    Raises:
        TargetError: The first of its :func:`problems`.
    """
    for problem in problems(target):
        raise problem


def problems(target: Target) -> Iterator[TargetError]:
    """Everything that is wrong with a target, in the order of the file."""
    if target.name in _RESERVED:
        yield TargetError(
            "a name that is not an ONNX domain is required, because the domain of composites has the target's name",
            place=str(target.place),
            actual=f"`{target.name}`",
        )
    yield from _numbers(target)
    yield from _supports(target)
    yield from _composites(target)
    yield from _families(target)
    yield from _costs(target)


def doubts(target: Target) -> Iterator[str]:
    """Warnings about allowed but probably unintended patterns, which do not match what they seem to match."""
    from eqsat.rules.tensor_types import narrowings, never_held

    with declared(target.operators):
        # The shipped targets list operators together, although not all of them have each type.
        for entry in target.supports if not is_shipped(target.place.file) else ():
            for op in entry.ops:
                never = never_held(op, entry.where) if signature(op) is not None else None
                if never is not None:
                    yield f"{never[0]}: {never[1]}: `{op}` never runs here"
        for composite in target.composites:
            for place, text in narrowings(expand(composite.patterns)):
                yield f"{place}: {text} (composite `{composite.name}`)"


def _numbers(target: Target) -> Iterator[TargetError]:
    place = str(target.place)
    if not target.peak:
        yield TargetError("a peak is required, as in `peak float32 = 50e9`", place=place, actual="none")
    seen: set[str] = set()
    for dtype, rate in target.peak:
        if dtype not in DTYPES:
            hint = did_you_mean(dtype, DTYPES)
            yield TargetError("the peak of an element type is required", place=place, actual=f"`{dtype}`", hint=hint)
        if dtype in seen:
            yield TargetError("one peak for each element type is required", place=place, actual=f"`{dtype}` twice")
        seen.add(dtype)
        if not rate > 0:
            yield TargetError(f"peak {dtype} must be more than 0 MAC/s", place=place, actual=f"{rate:g}")
    for name in NUMBERS:
        value = getattr(target, name)
        words = name.replace("_", " ")
        if target.is_host and name.startswith(("link", "dispatch")):
            continue
        if name in _RATES and not value > 0:
            yield TargetError(f"{words} must be more than 0 byte/s", place=place, actual=f"{value:g}")
        elif name not in _RATES and not 0 <= value < math.inf:
            yield TargetError(f"{words} must be a number of seconds, 0 or more", place=place, actual=f"{value:g}")


def _supports(target: Target) -> Iterator[TargetError]:
    if not target.supports and not target.composites:
        yield TargetError(
            "a target must run at least one operator",
            place=str(target.place),
            hint="add a `supports` or `composite` entry",
        )
    reachable = _Reachable[OpKey]()
    for entry in target.supports:
        place = str(entry.place)
        for op in entry.ops:
            if signature(op) is None and all(declared.op != op for declared in target.operators):
                yield TargetError("an operator that exists is required", place=place, actual=f"`{op}`")
        if len(set(entry.ops)) < len(entry.ops):
            twice = next(op for op in entry.ops if entry.ops.count(op) > 1)
            yield TargetError("each operator must be listed once", place=place, actual=f"`{twice}` twice")
        yield from reachable.look("an entry", entry.ops, entry.where, place)
    if target.is_host and not reachable.rest:
        yield TargetError(
            "a host must run every operator",
            place=str(target.place),
            hint="end its entries with `supports *`",
        )


def _families(target: Target) -> Iterator[TargetError]:
    reachable = _Reachable[str]()
    for entry in target.families:
        yield from reachable.look("a `family`", entry.names, entry.where, str(entry.place))


def _costs(target: Target) -> Iterator[TargetError]:
    """Costs that depend on no kernel are known now, and not only when the first kernel is priced."""
    from eqsat.targets.kernel_cost import priced

    known = {name: getattr(target, name) for name in ("bandwidth", "launch")}
    entries = [(e.cost, f"`{', '.join(map(str, e.ops)) or '*'}`") for e in target.supports]
    entries += [(c.cost, f"`{c.name}`") for c in target.composites]
    entries += [(f.cost, f"`{', '.join(f.names) or '*'}`") for f in target.families]
    for cost, what in entries:
        if cost is not None and all(x.name in known for x in walk(cost) if isinstance(x, Name)):
            try:
                priced(cost, known, what)
            except TargetError as error:
                yield error


class _Reachable(Generic[_Name]):
    """Finds entries after one without conditions, which never apply."""

    def __init__(self) -> None:
        self.taken: dict[_Name, str] = {}
        self.rest = ""

    def look(self, what: str, names: Sequence[_Name], where: Sequence[Condition], place: str) -> Iterator[TargetError]:
        """The next entry; ``names`` is empty for one of everything."""
        unreachable = self.rest or next((self.taken[name] for name in names if name in self.taken), "")
        if unreachable:
            everything = "everything" if self.rest else f"each `{next(n for n in names if n in self.taken)}`"
            yield TargetError(
                f"{what} that can apply is required",
                place=place,
                actual=f"one after {unreachable}, which takes {everything}",
                hint="the first entry whose conditions hold counts: put special entries before general ones",
            )
        if not where:
            self.taken |= {name: place for name in names if name not in self.taken}
            self.rest = self.rest or ("" if names else place)


def _composites(target: Target) -> Iterator[TargetError]:
    names: set[str] = set()
    for composite in target.composites:
        place = str(composite.place)
        if composite.name in names:
            yield TargetError(
                "a unique name is required for each composite",
                place=place,
                actual=f"`{composite.name}` twice",
                hint="rename one of them, or make their patterns alternatives of one composite: `A | B`",
            )
        names.add(composite.name)
        # Making the clauses takes longer than all the rest, and finds nothing where they are few and have roots.
        rooted = all(isinstance(root, Match) for pattern in composite.patterns for root in plain(pattern))
        few = most_clauses(composite.patterns) <= MOST_CLAUSES
        clauses = () if rooted and few else expand(composite.patterns)
        if len(clauses) > MOST_CLAUSES:
            yield TargetError(
                f"a composite that stands for at most {MOST_CLAUSES} plain patterns is required",
                place=place,
                actual=f"{len(clauses)} for `{composite.name}`",
                hint="each alternative and each optional operand multiplies their number: split the composite in two",
            )
