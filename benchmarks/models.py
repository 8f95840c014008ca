"""Models to test and to measure with: the ``onnx`` package's light networks, with weights that show errors.

The light networks are nine well-known classifiers whose weights are ``ConstantOfShape`` nodes, so that the
files stay small. Equal weights hide most mistakes (a swapped or a transposed kernel computes the same), hence
each is replaced by seeded random numbers of a spread that fits its role: He et al. 2015 (arXiv:1502.01852)
for kernels, close to 1 for scales and variances, small for everything that is added.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

LIGHT = (
    "bvlc_alexnet",
    "densenet121",
    "inception_v1",
    "inception_v2",
    "resnet50",
    "shufflenet",
    "squeezenet",
    "vgg19",
    "zfnet512",
)
"""The names that :func:`light` knows."""

_PROJECT = Path(__file__).parents[1]
_PLACES = (Path(os.environ.get("EQSAT_MODELS") or _PROJECT / "models"), _PROJECT.parent / "shared" / "models")
SHARED = next((place for place in _PLACES if any(place.glob("*.onnx"))), _PLACES[0])
"""Where exported models are: the folder that EQSAT_MODELS names, else ``models`` here or beside this project."""

_DENSE = 4096
_MOVEMENT = ("Unsqueeze", "Squeeze", "Reshape", "Transpose", "Identity")


def light_path(name: str) -> Path:
    """Path of the network as the ``onnx`` package ships it."""
    return Path(onnx.__file__).parent / "backend/test/data/light" / f"light_{name}.onnx"


def light(name: str, *, seed: int = 0, dense: int = _DENSE) -> onnx.ModelProto:
    """One of the light networks with seeded random weights as initialisers; same opset and nodes otherwise.

    Args:
        name: One of :data:`LIGHT`.
        seed: Of the weights; each tensor draws from a stream of its own, by name.
        dense: Width of the dense layers that have 4096, which hold nearly all weights of the networks with them.
    """
    model = onnx.load(light_path(name))
    graph = model.graph
    shapes = {i.name: numpy_helper.to_array(i) for i in graph.initializer}
    shapes = {name: np.where(shape == _DENSE, dense, shape) for name, shape in shapes.items()}
    roles = _roles(graph.node)

    kept: list[onnx.NodeProto] = []
    tensors: list[onnx.TensorProto] = []
    for node in graph.node:
        if node.op_type == "ConstantOfShape" and node.input[0] in shapes:
            tensors.append(_weight(node.output[0], shapes[node.input[0]].tolist(), roles, seed))
        else:
            kept.append(node)
    read = {i for node in kept for i in node.input}
    for tensor in graph.initializer:
        if tensor.name not in read:
            continue
        if tensor.name in roles and tensor.data_type == onnx.TensorProto.FLOAT:
            tensor = _weight(tensor.name, list(tensor.dims), roles, seed)
        tensors.append(tensor)

    constant = {t.name for t in tensors}
    inputs = [i for i in graph.input if i.name in read and i.name not in constant]
    result = onnx.helper.make_model(
        onnx.helper.make_graph(kept, name, inputs, list(graph.output), tensors),
        opset_imports=list(model.opset_import),
        ir_version=8,
    )
    onnx.checker.check_model(result)
    return result


def before_softmax(model: onnx.ModelProto) -> str:
    """Name of the tensor that the final Softmax reads.

    Random weights saturate the softmax of a deep network to a one-hot vector, which hides errors: compare this
    tensor as well.
    """
    made_by = {o: node for node in model.graph.node for o in node.output}
    last = made_by[model.graph.output[0].name]
    if last.op_type != "Softmax":
        raise ValueError(f"{model.graph.name}: the last operator is {last.op_type}, not Softmax")
    return last.input[0]


def with_output(model: onnx.ModelProto, tensor: str, shape: Sequence[int | str]) -> onnx.ModelProto:
    """A copy of the model that also returns one of its float32 tensors."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    copy.graph.output.append(onnx.helper.make_tensor_value_info(tensor, onnx.TensorProto.FLOAT, shape))
    return copy


def _roles(nodes: Sequence[onnx.NodeProto]) -> dict[str, str]:
    """What each constant operand is to the operator that reads it, looking through data movement."""
    roles: dict[str, str] = {}
    for node in reversed(nodes):  # readers before what they read, so that roles pass through movement
        names: dict[int, str] = {}
        match node.op_type:
            case "Conv":
                names = {1: "conv", 2: "shift"}
            case "Gemm":
                transposed = any(a.name == "transB" and a.i for a in node.attribute)
                names = {1: "gemm_t" if transposed else "gemm", 2: "shift"}
            case "BatchNormalization":
                names = {1: "scale", 2: "shift", 3: "shift", 4: "scale"}
            case "Mul":
                names = {1: "scale"}
            case "Add":
                names = {1: "shift"}
            case op if op in _MOVEMENT and node.output[0] in roles:
                names = {0: roles[node.output[0]]}
        for index, role in names.items():
            if index < len(node.input):
                roles.setdefault(node.input[index], role)
    return roles


def _weight(name: str, shape: list[int], roles: dict[str, str], seed: int) -> onnx.TensorProto:
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    role = roles.get(name, "shift")
    if role == "scale":
        value = rng.uniform(0.8, 1.2, shape).astype(np.float32)
    elif role == "shift":
        value = rng.standard_normal(shape, np.float32) * np.float32(0.05)
    else:
        # A matrix may be stored with leading ones that a Reshape takes away.
        fan_in = {"gemm": shape[-2], "gemm_t": shape[-1], "conv": int(np.prod(shape[1:]))}[role]
        value = rng.standard_normal(shape, np.float32) * np.float32(np.sqrt(2.0 / fan_in))
    return numpy_helper.from_array(value, name)
