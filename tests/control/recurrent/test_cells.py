"""Loops that only step a cell become the operator, whatever their spelling; others stay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.helper import make_node as node

from eqsat.control.recurrent.rewrite import recurrent
from eqsat.model.load import load
from eqsat.simplify.passes import simplified
from tests.control.flows import INT64, checked, value
from tests.control.recurrent.spellings import B, H, T, affine, feeds, gru, loop, lstm, numbers, scan, split

HC = [("h", "h2"), ("c", "c2")]


def found(source: onnx.ModelProto) -> Any:
    """The operator of the alternative to the model's loop, None without."""
    model = simplified(load(source))
    node = next(n for n in model.graph if n.op_type in ("Loop", "Scan"))
    made = recurrent(node, model)
    if made is None:
        return None
    return next((n for n in made.model.graph if n.op_type in ("LSTM", "GRU", "RNN")), None)


def becomes(source: onnx.ModelProto, op: str, folder: Path, *several: dict[str, np.ndarray]) -> Any:
    """The operator, once the result contains it and no loop, and computes what ONNX Runtime does."""
    result = checked(source, folder, several)
    names = [n.op_type for n in result.model.graph]
    assert op in names and not {"Loop", "Scan"} & set(names), names
    assert result.cost < result.baseline_cost
    return next(n for n in result.model.graph if n.op_type == op)


@pytest.mark.slow
@pytest.mark.parametrize("style", ["joined", "apart", "gates"])
@pytest.mark.parametrize("order", ["icfo", "ifco", "iofc"])
def test_an_lstm_in_a_scan(style: Any, order: str, tmp_path: Path) -> None:
    constants: dict[str, np.ndarray] = {}
    cell = lstm("x", "h", "c", "h2", "c2", constants, style, order, slices=order == "ifco", forget=len(style) - 5)
    becomes(scan(cell, HC, constants, "h2"), "LSTM", tmp_path, feeds())


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("spelling", [0, 1, 2])
def test_a_gru_in_a_loop(after: bool, spelling: int, tmp_path: Path) -> None:
    constants: dict[str, np.ndarray] = {}
    cell = gru("x", "h", "h2", constants, after=after, spelling=spelling, style="joined" if spelling else "gates")
    made = becomes(loop(cell, [("h", "h2")], constants, "h2"), "GRU", tmp_path, feeds(states=["h"]))
    assert made.attributes.get_int("linear_before_reset", 0) == int(after)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(("backwards", "out"), [(1, 1), (1, 0), (0, 1)])
def test_directions_and_axes_of_a_scan(axis: int, backwards: int, out: int, tmp_path: Path) -> None:
    constants: dict[str, np.ndarray] = {}
    cell = lstm("x", "h", "c", "h2", "c2", constants)
    shape = ["N", "T", 5] if axis else ["T", "N", 5]
    source = scan(
        cell, HC, constants, "h2", shape=shape, axis=axis, backwards=backwards, out_axis=axis, out_backwards=out,
        batch="N",
    )  # fmt: skip
    several = [feeds(t, n, axis=axis) for t, n in ((7, 3), (1, 1), (12, 2))]
    made = becomes(source, "LSTM", tmp_path, *several)
    assert made.attributes.get_string("direction", "forward") == ("reverse" if backwards else "forward")


def hard(cell: list[onnx.NodeProto], constants: dict[str, np.ndarray]) -> list[onnx.NodeProto]:
    """A cell with Keras's hard sigmoid in place of Sigmoid: clipped ``0.2 x + 0.5``."""
    constants |= {"slope": np.array(0.2, np.float32), "half": np.array(0.5, np.float32)}
    constants |= {"low": np.array(0, np.float32), "high": np.array(1, np.float32)}
    made = []
    for n in cell:
        if n.op_type == "Sigmoid":
            x, y = n.input[0], n.output[0]
            made += [node("Mul", [x, "slope"], [f"{y}_1"]), node("Add", [f"{y}_1", "half"], [f"{y}_2"])]
            made.append(node("Clip", [f"{y}_2", "low", "high"], [y]))
        else:
            made.append(n)
    return made


@pytest.mark.parametrize("clipped", [False, True])
def test_hard_sigmoid(clipped: bool, tmp_path: Path) -> None:
    constants: dict[str, np.ndarray] = {}
    cell = lstm("x", "h", "c", "h2", "c2", constants, sigmoid="Sigmoid" if clipped else "HardSigmoid")
    cell = hard(cell, constants) if clipped else cell
    becomes(scan(cell, HC, constants, "h2"), "LSTM", tmp_path, feeds())


