"""Turns parsed terms into templates, which rules build."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from eqsat.rules import ast
from eqsat.rules.build_expression import ExpressionBuilder
from eqsat.rules.build_pattern import MOST_OPERATORS
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
from eqsat.rules.operator_arguments import as_rest, output_index, read_arguments
from eqsat.rules.scope import Closure, Context, Frame, PatternBinding, ScopedLet
from eqsat.rules.signatures import Signature
from eqsat.schema.types import OpKey

_NO_TEMPLATES = {
    ast.Rest: ("`{0.name}...`, which must be the last operand of a variadic operator", ""),
    ast.Spread: ("`**{0.name}` outside of an operator", ""),
    ast.Keyword: ("`{0.name}=` outside of an operator", ""),
    ast.Bind: ("`{0.name}:`, which binds in patterns", "name a part of the right side with `let`"),
    ast.Alternatives: ("`|`, which chooses between patterns", "write one rule for each right side"),
    ast.Conditional: ("`if` between tensors", "write one rule for each case, with a condition"),
}
"""How terms that are not templates are called, and what may be meant."""


@dataclass
class TemplateBuilder:
    """Builds the templates of one rule, and knows the parts that its expressions read."""

    context: Context
    expressions: ExpressionBuilder = field(init=False)
    _memo: dict[ScopedLet, ast.TemplateTerm] = field(default_factory=dict)
    _names: dict[ScopedLet | Closure, str] = field(default_factory=dict)
    _asked: dict[str, ast.Place] = field(default_factory=dict)
    _sizes: dict[int, tuple[ast.TemplateTerm, int]] = field(default_factory=dict)
    in_condition: bool = False
    """Conditions are answered before anything is built, so that they cannot ask about it."""

    def __post_init__(self) -> None:
        self.expressions = ExpressionBuilder(self.context, self._ask)

    def build(self, term: ast.Term, frame: Frame) -> ast.TemplateTerm:
        """The template of a term.

        Raises:
            RuleError: It is not a template.
        """
        if not is_tensor(term, frame, self.context):
            return self._constant(term, frame)
        match term:
            case ast.Name():
                return self._name(term, frame)
            case ast.Optional():
                return self._variable(term.name, term.place)
            case ast.Apply():
                return self._apply(term, frame)
            case ast.Index():
                return self._index(term, frame)
            case ast.Unary(op="-"):
                return self._operator(OpKey("", "Neg"), (self.build(term.operand, frame),), term.place)
            case ast.Binary():
                return self._binary(term, frame)
            case _:
                actual, hint = _NO_TEMPLATES[type(term)]
                raise self._error(term, actual.format(term), hint)

    def unbuilt(self) -> tuple[str, ast.Place] | None:
        """A name whose type a term reads although nothing of that name is built."""
        built = {t.name for t, _ in self._sizes.values() if isinstance(t, ast.Build) and t.name is not None}
        return next(((n, p) for n, p in self._asked.items() if n not in built), None)

    def finish(self, template: ast.TemplateTerm) -> ast.TemplateTerm:
        """The template without the names that nothing asks for."""
        if not isinstance(template, ast.Build):
            return template
        args = tuple(None if a is None else self.finish(a) for a in template.args)
        name = template.name if template.name in self._asked else None
        return replace(template, args=args, name=name)

    def _error(self, term: ast.Term, actual: str, hint: str = "") -> Exception:
        return self.context.error(
            term.place, "an operator, a name or a constant to build is required", actual=actual, hint=hint
        )

    # -- names
    def _name(self, term: ast.Name, frame: Frame) -> ast.TemplateTerm:
        context = self.context
        entry = frame.lookup(term.name)
        if isinstance(entry, Closure):
            return self._named(self.build(entry.term, entry.frame), entry)
        if isinstance(entry, ScopedLet) and not entry.is_macro:
            if entry in context.pattern_names:
                entry.used = True
                return self._variable(context.pattern_names[entry], term.place)
            if entry not in self._memo:
                with context.expanding(entry, term.place):
                    self._memo[entry] = self._named(self.build(entry.let.body, entry.frame), entry)
            entry.used = True
            return self._memo[entry]
        return self._variable(term.name, term.place)

    def _variable(self, name: str, place: ast.Place) -> ast.TemplateTerm:
        context = self.context
        if name == "_":
            raise context.error(place, "a name is required", actual="`_`, which binds nothing")
        bound = context.bindings.get(name)
        if bound is None:
            forbid_bare_operator(name, place, context)
            raise context.unbound(name, place)
        if bound.kind in ("rest", "operator"):
            what, written = ("a list of tensors", "...") if bound.kind == "rest" else ("an operator", "(...)")
            raise context.error(
                place, "an operand is required", actual=f"`{name}`, {what}", hint=f"write `{name}{written}`"
            )
        context.referenced.add(name)
        return ast.Name(name, place)

    def _named(self, template: ast.TemplateTerm, entry: ScopedLet | Closure) -> ast.TemplateTerm:
        """Gives an operator the name under which expressions may ask for its type."""
        if not isinstance(template, ast.Build) or template.name is not None:
            if isinstance(template, ast.Build) and template.name is not None:
                self._names.setdefault(entry, template.name)
            return template
        return self._sized(replace(template, name=self._allocate(entry)))

    def _allocate(self, entry: ScopedLet | Closure) -> str:
        if entry not in self._names:
            base = entry.name if isinstance(entry, ScopedLet) else entry.parameter
            taken = base in self.context.bindings or base in self._names.values() or isinstance(entry, Closure)
            self._names[entry] = self.context.fresh(base) if taken else base
        return self._names[entry]

    def _ask(self, entry: ScopedLet | Closure) -> str | None:
        """The operator that a ``let`` or parameter denotes; None if it is a bare name or not a tensor."""
        context = self.context
        if isinstance(entry, ScopedLet):
            if entry.is_macro:
                return None
            if entry in context.pattern_names:
                entry.used = True
                return context.pattern_names[entry]
            term, frame = context.resolve(entry.let.body, entry.frame)
        else:
            term, frame = context.resolve(entry.term, entry.frame)
        if isinstance(term, ast.Name):
            inner = frame.lookup(term.name)
            if isinstance(inner, ScopedLet) and inner is not entry:
                return self._ask(inner)
            return None
        if not is_tensor(term, frame, context):
            return None
        if isinstance(entry, ScopedLet):
            entry.used = True
        if self.in_condition:
            word = entry.name if isinstance(entry, ScopedLet) else entry.parameter
            raise context.error(
                term.place,
                "a condition can only ask about what the pattern matches",
                actual=f"`{word}`, which is built on the right",
            )
        name = self._allocate(entry)
        self._asked.setdefault(name, term.place)
        context.bindings.setdefault(name, PatternBinding("tensor", term.place))
        return name

    # -- operators
    def _apply(self, term: ast.Apply, frame: Frame) -> ast.TemplateTerm:
        callee = find_callee(term.callee, frame, self.context)
        if isinstance(callee, ScopedLet):
            with self.context.called(callee, term, frame) as (body, inner):
                return self.build(body, inner)
        if isinstance(callee, TensorConstructor):
            return self._tensor(term, frame)
        if isinstance(callee, CalledFunction):
            return self._constant(term, frame)
        if isinstance(callee, BoundOperator):
            self.context.referenced.add(callee.name)
            return self._build(callee.name, callee.ops, term, frame)
        if callee.maybe or callee.name is not None or len(callee.ops) != 1:
            raise self._error(
                term,
                "a choice of operators, which only a pattern can have",
                "bind it on the left: `(op: Add | Mul)(x, y) => op(...)`",
            )
        return self._build(callee.ops[0], callee.ops, term, frame)

    def _build(self, op: OpKey | str, ops: tuple[OpKey, ...], term: ast.Apply, frame: Frame) -> ast.TemplateTerm:
        context = self.context
        signatures = [known(o) for o in ops]
        given = read_arguments(term, signatures, context)
        spread = tuple(self._spread(arg) for arg in given.spreads)
        args = tuple(self._operand(given.operands.get(i), frame) for i in given.positions)
        attrs = tuple((arg.name, self._attribute(arg, signatures, frame)) for arg in given.attributes)
        for found in signatures:
            self._check_required(found, {name for name, _ in attrs}, spread, term)
        return self._sized(ast.Build(op, args, attrs, spread, 0, term.place))

    def _check_required(self, found: Signature, attrs: set[str], spread: tuple[str, ...], term: ast.Apply) -> None:
        taken = {name for node in spread for op in self.context.bindings[node].ops for name in known(op).attributes}
        for name in found.required:
            if name not in attrs and name not in taken:
                raise self.context.error(
                    term.place, f"`{found.op}` needs its attribute `{name}` to be built", hint=f"write `{name}=...`"
                )

    def _operand(self, term: ast.Term | None, frame: Frame) -> ast.TemplateTerm | None:
        rest = None if term is None else as_rest(term)
        if rest is None:
            return None if term is None else self.build(term, frame)
        bound = self.context.bindings.get(rest.name)
        if bound is None:
            raise self.context.unbound(rest.name, rest.place)
        if bound.kind != "rest":
            raise self.context.error(rest.place, f"`{rest.name}` must be bound as `{rest.name}...`")
        return ast.Rest(rest.name, rest.place, self._each(term, frame) if isinstance(term, ast.Apply) else None)

    def _each(self, term: ast.Apply, frame: Frame) -> OpKey:
        """The operator of ``Abs(xs...)``."""
        callee = find_callee(term.callee, frame, self.context)
        if not isinstance(callee, OperatorChoice) or len(callee.ops) != 1 or known(callee.ops[0]).least_inputs > 1:
            raise self._error(term, "an operator that takes other than one operand")
        self._check_required(known(callee.ops[0]), set(), (), term)
        return callee.ops[0]

    def _spread(self, arg: ast.Spread) -> str:
        bound = self.context.bindings.get(arg.name)
        if bound is None:
            raise self.context.unbound(arg.name, arg.place)
        if bound.kind != "node":
            raise self.context.error(
                arg.place,
                "a node bound on the left is required after `**`",
                actual=f"`{arg.name}`",
                hint=f"bind it as in `{arg.name}: Conv(x, w)`",
            )
        self.context.referenced.add(arg.name)
        return arg.name

    def _attribute(self, arg: ast.Keyword, signatures: list[Signature], frame: Frame) -> ast.Expr:
        if is_tensor(arg.value, frame, self.context):
            term, _ = self.context.resolve(arg.value, frame)
            if isinstance(term, ast.Name) and term.name not in self.context.bindings:
                raise self.context.unbound(term.name, term.place)
        return self.expressions.attribute(arg.name, signatures, arg.value, frame)

    def _binary(self, term: ast.Binary, frame: Frame) -> ast.TemplateTerm:
        op = operator_of_sign(term, self.context)
        return self._operator(op, (self.build(term.left, frame), self.build(term.right, frame)), term.place)

    def _operator(self, op: OpKey, args: tuple[ast.TemplateTerm, ...], place: ast.Place) -> ast.Build:
        return self._sized(ast.Build(op, args, (), (), 0, place))

    def _index(self, term: ast.Index, frame: Frame) -> ast.TemplateTerm:
        built = self.build(term.of, frame)
        if not isinstance(built, ast.Build):
            hint = "its other outputs are matched on the left: `Split(x)[1]`" if isinstance(built, ast.Name) else ""
            raise self.context.error(
                term.place, "an operator is required before `[...]`, which picks one of its outputs", hint=hint
            )
        ops = (built.op,) if isinstance(built.op, OpKey) else self.context.bindings[built.op].ops
        output = output_index(term, [known(op) for op in ops], self.context)
        return built if output == built.output else self._sized(replace(built, output=output, name=None))

    # -- constants
    def _constant(self, term: ast.Term, frame: Frame) -> ast.TemplateTerm:
        if isinstance(term, ast.Unary) and term.op == "-" and isinstance(term.operand, ast.Number):
            return ast.negated(term.operand, term.place)
        if isinstance(term, ast.Number):
            return term
        expr = self.expressions.operand(term, frame)
        if isinstance(expr, ast.Number):
            return replace(expr, place=term.place)
        return ast.TensorTerm(expr, None, term.place)

    def _tensor(self, term: ast.Apply, frame: Frame) -> ast.TemplateTerm:
        """``tensor(value, dtype)``."""
        if not 1 <= len(term.args) <= 2 or any(isinstance(a, ast.Keyword | ast.Spread | ast.Rest) for a in term.args):
            raise self.context.error(term.place, "a value and an element type are required in tensor(value, dtype)")
        value = self.expressions.operand(term.args[0], frame)
        if len(term.args) == 1:
            return ast.TensorTerm(value, None, term.place)
        dtype, kind = self.expressions.typed(term.args[1], frame)
        self.expressions.expect(kind, ("type", "number"), term.args[1])
        if kind != "type":
            dtype = ast.Apply(ast.Name("element_type", dtype.place), (dtype,), dtype.place)
        return ast.TensorTerm(value, dtype, term.place)

    def _sized(self, template: ast.Build) -> ast.Build:
        """Counts operators, shared ones as often as they occur, because later stages walk trees."""
        size = 1 + sum(self._sizes[id(a)][1] if id(a) in self._sizes else 1 for a in template.args)
        if size > MOST_OPERATORS:
            raise self.context.error(template.place, f"a right side of at most {MOST_OPERATORS} operators is required")
        self._sizes[id(template)] = (template, size)
        return template
