"""The parts of a cost add up to it, and each kernel says what limits it."""

from __future__ import annotations

import dataclasses
import math
from functools import cache

import numpy as np
import onnx
import pytest

import eqsat
from eqsat import op
from eqsat.report.breakdown import breakdown
from eqsat.report.pictures import roofline
from eqsat.report.summary import KernelRow, Summary
from eqsat.stages.options import Objective
from eqsat.targets.work import Work
from tests.report.sample import sample


@cache
def _model() -> onnx.ModelProto:
    x = eqsat.input("x", (1, 8, 32, 32))
    rest = op.Relu(op.Conv(x, np.ones((16, 8, 3, 3), np.float32)))
    return eqsat.graph(op.Softmax(op.MatMul(op.Reshape(rest, (16, 900)), np.ones((900, 64), np.float32))))


@pytest.mark.parametrize("targets", [(), ("dnnl",), ("ethos_n", "dnnl")], ids=str)
@pytest.mark.parametrize("objective", ["best", "worst"])
def test_the_parts_are_the_cost(targets: tuple[str, ...], objective: Objective) -> None:
    summary = eqsat.optimize(_model(), targets, objective=objective, verify=False).summary
    parts = breakdown(summary)
    assert math.fsum(p.cost for p in parts) == pytest.approx(summary.after.cost, rel=1e-9)
    assert sum(p.count for p in parts if p.part == "kernels") <= len(summary.kernels)
    assert all(p.cost > 0 for p in parts)
    regions = math.fsum(r.dispatch + r.copies for r in summary.regions)
    assert math.fsum(p.cost for p in parts if p.part in ("dispatch", "copies")) == pytest.approx(regions)
    assert (regions > 0) == (summary.after.regions > 0)


def _row(work: Work | None, cost: float, measured: float | None = None) -> KernelRow:
    return KernelRow("y", "Conv", "cpu", "cpu_0", ("Conv",), cost, work=work, measured=measured)


def test_what_limits_a_kernel_and_how_much_of_that_it_attains() -> None:
    compute = Work(1e6, 1e3, compute=9e-6, memory=2e-6, launch=1e-6)
    assert (_row(compute, 1e-5).limit, _row(compute, 1e-5).attained) == ("compute", pytest.approx(0.9))
    # What was measured counts, not what was predicted.
    assert _row(compute, 1e-5, measured=3e-5).attained == pytest.approx(0.3)
    memory = dataclasses.replace(compute, memory=5e-5)
    assert (_row(memory, 1e-4).limit, _row(memory, 1e-4).attained) == ("memory", pytest.approx(0.5))
    assert (_row(None, 1e-4).limit, _row(None, 1e-4).attained) == (None, None)
    assert _row(compute, 0.0).attained is None


@pytest.mark.parametrize("picked", ["Gather", "Slice", "Gather(Cast)"])
def test_what_is_not_read_does_not_count(picked: str) -> None:
    table = np.ones((20_000, 64), np.float32)
    i = eqsat.input("i", (3,), "int64")
    if picked == "Slice":
        y = op.Slice(eqsat.input("x", (20_000, 64)), np.array([5]), np.array([8]), np.array([0]))
    else:
        y = op.Gather(table, op.Cast(i, to="int32") if "Cast" in picked else i, axis=0)
    summary = eqsat.optimize(eqsat.graph(y), host="c" if "Cast" in picked else "cpu", verify=False).summary
    row = next(kernel for kernel in summary.kernels if picked[:5] in "".join(kernel.operators))
    assert row.work is not None
    assert row.work.bytes < 4 * 3 * 64 * 4


def test_what_several_results_share_is_read() -> None:
    parts = op.Split(eqsat.input("x", (2000, 64)), axis=0, num_outputs=2)
    summary = eqsat.optimize(eqsat.graph([op.Exp(part) for part in parts]), verify=False).summary
    row = next(kernel for kernel in summary.kernels if "Split" in kernel.operators)
    assert row.work is not None
    assert row.work.bytes == 2 * 2000 * 64 * 4


def test_launches_have_a_row_of_their_own_unless_a_kernel_is_cheaper() -> None:
    work = Work(1e6, 1e3, compute=9e-6, memory=2e-6, launch=1e-6)
    rows = (_row(work, 1e-5), _row(work, 2e-5), _row(work, 5e-7))
    summary = sample(kernels=rows, regions=(), targets=("cpu",))
    found = {p.part: p for p in breakdown(summary)}
    assert found["launches"].cost == pytest.approx(2e-6)
    assert found["launches"].count == 2
    assert found["kernels"].cost == pytest.approx(2.85e-5)
    assert found["kernels"].limits == (("compute", 3),)


def _roofline(summary: Summary) -> str:
    return str(roofline(summary))


def test_the_roofline_has_a_dot_for_each_kernel_and_a_line_for_each_rate() -> None:
    summary = eqsat.optimize(_model(), ["dnnl"], verify=False).summary
    busy = [k for k in summary.kernels if k.work is not None and k.work.macs]
    assert _roofline(summary).count("<title>") == len(busy)
    assert "dnnl: " in _roofline(summary)
    assert roofline(sample(kernels=())) is None
    free = Work(5.0, 1.0, compute=0.0, memory=0.0, launch=1e-6)
    assert _roofline(sample(kernels=(_row(free, 1e-6),))).count("<polyline") == 0
    assert "<b>" not in _roofline(sample(kernels=(dataclasses.replace(busy[0], target="cpu", name="<b>"),)))
