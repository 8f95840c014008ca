"""Schemas by version: models are executed at the opset they declare, not only at the pinned one."""

from __future__ import annotations

from functools import cache

import onnx.defs
import onnx_ir as ir

from eqsat.schema import attributes, opset
from eqsat.schema.types import AttrValue, OpKey


@cache
def schema(op: OpKey, version: int | None = None) -> onnx.defs.OpSchema | None:
    """Schema of an operator in force at ``version`` of its domain, or None if it has none.

    Removed operators (``Upsample``) keep their schema at the versions that had them. The default is the pinned version.
    """
    if version is None or op.domain == opset.MICROSOFT:
        return opset.find_schema(op)
    if not onnx.defs.has(op.name, version, op.domain):
        return None
    return onnx.defs.get_schema(op.name, version, op.domain)


@cache
def since_version(op: OpKey, version: int | None = None) -> int:
    """The version that introduced the semantics in force at ``version``; 1 for operators without a schema."""
    found = schema(op, version)
    return 1 if found is None else found.since_version


@cache
def defaults(op: OpKey, version: int | None = None) -> dict[str, AttrValue]:
    """Default values of the attributes. Do not modify the result."""
    found = schema(op, version)
    if found is None:
        return {}
    protos = {name: a.default_value for name, a in sorted(found.attributes.items())}
    return {name: attributes.plain_value(ir.from_proto(proto)) for name, proto in protos.items() if proto.name}
