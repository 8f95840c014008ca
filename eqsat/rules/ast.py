"""The syntax tree of rule files, shared by the parser, the reader and the printer.

Three small languages share its terms, because the same text may be on either side of a rule. *Patterns* (left sides,
composites) match e-nodes; *templates* (right sides) build them; *expressions* (conditions, computed attributes, costs)
are evaluated in Python over shapes, types, attributes and small constants. The parser makes the terms. The reader
resolves names, expands ``let``s and macros, and turns applications of operators into a :class:`Match` or a
:class:`Build` (``maybe(Op)(x, ...)`` becomes the alternatives ``Op(x, ...) | x``). All other terms stay unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, replace
from functools import cached_property

from eqsat.rules.literals import Number as Number
from eqsat.rules.literals import Numerics as Numerics
from eqsat.rules.literals import String as String
from eqsat.rules.literals import Truth as Truth
from eqsat.rules.literals import Wildcard as Wildcard
from eqsat.rules.tree import Node, Place, Span, without_places
from eqsat.schema.declared_operators import DeclaredOperator
from eqsat.schema.types import Attrs, OpKey

# ---- terms -------------------------------------------------------------------------------------


class Name(Node):
    """In a pattern a bound tensor (the same name twice must be the same value); elsewhere a use of the name."""

    name: str
    place: Place


class Optional(Node):
    """``b?``: a name of a pattern that also matches an absent input."""

    name: str
    place: Place


class Rest(Node):
    """``xs...`` as the last operand: the remaining operands of a variadic operator.

    ``each`` (``Abs(xs...)`` where one operand is taken, templates only) is applied to every one of them.
    """

    name: str
    place: Place
    each: OpKey | None = None


class Spread(Node):
    """``**c``."""

    name: str
    place: Place


class Parentheses(Node):
    """``(x + y)`` as written; only the formatter sees them."""

    inner: Term
    place: Place


class Keyword(Node):
    """``perm=p``."""

    name: str
    value: Term
    place: Place


class Bind(Node):
    """``c: Conv(x, w)``."""

    name: str
    value: Term
    place: Place


class Alternatives(Node):
    """``A | B``: either matches; names bound in one alternative only are absent in the other.

    An object at two places of a pattern (a ``let`` used twice) is one value: the same alternative at both.

    Attributes:
        options: Patterns, or the terms from which the reader makes them.
        bind: Name of the value of the option that matched (``c: (A | B)``, or a ``let``), or None.
    """

    options: tuple[Pattern, ...]
    place: Place
    bind: str | None = None


class Apply(Node):
    """``Conv(x, w)``; of an operator, a macro or a function. ``callee`` may itself be applied: ``maybe(Pad)(x)``."""

    callee: Term
    args: tuple[Term, ...]
    place: Place

    @property
    def function(self) -> str:
        """The name of the applied operator or function; empty if it has none."""
        return self.callee.name if isinstance(self.callee, Name) else ""


class Index(Node):
    of: Term
    index: Term
    place: Place


class Slice(Node):
    of: Term
    start: Term | None
    stop: Term | None
    place: Place


class Member(Node):
    of: Term
    name: str
    place: Place


class Unary(Node):
    """``-x`` and ``not x``."""

    op: str
    operand: Term
    place: Place


class Binary(Node):
    """Arithmetic, ``@``, ``and``, ``or``; ``sign`` is the place of the operator's sign."""

    op: str
    left: Term
    right: Term
    place: Place
    sign: Place


class Compare(Node):
    first: Term
    rest: tuple[tuple[str, Term], ...]
    place: Place


class Conditional(Node):
    then: Term
    condition: Term
    otherwise: Term
    place: Place


class Sequence(Node):
    """``[a, b]`` (``square``) or ``(a, b)``."""

    items: tuple[Term, ...]
    square: bool
    place: Place


class Comprehension(Node):
    item: Term
    variable: str
    source: Term
    condition: Term | None
    place: Place


# ---- operators, once they are known ------------------------------------------------------------


class AttrBind(Node):
    """``perm=p`` in a pattern: binds the attribute (``name`` a new or an already bound name), or requires it
    to equal an expression (``axis=1``, ``perm=[0, 2, 1]``).
    """

    attribute: str
    name: str | None
    equals: Expr | None
    place: Place


