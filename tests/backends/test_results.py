"""Backends get kernels with several results: from Python and in C, whoever reads them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
import pytest

import eqsat
from eqsat import op
from eqsat.backends import Backend, Code, Kernel, Run, Writer
from eqsat.backends.backend import Prepared
from eqsat.codegen.run_model import Means
from eqsat.rules.reader import read_text

TARGET = """
target units
    peak float32 = 4e13
    bandwidth = 8e11, launch = 1e-8, dispatch = 1e-8
    link bandwidth = 4e11, latency = 1e-9
    composite sum_relu : exact
        s = x + y, d = Relu(s)
"""


class SumRelu(Backend):
    """Writes both results, whoever reads them."""

    target = "units"

    def __init__(self) -> None:
        self.kernels: list[Kernel] = []

    def prepare(self, run: Run) -> Prepared:
        self.kernels += run.kernels

        def execute(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
            known = dict(zip(run.inputs, arrays, strict=True))
            for kernel in run.kernels:
                x, y = (known[t] for t in kernel.operands if t is not None and not isinstance(t, np.ndarray))
                for result, value in zip(kernel.results, (x + y, np.maximum(x + y, 0)), strict=True):
                    if result is not None:
                        known[result] = value
            return [known[tensor] for tensor in run.outputs]

        return execute

    def emit(self, writer: Writer, runs: Sequence[Run]) -> Code:
        calls = []
        for run in runs:
            self.kernels += run.kernels
            lines = []
            for kernel in run.kernels:
                x, y = (writer.pointer(run, operand) for operand in kernel.operands)
                places = [
                    result or (kernel.unread[i] if i < len(kernel.unread) else None)
                    for i, result in enumerate(kernel.results)
                ]
                s, d = (writer.pointer(run, place) for place in places)
                size = next(place.elements for place in places if place is not None)
                total, rectified = f"{s}[i] = {x}[i] + {y}[i];", f"{d}[i] = {s}[i] > 0 ? {s}[i] : 0.0f;"
                lines.append(f"for (int i = 0; i < {size}; i++) {{ {total} {rectified} }}")
            calls.append("\n".join(lines))
        return Code(calls)


def model(read: str) -> ir.Model:
    x, y = eqsat.input("x", (3, 8)), eqsat.input("y", (3, 8))
    s = x + y
    d = op.Relu(s)
    outputs = {"both": [op.Exp(s), op.Sigmoid(d)], "second": [op.Sigmoid(d)], "last": [s, op.Exp(d), d]}
    return eqsat.graph(outputs[read])


@pytest.mark.parametrize("means", ["numpy", "c"])
@pytest.mark.parametrize("read", ["both", "second", "last"])
def test_results(read: str, means: Means) -> None:
    backend = SumRelu()
    result = eqsat.optimize(model(read), targets=list(read_text(TARGET).targets))
    assert "units.sum_relu" in [kernel for region in result.regions for kernel in region.nodes]
    rng = np.random.default_rng(3)
    feed = {name: rng.standard_normal((3, 8)).astype(np.float32) for name in ("x", "y")}
    expected = eqsat.run(model(read), feed)
    found = result.run(feed, means, backends=[backend])
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-6, atol=1e-6)
    (kernel,) = backend.kernels
    assert kernel.operator == "units.sum_relu" and kernel.names == ("Add", "Relu")
    assert [t is not None for t in kernel.results] == [read != "second", True]
    assert [t.shape for t in kernel.unread if t is not None] == ([(3, 8)] if read == "second" else [])
