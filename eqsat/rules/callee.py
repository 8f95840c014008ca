"""The meaning of ``name`` in ``name(...)``: an operator or a choice of them, a macro, a function of expressions."""

from __future__ import annotations

from dataclasses import dataclass

from eqsat.errors import EqsatError
from eqsat.ops.sets import operator_sets
from eqsat.rules import ast
from eqsat.rules.ast import Place
from eqsat.rules.builtin_functions import FUNCTIONS
from eqsat.rules.kinds import FACTS
from eqsat.rules.scope import Context, Frame, ScopedLet
from eqsat.rules.signatures import Signature, find_operator, operator_hint, signature
from eqsat.schema.opset import did_you_mean
from eqsat.schema.types import OpKey


@dataclass(frozen=True, slots=True)
class OperatorChoice:
    """One operator, or several with the name that is bound to the one that matches."""

    ops: tuple[OpKey, ...]
    name: str | None = None
    maybe: bool = False


@dataclass(frozen=True, slots=True)
class BoundOperator:
    """An operator that the pattern bound by name, to be built."""

    name: str
    ops: tuple[OpKey, ...]


@dataclass(frozen=True, slots=True)
class CalledFunction:
    name: str


@dataclass(frozen=True, slots=True)
class TensorConstructor:
    """``tensor(value, dtype)``."""


Callee = OperatorChoice | BoundOperator | ScopedLet | CalledFunction | TensorConstructor


SIGNS = {"+": "Add", "-": "Sub", "*": "Mul", "/": "Div", "@": "MatMul"}
"""Operators that are written as signs between tensors."""
_NO_SIGNS = {"**": "Pow(x, y)", "%": "Mod(x, y)", "//": "Floor(x / y)", "and": "And(x, y)", "or": "Or(x, y)"}


def operator_of_sign(term: ast.Binary, context: Context) -> OpKey:
    """The operator of a sign between tensors.

    Raises:
        RuleError: The sign has no operator.
    """
    if term.op not in SIGNS:
        hint = f"write `{_NO_SIGNS[term.op]}`"
        raise context.error(term.sign, "an operator on tensors is required", actual=f"`{term.op}`", hint=hint)
    return OpKey("", SIGNS[term.op])


def forbid_bare_operator(name: str, place: Place, context: Context) -> None:
    """Raises an error if the name is that of an operator, whose operands are missing."""
    if name[:1].isupper() and find_operator(name) is not None:
        requirement, hint = "operands are required after an operator", f"write `{name}(...)`"
        raise context.error(place, requirement, actual=f"`{name}` alone", hint=hint)


def dotted_name(term: ast.Term) -> str | None:
    """``com.microsoft.Gelu`` as text, None for any other term."""
    if isinstance(term, ast.Name):
        return term.name
    if isinstance(term, ast.Member):
        of = dotted_name(term.of)
        return None if of is None else f"{of}.{term.name}"
    return None


def find_callee(term: ast.Term, frame: Frame, context: Context) -> Callee:
    """The meaning of a term that is applied; a definition is a macro.

    Raises:
        RuleError: It is not an operator, macro or function.
    """
    if isinstance(term, ast.Name):
        entry = frame.lookup(term.name)
        if isinstance(entry, ScopedLet):
            return entry if entry.is_macro else OperatorChoice(_of_let(entry, term.place, context))
        bound = context.bindings.get(term.name)
        if bound is not None and bound.kind == "operator":
            return BoundOperator(term.name, bound.ops)
        if term.name in FUNCTIONS:
            return CalledFunction(term.name)
        if term.name == "tensor":
            return TensorConstructor()
        return OperatorChoice(operators(term.name, term.place, context, frame))
    name = dotted_name(term)
    if name is not None:
        return OperatorChoice(operators(name, term.place, context, frame))
    if isinstance(term, ast.Apply) and isinstance(term.callee, ast.Name) and term.callee.name == "maybe":
        if len(term.args) != 1:
            raise context.error(term.place, "one operator is required in maybe(...)", actual=str(len(term.args)))
        ops, name = _choice(term.args[0], frame, context)
        return OperatorChoice(ops, name, maybe=True)
    ops, name = _choice(term, frame, context)
    return OperatorChoice(ops, name)


