"""Every composite of the target dnnl, in every spelling of its pattern, executed by oneDNN."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from eqsat.rules.ast import Composite
from eqsat.rules.expand import expand
from tests.codegen.onednn_cases import assert_same, needs_onednn
from tests.codegen.regions import Regions
from tests.quantization.runtime import has_exact_products
from tests.targets.instances import instance, model_of
from tests.targets.test_shipped import CASES, composites

pytestmark = needs_onednn

DNNL = [c for name, c in composites() if name == "dnnl"]
WEIGHTS = {"w", "v", "b", "k", "scale", "bias", "mean", "variance"}
MOST_PRIMITIVES = {
    "conv_depthwise": 2,
    "int8_conv_depthwise": 2,
    "int8_concat": 9,
    "int8_softmax": 4,
    "eltwise_binary": 2,
}
"""What takes more than one primitive besides reorders: no fusion of two convolutions, no softmax of integers."""


def regions_of(composite: Composite, seed: int) -> Regions:
    """All clauses of a composite, each a region of its own."""
    rng = np.random.default_rng(seed)
    regions = Regions()
    operands, attributes = CASES["dnnl"][composite.name]
    for clause in expand(composite.patterns):
        made = instance(clause, operands, attributes)
        proto, feed = model_of(made, clause, operands, rng)
        positive = any(node.op_type in ("Log", "Sqrt") for node in proto.graph.node)
        for name in set(feed) if positive else {"variance", "r"} & set(feed):
            # Logarithms and roots of what is positive, quotients of what is not close to zero.
            if feed[name].dtype == np.float32:
                feed[name] = np.abs(feed[name]) + np.float32(0.1)
        for tensor in proto.graph.initializer:
            if tensor.data_type == onnx.TensorProto.INT8 and tensor.name in ("w", "v"):
                size = int(np.prod(tensor.dims))
                tensor.raw_data = rng.integers(-127, 128, size).astype(np.int8).tobytes()
        constant = [
            n for n, v in feed.items()
            if (n in WEIGHTS and composite.name != "scale_shift") or (v.size == 1 and n[0] in "sz")
        ]  # fmt: skip
        regions.add(proto.graph, feed, composite=composite.name, constant=constant)
    return regions


@pytest.mark.slow
@pytest.mark.parametrize("composite", DNNL, ids=lambda c: c.name)
def test_every_clause_agrees_with_numpy(composite: Composite) -> None:
    if composite.name.startswith("int8_") and not has_exact_products():
        pytest.skip("oneDNN's 8-bit products saturate on this processor: it has no VNNI")
    made = assert_same(regions_of(composite, seed=1))
    clauses = len(expand(composite.patterns))
    kernels = [p for p in made.primitives() if not p.is_reorder]
    assert clauses <= len(kernels) <= clauses * MOST_PRIMITIVES.get(composite.name, 1) + 2
    assert {p.kernel for p in kernels} == {f"r{k}_{composite.name}" for k in range(clauses)}