@pytest.mark.parametrize("activation", ["Tanh", "Relu", "Sigmoid"])
def test_a_simple_cell(activation: str, tmp_path: Path) -> None:
    constants: dict[str, np.ndarray] = {}
    cell = [*affine("z", "x", "h", 1, "apart", constants), node(activation, ["z"], ["h2"])]
    becomes(loop(cell, [("h", "h2")], constants, "h2"), "RNN", tmp_path, feeds(states=["h"]))


def test_a_gate_that_keeps_the_state_instead_of_replacing_it(tmp_path: Path) -> None:
    """``c' = c - i c + i g``: the forget gate is one minus the input gate."""
    constants: dict[str, np.ndarray] = {}
    cell = [
        *affine("z", "x", "h", 3, "joined", constants),
        *split("z", ["i", "g", "o"], constants),
        node("Sigmoid", ["i"], ["si"]),
        node("Sigmoid", ["o"], ["so"]),
        node("Tanh", ["g"], ["tg"]),
        node("Sub", ["tg", "c"], ["d"]),
        node("Mul", ["si", "d"], ["e"]),
        node("Add", ["c", "e"], ["c2"]),
        node("Tanh", ["c2"], ["t"]),
        node("Mul", ["t", "so"], ["h2"]),
    ]
    made = becomes(scan(cell, HC, constants, "h2"), "LSTM", tmp_path, feeds())
    assert made.attributes.get_int("input_forget", 0) == 1


def test_peepholes(tmp_path: Path) -> None:
    constants: dict[str, np.ndarray] = {"pi": numbers(H), "pf": numbers(H), "po": numbers(H)}
    cell = lstm("x", "h", "c", "h2", "c2", constants)
    extra = [
        node("Mul", ["c", "pi"], ["ci"]),
        node("Mul", ["pf", "c"], ["cf"]),
        node("Mul", ["c2", "po"], ["co"]),
        node("Add", ["h2_i", "ci"], ["pgi"]),
        node("Add", ["h2_f", "cf"], ["pgf"]),
        node("Add", ["h2_o", "co"], ["pgo"]),
    ]
    names = {"h2_i": "pgi", "h2_f": "pgf", "h2_o": "pgo"}
    for n in cell:
        if n.op_type == "Sigmoid":
            n.input[0] = names[n.input[0]]
    at = next(k for k, n in enumerate(cell) if n.op_type == "Split") + 1
    late = next(k for k, n in enumerate(cell) if n.output[0] == "h2_so")
    output = cell.pop(late)
    after = next(k for k, n in enumerate(cell) if n.output[0] == "c2") + 1
    cell = [*cell[:at], *extra[:2], *extra[3:5], *cell[at:after], extra[2], extra[5], output, *cell[after:]]
    made = becomes(scan(cell, HC, constants, "h2"), "LSTM", tmp_path, feeds())
    assert len(made.inputs) == 8 and made.inputs[7] is not None


def test_a_loop_with_a_counter_and_a_condition_of_its_own(tmp_path: Path) -> None:
    """As TensorFlow's loops are written: ``while time < steps``, with a limit that does not matter."""
    constants: dict[str, np.ndarray] = {"step": np.array(1), "length": np.array(T)}
    cell = lstm("x", "h", "c", "h2", "c2", constants, order="icfo", forget=1.0)
    go = [node("Add", ["time", "step"], ["later"]), node("Less", ["later", "length"], ["go_on"])]
    source = loop(
        cell, HC, constants, "h2", go=go, rounds="most", extra=[("time", "later", "zero")],
        reading=[node("Gather", ["xs", "time"], ["x"], axis=0)],
    )  # fmt: skip
    becomes(source, "LSTM", tmp_path, feeds())


@pytest.mark.parametrize("rounds", [T, T - 2])
@pytest.mark.parametrize("spelling", ["countdown", "difference", "slice"])
def test_rows_are_read_in_several_ways(spelling: str, rounds: int, tmp_path: Path) -> None:
    constants: dict[str, np.ndarray] = {"one_round": np.array(1), "last": np.array(T - 1), "first_axis": np.array([0])}
    cell = lstm("x", "h", "c", "h2", "c2", constants)
    extra: list[tuple[str, str, str]] = []
    if spelling == "countdown":
        reading = [node("Gather", ["xs", "time"], ["x"], axis=0), node("Sub", ["time", "one_round"], ["later"])]
        extra = [("time", "later", "last_row")]
    elif spelling == "difference":
        reading = [node("Sub", ["last", "i"], ["at"]), node("Gather", ["xs", "at"], ["x"], axis=0)]
    else:
        constants["next_row"] = np.array([1])
        reading = [
            node("Unsqueeze", ["i", "first_axis"], ["from"]),
            node("Add", ["from", "next_row"], ["to"]),
            node("Slice", ["xs", "from", "to", "first_axis"], ["thin"]),
            node("Squeeze", ["thin", "first_axis"], ["x"]),
        ]
    source = loop(cell, HC, constants, "h2", reading=reading, extra=extra)
    for held in source.graph.initializer:
        if held.name == "T":
            held.CopyFrom(onnx.numpy_helper.from_array(np.array(rounds), "T"))
    becomes(source, "LSTM", tmp_path, feeds())


