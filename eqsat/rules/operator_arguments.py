"""The arguments of an operator: operands by position and name, attributes, ``**c``.

Patterns and templates share this syntax, and interpret operands and attributes in their own ways.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from eqsat.errors import EqsatError
from eqsat.rules import ast
from eqsat.rules.ast import Place
from eqsat.rules.scope import Context
from eqsat.rules.signatures import Signature, find_operator
from eqsat.rules.signatures import signature as signature_of
from eqsat.schema.opset import did_you_mean


@dataclass
class Arguments:
    """The arguments of one operator.

    Attributes:
        operands: Terms by position; the last one may be ``xs...``.
        attributes: ``name=value`` with the name of an attribute.
    """

    operands: dict[int, ast.Term] = field(default_factory=dict)
    attributes: list[ast.Keyword] = field(default_factory=list)
    spreads: list[ast.Spread] = field(default_factory=list)

    @property
    def positions(self) -> range:
        """Positions up to the last operand given; one between may be left out."""
        return range(max(self.operands, default=-1) + 1)


def read_arguments(term: ast.Apply, signatures: Sequence[Signature], context: Context) -> Arguments:
    """Sorts the arguments of an operator, or of several alternative operators.

    Raises:
        RuleError: They do not fit the operators.
    """
    found = Arguments()
    by_position = [a for a in term.args if not isinstance(a, ast.Keyword | ast.Spread)]
    position = 0
    for arg in term.args:
        if isinstance(arg, ast.Spread):
            found.spreads.append(arg)
        elif isinstance(arg, ast.Keyword):
            _by_name(arg, signatures, found, context)
        else:
            if len(found.operands) != position:
                raise context.error(arg.place, "operands by position must come before those by name")
            rest = as_rest(arg)
            if rest is not None:
                _check_rest(rest, signatures, context, last=arg is by_position[-1])
            found.operands[position] = arg
            position += 1
    for signature in signatures:
        _check_operands(found, signature, term.place, context)
    return found


def as_rest(term: ast.Term) -> ast.Rest | None:
    """``xs`` of ``xs...`` and of ``Abs(xs...)``, which applies a unary operator to each of them."""
    if isinstance(term, ast.Rest):
        return term
    if not isinstance(term, ast.Apply) or len(term.args) != 1 or not isinstance(term.callee, ast.Name):
        return None
    inner, op = term.args[0], find_operator(term.callee.name)
    found = None if op is None else signature_of(op)
    return inner if isinstance(inner, ast.Rest) and found is not None and not found.variadic else None


def _by_name(arg: ast.Keyword, signatures: Sequence[Signature], found: Arguments, context: Context) -> None:
    for signature in signatures:
        check_keyword(arg, signature, context)
    places = {f.position(arg.name) if arg.name not in f.attributes else None for f in signatures}
    if len(places) != 1:
        raise context.error(arg.place, f"`{arg.name}` must mean the same for all alternative operators")
    place = places.pop()
    if place in found.operands or any(arg.name == a.name for a in found.attributes):
        raise context.error(arg.place, f"`{arg.name}` must be given once")
    if place is None:
        found.attributes.append(arg)
    elif isinstance(arg.value, ast.Rest):
        raise context.error(arg.value.place, f"`{arg.value.name}...` must be given by position")
    else:
        found.operands[place] = arg.value


def _check_rest(arg: ast.Rest, signatures: Sequence[Signature], context: Context, *, last: bool) -> None:
    for signature in signatures:
        if not signature.variadic:
            raise context.error(
                arg.place,
                f"`{arg.name}...` must be given to an operator that takes any number of operands",
                actual=f"`{signature}`",
            )
    if not last:
        raise context.error(arg.place, f"`{arg.name}...` must be the last operand")


def _check_operands(found: Arguments, signature: Signature, place: Place, context: Context) -> None:
    """Refuses too many operands, and missing operands."""
    operands, most = found.operands, signature.most_inputs
    count = len(operands)
    if most is not None and len(found.positions) > most:
        raise context.error(place, f"`{signature}` takes at most {_plural(most)}", actual=str(count))
    for i, formal in enumerate(signature.inputs):
        if not formal.optional and not formal.variadic and i not in operands:
            raise context.error(place, f"`{signature}` needs its operand `{formal.name}`", actual=_plural(count))
    if signature.variadic:
        rest = any(as_rest(operand) is not None for operand in operands.values())
        if not rest and count < signature.least_inputs:
            raise context.error(
                place, f"`{signature}` takes at least {_plural(signature.least_inputs)}", actual=str(count)
            )
        if count != len(found.positions):
            raise context.error(place, f"`{signature}` must have all its operands")


def _plural(count: int) -> str:
    return f"{count or 'no'} operand{'' if count == 1 else 's'}"


def check_keyword(arg: ast.Keyword, signature: Signature, context: Context) -> None:
    """Raises an error: the operator has neither an operand nor an attribute of this name."""
    if signature.position(arg.name) is None and arg.name not in signature.attributes:
        raise _unknown(arg, signature, context)


def _unknown(arg: ast.Keyword, signature: Signature, context: Context) -> EqsatError:
    inputs = [p.name for p in signature.inputs]
    hint = did_you_mean(arg.name, (*signature.attributes, *inputs))
    if not hint:
        attributes = ", ".join(signature.attributes) or "none"
        hint = f"its attributes: {attributes}; its operands: {', '.join(inputs) or 'none'}"
    return context.error(arg.place, f"`{signature.op}` has no attribute or operand `{arg.name}`", hint=hint)


def output_index(term: ast.Index, signatures: Sequence[Signature], context: Context) -> int:
    """The output that ``Split(x)[1]`` picks.

    Raises:
        RuleError: There is no output of this number.
    """
    index = term.index
    if not isinstance(index, ast.Number) or not isinstance(index.value, int):
        raise context.error(index.place, "the number of an output is required, counted from 0")
    check_output(index.value, signatures, index.place, context)
    return index.value


def check_output(index: int, signatures: Sequence[Signature], place: Place, context: Context) -> None:
    """Raises: RuleError: An operator has no output of this number."""
    for signature in signatures:
        if not signature.variadic_outputs and index >= len(signature.outputs):
            names = ", ".join(f"{i} ({p.name})" for i, p in enumerate(signature.outputs))
            raise context.error(place, f"an output of `{signature.op}` is required: {names}", actual=str(index))
