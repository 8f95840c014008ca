"""Element types of a rule's values: operands that share a type parameter of a schema agree, and so do both sides.

Unification over sets of allowed types, by clause. Only contradictions are errors: which of the types left it
is, is known when the rule runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eqsat.rules import ast
from eqsat.rules.callee import known
from eqsat.rules.element_types import DTYPES
from eqsat.rules.expand import Clause
from eqsat.rules.scope import Context
from eqsat.schema.types import OpKey

_TENSOR_OF = {name: f"tensor({dtype.name.lower()})" for name, dtype in DTYPES.items()}
_TENSORS = frozenset(_TENSOR_OF.values())
_NUMBERS = _TENSORS - {"tensor(string)", "tensor(bool)"}


@dataclass(eq=False)
class _Type:
    """A type variable: what it may be (None: anything), and where that was said first."""

    allowed: frozenset[str] | None
    place: ast.Place
    parent: _Type | None = None


def check_types(clause: Clause, right: Sequence[ast.Template], context: Context) -> None:
    """Checks one clause of a rule; ``right`` is empty for a composite.

    Raises:
        RuleError: A value would need two types at once.
    """
    checker = _Checker(clause, context)
    roots = [checker.pattern(root) for root in clause.roots]
    for root, template in zip(roots, right, strict=bool(right)):
        built = checker.template(template)
        if built is not None:
            checker.unify(root, built, template.place, "the right side")


class _Checker:
    def __init__(self, clause: Clause, context: Context) -> None:
        self.clause = clause
        self.context = context
        self._by_name: dict[str, _Type] = {}

    def pattern(self, pattern: ast.Pattern | None) -> _Type | None:
        match pattern:
            case ast.Name():
                return self._named(pattern.name, pattern.place)
            case ast.Number():
                return _Type(_NUMBERS, pattern.place)
            case ast.Match():
                result = self._applied(pattern.ops[0], pattern.args, pattern.output, pattern.place, self.pattern)
                if pattern.bind is not None:
                    self.unify(self._named(pattern.bind, pattern.place), result, pattern.place, f"`{pattern.bind}`")
                return result
            case _:
                return None

    def template(self, template: ast.Template | None) -> _Type | None:
        match template:
            case ast.Name():
                return None if template.name in self.clause.absent else self._named(template.name, template.place)
            case ast.Number():
                return _Type(_NUMBERS, template.place)
            case ast.Tensor():
                dtype = template.dtype
                if isinstance(dtype, ast.Name) and dtype.name in DTYPES:
                    return _Type(frozenset((_TENSOR_OF[dtype.name],)), template.place)
                return _Type(_NUMBERS | {"tensor(bool)"}, template.place)
            case ast.Build():
                op = template.op if isinstance(template.op, OpKey) else self.clause.operators[template.op]
                return self._applied(op, template.args, template.output, template.place, self.template)
            case _:
                return None

    def _named(self, name: str, place: ast.Place) -> _Type:
        name = self.clause.aliases.get(name, name)
        return self._by_name.setdefault(name, _Type(None, place))

    def _applied(self, op: OpKey, args: Sequence, output: int, place: ast.Place, visit) -> _Type:
        signature = known(op)
        local: dict[str, _Type] = {}

        def formal(parameter) -> _Type:
            found = local.setdefault(parameter.type_name, _Type(parameter.types or None, place))
            return found if parameter.homogeneous else _Type(parameter.types or None, place)

        for i, arg in enumerate(args):
            given = visit(arg)
            if given is not None:
                parameter = signature.parameter(i)
                self.unify(formal(parameter), given, arg.place, f"operand `{parameter.name}` of `{op}`")
        return formal(signature.outputs[min(output, len(signature.outputs) - 1)])

    def unify(self, a: _Type | None, b: _Type | None, place: ast.Place, what: str) -> None:
        if a is None or b is None:
            return
        a, b = _root(a), _root(b)
        if a is b:
            return
        allowed = a.allowed if b.allowed is None else b.allowed if a.allowed is None else a.allowed & b.allowed
        if allowed is not None and not allowed:
            raise self.context.error(
                place,
                f"{what} must be {_describe(a.allowed)}",
                actual=f"{_describe(b.allowed)} (as at {b.place.line}:{b.place.column})",
            )
        a.allowed, b.parent = allowed, a


def _root(found: _Type) -> _Type:
    while found.parent is not None:
        found = found.parent
    return found


_CLASSES = (
    ("a tensor of strings", frozenset(("tensor(string)",))),
    ("a tensor of truth values", frozenset(("tensor(bool)",))),
    ("a tensor of floats", frozenset(t for t in _TENSORS if "float" in t or "double" in t)),
    ("a tensor of integers", frozenset(t for t in _TENSORS if "int" in t)),
    ("a tensor of numbers", _NUMBERS),
    ("a tensor", _TENSORS),
)


def _describe(allowed: frozenset[str] | None) -> str:
    if allowed is None:
        return "any value"
    if len(allowed) == 1:
        return f"a {next(iter(allowed))}" if allowed != _CLASSES[0][1] else _CLASSES[0][0]
    for words, group in _CLASSES:
        if allowed <= group:
            return words
    if all(t.startswith("seq(") for t in allowed):
        return "a sequence"
    return "one of " + ", ".join(sorted(allowed)[:4]) + (", ..." if len(allowed) > 4 else "")
