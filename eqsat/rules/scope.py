"""Names while a rule is built: the definitions of ``let``, macros and the pattern, and how a name is resolved.

A ``let`` is a textual abbreviation with lexical scope: parameters denote the given terms, names of earlier ``let``s
their bodies, and all other names are those of the rule that uses it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from eqsat.errors import EqsatError
from eqsat.rules import ast
from eqsat.rules import declarations as s
from eqsat.rules.ast import Place
from eqsat.rules.element_types import DTYPE_LISTS, DTYPES, dtype_hint
from eqsat.rules.kinds import ValueKind
from eqsat.rules.signatures import signature
from eqsat.rules.source import Sources
from eqsat.rules.tree import DEEPEST
from eqsat.schema.opset import did_you_mean
from eqsat.schema.types import OpKey

MOST_EXPANSIONS = 20_000
"""Of `let`s in one rule."""


@dataclass(eq=False)
class ScopedLet:
    """A ``let`` with the names that are visible in its body.

    Attributes:
        local: Whether it belongs to a rule or composite; then it must be used.
    """

    let: s.Let
    frame: Frame
    local: bool
    used: bool = False

    @property
    def name(self) -> str:
        return self.let.name

    @property
    def is_macro(self) -> bool:
        return self.let.parameters is not None


@dataclass(eq=False)
class Closure:
    """The term given for a parameter, with the scope it was written in."""

    parameter: str
    term: ast.Term
    frame: Frame


@dataclass(eq=False)
class Local:
    """A comprehension variable: its name in the result and its kind."""

    name: str
    kind: ValueKind


ScopeEntry = ScopedLet | Closure | Local


@dataclass(eq=False)
class Frame:
    """A chain of definitions, innermost first."""

    name: str = ""
    entry: ScopeEntry | None = None
    parent: Frame | None = None

    def lookup(self, name: str) -> ScopeEntry | None:
        frame: Frame | None = self
        while frame is not None:
            if frame.name == name:
                return frame.entry
            frame = frame.parent
        return None

    def define(self, name: str, entry: ScopeEntry) -> Frame:
        return Frame(name, entry, self)

    def names(self) -> Iterator[str]:
        frame: Frame | None = self
        while frame is not None:
            if frame.name:
                yield frame.name
            frame = frame.parent


BindingKind = Literal["tensor", "rest", "node", "attribute", "operator"]
_WORDS: dict[BindingKind, str] = {
    "tensor": "a tensor",
    "rest": "a list of tensors",
    "node": "a node",
    "attribute": "an attribute",
    "operator": "an operator",
}


@dataclass
class PatternBinding:
    """A name that the pattern binds.

    Attributes:
        ops: Operators that a node or operator may be.
        value: Kind of an attribute's value.
    """

    kind: BindingKind
    place: Place
    ops: tuple[OpKey, ...] = ()
    value: ValueKind = "any"


def _has(ops: Iterable[OpKey], attribute: str) -> bool:
    """Whether one of the operators has an attribute."""
    found = (signature(op) for op in ops)
    return any(attribute in each.attributes for each in found if each is not None)


@dataclass
class Context:
    """The names of one rule, composite or ``supports`` entry while it is built.

    Attributes:
        symbols: Names with a meaning of their own here, such as ``macs`` in a cost.
        lets: The rule's own ``let``s by name.
        pattern_names: Names in the pattern of the ``let``s that are used there.
        made_up: Generated names.
    """

    sources: Sources
    bindings: dict[str, PatternBinding] = field(default_factory=dict)
    symbols: tuple[str, ...] = ()
    lets: dict[str, ScopedLet] = field(default_factory=dict)
    pattern_names: dict[ScopedLet, str] = field(default_factory=dict)
    referenced: set[str] = field(default_factory=set)
    made_up: set[str] = field(default_factory=set)
    _expansions: int = 0
    _depth: int = 0

    def error(self, place: Place, requirement: str, *, actual: str = "", hint: str = "") -> EqsatError:
        return self.sources.error(place, requirement, actual=actual, hint=hint)

    def bind(self, name: str, binding: PatternBinding) -> None:
        """Records a name that the pattern binds.

        Raises:
            RuleError: It is bound to something else, or cannot be a name.
        """
        if name in DTYPES or name in DTYPE_LISTS:
            raise self.error(binding.place, "a name of its own is required", actual=f"`{name}`, an element type")
        if self._is_let(name):
            raise self._early(name, binding.place, ", or rename one of the two")
        known = self.bindings.setdefault(name, binding)
        if known is binding:
            return
        kinds = {known.kind, binding.kind}
        if kinds == {"tensor", "node"}:
            if binding.kind == "node":
                self.bindings[name] = binding
            return
        if len(kinds) > 1:
            raise self.error(
                binding.place,
                f"`{name}` must be one thing throughout the rule",
                actual=f"{_WORDS[binding.kind]} here and {_WORDS[known.kind]} at {known.place}",
            )
        if known.kind == "node":
            known.ops = (*known.ops, *(op for op in binding.ops if op not in known.ops))
        if known.kind == "attribute" and known.value != binding.value:
            if "any" not in (known.value, binding.value):
                raise self.error(
                    binding.place,
                    f"`{name}` must have one kind of value",
                    actual=f"a {binding.value} here and a {known.value} at {known.place}",
                )
            known.value = "any"
        if known.kind == "operator" and known.ops != binding.ops:
            raise self.error(binding.place, f"`{name}` must choose among the same operators everywhere")

    def unbound(self, name: str, place: Place, hint: str = "") -> EqsatError:
        """The error for a name that nothing binds."""
        if self._is_let(name):
            return self._early(name, place)
        guess = did_you_mean(name, (*self.bindings, *self.lets, *self.symbols))
        owner = next((n for n, bound in self.bindings.items() if bound.kind == "node" and _has(bound.ops, name)), "")
        if owner:
            guess = f"did you mean the attribute `{owner}.{name}`?"
        elif not guess and not self.symbols:
            guess = dtype_hint(name)
        known = {
            "bound here": (
                *(n for n in self.bindings if n not in self.made_up),
                *(n for n, let in self.lets.items() if not let.is_macro),
            ),
            "known in a cost": self.symbols,
        }
        listed = "; ".join(f"{what}: {', '.join(names)}" for what, names in known.items() if names)
        return self.error(
            place,
            f"`{name}` is not bound by the pattern" + (" and is not a quantity of a cost" if self.symbols else ""),
            hint=hint or guess or listed or "bound here: nothing",
        )

    def _is_let(self, name: str) -> bool:
        return name in self.lets and not self.lets[name].is_macro

    def _early(self, name: str, place: Place, otherwise: str = "") -> EqsatError:
        hint = f"move `let {name}` above the place of its use{otherwise}"
        return self.error(place, f"`{name}` must be defined before it is used", hint=hint)

    def fresh(self, base: str) -> str:
        """A new name like ``base``."""
        number = 1
        taken = {*self.bindings, *self.lets, *self.symbols, *self.referenced, *DTYPES, *DTYPE_LISTS}
        while f"{base}_{number}" in taken:
            number += 1
        self.referenced.add(f"{base}_{number}")
        self.made_up.add(f"{base}_{number}")
        return f"{base}_{number}"

    @contextmanager
    def expanding(self, definition: ScopedLet, place: Place) -> Iterator[None]:
        """Guards and records the expansion of a ``let`` or macro."""
        definition.used = True
        self._expansions += 1
        self._depth += 1
        if self._expansions > MOST_EXPANSIONS or self._depth > DEEPEST:
            raise self.error(
                place,
                "a rule whose `let`s expand to a term of moderate size is required",
                actual=f"`{definition.name}`, nested or repeated too often",
            )
        if not definition.local:
            self.sources.expanding.append((definition.name, place))
        try:
            yield
        finally:
            self._depth -= 1
            if not definition.local:
                self.sources.expanding.pop()

    @contextmanager
    def called(self, definition: ScopedLet, call: ast.Apply, frame: Frame) -> Iterator[tuple[ast.Term, Frame]]:
        """The body of a macro and the frame in which it is read for a call."""
        inner = self._parameters(definition, call, frame)
        with self.expanding(definition, call.place):
            yield definition.let.body, inner

    def _parameters(self, definition: ScopedLet, call: ast.Apply, frame: Frame) -> Frame:
        """The frame in which a macro's body is read for a call.

        Raises:
            RuleError: The arguments do not fit.
        """
        wanted = definition.let.parameters
        assert wanted is not None
        for arg in call.args:
            if isinstance(arg, ast.Keyword | ast.Spread | ast.Rest):
                raise self.error(arg.place, f"the arguments of the macro `{definition.name}` must be terms by position")
        if len(call.args) != len(wanted):
            raise self.error(
                call.place,
                f"the macro `{definition.name}` takes {len(wanted)} arguments ({', '.join(wanted)})",
                actual=str(len(call.args)),
                hint=f"it is defined at {definition.let.place}",
            )
        inner = definition.frame
        for name, arg in zip(wanted, call.args, strict=True):
            inner = inner.define(name, Closure(name, arg, frame))
        return inner

    def resolve(self, term: ast.Term, frame: Frame) -> tuple[ast.Term, Frame]:
        """Follows names of parameters to the term given for them."""
        while isinstance(term, ast.Name):
            entry = frame.lookup(term.name)
            if not isinstance(entry, Closure):
                break
            term, frame = entry.term, entry.frame
        return term, frame
