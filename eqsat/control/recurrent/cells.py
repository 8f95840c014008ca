"""Matches the normal form of a round with the cells that ONNX has operators for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from eqsat.control.recurrent.lanes import LaneAtom, LaneBlock, LaneMonomial, Lanes, RowSource, masks, without_mask

ONNX_GATES = {"LSTM": "iofc", "GRU": "zrh", "RNN": "h"}


@dataclass(frozen=True, eq=False)
class Gate:
    """``activation(x W + h R + c * peephole + bias)``.

    Attributes:
        sources: Weights of each row that the cell reads.
        recurrent: Weights of the state, (lanes of the state, lanes).
        bias: A number for each lane.
        activation: Name of the activation.
        peephole: Factors of the second state, None without.
    """

    sources: Mapping[RowSource, np.ndarray]
    recurrent: np.ndarray
    bias: np.ndarray
    activation: str
    peephole: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class Cell:
    """A cell that a round steps.

    Attributes:
        op: LSTM, GRU or RNN.
        states: Names of the rows that are its states: h, and of an LSTM c.
        gates: By letter, as ONNX names them.
        made: The new state h, where a sample is active.
        lengths: Name of the lengths of samples; empty if all are active in all rounds.
        outer: The activation of an LSTM's output.
        input_forget: Whether the forget gate is one minus the input gate.
        after: Whether a GRU resets the product with the state, and its bias then.
        candidate_bias: That bias.
    """

    op: str
    states: tuple[str, ...]
    gates: Mapping[str, Gate]
    made: LaneBlock
    lengths: str = ""
    outer: str = "Tanh"
    input_forget: bool = False
    after: bool = False
    candidate_bias: np.ndarray | None = None

    @property
    def sources(self) -> tuple[RowSource, ...]:
        return tuple(dict.fromkeys(s for gate in self.gates.values() for s in gate.sources))


class CellMismatch(Exception):
    """The round is not a step of such a cell."""


def cells(lanes: Lanes, made: Mapping[str, LaneBlock]) -> list[Cell]:
    """The cells of which a round is a step.

    Args:
        lanes: Arithmetic on rows of lanes.
        made: Next value of each state by name.
    """
    found: list[Cell] = []
    for h in made:
        for second in (*(c for c in made if c != h), None):
            try:
                found.append(_cell(lanes, made, h, second))
                break
            except CellMismatch:
                continue
    return found


def _cell(lanes: Lanes, made: Mapping[str, LaneBlock], h: str, c: str | None) -> Cell:
    lengths = ""
    states = (h,) if c is None else (h, c)
    blocks: list[LaneBlock] = []
    for name in states:
        block = made[name]
        found = masks(block)
        if found:
            lengths = next(iter(found))
            block, held = without_mask(block, lengths)
            if len(found) > 1 or not _is_state(held, name):
                raise CellMismatch
        elif lengths:
            raise CellMismatch
        blocks.append(block)
    if lengths and any(not masks(made[name]) for name in states):
        raise CellMismatch
    matcher = _Matcher(lanes, states)
    cell = matcher.lstm(blocks) if c is not None else matcher.gru(blocks[0]) or matcher.rnn(blocks[0])
    return Cell(
        cell.op, states, cell.gates, blocks[0], lengths, cell.outer, cell.input_forget, cell.after, cell.candidate_bias
    )


def _is_state(block: LaneBlock, name: str) -> bool:
    return (
        not block.constant.any()
        and not block.linear
        and list(block.lanes) == [(LaneAtom("base", name),)]
        and _ones(block)
    )


def _ones(block: LaneBlock) -> bool:
    return all((factors == 1).all() for factors in block.lanes.values())


@dataclass
class _Matcher:
    lanes: Lanes
    states: tuple[str, ...]

    # ---- LSTM ------------------------------------------------------------------------------------------

    def lstm(self, blocks: Sequence[LaneBlock]) -> Cell:
        made, cell = blocks
        leave, outer = self._output(made, cell)
        coupled = False
        c = LaneAtom("base", self.states[1])
        products = self._products(cell)
        if products.get((c,)) == 1.0:
            coupled = True
            del products[(c,)]
            pair = next((m for m, sign in products.items() if c in m and sign == -1.0), None)
            if pair is None:
                raise CellMismatch
            enter = forget = _other(pair, c)
        else:
            pair = next((m for m, sign in products.items() if c in m and sign == 1.0), None)
            if pair is None:
                raise CellMismatch
            enter, forget = None, _other(pair, c)
        del products[pair]
        if len(products) != 1 or len(rest := next(iter(products))) != 2 or products[rest] != 1.0:
            raise CellMismatch
        if enter is None:
            gates = [a for a in rest if a.kind == "activation" and a.name == forget.name]
            # If all activations are equal, any of them may be the gate.
            enter = next((a for a in gates if _other(rest, a).kind == "activation"), None)
        if enter is None or enter not in rest:
            raise CellMismatch
        new = _other(rest, enter)
        names = {forget.name, enter.name, leave.name}
        if len(names) != 1 or new.kind != "activation":
            raise CellMismatch
        gates = {
            "i": self._gate(enter),
            "o": self._gate(leave, cell),
            "f": self._gate(forget),
            "c": self._gate(new),
        }
        if gates["c"].peephole is not None:
            raise CellMismatch
        return Cell("LSTM", self.states, gates, made, outer=outer, input_forget=coupled)

    def _output(self, made: LaneBlock, cell: LaneBlock) -> tuple[LaneAtom, str]:
        """The output gate, and the activation of the cell's state."""
        products = self._products(made)
        if len(products) != 1:
            raise CellMismatch
        ((pair, sign),) = products.items()
        inner = next((a for a in pair if a.kind == "activation" and a.key == cell.key), None)
        if sign != 1.0 or len(pair) != 2 or inner is None:
            raise CellMismatch
        leave = _other(pair, inner)
        if leave.kind != "activation":
            raise CellMismatch
        return leave, inner.name

    # ---- GRU -------------------------------------------------------------------------------------------

    def gru(self, made: LaneBlock) -> Cell | None:
        products = self._products(made)
        h = LaneAtom("base", self.states[0])
        if len(products) != 3:
            return None
        pairs = [m for m in products if len(m) == 2]
        single = next((m for m in products if len(m) == 1), None)
        held = next((m for m in pairs if h in m), None)
        if len(pairs) != 2 or single is None or held is None:
            return None
        update = _other(held, h)
        other = next(m for m in pairs if m != held)
        if update not in other:
            return None
        new = _other(other, update)
        if update.kind != "activation" or new.kind != "activation":
            return None
        gate = self._gate(update)
        if products == {(new,): 1.0, other: -1.0, held: 1.0}:
            pass
        elif products == {(h,): 1.0, held: -1.0, other: 1.0} and gate.activation in ("Sigmoid", "HardSigmoid"):
            gate = _opposite(gate)
        else:
            return None
        return self._with_candidate(made, gate, new)

    def _with_candidate(self, made: LaneBlock, update: Gate, new: LaneAtom) -> Cell:
        inner = self.lanes.inside[new.key]
        h = self.states[0]
        resets = [(m, a) for m in inner.lanes for a in m if a.kind == "activation"]
        computed = [s for s in inner.linear if s.key and self._is_reset_state(s)]
        after, bias, recurrent = bool(resets), None, None
        if resets and not computed:
            reset = resets[0][1]
            bias = np.zeros(inner.width)
            for monomial, factors in inner.lanes.items():
                if monomial == (reset,):
                    bias = bias + factors
                elif reset in monomial and len(monomial) == 2 and _other(monomial, reset).kind == "affine":
                    if recurrent is not None or not (factors == 1).all():
                        raise CellMismatch
                    affine = self.lanes.as_weights(self.lanes.inside[_other(monomial, reset).key])
                    if set(affine.linear) != {RowSource(h)} or affine.lanes:
                        raise CellMismatch
                    recurrent, bias = affine.linear[RowSource(h)], bias + affine.constant
                elif reset in monomial:
                    raise CellMismatch
            lanes = {m: f for m, f in inner.lanes.items() if reset not in m}
            inner = LaneBlock(inner.constant, lanes, inner.linear)
        elif len(computed) == 1 and not resets:
            reset, _ = self._reset_state(computed[0])
            recurrent = inner.linear[computed[0]]
            inner = LaneBlock(inner.constant, inner.lanes, {s: w for s, w in inner.linear.items() if s != computed[0]})
        else:
            raise CellMismatch
        if recurrent is None:
            raise CellMismatch
        gate = self._affine(inner, new.name)
        if gate.recurrent.any():
            raise CellMismatch
        reset_gate = self._gate(reset)
        if reset_gate.activation != update.activation:
            raise CellMismatch
        candidate = Gate(gate.sources, recurrent, gate.bias, new.name)
        gates = {"z": update, "r": reset_gate, "h": candidate}
        return Cell("GRU", self.states, gates, made, after=after, candidate_bias=bias)

    def _is_reset_state(self, source: RowSource) -> bool:
        try:
            self._reset_state(source)
        except CellMismatch:
            return False
        return True

    def _reset_state(self, source: RowSource) -> tuple[LaneAtom, LaneAtom]:
        """The reset gate and the state that a computed row is the product of."""
        products = self._products(self.lanes.inside[source.key])
        h = LaneAtom("base", self.states[0])
        if len(products) != 1:
            raise CellMismatch
        ((pair, sign),) = products.items()
        if sign != 1.0 or len(pair) != 2 or h not in pair:
            raise CellMismatch
        return _other(pair, h), h

    # ---- RNN -------------------------------------------------------------------------------------------

    def rnn(self, made: LaneBlock) -> Cell:
        products = self._products(made)
        if len(products) != 1:
            raise CellMismatch
        ((monomial, sign),) = products.items()
        if sign != 1.0 or len(monomial) != 1 or monomial[0].kind != "activation":
            raise CellMismatch
        gate = self._gate(monomial[0])
        if not gate.recurrent.any():
            raise CellMismatch
        return Cell("RNN", self.states, {"h": gate}, made)

    # ---- parts -----------------------------------------------------------------------------------------

    def _products(self, block: LaneBlock) -> dict[LaneMonomial, float]:
        """The products that a block is the sum of, each with the one factor of all its lanes."""
        if block.linear or block.constant.any():
            raise CellMismatch
        found = {}
        for monomial, factors in block.lanes.items():
            if (factors != factors[0]).any():
                raise CellMismatch
            found[monomial] = float(factors[0])
        return found

    def _gate(self, atom: LaneAtom, cell: LaneBlock | None = None) -> Gate:
        if atom.kind != "activation":
            raise CellMismatch
        return self._affine(self.lanes.inside[atom.key], atom.name, cell)

    def _affine(self, block: LaneBlock, activation: str, cell: LaneBlock | None = None) -> Gate:
        """A gate of an affine expression; the second state may be a summand, or with ``cell`` its next value."""
        peephole = None
        lanes = dict(block.lanes)
        if len(self.states) > 1:
            looked = [(LaneAtom("base", self.states[1]),)] if cell is None else list(cell.lanes)
            factors = [lanes.pop(m, None) for m in looked]
            if any(f is not None for f in factors):
                peephole = factors[0]
                signs = [1.0] if cell is None else [cell.lanes[m] for m in looked]
                for f, sign in zip(factors, signs, strict=True):
                    if peephole is None or f is None or not np.array_equal(f, peephole * sign):
                        raise CellMismatch
        plain = self.lanes.as_weights(LaneBlock(block.constant, lanes, block.linear))
        if plain.lanes:
            raise CellMismatch
        state, *others = list(self.states)
        h, size = RowSource(state), self.lanes.widths[state]
        if block.width != size or any(s.name in others for s in plain.linear):
            raise CellMismatch
        recurrent = plain.linear.get(h, np.zeros((size, size)))
        sources = {s: w for s, w in plain.linear.items() if s != h}
        return Gate(sources, recurrent, plain.constant, activation, peephole)


def _other(pair: LaneMonomial, one: LaneAtom) -> LaneAtom:
    if len(pair) != 2:
        raise CellMismatch
    return next((atom for atom in pair if atom != one), one)


def _opposite(gate: Gate) -> Gate:
    """One minus a gate: ``1 - sigmoid(a)`` is ``sigmoid(-a)``."""
    bias = -gate.bias if gate.activation == "Sigmoid" else 1.0 - gate.bias
    return Gate({s: -w for s, w in gate.sources.items()}, -gate.recurrent, bias, gate.activation)