class Match(Node):
    """An operator of a pattern.

    Attributes:
        ops: One operator, or several for ``(op: Add | Mul)(x, c)``.
        op_name: Name bound to the operator that matched (usable as the operator of a template), or None.
        args: Operands by position; None is an operand that must be absent. Operands given by the schema's
            name (``Clip(x, min=lo)``) are already in their positions.
        attrs: Constraints and bindings of attributes; attributes not named are unconstrained.
        bind: ``c`` of ``c: Conv(...)``: gives expressions ``c.strides``, templates ``**c``, and the
            node's value as tensor ``c``; or None.
        output: Number of the output (``Split(x, s)[1]``); 0 unless indexed.
    """

    ops: tuple[OpKey, ...]
    op_name: str | None
    args: tuple[Pattern | None, ...]
    attrs: tuple[AttrBind, ...]
    bind: str | None
    output: int
    place: Place

    @cached_property
    def node(self) -> Match:
        """The part that its occurrences share: ``Split(x, s)[0]`` and ``c: Split(x, s)[1]`` are one node."""
        return without_places(replace(self, output=0, bind=None))


class Build(Node):
    """An operator of a template.

    Attributes:
        op: The operator, or the name bound by ``(op: Add | Mul)``.
        args: Operands by position; None leaves an optional input absent.
        attrs: Attribute values.
        spread: Names of bound nodes whose attributes are taken over (``**c``), before ``attrs`` override them.
        output: Number of the output; 0 unless indexed.
        name: The ``let`` name under which expressions may ask for its shape, or None.
    """

    op: OpKey | str
    args: tuple[TemplateTerm | None, ...]
    attrs: tuple[tuple[str, Expr], ...]
    spread: tuple[str, ...]
    output: int
    place: Place
    name: str | None = None

    @cached_property
    def node(self) -> Build:
        """The part that its occurrences share: everything but the output and the place in the file."""
        return without_places(replace(self, output=0))


class TensorTerm(Node):
    """A constant computed from an expression: ``split=[2, u.shape[-1]]`` for a named input, or ``tensor(expr, dtype)``.

    ``dtype`` None means: int64 for integers in an operand whose schema is int64, else the neighbours' type.
    """

    value: Expr
    dtype: Expr | None
    place: Place


Literal = Number | String | Truth
Pattern = Name | Optional | Wildcard | Number | Rest | Match | Alternatives
TemplateTerm = Name | Number | Rest | Build | TensorTerm
Term = (
    Literal | Pattern | TemplateTerm | Spread | Parentheses | Keyword | AttrBind | Bind | Apply | Index | Slice | Member
    | Unary | Binary | Compare | Conditional | Sequence | Comprehension
)  # fmt: skip
Expr = Term
"""One whose names are resolved and whose macros are expanded; all applications are of functions then."""


def operands(node: Pattern | TemplateTerm) -> tuple[Pattern | TemplateTerm | None, ...]:
    """The patterns or templates that one is made of, without the expressions of its attributes."""
    if isinstance(node, Match | Build):
        return node.args
    return node.options if isinstance(node, Alternatives) else ()


def plain(pattern: Pattern) -> Iterator[Pattern]:
    """The alternatives of a pattern, in order, or the pattern itself."""
    for option in pattern.options if isinstance(pattern, Alternatives) else ():
        yield from plain(option)
    if not isinstance(pattern, Alternatives):
        yield pattern


def negated(number: Number, place: Place) -> Number:
    """A number with a sign."""
    text = number.text.removeprefix("-") if number.text.startswith("-") else f"-{number.text}"
    return Number(-number.value, text, place)


# ---- rules and targets ---------------------------------------------------------------------------


class Condition(Node):
    """One comma-separated condition of ``where``, with the text of ``because``, if any, and its lines in the file."""

    expr: Expr
    because: str | None
    place: Place
    span: Span = field(default=Span(1, 1), compare=False)


class Rule(Node):
    """``left[i] = right[i]`` for each root. A ``<=>`` rule is read as two rules, the second named ``NAME.reverse``.

    Attributes:
        left: Operators, or alternatives of operators.
        doc, span: The comment lines right above or below the header, without their sign; its lines in the file.
        operators: Declared operators that it may name; likewise of a target.
    """

    name: str
    numerics: Numerics
    left: tuple[Match | Alternatives, ...]
    right: tuple[TemplateTerm, ...]
    where: tuple[Condition, ...]
    place: Place
    doc: str = ""
    span: Span = field(default=Span(1, 1), compare=False)
    operators: tuple[DeclaredOperator, ...] = field(default=(), compare=False, repr=False)


