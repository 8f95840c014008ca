"""The nine light networks for dnnl: proven optimal, equal to ONNX Runtime, in few regions, little left on the host."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from benchmarks.models import LIGHT, light
from eqsat.execute.inputs import complete_inputs
from eqsat.model.load import load
from eqsat.search import Search
from tests.fuzz.check import ort_outputs

MOST = {"resnet50": (3, 4), "inception_v2": (39, 25), "shufflenet": (34, 128), "densenet121": (121, 488)}
"""Regions and host operators that TVM reaches at best (with hand-made preparation of the models)."""


@pytest.mark.slow
@pytest.mark.parametrize("name", LIGHT)
def test_network(name):
    model = light(name, dense=256)  # half a gigabyte less of weights that are copied many times
    result = Search.of(model, ["dnnl"], time_limit=60).extract()
    assert result.stop_reason == "optimal"
    assert result.gap <= 1e-4
    assert result.cost <= result.baseline_cost
    totals = result.summary.after
    regions, operators = MOST.get(name, (3, 4))
    assert totals.regions <= regions
    assert totals.host_operators <= operators
    assert all(row.refusals and all(str(r) for r in row.refusals) for row in result.summary.host_operators)

    arrays = complete_inputs(load(model), seed=1)
    expected = ort_outputs(model.SerializeToString(), arrays)
    for found in (result.run(arrays), ort_outputs(ir.to_proto(result.model).SerializeToString(), arrays)):
        for key, value in expected.items():
            np.testing.assert_allclose(found[key], value, rtol=0, atol=1e-4 * max(np.abs(value).max(), 1e-3))
