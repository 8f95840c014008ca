"""Calls of whole regions: how a target's file gives them, and a program that makes them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest

import eqsat
from eqsat import op
from eqsat.backends.runs import as_a_whole
from eqsat.codegen.call_text import RegionCallText, is_plain_call
from eqsat.codegen.compiler import find_compiler
from eqsat.codegen.folder import write_program
from eqsat.codegen.generate import generate
from eqsat.errors import CodegenError, TargetError
from eqsat.partition.call_sizes import with_list
from eqsat.rules.ast import Target
from eqsat.rules.format import format_file
from eqsat.rules.reader import read_text

TARGET = """target kiwi
    summary "an accelerator that executes regions"
    peak float32 = 4e13
    bandwidth = 8e11, launch = 1e-9, dispatch = 1e-9
    link bandwidth = 4e13, latency = 1e-9
    region call "{name}({inputs}, {outputs})"

    supports Add, Mul, Relu, Sub
"""
LIBRARY = """
#include "model_kiwi.h"
#include <stdio.h>
void kiwi_0(const float *x, const float *z, float *sum, float *product) {
    puts("kiwi_0");
    for (int i = 0; i < 24; i++) {
        const float rectified = x[i] > 0 ? x[i] : 0;
        sum[i] = rectified + z[i];
        product[i] = sum[i] * rectified;
    }
}
void kiwi_1(const float *x, const float *y, float *difference) {
    puts("kiwi_1");
    for (int i = 0; i < 24; i++) difference[i] = x[i] - y[i] > 0 ? x[i] - y[i] : 0;
}
"""


def target(text: str) -> Target:
    (found,) = read_text(text, "kiwi.target").targets
    return found


@pytest.fixture(scope="module")
def partitioned() -> eqsat.Result:
    """Two regions with something between that the accelerator has not."""
    x, z = eqsat.input("x", (2, 3, 4)), eqsat.input("z", (2, 3, 4))
    rectified = op.Relu(x)
    total = rectified + z
    product = total * rectified
    difference = op.Relu(op.Tanh(total) - product)
    return eqsat.optimize(eqsat.graph([product, difference]), targets=[target(TARGET)], default_rules=False)


def test_it_is_read_and_printed() -> None:
    assert target(TARGET).region_call == "{name}({inputs}, {outputs})"
    assert format_file(TARGET, "kiwi.target") == TARGET
    joined = TARGET.replace('"{name}({inputs}, {outputs})"', '"{name}("\n                "{inputs}, {outputs})"')
    assert target(joined).region_call == target(TARGET).region_call
    assert format_file(joined, "kiwi.target") == joined


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("{outputs}", "{results}"), r"(?s)placeholders \{name\}.*got `\{results\}`"),
        ((", {outputs}", ""), r"got no \{outputs\}"),
        (("{name}", "{name"), "placeholders"),
        (("region call", "regions call"), "`region` is required before `call`; got `regions`"),
        (("    supports", '    region call "f({outputs})"\n    supports'), "`region call` must be given once"),
        (("target kiwi", "host kiwi"), "only an accelerator has a `region call`|a host has no link"),
    ],
)
def test_mistakes(change: tuple[str, str], message: str) -> None:
    with pytest.raises(TargetError, match=message):
        target(TARGET.replace(*change))


@pytest.mark.slow
@pytest.mark.parametrize("saved", [False, True])
def test_a_program_calls_regions(partitioned: eqsat.Result, saved: bool, tmp_path: Path) -> None:
    """The vendor's functions get the operands in the order of the region's own function."""
    assert [region.target for region in partitioned.regions] == ["kiwi", "cpu", "kiwi"]
    model = partitioned.model
    if saved:
        partitioned.save(tmp_path / "model.onnx")
        model = eqsat.load(tmp_path / "model.onnx")
    emitted = write_program(model, tmp_path)
    assert emitted.coverage["kiwi"].called == emitted.coverage["kiwi"].total == 5
    (tmp_path / "kiwi.c").write_text(LIBRARY, "utf-8")
    sources = ["model.c", "model_weights.c", "model_example.c", "main.c", "-lm"]
    compiler = [*find_compiler(), "-std=c11", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([*compiler, "-DMODEL_USE_KIWI", *sources, "kiwi.c", "-o", "called"], cwd=tmp_path, check=True)
    subprocess.run([*compiler, *sources, "-o", "portable"], cwd=tmp_path, check=True)
    for program, lines in (("called", ["kiwi_0", "kiwi_1"]), ("portable", [])):
        done = subprocess.run([f"./{program}"], cwd=tmp_path, capture_output=True, encoding="utf-8", check=False)
        assert done.stdout.splitlines()[: len(lines)] == lines
        assert "PASSED" in done.stdout and done.returncode == 0


def test_the_order_is_that_of_the_saved_function(partitioned: eqsat.Result) -> None:
    functions = {function.name: function for function in partitioned.model.functions.values()}
    (header,) = generate(partitioned.model).files.values()
    for name in ("kiwi_0", "kiwi_1"):
        count, results = len(functions[name].inputs), len(functions[name].outputs)
        pointers = ", ".join(["const float *"] * count + ["float *"] * results)
        assert f"void {name}({pointers});" in header


def test_a_text_of_a_file_is_one_call_of_the_target(partitioned: eqsat.Result, tmp_path: Path) -> None:
    """A saved model may come from anybody: what is more than a call of the target's function is refused."""
    calls = [dict(node.metadata_props).get("eqsat.call") for node in partitioned.model.graph]
    assert [call for call in calls if call] == ["kiwi_0({0}, {1}, {result0}, {result1})", "kiwi_1({0}, {1}, {result0})"]
    assert all(is_plain_call(call, "kiwi") for call in calls if call)
    assert not is_plain_call("system({0}); kiwi_0({result0})", "kiwi")
    assert not is_plain_call("kiwi_0({inputs}, {outputs})", "kiwi")
    partitioned.save(tmp_path / "model.onnx")
    proto = onnx.load(tmp_path / "model.onnx")
    for node in proto.graph.node:
        for entry in node.metadata_props:
            if entry.key == "eqsat.call":
                entry.value = 'system("rm -r .")'
    with pytest.raises(CodegenError, match="one function of its target"):
        generate(eqsat.load(proto))