class Written(Node):
    """The operator as which a composite is written into files.

    Attributes:
        operator: The operator, applied to the composite's operands.
        outputs: For each output of the operator, the number of the composite's result; None if it is not a result.
    """

    operator: Build
    outputs: tuple[int | None, ...]
    place: Place


RESULT = "y"
"""Name of a single result in the call of its composite, unless the pattern binds it otherwise."""


class Composite(Node):
    """A coarse kernel of a target: its definition, its conditions, its cost and its call.

    Attributes:
        patterns: Its definition, one for each result; the leaves in order of first occurrence are its inputs.
        family: On a host, the kernel family that computes it (``by``); empty if not given.
        cost: Seconds over ``macs bytes peak bandwidth launch`` and the pattern's names; None for the cost of the
            family.
        call: C call with ``{expr}`` holes, or None.
        call_parts: The call as text and the expressions between.
        annotations: The annotations on each of its results, the innermost first.
        span: The lines of its pattern in the file, with the ``let``s before it.
        results: Names of the results; a single one may be "".
        written: The operator as which it is written into files; None if it is written as a function.
    """

    name: str
    numerics: Numerics
    patterns: tuple[Match | Alternatives, ...]
    where: tuple[Condition, ...]
    cost: Expr | None
    call: str | None
    place: Place
    doc: str = ""
    call_parts: tuple[str | Expr, ...] = ()
    annotations: tuple[tuple[OpKey, Attrs], ...] = ()
    family: str = ""
    span: Span = field(default=Span(1, 1), compare=False)
    results: tuple[str, ...] = ("",)
    written: Written | None = None


class Supports(Node):
    """Plain operators that a target executes one at a time; in conditions and costs ``x`` is the first operand,
    ``y`` the output, ``node`` the node, and the operands also go by their schema names.

    ``ops`` is empty for ``supports *`` (every operator; the host). ``call_parts`` are the C call as text and the
    expressions between, empty without one. ``family`` is, on a host, the kernel family that computes and prices them.
    """

    ops: tuple[OpKey, ...]
    where: tuple[Condition, ...]
    cost: Expr | None
    place: Place
    call_parts: tuple[str | Expr, ...] = ()
    family: str = ""


class FamilyEntry(Node):
    """The cost of kernels of some families of generated code; the expressions refer to the whole kernel.

    Attributes:
        names: Names of the families, with ``_`` for blanks; empty for ``family *``.
        cost: Expression over ``macs bytes functions scattered peak bandwidth launch``, first operand ``x``, ``y`` and
            ``node``.
    """

    names: tuple[str, ...]
    where: tuple[Condition, ...]
    cost: Expr
    place: Place


class Target(Node):
    """One target file.

    Attributes:
        peak: MAC/s by dtype name; bandwidth: byte/s of its own memory; launch: seconds a kernel;
        dispatch: seconds to start a region; link_bandwidth byte/s and link_latency seconds to the host.
        is_host: Declared ``host cpu`` instead of ``target cpu``.
        families: On a host, the costs of kernels of generated code.
        region_call: C call of a whole region, with holes ``{name}``, ``{inputs}`` and ``{outputs}``; empty without one.
        rules: Paths of rule files that belong to it; they make the operators that its composites contain.
        prepare: Paths of rule files that are applied to a model before anything else.
    """

    name: str
    summary: str
    is_host: bool
    peak: tuple[tuple[str, float], ...]
    bandwidth: float
    launch: float
    dispatch: float
    link_bandwidth: float
    link_latency: float
    supports: tuple[Supports, ...]
    composites: tuple[Composite, ...]
    place: Place
    doc: str = ""
    families: tuple[FamilyEntry, ...] = ()
    rules: tuple[str, ...] = ()
    prepare: tuple[str, ...] = ()
    region_call: str = ""
    operators: tuple[DeclaredOperator, ...] = field(default=(), compare=False, repr=False)


class RuleFile(Node):
    """Everything one file declares. ``egg`` is the text of a raw ``*.egg`` file."""

    path: str
    rules: tuple[Rule, ...] = ()
    targets: tuple[Target, ...] = ()
    egg: str | None = None
    operators: tuple[DeclaredOperator, ...] = ()
