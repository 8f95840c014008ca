"""ONNX Runtime's own declaration of its ``com.microsoft`` operators, in the form of ``eqsat/schema/contrib.json``.

Run ``python tests/schema/contrib_schemas.py > eqsat/schema/contrib.json`` after moving to a newer ONNX Runtime.
"""

from __future__ import annotations

import json

import onnx

_MARK = {0: "", 1: "?", 2: "..."}


def _default(attribute: object) -> object:
    data = attribute._default_value
    if not data:
        return None
    value = onnx.helper.get_attribute_value(onnx.AttributeProto.FromString(data))
    return value.decode() if isinstance(value, bytes) else value


def declared() -> dict[str, dict[str, object]]:
    """Name -> inputs, outputs, attributes (type, ``!`` if required, default) and type constraints."""
    import onnxruntime.capi.onnxruntime_pybind11_state as state

    result: dict[str, dict[str, object]] = {}
    for s in sorted(state.get_all_operator_schema(), key=lambda s: (s.name, s.since_version)):
        if s.domain != "com.microsoft":
            continue
        mark = lambda p: p.name + _MARK[p.option.value] + ("" if p.isHomogeneous else "*")  # noqa: E731
        result[s.name] = {
            "inputs": [[mark(p), p.typeStr] for p in s.inputs],
            "outputs": [[mark(p), p.typeStr] for p in s.outputs],
            "attributes": {
                name: [a.type.name + ("!" if a.required else ""), _default(a)]
                for name, a in sorted(s.attributes.items())
            },
            "types": {c.type_param_str: sorted(c.allowed_type_strs) for c in s.type_constraints},
        }
    return result


if __name__ == "__main__":
    rows = [f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in declared().items()]
    print("{\n" + ",\n".join(rows) + "\n}")
