"""Operators in the settings in which models use them, each as a model of its own.

A setting is what one kernel of a generated program computes: an operator, its attributes, types and shapes, and the
elementwise operators that were fused after it. That keeps realistic neighbours, and no settings that a program would
not have, such as transpositions that are views.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

from benchmarks import zoo
from eqsat.codegen.emitted import KernelInfo
from eqsat.codegen.generate import generate
from eqsat.codegen.kernel import Task, View
from eqsat.codegen.predict import predict
from eqsat.codegen.runtime import native_isas
from eqsat.errors import EqsatError
from eqsat.model.load import load
from eqsat.model.read.dims import free_sizes
from eqsat.rules.ast import Target
from eqsat.schema.opset import PINNED_OPSET
from eqsat.schema.size_questions import any_free
from eqsat.schema.types import OpKey

_MICROSOFT = "com.microsoft"
_FLAT = frozenset({"QuantizeLinear", "DequantizeLinear"})
"""Operators whose vectors lie along an axis; steps have them in the shape that broadcasts."""
_INDEXED = {"Gather": 1, "GatherElements": 1, "GatherND": 1, "ScatterElements": 1, "ScatterND": 1, "Scatter": 1}
"""Input that holds indices."""
_SHOWN, _FEW = 8, 64
"""Elements of an integer constant that a table shows, and of a weight whose values are kept."""


class NoModel(Exception):
    """A kernel's task cannot be a model for ONNX Runtime; the text says why."""


@dataclass
class Setting:
    """An operator in one setting.

    Attributes:
        what: Its operator and those fused after it.
        model: It alone; float weights without values are drawn by :func:`with_weights`.
        shares: The part of the predicted time of each model that all its occurrences take.
        counts: How often each model has it.
    """

    what: str
    model: onnx.ModelProto
    shares: dict[str, float] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def operators(self) -> set[str]:
        return {node.op_type for node in self.model.graph.node}

    @property
    def shapes(self) -> str:
        """Of the first node's operands, weights in brackets, and the attributes that are not as usual."""
        graph = self.model.graph
        known = {v.name: tuple(d.dim_value for d in v.type.tensor_type.shape.dim) for v in graph.input}
        weights = {t.name: t for t in graph.initializer}
        first = graph.node[0]
        found: list[str] = []
        for i in first.input:
            if i in weights:
                values = numpy_helper.to_array(weights[i]) if np.prod(weights[i].dims) <= _SHOWN else np.array(0.5)
                listed = values.dtype.kind in "iu"
                found.append(f"[{','.join(map(str, values.ravel())) if listed else _sized(weights[i].dims)}]")
            elif i:
                found.append(_sized(known[i]))
        kinds = {v.type.tensor_type.elem_type for v in graph.input} - {onnx.TensorProto.FLOAT}
        found += sorted(onnx.TensorProto.DataType.Name(k).lower() for k in kinds)
        for attribute in first.attribute:
            value = helper.get_attribute_value(attribute)
            values = value if isinstance(value, list) else [value]
            if all(isinstance(v, int | bytes) for v in values) and any(v not in (0, 1, b"NOTSET") for v in values):
                shown = ",".join(v.decode() if isinstance(v, bytes) else str(v) for v in values)
                found.append(f"{attribute.name}={shown}")
        return " ".join(found)