@pytest.mark.parametrize(
    ("text", "items", "expected"),
    [
        ("f({inputs}, {outputs})", ["a", "b"], "f(a, b, {outputs})"),
        ("f({inputs}, {outputs})", [], "f({outputs})"),
        ("f({outputs}, {inputs})", [], "f({outputs})"),
        ("f({outputs}, {inputs}, 1)", [], "f({outputs}, 1)"),
        ("f({inputs})", [], "f()"),
        ("f((int[]){{1, 2}}, {outputs}, {inputs})", ["a"], "f((int[]){{1, 2}}, {outputs}, a)"),
        ("f({{inputs}}, {outputs})", ["a"], "f({{inputs}}, {outputs})"),
    ],
)
def test_lists_take_the_place_of_holes(text: str, items: list[str], expected: str) -> None:
    assert with_list(text, "{inputs}", items) == expected


def test_a_region_is_taken_as_a_whole_or_not() -> None:
    backend = RegionCallText("kiwi", {})
    assert as_a_whole(backend, {1: "", 2: ""}) == {1: "", 2: ""}
    assert as_a_whole(backend, {1: "", 2: "no such type"}) == {
        1: "its region is executed as a whole",
        2: "no such type",
    }


def test_numpy_executes_the_region(partitioned: eqsat.Result) -> None:
    rng = np.random.default_rng(0)
    feeds = {name: rng.standard_normal((2, 3, 4)).astype(np.float32) for name in ("x", "z")}
    rectified = np.maximum(feeds["x"], 0)
    total = rectified + feeds["z"]
    product, difference = partitioned.run(feeds).values()
    np.testing.assert_array_equal(product, total * rectified)
    np.testing.assert_allclose(difference, np.maximum(np.tanh(total) - product, 0), atol=1e-6)
