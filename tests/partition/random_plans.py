"""Seeded random plans over four-dimensional float tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from eqsat.partition.plan import Plan
from tests.partition.plans import TARGETS, Builder, body, constant

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
        attrs = {
            "strides": [stride] * 2,
            "pads": [pad] * 4,
            "group": group,
            "kernel_shape": [kernel] * 2,
            "dilations": [1, 1],
        }
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
