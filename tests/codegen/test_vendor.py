"""Vendors' calls: the header, the arguments, and a program that runs with and without the vendor's library."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

import eqsat
from eqsat import op
from eqsat.backends.region import RegionOperand, Tensor
from eqsat.codegen import c_types
from eqsat.codegen.call_text import VendorCall, declarations
from eqsat.codegen.compiler import find_compiler
from eqsat.codegen.folder import write_program
from eqsat.codegen.generate import generate
from eqsat.codegen.runtime import CModel
from eqsat.errors import TargetError
from eqsat.execute.inputs import complete_inputs
from eqsat.rules.format import format_file

TARGET = """
target kiwi
    summary "an accelerator with one kernel"
    peak float32 = 4e13
    bandwidth = 8e11, launch = 1e-7, dispatch = 1e-7
    link bandwidth = 4e11, latency = 1e-8
    composite conv : exact
        let c = Conv(x, w, b?)
        let s = c + r | c
        Relu(s) | s
        where const(w, b), c.group == 1, c.pads == [1, 1, 1, 1], c.strides == [1, 1], w.shape[2:] == [3, 3]
        call "kiwi_conv({x}, {w}, {b}, {r}, {x.shape[1:]}, {w.shape[0]}, {y})"
"""
# The vendor's kernel rectifies always, as the model below does.
LIBRARY = """
#include "model_kiwi.h"
#include <stddef.h>
#include <stdio.h>
void kiwi_conv(const float *x, const float *w, const float *b, const float *r, int c, int h, int v, int o, float *y) {
    printf("kiwi %d %d %d %d %d\\n", c, h, v, o, r != NULL);
    for (int k = 0; k < o; k++) for (int i = 0; i < h; i++) for (int j = 0; j < v; j++) {
        float sum = b != NULL ? b[k] : 0;
        for (int n = 0; n < c; n++) for (int p = 0; p < 3; p++) for (int q = 0; q < 3; q++) {
            const int s = i + p - 1, t = j + q - 1;
            if (s >= 0 && s < h && t >= 0 && t < v) sum += x[(n * h + s) * v + t] * w[((k * c + n) * 3 + p) * 3 + q];
        }
        const int at = (k * h + i) * v + j;
        if (r != NULL) sum += r[at];
        y[at] = sum > 0 ? sum : 0;
    }
}
"""


@pytest.fixture(scope="module")
def partitioned(tmp_path_factory: pytest.TempPathFactory) -> eqsat.Result:
    folder = tmp_path_factory.mktemp("target")
    (folder / "kiwi.target").write_text(TARGET, "utf-8")
    rng = np.random.default_rng(0)

    def weights(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32) / 4

    x = eqsat.input("x", (1, 4, 6, 7))
    a = op.Relu(op.Conv(x, weights(8, 4, 3, 3), weights(8), pads=[1, 1, 1, 1]))
    b = op.Relu(op.Conv(a, weights(8, 8, 3, 3), pads=[1, 1, 1, 1]) + eqsat.input("r", (1, 8, 6, 7)))
    pooled = op.MaxPool(b, kernel_shape=[2, 2], strides=[2, 2])
    c = op.Relu(op.Conv(pooled, weights(5, 8, 3, 3), weights(5), pads=[1, 1, 1, 1]))
    return eqsat.optimize(eqsat.graph(c), targets=[folder / "kiwi.target"])


def test_runs_without_the_library(partitioned: eqsat.Result) -> None:
    inputs = complete_inputs(partitioned.model)
    expected = partitioned.run(inputs)
    for name, array in partitioned.run(inputs, backend="c").items():
        np.testing.assert_allclose(array, expected[name], rtol=0, atol=1e-5)


@pytest.mark.parametrize("saved", [False, True])
def test_runs_with_the_library(partitioned: eqsat.Result, saved: bool, tmp_path: Path) -> None:
    model = partitioned.model
    if saved:
        partitioned.save(tmp_path / "model.onnx")
        model = eqsat.load(tmp_path / "model.onnx")
    emitted = write_program(model, tmp_path)
    assert list(emitted.files) == ["model_kiwi.h"]
    (tmp_path / "kiwi.c").write_text(LIBRARY, "utf-8")
    command = [*find_compiler(), "-std=c11", "-Wall", "-Wextra", "-Werror", "-DMODEL_USE_KIWI"]
    sources = ["model.c", "model_weights.c", "model_example.c", "main.c", "kiwi.c", "-lm"]
    subprocess.run([*command, *sources, "-o", "check"], cwd=tmp_path, check=True)
    done = subprocess.run(["./check"], cwd=tmp_path, capture_output=True, encoding="utf-8", check=False)
    lines = done.stdout.splitlines()
    assert lines[:3] == ["kiwi 4 6 7 8 0", "kiwi 8 6 7 8 1", "kiwi 8 3 3 5 0"]
    assert "PASSED" in lines[3] and done.returncode == 0


def test_the_header_declares_the_function(partitioned: eqsat.Result) -> None:
    (text,) = generate(partitioned.model).files.values()
    pointers = ", ".join(["const float *"] * 4)
    assert f"void kiwi_conv({pointers}, int, int, int, int, float *);" in text


def test_nothing_is_shared_with_what_the_call_replaces(partitioned: eqsat.Result) -> None:
    """What a call reads lives on until it returns, and it may write its result at once."""
    emitted = generate(partitioned.model)
    for entry in emitted.memory_map:
        for other in emitted.memory_map:
            if entry is not other and entry.first <= other.last and other.first <= entry.last:
                assert entry.offset + entry.size <= other.offset or other.offset + other.size <= entry.offset


def call(text: str, dtype: type) -> VendorCall:
    return VendorCall(text, [np.zeros(3, dtype)], [Tensor("y", ir.DataType.INT32, (3,))])


def c_type(operand: RegionOperand) -> str:
    return c_types.storage(operand.dtype) if isinstance(operand, Tensor) else c_types.c_type(operand)


def test_texts_of_calls() -> None:
    first = call('f({0}, {{1}}, NULL, "a,b", {result}, -2, 0.5)', np.int8)
    assert first.fill(lambda x: "q" if isinstance(x, Tensor) else "p") == 'f(p, {1}, NULL, "a,b", q, -2, 0.5)'


def test_declarations() -> None:
    first = call('f({0}, NULL, "a,(b", {result}, -2, 1)', np.int8)
    second = call('f({0}, {0}, "c", {result}, 1, 0.5)', np.int8)
    declaration = "void f(const int8_t *, const int8_t *, const char *, int32_t *, int, double);"
    assert declaration in declarations([first, second], c_type)
    assert "void f(const void *, const float *" in declarations([first, call(second.text, np.float32)], c_type)
    assert "void g(void);" in declarations([call("g()", np.int8)], c_type)


def test_what_is_no_function_call_is_left_to_the_vendor() -> None:
    assert "two" not in declarations([call("do { two(); calls(); } while (0)", np.int8)], c_type)
    variadic = [call("f({0})", np.int8), call("f({0}, 1)", np.int8)]
    assert "void f" not in declarations(variadic, c_type)


def test_compiled_model_is_the_portable_one(partitioned: eqsat.Result) -> None:
    assert "#ifdef MODEL_USE_KIWI" in CModel(partitioned.model).emitted.source


# ---- calls of plain operators ----------------------------------------------------------------------------

OPERATORS = """
target kiwi
    summary "an accelerator whose operators are called one by one"
    peak float32 = 4e13
    bandwidth = 8e11, launch = 1e-8, dispatch = 1e-8
    link bandwidth = 4e11, latency = 1e-9
    supports Add, Mul
        where A.shape == B.shape, C.size > 8
        call "kiwi_{1 if x.shape[0] == 4 else 2}({A}, {B}, {C}, {x.size})"
    supports Add
        where A.shape == B.shape
    supports LeakyRelu
        call "kiwi_leaky({x}, {y}, {node.alpha}, {y.size})"
    supports Clip
        call "kiwi_clip({input}, {min}, {max}, {output}, {input.size})"
    supports Concat
        where node.axis == 0
        call "kiwi_join({y}, {x.size}, {inputs})"
