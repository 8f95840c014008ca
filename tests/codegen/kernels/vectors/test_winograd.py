"""Winograd convolution in C for every instruction set, against float64."""

from __future__ import annotations

import subprocess
from dataclasses import replace

import numpy as np
import onnx
import pytest

from eqsat.cli import main
from eqsat.codegen.kernels import find
from eqsat.codegen.kernels.vectors.winograd import ASKED, KERNEL, pays
from eqsat.codegen.runtime import CModel
from eqsat.model.load import load
from tests.codegen.kernels.vectors.harness import UNIT, run, step
from tests.codegen.kernels.vectors.test_direct_convolution import conv_case


def winograd_case(rng, shape, outputs, pads, **more):
    case = conv_case(rng, shape, outputs, (3, 3), pads=pads, rank=15, **more)
    case.attributes = {**case.attributes, ASKED: 1}
    # Factors of the transforms amplify errors: a larger multiple of the sum of absolute products, and not of that of
    # one window alone but of all that share a tile.
    case.tolerance = 60 * UNIT * float(np.max(case.tolerance)) / (UNIT * (4 + 2 * np.sqrt(shape[1] * 9 + 2)))
    return case


def test_transform_of_weights():
    """The transforms multiply to a convolution: A^T [(G g) (B^T d)] is exact in rationals."""
    b = np.array(
        [[4, 0, -5, 0, 1, 0], [0, -4, -4, 1, 1, 0], [0, 4, -4, -1, 1, 0], [0, -2, -1, 2, 1, 0], [0, 2, -1, -2, 1, 0],
         [0, 4, 0, -5, 0, 1]]
    )  # fmt: skip
    a = np.array([[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]])
    rng = np.random.default_rng(0)
    d, g = rng.standard_normal(6), rng.standard_normal(3)
    np.testing.assert_allclose(a @ ((KERNEL @ g) * (b @ d)), np.correlate(d, g, "valid"), rtol=1e-12)


@pytest.mark.parametrize("gaps", [False, True])
def test_shapes(gaps):
    rng = np.random.default_rng(1)
    cases = [
        winograd_case(rng, (1, 16, 8, 8), 32, (1, 1, 1, 1)),
        winograd_case(rng, (2, 21, 7, 9), 19, (1, 1, 1, 1)),
        winograd_case(rng, (1, 5, 6, 4), 3, (0, 1, 2, 1)),
        winograd_case(rng, (1, 32, 30, 30), 16, (0, 0, 0, 0), bias=False),
    ]
    run(cases, rng=np.random.default_rng(2) if gaps else None)


def test_epilogue():
    rng = np.random.default_rng(3)
    case = winograd_case(rng, (1, 17, 9, 10), 20, (1, 1, 1, 1))
    other = rng.standard_normal(case.expected.shape).astype(np.float32)
    case.operands, case.steps = [other], [step("Add", 0, 1), step("Relu", 2)]
    case.expected = np.maximum(case.expected + other, 0)
    run([case])


def test_only_where_asked_for():
    case = winograd_case(np.random.default_rng(4), (1, 64, 56, 56), 64, (1, 1, 1, 1))
    family, task = case.build(None)
    assert family.name == "Winograd convolution"
    assert pays(task)
    plain = replace(task, attributes={k: v for k, v in task.attributes.items() if k != ASKED})
    direct = find(plain)
    assert direct is not None
    assert direct.name == "direct convolution"
    small = winograd_case(np.random.default_rng(5), (1, 8, 4, 4), 8, (1, 1, 1, 1)).build(None)[1]
    assert not pays(small)


NET = """<ir_version: 10, opset_import: ["": 21]>
    g (float[1,32,29,30] x) => (float[1,64,29,30] y)
    <float[64,32,3,3] w, float[64,64,3,3] v, float[64] b> {
        a = Conv<pads=[1,1,1,1]>(x, w, b)
        c = Relu(a)
        d = Conv<pads=[1,1,1,1]>(c, v)
        e = Add(d, a)
        y = Relu(e)
    }"""


def network() -> onnx.ModelProto:
    """Two convolutions with 3 by 3 windows and a residual."""
    model = onnx.parser.parse_model(NET)
    rng = np.random.default_rng(6)
    del model.graph.initializer[:]
    for name, shape in (("w", (64, 32, 3, 3)), ("v", (64, 64, 3, 3)), ("b", (64,))):
        value = rng.standard_normal(shape).astype(np.float32) * np.float32(np.sqrt(2 / np.prod(shape[1:])))
        model.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    return model


def test_option():
    model = load(network())
    x = np.random.default_rng(7).standard_normal((1, 32, 29, 30)).astype(np.float32)
    direct, winograd = CModel(model), CModel(model, winograd=True)
    count = [k.family for k in winograd.emitted.kernels].count("Winograd convolution")
    assert count == 2
    assert "Winograd convolution" not in [k.family for k in direct.emitted.kernels]
    a, b = direct.run({"x": x})["y"], winograd.run({"x": x})["y"]
    error = float(np.abs(a - b).max() / np.abs(a).max())
    assert 0 < error < 3e-5


@pytest.mark.slow
def test_program_checks_itself(tmp_path):
    onnx.save(network(), tmp_path / "net.onnx")
    assert main(["codegen", str(tmp_path / "net.onnx"), "-o", str(tmp_path / "out"), "--winograd", "-q"]) == 0
    sources = ["model.c", "model_weights.c", "model_example.c", "main.c"]
    built = subprocess.run(
        ["cc", "-std=c11", "-O1", *sources, "-o", "program", "-lm"],
        cwd=tmp_path / "out", capture_output=True, encoding="utf-8", check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    done = subprocess.run(["./program"], cwd=tmp_path / "out", capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stdout
    assert "PASSED" in done.stdout
