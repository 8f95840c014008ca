"""Whether rules join two programs over classes, in a small model of their own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper

from eqsat.discover.cuts import Cut, Sides
from eqsat.discover.implied_pairs import joined_classes
from eqsat.egraph.snapshot import Snapshot
from eqsat.model.inference.annotate import annotate
from eqsat.rules.ast import Rule
from eqsat.schema import opset
from eqsat.schema.attributes import default_attrs, to_protos


def joins(sides: Sides, taken: Snapshot, rules: Sequence[Rule]) -> bool:
    """Whether rules join two programs of operands that have the types of the model."""
    written = _Written(taken)
    left, right = (written.value(side) for side in (sides.left, sides.right))
    classes = joined_classes(written.model((left, right)), rules)
    return classes[left] == classes[right]


class _Written:
    """Programs as a model whose inputs are their leaves; constants stay constants."""

    def __init__(self, taken: Snapshot) -> None:
        self._taken = taken
        self._names: dict[object, str] = {}
        self._nodes: list[onnx.NodeProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._constants: list[onnx.TensorProto] = []

    def value(self, cut: Cut) -> str:
        """The name of the value that a program computes."""
        if cut.leaf is not None:
            return self._leaf(cut.leaf)
        operands = tuple("" if o is None else self.value(o) for o in cut.operands)
        key = (cut.op, cut.attrs, operands, cut.outputs)
        if key not in self._names:
            self._names[key] = f"value{len(self._nodes)}"
            defaults = dict(default_attrs(cut.op))
            results = [f"{self._names[key]}_{k}" for k in range(max(1, cut.outputs))]
            node = helper.make_node(cut.op.name, operands, results, domain=cut.op.domain)
            node.attribute.extend(to_protos(tuple((k, v) for k, v in cut.attrs if defaults.get(k) != v), cut.op))
            self._nodes.append(node)
        return f"{self._names[key]}_{cut.output}"

    def model(self, outputs: Sequence[str]) -> ir.Model:
        domains = sorted({"", *(node.domain for node in self._nodes)})
        graph = helper.make_graph(
            self._nodes,
            "sides",
            self._inputs,
            [onnx.ValueInfoProto(name=name) for name in dict.fromkeys(outputs)],
            self._constants,
        )
        imports = [helper.make_opsetid(domain, opset.opset_version(domain)) for domain in domains]
        model = ir.from_proto(helper.make_model(graph, opset_imports=imports, ir_version=opset.IR_VERSION))
        annotate(model)
        return model

    def _leaf(self, eclass: int) -> str:
        if eclass not in self._names:
            name = self._names[eclass] = f"leaf{eclass}"
            array, kind = self._constant(eclass), self._taken.types[eclass]
            if array is not None and kind is not None:
                self._constants.append(ir.to_proto(ir.Tensor(array, dtype=kind.dtype, name=name)))
            elif kind is None:
                self._inputs.append(onnx.ValueInfoProto(name=name))
            else:
                self._inputs.append(helper.make_tensor_value_info(name, int(kind.dtype), kind.shape))
        return self._names[eclass]

    def _constant(self, eclass: int) -> np.ndarray | None:
        known = self._taken.value[eclass]
        if known is not None:
            return known.numpy()
        nodes = (self._taken.nodes[n] for n in self._taken.classes[eclass])
        number = next((n.number for n in nodes if n.kind == "const"), None)
        return None if number is None else self._taken.tables.constants[number].numpy()
