"""Simpler control flow: equal branches, loops that make a few rounds, nodes that do not change, useless values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import eqsat
from eqsat.model.load import load
from eqsat.schema.attributes import subgraphs
from eqsat.simplify.passes import simplified
from tests.control.flows import BOOL, FLOAT, INT64, checked, graph, loop_body, model, value, weights

node = helper.make_node
RNG = np.random.default_rng(3)
X = RNG.standard_normal((4, 6)).astype(np.float32)


def branches(then: list[onnx.NodeProto], other: list[onnx.NodeProto], outputs: int = 1) -> onnx.ModelProto:
    names = [f"o{k}" for k in range(outputs)]
    bodies = [graph(nodes, [], [value(f"{p}{n}") for n in names]) for p, nodes in (("t", then), ("e", other))]
    main = graph(
        [node("If", ["c"], names, then_branch=bodies[0], else_branch=bodies[1])],
        [value("x", FLOAT, [4, 6]), value("c", BOOL, [])],
        [value(n) for n in names],
        {"w": weights(6, 6)},
    )
    return model(main)


def operators(result: object) -> list[str]:
    return [k.op for k in result.summary.kernels]  # pyright: ignore[reportAttributeAccessIssue]


FEEDS = [{"x": X, "c": np.array(True)}, {"x": X, "c": np.array(False)}]


def test_an_if_with_equal_branches_becomes_its_branch(tmp_path: Path) -> None:
    same = [[node("MatMul", ["x", "w"], [f"{p}m"]), node("Exp", [f"{p}m"], [f"{p}o0"])] for p in "te"]
    result = checked(branches(same[0], same[1]), tmp_path, FEEDS)
    assert operators(result) == ["MatMul", "Exp"]
    assert [v.name for v in result.model.graph.outputs] == ["o0"]


def test_the_order_of_operands_does_not_keep_branches_apart(tmp_path: Path) -> None:
    then = [node("Exp", ["x"], ["ta"]), node("Add", ["ta", "x"], ["to0"])]
    other = [node("Exp", ["x"], ["ea"]), node("Add", ["x", "ea"], ["eo0"])]
    result = checked(branches(then, other), tmp_path, FEEDS)
    assert operators(result) == ["Exp", "Add"]


def test_branches_may_become_equal_only_when_they_are_optimized(tmp_path: Path) -> None:
    then = [node("Relu", ["x"], ["ta"]), node("Relu", ["ta"], ["tb"]), node("Exp", ["tb"], ["to0"])]
    other = [node("Relu", ["x"], ["ea"]), node("Exp", ["ea"], ["eo0"])]
    result = checked(branches(then, other), tmp_path, FEEDS)
    assert operators(result) == ["Relu", "Exp"]


def test_an_output_that_both_branches_compute_alike_leaves_the_if(tmp_path: Path) -> None:
    then = [node("Exp", ["x"], ["to0"]), node("Neg", ["x"], ["to1"])]
    other = [node("Exp", ["x"], ["eo0"]), node("Abs", ["x"], ["eo1"])]
    result = checked(branches(then, other, 2), tmp_path, FEEDS)
    assert "Exp" in [n.op_type for n in result.model.graph]
    assert [len(n.outputs) for n in result.model.graph if n.op_type == "If"] == [1]


def test_random_branches_stay(tmp_path: Path) -> None:
    both = [[node("RandomNormalLike", ["x"], [f"{p}o0"])] for p in "te"]
    assert any(n.op_type == "If" for n in simplified(load(branches(both[0], both[1]))).graph)


def loop(
    nodes: list[onnx.NodeProto],
    carried: list[tuple[str, str]],
    scanned: list[str],
    *,
    rounds: int | None = None,
    outputs: list[str] | None = None,
) -> onnx.ModelProto:
    body = loop_body(nodes, carried, scanned)
    names = [f"y{k}" for k in range(len(carried) + len(scanned))]
    count = "n" if rounds is None else "fixed"
    inputs = [value("x", FLOAT, [4, 6]), value("z", FLOAT, [4, 6])]
    inputs += [value("n", INT64, [])] if rounds is None else []
    main = graph(
        [node("Loop", [count, "", "x", "z"][: 2 + len(carried)], names, body=body)],
        inputs,
        [value(n) for n in outputs or names],
        {"w": weights(6, 6), "fixed": np.array(rounds or 0, np.int64)},
    )
    return model(main)


Z = RNG.standard_normal((4, 6)).astype(np.float32)
ROUNDS = [{"x": X, "z": Z, "n": np.array(n)} for n in (3, 1, 0)]


def test_nodes_that_do_not_change_are_computed_once(tmp_path: Path) -> None:
    source = loop(
        [
            node("MatMul", ["z", "w"], ["m"]),
            node("Tanh", ["m"], ["t"]),
            node("Add", ["s", "t"], ["next"]),
            node("Neg", ["t"], ["row"]),
        ],
        [("s", "next")],
        ["row"],
    )
    result = checked(source, tmp_path, ROUNDS)
    outside = [n.op_type for n in result.model.graph]
    assert {"MatMul", "Tanh"} <= set(outside)
    inside = [n.op_type for n in result.model.graph if n.op_type == "Loop" for g in subgraphs(n) for n in g]
    assert "MatMul" not in inside and "Tanh" not in inside and "Add" in inside


def test_nodes_that_may_fail_stay_in_a_loop_that_may_not_run(tmp_path: Path) -> None:
    nodes = [
        node("Gather", ["z", "n"], ["g"], axis=0),
        node("Add", ["s", "g"], ["next"]),
    ]
    feeds = [{"x": X, "z": Z, "n": np.array(n)} for n in (3, 0)]
    result = checked(loop(nodes, [("s", "next")], []), tmp_path, feeds)
    assert [n.op_type for n in result.model.graph] == ["Loop"]


def test_carried_values_that_nobody_reads_or_that_never_change_are_dropped(tmp_path: Path) -> None:
    nodes = [
        node("Add", ["s", "k"], ["next"]),
        node("Identity", ["k"], ["k2"]),
        node("Neg", ["next"], ["row"]),
    ]
    result = checked(loop(nodes, [("s", "next"), ("k", "k2")], ["row"], outputs=["y0", "y1"]), tmp_path, ROUNDS)
    (made,) = [n for n in result.model.graph if n.op_type == "Loop"]
    assert len(made.inputs) == 3 and len(made.outputs) == 1
    # A value that only feeds itself.
    nodes = [node("Add", ["s", "s"], ["next"]), node("Exp", ["k"], ["k2"])]
    result = checked(loop(nodes, [("s", "next"), ("k", "k2")], [], outputs=["y0"]), tmp_path, ROUNDS)
    (made,) = [n for n in result.model.graph if n.op_type == "Loop"]
    assert len(made.inputs) == 3


@pytest.mark.slow
def test_carried_values_that_a_body_hands_on_as_they_are_are_dropped(tmp_path: Path) -> None:
    nodes = [node("Add", ["s", "k"], ["next"])]
    for stacks in ([], ["k"]):
        result = checked(loop(nodes, [("s", "next"), ("k", "k")], stacks), tmp_path, ROUNDS)
        (made,) = [n for n in result.model.graph if n.op_type == "Loop"]
        assert len(made.inputs) == 3
    nodes = [node("Add", ["s", "s"], ["next"])]
    result = checked(loop(nodes, [("s", "next"), ("k", "k")], ["k"]), tmp_path, ROUNDS)
    (made,) = [n for n in result.model.graph if n.op_type == "Loop"]
    assert len(made.inputs) == 3


def test_a_value_that_decides_over_others_stays(tmp_path: Path) -> None:
    nodes = [node("Add", ["s", "k"], ["next"]), node("Tanh", ["k"], ["k2"])]
    result = checked(loop(nodes, [("s", "next"), ("k", "k2")], [], outputs=["y0"]), tmp_path, ROUNDS)
    (made,) = [n for n in result.model.graph if n.op_type == "Loop"]
    assert len(made.inputs) == 4


@pytest.mark.parametrize("stack", [False, True])
def test_a_loop_of_a_few_rounds_is_unrolled(stack: bool, tmp_path: Path) -> None:
    nodes = [
        node("MatMul", ["s", "w"], ["m"]),
        node("Cast", ["i"], ["f"], to=FLOAT),
        node("Add", ["m", "f"], ["next"]),
        *([node("Neg", ["next"], ["row"])] if stack else []),
    ]
    source = loop(nodes, [("s", "next")], ["row"] if stack else [], rounds=3)
    result = checked(source, tmp_path, [{"x": X, "z": Z}])
    assert {"MatMul", "Gemm"} & set(operators(result))
    assert "Loop" not in operators(result)
    assert result.cost < result.baseline_cost


def test_cost_decides_over_the_number_of_rounds(tmp_path: Path) -> None:
    several = {n: loop([node("Tanh", ["s"], ["next"])], [("s", "next")], [], rounds=n) for n in (17, 40, 1000)}
    made = {n: operators(checked(source, tmp_path, [{"x": X, "z": Z}])) for n, source in several.items()}
    assert made[17].count("Tanh") == 17 and made[40].count("Tanh") == 40
    assert made[1000][0] == "Loop"  # So many operators are not tried.


def test_a_loop_whose_rounds_cost_more_when_they_stand_alone_stays(tmp_path: Path) -> None:
    """Rows of a stack are joined for nothing in a loop; alone, each takes an operator."""
    rows = [node("Neg", [f"e{k}"], [f"row{k}"]) for k in range(3)]
    made = [node("Exp", ["next" if k == 0 else f"e{k - 1}"], [f"e{k}"]) for k in range(3)]
    source = loop([node("Tanh", ["s"], ["next"]), *made, *rows], [("s", "next")], ["row0", "row1", "row2"], rounds=6)
    result = checked(source, tmp_path, [{"x": X, "z": Z}])
    assert operators(result)[0] == "Loop"
    assert [row.applied for row in result.summary.rules if row.name == "unrolled loops"] == [1]


def test_a_loop_that_may_end_early_stays(tmp_path: Path) -> None:
    source = loop([node("Exp", ["s"], ["next"])], [("s", "next")], [], rounds=3)
    body = source.graph.node[0].attribute[0].g
    del body.node[:]
    body.node.extend(
        [
            node("Exp", ["s"], ["next"]),
            node("ReduceMax", ["next"], ["most"], keepdims=0),
            node("Less", ["most", "x00"], ["go_on"]),
        ]
    )
    body.initializer.append(onnx.numpy_helper.from_array(np.array(100, np.float32), "x00"))
    assert "Loop" in operators(checked(source, tmp_path, [{"x": X, "z": Z}, {"x": X * 0 - 3, "z": Z}]))


@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_a_scan_of_a_few_steps_is_unrolled(axis: int, reverse: int, tmp_path: Path) -> None:
    body = graph(
        [node("Mul", ["s", "e"], ["m"]), node("Tanh", ["m"], ["next"])], [value("s"), value("e")], [value("next")]
    )
    scan = node(
        "Scan", ["s0", "x"], ["y"], body=body, num_scan_inputs=1, scan_input_axes=[axis],
        scan_input_directions=[reverse],
    )  # fmt: skip
    shape = [5, 3, 4]
    size = shape.pop(axis)
    main = graph([scan], [value("s0", FLOAT, shape), value("x", FLOAT, [5, 3, 4])], [value("y")])
    feeds = {"s0": RNG.standard_normal(shape), "x": RNG.standard_normal((5, 3, 4))}
    result = checked(model(main), tmp_path, [{k: v.astype(np.float32) for k, v in feeds.items()}])
    assert operators(result).count("Tanh") == size


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_a_scan_that_stacks_rows_is_unrolled(axis: int, tmp_path: Path) -> None:
    body = graph(
        [node("Tanh", ["s"], ["next"]), node("Exp", ["next"], ["row"])],
        [value("s"), value("e")],
        [value("next"), value("row")],
    )
    scan = node(
        "Scan", ["s0", "x"], ["y", "rows"], body=body, num_scan_inputs=1, scan_output_axes=[axis],
        scan_output_directions=[1],
    )  # fmt: skip
    main = graph([scan], [value("s0", FLOAT, [3, 4]), value("x", FLOAT, [5, 2])], [value("y"), value("rows")])
    feeds = {"s0": RNG.standard_normal((3, 4)), "x": RNG.standard_normal((5, 2))}
    checked(model(main), tmp_path, [{k: v.astype(np.float32) for k, v in feeds.items()}])


def test_the_cost_before_is_that_of_the_control_flow_as_it_stands() -> None:
    rounds = (4, 4000)
    few, many = (eqsat.optimize(loop([node("Tanh", ["s"], ["next"])], [("s", "next")], [], rounds=n)) for n in rounds)
    assert "Loop" in operators(many) and "Loop" not in operators(few)
    assert many.baseline_cost == pytest.approx(1000 * few.baseline_cost, rel=0.3)
    assert many.summary.before.operators == few.summary.before.operators
    assert few.baseline_cost > few.cost
