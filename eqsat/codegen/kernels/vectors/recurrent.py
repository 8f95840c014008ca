"""RNN, GRU and LSTM of float32 in vectors: one matrix product for the inputs of all steps, one a step for the states.

Only the products with the state are sequential (Appleyard et al. 2016, arXiv:1604.01946). Both directions run the same
code, which threads may share; those of one direction share its products. Nothing is computed of steps that come after
the end of the longest sequence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import onnx_ir as ir

from eqsat.codegen import c_types
from eqsat.codegen.isa import Isa
from eqsat.codegen.isa_names import finish
from eqsat.codegen.kernel import Family, GeneratedKernel, Task, View, Want, Wants, dense_strides
from eqsat.codegen.kernel_stages import END, STAGE
from eqsat.codegen.kernel_text import render
from eqsat.codegen.kernels.loops.family import dtype_of
from eqsat.codegen.kernels.shared import activations as activations_in_c
from eqsat.codegen.kernels.shared.families import register
from eqsat.codegen.kernels.shared.nests import Axis, collapse
from eqsat.codegen.kernels.shared.tiling import split
from eqsat.codegen.kernels.vectors.epilogue import load, store
from eqsat.codegen.kernels.vectors.implicit_gemm import ImplicitGemm, write
from eqsat.codegen.kernels.vectors.recurrent_weights import RecurrentWeights
from eqsat.codegen.parallel import STAGES
from eqsat.codegen.shape_arithmetic import is_sizes
from eqsat.ops.families.recurrent import Activation, activations
from eqsat.schema.dtypes import to_dtype
from eqsat.schema.size_questions import any_free, is_free, typical
from eqsat.schema.types import OpKey, Shape

_FLOAT = ir.DataType.FLOAT
_LENGTHS, _PEEPHOLES = 4, 7
_ROWS = 32
"""Rows of a product from which on more of them gain little."""


def _found(task: Task) -> list[list[Activation]]:
    weights = task.inputs[1]
    assert weights is not None
    return activations(task.attributes, task.operator.name, weights.shape[0])


def accepts_floats(task: Task, *numbers: int) -> bool:
    """Whether these operands and all results are of float32, and sequences and activations have a form here."""
    lengths = task.inputs[_LENGTHS] if task.has(_LENGTHS) else None
    if lengths is not None and (dtype_of(task, _LENGTHS) != ir.DataType.INT32 or is_sizes(lengths)):
        return False
    given = [v for v in (*(task.inputs[k] for k in numbers if task.has(k)), *task.outputs) if v is not None]
    dtypes_given = [to_dtype(v.dtype) for v in given]
    if any(dtype != _FLOAT for dtype in dtypes_given) or task.epilogue.steps or any(0 in v.shape for v in given):
        return False
    weights = [v for v in task.inputs[1:4] if isinstance(v, View)]
    if any(any_free(v.shape) for v in weights) or not isinstance(task.inputs[0], View):
        return False
    found = _found(task)
    return all(f == found[0] for f in found) and all(activations_in_c.vector(a, "v") for a in found[0])


def _accepts(task: Task) -> bool:
    return accepts_floats(task, 0, 1, 2, 3, 5, 6, 7)


def wants(task: Task) -> Wants:
    rows = tuple(Want(order=tuple(range(len(v.shape)))) if isinstance(v, View) else Want() for v in task.inputs)
    return Wants(rows, tuple(Want() if v is None else Want(order=tuple(range(v.rank))) for v in task.outputs))


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
    text = activations_in_c.vector(activation, v)
    assert text is not None
    return text


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


@dataclass(frozen=True, slots=True)
class _Part:
    """Equal numbers of steps, one after the other, whose inputs are projected unless all sequences have ended.

    Attributes:
        steps: How many at a time.
        outer: The loop over these.
        origin: Where the first begins.
        condition: Goes on to the next.
    """

    steps: int
    outer: Axis
    origin: Mapping[str, int]
    condition: str


def _parts(steps: Axis, batch: int, limited: bool) -> Iterator[_Part | None]:
    """The steps in parts with enough rows to fill registers; None means all steps at once."""
    if not limited or is_free(steps.extent) or is_free(batch):
        yield None
        return
    for first, some, count in split(steps.extent, -(-_ROWS // max(batch, 1))):
        outer = Axis(count, {name: some * stride for name, stride in steps.strides.items()})
        origin = {name: first * stride for name, stride in steps.strides.items()}
        yield _Part(some, outer, origin, f"if ((ptrdiff_t)n0 * {some} + {first} >= longest) continue;\n")


def _generate(task: Task, isa: Isa) -> GeneratedKernel:
    x, weights = task.view(0), task.inputs[1:3]
    of_time, of_batch = steps_of(task)
    time, batch = x.shape[of_time], x.shape[of_batch]
    assert weights[0] is not None and weights[1] is not None
    (directions, gates, _), n = weights[0].shape, weights[1].shape[2]
    floats = 4 * floats_of(batch, time, gates, n)
    found = RecurrentWeights(task, isa, floats)
    constants = [*found.constants]
    length = length_of(task, constants)
    whole = sum(p.channels * p.steps for p in found.products)

    def product(number: int, source: str, pixels: list[Axis], target: str, part: _Part | None = None) -> str:
        made = found.products[number]
        problem = ImplicitGemm(
            input=source,
            weights=made.name,
            output=target,
            outer=() if part is None else (part.outer,),
            pixels=collapse(pixels),
            taps=((made.steps, x.strides[2] if source == "x0" else 1),),
            channels=made.channels,
            channel={target: 1, **({made.bias: 1} if made.bias else {})},
            layout=made.layout,
            origin={} if part is None else part.origin,
        )
        return write(problem, made.epilogue(task, isa), isa, "" if part is None else part.condition)

    def stage(number: int, text: str) -> str:
        made = found.products[number]
        text = made.declared + text
        if directions > 1:
            return text
        # The part of all products that this one is; those with the state are executed for each step.
        part = made.channels * made.steps / whole / (typical(time) if number else 1)
        return f"{STAGE.format(part=f'{part:.4g}')}\n{{\n{text}}}\n{END}\n"

    steps = Axis(time, {"x0": x.strides[of_time], "projected": batch * gates})
    samples = Axis(batch, {"x0": x.strides[of_batch], "projected": gates})
    inputs = "".join(
        product(0, "x0", [replace(steps, extent=part.steps) if part else steps, samples], "projected", part)
        for part in _parts(steps, batch, bool(length))
    )
    rows = [Axis(batch, {"h": n, "sums": gates})]
    reset = ""
    if len(found.products) > 2:
        reset = product(2, "reset", [Axis(batch, {"reset": n, "last": gates})], "last")
        reset = stage(2, f"float *const last = sums + {2 * n};\n{reset}")
    products = Products(
        task.operator.name,
        directions,
        gates,
        n,
        found.setup + stage(0, inputs),
        stage(1, product(1, "h", rows, "sums")),
        reset,
        scratch=found.end - floats,
    )
    return cell(task, isa, products, constants, length)


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
