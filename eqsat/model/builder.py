"""Builds graphs by hand: inputs, operators as Python functions, and the graph of their results.

x = eqsat.input("x", ("N", 3, 32, 32))
y = eqsat.op.Relu(eqsat.op.Conv(x, w, pads=[1, 1, 1, 1]))
model = eqsat.graph(y)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from inspect import Signature
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.errors import ModelError
from eqsat.model.construction.apply import apply
from eqsat.model.construction.interface import documentation, signature
from eqsat.model.construction.operands import constant
from eqsat.model.construction.writer import Named, write_model
from eqsat.model.default_operators import DefaultOperators
from eqsat.model.expression import Tensor
from eqsat.model.load import finish
from eqsat.schema import opset
from eqsat.schema.declared_operators import find_declared, find_function, functions
from eqsat.schema.dtypes import DTypeLike, to_dtype
from eqsat.schema.types import Dim, OpKey, TensorType

__all__ = ["Operators", "Tensor", "constant", "graph", "input", "op"]


def input(name: str, shape: Sequence[Dim] | None, dtype: DTypeLike = "float32") -> Tensor:
    """An input of a graph.

    Args:
        name: Its name.
        shape: Dimensions: numbers, symbols such as ``"N"``, or None for an unknown one.
        dtype: Element type.

    Raises:
        ModelError: The name, shape or element type is invalid.

    Examples:
        >>> import eqsat
        >>> eqsat.input("x", ("N", 3), dtype="int8")
        <eqsat input 'x' int8[N, 3]>
    """
    place = f"input {name!r}"
    if not isinstance(name, str) or not name:
        raise ModelError("a name is required", place="input", actual=repr(name))
    if isinstance(shape, (int, str)):
        raise ModelError("a sequence of dimensions is required", place=place, actual=repr(shape), hint=f"({shape},)")
    dims = None if shape is None else tuple(shape)
    for d in dims or ():
        valid = d is None or (isinstance(d, str) and d) or (isinstance(d, int | np.integer) and d >= 0)
        if not valid or isinstance(d, bool):
            raise ModelError("dimensions that are sizes, symbols or None are required", place=place, actual=repr(d))
    plain = None if dims is None else tuple(int(d) if isinstance(d, np.integer) else d for d in dims)
    return Tensor(TensorType(to_dtype(dtype, place=place), plain), name=name)


class UnknownOperator(ModelError, AttributeError):
    """Raised for an operator that does not exist."""


class Operators:
    """The operators of a domain as functions: ``op.Conv(x, w, strides=[2, 2])``, ``op("com.microsoft").Gelu(x)``.

    Inputs go by position or by the schema's name, attributes by name. Numbers, lists and arrays become constants;
    ``name=`` names the node and its output; ``outputs=`` asks for optional ones. Several outputs are a tuple.
    A subgraph is a Python function of its inputs, which may use any tensor around it:
    ``op.If(c, then_branch=lambda: x + 1, else_branch=lambda: x - 1)``.

    Examples:
        >>> import eqsat
        >>> x = eqsat.input("x", (2, 6))
        >>> left, right = eqsat.op.Split(x, axis=1, num_outputs=2)
        >>> left.shape
        (2, 3)
    """

    def __init__(self, domain: str = "") -> None:
        self._domain = opset.canonical_domain(domain)
        opset.check_domain(self._domain, place=f"op({domain!r})")

    def __call__(self, domain: str) -> Operators:
        """The operators of another domain."""
        return Operators(domain)

    def __dir__(self) -> list[str]:
        own = [o.name for o in functions() if o.domain == (self._domain or opset.EQSAT)]
        return sorted({*opset.operator_names(self._domain), *own})

    def __repr__(self) -> str:
        return f"<operators of {self._domain or 'ai.onnx'}>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        key = OpKey(self._domain, name)
        if not self._domain and opset.find_schema(key) is None and find_function(OpKey(opset.EQSAT, name)):
            key = OpKey(opset.EQSAT, name)
        known = opset.find_schema(key) is not None or find_declared(key) is not None
        if not known and self._domain in opset.OPSETS:
            error = opset.unknown_operator(key)
            raise UnknownOperator(error.requirement, place=f"op.{name}", actual=error.actual, hint=error.hint)

        def call(*operands: Any, outputs: int | None = None, name: str | None = None, **given: Any) -> Any:
            positional, attributes = _sort_arguments(key, operands, given)
            result = apply(key, positional, attributes, outputs, name)
            return result[0] if len(result) == 1 else result

        call.__name__ = call.__qualname__ = name
        call.__doc__ = f"Operator {key}."
        if opset.find_schema(key) is not None:
            found, call.__doc__ = _interface(key)
            # Shown by `help` and notebooks.
            call.__dict__["__signature__"] = found
        return call


class OnnxOperators(DefaultOperators, Operators):
    """The operators of the default domain, which editors know by name, with their operands and attributes."""


op = OnnxOperators()
"""The operators of the default ONNX domain, and eqsat's own operators, as functions; see :class:`Operators`."""


