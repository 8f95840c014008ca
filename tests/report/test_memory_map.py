"""The map of memory: what is there at each kernel by a walk, places that do not overlap, compiled programs."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

import eqsat
from eqsat import op
from eqsat.cli import main
from eqsat.codegen.profile import KernelTime, Profile
from eqsat.errors import EqsatError
from eqsat.partition.value_names import value_names
from eqsat.report import memory_map
from eqsat.report.as_json import to_dict
from eqsat.report.html import to_html
from eqsat.report.measured import with_times
from eqsat.report.memory_map import MemoryMap, MemoryRow
from eqsat.report.table import as_text
from eqsat.result import Result
from tests.report.sample import SUMMARY

CHAIN = """<ir_version: 8, opset_import: ["": 17]>
g (float[64, 64] x) => (float[64, 64] y) { a = Sin (x) b = Cos (a) c = Tan (b) d = MatMul (c, a) y = Exp (d) }"""


def _walked(result: Result, target: int, sizes: dict[str, int]) -> list[int]:
    """Bytes in a target's memory at each kernel, by keeping a set of tensors while the plan is walked."""
    plan = result.plan
    names = [row.name for row in result.summary.kernels]
    nodes = sorted(plan.nodes, key=lambda n: names.index(_name(result, n.outputs)))
    outside = {v for v, _ in plan.inputs} | {v for v, _ in plan.outputs} if target == 0 else set()
    totals = []
    for k in range(len(nodes)):
        there = set()
        for i, earlier in enumerate(nodes):
            for value in earlier.outputs:
                later = [n.target for n in nodes[k:] if value in n.inputs]
                if earlier.target == target and i <= k and (target in later or i == k):
                    there.add(value)
                if target == 0 and earlier.target != 0 and i <= k and any(d != earlier.target for d in later):
                    there.add(value)
        for value in {v for n in nodes for v in n.inputs if v is not None}:
            readers = [j for j, n in enumerate(nodes) if value in n.inputs and n.target == target]
            made = [n.target for n in nodes if value in n.outputs]
            foreign = not made or made[0] != target
            if target != 0 and readers and foreign and min(readers) <= k <= max(readers):
                there.add(value)
        there -= outside | set(plan.constants) | {None}
        kinds = [plan.types[v] for v in there if v is not None]
        totals.append(sum(int(np.prod([sizes.get(str(d), d) for d in t.shape or ()])) * 4 for t in kinds))
    return totals


def _name(result: Result, outputs: tuple[int | None, ...]) -> str:
    return next(value_names(result.plan).of[v] for v in outputs if v is not None)


def _at(found: MemoryMap) -> list[int]:
    return [sum(t.bytes for t in found.tensors if t.first <= k <= t.last) for k in range(found.steps)]


@pytest.mark.parametrize("targets", [(), ("dnnl",)], ids=str)
def test_what_is_there_at_each_kernel(targets: tuple[str, ...]) -> None:
    x = eqsat.input("x", ("n", 64))
    a = op.Sin(x)
    weights = np.ones((64, 64), np.float32)
    product = op.Relu(op.MatMul(op.Relu(op.MatMul(a, weights)), weights))
    model = eqsat.graph(op.Exp(op.Add(op.Add(op.Sin(product), product), op.Cos(a))))
    result = eqsat.optimize(model, targets, dims={"n": (1, 4096, 1000)}, verify=False)
    assert result.summary.memory
    for found in result.summary.memory:
        number = result.summary.targets.index(found.target)
        assert found.sizes == {"n": 1000}
        assert _at(found) == _walked(result, number, found.sizes)
        assert found.peak == max(_at(found)) == _at(found)[found.peak_at]
        assert found.arena >= found.peak


def test_places_do_not_overlap() -> None:
    (found,) = eqsat.optimize(CHAIN, verify=False).summary.memory
    assert {t.name for t in found.tensors} == {"a", "b", "c", "d"}
    for s, t in itertools.combinations(found.tensors, 2):
        apart = s.last < t.first or t.last < s.first
        assert apart or s.offset + s.bytes <= t.offset or t.offset + t.bytes <= s.offset
    assert (found.peak, found.arena, found.peak_at) == (3 * 64 * 64 * 4, 3 * 64 * 64 * 4, 2)
    assert all(t.type == "float[64, 64]" and t.bytes == 16384 for t in found.tensors)


def test_tensors_whose_sizes_data_decide_are_counted() -> None:
    model = """<ir_version: 8, opset_import: ["": 17]>
    g (float[64] x) => (float[64] y, int64[1, M] n) { a = Sin (x) i = NonZero (a) n = Neg (i) y = Exp (a) }"""
    (found,) = eqsat.optimize(model, verify=False).summary.memory
    assert found.unknown == 1
    assert [t.name for t in found.tensors] == ["a"]


def test_pairs_are_counted_and_too_many_are_not_placed(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        begins = rng.integers(0, 12, 15)
        rows = [MemoryRow("", "", 1, 0, int(b), int(b + rng.integers(0, 6))) for b in begins]
        meeting = [s.first <= t.last and t.first <= s.last for s, t in itertools.combinations(rows, 2)]
        assert memory_map._pairs(rows) == sum(meeting)
    monkeypatch.setattr(memory_map, "MOST_PAIRS", 3)
    assert eqsat.optimize(CHAIN, verify=False).summary.memory == ()


def test_measured_times_stand_beside_costs() -> None:
    model = eqsat.graph(op.Softmax(op.Relu(op.MatMul(eqsat.input("x", (32, 64)), np.ones((64, 16), np.float32)))))
    result = eqsat.optimize(model, verify=False)
    with result.compile() as program:
        profile = program.profile(np.ones((32, 64), np.float32), repeat=2)
        summary = with_times(result.summary, profile)
    assert summary.measured is not None
    assert summary.measured.seconds == pytest.approx(profile.microseconds * 1e-6)
    times = [k.measured for k in summary.kernels if k.measured is not None]
    others = [seconds for _, seconds in summary.measured.others]
    assert times
    assert sum(times) + sum(others) == pytest.approx(summary.measured.seconds)
    (found,) = summary.memory
    assert (found.of, found.steps) == ("program", len(profile.kernels))
    assert "as compiled C" in as_text(summary)
    assert "compiled C program" in to_html(summary)
    assert to_dict(summary)["measured"]["seconds"] == summary.measured.seconds


def test_a_profile_of_another_model_is_refused() -> None:
    other = Profile("other", (KernelTime("elsewhere", "Conv", "loops", (1,), 1.0, 1.0),))
    with pytest.raises(EqsatError, match="a profile of this result is required"):
        with_times(SUMMARY, other)
    near = Profile("net", (KernelTime("conv1", "Conv", "loops", (1,), 2.0, 0.5), *other.kernels))
    found = with_times(SUMMARY, near)
    assert [k.measured for k in found.kernels] == [2e-6, None]
    assert found.measured is not None
    assert found.measured.others == (("Conv elsewhere", 1e-6),)


def test_the_command_measures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.onnx"
    eqsat.save(eqsat.graph(op.Relu(op.Sin(eqsat.input("x", (8, 8))))), path)
    assert main(["optimize", str(path), "--measure", "--no-verify"]) == 0
    assert "as compiled C on this machine" in capsys.readouterr().out
