"""A summary made by hand, with everything in it that a report may have to show."""

from __future__ import annotations

import dataclasses
from typing import Any

from eqsat.report.memory_map import MemoryMap, MemoryRow
from eqsat.report.provenance import MadeFrom, Provenance
from eqsat.report.summary import (
    GrowthRow,
    HostRow,
    KernelRow,
    RefusalRow,
    RegionRow,
    RuleRow,
    SaturationSummary,
    Summary,
    Totals,
    Verification,
)

NO_LRN = RefusalRow("dnnl", "operator not supported by dnnl")
NO_CEIL = RefusalRow("dnnl", "dnnl runs MaxPool only where ceil_mode == 0: ceil_mode is 1")
NO_LRN_EITHER = RefusalRow("ccompiler", "operator not supported by ccompiler")

SUMMARY = Summary(
    model="net[bold]",
    targets=("cpu", "dnnl", "ccompiler"),
    objective="best",
    numerics="real",
    before=Totals(cost=0.012, operators=1176, composites=0, regions=0, host_operators=1176),
    after=Totals(cost=0.003, operators=124, composites=54, regions=2, host_operators=3),
    bound=0.00299,
    gap=0.0033333,
    stop_reason="time limit",
    saturation=SaturationSummary(
        iterations=6,
        enodes=12345,
        classes=3456,
        stop_reason="node limit",
        growth=(GrowthRow("explosive", "my.rules:3", 8765, "sum<1>", "Add", 432),),
    ),
    seconds={"load": 0.11, "saturate": 0.52, "extract": 0.3},
    kernels=(
        KernelRow(
            name="conv1",
            op="dnnl.conv2d_bias_relu",
            target="dnnl",
            region="dnnl_0",
            operators=("Conv", "Relu"),
            cost=1e-4,
            rule="conv2d_bias_relu",
            place="dnnl.target:31",
        ),
        KernelRow("norm<1>", "LRN", "cpu", "cpu_0", ("LRN",), 2e-3),
    ),
    regions=(
        RegionRow("dnnl_0", "dnnl", 20, 44, ("x",), ("conv1", "y"), 1.2e-3),
        RegionRow("cpu_0", "cpu", 1, 1, ("conv1",), ("norm<1>",), 2e-3),
        RegionRow("ccompiler_0", "ccompiler", 1, 1, ("norm<1>",), ("z",), 1e-6),
    ),
    host_operators=(
        HostRow("norm<1>", "LRN", 2e-3, (NO_LRN, NO_LRN_EITHER)),
        HostRow("pool", "MaxPool", 1e-5, (NO_CEIL, RefusalRow("ccompiler", "cheaper on the host"))),
        HostRow("norm2", "LRN", 1e-3, (NO_LRN, NO_LRN_EITHER)),
    ),
    rules=(
        RuleRow("fold_batchnorm", "fusion.rules:12", matches=53, applied=12, chosen=53, seconds=0.003),
        RuleRow(
            "explosive",
            "my.rules:3",
            matches=9999,
            held_back=3,
            mismatches=5,
            mismatch="int8[] is not float32[2]",
            seconds=0.1,
        ),
        RuleRow("never_fired", "my.rules:9", matches=0),
    ),
    memory=(MemoryMap("cpu", "plan", 192, 128, 1, 2, {}, 1, (MemoryRow("a<1>", "float[32]", 128, 0, 0, 1),)),),
    made=Provenance((MadeFrom("model", "net<1>.onnx", 1234, "ab" * 32),), {}, "eqsat optimize 'net<1>.onnx'"),
    verification=Verification(agrees=True, outputs=1, max_abs_error=3.14e-6, max_rel_error=0.0, seed=7),
)


def sample(**changes: Any) -> Summary:
    """The sample with some fields replaced."""
    return dataclasses.replace(SUMMARY, **changes)
