"""Plans for tests: a builder, a seeded generator, and the oracle, which is the same program written out flat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from eqsat.model.attributes import make_attrs, to_protos
from eqsat.model.body import Body, BodyNode
from eqsat.model.opset import IR_VERSION, PINNED_OPSET
from eqsat.model.types import GraphAttr, OpKey, TensorAttr, TensorType
from eqsat.partition.plan import Plan, PlanNode

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
        inferred = onnx.shape_inference.infer_shapes(flat, strict_mode=True, data_prop=True)
        known = {v.name: v for v in (*inferred.graph.value_info, *inferred.graph.input, *inferred.graph.output)}
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
        """The program without any function, each output behind an Identity unless it is an input of its own name."""
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


# ---- random plans ----------------------------------------------------------------------------------

_ACTIVATIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("Relu", {}),
    ("Sigmoid", {}),
    ("LeakyRelu", {"alpha": 0.1}),
    ("LeakyRelu", {"alpha": 0.3}),
    ("HardSigmoid", {"alpha": 0.25, "beta": 0.5}),
    ("Softmax", {"axis": 1}),
    ("Softmax", {"axis": -1}),
)
_NAMES = (
    "Relu_0", "constant_0", "dnnl_0", "cpu_0", "Add_1", "conv1/weights:0", "a b", "ü\n{}", "Identity_0",
    "input_0", "conv_relu", "result_0", "features.0.weight", "%1", '"', "x", "y", "Split_0", "Conv_0_1",
)  # fmt: skip


def random_plan(seed: int, size: int = 18) -> tuple[Plan, onnx.ModelProto]:
    """A program over four-dimensional float tensors: plain operators and composites on three targets, sharing,
    several outputs, optional operands, outputs that are inputs, constants or each other, and names in each other's way.
    """
    rng = np.random.default_rng(seed)
    b = Builder()
    shapes: dict[int, tuple[int, ...]] = {}
    for i in range(int(rng.integers(1, 3))):
        shape = (1, int(rng.choice([2, 4])), 6, 6)
        shapes[b.input(f"x{i}" if rng.random() < 0.7 else _NAMES[rng.integers(len(_NAMES) - 3)] + str(i), shape)] = (
            shape
        )

    def pick(rank_shape: tuple[int, ...] | None = None) -> int:
        ids = [v for v, s in shapes.items() if rank_shape is None or s == rank_shape]
        # Recent values more often, so that programs get deep; old ones sometimes, so that values are shared.
        return ids[-1 - min(int(rng.geometric(0.35)) - 1, len(ids) - 1)]

    def weights(*shape: int) -> int:
        return b.constant(rng.standard_normal(shape).astype(np.float32) * 0.5, _NAMES[rng.integers(len(_NAMES))])

    def number(*shape: int) -> int:
        return b.constant(rng.standard_normal(shape).astype(np.float32))

    def convolution(x: int) -> tuple[dict[str, Any], int, int, tuple[int, ...]]:
        n, c, h, w = shapes[x]
        kernel = int(rng.choice([1, 3])) if min(h, w) >= 3 else 1
        group = c if rng.random() < 0.3 else 1
        out = int(rng.choice([2, 4])) * (1 if group == 1 else c)
        stride = int(rng.choice([1, 1, 2]))
        pad = kernel // 2
        attrs = dict(strides=[stride] * 2, pads=[pad] * 4, group=group, kernel_shape=[kernel] * 2, dilations=[1, 1])
        shape = (n, out, (h + 2 * pad - kernel) // stride + 1, (w + 2 * pad - kernel) // stride + 1)
        return attrs, weights(out, c // group, kernel, kernel), out, shape

    for _ in range(size):
        target = int(rng.integers(len(TARGETS)))
        x = pick()
        shape = shapes[x]
        name = _NAMES[rng.integers(len(_NAMES))] if rng.random() < 0.4 else None
        rule = "some_rule" if rng.random() < 0.2 else ""
        activation, values = _ACTIVATIONS[rng.integers(len(_ACTIVATIONS))]
        match int(rng.integers(14)):
            case 0:
                made = b.node(activation, x, target=target, name=name, rule=rule, **values)
            case 1:
                op = str(rng.choice(["Add", "Mul", "Sub", "Max"]))
                other = pick(shape) if rng.random() < 0.6 else number(1, shape[1], 1, 1)
                made = b.node(op, x, other, target=target, name=name, rule=rule)
            case 2:
                attrs, w, out, shape = convolution(x)
                bias = (number(out),) if rng.random() < 0.5 else ()
                made = b.node("Conv", x, w, *bias, target=target, name=name, **attrs)
            case 3 | 4:
                attrs, w, out, shape = convolution(x)
                biased = rng.random() < 0.5
                nodes = [("Conv", (0, 1, 2) if biased else (0, 1), attrs)]
                inputs = 3 if biased else 2
                nodes.append((activation, (inputs,), values))
                definition = body(inputs, *nodes)
                operands = (x, w, number(out)) if biased else (x, w)
                made = b.composite("conv_act", definition, *operands, target=target, keep=name)
            case 5:
                # The bias is an operand that may be absent.
                attrs, w, out, shape = convolution(x)
                bias = number(out) if rng.random() < 0.5 else None
                definition = body(4, ("Conv", (0, 1, 2), attrs), ("Add", (4, 3)), ("Relu", (5,)))
                made = b.composite("conv_sum", definition, x, w, bias, number(1, out, 1, 1), target=target, keep=name)
            case 6:
                definition = body(2, ("Add", (0, 1)), ("Relu", (2,)))
                made = b.composite("add_relu", definition, x, pick(shape), target=target, keep=name)
            case 7:
                low, high = sorted(rng.standard_normal(2).astype(np.float32))
                bounds = (None, b.constant(high)) if rng.random() < 0.5 else (b.constant(low), None)
                made = b.node("Clip", x, *bounds, target=target, name=name)
            case 8:
                limit = float(rng.choice([1.0, 6.0]))
                definition = body(
                    1, ("Constant", (), constant(0)), ("Constant", (), constant(limit)), ("Clip", (0, 1, 2))
                )
                made = b.composite("relu_n", definition, x, target=target, keep=name)
            case 9:
                half = shape[1] // 2
                if not half or shape[1] % 2:
                    continue
                unused = (int(rng.integers(2)),) if rng.random() < 0.3 else ()
                parts = b.node("Split", x, target=target, outputs=2, unused=unused, axis=1, num_outputs=2)
                for part in parts:
                    if part is not None:
                        shapes[part] = (shape[0], half, *shape[2:])
                continue
            case 10:
                other = pick(shape)
                made = b.node("Concat", x, other, target=target, name=name, axis=1)
                shape = (shape[0], 2 * shape[1], *shape[2:])
                if shape[1] > 16:
                    continue
            case 11:
                width = int(rng.choice([2, 6]))
                definition = body(3, ("MatMul", (0, 1)), ("Add", (3, 2)), ("LeakyRelu", (4,), {"alpha": 0.2}))
                made = b.composite(
                    "matmul_bias", definition, x, weights(shape[3], width), number(width), target=target, keep=name
                )
                shape = (*shape[:3], width)
            case 12:
                if shape[1] % 2:
                    continue
                # Two results, one of them an output of a node with several, and one of its inputs handed through.
                definition = body(
                    1, ("Split", (0,), {"axis": 1, "num_outputs": 2}, 2), ("Relu", (2,)), results=(3, 1, 0)
                )
                first, second, same = b.composite("halves", definition, x, target=target)
                shapes[first] = shapes[second] = (shape[0], shape[1] // 2, *shape[2:])
                made = same
            case _:
                target_shape = b.constant(np.array([0, shape[1], shape[3], shape[2]], np.int64))
                made = b.node("Reshape", x, target_shape, target=target, name=name)
                shape = (*shape[:2], shape[3], shape[2])
        shapes[made] = shape

    read = {v for n in b.nodes for v in n.inputs}
    produced = [v for n in b.nodes for v in n.outputs if v is not None]
    outputs = [v for v in produced if v not in read or rng.random() < 0.15]
    if rng.random() < 0.3:
        outputs.append(b.inputs[0][0])
    if b.constants and rng.random() < 0.3:
        outputs.append(next(iter(b.constants)))
    outputs.extend(v for v in list(outputs) if rng.random() < 0.2)
    if not outputs:
        outputs = [b.inputs[0][0]]
    taken = {name for _, name, *_ in b.inputs}
    for i, v in enumerate(outputs):
        name = b.names.get(v) if rng.random() < 0.5 else None
        if not name or name in taken:
            name = f"out{i}" if f"out{i}" not in taken else f"out_{i}_"
        taken.add(name)
        b.output(v, name)
    return b.build()