def graph(
    outputs: Tensor | Iterable[Tensor] | Mapping[str, Tensor],
    *,
    name: str = "graph",
    inputs: Sequence[Tensor] | None = None,
) -> ir.Model:
    """The model that computes the outputs.

    Args:
        outputs: One tensor, several, or several by name.
        name: Of the graph.
        inputs: The inputs in the desired order; by default those that are read, in the order in which they were made.

    Returns:
        A checked model in normal form, as :func:`eqsat.load` returns.

    Raises:
        ModelError: There is no output, two inputs have the same name, or an input is missing in ``inputs``.

    Examples:
        >>> import eqsat
        >>> x, y = eqsat.input("x", (10,)), eqsat.input("y", (10,))
        >>> model = eqsat.graph((x + y) * (x - y))
        >>> [node.op_type for node in model.graph]
        ['Add', 'Sub', 'Mul']
    """
    return finish(write_model(name, _named_outputs(outputs), inputs))


# ---- details -------------------------------------------------------------------------------------


@cache
def _interface(key: OpKey) -> tuple[Signature, str]:
    schema = opset.schema(key)
    return signature(schema), documentation(schema)


def _sort_arguments(key: OpKey, operands: Sequence[Any], given: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Operands by position, with those given by name at their positions, and the attributes."""
    if opset.find_schema(key) is not None:
        names = list(opset.input_names(key))
        kinds = opset.attribute_types(key)
    else:
        function = find_declared(key)
        names, kinds = list(function.inputs) if function is not None else [], {}
    positional = list(operands)
    attributes: dict[str, Any] = {}
    for argument, value in given.items():
        if argument not in names or argument in kinds:
            attributes[argument] = value
            continue
        position = names.index(argument)
        if position < len(operands):
            raise ModelError(f"input `{argument}` may be given once", place=str(key), actual="by position and by name")
        positional += [None] * (position + 1 - len(positional))
        positional[position] = value
    return positional, attributes


def _no_tensor(found: object) -> ModelError:
    return ModelError(
        "tensors as outputs are required",
        place="graph",
        actual=type(found).__name__,
        hint="`eqsat.input` and the operators of `eqsat.op` make them; `op.Identity(array)` makes one of an array",
    )


def _named_outputs(outputs: Tensor | Iterable[Tensor] | Mapping[str, Tensor]) -> list[Named]:
    if isinstance(outputs, Tensor):
        pairs: list[Named] = [(None, outputs)]
    elif isinstance(outputs, Mapping):
        pairs = [(str(name), tensor) for name, tensor in outputs.items()]
    elif isinstance(outputs, Iterable):
        pairs = [(None, o) for o in outputs]
    else:
        raise _no_tensor(outputs)
    if not pairs:
        raise ModelError("at least one output is required", place="graph", actual="none")
    for _, tensor in pairs:
        if not isinstance(tensor, Tensor):
            raise _no_tensor(tensor)
    return pairs
