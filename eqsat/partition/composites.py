"""Composites as shared model-local functions: one function for all calls that differ in attributes only.

The definition of a composite consists of operators. All 53 convolutions of a ResNet are one ``conv_relu`` with
different strides and pads, so the function declares these as its own attributes, its nodes refer to them, and each call
gives the values. Two definitions of a composite that differ in more than attributes, say with and without a bias, are
two functions; each is then named after its operators.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

import onnx_ir as ir

from eqsat.errors import OptimizationError
from eqsat.model.unused_names import Namer
from eqsat.model.write.concise import without_unit_dilations
from eqsat.ops.operators import has, operator
from eqsat.ops.own_operators import ANNOTATIONS
from eqsat.ops.traits import Trait
from eqsat.partition.calls import is_function
from eqsat.partition.function_bodies import body_function, word
from eqsat.partition.onnx_nodes import composite_domain, has_subgraphs
from eqsat.schema.attributes import PARAMETERS, from_attrs
from eqsat.schema.body import Body, BodyNode
from eqsat.schema.metadata import COMPOSITE, OPERANDS, TARGET
from eqsat.schema.types import CONSTANT, OpKey

_Skeleton = tuple[object, ...]


@dataclass(frozen=True)
class CompositeCall:
    """How to call a composite's function.

    Attributes:
        op: The function.
        attributes: The values of the function's own attributes in this call.
        operands: Which operands of the composite are passed on; absent ones are not.
    """

    op: OpKey
    attributes: tuple[ir.Attr, ...]
    operands: tuple[int, ...]


@dataclass(frozen=True)
class _Definition:
    """A body with its absent operands resolved, and with its attributes separate from the part that all calls share."""

    skeleton: _Skeleton
    body: Body
    operands: tuple[int, ...]
    attributes: tuple[tuple[ir.Attr, ...], ...]


class Composites:
    """The functions of all composites of a program.

    Args:
        uses: Target, composite name, body and presence of each operand, of all calls that will be asked for;
            names of functions depend on all of them but not on their order.
    """

    def __init__(self, uses: Iterable[tuple[str, str, Body, tuple[bool, ...]]]) -> None:
        self._defined: dict[tuple[Body, tuple[bool, ...]], _Definition] = {}
        families: dict[tuple[str, str], dict[_Skeleton, _Definition]] = {}
        for target, name, body, present in uses:
            definition = self._define(body, present)
            families.setdefault((target, name), {}).setdefault(definition.skeleton, definition)
        self._names: dict[tuple[str, str, _Skeleton], OpKey] = {}
        self._parameters: dict[_Skeleton, tuple[tuple[str | None, ...], ...]] = {}
        self.functions: list[ir.Function] = []
        namers: dict[str, Namer] = {}
        # A composite with one definition keeps the name of the target file, whatever the names of others are.
        for (target, name), variants in sorted(families.items(), key=lambda item: (len(item[1]) > 1, item[0])):
            namer = namers.setdefault(target, Namer())
            for skeleton, definition in sorted(variants.items(), key=lambda item: repr(item[0])):
                op = OpKey(
                    composite_domain(target),
                    namer.keep(name if len(variants) == 1 else operators_name(definition.body)),
                )
                self._names[target, name, skeleton] = op
                self.functions.append(self._function(op, target, name, definition))

    def call(self, target: str, name: str, body: Body, present: tuple[bool, ...]) -> CompositeCall:
        """The function and the attributes for one use of a composite."""
        definition = self._define(body, present)
        parameters = self._parameters[definition.skeleton]
        attributes = [
            ir.Attr(parameter, attribute.type, attribute.value)
            for names, node in zip(parameters, definition.attributes, strict=True)
            for parameter, attribute in zip(names, node, strict=True)
            if parameter is not None
        ]
        return CompositeCall(self._names[target, name, definition.skeleton], tuple(attributes), definition.operands)

    def _define(self, body: Body, present: tuple[bool, ...]) -> _Definition:
        key = (body, present)
        if key not in self._defined:
            self._defined[key] = _definition(body, present)
        return self._defined[key]

    def _function(self, op: OpKey, target: str, name: str, definition: _Definition) -> ir.Function:
        parameters = self._parameters.setdefault(definition.skeleton, _parameter_names(definition))
        function = body_function(op, definition.body, definition.attributes, parameters)
        function.metadata_props.update(
            {TARGET: target, COMPOSITE: name, OPERANDS: ",".join(str(i) for i in definition.operands)}
        )
        return function


def operators_name(body: Body) -> str:
    """A name after the operators of a body: ``conv_bias_relu``."""
    words = []
    for node in body.nodes:
        if node.op == ("", "Constant") or node.op in ANNOTATIONS:
            continue
        words.append(word(node.op))
        at = operator(node.op).bias
        if at is not None and at < len(node.inputs) and node.inputs[at] is not None:
            words.append("bias")
    return "_".join(words) or "identity"


def _definition(body: Body, present: tuple[bool, ...]) -> _Definition:
    if len(present) != body.inputs:
        raise OptimizationError(
            "a composite must be called with all the operands of its definition",
            place=operators_name(body),
            actual=f"{len(present)} instead of {body.inputs}",
        )
    if any(has_subgraphs(node.attrs) for node in body.nodes):
        raise OptimizationError("a composite must not contain control flow", place=operators_name(body))
    operands = tuple(i for i in range(body.inputs) if present[i])
    number: dict[int, int] = {old: new for new, old in enumerate(operands)}
    defined = sum(node.outputs for node in body.nodes)
    number.update({body.inputs + i: len(operands) + i for i in range(defined)})
    nodes = tuple(
        BodyNode(
            n.op,
            without_unit_dilations(n.op, n.attrs),
            tuple(None if v is None else number.get(v) for v in n.inputs),
            n.outputs,
        )
        for n in body.nodes
    )
    resolved = Body(len(operands), nodes, tuple(number[v] for v in body.results))
    attributes = tuple(tuple(from_attrs(node.attrs, node.op)) for node in nodes)
    shape = tuple(
        (node.op, node.inputs, node.outputs, tuple(_shared_part(node.op, a) for a in own))
        for node, own in zip(nodes, attributes, strict=True)
    )
    return _Definition((resolved.inputs, shape, resolved.results), resolved, operands, attributes)


def _is_parameter(op: OpKey, attribute: ir.Attr) -> bool:
    """Whether calls may differ in the attribute; constants and attributes of eqsat's functions are fixed."""
    fixed = op == CONSTANT or has(op, Trait.OWN_ATTRIBUTES)
    return attribute.type in PARAMETERS and not fixed and not is_function(op)


def _shared_part(op: OpKey, attribute: ir.Attr) -> tuple[str, str, str]:
    if _is_parameter(op, attribute):
        return attribute.name, attribute.type.name, ""
    content = ir.to_proto(attribute).SerializeToString(deterministic=True)
    return attribute.name, attribute.type.name, hashlib.sha256(content).hexdigest()


def _parameter_names(definition: _Definition) -> tuple[tuple[str | None, ...], ...]:
    """The function's attribute for each attribute of its nodes: its own name if that is free, otherwise the operator's
    name and its own.
    """
    namer = Namer()
    names = []
    for node, attributes in zip(definition.body.nodes, definition.attributes, strict=True):
        own: list[str | None] = []
        for attribute in attributes:
            if not _is_parameter(node.op, attribute):
                own.append(None)
            elif attribute.name not in namer.taken:
                own.append(namer.keep(attribute.name))
            else:
                own.append(namer.keep(f"{word(node.op)}_{attribute.name}"))
        names.append(tuple(own))
    return tuple(names)
