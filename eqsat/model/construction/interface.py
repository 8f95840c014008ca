"""Operators as functions of Python: their parameters and documentation, taken from the schemas."""

from __future__ import annotations

import re
from collections.abc import Iterator
from inspect import Parameter, Signature

from onnx import defs, helper

_KINDS = {
    "INT": "int",
    "FLOAT": "float",
    "STRING": "str",
    "INTS": "Sequence[int]",
    "FLOATS": "Sequence[float]",
    "STRINGS": "Sequence[str]",
    "GRAPH": "Callable[..., Any]",
}
_LONGEST = 160
"""Characters of one description; the standard's page has the rest."""


def signature(schema: defs.OpSchema) -> Signature:
    """Operands by position or name, then attributes by name, with the types and defaults that the schema gives."""
    return Signature(list(_parameters(schema)), return_annotation=_result(schema))


def documentation(schema: defs.OpSchema) -> str:
    """A description of the operator, its operands and its attributes, a sentence each."""
    lines = [_sentence(schema.doc or "") or schema.name, ""]
    described = [(formal.name, formal.description) for formal in schema.inputs]
    described += [(name, attribute.description) for name, attribute in sorted(schema.attributes.items())]
    if described:
        lines += ["Args:", *(f"    {name}: {_sentence(text)}".rstrip() for name, text in described), ""]
    domain = f"_{schema.domain.replace('.', '_')}_" if schema.domain else "_"
    page = f"{domain}_{schema.name}".replace("___", "__")
    if schema.domain != "com.microsoft":
        lines.append(f"See https://onnx.ai/onnx/operators/onnx_{page}.html.")
    return "\n".join(lines).strip()


def _parameters(schema: defs.OpSchema) -> Iterator[Parameter]:
    variadic = False
    single = defs.OpSchema.FormalParameterOption.Single
    # An operand before a required one must be given, even if it is None.
    given = max((i for i, formal in enumerate(schema.inputs) if formal.option == single), default=-1)
    for i, formal in enumerate(schema.inputs):
        if formal.option == defs.OpSchema.FormalParameterOption.Variadic:
            variadic = True
            yield Parameter(formal.name, Parameter.VAR_POSITIONAL, annotation="Operand")
        else:
            optional = formal.option == defs.OpSchema.FormalParameterOption.Optional
            yield Parameter(
                formal.name,
                # If an operand and an attribute have one name, it means the attribute.
                Parameter.POSITIONAL_OR_KEYWORD if formal.name not in schema.attributes else Parameter.POSITIONAL_ONLY,
                default=None if optional and i > given else Parameter.empty,
                annotation="Operand | None" if optional or variadic else "Operand",
            )
    for name, attribute in sorted(schema.attributes.items(), key=lambda item: (not item[1].required, item[0])):
        kind = _KINDS.get(str(attribute.type).rpartition(".")[2], "Any")
        default: object = None
        if attribute.default_value.name:
            default = _plain(helper.get_attribute_value(attribute.default_value))
        if attribute.required:
            default = Parameter.empty
        elif default is None:
            kind = kind if kind == "Any" else f"{kind} | None"
        yield Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind)
    yield Parameter("outputs", Parameter.KEYWORD_ONLY, default=None, annotation="int | None")
    yield Parameter("name", Parameter.KEYWORD_ONLY, default=None, annotation="str | None")


def _result(schema: defs.OpSchema) -> str:
    return "Tensor" if schema.min_output == schema.max_output == 1 else "Any"


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, float):
        return float(f"{value:.7g}")  # Defaults are float32 in the schemas.
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _sentence(text: str) -> str:
    """The first sentence, on one line."""
    found = re.split(r"(?<=[.:])\s+(?=[A-Z(*\-`])|\n\s*\n", text.strip(), maxsplit=1)[0]
    found = " ".join(found.split()).replace("\\", "/").replace('"""', "'''").rstrip('"')
    return found if len(found) <= _LONGEST else found[: _LONGEST - 3].rstrip() + "..."
