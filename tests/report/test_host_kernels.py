"""Why a kernel of the host that stands for several operators is not the accelerator's."""

from __future__ import annotations

import numpy as np
import pytest

import eqsat
from eqsat import op
from eqsat.rules.ast import Target
from eqsat.rules.reader import read_text


def _target(supports: str) -> Target:
    return read_text(
        f"""target npu
    peak float32 = 1e12
    bandwidth = 1e10, launch = 1e-6, dispatch = 5e-3
    link bandwidth = 1e9, latency = 1e-6

    supports {supports}
"""
    ).targets[0]


@pytest.mark.parametrize(
    ("supports", "reason"),
    [
        ("Relu", "ConvTranspose not supported by npu"),
        ("ConvTranspose, Relu", "the host runs it with others in one kernel"),
    ],
)
def test_an_operator_that_the_target_lacks_is_the_reason(supports: str, reason: str) -> None:
    x = eqsat.input("x", (1, 4, 9, 9))
    weight = np.ones((4, 6, 3, 3), np.float32)
    graph = eqsat.graph(op.Relu(op.ConvTranspose(x, weight, strides=[2, 2])))
    result = eqsat.optimize(graph, targets=[_target(supports)], host="c")
    rows = {row.op: row.refusals[0].reason for row in result.summary.host_operators}
    assert rows["c.transposed_convolution"] == reason
