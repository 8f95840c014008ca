"""Plans for tests: by hand, from a model, and the oracle, which is the same program written out flat."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from eqsat.partition.plan import Plan, PlanNode
from eqsat.schema.attributes import captured_values, make_attrs, op_key, to_attrs, to_protos
from eqsat.schema.body import Body, BodyNode
from eqsat.schema.opset import IR_VERSION, PINNED_OPSET
from eqsat.schema.types import GraphAttr, OpKey, TensorAttr, TensorType

TARGETS = ("cpu", "dnnl", "npu")


def key(name: str) -> OpKey:
    domain, _, rest = name.rpartition(".")
    return OpKey(domain, rest)


def body(inputs: int, *nodes: tuple[Any, ...], results: tuple[int, ...] | None = None) -> Body:
    """A body of ``(operator, inputs, attributes, number of outputs)``, the latter two optional."""
    made = []
    for op, operands, *rest in nodes:
        attrs = rest[0] if rest else {}
        made.append(BodyNode(key(op), make_attrs(key(op), attrs), tuple(operands), rest[1] if len(rest) > 1 else 1))
    last = inputs + sum(n.outputs for n in made) - 1
    return Body(inputs, tuple(made), results if results is not None else (last,))


def constant(value: Any, dtype: Any = np.float32) -> dict[str, Any]:
    """Attributes of a Constant node."""
    return {"value": TensorAttr(np.asarray(value, dtype), ir.tensor(np.asarray(value, dtype)).dtype)}


class Builder:
    """Collects a plan value by value; types come from ONNX's own inference over the flat model."""

    def __init__(self, targets: Sequence[str] = TARGETS) -> None:
        self.targets = tuple(targets)
        self.count = 0
        self.nodes: list[PlanNode] = []
        self.inputs: list[tuple[int, str, int, tuple[Any, ...]]] = []
        self.outputs: list[tuple[int, str]] = []
        self.constants: dict[int, np.ndarray] = {}
        self.names: dict[int, str] = {}
        self.subgraph_names: dict[str, int] = {}

    def _new(self) -> int:
        self.count += 1
        return self.count - 1

    def input(self, name: str, shape: tuple[Any, ...], dtype: int = TensorProto.FLOAT) -> int:
        vid = self._new()
        self.inputs.append((vid, name, dtype, shape))
        return vid

    def constant(self, array: Any, name: str | None = None) -> int:
        vid = self._new()
        self.constants[vid] = np.asarray(array)
        if name:
            self.names[vid] = name
        return vid

    def node(
        self,
        op: str,
        *inputs: int | None,
        target: int = 0,
        outputs: int = 1,
        unused: Sequence[int] = (),
        name: str | None = None,
        rule: str = "",
        **attrs: Any,
    ) -> Any:
        """Adds an operator; returns its value, or all of them where it has several outputs."""
        made = make_attrs(key(op), attrs)
        captured = dict.fromkeys(n for _, v in made if isinstance(v, GraphAttr) for n in v.captured)
        operands = (*inputs, *(self.subgraph_names[n] for n in captured))
        return self._add(key(op), made, operands, target, outputs, unused, None, name, rule)

    def composite(
        self, name: str, definition: Body, *inputs: int | None, target: int = 1, keep: str | None = None
    ) -> Any:
        op = OpKey(self.targets[target], name)
        return self._add(op, (), inputs, target, len(definition.results), (), definition, keep, "")

    def _add(
        self,
        op: OpKey,
        attrs: Any,
        inputs: tuple[int | None, ...],
        target: int,
        outputs: int,
        unused: Sequence[int],
        definition: Body | None,
        name: str | None,
        rule: str,
    ) -> Any:
        ids = tuple(None if i in unused else self._new() for i in range(outputs))
        self.nodes.append(PlanNode(op, attrs, inputs, ids, target, definition, cost=1e-6 * len(self.nodes), rule=rule))
        if name:
            self.names[next(v for v in ids if v is not None)] = name
        return ids[0] if outputs == 1 else ids

    def output(self, vid: int, name: str) -> None:
        self.outputs.append((vid, name))

    def build(self, dispatch: Sequence[float] | None = None) -> tuple[Plan, onnx.ModelProto]:
        """The plan, and its flat model; the plan's outputs are declared as in that."""
        flat = self.flat()
        inferred = onnx.shape_inference.infer_shapes(flat, strict_mode=True)
        known = {v.name: v for v in (*inferred.graph.value_info, *inferred.graph.output, *inferred.graph.input)}
        types: dict[int, TensorType] = {v: TensorType(ir.tensor(a).dtype, a.shape) for v, a in self.constants.items()}
        for vid in range(self.count):
            info = known.get(self.flat_name(vid))
            if info is not None and info.type.HasField("tensor_type"):
                value = ir.from_proto(info)
                if value.dtype is not None:
                    shape = value.shape
                    dims = None if shape is None else tuple(d if isinstance(d, int) else d.value for d in shape)
                    types[vid] = TensorType(value.dtype, dims)
        for out in flat.graph.output:
            out.CopyFrom(known[out.name])
        original = ir.from_proto(flat)
        inputs = tuple((vid, v) for (vid, *_), v in zip(self.inputs, original.graph.inputs, strict=True))
        outputs = tuple((vid, v) for (vid, _), v in zip(self.outputs, original.graph.outputs, strict=True))
        plan = Plan(
            targets=self.targets,
            dispatch=tuple(dispatch or (0.0, *(1e-5 * (i + 1) for i in range(len(self.targets) - 1)))),
            nodes=tuple(self.nodes),
            inputs=inputs,
            outputs=outputs,
            constants={vid: ir.tensor(array, name=f"t{vid}") for vid, array in self.constants.items()},
            types=types,
            names=self.names,
            subgraph_names=self.subgraph_names,
        )
        return plan, flat

    # ---- the oracle -----------------------------------------------------------------------------

    def flat_name(self, vid: int) -> str:
        if any(vid == v for v, *_ in self.inputs):
            return next(name for v, name, *_ in self.inputs if v == vid)
        captured = next((n for n, v in self.subgraph_names.items() if v == vid), None)
        return captured or f"§{vid}"

    def flat(self) -> onnx.ModelProto:
        """The program without any function, each output after an Identity unless it is an input of its own name."""
        nodes: list[onnx.NodeProto] = []
        for k, node in enumerate(self.nodes):
            captured = len(dict.fromkeys(n for _, v in node.attrs if isinstance(v, GraphAttr) for n in v.captured))
            operands = node.inputs[: len(node.inputs) - captured]
            read = ["" if v is None else self.flat_name(v) for v in operands]
            written = [f"§{k}unused{i}" if v is None else self.flat_name(v) for i, v in enumerate(node.outputs)]
            if node.body is None:
                nodes.append(_flat_node(node.op, node.attrs, read, written))
            else:
                nodes.extend(_expand(node.body, read, written, f"§{k}_"))
        outputs = []
        for vid, name in self.outputs:
            if name != self.flat_name(vid) and name not in outputs:
                nodes.append(helper.make_node("Identity", [self.flat_name(vid)], [name]))
            outputs.append(name)
        graph = helper.make_graph(
            nodes,
            "random plan",
            [helper.make_tensor_value_info(name, dtype, shape) for _, name, dtype, shape in self.inputs],
            [onnx.ValueInfoProto(name=name) for name in outputs],
            initializer=[numpy_helper.from_array(a, self.flat_name(v)) for v, a in self.constants.items()],
        )
        imports = [helper.make_opsetid("", PINNED_OPSET)]
        return helper.make_model(graph, opset_imports=imports, ir_version=IR_VERSION)


