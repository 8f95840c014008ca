"""RNN, GRU and LSTM in both directions; mirrors ``eqsat/ops/families/recurrent.py``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from eqsat.codegen import c_types
from eqsat.codegen.kernel import GeneratedKernel, Task
from eqsat.codegen.kernel_templates import Template
from eqsat.codegen.kernels.loops.family import are, loops, shape_of
from eqsat.codegen.kernels.shared import activations as activations_in_c
from eqsat.ops.families.recurrent import Activation, activations
from eqsat.schema.dtypes import FLOATS

_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


@dataclass(frozen=True)
class Direction:
    """One pass over time.

    Attributes:
        reverse: Whether it runs backwards.
        f: The activations, from a variable's name to an expression.
    """

    reverse: bool
    f: list[Callable[[str], str]]


def _found(task: Task) -> list[list[Activation]]:
    return activations(task.attributes, task.operator.name, shape_of(task, 2)[0])


def _accepts(task: Task) -> bool:
    floats = are(task, FLOATS, 0, 1, 2, 3, 5, 6, 7)
    return floats and all(activations_in_c.scalar(a, "float", "v") for found in _found(task) for a in found)


def _apply(activation: Activation, c: str, v: str) -> str:
    text = activations_in_c.scalar(activation, c, v)
    assert text is not None
    return text


@loops("recurrent loops", "RNN", "GRU", "LSTM", accepts=_accepts, epilogue=False)
def recurrent(task: Task) -> GeneratedKernel:
    """Gates of one step after the other."""
    template = Template(task)
    x, r = template.operands(0, 2)
    kind, attributes = task.operator.name, task.attributes
    n, batch_first = r.shape[2], bool(attributes.get("layout", 0))
    time, batch = (x.shape[1], x.shape[0]) if batch_first else (x.shape[0], x.shape[1])
    direction = attributes.get("direction", "forward")
    backwards = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[str(direction)]
    gates = _GATES[kind]
    lengths = template.x[4]
    peepholes = template.x[7] if kind == "LSTM" and task.has(7) else None
    biased = task.has(3)
    clip = attributes.get("clip")

    def state(number: int, j: str) -> str:
        found = template.x[number] if task.has(number) else None
        if found is None:
            return "0"
        return found.load("b", "d", j) if batch_first else found.load("d", "b", j)

    names = {"RNN": ["j", f"{n} + j"], "GRU": ["j"], "LSTM": ["j", f"{4 * n} + j"]}[kind]
    return template.fill(
        "loops/recurrent.c.jinja",
        kind=kind,
        c=x.c,
        n=n,
        gates=gates,
        features=x.shape[2],
        time=time,
        batch=batch,
        directions=[
            Direction(reverse, [partial(_apply, a, x.c) for a in found])
            for reverse, found in zip(backwards, _found(task), strict=True)
        ],
        input=lambda k: x.load("b", "t", k) if batch_first else x.load("t", "b", k),
        output=lambda j: ("b", "t", "d", j) if batch_first else ("t", "d", "b", j),
        final=lambda j: ("b", "d", j) if batch_first else ("d", "b", j),
        state=state,
        lengths=None if lengths is None else lengths.load("b"),
        biases=names if biased else [],
        biased=biased,
        peephole=lambda j: "" if peepholes is None else f" + {peepholes.load('d', j)} * cell[j]",
        clip=c_types.literal(clip, x.dtype) if clip else None,
        after=bool(attributes.get("linear_before_reset", 0)),
        coupled=bool(attributes.get("input_forget", 0)),
        scratch=(2 + gates) * n * (8 if x.c == "double" else 4),
    )
