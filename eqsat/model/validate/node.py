"""The check of one node against the schema of its operator, at the opset that the model declares."""

from __future__ import annotations

from functools import cache

import onnx
import onnx_ir as ir
from onnx import AttributeProto, defs

from eqsat.errors import ModelError
from eqsat.model.validate.fatal import LEAST, require_least
from eqsat.model.validate.tensor_data import check_strings
from eqsat.schema import opset
from eqsat.schema.opset import did_you_mean
from eqsat.schema.types import OpKey

_OLDEST = {OpKey("", "Scan"): 9}
"""First opset of operators whose older form ``onnx.version_converter`` treats like the present one: until opset 8 a
Scan has a batch dimension and lengths of sequences.
"""

_Kinds = dict[str, AttributeProto.AttributeType.ValueType]


def check_node(node: onnx.NodeProto, version: int, place: str) -> None:
    """Checks operator, attributes, and number of inputs and outputs.

    Args:
        node: Of a domain that eqsat knows.
        version: The model's opset of that domain.
        place: For messages.

    Raises:
        ModelError: The first mistake.
    """
    key = OpKey(node.domain, node.op_type)
    schema = _schema(key, version)
    if schema is None:
        raise _unknown(key, version, place)
    kinds, required = _attributes(key, version)
    op = node.op_type
    if key in _OLDEST and version < _OLDEST[key]:
        raise ModelError(
            f"{op} of opset {_OLDEST[key]} or newer is required",
            place=place,
            actual=f"opset {version}, where it has another meaning",
            hint="export the model with a newer opset",
        )
    for attribute in node.attribute:
        if attribute.name not in kinds:
            hint = did_you_mean(attribute.name, kinds) or f"its attributes: {', '.join(kinds) or 'none'}"
            raise ModelError(f"an attribute of {op} is required", place=place, actual=f"`{attribute.name}`", hint=hint)
        if attribute.type != kinds[attribute.name] and attribute.type:
            wanted = AttributeProto.AttributeType.Name(kinds[attribute.name])
            actual = AttributeProto.AttributeType.Name(attribute.type)
            raise ModelError(f"attribute `{attribute.name}` of type {wanted} is required", place=place, actual=actual)
        if attribute.name == "to" and not attribute.ref_attr_name and not _is_type(attribute.i):
            actual = f"number {attribute.i}"
            raise ModelError("an element type that ONNX knows is required in `to`", place=place, actual=actual)
    require_least(node.attribute, LEAST.get(key, {}), place)
    if op == "Constant" and not node.domain and len(node.attribute) != 1:
        names = ", ".join(f"`{a.name}`" for a in node.attribute) or "none"
        raise ModelError("one attribute with the value of a Constant is required", place=place, actual=names)
    given = {a.name for a in node.attribute}
    for name in required:
        if name not in given:
            raise ModelError("every required attribute must be given", place=place, actual=f"no `{name}`")
    least, most, least_out, most_out = _arity(key, version)
    if not least <= len(node.input) <= most:
        raise ModelError(_count(least, most, "input", op), place=place, actual=str(len(node.input)))
    if not least_out <= len(node.output) <= most_out:
        raise ModelError(_count(least_out, most_out, "output", op), place=place, actual=str(len(node.output)))
    if "" in node.input:
        formal = schema.inputs
        for name, parameter in zip(node.input, formal, strict=False):
            if not name and parameter.option == defs.OpSchema.FormalParameterOption.Single:
                raise ModelError(f"input `{parameter.name}` of {op} is required", place=place, actual="an empty name")


def _is_type(number: int) -> bool:
    return number in set(map(int, ir.DataType)) - {int(ir.DataType.UNDEFINED)}


def check_call(node: onnx.NodeProto, function: onnx.FunctionProto, place: str) -> None:
    """Checks a call of a model-local function.

    Raises:
        ModelError: It has more inputs or outputs than the function.
    """
    for given, declared, what in ((node.input, function.input, "inputs"), (node.output, function.output, "outputs")):
        if len(given) > len(declared):
            requirement = f"at most {len(declared)} {what} of {function.domain}.{function.name} are required"
            raise ModelError(requirement, place=place, actual=str(len(given)))


def check_text(node: onnx.NodeProto, place: str) -> None:
    """Checks that everything written in a node is UTF-8; protobuf returns bytes otherwise.

    Raises:
        ModelError: A name or a string attribute is not.
    """
    names = [node.name, node.op_type, node.domain, node.overload, *node.input, *node.output]
    for attribute in node.attribute:
        names += [attribute.name, attribute.ref_attr_name]
        for content in (attribute.s, *attribute.strings):
            try:
                content.decode()
            except UnicodeDecodeError:
                require_text(content, f"{place}, attribute {attribute.name!r}")
        for tensor in (attribute.t, *attribute.tensors):
            check_strings(tensor, f"{place}, attribute {attribute.name!r}")
    for name in names:
        require_text(name, place)


def require_text(name: object, place: str) -> None:
    """Checks one name.

    Raises:
        ModelError: It is not UTF-8.
    """
    if not isinstance(name, str):
        raise ModelError("names and strings in UTF-8 are required", place=place, actual=repr(name))


def _unknown(op: OpKey, version: int, place: str) -> ModelError:
    if op.domain or op.name not in _all_names():
        return opset.unknown_operator(op, place=place)
    first = min(v for v in range(1, defs.onnx_opset_version() + 1) if _schema(op, v) is not None)
    hint = f"it exists since opset {first}" if first > version else f"it was removed before opset {version}"
    requirement = f"an operator of opset {version} of ONNX is required"
    return ModelError(requirement, place=place, actual=f"`{op}`", hint=hint)


def _count(least: int, most: int, what: str, op: str) -> str:
    number = f"{least}" if least == most else f"at least {least}" if most > 1000 else f"{least} to {most}"
    return f"{number} {what} of {op} is required" if most == 1 else f"{number} {what}s of {op} are required"


@cache
def _schema(op: OpKey, version: int) -> defs.OpSchema | None:
    if op.domain == opset.MICROSOFT:
        return opset.find_schema(op)
    try:
        found = defs.get_schema(op.name, version, op.domain)
    except defs.SchemaError:
        return None
    return None if found.deprecated else found


@cache
def _all_names() -> frozenset[str]:
    return frozenset(s.name for s in defs.get_all_schemas_with_history() if not s.domain)


@cache
def _attributes(op: OpKey, version: int) -> tuple[_Kinds, list[str]]:
    """Types of the attributes, and the names of the required ones; reading the schema is slow."""
    schema = _schema(op, version)
    assert schema is not None
    kinds: _Kinds = {
        name: AttributeProto.AttributeType.Value(str(a.type).rpartition(".")[2])
        for name, a in sorted(schema.attributes.items())
    }
    return kinds, sorted(name for name, a in schema.attributes.items() if a.required)


@cache
def _arity(op: OpKey, version: int) -> tuple[int, int, int, int]:
    schema = _schema(op, version)
    assert schema is not None
    return schema.min_input, schema.max_input, schema.min_output, schema.max_output
