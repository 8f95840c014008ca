"""NonMaxSuppression, whose boxes lie in lists by their left sides: no layout of boxes hides one from another."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

from eqsat.codegen.runtime import CModel
from eqsat.model.load import load

COUNT, CLASSES = 300, 2


def corners(rng: np.random.Generator, width: float) -> np.ndarray:
    """Boxes in the unit square, up to so wide."""
    first = rng.random((COUNT, 2))
    return np.concatenate([first, first + width * rng.random((COUNT, 2))], axis=1)


def apart(rng: np.random.Generator) -> np.ndarray:
    """Boxes of several groups, each moved to a place of its own."""
    return corners(rng, 0.3) + 2.0 * rng.integers(0, 90, (COUNT, 1))


def equal(rng: np.random.Generator) -> np.ndarray:
    """Boxes whose left sides are the same."""
    boxes = corners(rng, 0.5)
    boxes[:, 1] = 0.25
    return boxes


def far(rng: np.random.Generator) -> np.ndarray:
    """Boxes far from the origin, where few bits tell them apart."""
    return 1e8 + np.round(corners(rng, 0.4) * 200)


def infinite(rng: np.random.Generator) -> np.ndarray:
    """Some boxes have sides without end."""
    boxes = corners(rng, 0.4)
    boxes[::7, 3], boxes[::11, 1] = np.inf, -np.inf
    return boxes


def huge(rng: np.random.Generator) -> np.ndarray:
    """Boxes of which one is wider than all the others together."""
    boxes = 1e-3 * corners(rng, 0.4)
    boxes[5] = [-1e30, -1e30, 1e30, 1e30]
    return boxes


LAYOUTS = {
    "narrow": lambda rng: corners(rng, 0.05),
    "wide": lambda rng: corners(rng, 1.0),
    "apart": apart,
    "equal": equal,
    "far": far,
    "infinite": infinite,
    "huge": huge,
    "reversed": lambda rng: corners(rng, 0.3)[:, [2, 3, 0, 1]],
    "empty": lambda rng: np.zeros((COUNT, 4)),
}


@pytest.mark.parametrize("center", [0, 1])
@pytest.mark.parametrize("threshold", [0.0, 0.3])
def test_beside_onnxruntime(center: int, threshold: float) -> None:
    text = (
        f'<ir_version: 10, opset_import: ["": 21]> g (float[1,{COUNT},4] b, float[1,{CLASSES},{COUNT}] s) '
        f"=> (int64[n,3] y) <int64[1] m = {{{COUNT}}}, float[1] i = {{{threshold}}}, float[1] l = {{0.1}}> "
        f"{{y = NonMaxSuppression<center_point_box={center}>(b, s, m, i, l)}}"
    )
    model = onnx.parser.parse_model(text)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    compiled = CModel(load(model))
    kept = set()
    for number, (name, layout) in enumerate(LAYOUTS.items()):
        rng = np.random.default_rng(number)
        feeds = {
            "b": layout(rng).astype(np.float32)[None],
            "s": rng.random((1, CLASSES, COUNT), np.float32),
        }
        (want,) = session.run(None, feeds)
        want = np.asarray(want)
        np.testing.assert_array_equal(compiled.run(feeds)["y"], want, err_msg=name)
        kept.add(len(want))
    assert len(kept) > 3
