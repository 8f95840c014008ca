"""The values of all tensors of two models on the same inputs: which ones may be equal, and where the models differ.

Tensors that are equal on random inputs are worth a proof; all others are not (as in the comparison of circuits by
simulation and merging: Kuehlmann and Krohm, DAC 1997). A tensor is identified by a few sums with random signs, so that
no values are stored: rounding changes such a sum little, another value changes it much.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.errors import EqsatError
from eqsat.execute.trace import Trace

InputValues = Mapping[str, Any]

SUMS = 2
"""Sums by tensor and input."""
CLOSE = 1e-3
"""Difference of the sums, relative to the norm of the tensors, up to which they may be equal."""

Sign = tuple[Any, ...]
"""The fingerprint of a tensor on one input: its type and shape, its norm, its sums."""


@dataclass(frozen=True)
class Observed:
    """The tensors of a model on several inputs.

    Attributes:
        signs: For each tensor of the main graph by name, the fingerprints of its values, one per input.
        outputs: The model's outputs by name, for each input.
        failure: Why there are no more inputs; empty if all were run.
    """

    signs: dict[str, list[Sign]]
    outputs: list[dict[str, Any]]
    failure: str = ""


def observe(model: ir.Model, inputs: Sequence[InputValues]) -> Observed:
    """Executes a model, as far as that is possible."""
    signs: dict[str, list[Sign]] = {}
    outputs: list[dict[str, Any]] = []
    weights: dict[int, np.ndarray] = {}
    try:
        trace = Trace(model)
        wanted = set(trace.output_names)
        for arrays in inputs:
            here: dict[str, Any] = {n: trace.constants[n] for n in wanted & trace.constants.keys()}
            seen: dict[str, Sign] = {}

            def see(name: str, value: Any, here: dict[str, Any] = here, seen: dict[str, Sign] = seen) -> None:
                seen[name] = sign_of(value, weights)
                if name in wanted:
                    here[name] = value.copy() if isinstance(value, np.ndarray) else value

            trace.observe(arrays, see)
            outputs.append(here)
            for name, sign in seen.items():
                signs.setdefault(name, []).append(sign)
    except EqsatError as error:
        return Observed(signs, outputs, str(error))
    return Observed(signs, outputs)


def sign_of(value: Any, weights: dict[int, np.ndarray]) -> Sign:
    """The fingerprint of a value.

    Args:
        weights: Of the sums by number of elements; a new number gets its own.
    """
    if not isinstance(value, np.ndarray):
        return ()
    kind = (str(value.dtype), value.shape)
    if value.dtype.kind in "OUS":
        return (*kind, zlib.crc32(repr(value.ravel().tolist()).encode()))
    flat = value.astype(np.complex128 if value.dtype.kind == "c" else np.float64).ravel()
    finite = np.isfinite(flat)
    flat = np.where(finite, flat, 0.0)
    size = flat.size
    if size not in weights:
        weights[size] = np.random.default_rng(size).uniform(0.5, 1.5, (SUMS, size))
    with np.errstate(all="ignore"):
        sums = weights[size] @ flat
    return (*kind, int(size - finite.sum()), float(np.linalg.norm(flat)), *map(complex, sums))


def may_be_equal(left: Sequence[Sign], right: Sequence[Sign], close: float = CLOSE) -> bool:
    """Whether two tensors look the same on all inputs, up to a difference relative to their norm."""
    return len(left) == len(right) and all(_close(a, b, close) for a, b in zip(left, right, strict=True))


def _close(a: Sign, b: Sign, close: float) -> bool:
    if len(a) != len(b) or a[:3] != b[:3] or len(a) < 4:
        return a == b
    reach = close * max(a[3], b[3])
    return all(abs(x - y) <= reach for x, y in zip(a[4:], b[4:], strict=True))
