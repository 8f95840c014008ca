"""The declarations of a rule file, unresolved: the parser makes them, the reader and the formatter read them.

Their terms are those of :mod:`eqsat.rules.ast`, which also has the nodes that the reader makes from declarations.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from eqsat.rules.ast import Condition, String, Term
from eqsat.rules.tree import Node, Place, Span


class Let(Node):
    """``let NAME = body`` or, with ``parameters``, a macro. ``place`` is the place of the name."""

    name: str
    parameters: tuple[str, ...] | None
    body: Term
    place: Place
    span: Span


class Root(Node):
    """A root of a rule's side: ``value`` or ``target = value``."""

    target: Term | None
    value: Term
    span: Span


class Side(Node):
    """One side of a rule, the right one after its ``arrow``; or the pattern of a composite."""

    arrow: str
    roots: tuple[Root, ...]

    @property
    def span(self) -> Span:
        return Span(self.roots[0].span.first, self.roots[-1].span.last)


class NumericsClause(Node):
    """A numerics class as written: ``within 2 lsb`` is ("within", 2, "lsb")."""

    word: str
    amount: int | float | None
    unit: str
    place: Place


class Where(Node):
    conditions: tuple[Condition, ...]
    span: Span


class By(Node):
    """``by FAMILY``: the family of C kernels that computes a composite."""

    name: str
    place: Place
    span: Span


class Cost(Node):
    expr: Term
    span: Span


class Call(Node):
    """A call's text; several strings in a row are joined. ``texts`` keeps them apart, each with its place."""

    texts: tuple[String, ...]
    span: Span


class Annotate(Node):
    """The annotations of a composite's result, in order."""

    terms: tuple[Term, ...]
    span: Span


class WrittenClause(Node):
    """The operator as which a composite is written into files, and which of its results are the composite's."""

    root: Root
    span: Span


class Setting(Node):
    """``peak int8 = 4e12, uint8 = 4e12``: a section or "", and assignments."""

    section: str
    assignments: tuple[tuple[str, Term, Place], ...]
    place: Place
    span: Span


class Text(Node):
    """``summary "..."``."""

    name: str
    text: String
    place: Place
    span: Span


class RegionCall(Node):
    """``region call "..."``; several strings in a row are joined. ``name`` is the word before ``call``."""

    name: str
    texts: tuple[String, ...]
    place: Place
    span: Span


class Entry(Node):
    """``supports A, B`` or ``family a, b``; ``names`` is None for ``*``."""

    word: str
    names: tuple[tuple[str, Place], ...] | None
    clauses: tuple[By | Where | Cost | Call, ...]
    place: Place
    span: Span


class Definition(Node):
    """A ``rule`` or ``composite``; ``place`` is the place of the name."""

    word: str
    name: str
    numerics: NumericsClause
    clauses: tuple[ParsedClause, ...]
    place: Place
    span: Span


class TargetDeclaration(Node):
    name: str
    is_host: bool
    items: tuple[Item, ...]
    place: Place
    span: Span


class Formal(Node):
    """``x``, ``x: floats`` or ``alpha = 1.0`` of an operator: an operand and its element types, or an attribute."""

    name: str
    dtype: Term | None
    default: Term | None
    place: Place


class OperatorDeclaration(Node):
    """``operator acme.ScaledRelu(x: floats, alpha = 1.0) = Relu(x) * alpha``; ``place`` is the place of the name."""

    name: str
    formals: tuple[Formal, ...]
    body: Term | None
    place: Place
    span: Span


ParsedClause = Let | Side | By | Where | Cost | Call | Annotate | WrittenClause
Item = Setting | Text | RegionCall | Entry | Let | Definition
ParsedDeclaration = Definition | TargetDeclaration | OperatorDeclaration | Let


class File(Node):
    declarations: tuple[ParsedDeclaration, ...]


_Clause = TypeVar("_Clause", bound=ParsedClause)


def those(clauses: Iterable[ParsedClause], kind: type[_Clause]) -> list[_Clause]:
    """The clauses of one kind, in their order."""
    return [clause for clause in clauses if isinstance(clause, kind)]
