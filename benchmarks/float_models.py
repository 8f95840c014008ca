"""Float models to quantize, and seeded samples for them.

Small networks, the light networks, and the files of a folder of exported models beside the repository, where there is
one. All are prepared alike for every quantizer: opset 17, which the peer knows; without a softmax at the end, whose few
results are rounded more coarsely than all before them and which random weights saturate, so that it hides all errors;
sums of two operands as ``Add``, for which all quantizers have an integer operator.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from benchmarks.models import LIGHT, SHARED, light

OPSET = 17

Shape = tuple[int, ...]

_ACT = "c = Conv<pads=[1, 1, 1, 1]>(x, w0, b0)  a = Relu(c)"
_IMAGE = "float[1, 16, 32, 32] x"
_WEIGHTS: dict[str, Shape] = {"w0": (16, 16, 3, 3), "b0": (16,)}
_SMALL: dict[str, tuple[str, dict[str, Shape]]] = {
    "conv": (
        f"({_IMAGE}) => (float[1, 16, 32, 32] y) {{ y = Conv<pads=[1, 1, 1, 1]>(x, w0) }}",
        {"w0": (16, 16, 3, 3)},
    ),
    "conv_bias_relu": (f"({_IMAGE}) => (float[1, 16, 32, 32] y) {{ {_ACT}  y = Identity(a) }}", _WEIGHTS),
    "conv_residual": (f"({_IMAGE}) => (float[1, 16, 32, 32] y) {{ {_ACT}  y = Add(a, x) }}", _WEIGHTS),
    "act_times_sigmoid": (
        f"({_IMAGE}, float[1, 16, 1, 1] z) => (float[1, 16, 32, 32] y) {{ {_ACT}  s = Sigmoid(z)  y = Mul(a, s) }}",
        _WEIGHTS,
    ),
    "act_times_pool": (
        f"({_IMAGE}) => (float[1, 16, 32, 32] y) {{ {_ACT}  p = GlobalAveragePool(a)  y = Mul(a, p) }}",
        _WEIGHTS,
    ),
    "gemm": (
        "(float[64, 64] x) => (float[64, 10] y) { h = Gemm(x, w0, b0)  r = Relu(h)  y = Gemm(r, w1, b1) }",
        {"w0": (64, 32), "b0": (32,), "w1": (32, 10), "b1": (10,)},
    ),
    "unfolded": (
        """(float[1, 8, 16, 16] x) => (float[1, 10] y) {
          c = Conv<pads=[1, 1, 1, 1]>(x, w0, b0)
          k = Concat<axis=1>(c, x)
          n = BatchNormalization(k, scale, shift, mean, variance)
          r = Relu(n)
          d = Conv(r, w1, b1)
          p = ReduceMean<axes=[2, 3], keepdims=0>(d)
          y = Gemm<transB=1>(p, w2, b2) }""",
        {
            **{"w0": (8, 8, 3, 3), "b0": (8,), "w1": (12, 16, 1, 1), "b1": (12,), "w2": (10, 12), "b2": (10,)},
            **dict.fromkeys(("scale", "shift", "mean", "variance"), (16,)),
        },
    ),
}

SMALL = tuple(_SMALL)
"""Networks of a few operators, made on the fly."""


def exported() -> list[str]:
    """Names of the float models in the folder."""
    return sorted(file.stem for file in SHARED.glob("*.onnx") if "." not in file.stem)


def float_model(name: str) -> onnx.ModelProto:
    """A model by its name: small, light, of the folder, or a path.

    Raises:
        ValueError: There is none.
    """
    if name in SMALL:
        return _small(name)
    if name in LIGHT:
        return _prepared(light(name))
    file = SHARED / f"{name}.onnx" if name in exported() else Path(name)
    if not file.is_file():
        raise ValueError(f"a model must be a file or one of {', '.join((*SMALL, *LIGHT, *exported()))}, got {name!r}")
    return _prepared(onnx.load(file))


def samples(model: onnx.ModelProto, count: int, *, seed: int, std: float = 1.0) -> dict[str, np.ndarray]:
    """Normal data for every input, samples along the first axis; unknown dimensions are 1."""
    constant = {tensor.name for tensor in model.graph.initializer}
    found = {}
    for i, value in enumerate(v for v in model.graph.input if v.name not in constant):
        shape = [d.dim_value or 1 for d in value.type.tensor_type.shape.dim]
        rng = np.random.default_rng([seed, i])
        found[value.name] = std * rng.standard_normal((count, *shape), np.float32)
    return found


def _small(name: str) -> onnx.ModelProto:
    text, shapes = _SMALL[name]
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {OPSET}]> {name} {text}')
    for i, (tensor, shape) in enumerate(shapes.items()):
        rng = np.random.default_rng([len(name), i])
        if tensor in ("scale", "variance"):
            value = rng.uniform(0.8, 1.2, shape)
        elif len(shape) == 1:
            value = 0.1 * rng.standard_normal(shape)
        else:
            fan_in = shape[0] if name == "gemm" else int(np.prod(shape[1:]))
            value = np.sqrt(2 / fan_in) * rng.standard_normal(shape)
        model.graph.initializer.append(numpy_helper.from_array(value.astype(np.float32), tensor))
    onnx.checker.check_model(model)
    return model


def _prepared(model: onnx.ModelProto) -> onnx.ModelProto:
    for node in model.graph.node:
        if node.op_type == "Sum" and len(node.input) == 2:
            node.op_type = "Add"
    if model.opset_import[0].version < OPSET:
        model = onnx.version_converter.convert_version(model, OPSET)
    model.ir_version = 8
    return _without_softmax(model)


def _without_softmax(model: onnx.ModelProto) -> onnx.ModelProto:
    """Up to what a softmax at the end reads; behind it may be a Reshape."""
    graph = model.graph
    last = next((node for node in reversed(graph.node) if node.op_type == "Softmax"), None)
    if last is None or list(graph.node).index(last) < len(graph.node) - 3:
        return model
    graph.output[0].name = last.input[0]
    graph.output[0].type.tensor_type.ClearField("shape")
    del graph.node[list(graph.node).index(last) :]
    return onnx.shape_inference.infer_shapes(model)