def _flat_node(op: OpKey, attrs: Any, read: list[str], written: list[str]) -> onnx.NodeProto:
    while read and not read[-1]:
        read = read[:-1]
    node = helper.make_node(op.name, read, written, domain=op.domain)
    node.attribute.extend(to_protos(attrs, op))
    return node


def _expand(definition: Body, read: list[str], written: list[str], prefix: str) -> list[onnx.NodeProto]:
    names = list(read)
    nodes = []
    for node in definition.nodes:
        made = [f"{prefix}{len(names) + i}" for i in range(node.outputs)]
        nodes.append(_flat_node(node.op, node.attrs, ["" if v is None else names[v] for v in node.inputs], made))
        names.extend(made)
    for name, v in zip(written, definition.results, strict=True):
        nodes.append(helper.make_node("Identity", [names[v]], [name]))
    return nodes


# ---- running -------------------------------------------------------------------------------------


def run_ort(model: onnx.ModelProto, feeds: dict[str, np.ndarray], *, optimize: bool = False) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    level = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimize else level.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def random_feeds(model: onnx.ModelProto, seed: int) -> dict[str, np.ndarray]:
    """Arrays for the inputs of a model; symbolic dimensions become 2."""
    rng = np.random.default_rng(seed)
    feeds = {}
    for value in model.graph.input:
        shape = [d.dim_value if d.HasField("dim_value") else 2 for d in value.type.tensor_type.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        if dtype == np.bool_:
            feeds[value.name] = np.asarray(rng.integers(0, 2, shape), bool)
        elif np.issubdtype(dtype, np.integer):
            feeds[value.name] = np.asarray(rng.integers(0, 5, shape), dtype)
        else:
            feeds[value.name] = np.asarray(rng.standard_normal(shape), dtype)
    return feeds


# ---- from a model ----------------------------------------------------------------------------------


def plan_of(
    model: ir.Model, target_of: Callable[[ir.Node], int] = lambda _: 0, targets: Sequence[str] = TARGETS
) -> Plan:
    """The plan that computes a model as it stands, each node on the target that is given for it."""
    number: dict[ir.Value, int] = {}

    def vid(value: ir.Value) -> int:
        return number.setdefault(value, len(number))

    inputs = tuple((vid(v), v) for v in model.graph.inputs if v.name not in model.graph.initializers)
    constants = {vid(v): v.const_value for v in model.graph.initializers.values() if v.const_value is not None}
    nodes = []
    subgraph_names: dict[str, int] = {}
    for node in model.graph:
        attrs = to_attrs(node)
        captured = {
            c.name or "": vid(c) for _, a in attrs if isinstance(a, GraphAttr) for c in captured_values(a.graph)
        }
        subgraph_names.update(captured)
        operands = [None if v is None else vid(v) for v in node.inputs]
        outputs = tuple(None if not v.name else vid(v) for v in node.outputs)
        nodes.append(PlanNode(op_key(node), attrs, (*operands, *captured.values()), outputs, target_of(node)))
    outputs = tuple((vid(v), v) for v in model.graph.outputs)
    types = {}
    for value, k in number.items():
        if isinstance(value.type, ir.TensorType):
            shape = value.shape
            dims = None if shape is None else tuple(d if isinstance(d, int) else d.value for d in shape)
            types[k] = TensorType(value.type.dtype, dims)
    return Plan(
        targets=tuple(targets),
        dispatch=(0.0, *(1e-5,) * (len(targets) - 1)),
        nodes=tuple(nodes),
        inputs=inputs,
        outputs=outputs,
        constants=constants,
        types=types,
        names={k: v.name for v, k in number.items() if v.name},
        subgraph_names=subgraph_names,
    )