def _choice(term: ast.Term, frame: Frame, context: Context) -> tuple[tuple[OpKey, ...], str | None]:
    name = None
    if isinstance(term, ast.Bind):
        name, term = term.name, term.value
    options = term.options if isinstance(term, ast.Alternatives) else (term,)
    ops: list[OpKey] = []
    for option in options:
        text = dotted_name(option)
        if text is None:
            raise context.error(
                option.place,
                "the name of an operator is required before `(`",
                hint="`(op: Add | Mul)(x, y)` chooses between operators, `Add(x, y) | Mul(x, y)` between patterns",
            )
        ops += [op for op in operators(text, option.place, context, frame) if op not in ops]
    return tuple(ops), name


def _of_let(entry: ScopedLet, place: Place, context: Context) -> tuple[OpKey, ...]:
    """The operators that a ``let`` lists: ``let pointwise = Relu | Tanh``."""
    with context.expanding(entry, place):
        body = entry.let.body
        options = body.options if isinstance(body, ast.Alternatives) else (body,)
        if not all(_is_operator_name(option, entry.frame) for option in options):
            raise context.error(
                place,
                "an operator or a macro is required",
                actual=f"`{entry.name}`, a `let` without parameters",
                hint="a `let` that lists operators, `let pointwise = Relu | Tanh`, may stand there too",
            )
        ops, _ = _choice(body, entry.frame, context)
    return ops


def _is_operator_name(term: ast.Term, frame: Frame) -> bool:
    text = dotted_name(term)
    if text is None:
        return False
    return text in operator_sets() or find_operator(text) is not None or isinstance(frame.lookup(text), ScopedLet)


def operators(name: str, place: Place, context: Context, frame: Frame | None = None) -> tuple[OpKey, ...]:
    """The operators that a name denotes: those of a ``let`` or a named set, or the one operator of the name.

    Raises:
        RuleError: There is no such operator; the hint names similar ones.
    """
    entry = frame.lookup(name) if frame is not None else None
    if isinstance(entry, ScopedLet) and not entry.is_macro:
        return _of_let(entry, place, context)
    named = operator_sets().get(name)
    return (operator(name, place, context, frame),) if named is None else named.operators


def operator(name: str, place: Place, context: Context, frame: Frame | None = None) -> OpKey:
    """The operator of a name.

    Raises:
        RuleError: There is no such operator; the hint names similar ones.
    """
    found = find_operator(name)
    if found is None:
        raise _unknown(name, place, context, frame)
    return found


def _unknown(name: str, place: Place, context: Context, frame: Frame | None) -> EqsatError:
    macros = list(frame.names()) if frame is not None else []
    words = [n for n in (*macros, *FUNCTIONS, *operator_sets(), "tensor") if n[:1].islower() and "." not in n]
    hint = did_you_mean(name, words) if name[:1].islower() else ""
    if name in FACTS:
        hint = f"write a fact of a tensor after a dot: `x.{name}`"
    usual = operator_hint(name)
    if usual == f"did you mean `{name[:1].upper()}{name[1:]}`?":
        hint = usual  # An operator but for the first letter is meant rather than a function of a similar name.
    if "." in name and not usual.startswith("did you mean"):
        # Spellings of other frameworks: nn.ReLU, tf.nn.softmax.
        near = operator_hint(name.rpartition(".")[2])
        usual = f"{near} Otherwise, {usual}" if near.startswith("did you mean") else usual
    hint = hint or usual or "operators are those of ONNX, `com.microsoft.` and eqsat, by name"
    return context.error(place, f"there is no operator `{name}`", hint=hint)


def known(op: OpKey) -> Signature:
    """The signature of an operator that is known to exist."""
    found = signature(op)
    assert found is not None
    return found
