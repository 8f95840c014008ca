"""Whether a value fits the type that an operator's schema gives to an attribute."""

from __future__ import annotations

from eqsat.rules import ast
from eqsat.rules.facts import Kind
from eqsat.rules.kinds import PLAIN, TENSORS
from eqsat.rules.operators import Signature
from eqsat.rules.scope import Context

_FITS: dict[str, tuple[Kind, ...]] = {
    "INT": ("number", "type", "value", "truth"),
    "FLOAT": ("number", "value"),
    "STRING": ("text",),
    "INTS": ("list", "value"),
    "FLOATS": ("list", "value"),
    "STRINGS": ("list",),
}
_WORDS = {
    "INT": "a whole number",
    "FLOAT": "a number",
    "STRING": "a string",
    "INTS": "a list of whole numbers",
    "FLOATS": "a list of numbers",
    "STRINGS": "a list of strings",
}


def check_attribute(name: str, found: Signature, expr: ast.Expr, kind: Kind, term: ast.Term, context: Context) -> None:
    """Checks the kind of a value, and the value itself where it is written out.

    Raises:
        RuleError: The attribute cannot have this value.
    """
    wanted = found.attributes[name]
    if wanted not in _FITS:
        raise context.error(
            term.place,
            f"the attribute `{name}` of `{found.op}` cannot be written in a rule: it is a {wanted.lower()}",
            hint="bind the node and take over its attributes with `**`",
        )
    fits = kind == "any" or kind in _FITS[wanted]
    if not fits or not _literal_fits(wanted, expr):
        actual = "something else" if kind in TENSORS else PLAIN[kind]
        if isinstance(expr, ast.Literal):
            actual = f'"{expr.value}"' if isinstance(expr.value, str) else str(expr.value)
        raise context.error(
            term.place, f"{_WORDS[wanted]} is required as the attribute `{name}` of `{found.op}`", actual=actual
        )


def _literal_fits(wanted: str, expr: ast.Expr) -> bool:
    """Whether a value that is written out fits; anything computed may."""
    if isinstance(expr, ast.Literal):
        value = expr.value
        match wanted:
            case "INT" | "INTS":
                return isinstance(value, int)
            case "FLOAT" | "FLOATS":
                return isinstance(value, int | float) and not isinstance(value, bool)
            case _:
                return isinstance(value, str)
    if isinstance(expr, ast.Sequence):
        return wanted.endswith("S") and all(_literal_fits(wanted, item) for item in expr.items)
    return True
