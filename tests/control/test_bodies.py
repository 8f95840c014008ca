"""Bodies are optimized, placed, priced, reported and verified like the main graph, to any depth."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import eqsat
from eqsat.errors import VerificationError
from eqsat.model.load import load
from eqsat.partition.read_plan import read_plan
from eqsat.search import Search
from tests.control.flows import BOOL, FLOAT, INT64, checked, graph, loop_body, model, run, value, weights

node = helper.make_node
X = np.random.default_rng(7).standard_normal((1, 8, 12, 12)).astype(np.float32)


def nested(channels: int = 8, size: int = 12, rounds: bool = True, count: int = 40) -> onnx.ModelProto:
    """A Loop that captures weights, scans an output and contains an If that captures from both graphs around it."""
    then = graph(
        [node("Conv", ["r", "w"], ["t1"], pads=[1] * 4), node("Relu", ["t1"], ["t2"]), node("Relu", ["t2"], ["t"])],
        [],
        [value("t")],
    )
    other = graph([node("Identity", ["x1"], ["e"])], [], [value("e")])
    body = loop_body(
        [
            node("Conv", ["s", "w"], ["k"], pads=[1] * 4),
            node("Relu", ["k"], ["r"]),
            node("Add", ["r", "s"], ["a"]),
            node("Tanh", ["a"], ["next"]),
            node("If", ["go"], ["o"], then_branch=then, else_branch=other),
        ],
        [("s", "next")],
        ["o"],
    )
    return model(
        graph(
            [
                node("Conv", ["x", "w"], ["x0"], pads=[1] * 4),
                node("Relu", ["x0"], ["x1"]),
                node("Loop", ["n" if rounds else "count", "c", "x1"], ["y", "ys"], body=body, name="steps"),
            ],
            [value("x", FLOAT, [1, channels, size, size]), value("n", INT64, []), value("c", BOOL, [])],
            [value("y"), value("ys")],
            {"w": weights(channels, channels, 3, 3), "count": np.array(count, np.int64)},
        )
    )


@pytest.mark.parametrize("targets", [(), "dnnl", ("dnnl", "ccompiler")])
def test_nested_bodies_compute_the_same_for_any_number_of_rounds(
    targets: str | tuple[str, ...], tmp_path: Path
) -> None:
    feeds = [{"x": X, "n": np.array(n), "c": np.array(c)} for n, c in ((3, True), (1, True), (0, True), (2, False))]
    result = checked(nested(), tmp_path, feeds, targets)
    assert result.cost < result.baseline_cost
    assert not result.summary.notes


def test_regions_in_bodies_are_functions_with_names_of_their_own_and_are_listed(tmp_path: Path) -> None:
    x = np.random.default_rng(1).standard_normal((1, 64, 28, 28)).astype(np.float32)
    result = checked(nested(64, 28), tmp_path, [{"x": x, "n": np.array(2), "c": np.array(True)}], "dnnl")
    rows = [row for row in result.summary.regions if row.target == "dnnl"]
    assert len({row.name for row in rows}) == len(rows) == 3
    assert {row.body for row in rows} == {"", "body of Loop 'steps'", "then_branch of If 'o'"}
    assert result.summary.after.regions == 3
    functions = {f.name for f in onnx.load(tmp_path / "result.onnx").functions}
    assert {row.name for row in rows} <= functions
    assert {h.op for h in result.summary.host_operators} >= {"Loop", "If"}
    text = str(result)
    assert "body of Loop 'steps'" in text and "dnnl_2" in text
    # Nothing of a body is lost when the file is read back.
    assert any(n.op.name == "Loop" for n in read_plan(load(tmp_path / "result.onnx")).main.plan.nodes)
    assert eqsat.compare(nested(64, 28), tmp_path / "result.onnx").agrees


def test_a_body_counts_as_often_as_it_runs() -> None:
    several = eqsat.optimize(nested(rounds=False))
    alone = eqsat.optimize(nested(rounds=False), default_rules=False)
    inner = next(r for r in several.summary.regions if r.body.startswith("body"))
    loop = next(k for k in several.summary.kernels if k.op == "Loop")
    assert loop.cost == pytest.approx(40 * inner.cost, rel=0.2)
    assert alone.cost == pytest.approx(alone.baseline_cost)
    assert several.baseline_cost == pytest.approx(alone.baseline_cost)
    assert several.summary.before.operators == 13 and several.summary.after.operators == 10


def test_a_trip_count_that_stands_for_none_is_none() -> None:
    unknown = eqsat.optimize(nested(), verify=False)
    for count in (2**31 - 1, 2**63 - 1):
        endless = eqsat.optimize(nested(rounds=False, count=count), verify=False)
        assert endless.baseline_cost == pytest.approx(unknown.baseline_cost)
        assert endless.cost == pytest.approx(unknown.cost)


def test_a_scan_carries_states_and_counts_for_each_step(tmp_path: Path) -> None:
    body = graph(
        [
            node("MatMul", ["a", "w"], ["p"]),
            node("Relu", ["p"], ["q"]),
            node("Relu", ["q"], ["a2"]),
            node("Add", ["b", "e"], ["b2"]),
            node("Mul", ["a2", "b2"], ["o"]),
        ],
        [value("a"), value("b"), value("e")],
        [value("a2"), value("b2"), value("o")],
    )
    main = graph(
        [node("Scan", ["s", "t", "x"], ["s1", "t1", "ys"], body=body, num_scan_inputs=1, scan_input_axes=[1])],
        [value("s", FLOAT, ["N", 6]), value("t", FLOAT, ["N", 6]), value("x", FLOAT, ["N", "T", 6])],
        [value("s1"), value("t1"), value("ys")],
        {"w": weights(6, 6)},
    )
    rng = np.random.default_rng(0)
    feeds = [
        {k: rng.standard_normal(s).astype(np.float32) for k, s in (("s", (n, 6)), ("t", (n, 6)), ("x", (n, t, 6)))}
        for n, t in ((2, 3), (1, 1), (4, 9))
    ]
    short, long = (checked(model(main), tmp_path, feeds, dims={"T": (1, 100, t)}) for t in (10, 20))
    assert short.summary.after.operators == 5
    assert long.cost == pytest.approx(2 * short.cost, rel=0.1)


def test_a_carried_value_may_change_its_shape(tmp_path: Path) -> None:
    body = loop_body(
        [node("Concat", ["s", "x"], ["t"], axis=0), node("Relu", ["t"], ["u"]), node("Relu", ["u"], ["v"])],
        [("s", "v")],
    )
    main = graph(
        [node("Loop", ["n", "c", "x"], ["y"], body=body)],
        [value("x", FLOAT, [2, 3]), value("n", INT64, []), value("c", BOOL, [])],
        [value("y")],
    )
    x = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
    result = checked(model(main), tmp_path, [{"x": x, "n": np.array(n), "c": np.array(True)} for n in (0, 1, 5)])
    assert result.summary.after.operators == result.summary.before.operators - 2


@pytest.mark.parametrize("rows", [0, 1, 2])
@pytest.mark.parametrize("declared", [True, False])
def test_a_carried_value_grows_whatever_the_body_declares(rows: int, declared: bool, tmp_path: Path) -> None:
    """Exporters of lists that grow declare the shape that the list has before the first round."""
    body = loop_body([node("Relu", ["x"], ["u"]), node("Concat", ["s", "u"], ["t"], axis=0)], [("s", "t")])
    if declared:
        body.input[2].CopyFrom(value("s", FLOAT, [rows, 3]))
    main = graph(
        [node("Loop", ["n", "c", "start"], ["y"], body=body)],
        [value("x", FLOAT, [1, 3]), value("n", INT64, []), value("c", BOOL, [])],
        [value("y")],
        {"start": weights(rows, 3)},
    )
    x = np.random.default_rng(0).standard_normal((1, 3)).astype(np.float32)
    checked(model(main), tmp_path, [{"x": x, "n": np.array(n), "c": np.array(True)} for n in (0, 1, 5)])


def test_a_body_with_sequences_is_optimized_around_them() -> None:
    body = loop_body(
        [node("Neg", ["x"], ["a"]), node("Neg", ["a"], ["b"]), node("SequenceInsert", ["s", "b"], ["t"])], []
    )
    body.input.append(helper.make_tensor_sequence_value_info("s", FLOAT, None))
    body.output.append(helper.make_tensor_sequence_value_info("t", FLOAT, None))
    main = graph(
        [
            node("SequenceEmpty", [], ["e"]),
            node("Loop", ["n", "c", "e"], ["l"], body=body),
            node("ConcatFromSequence", ["l"], ["y"], axis=0),
        ],
        [value("x", FLOAT, [2, 3]), value("n", INT64, []), value("c", BOOL, [])],
        [value("y", FLOAT, ["K", 3])],
    )
    x = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
    result = eqsat.optimize(model(main))
    assert not result.summary.notes
    assert "Neg" not in {n.op_type for n in result.model.graph.all_nodes()}
    feeds = {"x": x, "n": np.array(2), "c": np.array(True)}
    np.testing.assert_array_equal(next(iter(result.run(feeds).values())), run(model(main), feeds)[0])


def test_a_wrong_rule_is_found_in_the_body_that_it_is_wrong_in(tmp_path: Path) -> None:
    rule = tmp_path / "wrong.rules"
    rule.write_text("rule tanh_is_relu : real\n    Tanh(x + y)  =>  Relu(x)\n", "utf-8")
    with pytest.raises(VerificationError, match=r"the body of Loop 'steps', .*`tanh_is_relu`"):
        eqsat.optimize(nested(), rules=[rule], default_rules=False, trust=True)


@pytest.mark.parametrize(("objective", "seed"), [("worst", 0), ("random", 0), ("random", 1)])
def test_other_programs_of_bodies_compute_the_same(objective: str, seed: int) -> None:
    search = Search.of(nested(), "dnnl", free_sizes=True)
    result = search.extract(objective, seed)  # pyright: ignore[reportArgumentType]
    feeds = {"x": X, "n": np.array(3), "c": np.array(True)}
    for e, f in zip(run(nested(), feeds), result.run(feeds).values(), strict=True):
        np.testing.assert_allclose(f, e, rtol=1e-4, atol=1e-4)
    assert result.cost >= search.extract().cost


def test_the_same_input_gives_the_same_file(tmp_path: Path) -> None:
    for name in ("a.onnx", "b.onnx"):
        eqsat.optimize(nested(), "dnnl").save(tmp_path / name)
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
