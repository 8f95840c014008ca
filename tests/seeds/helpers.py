"""What the tests of the founding documents share: structure as text, execution by others, hosts that force a choice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir

import eqsat
from eqsat.execute.executor import Executor
from eqsat.execute.inputs import complete_inputs
from eqsat.model.load import load
from eqsat.partition.saved import inline
from eqsat.rules.ast import Rule
from eqsat.rules.reader import read_text
from tests.fuzz.check import ort_outputs

Nodes = Iterable[ir.Node]


def listing(nodes: Nodes) -> list[str]:
    """Nodes as ``c = Add(a, b)``; names as they are, small constants by their value, attributes left out."""
    return [f"{', '.join(str(o.name) for o in n.outputs)} = {n.op_type}({_operands(n)})" for n in nodes]


def _operands(node: ir.Node) -> str:
    return ", ".join("" if v is None else _word(v) for v in node.inputs)


def _word(value: ir.Value) -> str:
    tensor = value.const_value
    return str(value.name) if tensor is None or tensor.size > 1 else f"{tensor.numpy().item():g}"


def operators(nodes: Nodes) -> list[str]:
    """Names of operators; several definitions of one function have one name."""
    return [n.op_type.rpartition("_")[0] if n.op_type[-1].isdigit() else n.op_type for n in nodes]


def function(model: ir.Model, name: str) -> ir.Function:
    """A function of a model by its name."""
    (found,) = (f for f in model.functions.values() if f.name == name)
    return found


def rules(text: str) -> list[Rule]:
    return list(read_text(text).rules)


def rule(text: str) -> Rule:
    (found,) = rules(text)
    return found


def dear(folder: Path, *ops: str) -> str:
    """A host on which some operators are so dear that whatever else computes the same is taken instead."""
    path = folder / "dear.target"
    path.write_text(
        "host dear\n    peak float32 = 1e9\n    bandwidth = 1e9, launch = 1e-6\n"
        f"    supports {', '.join(ops)}\n        cost 1\n    supports *\n",
        "utf-8",
    )
    return str(path)


def check_values(model: ir.Model, *results: eqsat.Result, rtol: float = 1e-5, seed: int = 0) -> dict[str, np.ndarray]:
    """Every result computes what ONNX Runtime makes of the model, here and there; the outputs."""
    arrays = complete_inputs(load(model), seed=seed)
    expected = ort_outputs(ir.to_proto(inline(model)).SerializeToString(), arrays)
    for result in results:
        content = ir.to_proto(result.model).SerializeToString()
        onnx.checker.check_model(onnx.load_from_string(content), full_check=True)
        for found in (ort_outputs(content, arrays), Executor(result.model).run(arrays), result.run(arrays)):
            _same(expected, found, rtol)
    return expected


def _same(expected: Mapping[str, np.ndarray], found: Mapping[str, np.ndarray], rtol: float) -> None:
    assert list(expected) == list(found)
    for name, array in expected.items():
        atol = rtol * max(float(np.abs(array).max(initial=0.0)), 1e-30)
        np.testing.assert_allclose(found[name], array, rtol=rtol, atol=atol)
