"""The report for programs. The schema is documented in ``docs/report.md``; it promises:

keys are never renamed or removed within one ``schema`` number, new ones may appear, numbers are SI units,
and unknown and infinite values are null.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from eqsat.report.breakdown import breakdown
from eqsat.report.gap import explain_gap
from eqsat.report.summary import Summary
from eqsat.text import json_text

SCHEMA = "eqsat-summary-1"


def to_dict(summary: Summary) -> dict[str, Any]:
    """The summary as plain dictionaries, lists, strings and numbers."""
    tree = {"schema": SCHEMA, **plain(summary)}
    tree["speedup"] = plain(summary.speedup)
    tree["breakdown"] = plain(breakdown(summary))
    if summary.quantization is not None:
        for row, point in zip(tree["quantization"]["sweep"], summary.quantization.sweep, strict=True):
            row |= {"gap": point.gap, "proven": point.proven}
    tree["gap_meaning"], tree["advice"] = plain(dataclasses.astuple(explain_gap(summary)))
    for row, kernel in zip(tree["kernels"], summary.kernels, strict=True):
        row |= {"limit": kernel.limit, "attained": plain(kernel.attained)}
    return tree


def to_json(summary: Summary) -> str:
    """The summary as JSON text with a final newline; equal but for the seconds in each run."""
    return json_text(to_dict(summary)) + "\n"


def plain(value: Any) -> Any:
    """Dataclasses, tuples and dictionaries as what JSON knows; numbers that it does not know become None."""
    if dataclasses.is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(v) for v in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value
