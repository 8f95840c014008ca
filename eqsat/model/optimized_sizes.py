"""The sizes for which a model was optimized: rules may have used that others do not occur, so others are refused.

A ``Slice`` of the first 10 rows is gone where there are at most 10. The file keeps the ranges that the caller gave, as
metadata; runtimes other than eqsat do not read them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import onnx_ir as ir

from eqsat.errors import ModelError
from eqsat.model.symbols import by_known_names
from eqsat.schema.free_sizes import FreeSize, FreeSizes
from eqsat.schema.metadata import RANGES


def keep_ranges(model: ir.Model, given: Mapping[str, FreeSize], sizes: FreeSizes) -> None:
    """Records in a model the sizes that it was optimized for.

    Args:
        model: Changed in place; its ranges stay unless narrower ones are given.
        given: The caller's sizes and ranges, by symbol.
        sizes: The free sizes of the model.
    """
    named = {name: sizes[name] for name in by_known_names(given, model) if name in sizes}
    limited = {name: size for name, size in named.items() if size.least > 1 or size.most is not None}
    ranges = {name: (size.least, size.most) for name, size in {**optimized_sizes(model), **limited}.items()}
    if ranges:
        model.metadata_props[RANGES] = json.dumps(ranges, sort_keys=True)


def optimized_sizes(model: ir.Model) -> dict[str, FreeSize]:
    """The sizes that a model was optimized for, by symbol; empty if it is valid for all sizes."""
    text = model.metadata_props.get(RANGES)
    if text is None:
        return {}
    try:
        found = json.loads(text)
        ranges = {str(name): FreeSize(int(a), None if b is None else int(b), 0) for name, (a, b) in found.items()}
    except (ValueError, TypeError, AttributeError):
        return {}  # A file may say anything.
    return by_known_names(ranges, model)


def require_optimized(model: ir.Model, name: str, size: FreeSize, place: str = "") -> None:
    """Refuses sizes for which a model was not optimized.

    Args:
        model: The loaded model.
        name: A symbol.
        size: Its wanted range; a single number is a range of one.
        place: The file, for messages.

    Raises:
        ModelError: They are not within the range that the model has.
    """
    held = optimized_sizes(model).get(name)
    if held is None or (held.nearest(size.least) == size.least and _reaches(held, size.most)):
        return
    raise ModelError(
        f"a size `{name}` within {held.span} is required, because the model was optimized for it",
        place=place,
        actual=str(size.least) if size.least == size.most else size.span,
        hint="optimize the original model for a wider range",
    )


def _reaches(held: FreeSize, most: int | None) -> bool:
    return held.most is None or (most is not None and most <= held.most)
