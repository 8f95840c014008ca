"""What stands in a rule file: its terms and declarations, as the grammar sees them and as the formatter prints them.

One set of node types serves patterns, templates and expressions, because the same text may stand on either side of a
rule. An expression stays what it is here, with its names resolved and its macros expanded (``build_expression``);
``build_pattern`` and ``build_template`` make the patterns and templates of :mod:`eqsat.rules.ast` of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands in a rule file; lines and columns count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


# ---- terms -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Name:
    name: str
    place: Place


@dataclass(frozen=True, slots=True)
class Number:
    """A number; ``text`` is how it was written. In a pattern it is a constant equal to it everywhere."""

    value: int | float
    text: str = field(compare=False)
    place: Place


@dataclass(frozen=True, slots=True)
class String:
    """A string; ``text`` is how it was written, with its quotes."""

    value: str
    text: str = field(compare=False)
    place: Place


@dataclass(frozen=True, slots=True)
class Truth:
    value: bool
    place: Place


@dataclass(frozen=True, slots=True)
class Optional:
    """``b?``."""

    name: str
    place: Place


@dataclass(frozen=True, slots=True)
class Rest:
    """``xs...``."""

    name: str
    place: Place


@dataclass(frozen=True, slots=True)
class Spread:
    """``**c``."""

    name: str
    place: Place


@dataclass(frozen=True, slots=True)
class Parentheses:
    """``(x + y)`` as written; only the formatter sees them."""

    inner: Term
    place: Place


@dataclass(frozen=True, slots=True)
class Keyword:
    """``perm=p``."""

    name: str
    value: Term
    place: Place


@dataclass(frozen=True, slots=True)
class Bind:
    """``c: Conv(x, w)``."""

    name: str
    value: Term
    place: Place


@dataclass(frozen=True, slots=True)
class Choice:
    """``A | B``."""

    options: tuple[Term, ...]
    place: Place


@dataclass(frozen=True, slots=True)
class Apply:
    """``Conv(x, w)``; of an operator, a macro or a function. ``callee`` may itself be applied: ``maybe(Pad)(x)``."""

    callee: Term
    args: tuple[Term, ...]
    place: Place

    @property
    def function(self) -> str:
        """The name of what is applied; empty where it has none."""
        return self.callee.name if isinstance(self.callee, Name) else ""


@dataclass(frozen=True, slots=True)
class Index:
    of: Term
    index: Term
    place: Place


@dataclass(frozen=True, slots=True)
class Slice:
    of: Term
    start: Term | None
    stop: Term | None
    place: Place


@dataclass(frozen=True, slots=True)
class Member:
    of: Term
    name: str
    place: Place


@dataclass(frozen=True, slots=True)
class Unary:
    """``-x`` and ``not x``."""

    op: str
    operand: Term
    place: Place


@dataclass(frozen=True, slots=True)
class Binary:
    """Arithmetic, ``@``, ``and``, ``or``; ``sign`` is the place of the operator's sign."""

    op: str
    left: Term
    right: Term
    place: Place
    sign: Place


@dataclass(frozen=True, slots=True)
class Compare:
    first: Term
    rest: tuple[tuple[str, Term], ...]
    place: Place


@dataclass(frozen=True, slots=True)
class Conditional:
    then: Term
    condition: Term
    otherwise: Term
    place: Place


@dataclass(frozen=True, slots=True)
class Sequence:
    """``[a, b]`` (``square``) or ``(a, b)``."""

    items: tuple[Term, ...]
    square: bool
    place: Place


@dataclass(frozen=True, slots=True)
class Comprehension:
    item: Term
    variable: str
    source: Term
    condition: Term | None
    place: Place


Term = (
    Name
    | Number
    | String
    | Truth
    | Optional
    | Rest
    | Spread
    | Parentheses
    | Keyword
    | Bind
    | Choice
    | Apply
    | Index
    | Slice
    | Member
    | Unary
    | Binary
    | Compare
    | Conditional
    | Sequence
    | Comprehension
)

Literal = Number | String | Truth
Expression = (
    Literal | Name | Member | Index | Slice | Apply | Unary | Binary | Compare | Sequence | Comprehension | Conditional
)
"""What may be evaluated once names are resolved and macros expanded; all applications are of functions then."""


def negated(number: Number, place: Place) -> Number:
    """A number with a sign."""
    text = number.text.removeprefix("-") if number.text.startswith("-") else f"-{number.text}"
    return Number(-number.value, text, place)


# ---- declarations ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Let:
    """``let NAME = body`` or, with ``parameters``, a macro. ``place`` is that of the name."""

    name: str
    parameters: tuple[str, ...] | None
    body: Term
    place: Place
    span: Span


@dataclass(frozen=True, slots=True)
class Root:
    """A root of a rule's side: ``value`` or ``target = value``."""

    target: Term | None
    value: Term
    span: Span


@dataclass(frozen=True, slots=True)
class Numerics:
    """A numerics class as written: ``within 2 lsb`` is ("within", 2, "lsb")."""

    word: str
    amount: int | float | None
    unit: str
    place: Place


@dataclass(frozen=True, slots=True)
class Condition:
    expr: Term
    because: str | None
    place: Place
    span: Span


@dataclass(frozen=True, slots=True)
class Where:
    conditions: tuple[Condition, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Cost:
    expr: Term
    span: Span


@dataclass(frozen=True, slots=True)
class Call:
    """A call's text; several strings in a row are joined. ``texts`` keeps them apart, each with its place."""

    texts: tuple[String, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Annotate:
    """What a composite's result bears, in order."""

    terms: tuple[Term, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Rule:
    name: str
    numerics: Numerics
    before: tuple[Let, ...]
    left: tuple[Root, ...]
    both: bool
    right: tuple[Root, ...]
    after: tuple[Let | Where, ...]
    place: Place
    span: Span


@dataclass(frozen=True, slots=True)
class Setting:
    """``peak int8 = 4e12, uint8 = 4e12``: a section or "", and assignments."""

    section: str
    assignments: tuple[tuple[str, Term, Place], ...]
    place: Place
    span: Span


@dataclass(frozen=True, slots=True)
class Text:
    """``summary "..."``."""

    name: str
    text: String
    place: Place
    span: Span


@dataclass(frozen=True, slots=True)
class Supports:
    """``supports A, B``; ``ops`` is None for ``*``."""

    ops: tuple[tuple[str, Place], ...] | None
    after: tuple[Where | Cost, ...]
    place: Place
    span: Span


@dataclass(frozen=True, slots=True)
class Family:
    """``family a, b``; ``names`` is None for ``*``."""

    names: tuple[tuple[str, Place], ...] | None
    after: tuple[Where | Cost, ...]
    place: Place
    span: Span


@dataclass(frozen=True, slots=True)
class Composite:
    """A coarse kernel; ``generated`` where the word is ``kernel`` instead of ``composite``."""

    generated: bool
    name: str
    numerics: Numerics
    before: tuple[Let, ...]
    pattern: Term
    pattern_span: Span
    after: tuple[Let | Where | Cost | Call | Annotate, ...]
    place: Place
    span: Span


@dataclass(frozen=True, slots=True)
class Target:
    name: str
    is_host: bool
    items: tuple[Setting | Text | Supports | Family | Let | Composite, ...]
    place: Place
    span: Span


Declaration = Rule | Target | Let


@dataclass(frozen=True, slots=True)
class Span:
    """First and last line of a clause (1-based, inclusive)."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class File:
    declarations: tuple[Declaration, ...]
