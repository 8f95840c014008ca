"""Random valid models by seed, with the data that they are run on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper

from eqsat.partition.saved import with_definitions
from eqsat.schema.opset import EQSAT, PINNED_OPSET
from tests.fuzz import opsets
from tests.fuzz.algebra import ALGEBRA
from tests.fuzz.growing import Growing, RefusedError, Value, tensor_of
from tests.fuzz.instances import instance, rule_count
from tests.fuzz.motifs import MOTIFS
from tests.fuzz.numbers import FLOATS, INTEGERS
from tests.fuzz.structure import STRUCTURE

KINDS: Mapping[str, tuple[tuple[Any, float], ...]] = {
    "algebra": ((ALGEBRA, 8.0), (MOTIFS, 1.0), (STRUCTURE, 1.0)),
    "rules": ((((instance, 1.0),), 8.0), (ALGEBRA, 1.0), (MOTIFS, 1.0), (STRUCTURE, 0.5)),
    "networks": ((MOTIFS, 8.0), (STRUCTURE, 1.0), (((instance, 1.0),), 1.0)),
    "structure": ((STRUCTURE, 6.0), (MOTIFS, 2.0), (ALGEBRA, 1.0), (((instance, 1.0),), 1.0)),
}
"""What graphs are made of: families of steps by weight."""


@dataclass(frozen=True)
class Case:
    """A model and its data.

    Attributes:
        tags: What was drawn for it, by dimension.
    """

    model: onnx.ModelProto
    feeds: Mapping[str, Any]
    seed: int = 0
    tags: Mapping[str, str] = field(default_factory=dict)


def generate(seed: int, *, largest: int = 14) -> onnx.ModelProto:
    """A network in float32 at the pinned opset, for which every tool has kernels.

    Args:
        largest: Most steps; one step adds one to a dozen nodes.
    """
    for attempt in range(100):
        g = Growing(np.random.default_rng([seed, attempt]))
        _images(g)
        _grow(g, ((MOTIFS, 1.0),), g.size(2, largest))
        try:
            model = g.model()
        except RefusedError:
            continue
        onnx.checker.check_model(model, full_check=True)
        return model
    raise AssertionError(f"seed {seed} gives no model")


def generate_case(seed: int, *, largest: int = 7) -> Case:
    """A model of any kind, in any type and opset; the same seed gives the same one."""
    for attempt in range(200):
        rng = np.random.default_rng([seed, attempt, 9])
        kinds = list(KINDS)
        kind = kinds[int(rng.choice(len(kinds), p=[0.35, 0.35, 0.15, 0.15]))]
        weights = np.array([w for _, w in FLOATS])
        floats = FLOATS[int(rng.choice(len(FLOATS), p=weights / weights.sum()))][0]
        wild = bool(rng.random() < (0.6 if kind == "algebra" else 0.25))
        g = Growing(rng, floats, wild=wild)
        _inputs(g, kind)
        if kind == "rules":
            # Each rule has its turn; what else comes is drawn.
            try:
                kept = g.kept()
                instance(g, seed % rule_count())
            except RefusedError:
                g.back(kept)
        _grow(g, KINDS[kind], g.size(1, largest))
        try:
            model = g.model(partial(_spelt, g))
            model, version = _older(g, model)
            onnx.checker.check_model(model, full_check=True)
        except (RefusedError, onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
            continue
        names = {i.name for i in model.graph.input} - {t.name for t in model.graph.initializer}
        feeds = {name: array for name, array in g.feeds().items() if name in names}
        tags = {
            "kind": kind,
            "floats": np.dtype(floats).name,
            "range": "wild" if wild else "tame",
            "opset": str(version),
            "nodes": str(len(model.graph.node)),
        }
        return Case(model, feeds, seed, tags)
    raise AssertionError(f"seed {seed} gives no model")


def _images(g: Growing) -> None:
    for _ in range(g.size(1, 3)):
        g.input(_image(g))
    if g.chance(0.15):
        g.input((g.size(1, 4), g.size(1, 4)), g.one_of((np.int32, np.int64)))


def _image(g: Growing) -> tuple[int, ...]:
    kind = g.size(0, 6)
    if kind <= 2:
        side = g.size(2, 8)
        return (g.size(1, 2), g.size(1, 4), side, side)
    if kind == 3:
        return (g.size(1, 3), g.size(1, 6), g.size(2, 6))
    if kind == 4:
        return (g.size(1, 5), g.size(1, 6))
    if kind == 5:
        return (g.size(1, 2), g.size(1, 3), 3, 4, 4)
    return (g.size(1, 8),)


def _inputs(g: Growing, kind: str) -> None:
    if kind == "networks":
        _images(g)
        return
    for number in range(g.size(1, 2)):
        rank = int(g.rng.choice(6, p=[0.1, 0.25, 0.3, 0.15, 0.15, 0.05]))
        shape = tuple(int(g.rng.choice([1, 2, 3, 4], p=[0.2, 0.35, 0.3, 0.15])) for _ in range(rank))
        if rank and g.chance(0.04):
            shape = (*shape[:-1], 0)
        if number and g.chance(0.5):
            shape = g.inputs[0].shape
        integers = g.chance(0.3 if kind == "algebra" else 0.1)
        g.input(shape, g.one_of(INTEGERS) if integers else None)


def _grow(g: Growing, families: Any, steps: int) -> None:
    flat = [(step, weight * share / sum(w for _, w in family)) for family, share in families for step, weight in family]
    weights = np.array([w for _, w in flat], dtype=np.float64)
    done = 0
    for _ in range(20 * steps):
        step = flat[int(g.rng.choice(len(flat), p=weights / weights.sum()))][0]
        kept = g.kept()
        try:
            step(g)
        except RefusedError:
            g.back(kept)
            continue
        done += 1
        if done == steps:
            return


def _spelt(g: Growing, value: Value) -> onnx.TensorProto | onnx.NodeProto:
    """A constant as exporters write it."""
    tensor = tensor_of(value)
    kind = g.size(0, 9)
    if kind == 0:
        return helper.make_node("Constant", [], [value.name], value=tensor)
    if kind == 1 and value.array.dtype == np.float32 and value.array.ndim <= 1 and value.array.size:
        held = value.array.tolist()
        return helper.make_node(
            "Constant", [], [value.name], **{"value_floats" if value.array.ndim else "value_float": held}
        )
    if kind == 2 and value.array.dtype == np.float32:
        return helper.make_tensor(value.name, onnx.TensorProto.FLOAT, value.shape, value.array.ravel().tolist())
    return tensor


def _older(g: Growing, model: onnx.ModelProto) -> tuple[onnx.ModelProto, int]:
    """The model at a drawn opset, or the next newer one that has all its operators."""
    if any(n.domain == EQSAT for n in model.graph.node):
        return ir.to_proto(with_definitions(ir.from_proto(model))), PINNED_OPSET
    dtypes = {v.name: v.array.dtype for v in (*g.values, *g.constants)}
    wished = g.size(opsets.OLDEST, PINNED_OPSET) if g.chance(0.75) else PINNED_OPSET
    for version in range(wished, PINNED_OPSET + 1):
        try:
            older = opsets.at(model, version, dtypes)
            if older.ir_version <= 3 or g.chance(0.05):
                _initializers_as_inputs(older)
            onnx.checker.check_model(older, full_check=True)
        except (RefusedError, onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
            continue
        return older, version
    return model, PINNED_OPSET


def _initializers_as_inputs(model: onnx.ModelProto) -> None:
    for tensor in model.graph.initializer:
        model.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
