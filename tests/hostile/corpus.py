"""All cases: importing a file of them registers what it holds."""

from __future__ import annotations

import importlib

from tests.hostile.case import CASES, Case

KINDS = ("sizes", "folding", "loops", "nesting", "tensors", "files", "arguments", "quantizing", "attributes")
"""Files with cases."""

SHORT = (
    "arguments-time_limit_nan",
    "arguments-rules_zero",
    "files-npy_of_2_to_40",
    "optimize-negative_batch_in_a_call_of_another_opset",
    "run-negative_batch_of_an_old_opset",
    "optimize-functions_that_double",
    "optimize-range_of_10_to_12",
    "optimize-two_to_40_squared",
    "run-power_tower",
    "quantize-data_with_nan",
    "quantize-many_samples",
    "run-nested_text",
)
"""What the default tests run; of loops without an end, `tests/test_bounds.py` has one with a lower limit."""


def cases(names: tuple[str, ...] = ()) -> list[Case]:
    """The cases of these names or kinds, all by default."""
    for kind in KINDS:
        importlib.import_module(f"tests.hostile.{kind}")
    return [case for name, case in CASES.items() if not names or any(part in name for part in names)]
