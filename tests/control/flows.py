"""Models with control flow, and how results are compared with them: by ONNX Runtime and by eqsat, and read back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

import eqsat
from eqsat.result import Result

FLOAT, INT64, BOOL = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.BOOL


def value(name: str, kind: int = FLOAT, shape: Sequence[int | str] | None = None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def graph(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    constants: Mapping[str, np.ndarray] | None = None,
) -> onnx.GraphProto:
    held = [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()]
    return helper.make_graph(list(nodes), "g", list(inputs), list(outputs), held)


def model(main: onnx.GraphProto, opset: int = 17) -> onnx.ModelProto:
    return helper.make_model(main, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def loop_body(
    nodes: Sequence[onnx.NodeProto], carried: Sequence[tuple[str, str]], scanned: Sequence[str] = ()
) -> onnx.GraphProto:
    """A body that goes on as long as it is told to, with undeclared shapes."""
    keep = helper.make_node("Identity", ["go"], ["go_on"])
    inputs = [value("i", INT64, []), value("go", BOOL, []), *(value(name) for name, _ in carried)]
    return graph([keep, *nodes], inputs, [value("go_on", BOOL), *(value(n) for _, n in carried), *map(value, scanned)])


def run(source: onnx.ModelProto | Path, feeds: Mapping[str, Any]) -> list[np.ndarray]:
    content = source.SerializeToString() if isinstance(source, onnx.ModelProto) else source.read_bytes()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    read = {i.name for i in session.get_inputs()}
    return [np.asarray(y) for y in session.run(None, {k: v for k, v in feeds.items() if k in read})]


def checked(
    source: onnx.ModelProto,
    folder: Path,
    several: Sequence[Mapping[str, Any]],
    targets: str | tuple[str, ...] = (),
    **options: Any,
) -> Result:
    """The result, executed on several inputs by ONNX Runtime, by eqsat, and after it has been optimized again."""
    result = eqsat.optimize(source, targets, **options)
    assert result.summary.verification is not None
    path = folder / "result.onnx"
    result.save(path)
    again = eqsat.optimize(path, targets, **options)
    assert again.cost <= 1.0001 * result.cost
    for feeds in several:
        expected = run(source, feeds)
        read = {v.name for v in result.model.graph.inputs}
        own = {k: v for k, v in feeds.items() if k in read}
        for found in (run(path, feeds), list(result.run(own).values()), list(again.run(own).values())):
            for e, f in zip(expected, found, strict=True):
                if not e.size:
                    # ONNX Runtime gives a stack of no round another rank where it does not know the shape.
                    assert not f.size
                    continue
                assert e.shape == f.shape
                np.testing.assert_allclose(f, e, rtol=1e-4, atol=1e-4 * max(1.0, float(np.abs(e).max(initial=0))))
    return result


def weights(*shape: int, seed: int = 0) -> np.ndarray:
    """Weights that keep the size of their input, so that a rounding error does not grow with the rounds of a loop."""
    return (np.random.default_rng(seed).standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
