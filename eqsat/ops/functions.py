"""Operators that ONNX lacks, declared as functions with a body of standard operators.

The body is the whole definition: type rule, meaning, MAC count and portable form follow from it, and any ONNX tool
can inline it. A declaration is a name, inputs, attributes with defaults, and a body as a function of the attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from eqsat.model.body import Body
from eqsat.model.types import Attrs, AttrValue, OpKey

FUNCTIONS: dict[OpKey, Function] = {}


@dataclass(frozen=True, slots=True)
class Function:
    """One declared operator.

    Attributes:
        op: Domain and name.
        inputs: Names of the inputs, in order; all are required.
        attributes: Names and default values, sorted by name.
        body: The definition for given attributes (defaults filled in).
        doc: One sentence on what it means.
    """

    op: OpKey
    inputs: tuple[str, ...]
    attributes: Attrs
    body: Callable[[Mapping[str, AttrValue]], Body]
    doc: str


def function_body(op: OpKey, attrs: Attrs = ()) -> Body | None:
    """Definition of an operator of ours for the given attributes, None for any other operator."""
    found: Any = FUNCTIONS.get(op)
    return None if found is None else found.body({**dict(found.attributes), **dict(attrs)})