def _sized(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "1"


def of_models(paths: Iterable[Path], host: Target, least_share: float) -> tuple[list[Setting], list[str]]:
    """What the generated programs of models have, equal settings once, and what cannot be measured.

    Args:
        paths: As for ``benchmarks.zoo``.
        host: Whose file predicts.
        least_share: Of a model's predicted time; settings with less in every model are left out.
    """
    found: dict[bytes, Setting] = {}
    problems: list[str] = []
    for path in paths:
        name = zoo.name_of(path)
        try:
            kernels = kernels_of(path)
        except EqsatError as error:
            problems.append(f"{name}: {' '.join(str(error).split())[:200]}")
            continue
        seconds = [predict(k, host) for k in kernels]
        total = sum(seconds) or 1.0
        here: dict[bytes, Setting] = {}
        for kernel, taken in zip(kernels, seconds, strict=True):
            try:
                model = model_of(kernel.task)
            except NoModel as reason:
                if taken >= least_share * total:
                    problems.append(f"{name}: {kernel.what} ({kernel.family}): {reason}")
                continue
            key = model.SerializeToString(deterministic=True)
            if key not in here:
                here[key] = Setting(kernel.what, model)
            here[key].shares[name] = here[key].shares.get(name, 0.0) + taken / total
            here[key].counts[name] += round(kernel.times) or 1
        for key, setting in here.items():
            if setting.shares[name] < least_share:
                continue
            if key not in found:
                found[key] = setting
            else:
                found[key].shares |= setting.shares
                found[key].counts.update(setting.counts)
    return list(found.values()), problems


def kernels_of(path: Path) -> list[KernelInfo]:
    """The kernels of a model at its typical sizes."""
    warnings.simplefilter("ignore")
    proto, notes = zoo.read(path), zoo.notes_of(path)
    free = free_sizes(load(proto), {})
    sizes = {name: notes.get("dims", {}).get(name, size.typical) for name, size in free.items()}
    return generate(load(proto, dims=sizes), name="model", isas=native_isas(), embedded=False).kernels


# ---- a kernel as a model --------------------------------------------------------------------------------------------


class _Graph:
    """Nodes, inputs and weights of a model that is being made."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.weights: list[onnx.TensorProto] = []

    def operand(self, x: View | np.ndarray, shape: Sequence[int] | None = None) -> str:
        """A new input or weight."""
        if isinstance(x, View):
            name = f"x{len(self.inputs)}"
            self.inputs.append(helper.make_tensor_value_info(name, int(x.dtype), shape or x.shape))
            return name
        name = f"w{len(self.weights)}"
        # What is left of large weights is one element that is repeated; values of small ones make no difference.
        if x.size > _FEW and (x.dtype.kind == "f" or not any(x.strides)):
            kind = int(ir.DataType.from_numpy(x.dtype))
            self.weights.append(onnx.TensorProto(name=name, dims=x.shape, data_type=kind))
        else:
            self.weights.append(numpy_helper.from_array(np.ascontiguousarray(x), name))
        return name

    def node(self, key: OpKey, inputs: Sequence[str], attributes: Mapping[str, Any], outputs: Sequence[str]) -> None:
        if key.domain not in ("", _MICROSOFT):
            raise NoModel(f"ONNX Runtime has no {key}")
        names = set(attributes)
        if not key.domain:
            names &= set(onnx.defs.get_schema(key.name, PINNED_OPSET, "").attributes)
        kept: dict[str, Any] = {}
        for name in sorted(names):
            value = attributes[name]
            if isinstance(value, np.ndarray):
                kept[name] = numpy_helper.from_array(value)
            elif value is not None and value != () and not name.startswith("_"):
                kept[name] = int(value) if isinstance(value, ir.DataType) else value
        self.nodes.append(helper.make_node(key.name, list(inputs), list(outputs), domain=key.domain, **kept))


def model_of(task: Task) -> onnx.ModelProto:
    """A kernel's task as a model.

    Raises:
        NoModel: ONNX Runtime does not have the operator, or data decides its sizes.
    """
    views = (*task.inputs, *task.outputs, *task.epilogue.operands)
    if any(isinstance(v, View) and any_free(v.shape) for v in views):
        raise NoModel("data decides its sizes")
    graph = _Graph()
    outputs = [f"y{i}" if y is not None else "" for i, y in enumerate(task.outputs)]
    steps = task.epilogue.steps
    value = "value" if steps else outputs[0]
    if task.operator.name == "Identity" and not task.operator.domain:
        value = _identity(graph, task, value, bool(steps))
    else:
        inputs = ["" if x is None else graph.operand(x) for x in task.inputs]
        while inputs and not inputs[-1]:
            inputs.pop()
        graph.node(task.operator, inputs, task.attributes, [value, *outputs[1:]] if outputs[0] or steps else outputs)
    values = [value, *("" for _ in task.epilogue.operands)]
    for n, step in enumerate(steps):
        for number in step.inputs:
            if number is not None and 1 <= number <= len(task.epilogue.operands) and not values[number]:
                values[number] = _broadcast(graph, task.epilogue.operands[number - 1], step.operator.name)
        names = ["" if number is None else values[number] for number in step.inputs]
        result = outputs[0] if n == len(steps) - 1 else f"step{n}"
        graph.node(step.operator, names, step.attributes, [result])
        values.append(result)
    results = [
        helper.make_tensor_value_info(name, int(y.dtype), y.shape)
        for name, y in zip(outputs, task.outputs, strict=True)
        if y is not None
    ]
    made = helper.make_graph(graph.nodes, "setting", graph.inputs, results, graph.weights)
    imports = [helper.make_opsetid("", PINNED_OPSET)]
    if any(node.domain for node in graph.nodes):
        imports.append(helper.make_opsetid(_MICROSOFT, 1))
    return helper.make_model(made, opset_imports=imports, ir_version=10)


def _broadcast(graph: _Graph, x: View | np.ndarray, operator: str) -> str:
    """An operand of a step in the shape that it had before it was repeated."""
    if isinstance(x, View):
        return graph.operand(x, [n if step else 1 for n, step in zip(x.shape, x.strides, strict=True)])
    return graph.operand(x.ravel() if operator in _FLAT and x.size > 1 else x.reshape(()) if x.size == 1 else x)


def _identity(graph: _Graph, task: Task, value: str, has_steps: bool) -> str:
    """Elementwise operators alone, or a copy: a transposition if the order of the axes changes."""
    x, y = task.inputs[0], task.output
    if not isinstance(x, View):
        name = graph.operand(x) if x is not None else ""
    elif has_steps:
        name = _broadcast(graph, x, "")
    else:
        source, target = (sorted(range(v.rank), key=lambda a, v=v: (-abs(v.strides[a]), a)) for v in (x, y))
        name = graph.operand(x, [x.shape[a] for a in source])
        perm = [source.index(a) for a in target]
        if perm != sorted(perm):
            graph.node(OpKey("", "Transpose"), [name], {"perm": tuple(perm)}, ["moved"])
            name = "moved"
        if target != sorted(target):
            y_shape = np.array([y.shape[a] for a in range(y.rank)], np.int64)
            graph.node(OpKey("", "Reshape"), [name, graph.operand(y_shape)], {}, [value])
            return value
    if has_steps:
        return name
    graph.node(OpKey("", "Identity"), [name], {}, [value])
    return value


def with_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """A model with random values for the weights that have none."""
    rng = np.random.default_rng(1)
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for tensor in copy.graph.initializer:
        if np.prod(tensor.dims) > _FEW and not tensor.raw_data:
            drawn = _drawn(helper.tensor_dtype_to_np_dtype(tensor.data_type), tuple(tensor.dims), rng)
            tensor.CopyFrom(numpy_helper.from_array(drawn, tensor.name))
    return copy


# ---- inputs ---------------------------------------------------------------------------------------------------------


_SEQUENTIAL = frozenset({"RNN", "GRU", "LSTM"})
_LENGTHS = 4
"""The operand with the steps of each sequence."""


def feeds_of(model: onnx.ModelProto, seed: int = 0) -> dict[str, np.ndarray]:
    """Inputs of a setting: normal numbers, indices that the data have, divisors other than zero."""
    rng = np.random.default_rng(seed)
    shapes = {t.name: tuple(t.dims) for t in model.graph.initializer}
    shapes |= {v.name: tuple(d.dim_value for d in v.type.tensor_type.shape.dim) for v in model.graph.input}
    most: dict[str, int] = {}
    for node in model.graph.node:
        if node.op_type in _INDEXED:
            axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
            shape = shapes[node.input[0]]
            most[node.input[_INDEXED[node.op_type]]] = min(shape) if node.op_type.endswith("ND") else shape[axis]
        if node.op_type in _SEQUENTIAL and len(node.input) > _LENGTHS:
            most[node.input[_LENGTHS]] = shapes[node.input[0]][0] + 1
    feeds = {
        v.name: _drawn(
            helper.tensor_dtype_to_np_dtype(v.type.tensor_type.elem_type), shapes[v.name], rng, most.get(v.name, 2)
        )
        for v in model.graph.input
    }
    for node in model.graph.node:
        by = node.input[1] if node.op_type in ("Div", "Mod") else ""
        if by in feeds and feeds[by].dtype.kind in "iu":
            feeds[by] = np.where(feeds[by] == 0, feeds[by].dtype.type(3), feeds[by])
    return feeds


def _drawn(dtype: Any, shape: Sequence[int], rng: np.random.Generator, most: int = 2) -> np.ndarray:
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return np.asarray(rng.random(shape) < 0.5)
    if dtype.kind in "iu":
        least, high = (-128, 128) if dtype == np.int8 else (0, 256) if dtype == np.uint8 else (0, max(most, 1))
        return np.asarray(rng.integers(least, high, shape)).astype(dtype)
    return np.asarray(rng.standard_normal(shape) * 0.1).astype(dtype)


# ---- kept as files --------------------------------------------------------------------------------------------------


def keep(settings: Iterable[Setting], folder: Path) -> None:
    """Writes each setting as a model file, which :func:`kept` reads."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, setting in enumerate(settings):
        model = onnx.ModelProto()
        model.CopyFrom(setting.model)
        notes = {"eqsat.what": setting.what}
        notes |= {f"eqsat.share.{name}": repr(share) for name, share in setting.shares.items()}
        notes |= {f"eqsat.count.{name}": str(count) for name, count in setting.counts.items()}
        helper.set_model_props(model, notes)
        onnx.save(model, folder / f"{number:04}_{setting.what.split()[0]}.onnx")


def kept(paths: Iterable[Path]) -> Iterator[Setting]:
    """Settings that were written before."""
    for path in paths:
        model = onnx.load(path)
        notes = {p.key: p.value for p in model.metadata_props}
        setting = Setting(notes["eqsat.what"], model)
        for key, value in notes.items():
            kind, _, name = key.removeprefix("eqsat.").partition(".")
            if kind == "share":
                setting.shares[name] = float(value)
            elif kind == "count":
                setting.counts[name] = int(value)
        yield setting
