"""What holds of every quantized network: no float arithmetic between integers, and ONNX Runtime's results."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
from onnx import numpy_helper

from eqsat.result import Result
from tests.fuzz.check import ort_outputs

Array = np.ndarray
ARITHMETIC = {"Conv", "ConvTranspose", "Gemm", "MatMul", "Add", "Sub", "Sum", "Mul", "Div", "ReduceMean"}
ARITHMETIC |= {"AveragePool", "GlobalAveragePool", "MaxPool", "GlobalMaxPool"}


def float_arithmetic(result: Result) -> list[str]:
    """Kernels of a program that convolve, multiply, add or pool floats, composites of such included."""
    plan, found = result.plan, []
    for node in plan.nodes:
        inside = {node.op.name} if node.body is None else {n.op.name for n in node.body.nodes}
        first = next(v for v in node.inputs if v is not None)
        if inside & ARITHMETIC and plan.types[first].dtype.is_floating_point():
            found.append(str(node.op))
    return found


def by_onnx_runtime(model: onnx.ModelProto, feed: Mapping[str, Array]) -> dict[str, Array]:
    """ONNX Runtime as users run it, with its own integer kernels."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return {n: np.asarray(y) for n, y in zip(names, session.run(None, dict(feed)), strict=True)}


def steps(model: onnx.ModelProto) -> dict[str, float]:
    """The quantization step of each output; 1 of one that is an integer."""
    scales = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
    found = {}
    for output in model.graph.output:
        (last,) = [n for n in model.graph.node if output.name in n.output]
        is_real = output.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
        assert last.op_type == "DequantizeLinear" or not is_real, "a float operator after the last quantized one"
        found[output.name] = float(scales[last.input[1]]) if is_real else 1.0
    return found


def seeded_inputs(model: onnx.ModelProto, count: int, seed: int = 9) -> list[dict[str, Array]]:
    """Standard normal data for the inputs; a batch of one where the size is open."""
    rng = np.random.default_rng(seed)
    given = {i.name for i in model.graph.initializer}
    inputs = [i for i in model.graph.input if i.name not in given]
    shapes = {i.name: [d.dim_value or 1 for d in i.type.tensor_type.shape.dim] for i in inputs}
    return [{n: rng.normal(0, 1, s).astype(np.float32) for n, s in shapes.items()} for _ in range(count)]


def difference_from_pairs(model: onnx.ModelProto, result: Result, count: int = 2) -> float:
    """How many steps our run of the program is away from the pairs of a model, computed in floats as they stand."""
    content = model.SerializeToString()
    worst = 0.0
    for feed in seeded_inputs(model, count):
        ours, pairs = result.run(feed), ort_outputs(content, feed)
        for name, step in steps(model).items():
            worst = max(worst, float(np.abs(ours[name].astype(float) - pairs[name]).max()) / step)
    return worst


def greatest_difference(model: onnx.ModelProto, result: Result, count: int = 2) -> float:
    """How many steps the program is away from ONNX Runtime's run of the model.

    Raises:
        AssertionError: What is saved and run by ONNX Runtime is more than one step away from our own run of it.
    """
    content = ir.to_proto(result.model).SerializeToString()
    worst = 0.0
    for feed in seeded_inputs(model, count):
        ours, saved, theirs = result.run(feed), ort_outputs(content, feed), by_onnx_runtime(model, feed)
        for name, step in steps(model).items():
            assert np.abs(ours[name].astype(float) - saved[name]).max() <= 1.01 * step
            worst = max(worst, float(np.abs(ours[name].astype(float) - theirs[name]).max()) / step)
    return worst
