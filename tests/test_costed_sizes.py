"""Costs of models with free sizes: at several sizes they are the mean, and programs are chosen by it."""

from __future__ import annotations

import itertools
from pathlib import Path

import onnx
import pytest

import eqsat
from eqsat.cli import main
from eqsat.errors import ModelError
from eqsat.model.read.given_sizes import GivenSize
from eqsat.schema.chosen_sizes import where_costed
from eqsat.schema.free_sizes import FreeSize

HEAD = '<ir_version: 8, opset_import: ["": 17]> g '
DENSE = (
    HEAD
    + """(float[N, 8] x, float[8, 4] w, float[4] b, float[4] c) => (float[N, 4] y) {
    a = MatMul(x, w) d = Add(a, b) e = Add(d, c) f = Relu(e) y = Relu(f) }"""
)
LARGE = (
    HEAD
    + """(float[N, 256] x, float[256, 256] w, float[256] b) => (float[N, 256] y) {
    a = MatMul(x, w) d = Add(a, b) y = Relu(d) }"""
)
TWO = HEAD + "(float[N, S, 8] x, float[8] b) => (float[N, S, 8] y) { a = Add(x, b) y = Relu(a) }"


def test_costs_are_the_mean_over_the_sizes():
    sizes = [1, 64, 4096]
    bound = [eqsat.optimize(DENSE, dims={"N": n}) for n in sizes]
    mean = eqsat.optimize(DENSE, dims={"N": sizes})
    assert mean.cost == pytest.approx(sum(r.cost for r in bound) / 3)
    assert mean.baseline_cost == pytest.approx(sum(r.baseline_cost for r in bound) / 3)
    note = next(note for note in mean.summary.notes if "costs are" in note)
    assert note.endswith("costs are the mean of those at N = 1; N = 64; N = 4096")


def test_order_and_repetition_of_sizes_change_nothing():
    a, b = (eqsat.optimize(DENSE, dims={"N": sizes}).cost for sizes in ([4096, 1, 64, 64], [1, 64, 4096]))
    assert a == b


def test_several_sizes_decide_which_program_is_chosen():
    def place(sizes: GivenSize) -> list[str]:
        return [r.target for r in eqsat.optimize(LARGE, targets=["dnnl"], dims={"N": sizes}, verify=False).regions]

    assert place(1) == place(64) == place([1, 4]) == ["cpu"]
    assert place(4096) == ["dnnl"]
    # In the middle of the list is 64, but most of the time goes where N is 4096.
    assert place((1, 4096, 64)) == ["cpu"]
    assert place([1, 64, 4096]) == ["dnnl"]


def test_all_combinations_of_several_sizes():
    result = eqsat.optimize(TWO, dims={"N": [1, 4], "S": [16, 128, 512]})
    bound = [eqsat.optimize(TWO, dims={"N": n, "S": s}).cost for n, s in itertools.product([1, 4], [16, 128, 512])]
    assert result.cost == pytest.approx(sum(bound) / 6)


def test_many_combinations_are_taken_together():
    sizes = {"a": FreeSize(1, 5, 3, (1, 2, 3, 4, 5)), "b": FreeSize(1, 4, 2, (1, 2, 3, 4)), "c": FreeSize(1, None, 9)}
    assert where_costed(sizes) == (
        {"a": 1, "b": 1, "c": 9},
        {"a": 2, "b": 2, "c": 9},
        {"a": 3, "b": 3, "c": 9},
        {"a": 4, "b": 4, "c": 9},
        {"a": 5, "b": 4, "c": 9},
    )
    four = FreeSize(1, 4, 2, (1, 2, 3, 4))
    assert len(where_costed({"a": four, "b": four})) == 16
    assert where_costed({}) == ({},)


def test_copies_to_accelerators_cost_the_mean():
    sizes = [16, 4096]
    bound = [eqsat.optimize(DENSE, targets=["dnnl"], dims={"N": n}, objective="worst").cost for n in sizes]
    assert eqsat.optimize(DENSE, targets=["dnnl"], dims={"N": sizes}).cost <= sum(bound) / 2


def test_the_command_line_takes_several_sizes(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "m.onnx"
    onnx.save(onnx.parser.parse_model(DENSE), path)
    for text, note in [
        ("N=1,16,64", "the mean of those at N = 1; N = 16; N = 64"),
        ("N=1..512@8,16", "the mean of those at N = 8; N = 16"),
        ("N=1..512@8", "costs are at N = 8"),
        ("N=1..", "costs are at N = 1"),
    ]:
        assert main(["optimize", str(path), "--dim", text, "-o", str(tmp_path / "out.onnx")]) == 0
        assert note in " ".join(capsys.readouterr().out.split())
        shape = onnx.load(tmp_path / "out.onnx").graph.output[0].type.tensor_type.shape
        assert shape.dim[0].dim_param == "N"
    assert main(["optimize", str(path), "--dim", "N=4,4", "-o", str(tmp_path / "out.onnx")]) == 0
    assert onnx.load(tmp_path / "out.onnx").graph.output[0].type.tensor_type.shape.dim[0].dim_value == 4
    for text in ("N=1,", "N=,1", "N=0,4", "N=1..4@2,9", "N=1..4@", "N=1,2..4"):
        assert main(["optimize", str(path), "--dim", text]) != 0


@pytest.mark.parametrize("sizes", [[], [0, 4], [1, True], [1, None], ["1", 2], FreeSize(4, 2, 0), FreeSize(1, 4, 9)])
def test_lists_that_are_none(sizes: object):
    with pytest.raises(ModelError, match=r"or a list of them|within the range of `N` is required; got 9 in 1\.\.4$"):
        eqsat.optimize(DENSE, dims={"N": sizes})  # pyright: ignore[reportArgumentType]


def test_steps_of_a_scan_are_counted_at_each_size():
    text = (
        HEAD
        + """(float[4] s, float[N, 4] x) => (float[4] t, float[N, 4] y) {
        t, y = Scan<num_scan_inputs=1, body = step (float[4] a, float[4] b) => (float[4] c, float[4] d) {
            c = Add(a, b) d = Mul(c, b) }>(s, x) }"""
    )
    sizes = [100, 300, 1100]
    bound = [eqsat.optimize(text, dims={"N": n}, default_rules=False).baseline_cost for n in sizes]
    assert bound[2] > 3 * bound[1] > 6 * bound[0]
    assert eqsat.optimize(text, dims={"N": sizes}, default_rules=False).baseline_cost == pytest.approx(sum(bound) / 3)
