"""Compares two sides as strictly as a rule's numerics class claims.

``exact``: equal to the bit, the sign of zero included. ``real``: equal over the reals, which float64 shows to some 1e-9
relative to the largest number on the way; in narrower floats the same program is judged in float64 where it differs by
more than rounding. Integers are equal to the bit in both. ``within N lsb``: integers differ by N at most.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from eqsat.check.instance_data import is_dyadic, literals
from eqsat.execute.difference import Difference, compare_values
from eqsat.rules.ast import Build, Numerics, Rule

FLOAT64 = 1e-9
"""Relative error allowed in float64."""
FLOAT64_OF_DECIMALS = 1e-6
"""Tolerance if a decimal fraction in the rule, or an attribute that it computes, is rounded to float32."""
NARROW = {
    "float32": 1e-4,
    "float16": 2e-2,
    "bfloat16": 1e-1,
    "float8_e4m3fn": 0.5,
    "float8_e4m3fnuz": 0.5,
    "float8_e5m2": 1.0,
    "float8_e5m2fnuz": 1.0,
}
"""Tolerance in less precise floats."""
FOREIGN = frozenset(NARROW) - {"float32", "float16"}


def widened(array: np.ndarray) -> np.ndarray:
    """Floats without a type of numpy as float32, which has all of their values; anything else unchanged."""
    return array.astype(np.float32) if array.dtype.name in FOREIGN else array


def tolerance_of(rule: Rule) -> float:
    """Relative error that float64 may show."""
    computed = any(_has_float_attributes(t) for t in rule.right)
    decimal = any(not is_dyadic(v) for v in literals(rule))
    return FLOAT64_OF_DECIMALS if computed or decimal else FLOAT64


def _has_float_attributes(template: object) -> bool:
    if not isinstance(template, Build):
        return False
    return (bool(template.attrs) and _is_float(template)) or any(map(_has_float_attributes, template.args))


def _is_float(template: Build) -> bool:
    from eqsat.schema.opset import attribute_types, find_schema
    from eqsat.schema.types import OpKey

    if not isinstance(template.op, OpKey) or find_schema(template.op) is None:
        return True
    kinds = attribute_types(template.op)
    return any(kinds[name].name in ("FLOAT", "FLOATS") for name, _ in template.attrs if name in kinds)


def scale_of(values: Iterable[object]) -> float:
    """The largest finite magnitude of the float arrays among values."""
    largest = 0.0
    for value in values:
        for array in value if isinstance(value, tuple) else (value,):
            if isinstance(array, np.ndarray) and array.size and widened(array).dtype.kind == "f":
                wide = np.abs(array.astype(np.float64))
                finite = wide[np.isfinite(wide)]
                largest = max(largest, float(finite.max(initial=0.0)))
    return largest


def judge(numerics: Numerics, left: np.ndarray, right: np.ndarray, rtol: float, scale: float) -> Difference:
    """The difference of two sides, in agreement if the class allows it.

    Args:
        rtol: Relative to ``scale``, for floats of the classes that may round.
    """
    if left.dtype != right.dtype or left.shape != right.shape:
        return compare_values("", left, right, numerics="exact")
    left, right = widened(left), widened(right)
    if left.dtype.kind != "f" and numerics.kind in ("exact", "real"):
        return compare_values("", left, right, numerics="exact")
    if numerics.kind == "exact":
        return compare_values("", left, right, numerics="exact")
    if numerics.kind == "approximate":
        return compare_values("", left, right, atol=math.inf)
    if left.dtype.kind != "f":
        return compare_values("", left, right, atol=float(numerics.lsb))
    # Over the reals, a left side that is undefined allows any right side.
    defined = np.isfinite(left)
    left, right = np.where(defined, left, 0), np.where(defined, right, 0)
    return compare_values("", left, right, atol=rtol * max(scale, 1e-300))
