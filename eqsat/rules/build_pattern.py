"""Turns parsed terms into patterns, which rules and composites match."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from eqsat.ops.normal import Axes
from eqsat.ops.operators import operator
from eqsat.rules import ast
from eqsat.rules.callee import (
    BoundOperator,
    CalledFunction,
    OperatorChoice,
    TensorConstructor,
    find_callee,
    forbid_bare_operator,
    known,
    operator_of_sign,
)
from eqsat.rules.classify import is_tensor
from eqsat.rules.element_types import DTYPE_LISTS, DTYPES
from eqsat.rules.kinds import ATTRIBUTE_KINDS, ValueKind
from eqsat.rules.operator_arguments import Arguments, output_index, read_arguments
from eqsat.rules.scope import Closure, Context, Frame, PatternBinding, ScopedLet
from eqsat.rules.signatures import Signature
from eqsat.schema.types import OpKey

MOST_OPERATORS = 2000

_WRONG_SPREAD = "`**`, which gives attributes to an operator that is built"
_NO_PATTERNS = {
    ast.Rest: ("`{0.name}...`, which must be the last operand of a variadic operator", ""),
    ast.Spread: (_WRONG_SPREAD, ""),
    ast.Compare: (
        "a condition",
        "conditions belong into `where`; the operators that compare are `Less(x, y)`, `Equal(x, y)` and so on",
    ),
    ast.Conditional: ("`if`", "alternatives of a pattern are written `A | B`"),
    ast.Keyword: ("`{0.name}=`", ""),
}
"""How terms that are not patterns are called, and what may be meant."""


@dataclass
class Deferred:
    """An expression in a pattern, to be built when all names of the pattern are bound.

    ``variable`` is the operand that must equal it; or it constrains an ``attribute`` of operators. If it lists
    ``axes``, they are axes of the operand named ``counted``, and may be counted from its end.
    """

    term: ast.Term
    frame: Frame
    variable: str = ""
    attribute: str = ""
    signatures: Sequence[Signature] = ()
    axes: Axes | None = None
    counted: str = ""


@dataclass
class PatternBuilder:
    """Builds the patterns of one rule.

    Attributes:
        operands: Operands that must equal an expression (``Reshape(x, [0, -1])``).
        attributes: Constraints of attributes, by the placeholder in the pattern until they are resolved.
        roots: Roots that are built, by name.
    """

    context: Context
    operands: list[Deferred] = field(default_factory=list)
    attributes: dict[int, Deferred] = field(default_factory=dict)
    roots: dict[str, ast.Match | ast.Alternatives] = field(default_factory=dict)
    _memo: dict[ScopedLet, ast.Pattern] = field(default_factory=dict)
    _operators: int = 0
    _anonymous: int = 0

    def build(self, term: ast.Term, frame: Frame, *, optional: bool = False) -> ast.Pattern:
        """The pattern of a term.

        Args:
            optional: Whether it is an operand that may be absent.

        Raises:
            RuleError: It is not a pattern.
        """
        match term:
            case ast.Name():
                return self._name(term, frame, optional)
            case ast.Optional():
                return self._optional(term, optional)
            case ast.Bind():
                return self._bind(self.build(term.value, frame, optional=optional), term.name, term.place)
            case ast.Alternatives():
                options = tuple(self.build(option, frame, optional=optional) for option in term.options)
                return ast.Alternatives(options, term.place)
            case ast.Apply():
                return self._apply(term, frame, optional)
            case ast.Index():
                return self._index(term, frame)
            case ast.Number():
                return term
            case ast.Truth():
                return ast.Number(term.value, str(term.value).lower(), term.place)
            case ast.Unary(op="-", operand=ast.Number() as number):
                return ast.negated(number, term.place)
            case ast.Unary(op="-") if is_tensor(term, frame, self.context):
                return self._match(OpKey("", "Neg"), (self.build(term.operand, frame),), term.place)
            case ast.Binary() if is_tensor(term, frame, self.context):
                return self._binary(term, frame)
            case ast.Conditional() if not is_tensor(term, frame, self.context):
                return self._constant(term, frame)
            case ast.Rest() | ast.Spread() | ast.Compare() | ast.Conditional() | ast.Keyword():
                actual, hint = _NO_PATTERNS[type(term)]
                required = "an operand is required" if isinstance(term, ast.Rest) else "a pattern is required"
                raise self.context.error(term.place, required, actual=actual.format(term), hint=hint)
            case _:
                return self._constant(term, frame)

    # -- names
    def _name(self, term: ast.Name, frame: Frame, optional: bool) -> ast.Pattern:
        context = self.context
        if term.name == "_":
            return ast.Wildcard(term.place)
        entry = frame.lookup(term.name)
        if isinstance(entry, Closure):
            return self.build(entry.term, entry.frame, optional=optional)
        if isinstance(entry, ScopedLet) and not entry.is_macro:
            return self._let(entry, term, optional)
        if term.name in self.roots:
            return self.roots[term.name]
        if term.name in DTYPES or term.name in DTYPE_LISTS:
            raise context.error(term.place, "a pattern is required", actual=f"`{term.name}`, an element type")
        if term.name not in context.bindings:
            forbid_bare_operator(term.name, term.place, context)
        bound = context.bindings.get(term.name)
        if bound is None or bound.kind != "node":
            context.bind(term.name, PatternBinding("tensor", term.place))
        return ast.Name(term.name, term.place)

    def _let(self, entry: ScopedLet, term: ast.Name, optional: bool) -> ast.Pattern:
        """A ``let`` is one subterm: the same value wherever it is used, which then has its name."""
        if entry in self._memo:
            entry.used = True
            return self._memo[entry]
        context = self.context
        with context.expanding(entry, term.place):
            body, frame = context.resolve(entry.let.body, entry.frame)
            pattern = self.build(body, frame, optional=optional)
        if isinstance(pattern, ast.Match | ast.Alternatives):
            if isinstance(pattern, ast.Match):
                pattern = self.pinned(pattern)
            if pattern.bind is None:
                name = entry.name if entry.name not in context.bindings else context.fresh(entry.name)
                pattern = replace(pattern, bind=name)
                context.bindings[name] = _node(pattern, entry.let.place)
            context.pattern_names[entry] = pattern.bind or ""
        elif isinstance(pattern, ast.Name):
            context.pattern_names[entry] = pattern.name
        self._memo[entry] = pattern
        return pattern

    def pinned(self, pattern: ast.Match) -> ast.Match:
        """A node with several outputs that may be used; everything that identifies it gets a name.

        Each output is a pattern of its own; only equal operands and attributes make them outputs of one node.
        """
        signatures = [known(op) for op in pattern.ops]
        if all(len(f.outputs) == 1 and not f.variadic_outputs for f in signatures):
            return pattern
        args = list(pattern.args)
        for i, arg in enumerate(args):
            if isinstance(arg, ast.Wildcard):
                name = self.context.fresh("operand")
                self.context.bind(name, PatternBinding("tensor", arg.place))
                args[i] = ast.Name(name, arg.place)
        attrs = list(pattern.attrs)
        named = {bind.attribute for bind in attrs}
        for attribute in signatures[0].always_present:
            if attribute not in named and all(attribute in f.always_present for f in signatures):
                name = self.context.fresh(attribute)
                self.context.bind(name, PatternBinding("attribute", pattern.place))
                attrs.append(ast.AttrBind(attribute, name, None, pattern.place))
        return replace(pattern, args=tuple(args), attrs=tuple(attrs))

    def _optional(self, term: ast.Optional, optional: bool) -> ast.Pattern:
        if not optional:
            raise self.context.error(
                term.place,
                "an operand that the operator needs must be there",
                actual=f"`{term.name}?`",
                hint="`?` is for operands that the operator's specification calls optional",
            )
        if term.name == "_":
            # Each one is a value of its own; names of the language have no dots.
            self._anonymous += 1
            return ast.Optional(f"_.{self._anonymous}", term.place)
        self.context.bind(term.name, PatternBinding("tensor", term.place))
        return ast.Optional(term.name, term.place)

    def _bind(self, pattern: ast.Pattern, name: str, place: ast.Place) -> ast.Pattern:
        if name == "_":
            return pattern
        if not isinstance(pattern, ast.Match | ast.Alternatives):
            raise self.context.error(
                place, "an operator is required after `name:`", actual="a bare value, which is its own name"
            )
        if pattern.bind is not None:
            raise self.context.error(place, "one name for a node is enough", actual=f"`{name}` and `{pattern.bind}`")
        self.context.bind(name, _node(pattern, place))
        return replace(pattern, bind=name)

    # -- operators
    def _apply(self, term: ast.Apply, frame: Frame, optional: bool) -> ast.Pattern:
        callee = find_callee(term.callee, frame, self.context)
        if isinstance(callee, ScopedLet):
            with self.context.called(callee, term, frame) as (body, inner):
                return self.build(body, inner, optional=optional)
        if isinstance(callee, CalledFunction):
            return self._constant(term, frame)
        if isinstance(callee, TensorConstructor):
            raise self.context.error(
                term.place, "a pattern is required", actual="`tensor(...)`, which builds a constant"
            )
        if isinstance(callee, BoundOperator):
            callee = OperatorChoice(callee.ops, term.callee.name if isinstance(term.callee, ast.Name) else None)
        pattern = self._operator(callee, term, frame)
        if not callee.maybe:
            return pattern
        if not term.args or isinstance(term.args[0], ast.Keyword | ast.Rest):
            raise self.context.error(
                term.place,
                "maybe(...) must have a first operand, which stands for the whole where the operator is not there",
            )
        # The operand is built again, so that names in it are bound in both alternatives.
        return ast.Alternatives((pattern, pattern.args[0] or ast.Wildcard(term.place)), term.place)

    def _operator(self, callee: OperatorChoice, term: ast.Apply, frame: Frame) -> ast.Match:
        context = self.context
        self._count(term.place)
        signatures = [known(op) for op in callee.ops]
        if callee.name is not None:
            context.bind(callee.name, PatternBinding("operator", term.callee.place, callee.ops))
        given = read_arguments(term, signatures, context)
        if given.spreads:
            raise context.error(given.spreads[0].place, "a pattern is required", actual=_WRONG_SPREAD)
        args = self._with_axes(
            [self._operand(given.operands.get(i), i, signatures, frame) for i in given.positions],
            callee.ops,
            given,
            frame,
        )
        attrs = (self._attribute(arg, signatures, frame) for arg in given.attributes)
        return ast.Match(callee.ops, callee.name, args, tuple(a for a in attrs if a is not None), None, 0, term.place)

    def _with_axes(
        self, args: list[ast.Pattern | None], ops: Sequence[OpKey], given: Arguments, frame: Frame
    ) -> tuple[ast.Pattern | None, ...]:
        """Records, for a written-out operand that lists axes, the operand whose axes they are."""
        kinds = {operator(op).axes for op in ops}
        axes = kinds.pop() if len(kinds) == 1 else None
        listed = args[axes.input] if axes is not None and axes.input < len(args) else None
        if axes is None or listed is None:
            return tuple(args)
        if isinstance(listed, ast.Number) and listed.value < 0:
            term = given.operands[axes.input]
            assert not isinstance(term, ast.Rest)
            listed = args[axes.input] = self._constant(term, frame)
        if isinstance(listed, ast.Name) and self.operands and self.operands[-1].variable == listed.name:
            args[0], name = self._named(args[0], listed.place)
            self.operands[-1] = replace(self.operands[-1], axes=axes, counted=name)
        return tuple(args)

    def _named(self, pattern: ast.Pattern | None, place: ast.Place) -> tuple[ast.Pattern | None, str]:
        """A pattern with a name, and the name; a number gets no name."""
        if isinstance(pattern, ast.Name | ast.Optional):
            return pattern, pattern.name
        if isinstance(pattern, ast.Wildcard):
            name = self.context.fresh("operand")
            self.context.bind(name, PatternBinding("tensor", place))
            return ast.Name(name, pattern.place), name
        if isinstance(pattern, ast.Match | ast.Alternatives):
            if pattern.bind is not None:
                return pattern, pattern.bind
            name = self.context.fresh("operand")
            self.context.bindings[name] = _node(pattern, place)
            return replace(pattern, bind=name), name
        return pattern, ""

    def _operand(
        self, term: ast.Term | None, position: int, signatures: list[Signature], frame: Frame
    ) -> ast.Pattern | None:
        if term is None:
            return None
        if isinstance(term, ast.Rest):
            self.context.bind(term.name, PatternBinding("rest", term.place))
            return ast.Rest(term.name, term.place)
        return self.build(term, frame, optional=all(f.parameter(position).optional for f in signatures))

    def _attribute(self, arg: ast.Keyword, signatures: list[Signature], frame: Frame) -> ast.AttrBind | None:
        """``perm=p`` binds, ``perm=[0, 1]`` requires, ``perm=_`` accepts any value."""
        context = self.context
        term, inner = context.resolve(arg.value, frame)
        while (
            isinstance(term, ast.Name)
            and isinstance(entry := inner.lookup(term.name), ScopedLet)
            and not entry.is_macro
        ):
            with context.expanding(entry, term.place):
                term, inner = context.resolve(entry.let.body, entry.frame)
        if isinstance(term, ast.Name) and term.name not in DTYPES:
            if term.name == "_":
                return None
            kinds: set[ValueKind] = {ATTRIBUTE_KINDS.get(f.attributes[arg.name], "any") for f in signatures}
            context.bind(
                term.name, PatternBinding("attribute", term.place, value=kinds.pop() if len(kinds) == 1 else "any")
            )
            return ast.AttrBind(arg.name, term.name, None, arg.place)
        if isinstance(term, ast.Optional | ast.Rest | ast.Bind | ast.Alternatives | ast.Spread):
            raise context.error(arg.value.place, f"a name or an expression is required as the attribute `{arg.name}`")
        placeholder = ast.AttrBind(arg.name, None, None, arg.place)
        self.attributes[id(placeholder)] = Deferred(term, inner, attribute=arg.name, signatures=signatures)
        return placeholder

    def _match(self, op: OpKey, args: tuple[ast.Pattern, ...], place: ast.Place) -> ast.Match:
        self._count(place)
        return ast.Match((op,), None, args, (), None, 0, place)

    def _binary(self, term: ast.Binary, frame: Frame) -> ast.Pattern:
        op = operator_of_sign(term, self.context)
        return self._match(op, (self.build(term.left, frame), self.build(term.right, frame)), term.place)

    def _index(self, term: ast.Index, frame: Frame) -> ast.Pattern:
        if not is_tensor(term.of, frame, self.context):
            return self._constant(term, frame)
        pattern = self.build(term.of, frame)
        if not isinstance(pattern, ast.Match):
            raise self.context.error(
                term.place, "an operator is required before `[...]`, which picks one of its outputs"
            )
        output = output_index(term, [known(op) for op in pattern.ops], self.context)
        if output == pattern.output:
            return pattern
        # A name of the node means its first output.
        named = isinstance(term.of, ast.Bind)
        return replace(pattern, output=output, bind=pattern.bind if named else None)

    def _constant(self, term: ast.Term, frame: Frame) -> ast.Pattern:
        """An expression as an operand: a constant with exactly this value."""
        name = self.context.fresh("constant")
        self.context.bindings[name] = PatternBinding("tensor", term.place)
        self.operands.append(Deferred(term, frame, variable=name))
        return ast.Name(name, term.place)

    def _count(self, place: ast.Place) -> None:
        self._operators += 1
        if self._operators > MOST_OPERATORS:
            raise self.context.error(place, f"a pattern of at most {MOST_OPERATORS} operators is required")


def _node(pattern: ast.Match | ast.Alternatives, place: ast.Place) -> PatternBinding:
    return PatternBinding("node", place, operators_of(pattern))


def operators_of(pattern: ast.Pattern) -> tuple[OpKey, ...]:
    """The operators that the root of a pattern may be."""
    return tuple(dict.fromkeys(op for p in ast.plain(pattern) if isinstance(p, ast.Match) for op in p.ops))
