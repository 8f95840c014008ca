"""The steps that rules and composites have in common: scope, root patterns, conditions, clauses, unused ``let``s."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

from eqsat.errors import RuleError
from eqsat.rules import ast
from eqsat.rules import declarations as s
from eqsat.rules.build_pattern import MOST_OPERATORS, Deferred, PatternBuilder, operators_of
from eqsat.rules.build_template import TemplateBuilder
from eqsat.rules.callee import dotted_name, known, operator
from eqsat.rules.constness import split_constness
from eqsat.rules.counted_axes import same_axes
from eqsat.rules.expand import Clause, expand, extent
from eqsat.rules.operator_arguments import check_keyword
from eqsat.rules.scope import Context, Frame, PatternBinding, ScopedLet
from eqsat.rules.source import Source, Sources
from eqsat.rules.tree import DEEPEST, replaced, walk
from eqsat.schema.opset import did_you_mean

_CLASSES = {
    "exact": ast.Numerics("exact"),
    "real": ast.Numerics("real"),
    "approximate": ast.Numerics("approximate"),
}


@dataclass
class Builder:
    """Builds one rule or composite: the steps that both have in common."""

    context: Context
    frame: Frame
    patterns: PatternBuilder
    templates: TemplateBuilder

    @classmethod
    def over(cls, frame: Frame, sources: Sources, clauses: Sequence[s.ParsedClause] = ()) -> Builder:
        """A builder in whose scope the ``let``s among the clauses are defined."""
        context = Context(sources)
        for inner in define(s.those(clauses, s.Let), frame, sources, local=True):
            frame, entry = inner, inner.entry
            assert isinstance(entry, ScopedLet)
            context.lets[entry.name] = entry
        return cls(context, frame, PatternBuilder(context), TemplateBuilder(context))

    def root(
        self, term: ast.Term, name: str | None = None, place: ast.Place | None = None
    ) -> ast.Match | ast.Alternatives:
        """A pattern that is an operator, or alternatives of operators."""
        pattern = self.patterns.build(term, self.frame)
        count, depth = extent(pattern)
        if count > MOST_OPERATORS or depth > DEEPEST:
            raise self.context.error(
                term.place,
                f"a pattern of at most {MOST_OPERATORS} operators, nested at most {DEEPEST} deep, is required",
                actual=f"{count if count < 10**9 else 'billions'}, nested {depth} deep, with all `let`s written out",
            )
        bad = next((p for p in ast.plain(pattern) if not isinstance(p, ast.Match)), None)
        if bad is not None:
            raise self.context.error(
                term.place if bad is pattern else bad.place,
                "an operator is required as the root of a pattern",
                actual="a bare value",
                hint="a rule from a bare variable would fire on every value"
                if bad is pattern
                else "each alternative must be an operator",
            )
        assert isinstance(pattern, ast.Match | ast.Alternatives)
        if name is None or place is None:
            return pattern
        self.context.bind(name, PatternBinding("node", place, operators_of(pattern)))
        if pattern.bind is not None:
            return ast.Alternatives((pattern,), pattern.place, name)
        return replace(pattern, bind=name)

    def resolve(
        self, roots: Sequence[ast.Match | ast.Alternatives]
    ) -> tuple[list[ast.Match | ast.Alternatives], list[ast.Condition]]:
        """Fills in the expressions of patterns, now that all names are bound.

        Returns:
            The roots, and the conditions that express operands given as expressions.
        """
        self.templates.in_condition = True
        expressions = self.templates.expressions
        values = {
            key: expressions.attribute(d.attribute, d.signatures, d.term, d.frame)
            for key, d in self.patterns.attributes.items()
        }

        def fill(node: object) -> object:
            if isinstance(node, ast.AttrBind) and id(node) in values:
                return replace(node, equals=values[id(node)])
            return None

        filled = list(replaced(tuple(roots), fill)) if values else list(roots)
        conditions = [self._operand(deferred) for deferred in self.patterns.operands]
        self.templates.in_condition = False
        return filled, conditions

    def _operand(self, deferred: Deferred) -> ast.Condition:
        expr, place = self.templates.expressions.operand(deferred.term, deferred.frame), deferred.term.place
        variable = ast.Name(deferred.variable, place)
        value: ast.Expr = ast.Member(variable, "value", place)
        if deferred.axes is None or not deferred.counted:
            same: ast.Expr = ast.Compare(value, (("==", expr),), place)
        else:
            same = same_axes(value, expr, deferred.counted, deferred.axes, place)
        absent = ast.Unary("not", ast.Member(variable, "is_present", place), place)
        return ast.Condition(ast.Binary("or", absent, same, place, place), None, place)

    def conditions(self, clauses: Sequence[s.ParsedClause]) -> list[ast.Condition]:
        """The conditions of all ``where`` clauses of a rule or composite, which the e-graph answers."""
        return [part for c in self.plain_conditions(clauses) for part in split_constness(c, self.context)]

    def plain_conditions(self, clauses: Sequence[s.ParsedClause]) -> list[ast.Condition]:
        """The conditions of all ``where`` clauses, unresolved."""
        self.templates.in_condition = True
        found = [
            ast.Condition(self.templates.expressions.build(c.expr, self.frame, ("truth",)), c.because, c.place)
            for clause in s.those(clauses, s.Where)
            for c in clause.conditions
        ]
        self.templates.in_condition = False
        return found

    def clauses(self, roots: Sequence[ast.Match | ast.Alternatives]) -> list[Clause]:
        """All plain patterns, or an error that shows the place."""
        try:
            return expand(roots)
        except RuleError as error:
            raise self.context.error(roots[0].place, error.requirement, actual=error.actual, hint=error.hint) from None

    def check_lets(self) -> None:
        """Raises: RuleError: A ``let`` of the rule is not used."""
        for definition in self.context.lets.values():
            if not definition.used:
                raise self.context.error(
                    definition.let.place,
                    f"`let {definition.name}` must be used in its rule",
                    hint="remove it, or correct the name where it was meant",
                )


def define(lets: Sequence[s.Let], frame: Frame, sources: Sources, *, local: bool) -> list[Frame]:
    """For each ``let`` the frame in which it is defined as well as those before it, which it sees.

    Raises:
        RuleError: Two have one name.
    """
    frames: list[Frame] = []
    seen: dict[str, ast.Place] = {}
    for let in lets:
        # A rule has one error; the `let`s of a file or target are declarations of their own.
        with nullcontext() if local else sources.recovering():
            if let.name == "_":
                raise sources.error(let.place, "a name is required after `let`", actual="`_`")
            if let.name in seen:
                raise sources.error(
                    let.place, f"`let {let.name}` must be defined once", actual=f"another one at {seen[let.name]}"
                )
            seen[let.name] = let.place
            if not local:
                _check_let(let, frame, sources)
        frame = frame.define(let.name, ScopedLet(let, frame, local))
        frames.append(frame)
    return frames


def read_numerics(found: s.NumericsClause, sources: Sources) -> ast.Numerics:
    """The numerics class of a header.

    Raises:
        RuleError: There is no such class.
    """
    if found.word == "within":
        if found.unit != "lsb" or not isinstance(found.amount, int) or found.amount < 1:
            raise sources.error(
                found.place,
                "`within N lsb` with a whole number from 1 is required",
                actual=f"`within {found.amount} {found.unit}`",
            )
        return ast.Numerics("lsb", found.amount)
    if found.word not in _CLASSES:
        raise sources.error(
            found.place,
            "a numerics class is required: exact, real, approximate or `within N lsb`",
            actual=f"`{found.word}`",
            hint=did_you_mean(found.word, _CLASSES),
        )
    return _CLASSES[found.word]


def read_doc(definition: s.Definition, source: Source) -> str:
    """The comments on the line of a header."""
    return source.doc(definition.span.first, definition.numerics.place.line, definition.clauses[0].span.first)


def _check_let(let: s.Let, frame: Frame, sources: Sources) -> None:
    """Checks the operators in the body of a ``let`` that many rules may use, and their attributes.

    Its parameters, and the names that the rule must define, are only known where it is used.

    Raises:
        RuleError: There is no such operator, or it has no such attribute.
    """
    context = Context(sources)
    hidden = set(let.parameters or ())
    for term in walk(let.body):
        name = dotted_name(term.callee) if isinstance(term, ast.Apply) else None
        # Other words may be macros, functions, or operators that a rule binds.
        if name is None or name in hidden or not name.rpartition(".")[2][:1].isupper() or frame.lookup(name):
            continue
        found = known(operator(name, term.callee.place, context, frame))
        for arg in term.args:
            if isinstance(arg, ast.Keyword):
                check_keyword(arg, found, context)