"""
OPERATORS_LIBRARY = """
#include "model_kiwi.h"
#include <stdio.h>
void kiwi_1(const float *a, const float *b, float *c, int n) {
    puts("sum or product");
    for (int i = 0; i < n; i++) c[i] = SUM ? a[i] + b[i] : a[i] * b[i];
}
void kiwi_leaky(const float *x, float *y, double alpha, int n) {
    puts("leaky");
    for (int i = 0; i < n; i++) y[i] = x[i] < 0 ? (float)alpha * x[i] : x[i];
}
void kiwi_clip(const float *x, const float *low, const void *high, float *y, int n) {
    printf("clip %d\\n", high != NULL);
    for (int i = 0; i < n; i++) y[i] = x[i] < *low ? *low : x[i];
}
void kiwi_join(float *y, int n, const float *a, const float *b) {
    puts("join");
    for (int i = 0; i < n; i++) { y[i] = a[i]; y[n + i] = b[i]; }
}
"""


@pytest.mark.parametrize("saved", [False, True])
def test_operators_are_called_one_by_one(saved: bool, tmp_path: Path) -> None:
    (tmp_path / "kiwi.target").write_text(OPERATORS, "utf-8")
    x, y = eqsat.input("x", (4, 3)), eqsat.input("y", (4, 3))
    a = op.LeakyRelu(x + y, alpha=0.25)
    b = op.Clip(a, np.float32(-0.5))
    result = eqsat.optimize(
        eqsat.graph(op.Concat(b, a, axis=0)), targets=[tmp_path / "kiwi.target"], default_rules=False
    )
    model = result.model
    if saved:
        result.save(tmp_path / "model.onnx")
        model = eqsat.load(tmp_path / "model.onnx")
    emitted = write_program(model, tmp_path, isas=[])
    assert emitted.coverage["kiwi"].called == 4
    (tmp_path / "kiwi.c").write_text(OPERATORS_LIBRARY, "utf-8")
    command = [*find_compiler(), "-std=c11", "-Wall", "-Wextra", "-Werror", "-DMODEL_USE_KIWI", "-DSUM=1"]
    sources = ["model.c", "model_weights.c", "model_example.c", "main.c", "kiwi.c", "-lm"]
    subprocess.run([*command, *sources, "-o", "check"], cwd=tmp_path, check=True)
    done = subprocess.run(["./check"], cwd=tmp_path, capture_output=True, encoding="utf-8", check=False)
    assert done.stdout.splitlines()[:4] == ["sum or product", "leaky", "clip 0", "join"]
    assert "PASSED" in done.stdout and done.returncode == 0
    inputs = complete_inputs(model)
    for name, array in result.run(inputs).items():
        np.testing.assert_allclose(CModel(model).run(inputs)[name], array, rtol=0, atol=1e-6)


def test_an_entry_without_a_call_comes_first_where_it_holds(tmp_path: Path) -> None:
    """The entry that accepts an operator is the one whose call counts."""
    (tmp_path / "kiwi.target").write_text(OPERATORS, "utf-8")
    x, y = eqsat.input("x", (2, 2)), eqsat.input("y", (2, 2))
    result = eqsat.optimize(eqsat.graph(op.LeakyRelu(x + y)), targets=[tmp_path / "kiwi.target"], default_rules=False)
    emitted = generate(result.model)
    assert [region.target for region in result.regions] == ["kiwi"]
    assert "kiwi_leaky" in emitted.source and "kiwi_1" not in emitted.source and "kiwi_2" not in emitted.source


def test_a_file_with_calls_of_operators_is_formatted(tmp_path: Path) -> None:
    path = tmp_path / "kiwi.target"
    path.write_text(OPERATORS.lstrip("\n"), "utf-8")
    formatted = format_file(path.read_text("utf-8"), str(path))
    path.write_text(formatted, "utf-8")
    assert formatted.count('call "') == 4 and format_file(formatted, str(path)) == formatted


def test_a_call_is_given_once(tmp_path: Path) -> None:
    twice = OPERATORS.replace('        call "kiwi_leaky', '        call "kiwi_other({x})"\n        call "kiwi_leaky')
    (tmp_path / "kiwi.target").write_text(twice, "utf-8")
    with pytest.raises(TargetError, match="`call` must be given once"):
        eqsat.optimize(eqsat.graph(op.Relu(eqsat.input("x", (2,)))), targets=[tmp_path / "kiwi.target"])


def test_a_call_may_ask_for_the_shape_of_a_single_result(tmp_path: Path) -> None:
    text = TARGET.replace("{w.shape[0]}, {y}", "{y.shape[1]}, {y}")
    (tmp_path / "kiwi.target").write_text(text, "utf-8")
    weights = np.ones((5, 4, 3, 3), np.float32)
    y = op.Relu(op.Conv(eqsat.input("x", (1, 4, 6, 7)), weights, pads=[1, 1, 1, 1]))
    result = eqsat.optimize(eqsat.graph(y), targets=[tmp_path / "kiwi.target"])
    assert "NULL, NULL, 4, 6, 7, 5, " in generate(result.model).source
