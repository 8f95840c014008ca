"""The origin of a node as plain data, and its compact form in a saved model.

The metadata of each node would repeat the names of rules and tensors. One text for the whole model, packed, is a small
part of the graph, and it stays when functions are inlined.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from eqsat.errors import ModelError
from eqsat.schema.packed import packed, unpacked

ORIGINS = "eqsat.origins"
"""Metadata key of a model: the packed origins of its nodes."""

_MOST = 1 << 26
"""Bytes of origins that are unpacked: a file may claim more than the memory has."""


@dataclass(frozen=True, slots=True)
class Step:
    """A rule that was applied.

    Attributes:
        rule: Its name.
        place: ``file:line``, empty for what has no place in a file.
        numerics: How far the rule may change values; empty for a composite, which computes what it replaces.
        before: What it matched.
        after: What it made.
    """

    rule: str
    place: str
    numerics: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Folded:
    """A constant that was computed in advance, and the constants of the input that it was computed from."""

    name: str
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a node of the result comes from.

    Attributes:
        name: Its first result.
        op: The operator or composite.
        sources: Nodes of the input that it was made from, and whose results it computes.
        steps: The rules on the way, in an order in which they can be applied; none for a node of the input itself.
        constants: Those among its operands that the input does not contain.
        body: Of control flow, in which the node is; empty in the main graph.
    """

    name: str
    op: str
    sources: tuple[str, ...]
    steps: tuple[Step, ...] = ()
    constants: tuple[Folded, ...] = ()
    body: str = ""

    @property
    def is_kept(self) -> bool:
        """Whether the node is a node of the input, under its name."""
        return not self.steps and not self.constants and self.sources == (self.name,)

    def __str__(self) -> str:
        place = f"  in the {self.body}" if self.body else ""
        lines = [f"{self.name}  {self.op}{place}", f"  from {', '.join(self.sources) or 'no node of the input'}"]
        for i, step in enumerate(self.steps, 1):
            said = ", ".join(part for part in (step.numerics, step.place) if part)
            lines.append(f"  {i}. {step.rule}" + (f" ({said})" if said else ""))
            if step.before or step.after:
                lines += [f"       {step.before}", f"    => {step.after}"]
        lines += [f"  constant {c.name} folded from {', '.join(c.sources)}" for c in self.constants]
        return "\n".join(lines)


def pack(origins: Mapping[str, Origin], most: int) -> str:
    """The origins as one short text.

    Args:
        most: Characters from which the terms of the steps are left out, so that only the rules' names remain.
    """
    text = _packed(origins)
    if len(text) <= most:
        return text
    return _packed(
        {
            name: replace(origin, steps=tuple(replace(step, before="", after="") for step in origin.steps))
            for name, origin in origins.items()
        }
    )


def _packed(origins: Mapping[str, Origin]) -> str:
    rules: dict[tuple[str, str, str], int] = {}
    rows: list[Any] = []
    for origin in origins.values():
        steps = [[rules.setdefault((s.rule, s.place, s.numerics), len(rules)), s.before, s.after] for s in origin.steps]
        constants = [[c.name, c.sources] for c in origin.constants]
        rows.append([origin.name, origin.op, origin.sources, steps, constants, origin.body])
    text = json.dumps([list(rules), rows], separators=(",", ":"), ensure_ascii=False)
    return packed(text.encode("utf-8", "surrogatepass"))


def unpack(text: str) -> dict[str, Origin]:
    """The origins that :func:`pack` wrote.

    Raises:
        ModelError: The text is something else.
    """
    try:
        rules, rows = json.loads(unpacked(text, _MOST).decode("utf-8", "surrogatepass"))
        return by_name(_origin(rules, *row) for row in rows)
    except (ValueError, TypeError, IndexError, RecursionError) as error:
        raise ModelError(
            f"metadata `{ORIGINS}` as eqsat writes them are required",
            actual=f"{type(error).__name__} while reading {len(text):,} characters",
            hint="optimize the input once more",
        ) from error


def by_name(origins: Iterable[Origin]) -> dict[str, Origin]:
    """The origins by the names of the nodes; a name that several bodies have is followed by the body."""
    found: dict[str, Origin] = {}
    for origin in origins:
        found.setdefault(f"{origin.name} in the {origin.body}" if origin.name in found else origin.name, origin)
    return found


def find(origins: Mapping[str, Origin], name: str, place: str = "") -> tuple[Origin, ...]:
    """The origin of a node of the result, or, for a node of the input, all that were made from it.

    Raises:
        ModelError: There is no such node.
    """
    if name in origins:
        return (origins[name],)
    made = tuple(origin for origin in origins.values() if name in origin.sources)
    if made:
        return made
    known = dict.fromkeys([*origins, *(source for origin in origins.values() for source in origin.sources)])
    near = difflib.get_close_matches(name, known, 3)
    raise ModelError(
        "the name of a node of the result, or of a node of the input that is part of one, is required",
        place=place,
        actual=repr(name),
        hint=f"similar names: {', '.join(near)}" if near else "nodes have the name of their first result",
    )


def _origin(rules: Sequence[Any], name: str, op: str, *rest: Any) -> Origin:
    if not rest:
        return Origin(str(name), str(op), (str(name),))
    sources, steps, constants, body = rest
    return Origin(
        str(name),
        str(op),
        tuple(map(str, sources)),
        tuple(_step(rules[i], before, after) for i, before, after in steps),
        tuple(Folded(str(made), tuple(map(str, given))) for made, given in constants),
        str(body),
    )


def _step(said: Sequence[str], before: object, after: object) -> Step:
    rule, place, numerics = map(str, said)
    return Step(rule, place, numerics, str(before), str(after))
