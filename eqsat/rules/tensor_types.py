"""Element types of a rule's values: operands that share a type parameter of a schema have one type, and so do both
sides.

Unification over sets of allowed types, by clause. Only contradictions are errors; the actual type is known when the
rule runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from eqsat.errors import EqsatError, RuleError
from eqsat.rules import ast
from eqsat.rules.callee import known
from eqsat.rules.constness import conjuncts
from eqsat.rules.element_types import DTYPE_LISTS, DTYPES
from eqsat.rules.expand import Clause
from eqsat.rules.scope import Context
from eqsat.schema.opset import type_name
from eqsat.schema.types import OpKey

_TENSOR_OF = {name: type_name(dtype) for name, dtype in DTYPES.items()}
_TENSORS = frozenset(_TENSOR_OF.values())
FEW = 2
"""Most types of a result that counts as having few, as for quantized tensors; with more, each pattern leaves out
some.
"""
_STRINGS, _BOOLS = (frozenset((_TENSOR_OF[name],)) for name in ("string", "bool"))
_NUMBERS = _TENSORS - _STRINGS - _BOOLS


@dataclass(eq=False)
class _Type:
    """A type variable: its possible types (None: any), and where they were first restricted."""

    allowed: frozenset[str] | None
    place: ast.Place
    parent: _Type | None = None


def check_types(clause: Clause, right: Sequence[ast.TemplateTerm], context: Context) -> None:
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


def impossible(clauses: Sequence[Clause], conditions: Sequence[ast.Expr]) -> tuple[ast.Place, str] | None:
    """The first condition on an element type that none of the plain patterns can fulfil.

    Returns:
        Its place, and the types there; None if some pattern can have the types that the conditions require.
    """
    required = [pair for condition in conditions for pair in required_types(condition)]
    first: tuple[ast.Place, str] | None = None
    for clause in clauses if required else ():
        checker = _Checker(clause, _Silent())
        try:
            for root in clause.roots:
                checker.pattern(root)
            for term, wanted in required:
                checker.require(term, wanted)
            return None
        except _Impossible as error:
            first = first or (error.at, error.actual)
    return first


def possible_types(
    clause: Clause, right: Sequence[ast.TemplateTerm], conditions: Sequence[ast.Expr]
) -> list[tuple[frozenset[str], frozenset[str]]] | None:
    """The element types that the names of one clause may have where a rule applies.

    Args:
        right: The right side, which has the types of the left side.
        conditions: Further requirements.

    Returns:
        Groups of names that have one type, each with its possible types (``tensor(float)``), by the first name; None if
        no types are possible. ``.0`` means the first root, ``.1`` the second.
    """
    checker = _Checker(clause, _Silent())
    try:
        roots = [checker.pattern(root) for root in clause.roots]
        for root, template in zip(roots, right, strict=True):
            checker.unify(root, checker.template(template), template.place, "the right side")
        for number, root in enumerate(roots):
            if root is not None:
                checker.by_name[f".{number}"] = root
        for term, wanted in (pair for expr in conditions for pair in required_types(expr)):
            checker.require(term, wanted)
    except EqsatError:
        return None
    groups: dict[int, tuple[set[str], frozenset[str]]] = {}
    for name, found in checker.by_name.items():
        kind = _root(found)
        groups.setdefault(id(kind), (set(), _TENSORS if kind.allowed is None else kind.allowed))[0].add(name)
    return sorted(((frozenset(names), allowed) for names, allowed in groups.values()), key=lambda g: min(g[0]))


class _Impossible(RuleError):
    """A condition requires a type that no value of the pattern has."""

    def __init__(self, at: ast.Place, actual: str) -> None:
        super().__init__("a possible element type is required", place=str(at), actual=actual)
        self.at = at


class _Silent:
    """Replaces the errors of a rule that was read before, for which a contradiction only means that a clause never
    applies.
    """

    def error(self, place: ast.Place, requirement: str, *, actual: str = "", hint: str = "") -> EqsatError:
        return RuleError(requirement, place=str(place), actual=actual, hint=hint)


def narrowings(clauses: Sequence[Clause]) -> Iterator[tuple[ast.Place, str]]:
    """Finds operands whose operator has few result types, of which the pattern can take only some.

    The pattern of a ``Relu`` of a ``QLinearConv`` matches, but not the one that its author thinks of first: ONNX has no
    ``Relu`` of ``uint8``.

    Returns:
        Places of operators in the patterns, and the types there.
    """
    seen: set[ast.Place] = set()
    for clause in clauses:
        checker = _Checker(clause, _Silent())
        for root in clause.roots:
            checker.pattern(root)
        for place, text in checker.narrowed:
            if place not in seen:
                seen.add(place)
                yield place, text


def never_held(op: OpKey, conditions: Sequence[ast.Condition]) -> tuple[ast.Place, str] | None:
    """The first condition that requires element types that ONNX does not allow for a plain operator.

    Returns:
        Its place, and the types there; None if there is no such condition.
    """
    signature = known(op)
    formals = {p.name: p for p in (*signature.inputs, *signature.outputs)}
    formals |= {"x": signature.inputs[0]} if signature.inputs else {}
    formals |= {"y": signature.outputs[0]} if signature.outputs else {}
    for name, wanted in (pair for condition in conditions for pair in required_types(condition.expr)):
        had = formals[name.name].types if name.name in formals else frozenset()
        if had and isinstance(wanted, frozenset) and not had & wanted:
            return name.place, f"ONNX has no `{op}` whose `{name.name}` is {_listed(wanted)}"
    return None


def required_types(expr: ast.Expr) -> Iterator[tuple[ast.Name, frozenset[str] | ast.Name]]:
    """Names whose element types a condition restricts, each with the possible types or the name of the same type."""
    for part in conjuncts(expr):
        if isinstance(part, ast.Binary) and part.op == "or":
            yield from _required_by_either(part.left, part.right)
        if not isinstance(part, ast.Compare):
            continue
        terms = [part.first, *(term for _, term in part.rest)]
        for (sign, _), left, right in zip(part.rest, terms, terms[1:], strict=False):
            pairs = ((left, right), (right, left)) if sign == "==" else ((left, right),) if sign == "in" else ()
            for asked, given in pairs:
                if not isinstance(asked, ast.Member) or asked.name != "dtype" or not isinstance(asked.of, ast.Name):
                    continue
                if isinstance(given, ast.Member) and given.name == "dtype" and isinstance(given.of, ast.Name):
                    yield asked.of, given.of
                elif (types := _types_of(given)) is not None:
                    yield asked.of, types


def _required_by_either(left: ast.Expr, right: ast.Expr) -> Iterator[tuple[ast.Name, frozenset[str]]]:
    """Names that both of two alternative conditions restrict: one of the restrictions holds."""
    others = list(required_types(right))
    for name, types in required_types(left):
        for other, more in others:
            if name.name == other.name and isinstance(types, frozenset) and isinstance(more, frozenset):
                yield name, types | more


def _types_of(term: ast.Expr) -> frozenset[str] | None:
    """The element types that a term lists; None if it is not just a list of names."""
    if isinstance(term, ast.Name) and term.name in DTYPES:
        return frozenset((_TENSOR_OF[term.name],))
    if isinstance(term, ast.Name) and term.name in DTYPE_LISTS:
        return frozenset(map(type_name, DTYPE_LISTS[term.name]))
    if isinstance(term, ast.Sequence):
        found = [_types_of(item) for item in term.items]
        known = [types for types in found if types is not None]
        return frozenset().union(*known) if known and len(known) == len(found) else None
    return None


class _Checker:
    def __init__(self, clause: Clause, context: Context | _Silent) -> None:
        self.clause = clause
        self.context = context
        self.by_name: dict[str, _Type] = {}
        self.narrowed: list[tuple[ast.Place, str]] = []

    def pattern(self, pattern: ast.Pattern | None) -> _Type | None:
        match pattern:
            case ast.Name():
                return self._named(pattern.name, pattern.place)
            case ast.Number(value=bool()):
                return _Type(_BOOLS, pattern.place)
            case ast.Number():
                return _Type(_NUMBERS, pattern.place)
            case ast.Match():
                result = self._applied(pattern.ops[0], pattern.args, pattern.output, pattern.place, self.pattern)
                if pattern.bind is not None:
                    self.unify(self._named(pattern.bind, pattern.place), result, pattern.place, f"`{pattern.bind}`")
                return result
            case _:
                return None

    def require(self, name: ast.Name, wanted: frozenset[str] | ast.Name) -> None:
        """A condition on the element type of a name."""
        if name.name in self.clause.absent or (isinstance(wanted, ast.Name) and wanted.name in self.clause.absent):
            return
        given = _root(self._named(name.name, name.place))
        other = self._named(wanted.name, name.place) if isinstance(wanted, ast.Name) else _Type(wanted, name.place)
        allowed, asked = given.allowed, _root(other).allowed
        if allowed is not None and asked is not None and not allowed & asked:
            raise _Impossible(name.place, f"`{name.name}` is never {_listed(asked)}, only {_listed(allowed)}")
        self.unify(given, other, name.place, f"`{name.name}`")

    def template(self, template: ast.TemplateTerm | None) -> _Type | None:
        match template:
            case ast.Name():
                return None if template.name in self.clause.absent else self._named(template.name, template.place)
            case ast.Number():
                return _Type(_NUMBERS, template.place)
            case ast.TensorTerm():
                dtype = template.dtype
                if isinstance(dtype, ast.Name) and dtype.name in DTYPES:
                    return _Type(frozenset((_TENSOR_OF[dtype.name],)), template.place)
                return _Type(_NUMBERS | _BOOLS, template.place)
            case ast.Build():
                op = template.op if isinstance(template.op, OpKey) else self.clause.operators[template.op]
                return self._applied(op, template.args, template.output, template.place, self.template)
            case _:
                return None

    def _named(self, name: str, place: ast.Place) -> _Type:
        name = self.clause.aliases.get(name, name)
        return self.by_name.setdefault(name, _Type(None, place))

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
                if isinstance(arg, ast.Match):
                    self._note(op, frozenset(parameter.types or ()), arg, given)
                self.unify(formal(parameter), given, arg.place, f"operand `{parameter.name}` of `{op}`")
        return formal(signature.outputs[min(output, len(signature.outputs) - 1)])

    def _note(self, op: OpKey, taken: frozenset[str], inner: ast.Match, given: _Type) -> None:
        """Remembers that an operator takes only some of the few types that its operand may have."""
        own = _root(given).allowed or frozenset()
        left = own & taken
        if 0 < len(left) < len(own) <= FEW:
            text = f"ONNX has no `{op}` of {_listed(own - left)}: the pattern matches only where the result of "
            self.narrowed.append((inner.place, f"{text}`{inner.ops[0]}` is {_listed(left)}"))

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
    ("a tensor of strings", _STRINGS),
    ("a tensor of truth values", _BOOLS),
    ("a tensor of floats", frozenset(map(type_name, DTYPE_LISTS["floats"]))),
    ("a tensor of integers", frozenset(map(type_name, DTYPE_LISTS["integers"]))),
    ("a tensor of numbers", _NUMBERS),
    ("a tensor", _TENSORS),
)


def _listed(allowed: frozenset[str]) -> str:
    """Element types as a rule file names them."""
    names = {tensor: name for name, tensor in reversed(_TENSOR_OF.items()) if tensor in allowed}
    return ", ".join(name for name in _TENSOR_OF if name in names.values())


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
