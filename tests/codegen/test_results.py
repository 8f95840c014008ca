"""C calls of kernels with several results: each has a buffer, also one that nothing reads."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

import eqsat
from eqsat import op
from eqsat.codegen.call_text import is_plain_call
from eqsat.codegen.compiler import find_compiler
from eqsat.codegen.folder import write_program
from eqsat.codegen.generate import generate

TARGET = """
target kiwi
    peak float32 = 4e13
    bandwidth = 8e11, launch = 1e-7, dispatch = 1e-7
    link bandwidth = 4e11, latency = 1e-8
    supports MatMul
    composite add_norm : real
        s = x + y, d = LayerNormalization(s, scale, bias, epsilon=e)
        where d.axis == x.rank - 1
        call "kiwi_add_norm({x}, {y}, {scale}, {bias}, {s.size}, {d.shape[-1]}, {e}, {s}, {d})"
"""
# It writes both of its results, whoever reads them.
LIBRARY = """
#include "model_kiwi.h"
#include <math.h>
#include <stdio.h>
void kiwi_add_norm(const float *x, const float *y, const float *g, const float *b, int n, int w, double e, float *s,
                   float *d) {
    printf("kiwi %d %d\\n", n, w);
    for (int i = 0; i < n; i++) s[i] = x[i] + y[i];
    for (int i = 0; i < n; i += w) {
        float mean = 0, square = 0;
        for (int j = 0; j < w; j++) mean += s[i + j] / (float)w;
        for (int j = 0; j < w; j++) square += (s[i + j] - mean) * (s[i + j] - mean) / (float)w;
        for (int j = 0; j < w; j++) d[i + j] = (s[i + j] - mean) / sqrtf(square + (float)e) * g[j] + b[j];
    }
}
"""


def weights(*shape: int) -> np.ndarray:
    return np.random.default_rng([1, *shape]).standard_normal(shape).astype(np.float32)


def partitioned(read: str, folder: Path) -> eqsat.Result:
    """A model that reads the sum, the norm, or both."""
    (folder / "kiwi.target").write_text(TARGET, "utf-8")
    x, y = eqsat.input("x", (3, 8)), eqsat.input("y", (3, 8))
    total = op.MatMul(x, weights(8, 8)) + y
    normed = op.MatMul(op.LayerNormalization(total, weights(8), weights(1, 8)[0]), weights(8, 8))
    outputs = {"norm": [normed], "both": [normed + total], "apart": [op.Exp(normed), op.Sigmoid(total)]}
    return eqsat.optimize(eqsat.graph(outputs[read]), targets=[folder / "kiwi.target"])


@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize("read", ["norm", "both", "apart"])
def test_runs_with_the_library(read: str, saved: bool, tmp_path: Path) -> None:
    result = partitioned(read, tmp_path)
    model = result.model
    if saved:
        result.save(tmp_path / "model.onnx")
        model = eqsat.load(tmp_path / "model.onnx")
    write_program(model, tmp_path)
    (tmp_path / "kiwi.c").write_text(LIBRARY, "utf-8")
    command = [*find_compiler(), "-std=c11", "-Wall", "-Wextra", "-Werror", "-DMODEL_USE_KIWI", "-fsanitize=address"]
    sources = ["model.c", "model_weights.c", "model_example.c", "main.c", "kiwi.c", "-lm"]
    subprocess.run([*command, *sources, "-o", "check"], cwd=tmp_path, check=True)
    done = subprocess.run(["./check"], cwd=tmp_path, capture_output=True, encoding="utf-8", check=False)
    lines = done.stdout.splitlines()
    assert lines[0] == "kiwi 24 8"
    assert "PASSED" in lines[1] and done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("read", ["norm", "both", "apart"])
def test_runs_without_the_library(read: str, tmp_path: Path) -> None:
    result = partitioned(read, tmp_path)
    inputs = {"x": weights(3, 8), "y": weights(3, 8) + 1}
    expected = result.run(inputs)
    for name, array in result.run(inputs, backend="c").items():
        np.testing.assert_allclose(array, expected[name], rtol=1e-5, atol=1e-5)


def test_the_header_declares_all_results(tmp_path: Path) -> None:
    for read in ("norm", "both"):
        (text,) = generate(partitioned(read, tmp_path).model).files.values()
        pointers = ", ".join(["const float *"] * 4)
        assert f"void kiwi_add_norm({pointers}, int, int, double, float *, float *);" in text


def test_results_in_a_call_of_a_file() -> None:
    assert is_plain_call("kiwi_f({0}, {result0}, {result12}, 3)", "kiwi")
    assert not is_plain_call("kiwi_f({0}, {result0x})", "kiwi")
