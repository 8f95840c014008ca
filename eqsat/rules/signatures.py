"""Operators as the rule language sees them: operands by name and position, attributes by kind, element types.

One view over ONNX's schemas at the pinned opset, ONNX Runtime's ``com.microsoft`` operators, eqsat's own functions and
the operators that users declare.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache

from onnx import defs

import eqsat.ops.own_operators  # noqa: F401
from eqsat.schema import opset
from eqsat.schema.declared_operators import DeclaredOperator, Dtypes, find_declared, functions, result_count
from eqsat.schema.types import OpKey

_Option = defs.OpSchema.FormalParameterOption


@dataclass(frozen=True, slots=True)
class Parameter:
    """A formal operand or result.

    Attributes:
        type_name: The type parameter (``T``), or a concrete type; operands with the same parameter have the same type.
        types: Allowed types, ``tensor(float)`` and so on; empty if any type is allowed.
        homogeneous: For a variadic one, whether all operands have the same type.
    """

    name: str
    optional: bool
    variadic: bool
    type_name: str
    types: frozenset[str]
    homogeneous: bool


@dataclass(frozen=True)
class Signature:
    """The operands and attributes of an operator in patterns and templates.

    Attributes:
        attributes: Kind by name: ``INT``, ``INTS``, ``FLOAT``, ... by ONNX's names.
        required: Attributes without a default that must be given.
        always_present: Attributes that every node has: those with a default and the required ones.
    """

    op: OpKey
    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]
    attributes: dict[str, str]
    required: tuple[str, ...]
    always_present: tuple[str, ...]
    least_inputs: int

    @property
    def variadic(self) -> bool:
        return bool(self.inputs) and self.inputs[-1].variadic

    @property
    def variadic_outputs(self) -> bool:
        return bool(self.outputs) and self.outputs[-1].variadic

    @property
    def most_inputs(self) -> int | None:
        """Greatest number of operands; None if there is no limit."""
        return None if self.variadic else len(self.inputs)

    def parameter(self, index: int) -> Parameter:
        """The formal operand at a position; the variadic one repeats."""
        return self.inputs[min(index, len(self.inputs) - 1)]

    def position(self, name: str) -> int | None:
        """Position of the operand of this name, None if there is none."""
        return next((i for i, p in enumerate(self.inputs) if p.name == name), None)

    def __str__(self) -> str:
        marks = ("?" if p.optional else "..." if p.variadic else "" for p in self.inputs)
        return f"{self.op}({', '.join(p.name + mark for p, mark in zip(self.inputs, marks, strict=True))})"


def signature(op: OpKey) -> Signature | None:
    """The signature of an operator, None if there is no such operator."""
    return _of_schema(op) if (own := find_declared(op)) is None else _of_declared(own)


@cache
def _of_schema(op: OpKey) -> Signature | None:
    schema = opset.find_schema(op)
    if schema is None:
        return None
    return Signature(
        op,
        tuple(_parameter(p) for p in schema.inputs),
        tuple(_parameter(p) for p in schema.outputs),
        {name: str(a.type).rpartition(".")[2] for name, a in sorted(schema.attributes.items())},
        tuple(sorted(name for name, a in schema.attributes.items() if a.required)),
        tuple(sorted(name for name, a in schema.attributes.items() if a.required or a.default_value.name)),
        schema.min_input,
    )


def _parameter(formal: defs.OpSchema.FormalParameter) -> Parameter:
    return Parameter(
        formal.name,
        formal.option == _Option.Optional,
        formal.option == _Option.Variadic,
        formal.type_str,
        frozenset(formal.types),
        formal.is_homogeneous,
    )


@lru_cache(maxsize=1024)
def _of_declared(operator: DeclaredOperator) -> Signature:
    kinds = {name: _kind_of(value) for name, value in operator.attributes}
    dtypes = operator.dtypes or (frozenset(),) * len(operator.inputs)
    operands = tuple(
        Parameter(name, False, False, f"any {i}", _type_names(known), True)
        for i, (name, known) in enumerate(zip(operator.inputs, dtypes, strict=True))
    )
    results = range(result_count(operator.op))
    outputs = tuple(Parameter(f"result_{i}", False, False, f"result {i}", frozenset(), True) for i in results)
    return Signature(operator.op, operands, outputs, kinds, (), tuple(sorted(kinds)), len(operands))


def _type_names(dtypes: Dtypes) -> frozenset[str]:
    return frozenset(map(opset.type_name, dtypes))


def _kind_of(value: object) -> str:
    if isinstance(value, tuple):
        return f"{_kind_of(value[0])}S" if value else "INTS"
    return {int: "INT", float: "FLOAT", str: "STRING"}.get(type(value), "TENSOR")


def find_operator(name: str) -> OpKey | None:
    """An operator by the name a rule gives it: ONNX's ``Conv``, our ``Requantize``, ``com.microsoft.Gelu``."""
    domain, _, plain = name.rpartition(".")
    candidates = [OpKey(opset.canonical_domain(domain), plain)]
    if not domain:
        candidates.append(OpKey(opset.EQSAT, plain))
    return next((op for op in candidates if signature(op) is not None), None)


def operator_hint(name: str) -> str:
    """A proposal for the name of an unknown operator, or the domain that has an operator of this name."""
    domain, _, plain = name.rpartition(".")
    ours = [op.name for op in functions() if op.domain == opset.EQSAT]
    if domain:
        domain = opset.canonical_domain(domain)
        domains = [d for d in (*opset.OPSETS, opset.EQSAT) if d]
        known = [op.name for op in functions() if op.domain == domain] or opset.operator_names(domain)
        if not known:
            misspelt = opset.did_you_mean(domain, [*domains, *(op.domain for op in functions())])
            declaration = f"an operator of your own is declared first: `operator {name}(x, alpha = 1.0) = ...`"
            return misspelt or f"known domains: {', '.join(domains)}; {declaration}"
        similar = opset.did_you_mean(plain, known)
        return similar.replace("`", f"`{domain}.", 1) if similar else ""
    others = (d for d in opset.OPSETS if d and plain in opset.operator_names(d))
    elsewhere = next(others, None)
    if elsewhere is not None:
        return f"domain {elsewhere} has it: write `{elsewhere}.{plain}`"
    return opset.did_you_mean(plain, (*opset.operator_names(""), *ours))
