"""Rules that let operators change places, turned around where a composite is written in the other spelling.

Such a rule brings every model to one spelling: a transposition moves past the ``Relu`` that reads it, so that
transpositions meet and cancel. A composite written as ``Relu(Transpose(Conv(x, w)))`` would then match only the models
that were exported this way. So where a composite contains the left side of such a rule, the rule is also applied from
right to left, but only to the operators that the composite names: to a ``Relu`` of a ``Conv``, and to no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice

from eqsat.ops.properties import is_commutative
from eqsat.rules.ast import (
    Alternatives,
    AttrBind,
    Build,
    Composite,
    Expr,
    Match,
    Member,
    Name,
    Number,
    Optional,
    Pattern,
    Rest,
    Rule,
    Target,
    TemplateTerm,
    Wildcard,
    plain,
)
from eqsat.rules.tree import Node, walk
from eqsat.schema.opset import find_schema, input_arity, is_variadic, required_attributes
from eqsat.schema.types import OpKey

_OF_TYPE = frozenset({"shape", "rank", "size", "dtype"})
"""The common part of both sides of a rule."""

_MOST_OPTIONS, _MOST_MEETINGS = 400, 16
"""Most spellings of a composite, and most ways in which a rule matches at one place."""

_Ops = frozenset[OpKey]
_Found = dict[str, _Ops | None]
"""The operators that a composite has at the place of a name of a rule; None for anything."""


def turned_rules(targets: Iterable[Target], rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """The rules that the composites of accelerators turn around, ``NAME.reverse`` by name.

    A host executes every spelling.
    """
    return _turned_once(tuple(target for target in targets if not target.is_host), tuple(rules))


@lru_cache(maxsize=16)
def _turned_once(targets: tuple[Target, ...], rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    names = {rule.name for rule in rules}
    candidates = [rule for rule in rules if f"{rule.name}.reverse" not in names and _changes_places(rule)]
    by_root: dict[OpKey, list[tuple[Rule, _Ops]]] = {}
    for rule in candidates:
        for op in sorted({op for one in plain(rule.left[0]) if isinstance(one, Match) for op in one.ops}):
            by_root.setdefault(op, []).append((rule, _inner(rule.left[0])))
    wanted: dict[str, _Found] = {}
    asked: dict[str, tuple[Target, Composite]] = {}
    for target in targets:
        for composite in target.composites:
            for name, found in _wanted(composite, by_root).items():
                wanted[name] = _either(wanted[name], found) if name in wanted else found
                asked.setdefault(name, (target, composite))
    turned = [_turned(rule, wanted[rule.name], *asked[rule.name]) for rule in candidates if rule.name in wanted]
    return tuple(rule for rule in turned if rule is not None)


def _changes_places(rule: Rule) -> bool:
    """Whether both sides of a rule apply the same operators to the same tensors, without a change of any value."""
    left, right = rule.left[0], rule.right[0]
    if len(rule.left) > 1 or rule.numerics.kind != "exact" or not isinstance(right, Build):
        return False
    if not isinstance(left, Match):
        return False
    groups = {node.op_name: node.ops for node in walk(left) if isinstance(node, Match) and node.op_name}
    kept = {name.name for name in walk(right) if isinstance(name, Name)}
    before = {frozenset(node.ops) for node in _outer(left, kept)}
    after = {
        frozenset(groups.get(node.op, ()) if isinstance(node.op, str) else (node.op,))
        for node in walk(right)
        if isinstance(node, Build)
    }
    return len(before) > 1 and before == after


def _outer(pattern: Pattern, kept: set[str]) -> Iterator[Match]:
    """The operators of a left side, down to the values that the right side takes unchanged."""
    if isinstance(pattern, Match) and pattern.bind not in kept:
        yield pattern
        for part in pattern.args:
            if part is not None:
                yield from _outer(part, kept)


# ---- the spellings of a composite -----------------------------------------------------------------------


@dataclass(eq=False)
class _Spot:
    """A place in the pattern of a composite, with everything that may be there; without options anything may."""

    options: list[_Option] = field(default_factory=list)

    @property
    def ops(self) -> _Ops | None:
        return frozenset(op for option in self.options for op in option.ops) if self.options else None


@dataclass(frozen=True, eq=False)
class _Option:
    """An operator, or one of several, with the places of its operands."""

    ops: _Ops
    args: tuple[_Spot | None, ...]
    output: int = 0


@dataclass(frozen=True)
class _Met:
    """How a left side matches a place.

    Attributes:
        operators: Number of operators of the left side that the composite names.
        spots: The places that correspond to the left side's names.
        groups: The operators that correspond to a name such as ``f`` in ``(f: Add | Mul)(x, y)``.
    """

    operators: int = 0
    spots: Mapping[str, _Spot] = field(default_factory=dict)
    groups: Mapping[str, _Ops] = field(default_factory=dict)

    def with_(self, other: _Met) -> _Met:
        return _Met(self.operators + other.operators, {**other.spots, **self.spots}, {**other.groups, **self.groups})


class _Spellings:
    """The pattern of a composite with the results of rules on its parts, so that several rules can follow one
    another.
    """

    def __init__(self, composite: Composite) -> None:
        self._made: dict[int, _Spot] = {}
        self.spots: list[_Spot] = []
        self.size = 0
        for pattern in composite.patterns:
            self._spot(pattern)

    def _spot(self, pattern: Pattern) -> _Spot:
        if id(pattern) not in self._made:
            spot = self._made[id(pattern)] = self._new()
            for option in plain(pattern):
                if not isinstance(option, Match):
                    spot.options.clear()  # Among the alternatives is anything.
                    break
                args = tuple(None if arg is None else self._spot(arg) for arg in option.args)
                self._add(spot, _Option(frozenset(option.ops), args, option.output))
        return self._made[id(pattern)]

    def _new(self) -> _Spot:
        self.spots.append(_Spot())
        return self.spots[-1]

    def _add(self, spot: _Spot, option: _Option) -> None:
        spot.options.append(option)
        self.size += 1

    def rewrite(self, template: TemplateTerm, met: _Met, spot: _Spot) -> None:
        """Adds a right side to a place that the left side matches."""
        if not isinstance(template, Build):
            return
        ops = met.groups.get(template.op, frozenset()) if isinstance(template.op, str) else frozenset((template.op,))
        args = tuple(None if arg is None else self._built(arg, met) for arg in template.args)
        self._add(spot, _Option(ops, args, template.output))

    def _built(self, template: TemplateTerm, met: _Met) -> _Spot:
        if isinstance(template, Name):
            return met.spots.get(template.name) or self._new()
        spot = self._new()
        self.rewrite(template, met, spot)
        return spot


def _meetings(left: Pattern, spot: _Spot | None) -> Iterator[_Met]:
    """The ways in which a left side matches a place."""
    if spot is None:
        if not isinstance(left, Match):
            yield _Met()
        return
    bind = left.bind if isinstance(left, Match | Alternatives) else getattr(left, "name", None)
    named = {} if bind is None else {bind: spot}
    for one in plain(left):
        if not isinstance(one, Match) or not spot.options:
            yield _Met(0, named)
            continue
        for option in spot.options:
            common = frozenset(one.ops) & option.ops
            if not common or one.output != option.output or len(option.args) > len(one.args):
                continue
            orders = [option.args]
            if len(option.args) == 2 and all(map(is_commutative, common)):
                orders.append(option.args[::-1])
            groups = {} if one.op_name is None else {one.op_name: common}
            for order in orders:
                operands = (*order, *[None] * (len(one.args) - len(order)))
                for met in _met_by_all(one.args, operands):
                    yield _Met(1, named, groups).with_(met)


def _inner(left: Pattern) -> _Ops:
    """The operators right below the outermost ones of a left side."""
    args = [arg for one in plain(left) if isinstance(one, Match) for arg in one.args if arg is not None]
    return frozenset(op for arg in args for one in plain(arg) if isinstance(one, Match) for op in one.ops)


def _met_by_all(patterns: Sequence[Pattern | None], spots: Sequence[_Spot | None]) -> Iterator[_Met]:
    if not patterns:
        yield _Met()
        return
    first = [_Met()] if patterns[0] is None else _meetings(patterns[0], spots[0])
    for met in first:
        for rest in _met_by_all(patterns[1:], spots[1:]):
            yield met.with_(rest)


def _wanted(composite: Composite, by_root: Mapping[OpKey, Sequence[tuple[Rule, _Ops]]]) -> dict[str, _Found]:
    """For each rule whose left side occurs in a spelling of a composite, the operators at the places of its names.

    Args:
        by_root: The rules by the outermost operators of their left sides, each with those right below.
    """
    spellings = _Spellings(composite)
    wanted: dict[str, _Found] = {}
    done: set[tuple[str, int, int]] = set()
    at = 0
    while at < len(spellings.spots) and spellings.size < _MOST_OPTIONS:
        spot, before = spellings.spots[at], spellings.size
        ops = {op for option in spot.options for op in option.ops}
        below = {op for option in spot.options for arg in option.args if arg is not None for op in arg.ops or ()}
        near = dict.fromkeys(rule for op in sorted(ops) for rule, inner in by_root.get(op, ()) if inner & below)
        for rule in near:
            for number, met in enumerate(islice(list(_meetings(rule.left[0], spot)), _MOST_MEETINGS)):
                if met.operators < 2 or (rule.name, id(spot), number) in done:
                    continue
                done.add((rule.name, id(spot), number))
                found: _Found = {**{name: at.ops for name, at in met.spots.items()}, **met.groups}
                wanted[rule.name] = _either(wanted[rule.name], found) if rule.name in wanted else found
                spellings.rewrite(rule.right[0], met, spot)
        # An added operator may be part of the match of another rule.
        at = 0 if spellings.size > before else at + 1
    return wanted


def _either(a: _Found, b: _Found) -> _Found:
    """Both places in one, which allows what either allows."""
    found: _Found = {}
    for name in (*a, *(name for name in b if name not in a)):
        x, y = a.get(name), b.get(name)
        found[name] = None if x is None or y is None else x | y
    return found


# ---- the other direction ---------------------------------------------------------------------------------


class _CannotTurn(Exception):
    """The right side is not a pattern, or the left side is not a template."""


def _turned(rule: Rule, found: Mapping[str, _Ops | None], target: Target, composite: Composite) -> Rule | None:
    """The rule from right to left for the operators found; None if it is not valid in that direction."""
    try:
        turner = _Turner(rule, found)
        left = turner.pattern(rule.right[0])
        right = turner.template(rule.left[0])
    except _CannotTurn:
        return None
    bound = {name for node in walk(left) for name in _bound(node)}
    for node in walk((right, rule.where)):
        if isinstance(node, Name) and node.name not in bound:
            return None
    if not isinstance(left, Match):
        return None
    return replace(
        rule,
        name=f"{rule.name}.reverse",
        left=(left,),
        right=(right,),
        doc=f"The other way round, because {target.name}.{composite.name} is written so.",
    )


def _bound(node: Node) -> Iterator[str]:
    if isinstance(node, Name | Optional | Rest):
        yield node.name
    elif isinstance(node, AttrBind) and node.equals is None:
        yield node.name or ""
    elif isinstance(node, Match | Alternatives) and node.bind:
        yield node.bind


def _is_complete(op: OpKey, attributes: Mapping[str, Expr]) -> bool:
    """Whether an operator needs no attributes but these, as far as its schema says."""
    return find_schema(op) is not None and all(name in attributes for name in required_attributes(op))


class _Turner:
    """Makes a pattern of the right side of a rule, and a template of its left side."""

    def __init__(self, rule: Rule, found: Mapping[str, _Ops | None]) -> None:
        self.found, self.place = found, rule.place
        inside = [node for node in walk(rule.left) if isinstance(node, Node)]
        self.groups = {node.op_name: node.ops for node in inside if isinstance(node, Match) and node.op_name}
        self.optional = {node.name for node in inside if isinstance(node, Optional)}
        self.attributes = {node.name for node in inside if isinstance(node, AttrBind) and node.equals is None}
        self.parts = {node.bind: node for node in inside if isinstance(node, Match | Alternatives) and node.bind}
        self.spread = {name for node in walk(rule.right) if isinstance(node, Build) for name in node.spread}
        self.kept = {node.name for node in walk(rule.right) if isinstance(node, Name)}
        self.root = rule.left[0].bind
        self.placed: set[str] = set()
        if self.root and not self._asks_for_type(rule):
            self.root = None

    def _asks_for_type(self, rule: Rule) -> bool:
        """Whether conditions ask nothing of the root but what both sides have in common."""
        nodes = list(walk(rule.where))
        asked = sum(isinstance(node, Name) and node.name == self.root for node in nodes)
        answered = sum(
            isinstance(node, Member)
            and isinstance(node.of, Name)
            and node.of.name == self.root
            and node.name in _OF_TYPE
            for node in nodes
        )
        return self.root not in self.spread and asked == answered

    def pattern(self, template: TemplateTerm, *, outermost: bool = True) -> Pattern:
        """A template as a pattern: each name at its first place as narrow as the composite has it."""
        if isinstance(template, Name):
            return self._named(template)
        if isinstance(template, Number) or (isinstance(template, Rest) and template.each is None):
            return template
        if not isinstance(template, Build) or len(template.spread) > 1 or (template.spread and template.attrs):
            raise _CannotTurn
        group = template.op if isinstance(template.op, str) else None
        ops = (template.op,) if isinstance(template.op, OpKey) else self.groups[template.op]
        narrowed = None if group is None else self.found.get(group)
        return Match(
            tuple(op for op in ops if narrowed is None or op in narrowed),
            group,
            tuple(None if arg is None else self.pattern(arg, outermost=False) for arg in template.args),
            tuple(self._attribute(name, value) for name, value in template.attrs),
            template.spread[0] if template.spread else self.root if outermost else None,
            template.output,
            self.place,
        )

    def _attribute(self, attribute: str, value: Expr) -> AttrBind:
        if isinstance(value, Name) and value.name in self.attributes:
            return AttrBind(attribute, value.name, None, self.place)
        if any(isinstance(node, Name) for node in walk(value)):
            raise _CannotTurn
        return AttrBind(attribute, None, value, self.place)

    def _named(self, name: Name) -> Pattern:
        if name.name in self.placed:
            return name
        self.placed.add(name.name)
        ops = self.found.get(name.name)
        part = self.parts.get(name.name)
        if part is not None:
            if ops is None:
                return part
            options = tuple(one for one in plain(part) if isinstance(one, Match) and set(one.ops) & ops)
            if not options:
                raise _CannotTurn
            return replace(options[0], bind=name.name) if len(options) == 1 else self._choice(name, options)
        if name.name in self.optional:
            return Optional(name.name, self.place)
        if ops is None or any(find_schema(op) is None or is_variadic(op) for op in ops):
            return name
        options = tuple(self._any_operands(op) for op in sorted(ops))
        return replace(options[0], bind=name.name) if len(options) == 1 else self._choice(name, options)

    def _choice(self, name: Name, options: tuple[Match, ...]) -> Pattern:
        return Alternatives(options, self.place, name.name)

    def _any_operands(self, op: OpKey) -> Match:
        least, most = input_arity(op)
        operands = [Wildcard(self.place)] * least + [
            Optional(f"_.{op.name}.{k}", self.place) for k in range(least, most)
        ]
        return Match((op,), None, tuple(operands), (), None, 0, self.place)

    def template(self, pattern: Pattern) -> TemplateTerm:
        """A pattern as a template.

        Open attributes are taken from the node whose attributes the right side takes over, or are the defaults.
        """
        if isinstance(pattern, Match | Alternatives) and pattern.bind in self.kept:
            return Name(pattern.bind or "", self.place)
        if isinstance(pattern, Name | Optional):
            return Name(pattern.name, self.place)
        if isinstance(pattern, Number | Rest):
            return pattern
        if not isinstance(pattern, Match):
            raise _CannotTurn
        spread: tuple[str, ...] = (pattern.bind,) if pattern.bind is not None and pattern.bind in self.spread else ()
        attributes = tuple((one.attribute, self._value(one)) for one in pattern.attrs)
        if len(pattern.ops) > 1 and pattern.op_name is None:
            raise _CannotTurn
        if not spread and not all(_is_complete(op, dict(attributes)) for op in pattern.ops):
            raise _CannotTurn
        return Build(
            pattern.op_name or next(iter(pattern.ops)),
            tuple(None if arg is None else self.template(arg) for arg in pattern.args),
            () if spread else attributes,
            spread,
            pattern.output,
            self.place,
        )

    def _value(self, attribute: AttrBind) -> Expr:
        if attribute.equals is not None:
            return attribute.equals
        return Name(attribute.name or "", self.place)


__all__ = ["turned_rules"]
