"""Loops that step recurrent cells, in the spellings of several exporters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import onnx
from onnx import helper

from tests.control.flows import BOOL, FLOAT, INT64, graph, model, value

node = helper.make_node
Nodes = list[onnx.NodeProto]
Constants = dict[str, np.ndarray]
READ, H, B, T = 5, 4, 3, 7
RNG = np.random.default_rng(11)


def numbers(*shape: int) -> np.ndarray:
    return (0.5 * RNG.standard_normal(shape)).astype(np.float32)


Style = Literal["joined", "apart", "gates"]


def affine(out: str, x: str, h: str, gates: int, style: Style, constants: Constants, size: int = READ) -> Nodes:
    """All gates of a cell, joined in one tensor ``out``: ``x W + h R + b``."""
    if style == "joined":
        constants[f"{out}_k"], constants[f"{out}_b"] = numbers(size + H, gates * H), numbers(gates * H)
        return [
            node("Concat", [x, h], [f"{out}_xh"], axis=-1),
            node("MatMul", [f"{out}_xh", f"{out}_k"], [f"{out}_p"]),
            node("Add", [f"{out}_p", f"{out}_b"], [out]),
        ]
    if style == "apart":
        constants[f"{out}_w"], constants[f"{out}_r"] = numbers(gates * H, size), numbers(gates * H, H)
        constants[f"{out}_b"], constants[f"{out}_c"] = numbers(gates * H), numbers(gates * H)
        return [
            node("Gemm", [x, f"{out}_w", f"{out}_b"], [f"{out}_p"], transB=1),
            node("Gemm", [h, f"{out}_r", f"{out}_c"], [f"{out}_q"], transB=1),
            node("Add", [f"{out}_p", f"{out}_q"], [out]),
        ]
    parts, made = [], []
    for g in range(gates):
        constants[f"{out}_w{g}"], constants[f"{out}_r{g}"] = numbers(size, H), numbers(H, H)
        constants[f"{out}_b{g}"] = numbers(1, H)
        made += [
            node("MatMul", [h, f"{out}_r{g}"], [f"{out}_h{g}"]),
            node("MatMul", [x, f"{out}_w{g}"], [f"{out}_x{g}"]),
            node("Add", [f"{out}_x{g}", f"{out}_b{g}"], [f"{out}_y{g}"]),
            node("Add", [f"{out}_h{g}", f"{out}_y{g}"], [f"{out}_g{g}"]),
        ]
        parts.append(f"{out}_g{g}")
    return [*made, node("Concat", parts, [out], axis=1)]


def split(joined: str, parts: Sequence[str], constants: Constants, slices: bool = False) -> Nodes:
    if not slices:
        constants["widths"] = np.array([H] * len(parts))
        return [node("Split", [joined, "widths"], list(parts), axis=1)]
    constants["lanes"] = np.array([1])
    made = []
    for k, name in enumerate(parts):
        constants[f"from{k}"], constants[f"to{k}"] = np.array([k * H]), np.array([(k + 1) * H])
        made.append(node("Slice", [joined, f"from{k}", f"to{k}", "lanes"], [name]))
    return made


def lstm(
    x: str, h: str, c: str, h2: str, c2: str, constants: Constants, style: Style = "joined", order: str = "icfo",
    *, slices: bool = False, sigmoid: str = "Sigmoid", forget: float = 0.0, size: int = READ,
) -> Nodes:  # fmt: skip
    p = f"{h2}_"
    made = affine(f"{p}z", x, h, 4, style, constants, size)
    made += split(f"{p}z", [f"{p}{g}" for g in order], constants, slices)
    if forget:
        constants["forget"] = np.array(forget, np.float32)
        made.append(node("Add", [f"{p}f", "forget"], [f"{p}ff"]))
    made += [
        node(sigmoid, [f"{p}i"], [f"{p}si"]),
        node(sigmoid, [f"{p}ff" if forget else f"{p}f"], [f"{p}sf"]),
        node(sigmoid, [f"{p}o"], [f"{p}so"]),
        node("Tanh", [f"{p}c"], [f"{p}tc"]),
        node("Mul", [c, f"{p}sf"], [f"{p}kept"]),
        node("Mul", [f"{p}tc", f"{p}si"], [f"{p}new"]),
        node("Add", [f"{p}new", f"{p}kept"], [c2]),
        node("Tanh", [c2], [f"{p}t"]),
        node("Mul", [f"{p}so", f"{p}t"], [h2]),
    ]
    return made


def gru(
    x: str, h: str, h2: str, constants: Constants, *, after: bool, spelling: int = 0, style: Style = "apart"
) -> Nodes:
    """A GRU; spellings 0: ``(1 - z) n + z h``, 1: ``n + z (h - n)``, 2: the other way around, ``h + z (n - h)``."""
    constants["one"] = np.array(1, np.float32)
    made = affine("zr", x, h, 2, style, constants)
    made += [node("Sigmoid", ["zr"], ["szr"]), *split("szr", ["r", "z"], constants)]
    constants["wn"], constants["rn"] = numbers(READ, H), numbers(H, H)
    constants["bn"], constants["cn"] = numbers(H), numbers(H)
    made += [node("MatMul", [x, "wn"], ["xn"]), node("Add", ["xn", "bn"], ["xb"])]
    if after:
        made += [
            node("MatMul", [h, "rn"], ["hn"]),
            node("Add", ["hn", "cn"], ["hb"]),
            node("Mul", ["r", "hb"], ["reset"]),
        ]
    else:
        made += [node("Mul", ["r", h], ["rh"]), node("MatMul", ["rh", "rn"], ["reset"])]
    made += [node("Add", ["xb", "reset"], ["a"]), node("Tanh", ["a"], ["n"])]
    if spelling == 0:
        made += [
            node("Sub", ["one", "z"], ["u"]),
            node("Mul", ["u", "n"], ["un"]),
            node("Mul", ["z", h], ["zh"]),
            node("Add", ["un", "zh"], [h2]),
        ]
        return made
    first, second = ("n", h) if spelling == 1 else (h, "n")
    return [
        *made,
        node("Sub", [second, first], ["change"]),
        node("Mul", ["change", "z"], ["part"]),
        node("Add", [first, "part"], [h2]),
    ]


def scan(
    cell: Nodes, states: Sequence[tuple[str, str]], constants: Constants, row: str, *,
    shape: Sequence[int | str] = (T, B, READ), axis: int = 0, backwards: int = 0, out_axis: int = 0,
    out_backwards: int = 0,
    batch: int | str = B,
) -> onnx.ModelProto:  # fmt: skip
    """A Scan over the axis of rounds."""
    body = graph(
        [*cell, node("Identity", [row], ["row"])],
        [*(value(s) for s, _ in states), value("x")],
        [*(value(s) for _, s in states), value("row")],
        constants,
    )
    outputs = [f"last{k}" for k in range(len(states))]
    made = node(
        "Scan", [*(f"{s}0" for s, _ in states), "xs"], [*outputs, "rows"], body=body, num_scan_inputs=1,
        scan_input_axes=[axis], scan_input_directions=[backwards], scan_output_axes=[out_axis],
        scan_output_directions=[out_backwards],
    )  # fmt: skip
    inputs = [*(value(f"{s}0", FLOAT, [batch, H]) for s, _ in states), value("xs", FLOAT, shape)]
    return model(graph([made], inputs, [*map(value, outputs), value("rows")]))


def loop(
    cell: Nodes, states: Sequence[tuple[str, str]], constants: Constants, row: str, *, reading: Nodes | None = None,
    before: Nodes | None = None, rounds: str = "T", shape: Sequence[int | str] = (T, B, READ), batch: int | str = B,
    go: Nodes | None = None, more: Sequence[onnx.ValueInfoProto] = (), extra: Sequence[tuple[str, str, str]] = (),
) -> onnx.ModelProto:  # fmt: skip
    """A Loop that gathers a row of ``xs`` in each round; ``extra`` are integers that it carries, with first values."""
    reading = [node("Gather", ["xs", "i"], ["x"], axis=0)] if reading is None else reading
    go = [node("Identity", ["go"], ["go_on"])] if go is None else go
    body = graph(
        [*go, *reading, *cell, node("Identity", [row], ["row"])],
        [value("i", INT64, []), value("go", BOOL, []), *(value(s) for s, _ in states)]
        + [value(a, INT64, []) for a, _, _ in extra],
        [value("go_on", BOOL), *(value(s) for _, s in states), *(value(b, INT64) for _, b, _ in extra), value("row")],
        constants,
    )
    outputs = [f"last{k}" for k in range(len(states))]
    made = node(
        "Loop", [rounds, "", *(f"{s}0" for s, _ in states), *(c for _, _, c in extra)],
        [*outputs, *(f"count{k}" for k in range(len(extra))), "rows"], body=body,
    )  # fmt: skip
    inputs = [*(value(f"{s}0", FLOAT, [batch, H]) for s, _ in states), value("xs", FLOAT, shape), *more]
    main = graph(
        [*(before or []), made], inputs, [*map(value, outputs), value("rows")],
        {"T": np.array(T), "zero": np.array(0), "most": np.array(2**31 - 1), "last_row": np.array(T - 1)},
    )  # fmt: skip
    return model(main)


def feeds(rounds: int = T, batch: int = B, states: Sequence[str] = ("h", "c"), axis: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    xs = rng.standard_normal((rounds, batch, READ)).astype(np.float32)
    found = {"xs": np.moveaxis(xs, 0, axis).copy()}
    return found | {f"{s}0": rng.standard_normal((batch, H)).astype(np.float32) for s in states}
