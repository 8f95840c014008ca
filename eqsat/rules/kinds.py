"""Kinds of values that expressions have, and the checks on them that need no values.

Deliberately coarse: what is wrong whatever the model is, is said when the rule is read; the rest is met by
:class:`~eqsat.rules.facts.Unknown` when it runs.
"""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.rules.ast import Place
from eqsat.rules.facts import Kind
from eqsat.rules.scope import Context

ATTRIBUTE_KINDS: dict[str, Kind] = {
    "INT": "number",
    "FLOAT": "number",
    "STRING": "text",
    "INTS": "list",
    "FLOATS": "list",
    "STRINGS": "list",
}
"""Kind of an attribute's value by what ONNX calls its type; any other is opaque."""
PLAIN: dict[Kind, str] = {
    "number": "a number",
    "text": "a string",
    "truth": "true or false",
    "list": "a list",
    "type": "an element type",
    "value": "the contents of a tensor",
    "tensor": "a tensor",
    "tensors": "a list of tensors",
    "node": "a node",
    "any": "something unknown",
}
TENSORS: tuple[Kind, ...] = ("tensor", "tensors", "node")


def expect(kind: Kind, wanted: Sequence[Kind], place: Place, context: Context) -> None:
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
            hint="ask a tensor for .shape, .rank, .dtype, .size, .value, .is_const or .is_present",
        )
    if wanted:
        words = " or ".join(dict.fromkeys(PLAIN[w] for w in wanted if w != "any"))
        needs_truth = "truth" in wanted and kind in ("number", "list", "text")
        hint = "compare it with something, as in `x.rank == 4`" if needs_truth else ""
        raise context.error(place, f"{words} is required", actual=PLAIN[kind], hint=hint)


def check_comparison(op: str, left: tuple[Kind, Place], right: tuple[Kind, Place], context: Context) -> None:
    """Checks the two sides, each a kind and its place, of ``==`` or an order.

    Raises:
        RuleError: They never compare.
    """
    a, b = left[0], right[0]
    if op in ("==", "!="):
        numeric = ("number", "value", "type")
        fits = a == b or "any" in (a, b) or (a in numeric and b in numeric) or "value" in (a, b)
        if not fits or {a, b} == {"value", "type"}:
            raise context.error(right[1], f"{PLAIN[a]} is required to compare with", actual=PLAIN[b])
        return
    wanted: tuple[Kind, ...] = ("number", "value", "list") if "value" in (a, b) else ("number", "value")
    for kind, place in (left, right):
        expect(kind, wanted, place, context)
