"""Metadata by which eqsat says in a file what nodes and functions are: names of keys, and of the domains of functions.

``docs/partitioned-model.md`` explains them to readers of such files.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from eqsat.schema.opset import EQSAT

PREFIX = "eqsat."
"""Prefix of all keys."""
TARGET = "eqsat.target"
"""Metadata key: name of the target that runs a node or a function."""
TARGETS = "eqsat.targets"
"""Metadata key of a model: names of the targets that it was optimized for, the host first."""
REGION = "eqsat.region"
"""Metadata key: name of the region, on the nodes of the main graph and on a region's function."""
COMPOSITE = "eqsat.composite"
"""Metadata key: name of the composite, on its calls and its function."""
FUNCTIONS = "eqsat.functions"
"""Metadata key of a model without functions: the nodes and functions that it was made from, packed."""
KERNEL = "eqsat.kernel"
"""Metadata key in a model without functions: name of the call that a node was part of, as a composite."""
CALL = "eqsat.call"
"""Metadata key: C call of a kernel, with ``{0}``, ``{1}``, ... for its operands and ``{result}`` for its result, or
``{result0}``, ``{result1}``, ... of several; on the call of a region's function the C call of the region."""
NAME, INPUTS, OUTPUTS, SIZES = "{name}", "{inputs}", "{outputs}", "{sizes}"
"""Holes of a target file in the C call of a region, filled when the model is made: its name, its operands and results
in the order of the region's function, and the dimensions of these that are not fixed.
"""
TRUSTED_CALL = "eqsat.trusted_call"
"""Key of a node's ``meta``, which is not saved: the same call, known to come from a target file that was read here."""
QUANTIZATION = "quant_parameter_tensor_names"
"""Key of a value's ``meta`` under which onnx_ir keeps its quantization annotation: names of tensors, by their role."""
FAMILY = "eqsat.family"
"""Metadata key: family of kernels of generated code that computes a node."""
NODES = "eqsat.nodes"
"""Metadata key on the call of a composite: names of the nodes of the input that its function's nodes are, as JSON."""
RANGES = "eqsat.ranges"
"""Metadata key of a model: by symbol the sizes for which it was optimized, ``{"N": [1, 10]}`` as JSON."""
VERSION = "eqsat.version"
"""Metadata key of a model: the version of eqsat that wrote it."""
OPERANDS = "eqsat.operands"
"""Metadata key on a composite's function: which operands of the composite its inputs are (absent ones are left out)."""
RULE = "eqsat.rule"
"""Metadata key: name of the rule that made a node."""
COST = "eqsat.cost"
"""Metadata key: seconds that the target needs for a node."""

PARTS_DOMAIN = f"{EQSAT}.quantized"
"""Domain of the functions that a quantized model is cut into: ``prefix``, ``core`` and ``suffix``."""


def is_region(metadata: Mapping[str, str]) -> bool:
    """Whether the metadata is that of a region's function."""
    return REGION in metadata


def targets_of(metadata: Mapping[str, str]) -> tuple[str, ...]:
    """The targets that a model was optimized for, the host first; none of a model that eqsat did not write."""
    return tuple(metadata[TARGETS].split(",")) if TARGETS in metadata else ()


def seconds_of(metadata: Mapping[str, str]) -> float | None:
    """The cost of a node; None without one. It is only reported, so a text that is not a cost is ignored."""
    try:
        cost = float(metadata[COST])
    except (KeyError, ValueError):
        return None
    return cost if 0 <= cost < math.inf else None


def is_own_domain(domain: str) -> bool:
    """Whether eqsat defines the functions of this domain."""
    return domain == EQSAT or domain.startswith(f"{EQSAT}.")
