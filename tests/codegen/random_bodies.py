"""Random networks inside of control flow: as branches, as the body of a loop or scan, as branches inside of a loop."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.codegen.random_graphs import random_model

Info = onnx.ValueInfoProto


class Copies:
    """Copies of a network that read given values instead of its inputs.

    Args:
        network: To copy.
        captured: Whether its weights are constants of the main graph, which all copies read.
    """

    def __init__(self, network: onnx.GraphProto, captured: bool) -> None:
        self.network = network
        self.captured = captured

    @property
    def outer(self) -> list[onnx.TensorProto]:
        """Constants of the main graph."""
        return list(self.network.initializer) if self.captured else []

    def graph(
        self,
        prefix: str,
        given: Mapping[str, str],
        inputs: list[Info],
        before: list[onnx.NodeProto],
        results: list[Info],
        *,
        inside: list[onnx.NodeProto] | None = None,
    ) -> onnx.GraphProto:
        """A body: some nodes, the copy or what contains it, and the network's outputs after other results."""
        nodes = inside if inside is not None else self.nodes(prefix, given)
        constants = [] if self.captured or inside is not None else self.constants(prefix)
        outputs = [info(prefix + y.name, shape(y)) for y in self.network.output]
        return helper.make_graph([*before, *nodes], f"{prefix}body", inputs, [*results, *outputs], constants)

    def constants(self, prefix: str) -> list[onnx.TensorProto]:
        return [numpy_helper.from_array(numpy_helper.to_array(t), prefix + t.name) for t in self.network.initializer]

    def nodes(self, prefix: str, given: Mapping[str, str]) -> list[onnx.NodeProto]:
        weights = {t.name: t.name for t in self.network.initializer} if self.captured else {}
        names = {"": "", **{x.name: x.name for x in self.network.input}, **weights, **given}
        made = []
        for node in self.network.node:
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            copy.input[:] = [names.get(x, prefix + x) for x in node.input]
            copy.output[:] = [prefix + y for y in node.output]
            made.append(copy)
        return made

    def branches(self, prefix: str, given: Mapping[str, str]) -> onnx.NodeProto:
        """An If that applies the network to its operands, or to the first of them negated."""
        first = self.network.input[0].name
        source = given.get(first, first)
        other = {**given, first: f"{prefix}e_negative"}
        negated = [helper.make_node("Neg", [source], [f"{prefix}e_negative"])]
        return helper.make_node(
            "If",
            ["c"],
            [prefix + y.name for y in self.network.output],
            then_branch=self.graph(f"{prefix}t_", given, [], [], []),
            else_branch=self.graph(f"{prefix}e_", other, [], negated, []),
        )


def in_bodies(seed: int, count: int = 9) -> onnx.ModelProto:
    """A model by its seed."""
    rng = np.random.default_rng(seed)
    network = random_model(seed, count).graph
    copies = Copies(network, captured=bool(rng.integers(0, 2)))
    inputs, outer, kind = list(network.input), copies.outer, seed % 4
    if kind in (0, 3):
        inputs.append(helper.make_tensor_value_info("c", TensorProto.BOOL, ()))
    if kind == 0:
        node = copies.branches("out_", {})
        results = [info("out_" + y.name, shape(y)) for y in network.output]
    elif kind == 1:
        node, inputs, results = _scan(copies, rng)
    else:
        rounds = int(rng.integers(1, 4))
        outer.append(numpy_helper.from_array(np.array(rounds, np.int64), "rounds"))
        node, results = _loop(copies, rounds, nested=kind == 3)
    graph = helper.make_graph([node], "random", inputs, results, outer)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def _loop(copies: Copies, rounds: int, *, nested: bool) -> tuple[onnx.NodeProto, list[Info]]:
    network = copies.network
    first = network.input[0]
    given = {first.name: "state"}
    before = [
        helper.make_node("Identity", ["go"], ["go_out"]),
        helper.make_node("Tanh", ["state"], ["bent"]),
        helper.make_node("Sub", [first.name, "bent"], ["state_out"]),
    ]
    inputs = [
        helper.make_tensor_value_info("round", TensorProto.INT64, ()),
        helper.make_tensor_value_info("go", TensorProto.BOOL, ()),
        info("state", shape(first)),
    ]
    own = [helper.make_tensor_value_info("go_out", TensorProto.BOOL, ()), info("state_out", shape(first))]
    inside = [copies.branches("b_", given)] if nested else None
    body = copies.graph("b_", given, inputs, before, own, inside=inside)
    results = [info("last", shape(first)), *(info(f"out_{y.name}", (rounds, *shape(y))) for y in network.output)]
    return helper.make_node("Loop", ["rounds", "", first.name], [y.name for y in results], body=body), results


def _scan(copies: Copies, rng: np.random.Generator) -> tuple[onnx.NodeProto, list[Info], list[Info]]:
    network = copies.network
    rounds, cut = int(rng.integers(1, 4)), [x.name for x in network.input]
    axes = [int(rng.integers(0, len(shape(x)) + 1)) for x in network.input]
    out_axes = [int(rng.integers(-1, len(shape(y)) + 1)) for y in network.output]
    given = {name: f"b_{name}" for name in cut}
    body = copies.graph("b_", given, [info(f"b_{x.name}", shape(x)) for x in network.input], [], [])
    inputs = [info(x.name, along(shape(x), axis, rounds)) for x, axis in zip(network.input, axes, strict=True)]
    results = [
        info(f"out_{y.name}", along(shape(y), axis, rounds)) for y, axis in zip(network.output, out_axes, strict=True)
    ]
    node = helper.make_node(
        "Scan",
        cut,
        [y.name for y in results],
        body=body,
        num_scan_inputs=len(cut),
        scan_input_axes=axes,
        scan_input_directions=[int(rng.integers(0, 2)) for _ in cut],
        scan_output_axes=out_axes,
        scan_output_directions=[int(rng.integers(0, 2)) for _ in results],
    )
    return node, inputs, results


def info(name: str, sizes: tuple[int, ...]) -> Info:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, sizes)


def shape(value: Info) -> tuple[int, ...]:
    return tuple(d.dim_value for d in value.type.tensor_type.shape.dim)


def along(sizes: tuple[int, ...], axis: int, count: int) -> tuple[int, ...]:
    """The shape of so many tensors put together along an axis."""
    place = axis % (len(sizes) + 1)
    return (*sizes[:place], count, *sizes[place:])
