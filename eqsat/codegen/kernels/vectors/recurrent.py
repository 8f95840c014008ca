"""RNN, GRU and LSTM of float32 in vectors: one matrix product for the inputs of all steps, one a step for the states.

Only the products with the state are sequential (Appleyard et al. 2016, arXiv:1604.01946). All weights are constant and
packed when the program is generated. Both directions run the same code, which threads may share.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import onnx_ir as ir

from eqsat.codegen import dtypes
from eqsat.codegen.isa import Isa
from eqsat.codegen.kernel import Epilogue, Family, Kernel, Shape, Task, View, Want, Wants, dense_strides
from eqsat.codegen.kernels.loops.family import dtype_of
from eqsat.codegen.kernels.shared.nests import Axis, collapse
from eqsat.codegen.kernels.shared.registry import register, render
from eqsat.codegen.kernels.vectors.epilogue import VectorEpilogue, load, store
from eqsat.codegen.kernels.vectors.implicit_gemm import Problem, pack, packed_size, write
from eqsat.codegen.parallel import whole
from eqsat.codegen.shape_values import is_sizes
from eqsat.codegen.vectors import finish
from eqsat.ops.families.recurrent import Activation, activations
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
_DEFAULTS = {"RNN": ("tanh",), "GRU": ("sigmoid", "tanh"), "LSTM": ("sigmoid", "tanh", "tanh")}
_LENGTHS, _PEEPHOLES = 4, 7


def _found(task: Task) -> list[list[Activation]]:
    weights = task.constant(1)
    assert weights is not None
    return activations(task.attributes, _DEFAULTS[task.operator.name], len(weights))


def _accepts(task: Task) -> bool:
    lengths = task.inputs[_LENGTHS] if task.has(_LENGTHS) else None
    if lengths is not None and (dtype_of(task, _LENGTHS) != ir.DataType.INT32 or is_sizes(lengths)):
        return False
    given = [v for v in (*task.inputs, *task.outputs) if v is not None and v is not lengths]
    dtypes_given = [v.dtype if isinstance(v, View) else ir.DataType.from_numpy(v.dtype) for v in given]
    if any(dtype != _FLOAT for dtype in dtypes_given) or task.epilogue.steps or any(0 in v.shape for v in given):
        return False
    if task.constant(1) is None or task.constant(2) is None or (task.has(3) and task.constant(3) is None):
        return False
    if not isinstance(task.inputs[0], View):
        return False
    found = _found(task)
    return all(f == found[0] for f in found) and all(a.key in _FORMS for a in found[0])


def _wants(task: Task) -> Wants:
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
class Part:
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
class Place:
    """A row of hidden elements of an operand: its address and the distance of the elements."""

    pointer: str
    stride: int


def _place(name: str, strides: Shape, *index: str) -> Place:
    moves = "".join(f" + (ptrdiff_t){i} * {s}" for i, s in zip(index, strides, strict=False))
    return Place(f"{name}{moves}", strides[-1])


def _apply(activation: Activation, v: str) -> str:
    numbers = {"p": activation.alpha, "q": activation.beta}
    return _FORMS[activation.key].format(v=v, **{k: dtypes.literal(n, _FLOAT) for k, n in numbers.items()})


def _generate(task: Task, isa: Isa) -> Kernel:
    kind, x, found = task.operator.name, task.view(0), _products(task)
    batch_first = bool(task.attributes.get("layout"))
    of_time, of_batch = (1, 0) if batch_first else (0, 1)
    time, batch = x.shape[of_time], x.shape[of_batch]
    directions, gates, _ = found[0].matrices.shape
    n = found[1].matrices.shape[2]
    constants = [product.packed() for product in found]

    def product(number: int, source: str, pixels: list[Axis], stride: int, target: str) -> str:
        channels, steps = found[number].matrices.shape[1:]
        problem = Problem(
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
        return whole(write(problem, epilogue, isa))

    def given_place(number: int, *index: str) -> Place | None:
        given = task.inputs[number] if number < len(task.inputs) else None
        if given is None:
            return None
        if isinstance(given, View):
            return _place(f"x{number}", given.strides, *index)
        constants.append(np.ascontiguousarray(given).ravel())
        return _place(f"w{len(constants) - 1}", dense_strides(given.shape), *index)

    outer = [Axis(time, {"x0": x.strides[of_time], "projected": batch * gates})]
    inner = Axis(batch, {"x0": x.strides[of_batch], "projected": gates})
    rows = [Axis(batch, {"h": n, "sums": gates})]
    every, last = (("b", "t", "d"), ("b", "d")) if batch_first else (("t", "d", "b"), ("d", "b"))
    states = [given_place(number, *last) for number in ((5, 6) if kind == "LSTM" else (5,))]
    limit = task.attributes.get("clip")
    lanes = isa.lanes()
    parts = [Part(isa, 0, n // lanes, lanes)] if n >= lanes else []
    if n % lanes:
        parts.append(Part(isa, n // lanes * lanes, 1, n % lanes))
    again = len(found) > 2
    outputs = [
        None if y is None else _place(f"y{k}", y.strides, *(last if k else every)) for k, y in enumerate(task.outputs)
    ]
    lengths = task.inputs[_LENGTHS] if task.has(_LENGTHS) else None
    length = f"x{_LENGTHS}[(ptrdiff_t)b * {lengths.strides[0]}]" if isinstance(lengths, View) else ""
    if isinstance(lengths, np.ndarray):
        length = f"w{len(constants)}[b]"
        constants.append(np.ascontiguousarray(lengths))
    text = render(
        "vectors/recurrent.c.jinja",
        kind=kind,
        n=n,
        gates=gates,
        time=time,
        batch=batch,
        directions=directions,
        direction=str(task.attributes.get("direction", "forward")),
        sizes=[p.size for p in found],
        of_inputs=product(0, "x0", [*outer, inner], x.strides[2], "projected"),
        of_states=product(1, "h", rows, 1, "sums"),
        of_reset=product(2, "reset", [Axis(batch, {"reset": n, "last": gates})], 1, "last") if again else "",
        after=not again,
        states=states,
        length=length,
        peepholes=given_place(_PEEPHOLES, "d") if kind == "LSTM" else None,
        coupled=bool(task.attributes.get("input_forget")),
        limit=dtypes.literal(limit, _FLOAT) if limit else "",
        outputs=outputs,
        parts=parts,
        f=[partial(_apply, a) for a in _found(task)[0]],
    )
    body, helpers = finish(text, isa)
    scratch = 4 * batch * (time * gates + gates + 3 * n)
    return Kernel(body, tuple(constants), scratch, helpers)


register(
    Family(
        "recurrent vectors",
        (OpKey("", "RNN"), OpKey("", "GRU"), OpKey("", "LSTM")),
        _accepts,
        _generate,
        _wants,
        rank=10,
    )
)
