"""The weights of RNN, GRU and LSTM in vectors: packed with the program where they are constant, else in each run.

Both matrices and the biases may be computed, each by itself: by a network that makes them for another one, or by
operators that unpack what a file has. Packing costs one pass; then all steps read panels.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import onnx_ir as ir

from eqsat.codegen.isa import Isa
from eqsat.codegen.kernel import Epilogue, Task, View
from eqsat.codegen.kernels.vectors.epilogue import VectorEpilogue, preceded
from eqsat.codegen.kernels.vectors.implicit_gemm import Packed, pack, packed_size
from eqsat.codegen.kernels.vectors.matmul import Matrix, packing

_FLOAT = ir.DataType.FLOAT
_W, _R, _B = 1, 2, 3


@dataclass(frozen=True, slots=True)
class WeightProduct:
    """A product with packed weights.

    Attributes:
        name: Of the pointer to the weights.
        channels: Sums.
        steps: Products of a sum.
        declared: Statements that define the pointers, in a loop over the directions ``d``.
        layout: Of the weights.
        bias: Name of the pointer to biases that are not among the weights, or empty.
    """

    name: str
    channels: int
    steps: int
    declared: str
    layout: Packed
    bias: str = ""

    def epilogue(self, task: Task, isa: Isa) -> VectorEpilogue:
        """Adds the biases."""
        made = next(v for v in task.outputs if v is not None)
        added = []
        if self.bias:
            # Along the vectors only.
            added.append(("Add", View(_FLOAT, made.shape, (*(0 for _ in made.shape[1:]), 1))))
        return VectorEpilogue(preceded(Epilogue(_FLOAT), added), made.shape, made.rank - 1, isa, names={0: self.bias})


class RecurrentWeights:
    """All products of an operator: with the input, with the state, and, of a GRU, with the state that was reset.

    Args:
        task: An RNN, GRU or LSTM.
        isa: Instruction set.
        start: Bytes of working memory that are used already.

    Attributes:
        products: In this order.
        constants: Of the kernel.
        setup: Statements that pack what is computed, in a loop over the directions ``d``.
        end: Bytes of working memory that are used.
    """

    def __init__(self, task: Task, isa: Isa, start: int) -> None:
        self.task, self.isa, self.end = task, isa, start
        self.constants: list[np.ndarray] = []
        self.setup = ""
        w, r = task.inputs[_W], task.inputs[_R]
        assert w is not None and r is not None
        (self.directions, self.gates, _), n = w.shape, r.shape[2]
        ends = [2 * n] if task.operator.name == "GRU" else []
        # A GRU adds the last third of the state's biases before it resets the sums, or after.
        late = 2 * n if ends and task.attributes.get("linear_before_reset", 0) else self.gates
        self.products = [self._product(_W, 0, self.gates, late)]
        cuts = [0, *([] if late < self.gates else ends), self.gates]
        self.products += [self._product(_R, a, b, late) for a, b in pairwise(cuts)]

    def _product(self, operand: int, first: int, last: int, late: int) -> WeightProduct:
        """That with some rows of W or R."""
        given, number = self.task.inputs[operand], 0 if operand == _W else 1 + (first > 0)
        name, channels = f"weights{number}", last - first
        biases = self._biases(operand, first, last, late)
        if isinstance(given, View):
            matrix = Matrix(f"x{operand}", (given.shape[2], channels), (given.strides[2], given.strides[1]))
            moved = f" + (ptrdiff_t)d * {given.strides[0]} + {first * given.strides[1]}"
            text, size = packing(matrix, moved, self.isa)
            declared = f"float *const {name} = {self._place(size)};\n"
            self.setup += f"{{\n{declared}float *restrict panels = {name};\n{text}}}\n"
            bias, more = self._added(number, biases, channels)
            return WeightProduct(name, channels, given.shape[2], declared + more, Packed(bias=False), bias)
        assert given is not None
        matrices = given[:, first:last].astype(np.float64)
        inside = isinstance(biases, np.ndarray)
        self.constants.append(pack(matrices, biases if isinstance(biases, np.ndarray) else None))
        size = packed_size(channels, matrices.shape[2], bias=inside)
        declared = f"const float *const {name} = w{len(self.constants) - 1} + d * {size};\n"
        bias, more = ("", "") if inside else self._added(number, biases, channels)
        return WeightProduct(name, channels, matrices.shape[2], declared + more, Packed(bias=inside), bias)

    def _place(self, size: int) -> str:
        """Working memory."""
        at, self.end = self.end, self.end + size
        return f"(float *)((unsigned char *)scratch + {at})"

    def _biases(self, operand: int, first: int, last: int, late: int) -> np.ndarray | list[tuple[int, int, str]]:
        """Those of some sums: ``[directions, sums]``, or (first, end, C of sum ``j``), where not all are zero."""
        b, gates = self.task.inputs[_B] if self.task.has(_B) else None, self.gates
        if isinstance(b, View):

            def element(part: int) -> str:
                return f"x{_B}[(ptrdiff_t)d * {b.strides[0]} + ((ptrdiff_t)j + {part * gates}) * {b.strides[1]}]"

            if operand == _W:
                sums = [(0, late, f"{element(0)} + {element(1)}"), (late, gates, element(0))]
            else:
                sums = [(late, gates, element(1))]
            return [s for s in sums if s[0] < s[1]]
        full = np.zeros((self.directions, 2, gates)) if b is None else b.astype(np.float64)
        full = full.reshape(self.directions, 2, gates)
        of_input, of_state = full[:, 0] + full[:, 1], np.zeros_like(full[:, 0])
        of_input[:, late:], of_state[:, late:] = full[:, 0, late:], full[:, 1, late:]
        return (of_input if operand == _W else of_state)[:, first:last]

    def _added(self, number: int, biases: np.ndarray | list[tuple[int, int, str]], channels: int) -> tuple[str, str]:
        """The pointer to biases that a product adds to its sums, and its definition."""
        name = f"bias{number}"
        if isinstance(biases, np.ndarray):
            if not biases.any():
                return "", ""
            self.constants.append(np.ascontiguousarray(biases, np.float32).ravel())
            return name, f"const float *const {name} = w{len(self.constants) - 1} + d * {channels};\n"
        if not biases:
            return "", ""
        declared = f"float *const {name} = {self._place(4 * channels)};\n"
        lines = [f"{{\n{declared}"]
        if biases[0][0]:
            lines.append(f"for (size_t j = 0; j < {biases[0][0]}; j++) {name}[j] = 0.0f;\n")
        lines += [f"for (size_t j = {a}; j < {b}; j++) {name}[j] = {text};\n" for a, b, text in biases]
        self.setup += "".join([*lines, "}\n"])
        return name, declared
