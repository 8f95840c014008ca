"""The origin of a node as plain data, and its compact form in a saved model.

The metadata of each node would repeat the names of rules and tensors. One text for the whole model, packed, is a small
part of the graph, and it stays when functions are inlined.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from eqsat.errors import ModelError
from eqsat.schema.opset import name_hint
from eqsat.schema.packed import packed, unpacked

ORIGINS = "eqsat.origins"
"""Metadata key of a model: the packed origins of its nodes."""

_MOST = 1 << 26
"""Bytes of origins that are unpacked: a file may claim more than the memory has."""


@dataclass(frozen=True, slots=True)
class DerivationStep:
    """A rule that was applied.

    Attributes:
        rule: Its name.
        place: ``file:line``, empty for a rule without a place in a file.
        numerics: How far the rule may change values; empty for a composite, which computes what it replaces.
        before: The matched term.
        after: The built term.
    """

    rule: str
    place: str
    numerics: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class FoldedConstant:
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
        steps: The rules on the way, in an order in which they can be applied; empty for a node of the input.
        constants: Those among its operands that the input does not contain.
        body: The body of control flow that contains the node; empty in the main graph.
    """

    name: str
    op: str
    sources: tuple[str, ...]
    steps: tuple[DerivationStep, ...] = ()
    constants: tuple[FoldedConstant, ...] = ()
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


class Origins(dict[str, Origin]):
    """The origins of all nodes, by the name of the first result.

    Attributes:
        nodes: By the name of a node, of the result or of the input, the name of its first result, where that differs.
    """

    def __init__(self, origins: Iterable[Origin] = (), nodes: Mapping[str, str] | None = None) -> None:
        """Lists origins; a name that several bodies have is followed by the body."""
        super().__init__()
        for origin in origins:
            self.setdefault(f"{origin.name} in the {origin.body}" if origin.name in self else origin.name, origin)
        self.nodes = dict(nodes or {})


def pack(origins: Origins, most: int) -> str:
    """The origins as one short text.

    Args:
        origins: All of a model.
        most: Characters from which the terms of the steps are left out, so that only the rules' names remain.
    """
    text = _packed(origins)
    if len(text) <= most:
        return text
    short = (replace(o, steps=tuple(replace(s, before="", after="") for s in o.steps)) for o in origins.values())
    return _packed(Origins(short, origins.nodes))


def _packed(origins: Origins) -> str:
    rules: dict[tuple[str, str, str], int] = {}
    rows: list[Any] = []
    for origin in origins.values():
        steps = [[rules.setdefault((s.rule, s.place, s.numerics), len(rules)), s.before, s.after] for s in origin.steps]
        constants = [[c.name, c.sources] for c in origin.constants]
        rows.append([origin.name, origin.op, origin.sources, steps, constants, origin.body])
    nodes = sorted(origins.nodes.items())
    text = json.dumps([list(rules), rows, nodes], separators=(",", ":"), ensure_ascii=False)
    return packed(text.encode("utf-8", "surrogatepass"))


def unpack(text: str) -> Origins:
    """The origins that :func:`pack` wrote.

    Raises:
        ModelError: The text has another form.
    """
    try:
        rules, rows, *rest = json.loads(unpacked(text, _MOST).decode("utf-8", "surrogatepass"))
        nodes = {str(node): str(result) for node, result in (rest[0] if rest else ())}
        return Origins((_origin(rules, *row) for row in rows), nodes)
    except (ValueError, TypeError, IndexError, RecursionError) as error:
        raise ModelError(
            f"metadata `{ORIGINS}` as eqsat writes them are required",
            actual=f"{type(error).__name__} while reading {len(text):,} characters",
            hint="optimize the input again",
        ) from error


def find(origins: Origins, name: str, place: str = "") -> tuple[Origin, ...]:
    """The origin of a node of the result, or, for a node of the input, the origins of all nodes made from it.

    Args:
        origins: Origins of the result.
        name: Name of the node, or of its first result.
        place: The model, for messages.

    Raises:
        ModelError: There is no such node.
    """
    for key in dict.fromkeys((name, origins.nodes.get(name, name))):
        if key in origins:
            return (origins[key],)
        made = tuple(origin for origin in origins.values() if key in origin.sources)
        if made:
            return made
    sources = (source for origin in origins.values() for source in origin.sources)
    raise ModelError(
        "the name of a node of the result, or of a node of the input that is part of one, is required",
        place=place,
        actual=repr(name),
        hint=name_hint(name, [*origins.nodes, *origins, *sources]),
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
        tuple(FoldedConstant(str(made), tuple(map(str, given))) for made, given in constants),
        str(body),
    )


def _step(said: Sequence[str], before: object, after: object) -> DerivationStep:
    rule, place, numerics = map(str, said)
    return DerivationStep(rule, place, numerics, str(before), str(after))
