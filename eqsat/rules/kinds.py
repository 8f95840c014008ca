"""Kinds of values that expressions have.

Deliberately coarse: mistakes that do not depend on the model are reported when the rule is read; others raise
:class:`~eqsat.rules.known_facts.Unknown` when it runs.
"""

from __future__ import annotations

from typing import Literal

ValueKind = Literal["number", "text", "truth", "list", "type", "value", "any", "tensor", "tensors", "node"]
"""Kind of an expression. ``value`` is the contents of a tensor: a number or an array. ``any`` is not known."""

FACTS: dict[str, ValueKind] = {
    "shape": "list",
    "rank": "number",
    "dtype": "type",
    "size": "number",
    "value": "value",
    "is_const": "truth",
    "is_present": "truth",
    "has_free_term": "truth",
    "has_free_factor": "truth",
    "bound": "number",
}
"""Members of a tensor and the kinds of their values."""
ATTRIBUTE_KINDS: dict[str, ValueKind] = {
    "INT": "number",
    "FLOAT": "number",
    "STRING": "text",
    "INTS": "list",
    "FLOATS": "list",
    "STRINGS": "list",
}
"""Kind of an attribute's value by ONNX's name of its type; types that are not listed are opaque."""
PLAIN: dict[ValueKind, str] = {
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
TENSORS: tuple[ValueKind, ...] = ("tensor", "tensors", "node")
