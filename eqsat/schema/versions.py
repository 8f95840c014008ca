"""Changes of ONNX's operators from one opset to the next that affect the meaning of a node.

Most new versions of an operator only accept more: further element types, an attribute whose default is what the
operator did before, an operand that may be absent. A node of the older version then means the same in the newer one,
word for word. Schemas show this, except for what :data:`_CHANGED` lists. Its tables are the standard's history and say
nothing of what operators do today, so they are not facets of operators.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise

import onnx
from onnx import defs

from eqsat.schema import opset
from eqsat.schema.types import OpKey

SOURCE_OPSET = "eqsat.source_opset"
"""Metadata of a model in memory: the opset and the IR version of the file that it was read from."""

_CHANGED = {
    "GroupNormalization": 21,  # scale and bias for each channel, not for each group
    "Min": 8,  # operands broadcast from here on, here and below
    "Max": 8,
    "Mean": 8,
    "Sum": 8,
    "PRelu": 7,
    "Resize": 11,  # the attribute for coordinates has a default that differs from what was done before
    "RoiAlign": 16,  # the same
    "Split": 18,  # without sizes it needs the number of parts
}
"""The opset from which on an operator has today's meaning, where the schemas do not show it."""

_AXES_18 = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "SumSquare")
BECAME_INPUT: dict[str, tuple[str, int]] = {
    **{f"Reduce{name}": ("axes", 18) for name in _AXES_18},
    "ReduceSum": ("axes", 13),
    "Split": ("split", 13),
    "Squeeze": ("axes", 13),
    "Unsqueeze": ("axes", 13),
}
"""Attributes of integers that are the second input since an opset, by operator."""

_Schema = defs.OpSchema
_Option = _Schema.FormalParameterOption


@cache
def history(name: str) -> tuple[_Schema, ...]:
    """All versions of an operator of the default domain up to the pinned opset, the newest first."""
    found = [s for s in _histories().get(name, ()) if s.since_version <= opset.PINNED_OPSET]
    return tuple(sorted(found, key=lambda s: -s.since_version))


@cache
def schema_at(name: str, version: int) -> _Schema | None:
    """The schema of an operator of the default domain at an opset; None if it does not exist or is deprecated."""
    found = next((s for s in history(name) if s.since_version <= version), None)
    return None if found is None or found.deprecated else found


@cache
def means_same_since(op: OpKey) -> int:
    """The opset from which on a node of this operator has the same meaning as at the pinned opset.

    Args:
        op: An operator of the default domain. Other domains keep their version, and the answer is 1.
    """
    if op.domain:
        return 1
    versions = history(op.name)
    if not versions or versions[0].deprecated:
        return opset.PINNED_OPSET + 1
    since = versions[0].since_version
    for newer, older in pairwise(versions):
        if since <= _CHANGED.get(op.name, 0) or older.deprecated or not _accepts_more(newer, older):
            break
        since = older.since_version
    return since


def means_same(op: OpKey, version: int) -> bool:
    """Whether a node of an opset can be taken over into the pinned one word for word.

    A node of a newer opset can if its operator only accepts more there, and it has nothing of
    :func:`added_attributes` but defaults. Its element types are checked later, like those of any node.
    """
    if op.domain or version <= opset.PINNED_OPSET:
        return version >= means_same_since(op)
    versions = _since_pinned(op.name, version)
    if not versions or any(s.deprecated for s in versions):
        return False
    return all(_accepts_more(newer, older) for newer, older in pairwise(versions))


@cache
def added_attributes(op: OpKey, version: int) -> Mapping[str, onnx.AttributeProto]:
    """Attributes that an operator has at a newer opset and not at the pinned one, with their defaults."""
    versions = () if op.domain else _since_pinned(op.name, version)
    if not versions:
        return {}
    return {n: a.default_value for n, a in versions[0].attributes.items() if n not in versions[-1].attributes}


def ir_version_of(imports: Mapping[str, int]) -> int:
    """The least IR version of files with these opsets."""
    entries = [onnx.helper.make_operatorsetid(*entry) for entry in imports.items()]
    return onnx.helper.find_min_ir_version_for(entries, ignore_unknown=True)


def opset_of_ir_version(version: int) -> int:
    """The opset that came with an IR version: every reader of files of that version knows it."""
    versions = {v: ir_version_of({"": v}) for v in range(1, opset.PINNED_OPSET + 1)}
    newest = max(found for found in versions.values() if found <= max(version, versions[1]))
    return min(v for v, found in versions.items() if found == newest)


def _accepts_more(newer: _Schema, older: _Schema) -> bool:
    """Whether a schema accepts all nodes of an older one, with the same defaults for what they leave out."""
    for name, attribute in older.attributes.items():
        now = newer.attributes.get(name)
        if now is None or now.type != attribute.type or (now.required and not attribute.required):
            return False
        if now.default_value != attribute.default_value:
            return False
    if any(a.required for name, a in newer.attributes.items() if name not in older.attributes):
        return False
    return _extend(newer.inputs, older.inputs) and _extend(newer.outputs, older.outputs)


def _extend(newer: Sequence[_Schema.FormalParameter], older: Sequence[_Schema.FormalParameter]) -> bool:
    """Whether formal parameters begin with those of an older version, and the rest may be absent."""
    if len(newer) < len(older):
        return False
    pairs = [(now.option, was.option) for now, was in zip(newer, older, strict=False)]
    if any(now != was and _Option.Variadic in (now, was) for now, was in pairs):
        return False
    if any(now == _Option.Single and was != _Option.Single for now, was in pairs):
        return False
    return all(p.option != _Option.Single for p in newer[len(older) :])


@cache
def _since_pinned(name: str, version: int) -> tuple[_Schema, ...]:
    """The versions of an operator from a newer opset down to the pinned one; empty if the operator is newer than
    that.
    """
    pinned = history(name)[:1]
    newer = [s for s in _histories().get(name, ()) if opset.PINNED_OPSET < s.since_version <= version]
    return (*sorted(newer, key=lambda s: -s.since_version), *pinned) if pinned else ()


@cache
def _histories() -> dict[str, list[_Schema]]:
    found: dict[str, list[_Schema]] = {}
    for schema in defs.get_all_schemas_with_history():
        if not schema.domain:
            found.setdefault(schema.name, []).append(schema)
    return found
