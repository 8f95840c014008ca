"""Whether the parts of a right side exist when an optional part of the pattern is absent.

An absent value means zero: it is neutral in ``+`` and ``-``, and makes a product, a negation, and a quotient with it as
the dividend absent as well. Operators take it where their operand is optional; anywhere else it is a mistake.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from eqsat.errors import EqsatError
from eqsat.rules.ast import Build, Match, Name, TemplateTerm, operands
from eqsat.rules.callee import known
from eqsat.rules.expand import Clause
from eqsat.rules.scope import Context
from eqsat.rules.tree import walk
from eqsat.schema.types import OpKey

NEG = OpKey("", "Neg")


class Remainder(Enum):
    """The rest of an operator after operands are absent."""

    NOTHING = "an absent value"
    LEFT = "the left operand"
    RIGHT = "the right operand"
    NEGATED = "the negated right operand"
    UNDEFINED = "no value: a divisor is absent"


def remainder(op: OpKey, present: Sequence[bool]) -> Remainder | None:
    """The result of an operator with absent operands.

    Args:
        op: The operator.
        present: Whether each operand is there.

    Returns:
        None if all are present, or if absent operands are not defined for the operator.
    """
    if all(present) or op.domain:
        return None
    match op.name, tuple(present):
        case ("Neg", (False,)) | ("Mul", (_, _)) | ("Add" | "Sub", (False, False)) | ("Div", (False, True)):
            return Remainder.NOTHING
        case "Div", (_, False):
            return Remainder.UNDEFINED
        case "Add" | "Sub", (True, False):
            return Remainder.LEFT
        case "Add", (False, True):
            return Remainder.RIGHT
        case "Sub", (False, True):
            return Remainder.NEGATED
    return None


def check_presence(template: TemplateTerm, clause: Clause, context: Context) -> None:
    """Checks a right side for one clause of the left side.

    Raises:
        RuleError: It needs a value that is absent.
    """
    if not _is_present(template, clause, context):
        name = _absent_name(template, clause)
        raise context.error(
            template.place,
            "a right side that has a value whenever the left side matches is required",
            actual=f"nothing where `{name}` is absent",
            hint="write a rule of its own for that case",
        )


def _is_present(template: TemplateTerm, clause: Clause, context: Context) -> bool:
    if isinstance(template, Name):
        return template.name not in clause.absent
    if not isinstance(template, Build):
        return True
    op = template.op
    if isinstance(op, str):
        if op not in clause.operators:
            raise _missing(template, f"the operator `{op}`", op, context)
        op = clause.operators[op]
    for name in template.spread:
        node = clause.aliases.get(name, name)
        if not any(isinstance(part, Match) and part.bind == node for part in walk(clause.roots, operands)):
            raise _missing(template, f"the attributes of `{name}`", name, context)
    there = [a is not None and _is_present(a, clause, context) for a in template.args]
    left = remainder(op, there)
    if left is not None and left != Remainder.UNDEFINED:
        return left != Remainder.NOTHING
    signature = known(op)
    for i, (arg, present) in enumerate(zip(template.args, there, strict=True)):
        if arg is not None and not present and not signature.parameter(i).optional:
            raise context.error(
                arg.place,
                f"`{op}` needs its operand `{signature.parameter(i).name}`",
                actual=f"nothing where `{_absent_name(arg, clause)}` is absent",
                hint="absent values may be added, subtracted, multiplied, and given for optional operands",
            )
    return True


def _missing(template: Build, what: str, name: str, context: Context) -> EqsatError:
    return context.error(
        template.place,
        f"{what} must be bound by every alternative",
        actual=f"an alternative without `{name}`",
        hint="write a rule of its own for that alternative",
    )


def _absent_name(template: TemplateTerm, clause: Clause) -> str:
    names = (part.name for part in walk(template, operands) if isinstance(part, Name))
    return next((name for name in names if name in clause.absent), "")
