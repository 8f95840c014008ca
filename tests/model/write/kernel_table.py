"""ONNX Runtime's kernels for its CPU, in the form of ``eqsat/model/write/onnxruntime_kernels.json``.

Run ``python -m tests.model.write.kernel_table > eqsat/model/write/onnxruntime_kernels.json`` after moving to a newer
ONNX Runtime or opset.
"""

from __future__ import annotations

import json
from typing import Any

from eqsat.schema import opset
from eqsat.schema.types import OpKey

_NEWEST = 2**31 - 1


def _fits(first: int, last: int, version: int) -> bool:
    """Whether ONNX Runtime takes a kernel for an operator; one without a last version is for the first alone."""
    return first == version or (last != _NEWEST and first < version <= last)


def _tensors(allowed: list[str]) -> str:
    return " ".join(sorted(t.removeprefix("tensor(").removesuffix(")") for t in allowed if t.startswith("tensor(")))


def declared() -> dict[str, Any]:
    """The version, and per operator the kernels at the pinned opset: first and last version, types by constraint."""
    import onnxruntime
    import onnxruntime.capi.onnxruntime_pybind11_state as state

    found: dict[str, list[Any]] = {}
    for kernel in state.get_all_opkernel_def():
        op = OpKey(kernel.domain, kernel.op_name)
        schema = opset.find_schema(op)
        first, last = kernel.version_range
        if schema is None or not _fits(first, last, schema.since_version):
            continue
        types = {name: _tensors(allowed) for name, allowed in sorted(kernel.type_constraints.items())}
        types = {name: allowed for name, allowed in types.items() if allowed}
        row = [first, None if last == _NEWEST else last, types]
        rows = found.setdefault(str(op), [])
        if row not in rows:
            rows.append(row)
    rows = {name: sorted(entries, key=json.dumps) for name, entries in sorted(found.items())}
    return {"onnxruntime": onnxruntime.__version__, "opset": opset.PINNED_OPSET, "kernels": rows}


def text() -> str:
    """The file, an operator a line."""
    found = declared()
    rows = [f"{json.dumps(name)}: {json.dumps(entries)}" for name, entries in found["kernels"].items()]
    head = f'"onnxruntime": {json.dumps(found["onnxruntime"])},\n"opset": {found["opset"]},\n"kernels": '
    return "{\n" + head + "{\n" + ",\n".join(rows) + "\n}\n}\n"


if __name__ == "__main__":
    print(text(), end="")
