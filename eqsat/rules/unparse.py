"""Rules and composites back to surface syntax: what the reader made of a file, in the language's own words.

Macros stay expanded; a part that is used twice, or whose type is asked, becomes a ``let`` again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from eqsat.rules import ast
from eqsat.rules import syntax as s
from eqsat.rules.callee import known
from eqsat.rules.operators import find_operator
from eqsat.schema.opset import EQSAT
from eqsat.schema.types import OpKey

_SIGNS = {"Add": "+", "Sub": "-", "Mul": "*", "Div": "/", "MatMul": "@"}


def operator_name(op: OpKey) -> str:
    """How a rule names an operator: without domain where that is clear."""
    return op.name if op.domain == EQSAT and find_operator(op.name) == op else str(op)


@dataclass
class Unparser:
    """Turns the syntax tree of one rule or composite into surface terms.

    Attributes:
        lets: Names to be defined before the pattern, and after it, with their terms, in order.
    """

    before: dict[str, s.Term] = field(default_factory=dict)
    after: dict[str, s.Term] = field(default_factory=dict)
    _uses: dict[int, int] = field(default_factory=dict)

    def count(self, pattern: ast.Pattern | None) -> None:
        """Notes how often each part of a pattern is used, so that a shared one becomes a ``let``."""
        if isinstance(pattern, ast.Match | ast.Alternatives):
            self._uses[id(pattern)] = self._uses.get(id(pattern), 0) + 1
            if self._uses[id(pattern)] == 1:
                for part in pattern.args if isinstance(pattern, ast.Match) else pattern.options:
                    self.count(part)

    def root(self, pattern: ast.Pattern) -> s.Term:
        """A root, whose name stands before ``=`` and not in it."""
        bind = pattern.bind if isinstance(pattern, ast.Match | ast.Alternatives) else None
        term = self.pattern(pattern)
        return term.value if isinstance(term, s.Bind) and term.name == bind else term

    def pattern(self, pattern: ast.Pattern) -> s.Term:
        """The surface term of a pattern."""
        match pattern:
            case ast.Var():
                name = "_" if pattern.name.startswith("_.") else pattern.name
                return (s.Optional if pattern.optional else s.Name)(name, pattern.place)
            case ast.Wildcard():
                return s.Name("_", pattern.place)
            case s.Number():
                return pattern
            case ast.Rest():
                return s.Rest(pattern.name, pattern.place)
        if pattern.bind is not None and self._uses.get(id(pattern), 0) > 1:
            if pattern.bind not in self.before:
                self.before[pattern.bind] = self._operator(pattern)
            return s.Name(pattern.bind, pattern.place)
        term = self._operator(pattern)
        return term if pattern.bind is None else s.Bind(pattern.bind, term, pattern.place)

    def _operator(self, pattern: ast.Match | ast.Alternatives) -> s.Term:
        if isinstance(pattern, ast.Alternatives):
            return s.Choice(tuple(self.pattern(option) for option in pattern.options), pattern.place)
        args = [None if a is None else self.pattern(a) for a in pattern.args]
        attrs = [s.Keyword(a.attribute, _attribute(a), a.place) for a in pattern.attrs]
        names = [s.Name(operator_name(op), pattern.place) for op in pattern.ops]
        callee: s.Term = names[0] if len(names) == 1 else s.Choice(tuple(names), pattern.place)
        if pattern.op_name is not None:
            callee = s.Bind(pattern.op_name, callee, pattern.place)
        elif len(names) == 1:
            literal = all(a is None or isinstance(a, s.Number) for a in pattern.args)
            sugar = None if attrs or pattern.output or literal else _sugar(pattern.ops[0], args, pattern.place)
            if sugar is not None:
                return sugar
        return _applied(callee, pattern.ops[0], args, attrs, [], pattern.output, pattern.place)

    def template(self, template: ast.Template) -> s.Term:
        """The surface term of a template."""
        match template:
            case ast.Var():
                return s.Name(template.name, template.place)
            case s.Number():
                return template
            case ast.Rest():
                rest = s.Rest(template.name, template.place)
                if template.each is None:
                    return rest
                return s.Apply(s.Name(operator_name(template.each), template.place), (rest,), template.place)
            case ast.Tensor():
                value = template.value
                if template.dtype is None:
                    return value
                return s.Apply(s.Name("tensor", template.place), (value, template.dtype), template.place)
        if template.name is None:
            return self._build(template)
        if template.name not in self.after:
            term = self._build(template)
            self.after[template.name] = term
        return s.Name(template.name, template.place)

    def _build(self, template: ast.Build) -> s.Term:
        args = [None if a is None else self.template(a) for a in template.args]
        attrs = [s.Keyword(name, value, template.place) for name, value in template.attrs]
        spreads = [s.Spread(name, template.place) for name in template.spread]
        if isinstance(template.op, str):
            callee = s.Name(template.op, template.place)
            return _applied(callee, None, args, attrs, spreads, template.output, template.place)
        literal = not any(isinstance(a, ast.Var | ast.Build) for a in template.args)
        if not attrs and not spreads and not template.output and not literal:
            sugar = _sugar(template.op, args, template.place)
            if sugar is not None:
                return sugar
        callee = s.Name(operator_name(template.op), template.place)
        return _applied(callee, template.op, args, attrs, spreads, template.output, template.place)


def _attribute(bind: ast.AttrBind) -> s.Term:
    return s.Name(bind.name or "_", bind.place) if bind.equals is None else bind.equals


def _sugar(op: OpKey, args: list[s.Term | None], place: ast.Place) -> s.Term | None:
    """``x + y`` for Add(x, y); None where an operator has no sign."""
    if op.domain or None in args:
        return None
    given = [a for a in args if a is not None and not isinstance(a, s.Rest | s.Optional)]
    if op.name in _SIGNS and len(args) == len(given) == 2:
        return s.Binary(_SIGNS[op.name], given[0], given[1], place, place)
    if op.name == "Neg" and len(args) == len(given) == 1:
        return s.Unary("-", given[0], place)
    return None


def _applied(
    callee: s.Term,
    op: OpKey | None,
    args: list[s.Term | None],
    attrs: list[s.Keyword],
    spreads: list[s.Spread],
    output: int,
    place: ast.Place,
) -> s.Term:
    given: list[s.Term] = []
    for i, arg in enumerate(args):
        if arg is not None and None in args[:i]:
            assert op is not None
            given.append(s.Keyword(known(op).parameter(i).name, arg, place))
        elif arg is not None:
            given.append(arg)
    term: s.Term = s.Apply(callee, (*given, *spreads, *attrs), place)
    return s.Index(term, s.Number(output, str(output), place), place) if output else term
