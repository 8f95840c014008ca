"""RNN, GRU and LSTM of float32 in vectors: one matrix product for the inputs of all steps, one a step for the states.

Only the products with the state are sequential (Appleyard et al. 2016, arXiv:1604.01946). All weights are constant and
packed when the program is generated. Both directions run the same code, which threads may share; those of one direction
share its products.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import onnx_ir as ir

from eqsat.codegen import c_types
from eqsat.codegen.isa import Isa
from eqsat.codegen.isa_names import finish
from eqsat.codegen.kernel import Epilogue, Family, GeneratedKernel, Shape, Task, View, Want, Wants, dense_strides
from eqsat.codegen.kernel_stages import END, STAGE
from eqsat.codegen.kernel_text import render
from eqsat.codegen.kernels.loops.family import dtype_of
from eqsat.codegen.kernels.shared.families import register
from eqsat.codegen.kernels.shared.nests import Axis, collapse
from eqsat.codegen.kernels.vectors.epilogue import VectorEpilogue, load, store
from eqsat.codegen.kernels.vectors.implicit_gemm import ImplicitGemm, pack, packed_size, write
from eqsat.codegen.parallel import STAGES
from eqsat.codegen.shape_arithmetic import is_sizes
from eqsat.ops.families.recurrent import Activation, activations
from eqsat.schema.size_questions import typical
from eqsat.schema.types import OpKey

_FLOAT = ir.DataType.FLOAT
_FORMS = {
    "relu": "maximum@({v}, SPLAT@(0.0f))",
    "tanh": "tanh@({v})",
    "sigmoid": "sigmoid@({v})",
    "affine": "FMA@({v}, SPLAT@({p}), SPLAT@({q}))",
    "leakyrelu": "select@(LESS@({v}, SPLAT@(0.0f)), {v} * {p}, {v})",
    "scaledtanh": "({p} * tanh@({v} * {q}))",
    "hardsigmoid": "minimum@(maximum@({v} * {p} + {q}, SPLAT@(0.0f)), SPLAT@(1.0f))",
    "softsign": "({v} / (1.0f + abs@({v})))",
}
_GATED = ("sigmoid", "tanh", "tanh")
_DEFAULTS = {"RNN": ("tanh",), "GRU": ("sigmoid", "tanh"), "LSTM": _GATED, "DynamicQuantizeLSTM": _GATED}
_LENGTHS, _PEEPHOLES = 4, 7


def _found(task: Task) -> list[list[Activation]]:
    weights = task.constant(1)
    assert weights is not None
    return activations(task.attributes, _DEFAULTS[task.operator.name], len(weights))


def accepts_floats(task: Task, *numbers: int) -> bool:
    """Whether these operands and all results are of float32, and sequences and activations have a form here."""
    lengths = task.inputs[_LENGTHS] if task.has(_LENGTHS) else None
    if lengths is not None and (dtype_of(task, _LENGTHS) != ir.DataType.INT32 or is_sizes(lengths)):
        return False
    given = [v for v in (*(task.inputs[k] for k in numbers if task.has(k)), *task.outputs) if v is not None]
    dtypes_given = [v.dtype if isinstance(v, View) else ir.DataType.from_numpy(v.dtype) for v in given]
    if any(dtype != _FLOAT for dtype in dtypes_given) or task.epilogue.steps or any(0 in v.shape for v in given):
        return False
    if task.constant(1) is None or task.constant(2) is None or (task.has(3) and task.constant(3) is None):
        return False
    if not isinstance(task.inputs[0], View):
        return False
    found = _found(task)
    return all(f == found[0] for f in found) and all(a.key in _FORMS for a in found[0])


def _accepts(task: Task) -> bool:
    return accepts_floats(task, 0, 1, 2, 3, 5, 6, 7)


def wants(task: Task) -> Wants:
    rows = tuple(Want(order=tuple(range(len(v.shape)))) if isinstance(v, View) else Want() for v in task.inputs)
    return Wants(rows, tuple(Want() if v is None else Want(order=tuple(range(v.rank))) for v in task.outputs))


@dataclass(frozen=True, slots=True)
class _Product:
    """A product with packed weights: its matrices, and the biases that its sums begin with."""

    matrices: np.ndarray
    bias: np.ndarray

    @property
    def size(self) -> int:
        """Floats of one direction."""
        return packed_size(*self.matrices.shape[1:])

    def packed(self) -> np.ndarray:
        return pack(self.matrices.astype(np.float64), self.bias.astype(np.float64))


def _products(task: Task) -> list[_Product]:
    """Those with the input, with the state, and, of a GRU, with the state that was reset."""
    w, r, b = task.constant(1), task.constant(2), task.constant(3)
    assert w is not None and r is not None
    gates, n = r.shape[1:]
    biases = np.zeros((len(w), 2, gates)) if b is None else b.reshape(len(w), 2, gates).astype(np.float64)
    of_input, of_state = biases[:, 0] + biases[:, 1], np.zeros_like(biases[:, 0])
    if task.operator.name != "GRU":
        return [_Product(w, of_input), _Product(r, of_state)]
    if task.attributes.get("linear_before_reset", 0):
        of_input[:, 2 * n :], of_state[:, 2 * n :] = biases[:, 0, 2 * n :], biases[:, 1, 2 * n :]
        return [_Product(w, of_input), _Product(r, of_state)]
    first, last = slice(0, 2 * n), slice(2 * n, None)
    return [_Product(w, of_input), _Product(r[:, first], of_state[:, first]), _Product(r[:, last], of_state[:, last])]


@dataclass(frozen=True, slots=True)
class HiddenVectors:
    """Whole vectors of a row of hidden elements, or the one that remains."""

    isa: Isa
    first: int
    vectors: int
    count: int

    def at(self, pointer: str, stride: int = 1) -> str:
        moved = f" + j * {self.isa.lanes() * stride}" if self.vectors != 1 else ""
        return f"{pointer}{moved} + {self.first * stride}"

    def load(self, pointer: str, stride: int = 1) -> str:
        return load(self.at(pointer, stride), stride, self.count, self.isa)

    def store(self, pointer: str, value: str, stride: int = 1) -> str:
        return store(self.at(pointer, stride), value, stride, self.count, self.isa)


@dataclass(frozen=True, slots=True)
class HiddenRow:
    """A row of hidden elements of an operand: its address and the distance of the elements."""

    pointer: str
    stride: int


def _place(name: str, strides: Shape, *index: str) -> HiddenRow:
    moves = "".join(f" + (ptrdiff_t){i} * {s}" for i, s in zip(index, strides, strict=False))
    return HiddenRow(f"{name}{moves}", strides[-1])


def _apply(activation: Activation, v: str) -> str:
    numbers = {"p": activation.alpha, "q": activation.beta}
    return _FORMS[activation.key].format(v=v, **{k: c_types.literal(n, _FLOAT) for k, n in numbers.items()})


@dataclass(frozen=True, slots=True)
class Products:
    """Statements that multiply with weights, in a loop over the directions ``d``.

    Attributes:
        kind: RNN, GRU or LSTM.
        directions: How many there are.
        gates: Elements of the sums of a sample.
        n: Elements of a state.
        of_inputs: From ``x0`` to ``projected`` of all steps, biases included.
        of_states: From ``h`` to ``sums``.
        of_reset: From ``reset`` to ``last``; of a GRU whose states are reset before the product.
        scratch: Bytes of working memory of their own, after the one for floats.
        templates: Files of declarations that the statements need.
    """

    kind: str
    directions: int
    gates: int
    n: int
    of_inputs: str
    of_states: str
    of_reset: str = ""
    scratch: int = 0
    templates: tuple[str, ...] = ()


def floats_of(batch: int, time: int, gates: int, n: int) -> int:
    """Elements of the working memory: projected inputs, sums, and three states."""
    return batch * (time * gates + gates + 3 * n)


def steps_of(task: Task) -> tuple[int, int]:
    """The axes of time and of samples in the input."""
    return (1, 0) if task.attributes.get("layout") else (0, 1)


def _generate(task: Task, isa: Isa) -> GeneratedKernel:
    x, found = task.view(0), _products(task)
    of_time, of_batch = steps_of(task)
    time, batch = x.shape[of_time], x.shape[of_batch]
    directions, gates, _ = found[0].matrices.shape
    n = found[1].matrices.shape[2]

    def product(number: int, source: str, pixels: list[Axis], stride: int, target: str) -> str:
        channels, steps = found[number].matrices.shape[1:]
        problem = ImplicitGemm(
            input=source,
            weights=f"weights{number}",
            output=target,
            outer=(),
            pixels=collapse(pixels),
            taps=((steps, stride),),
            channels=channels,
            channel={target: 1},
        )
        made = next(v for v in task.outputs if v is not None)
        epilogue = VectorEpilogue(Epilogue(_FLOAT), made.shape, made.rank - 1, isa)
        moved = f"const float *const weights{number} = w{number} + d * {found[number].size};\n"
        if target == "last":
            moved += f"float *const last = sums + {2 * n};\n"
        text = moved + write(problem, epilogue, isa)
        if directions > 1:
            return text
        # The part of all products that this one is; those with the state are executed for each step.
        part = channels * steps / sum(p.matrices[0].size for p in found) / (typical(time) if number else 1)
        return f"{STAGE.format(part=f'{part:.4g}')}\n{{\n{text}}}\n{END}\n"

    outer = [Axis(time, {"x0": x.strides[of_time], "projected": batch * gates})]
    inner = Axis(batch, {"x0": x.strides[of_batch], "projected": gates})
    rows = [Axis(batch, {"h": n, "sums": gates})]
    again = len(found) > 2
    products = Products(
        task.operator.name,
        directions,
        gates,
        n,
        product(0, "x0", [*outer, inner], x.strides[2], "projected"),
        product(1, "h", rows, 1, "sums"),
        product(2, "reset", [Axis(batch, {"reset": n, "last": gates})], 1, "last") if again else "",
    )
    return cell(task, isa, products, [product.packed() for product in found])


def length_of(task: Task, constants: list[np.ndarray]) -> str:
    """An expression for the steps of sample ``b``; empty if all have all."""
    lengths = task.inputs[_LENGTHS] if task.has(_LENGTHS) else None
    if isinstance(lengths, View):
        return f"x{_LENGTHS}[(ptrdiff_t)b * {lengths.strides[0]}]"
    if lengths is None:
        return ""
    constants.append(np.ascontiguousarray(lengths))
    return f"w{len(constants) - 1}[b]"


def parts_of(n: int, isa: Isa) -> list[HiddenVectors]:
    """Vectors that make up a row."""
    lanes = isa.lanes()
    parts = [HiddenVectors(isa, 0, n // lanes, lanes)] if n >= lanes else []
    if n % lanes:
        parts.append(HiddenVectors(isa, n // lanes * lanes, 1, n % lanes))
    return parts


def cell(
    task: Task, isa: Isa, products: Products, constants: list[np.ndarray], length: str | None = None
) -> GeneratedKernel:
    """The kernel: one step after the other around given products.

    Args:
        task: Of an operator whose operands from 3 to 7 are those of LSTM.
        isa: Instruction set.
        products: With the weights.
        constants: Of the products; others are added.
        length: What :func:`length_of` gave where the products have asked for it.
    """
    kind, x, n = products.kind, task.view(0), products.n
    batch_first = bool(task.attributes.get("layout"))
    of_time, of_batch = steps_of(task)
    time, batch = x.shape[of_time], x.shape[of_batch]

    def given_place(number: int, *index: str) -> HiddenRow | None:
        given = task.inputs[number] if number < len(task.inputs) else None
        if given is None:
            return None
        if isinstance(given, View):
            return _place(f"x{number}", given.strides, *index)
        constants.append(np.ascontiguousarray(given).ravel())
        return _place(f"w{len(constants) - 1}", dense_strides(given.shape), *index)

    every, last = (("b", "t", "d"), ("b", "d")) if batch_first else (("t", "d", "b"), ("d", "b"))
    states = [given_place(number, *last) for number in ((5, 6) if kind == "LSTM" else (5,))]
    limit = task.attributes.get("clip")
    outputs = [
        None if y is None else _place(f"y{k}", y.strides, *(last if k else every)) for k, y in enumerate(task.outputs)
    ]
    text = render(
        "vectors/recurrent.c.jinja",
        kind=kind,
        n=n,
        gates=products.gates,
        time=time,
        batch=batch,
        directions=products.directions,
        direction=str(task.attributes.get("direction", "forward")),
        stages=STAGES,
        of_inputs=products.of_inputs,
        of_states=products.of_states,
        of_reset=products.of_reset,
        after=not products.of_reset,
        states=states,
        length=length_of(task, constants) if length is None else length,
        peepholes=given_place(_PEEPHOLES, "d") if kind == "LSTM" else None,
        coupled=bool(task.attributes.get("input_forget")),
        limit=c_types.literal(limit, _FLOAT) if limit else "",
        outputs=outputs,
        parts=parts_of(n, isa),
        f=[partial(_apply, a) for a in _found(task)[0]],
    )
    body, helpers = finish(text, isa, *products.templates)
    scratch = 4 * floats_of(batch, time, products.gates, n) + products.scratch
    return GeneratedKernel(body, tuple(constants), scratch, helpers)


register(
    Family(
        "recurrent vectors",
        (OpKey("", "RNN"), OpKey("", "GRU"), OpKey("", "LSTM")),
        _accepts,
        _generate,
        wants,
        rank=10,
    )
)