def test_as_torchscript_writes_it_with_free_sizes(tmp_path: Path) -> None:
    """The number of rounds is a size of the tensor that the rounds read."""
    constants: dict[str, np.ndarray] = {}
    cell = gru("x", "h", "h2", constants, after=True)
    before = [node("Shape", ["xs"], ["shape"]), node("Gather", ["shape", "zero"], ["steps"], axis=0)]
    source = loop(cell, [("h", "h2")], constants, "h2", before=before, rounds="steps", shape=["S", "N", 5], batch="N")
    becomes(source, "GRU", tmp_path, *(feeds(t, n, states=["h"]) for t, n in ((7, 3), (1, 1), (4, 5))))


def test_samples_that_end_early(tmp_path: Path) -> None:
    constants: dict[str, np.ndarray] = {"minus": np.array([-1])}
    cell = [
        *lstm("x", "h", "c", "hn", "cn", constants),
        node("Less", ["i", "lengths"], ["short"]),
        node("Unsqueeze", ["short", "minus"], ["active"]),
        node("Where", ["active", "hn", "h"], ["h2"]),
        node("Where", ["active", "cn", "c"], ["c2"]),
        node("Sub", ["h2", "h2"], ["nothing"]),
        node("Where", ["active", "hn", "nothing"], ["out"]),
    ]
    source = loop(cell, HC, constants, "out", more=[value("lengths", INT64, [B])])
    for k in range(2):
        source.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros((B, H), np.float32), f"{'hc'[k]}0"))
    del source.graph.input[:2]
    several = [feeds() | {"lengths": np.array(lengths)} for lengths in ([7, 3, 1], [2, 0, 9], [7, 7, 7])]
    made = becomes(source, "LSTM", tmp_path, *several)
    assert made.inputs[4] is not None


@pytest.mark.slow
def test_a_stack_of_cells_and_a_layer_on_top(tmp_path: Path) -> None:
    constants: dict[str, np.ndarray] = {"top": numbers(H, 2), "shift": numbers(2)}
    cell = [
        *lstm("x", "h", "c", "h2", "c2", constants),
        *lstm("h2", "k", "d", "k2", "d2", constants, "gates", "ifoc", size=H),
        node("MatMul", ["k2", "top"], ["product"]),
        node("Add", ["product", "shift"], ["out"]),
    ]
    states = [("h", "h2"), ("c", "c2"), ("k", "k2"), ("d", "d2")]
    result = checked(scan(cell, states, constants, "out"), tmp_path, [feeds(states=["h", "c", "k", "d"])])
    names = [n.op_type for n in result.model.graph]
    assert names.count("LSTM") == 2 and "Scan" not in names


@pytest.mark.slow
def test_what_is_no_such_cell_stays(tmp_path: Path) -> None:
    """One operator that differs, and no alternative may be found."""
    changes = {
        "h2_sf": ("Softplus", "Sigmoid"),  # another activation of one gate
        "h2_kept": ("Add", "Mul"),
        "c2": ("Sub", "Add"),
        "h2": ("Add", "Mul"),
        "h2_p": ("MatMul", "MatMul"),
    }
    for name, (other, op) in changes.items():
        constants: dict[str, np.ndarray] = {}
        cell = lstm("x", "h", "c", "h2", "c2", constants)
        for n in cell:
            if n.output[0] == name:
                assert n.op_type == op
                n.op_type = other
        made = found(scan(cell, HC, constants, "h2"))
        assert (made is not None) == (other == op), name
    constants = {}
    cell = lstm("x", "h", "c", "h2", "c2", constants)
    assert found(loop(cell, HC, constants, "h2", rounds="most", shape=["S", B, 5])) is None
    checked(scan(hard(cell, constants), HC, constants, "h2_t"), tmp_path, [feeds()])


def test_only_classes_that_may_change_roundings(tmp_path: Path) -> None:
    constants: dict[str, np.ndarray] = {}
    source = scan(lstm("x", "h", "c", "h2", "c2", constants), HC, constants, "h2")
    result = checked(source, tmp_path, [feeds()], numerics="exact")
    assert "LSTM" not in [n.op_type for n in result.model.graph]
