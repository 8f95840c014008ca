"""Parsed terms to expressions: names resolved, ``let`` and macros expanded, kinds of values checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from eqsat.rules import ast
from eqsat.rules.builtin_functions import FUNCTIONS
from eqsat.rules.callee import CalledFunction, find_callee, known
from eqsat.rules.check_kinds import check_attribute, check_comparison, expect
from eqsat.rules.constness import forbid_constness
from eqsat.rules.element_types import DTYPE_LISTS, DTYPES
from eqsat.rules.kinds import ATTRIBUTE_KINDS, FACTS, PLAIN, ValueKind
from eqsat.rules.scope import Closure, Context, Frame, Local, ScopedLet
from eqsat.rules.signatures import Signature
from eqsat.schema.opset import did_you_mean

Asked = Callable[[ScopedLet | Closure], str | None]
"""Gives the name of the operator that a ``let`` or parameter builds or matches, so that its type can be asked."""


@dataclass
class ExpressionBuilder:
    """Builds the expressions of one rule.

    Args:
        asked: Called where ``k.shape`` asks for a fact of a ``let`` or parameter that is not a bare name.
    """

    context: Context
    asked: Asked

    def build(self, term: ast.Term, frame: Frame, wanted: Sequence[ValueKind] = ()) -> ast.Expr:
        """The expression of a term.

        Args:
            wanted: Kinds that fit; empty for any but tensors.

        Raises:
            RuleError: It is no expression, or one of another kind.
        """
        expr, kind = self.typed(term, frame)
        self.expect(kind, wanted, term)
        return expr

    def operand(self, term: ast.Term, frame: Frame) -> ast.Expr:
        """The expression of a term that gives a constant tensor.

        Raises:
            RuleError: It is not an expression whose value is known before the rule has matched.
        """
        expr = self.build(term, frame, ("number", "list", "value", "truth"))
        forbid_constness(expr, self.context)
        return expr

    def attribute(self, name: str, signatures: Sequence[Signature], term: ast.Term, frame: Frame) -> ast.Expr:
        """The expression of an attribute of one of several operators.

        Raises:
            RuleError: It is no value that the attribute can have.
        """
        expr, kind = self.typed(term, frame)
        self.expect(kind, (), term)
        forbid_constness(expr, self.context)
        for found in signatures:
            check_attribute(name, found, expr, kind, term, self.context)
        return expr

    def expect(self, kind: ValueKind, wanted: Sequence[ValueKind], term: ast.Term) -> None:
        """Raises: RuleError: The kind is not among those wanted."""
        expect(kind, wanted, term.place, self.context)

    def typed(self, term: ast.Term, frame: Frame) -> tuple[ast.Expr, ValueKind]:
        """The expression of a term and its kind."""
        match term:
            case ast.Number():
                return term, "number"
            case ast.Truth():
                return term, "truth"
            case ast.String():
                return term, "text"
            case ast.Name():
                return self._name(term, frame)
            case ast.Member():
                return self._member(term, frame)
            case ast.Index():
                return self._index(term, frame)
            case ast.Slice():
                of, kind = self.typed(term.of, frame)
                self.expect(kind, ("list", "value", "tensors"), term.of)
                start, stop = (
                    None if b is None else self.build(b, frame, ("number",)) for b in (term.start, term.stop)
                )
                return ast.Slice(of, start, stop, term.place), kind
            case ast.Apply():
                return self._apply(term, frame)
            case ast.Unary():
                return self._unary(term, frame)
            case ast.Binary():
                return self._binary(term, frame)
            case ast.Compare():
                return self._compare(term, frame)
            case ast.Sequence():
                items = tuple(self.build(item, frame) for item in term.items)
                return ast.Sequence(items, True, term.place), "list"
            case ast.Comprehension():
                return self._comprehension(term, frame)
            case ast.Conditional():
                condition = self.build(term.condition, frame, ("truth",))
                then, kind = self.typed(term.then, frame)
                otherwise, other = self.typed(term.otherwise, frame)
                return ast.Conditional(then, condition, otherwise, term.place), kind if kind == other else "any"
            case _:
                raise self.context.error(
                    term.place,
                    "an expression over shapes, types, attributes and small constants is required",
                    actual=_what(term),
                )

    # -- names and members
    def _name(self, term: ast.Name, frame: Frame) -> tuple[ast.Expr, ValueKind]:
        entry = frame.lookup(term.name)
        if isinstance(entry, Local):
            return ast.Name(entry.name, term.place), entry.kind
        if isinstance(entry, Closure):
            return self.typed(entry.term, entry.frame)
        if isinstance(entry, ScopedLet) and not entry.is_macro:
            name = self.asked(entry)
            if name is not None:
                return self._bound(name, term.place)
            with self.context.expanding(entry, term.place):
                return self.typed(entry.let.body, entry.frame)
        return self._bound(term.name, term.place, entry)

    def _bound(self, name: str, place: ast.Place, entry: object = None) -> tuple[ast.Expr, ValueKind]:
        context = self.context
        if name == "_":
            raise context.error(place, "a name is required", actual="`_`, which binds nothing")
        bound = context.bindings.get(name)
        if bound is not None:
            context.referenced.add(name)
            if bound.kind == "operator":
                raise context.error(
                    place, "a value is required", actual=f"`{name}`, an operator, which can only be built"
                )
            kinds: dict[str, ValueKind] = {
                "tensor": "tensor",
                "rest": "tensors",
                "node": "node",
                "attribute": bound.value,
            }
            return ast.Name(name, place), kinds[bound.kind]
        if name in context.symbols:
            return ast.Name(name, place), "number"
        if name in DTYPES:
            return ast.Name(name, place), "type"
        if name in DTYPE_LISTS:
            return ast.Name(name, place), "list"
        hint = ""
        if isinstance(entry, ScopedLet):
            hint = f"`{name}` is a macro: give it its {len(entry.let.parameters or ())} arguments"
        raise context.unbound(name, place, hint)

    def _member(self, term: ast.Member, frame: Frame) -> tuple[ast.Expr, ValueKind]:
        of, kind = self._tensor(term.of, frame)
        if term.name == "is_present" and isinstance(of, ast.Name | ast.Member):
            return ast.Member(of, term.name, term.place), "truth"
        if kind not in ("tensor", "node", "any"):
            hint = "`xs[0].shape` is that of its first tensor" if kind == "tensors" else ""
            raise self.context.error(
                term.place, f"a tensor or a node is required before `.{term.name}`", actual=PLAIN[kind], hint=hint
            )
        if term.name in FACTS:
            return ast.Member(of, term.name, term.place), FACTS[term.name]
        if kind != "node" or not isinstance(of, ast.Name):
            hint = did_you_mean(term.name, FACTS) or f"a tensor has {', '.join(f'.{f}' for f in FACTS)}"
            if isinstance(of, ast.Name):
                hint += " Only" if hint.endswith("?") else "; only"
                hint += f" a node has attributes, bound as in `{of.name}: Conv(...)`"
            raise self.context.error(term.place, f"a tensor has no `{term.name}`", hint=hint)
        return ast.Member(of, term.name, term.place), self._attribute(of.name, term)

    def _tensor(self, term: ast.Term, frame: Frame) -> tuple[ast.Expr, ValueKind]:
        """The owner of a member: a name, also of a ``let`` or parameter that is an operator."""
        if isinstance(term, ast.Name):
            entry = frame.lookup(term.name)
            if isinstance(entry, Closure | ScopedLet):
                name = self.asked(entry)
                if name is not None:
                    self.context.referenced.add(name)
                    bound = self.context.bindings.get(name)
                    is_node = bound is not None and bound.kind == "node"
                    return ast.Name(name, term.place), "node" if is_node else "tensor"
                if isinstance(entry, Closure):
                    return self._tensor(entry.term, entry.frame)
        return self.typed(term, frame)

    def _attribute(self, node: str, term: ast.Member) -> ValueKind:
        """The kind of a node's attribute."""
        ops = self.context.bindings[node].ops
        if not ops:
            return "any"
        kinds: set[ValueKind] = set()
        for op in ops:
            attributes = known(op).attributes
            if term.name in attributes:
                kinds.add(ATTRIBUTE_KINDS.get(attributes[term.name], "any"))
        if not kinds:
            names = sorted({name for op in ops for name in known(op).attributes})
            which = " or ".join(f"`{op}`" for op in ops[:3])
            raise self.context.error(
                term.place,
                f"{which} has no attribute `{term.name}`",
                hint=did_you_mean(term.name, (*names, *FACTS)) or f"its attributes: {', '.join(names) or 'none'}",
            )
        return kinds.pop() if len(kinds) == 1 else "any"

    def _index(self, term: ast.Index, frame: Frame) -> tuple[ast.Expr, ValueKind]:
        of, kind = self.typed(term.of, frame)
        self.expect(kind, ("list", "value", "tensors"), term.of)
        index = self.build(term.index, frame, ("number",))
        return ast.Index(of, index, term.place), _kind_of_items(of, kind)

    # -- operators
    def _unary(self, term: ast.Unary, frame: Frame) -> tuple[ast.Expr, ValueKind]:
        if term.op == "not":
            return ast.Unary("not", self.build(term.operand, frame, ("truth",)), term.place), "truth"
        operand, kind = self.typed(term.operand, frame)
        self.expect(kind, ("number", "value"), term.operand)
        if isinstance(operand, ast.Number):
            return ast.negated(operand, term.place), "number"
        return ast.Unary("-", operand, term.place), kind

    def _binary(self, term: ast.Binary, frame: Frame) -> tuple[ast.Expr, ValueKind]:
        if term.op in ("and", "or"):
            left, right = (self.build(side, frame, ("truth",)) for side in (term.left, term.right))
            return ast.Binary(term.op, left, right, term.place, term.sign), "truth"
        if term.op == "@":
            raise self.context.error(term.sign, "an expression is required", actual="`@`, a product of tensors")
        left, a = self.typed(term.left, frame)
        right, b = self.typed(term.right, frame)
        lists: tuple[ValueKind, ...] = ("list",) if term.op in ("+", "*") else ()
        self.expect(a, ("number", "value", *lists), term.left)
        self.expect(b, ("number", "value", *lists), term.right)
        fits = {a, b} <= {"number", "value", "any"} or "value" in (a, b) or "any" in (a, b)
        if not fits and not (term.op == "+" and a == b) and not (term.op == "*" and {a, b} == {"number", "list"}):
            raise self.context.error(
                term.sign, f"`{term.op}` must have operands that fit", actual=f"{PLAIN[a]} and {PLAIN[b]}"
            )
        kind: ValueKind = a if a == b else "value" if "value" in (a, b) else "list" if "list" in (a, b) else "any"
        return ast.Binary(term.op, left, right, term.place, term.sign), kind

    def _compare(self, term: ast.Compare, frame: Frame) -> tuple[ast.Expr, ValueKind]:
        first, before = self.typed(term.first, frame)
        self.expect(before, (), term.first)
        rest = []
        previous = term.first
        for op, operand in term.rest:
            expr, kind = self.typed(operand, frame)
            self.expect(kind, (), operand)
            if op in ("in", "not in"):
                collections: tuple[ValueKind, ...] = (
                    ("list", "value", "text") if before == "text" else ("list", "value")
                )
                self.expect(kind, collections, operand)
            else:
                check_comparison(op, (before, previous.place), (kind, operand.place), self.context)
            rest.append((op, expr))
            before, previous = kind, operand
        return ast.Compare(first, tuple(rest), term.place), "truth"

    def _apply(self, term: ast.Apply, frame: Frame) -> tuple[ast.Expr, ValueKind]:
        callee = find_callee(term.callee, frame, self.context)
        if isinstance(callee, ScopedLet):
            with self.context.called(callee, term, frame) as (body, inner):
                return self.typed(body, inner)
        if not isinstance(callee, CalledFunction):
            raise self.context.error(
                term.place,
                "an expression over shapes, types, attributes and small constants is required",
                actual="an operator applied to tensors",
                hint=f"functions: {', '.join(FUNCTIONS)}",
            )
        function = FUNCTIONS[callee.name]
        if len(term.args) < function.least or (function.most is not None and len(term.args) > function.most):
            most = " or more" if function.most is None else f" to {function.most}"
            most = "" if function.most == function.least else most
            raise self.context.error(
                term.place, f"`{callee.name}` takes {function.least}{most} arguments", actual=str(len(term.args))
            )
        args = []
        kinds = []
        for i, arg in enumerate(term.args):
            if isinstance(arg, ast.Keyword | ast.Spread | ast.Rest | ast.Optional):
                raise self.context.error(
                    arg.place, f"the arguments of `{callee.name}` must be expressions by position", actual=_what(arg)
                )
            expr, kind = self._tensor(arg, frame) if callee.name == "const" else self.typed(arg, frame)
            self.expect(kind, function.kinds[min(i, len(function.kinds) - 1)], arg)
            args.append(expr)
            kinds.append(kind)
        result = function.result or kinds[0]
        return ast.Apply(ast.Name(callee.name, term.callee.place), tuple(args), term.place), result

    def _comprehension(self, term: ast.Comprehension, frame: Frame) -> tuple[ast.Expr, ValueKind]:
        source, kind = self.typed(term.source, frame)
        self.expect(kind, ("list", "value", "tensors"), term.source)
        # The variable must not hide a name of the rule that a macro's argument brings inside.
        taken = {*self.context.bindings, *self.context.symbols, *(e.name for e in _locals(frame))}
        name = self.context.fresh(term.variable) if term.variable in taken else term.variable
        counts = isinstance(source, ast.Apply) and source.function == "range"
        inner = frame.define(term.variable, Local(name, "number" if counts else _kind_of_items(source, kind)))
        condition = None if term.condition is None else self.build(term.condition, inner, ("truth",))
        item = self.build(term.item, inner)
        return ast.Comprehension(item, name, source, condition, term.place), "list"


def _kind_of_items(listed: ast.Expr, kind: ValueKind) -> ValueKind:
    if isinstance(listed, ast.Member) and listed.name == "shape":
        return "number"
    return "value" if kind == "value" else "tensor" if kind == "tensors" else "any"


def _locals(frame: Frame) -> list[Local]:
    found: list[Local] = []
    step: Frame | None = frame
    while step is not None:
        if isinstance(step.entry, Local):
            found.append(step.entry)
        step = step.parent
    return found


_WORDS = {
    ast.Optional: "`{0.name}?`, an optional operand",
    ast.Rest: "`{0.name}...`, remaining operands",
    ast.Spread: "`**{0.name}`, attributes",
    ast.Keyword: "`{0.name}=`, a named operand",
    ast.Bind: "`{0.name}:`, a named pattern",
    ast.Alternatives: "`|`, alternatives of a pattern",
}
"""The name for a kind of term that is not an expression."""


def _what(term: ast.Term) -> str:
    return _WORDS.get(type(term), "another form").format(term)
