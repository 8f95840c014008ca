"""Checks that expressions have the right kind: as operands, in comparisons, as attributes of operators."""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.rules import ast
from eqsat.rules.ast import Place
from eqsat.rules.kinds import PLAIN, TENSORS, ValueKind
from eqsat.rules.scope import Context
from eqsat.rules.signatures import Signature

_FITS: dict[str, tuple[ValueKind, ...]] = {
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


def expect(kind: ValueKind, wanted: Sequence[ValueKind], place: Place, context: Context) -> None:
    """Checks a kind.

    Args:
        wanted: Kinds that fit; empty for any but tensors.

    Raises:
        RuleError: The kind is not among those wanted.
    """
    if kind in wanted or (kind == "any" and wanted) or ("any" in wanted and kind not in TENSORS):
        return
    asks_tensor = any(w in TENSORS for w in wanted)
    if kind in TENSORS and not asks_tensor:
        raise context.error(
            place,
            "a value that is known when rules run is required",
            actual=PLAIN[kind],
            hint="ask a tensor for .shape, .rank, .dtype, .size, .value, .is_const or .is_present; its elements are "
            "compared by operators, such as `Less(x, y)`",
        )
    if wanted:
        words = " or ".join(dict.fromkeys(PLAIN[w] for w in wanted if w != "any"))
        needs_truth = "truth" in wanted and kind in ("number", "list", "text")
        hint = "compare it with something, as in `x.rank == 4`" if needs_truth else ""
        if kind == "value" and "number" in wanted:
            hint = "`flat(x.value)` lists the elements of a tensor, `max(x.value)` is the greatest"
        if kind == "text" and "number" in wanted:
            hint = "a number has no quotes"
        raise context.error(place, f"{words} is required", actual=PLAIN[kind], hint=hint)


def check_comparison(op: str, left: tuple[ValueKind, Place], right: tuple[ValueKind, Place], context: Context) -> None:
    """Checks the two sides, each a kind and its place, of ``==`` or an order.

    Raises:
        RuleError: They cannot be compared.
    """
    a, b = left[0], right[0]
    if op in ("==", "!="):
        numeric = ("number", "value", "type")
        fits = a == b or "any" in (a, b) or (a in numeric and b in numeric) or "value" in (a, b)
        if not fits or {a, b} == {"value", "type"}:
            raise context.error(right[1], f"{PLAIN[a]} is required to compare with", actual=PLAIN[b])
        return
    wanted: tuple[ValueKind, ...] = ("number", "value", "list") if "value" in (a, b) else ("number", "value")
    for kind, place in (left, right):
        expect(kind, wanted, place, context)


def check_attribute(
    name: str, found: Signature, expr: ast.Expr, kind: ValueKind, term: ast.Term, context: Context
) -> None:
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
