"""Models whose kernels are put on a target by hand: composites of its file and plain operators, as regions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper

from eqsat.model.load import load
from eqsat.partition.onnx_nodes import COMPOSITE, REGION, TARGET
from eqsat.schema.opset import IR_VERSION, PINNED_OPSET

DOMAINS = ("", "com.microsoft", "eqsat")


@dataclass
class Regions:
    """Collects regions, each of one kernel or several, as a model that is partitioned.

    Attributes:
        target: Whose regions these are.
    """

    target: str = "dnnl"
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    functions: list[onnx.FunctionProto] = field(default_factory=list)
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    outputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    feed: dict[str, np.ndarray] = field(default_factory=dict)

    def add(
        self,
        graph: onnx.GraphProto,
        feed: Mapping[str, np.ndarray],
        *,
        composite: str = "",
        constant: Sequence[str] = (),
        kernels: Sequence[int] = (),
    ) -> str:
        """A graph as a region; returns the prefix of its inputs and outputs.

        Args:
            graph: Its nodes become the region's.
            feed: Data for its inputs.
            composite: Whose body they are, all in one; otherwise each is a kernel.
            constant: Inputs that become constants.
            kernels: For a composite of several calls in a row, how many nodes belong to each.
        """
        number = len(self.nodes)
        prefix = f"r{number}_"
        operands = [v.name for v in graph.input] + [t.name for t in graph.initializer]
        results = [v.name for v in graph.output]
        imports = [helper.make_opsetid(d, PINNED_OPSET if d == "" else 1) for d in (*DOMAINS, self._kernels)]
        inner = list(graph.node)
        if composite:
            name = f"{composite}_{number}"
            body = helper.make_function(self._kernels, name, operands, results, inner, imports)
            _mark(body, {TARGET: self.target, COMPOSITE: f"{self.target}.{composite}"})
            self.functions.append(body)
            call = helper.make_node(name, operands, results, name=f"{prefix}{composite}", domain=self._kernels)
            _mark(call, {COMPOSITE: f"{self.target}.{composite}"})
            inner = [call]
        else:
            for k, node in enumerate(inner):
                node.name = f"{prefix}{node.op_type}_{k}"
        region = f"{self.target}_{number}"
        domain = f"eqsat.{self.target}"
        function = helper.make_function(domain, region, operands, results, inner, imports)
        _mark(function, {TARGET: self.target, REGION: region})
        self.functions.append(function)
        self.nodes.append(
            helper.make_node(region, [prefix + n for n in operands], [prefix + n for n in results], domain=domain)
        )
        for tensor in graph.initializer:
            copy = onnx.TensorProto()
            copy.CopyFrom(tensor)
            copy.name = prefix + tensor.name
            self.constants.append(copy)
        for value in graph.input:
            name = prefix + value.name
            if value.name in constant:
                self.constants.append(onnx.numpy_helper.from_array(feed[value.name], name))
                continue
            copy = onnx.ValueInfoProto()
            copy.CopyFrom(value)
            copy.name = name
            self.inputs.append(copy)
            self.feed[name] = feed[value.name]
        for value in graph.output:
            copy = onnx.ValueInfoProto()
            copy.CopyFrom(value)
            copy.name = prefix + value.name
            self.outputs.append(copy)
        return prefix

    @property
    def _kernels(self) -> str:
        return f"eqsat.{self.target}.composite"

    def model(self) -> ir.Model:
        graph = helper.make_graph(self.nodes, "regions", self.inputs, self.outputs, self.constants)
        domains = [*DOMAINS, self._kernels, f"eqsat.{self.target}"]
        imports = [helper.make_opsetid(d, PINNED_OPSET if d == "" else 1) for d in domains]
        made = helper.make_model(graph, opset_imports=imports, functions=self.functions, ir_version=IR_VERSION)
        return load(made)


def _mark(proto: onnx.NodeProto | onnx.FunctionProto, marks: Mapping[str, str]) -> None:
    for key, text in marks.items():
        entry = proto.metadata_props.add()
        entry.key, entry.value = key, text
