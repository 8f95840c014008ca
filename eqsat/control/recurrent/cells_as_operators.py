"""Cells over all rounds as operators: sequences in, sequences and last states out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from eqsat.control.recurrent.cells import ONNX_GATES, Cell, Gate
from eqsat.control.recurrent.lanes import RowSource
from eqsat.model.builder import op
from eqsat.model.expression import Tensor
from eqsat.ops.families.recurrent import DEFAULTS
from eqsat.schema.types import Dim


@dataclass(frozen=True)
class Stacked:
    """Rows of all rounds, (rounds, samples, lanes).

    Attributes:
        tensor: The rows.
        backwards: Whether the first round's is the last one.
    """

    tensor: Tensor
    backwards: bool = False

    def in_order(self, backwards: bool) -> Tensor:
        return self.tensor if self.backwards == backwards else turned(self.tensor, 0)


@dataclass(frozen=True)
class Stepped:
    """The results of a cell.

    Attributes:
        rows: The state h after each round.
        last: The last states, (samples, lanes).
    """

    rows: Stacked
    last: tuple[Tensor, ...]


def turned(tensor: Tensor, axis: int) -> Tensor:
    """A tensor in the opposite order along an axis."""
    last = np.iinfo(np.int64)
    return op.Slice(tensor, _ints(-1), _ints(last.min), _ints(axis), _ints(-1))


def part(tensor: Tensor, axis: int, start: int, stop: int) -> Tensor:
    return op.Slice(tensor, _ints(start), _ints(stop), _ints(axis))


def to_samples(tensor: Tensor, lead: Sequence[Dim | None], before: int) -> Tensor:
    """A tensor with one axis of samples.

    Args:
        tensor: A tensor with ``before`` axes, those of ``lead``, and lanes.
        lead: Sizes of the axes between, all but at most one of which are 1.
        before: Number of axes in front.
    """
    if not lead:
        return op.Unsqueeze(tensor, _ints(before))
    others = [before + k for k in range(len(lead)) if k != _samples(lead)]
    return op.Squeeze(tensor, _ints(*others)) if others else tensor


def from_samples(tensor: Tensor, lead: Sequence[Dim | None], before: int) -> Tensor:
    """The opposite of :func:`to_samples`."""
    if not lead:
        return op.Squeeze(tensor, _ints(before))
    others = [before + k for k in range(len(lead)) if k != _samples(lead)]
    return op.Unsqueeze(tensor, _ints(*others)) if others else tensor


def _samples(lead: Sequence[Dim | None]) -> int:
    return next((k for k, d in enumerate(lead) if d != 1), len(lead) - 1)


def moved(tensor: Tensor, rank: int, source: int, target: int) -> Tensor:
    """A tensor with an axis at another place."""
    order = [k for k in range(rank) if k != source]
    order.insert(target, source)
    return tensor if order == list(range(rank)) else op.Transpose(tensor, perm=order)


def step(
    cell: Cell,
    sequences: Sequence[Stacked],
    initial: Sequence[Tensor | None],
    lengths: Tensor | None,
    dtype: np.dtype,
) -> Stepped:
    """The operator that computes all rounds of a cell.

    Args:
        cell: The cell.
        sequences: Rows of each of its sources.
        initial: Its first states, (samples, lanes); None for zeros.
        lengths: Lengths of the samples, if they end early.
        dtype: Element type of the states.
    """
    backwards = lengths is None and all(s.backwards for s in sequences)
    parts = [s.in_order(backwards) for s in sequences]
    x = parts[0] if len(parts) == 1 else op.Concat(*parts, axis=2)
    sources = cell.sources
    gates = [cell.gates[letter] for letter in ONNX_GATES[cell.op]]
    weights = np.concatenate([np.concatenate([_weights(g, s, cell) for s in sources]).T for g in gates])
    recurrent = np.concatenate([g.recurrent.T for g in gates])
    bias = [np.concatenate([g.bias for g in gates]), np.zeros(len(gates) * gates[0].bias.size)]
    if cell.candidate_bias is not None:
        bias[1][-cell.candidate_bias.size :] = cell.candidate_bias
    hidden = gates[0].bias.size
    attributes: dict[str, object] = {"hidden_size": hidden, "direction": "reverse" if backwards else "forward"}
    names = _activations(cell)
    if names != list(DEFAULTS[cell.op]):
        hard = names.count("HardSigmoid")
        attributes["activations"] = names
        if hard:
            attributes |= {"activation_alpha": [1.0] * hard, "activation_beta": [0.0] * hard}
    operands: list[object] = [x, *(np.asarray(a[None], dtype) for a in (weights, recurrent, np.concatenate(bias)))]
    operands.append(lengths)
    operands += [None if s is None else op.Unsqueeze(s, _ints(0)) for s in initial]
    if cell.op == "LSTM":
        attributes["input_forget"] = int(cell.input_forget)
        peepholes = [g.peephole for g in gates[:3]]
        if any(p is not None for p in peepholes):
            rows = [np.zeros(hidden) if p is None else p for p in peepholes]
            operands.append(np.asarray(np.concatenate(rows)[None], dtype))
    if cell.op == "GRU":
        attributes["linear_before_reset"] = int(cell.after)
    while operands[-1] is None:
        operands.pop()
    made = getattr(op, cell.op)(*operands, **attributes)
    last = tuple(op.Squeeze(state, _ints(0)) for state in made[1 : 1 + len(cell.states)])
    return Stepped(Stacked(op.Squeeze(made[0], _ints(1)), backwards), last)


def _weights(gate: Gate, source: RowSource, cell: Cell) -> np.ndarray:
    found = gate.sources.get(source)
    if found is not None:
        return found
    rows = next(len(g.sources[source]) for g in cell.gates.values() if source in g.sources)
    return np.zeros((rows, gate.bias.size))


def _activations(cell: Cell) -> list[str]:
    if cell.op == "LSTM":
        return [cell.gates["i"].activation, cell.gates["c"].activation, cell.outer]
    if cell.op == "GRU":
        return [cell.gates["z"].activation, cell.gates["h"].activation]
    return [cell.gates["h"].activation]


def lengths_of(lengths: Tensor, rows: Tensor) -> Tensor:
    """Lengths of samples as operators want them: a vector of at most as many as there are rows."""
    most = op.Gather(op.Shape(rows), np.array(0))
    kept = op.Clip(op.Cast(op.Reshape(lengths, _ints(-1)), to=ir.DataType.INT64.value), np.array(0), most)
    return op.Cast(kept, to=ir.DataType.INT32.value)


def _ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)
