"""Random networks with what layouts, halos and memory plans have to cope with."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SIZES = (1, 2, 3, 5, 8, 16, 17, 24)


class Network:
    """Grows a graph of float32 images and vectors."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.values: dict[str, tuple[int, ...]] = {}
        self.used: set[str] = set()

    def pick(self, rank: int | None = None) -> str:
        fit = [name for name, shape in self.values.items() if rank is None or len(shape) == rank]
        weights = np.arange(1, len(fit) + 1, dtype=float) ** 2
        return str(self.rng.choice(fit, p=weights / weights.sum()))

    def integer(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def constant(self, array: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def draw(self, *shape: int) -> str:
        fan = max(int(np.prod(shape[1:])), 1)
        return self.constant((self.rng.standard_normal(shape) / np.sqrt(fan)).astype(np.float32))

    def add(self, op: str, inputs: list[str], shapes: list[tuple[int, ...]], **attributes: object) -> list[str]:
        outputs = [f"v{len(self.values) + i}" for i in range(len(shapes))]
        self.nodes.append(helper.make_node(op, inputs, outputs, name=f"n{len(self.nodes)}", **attributes))
        self.values.update(zip(outputs, shapes, strict=True))
        self.used.update(inputs)
        return outputs

    def input(self, *shape: int) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        self.values[name] = shape
        return name

    # ---- one operator each -----------------------------------------------------------------------------

    def conv(self) -> None:
        x = self.pick(4)
        n, c, h, w = self.values[x]
        groups = [g for g in (1, 1, 2, c) if c % g == 0]
        group = int(self.rng.choice(groups))
        out = group * self.integer(1, 3) if group > 1 else int(self.rng.choice(SIZES))
        kh, kw = self.integer(1, min(3, h)), self.integer(1, min(3, w))
        pads = [self.integer(0, kh - 1), self.integer(0, kw - 1), self.integer(0, kh - 1), self.integer(0, kw - 1)]
        strides = [self.integer(1, 2), self.integer(1, 2)]
        shape = (n, out, (h + pads[0] + pads[2] - kh) // strides[0] + 1, (w + pads[1] + pads[3] - kw) // strides[1] + 1)
        inputs = [x, self.draw(out, c // group, kh, kw)] + ([self.draw(out)] if self.integer(0, 1) else [])
        self.add("Conv", inputs, [shape], group=group, pads=pads, strides=strides, kernel_shape=[kh, kw])

    def residual(self) -> None:
        """A convolution whose operand is added to its result, as an operand that dies with it or not."""
        x = self.pick(4)
        n, c, h, w = self.values[x]
        group = int(self.rng.choice([1, c]))
        (y,) = self.add("Conv", [x, self.draw(c, c // group, 3, 3)], [(n, c, h, w)], group=group, pads=[1, 1, 1, 1])
        (s,) = self.add("Add", [y, x] if self.integer(0, 1) else [x, y], [(n, c, h, w)])
        if self.integer(0, 1):
            self.add("Relu", [s], [(n, c, h, w)])

    def pool(self) -> None:
        x = self.pick(4)
        n, c, h, w = self.values[x]
        k = self.integer(1, min(3, h, w))
        pad = self.integer(0, k - 1)
        s = self.integer(1, 2)
        shape = (n, c, (h + 2 * pad - k) // s + 1, (w + 2 * pad - k) // s + 1)
        op = str(self.rng.choice(["MaxPool", "AveragePool"]))
        self.add(op, [x], [shape], kernel_shape=[k, k], pads=[pad] * 4, strides=[s, s])

    def unary(self) -> None:
        x = self.pick()
        op = str(self.rng.choice(["Relu", "Sigmoid", "Tanh", "Neg", "Abs"]))
        self.add(op, [x], [self.values[x]])

    def binary(self) -> None:
        x = self.pick()
        shape = self.values[x]
        same = [n for n, s in self.values.items() if s == shape]
        op = str(self.rng.choice(["Add", "Mul", "Sub"]))
        kind = self.integer(0, 3)
        if kind == 0 and len(shape) == 4:
            other = self.draw(shape[1], 1, 1)
        elif kind == 1:
            other = self.draw(*shape[-1:]) if shape else self.draw(1)
        else:
            other = str(self.rng.choice(same))
        operands = [x, other] if self.integer(0, 1) else [other, x]
        self.add(op, operands, [shape])

    def concat(self) -> None:
        x = self.pick()
        shape = self.values[x]
        axis = self.integer(0, len(shape) - 1)
        fit = [n for n, s in self.values.items() if len(s) == len(shape) and _but(s, axis) == _but(shape, axis)]
        chosen = [x, *(str(n) for n in self.rng.choice(fit, self.integer(1, 2)))]
        total = sum(self.values[n][axis] for n in chosen)
        if total > 64:
            return
        self.add("Concat", chosen, [(*shape[:axis], total, *shape[axis + 1 :])], axis=axis)

    def split(self) -> None:
        x = self.pick()
        shape = self.values[x]
        axis = self.integer(0, len(shape) - 1)
        if shape[axis] < 2:
            return
        first = self.integer(1, shape[axis] - 1)
        parts = [first, shape[axis] - first]
        shapes = [(*shape[:axis], n, *shape[axis + 1 :]) for n in parts]
        self.add("Split", [x, self.constant(np.array(parts, np.int64))], shapes, axis=axis)

    def slice(self) -> None:
        x = self.pick()
        shape = self.values[x]
        axis = self.integer(0, len(shape) - 1)
        step = int(self.rng.choice([1, 1, 2, -1]))
        start = self.integer(0, shape[axis] - 1)
        stop = 10**6 if step > 0 else -(10**6)
        count = len(range(shape[axis])[start::step])
        parameters = [self.constant(np.array([v], np.int64)) for v in (start, stop, axis, step)]
        self.add("Slice", [x, *parameters], [(*shape[:axis], count, *shape[axis + 1 :])])

    def transpose(self) -> None:
        x = self.pick()
        shape = self.values[x]
        perm = [int(p) for p in self.rng.permutation(len(shape))]
        self.add("Transpose", [x], [tuple(shape[p] for p in perm)], perm=perm)

    def reshape(self) -> None:
        x = self.pick()
        shape = self.values[x]
        choices = [(*shape, 1), (1, *shape), tuple(reversed(shape)), (int(np.prod(shape)),)]
        if len(shape) == 4:
            n, c, h, w = shape
            choices += [(n, c, h * w), (n * c, h, w), (n, h, w, c)] + ([(n, 2, c // 2, h, w)] if c % 2 == 0 else [])
        if len(shape) == 5:
            choices.append((shape[0], shape[1] * shape[2], *shape[3:]))
        to = choices[self.integer(0, len(choices) - 1)]
        if len(to) > 5:
            return
        self.add("Reshape", [x, self.constant(np.array(to, np.int64))], [to])

    def pad(self) -> None:
        x = self.pick(4)
        n, c, h, w = self.values[x]
        a, b = self.integer(0, 2), self.integer(0, 2)
        pads = self.constant(np.array([0, 0, a, b, 0, 0, b, a], np.int64))
        self.add("Pad", [x, pads], [(n, c, h + a + b, w + a + b)])

    def matmul(self) -> None:
        x = self.pick()
        shape = self.values[x]
        if len(shape) < 2:
            return
        k, out = shape[-1], int(self.rng.choice(SIZES))
        self.add("MatMul", [x, self.draw(k, out)], [(*shape[:-1], out)])

    # ---- the model -------------------------------------------------------------------------------------

    def model(self, count: int) -> onnx.ModelProto:
        """A model of about so many nodes; what nobody reads is an output, and some of the rest."""
        shape = (self.integer(1, 2), int(self.rng.choice([2, 3, 4, 8, 16])), self.integer(3, 9), self.integer(3, 9))
        self.input(*shape)
        if self.integer(0, 1):
            self.input(*shape)
        steps = [self.conv, self.conv, self.residual, self.residual, self.pool, self.unary, self.unary]
        steps += [self.binary, self.binary, self.concat, self.split, self.slice, self.transpose, self.reshape]
        steps += [self.pad, self.matmul]
        for _ in range(count):
            steps[self.integer(0, len(steps) - 1)]()
        computed = [name for name in self.values if name.startswith("v")]
        if not computed:
            self.unary()
            computed = [name for name in self.values if name.startswith("v")]
        results = [name for name in computed if name not in self.used or self.integer(0, 7) == 0]
        outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, self.values[name]) for name in results]
        graph = helper.make_graph(self.nodes, "random", self.inputs, outputs, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def _but(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return (*shape[:axis], *shape[axis + 1 :])


def random_model(seed: int, count: int = 14) -> onnx.ModelProto:
    """A model by its seed."""
    return Network(seed).model(count)
