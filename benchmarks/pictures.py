"""The picture of the README, drawn from a real run.

python -m benchmarks.pictures
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir

import eqsat
from eqsat import op
from eqsat.model.builder import Tensor
from eqsat.report.svg import to_svg

PICTURE = Path(__file__).parent.parent / "docs" / "pictures" / "partition.svg"


def residual_block() -> ir.Model:
    """Two convolutions with a residual connection as exporters write them; `examples/optimize.ipynb` has the same."""
    rng = np.random.default_rng(0)

    def weights(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32) / 8

    def block(x: Tensor) -> Tensor:
        y = op.Conv(x, weights(32, 32, 3, 3), pads=[1, 1, 1, 1])
        return op.BatchNormalization(y, weights(32), weights(32), weights(32), np.ones(32, np.float32))

    x = eqsat.input("image", (1, 32, 28, 28))
    y = op.Max(block(op.Relu(block(x))) + x, np.float32(0))
    return eqsat.graph(op.Softmax(op.ReduceMean(y, np.array([2, 3]), keepdims=0)))


def drawn() -> str:
    """The picture as text."""
    return to_svg(eqsat.optimize(residual_block(), targets=["dnnl"], verify=False).summary)


if __name__ == "__main__":
    PICTURE.write_text(drawn(), "utf-8")
    print(PICTURE.name)
