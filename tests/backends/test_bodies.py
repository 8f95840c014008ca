"""Regions inside of If, Loop and Scan reach their backends and the calls of target files, from Python and in C."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

import eqsat
from eqsat import op
from eqsat.backends.coverage import Coverage
from eqsat.codegen.compiler import find_compiler
from eqsat.codegen.folder import write_program
from eqsat.codegen.runtime import CModel
from eqsat.partition.saved import inline
from tests.backends.units import TARGET, Units

Feed = dict[str, np.ndarray]


def weights(*shape: int) -> np.ndarray:
    return (np.random.default_rng(sum(shape)).standard_normal(shape) / 4).astype(np.float32)


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(7).standard_normal(shape).astype(np.float32)


def layer(x: eqsat.Tensor) -> eqsat.Tensor:
    """A kernel for the units, one of the host, and one more for the units, which reads both."""
    a = op.Relu(op.MatMul(x, weights(8, 8)) + weights(8))
    return op.Tanh(a) + a


def loop() -> tuple[ir.Model, Feed]:
    x, rounds = eqsat.input("x", (4, 8)), eqsat.input("rounds", (), np.int64)
    last = op.Loop(rounds, None, x, body=lambda i, go, s: (go, layer(s)))
    return eqsat.graph(op.Relu(last) + x), {"x": floats(4, 8), "rounds": np.array(3, np.int64)}


def branches() -> tuple[ir.Model, Feed]:
    x, choice = eqsat.input("x", (4, 8)), eqsat.input("choice", (), np.bool_)
    y = op.If(choice, then_branch=lambda: layer(x), else_branch=lambda: op.Relu(op.MatMul(x, weights(8, 8))))
    return eqsat.graph(y), {"x": floats(4, 8), "choice": np.array(True)}


def other_branch() -> tuple[ir.Model, Feed]:
    model, feed = branches()
    return model, {**feed, "choice": np.array(False)}


def scan() -> tuple[ir.Model, Feed]:
    xs, h = eqsat.input("xs", (5, 4, 8)), eqsat.input("h", (4, 8))
    last, all_rows = op.Scan(h, xs, num_scan_inputs=1, body=lambda s, x: (layer(s + x), layer(x)))
    return eqsat.graph([last, all_rows]), {"xs": floats(5, 4, 8), "h": floats(4, 8)}


def nested() -> tuple[ir.Model, Feed]:
    x, rounds = eqsat.input("x", (4, 8)), eqsat.input("rounds", (), np.int64)

    def inner(s: eqsat.Tensor) -> eqsat.Tensor:
        big = op.Greater(op.ReduceSum(s, keepdims=0), np.float32(3))
        return op.If(big, then_branch=lambda: layer(s), else_branch=lambda: s + x)

    last = op.Loop(rounds, None, x, body=lambda i, go, s: (go, inner(s)))
    return eqsat.graph(last), {"x": floats(4, 8), "rounds": np.array(4, np.int64)}


MODELS: list[Callable[[], tuple[ir.Model, Feed]]] = [loop, branches, other_branch, scan, nested]


def reference(model: ir.Model, feed: Mapping[str, np.ndarray]) -> Feed:
    """ONNX Runtime, which knows nothing of regions."""
    session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, map(np.asarray, session.run(names, dict(feed))), strict=True))


def agree(got: Mapping[str, np.ndarray], want: Mapping[str, np.ndarray]) -> None:
    assert got.keys() == want.keys()
    for name, array in want.items():
        np.testing.assert_allclose(got[name], array, rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    path = tmp_path / "units.target"
    path.write_text(TARGET.format(name="units", operators="Add, Relu"), "utf-8")
    return path


def in_bodies(result: eqsat.Result) -> list[ir.Node]:
    main = set(result.model.graph)
    return [
        node
        for node in ir.traversal.RecursiveGraphIterator(result.model.graph)
        if node not in main and node.domain == "eqsat.units"
    ]


@pytest.mark.parametrize("made", MODELS)
def test_from_python(made: Callable[[], tuple[ir.Model, Feed]], target: Path) -> None:
    model, feed = made()
    result = eqsat.optimize(model, targets=[target])
    assert in_bodies(result)
    backend, coverage = Units(), {}
    agree(result.run(feed, backends=[backend], coverage=coverage), reference(model, feed))
    assert backend.runs and coverage["units"].called == coverage["units"].total > 0


@pytest.mark.parametrize(
    "variant",
    [
        {},
        pytest.param({"stateful": False}, marks=pytest.mark.slow),
        pytest.param({"scratch": 40}, marks=pytest.mark.slow),
        {"declines": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("made", MODELS)
def test_in_c(made: Callable[[], tuple[ir.Model, Feed]], variant: dict, target: Path) -> None:
    model, feed = made()
    result = eqsat.optimize(model, targets=[target])
    backend = Units(**variant)
    strict = ("-Wall", "-Wextra", "-Werror", "-Wno-unused-function")
    compiled = CModel(result.model, backends=[backend], flags=strict)
    agree(compiled.run(feed), reference(model, feed))
    coverage = compiled.emitted.coverage["units"]
    assert coverage.called == coverage.total == sum(len(run.kernels) for run in backend.runs) > 0
    assert len({run.number for run in backend.runs}) == len(backend.runs)
    # Beside threads that share the host's kernels.
    agree(CModel(result.model, backends=[Units(**variant)], threads=2).run(feed), reference(model, feed))


def test_refusals_in_bodies_are_named(target: Path) -> None:
    model, feed = loop()
    result = eqsat.optimize(model, targets=[target])
    for means in ("numpy", "c"):
        coverage: dict[str, Coverage] = {}
        result.run(feed, means, backends=[Units(refused=["units.dense"])], coverage=coverage)
        reasons = [(operator, reason) for _, operator, reason in coverage["units"].refused]
        assert reasons == [("units.dense", "no units.dense")] and coverage["units"].called > 0


def test_the_results_are_the_backends(target: Path) -> None:
    """Neither executor computes beside it what it has been asked for."""

    class Wrong(Units):
        def prepare(self, run):
            execute = super().prepare(run)
            return lambda arrays: [y + 1 for y in execute(arrays)]

        def emit(self, writer, runs):
            code = super().emit(writer, runs)
            calls = [f"{call}\ny0[0] += 1;" for call in code.calls]
            return type(code)(calls, functions=code.functions, stateful=code.stateful)

    model, feed = loop()
    result, want = eqsat.optimize(model, targets=[target]), reference(model, feed)
    for means in ("numpy", "c"):
        got = result.run(feed, means, backends=[Wrong()])
        assert max(float(np.abs(got[name] - want[name]).max()) for name in want) > 0.1


# ---- calls of target files -------------------------------------------------------------------------------

CALLS = """
target units
    summary "units that are called by their names"
    peak float32 = 4e13
    bandwidth = 8e11, launch = 1e-8, dispatch = 1e-8
    link bandwidth = 4e11, latency = 1e-9
    REGION
    supports Add, Relu
        where x.dtype == float32
        CALL
"""
LIBRARY = """
#include "net_units.h"
#include <stdio.h>
void units_relu(const float *x, float *y, int n) {
    puts("relu");
    for (int i = 0; i < n; i++) y[i] = x[i] > 0 ? x[i] : 0;
}
void units_0(const float *x, float *y) {
    puts("region");
    for (int i = 0; i < 32; i++) y[i] = x[i] > 0 ? x[i] + x[i] : 0;
}
"""
KERNELS = CALLS.replace("    REGION\n", "").replace("Add, Relu", "Relu").replace(
    "CALL", 'call "units_relu({x}, {y}, {y.size})"'
)  # fmt: skip
REGIONS = CALLS.replace("REGION", 'region call "{name}({inputs}, {outputs}, {sizes})"').replace("        CALL\n", "")


@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize(("text", "word"), [(KERNELS, "relu"), (REGIONS, "region")])
def test_calls_inside_of_a_loop(text: str, word: str, saved: bool, tmp_path: Path) -> None:
    (tmp_path / "units.target").write_text(text, "utf-8")
    x = eqsat.input("x", (4, 8))

    def body(i: eqsat.Tensor, go: eqsat.Tensor, s: eqsat.Tensor) -> tuple[eqsat.Tensor, eqsat.Tensor]:
        r = op.Relu(s)
        return go, op.Tanh(r + r)

    model = eqsat.graph(op.Loop(eqsat.input("rounds", (), np.int64), None, x, body=body))
    result = eqsat.optimize(model, targets=[tmp_path / "units.target"], default_rules=False)
    assert [node.op_type for node in in_bodies(result)] == ["units_0"]
    placed = result.model
    if saved:
        result.save(tmp_path / "model.onnx")
        placed = eqsat.load(tmp_path / "model.onnx")
    feed = {"x": floats(4, 8), "rounds": np.array(3, np.int64)}
    emitted = write_program(placed, tmp_path, name="net", inputs=feed)
    assert emitted.coverage["units"].called == emitted.coverage["units"].total > 0
    (tmp_path / "units.c").write_text(LIBRARY, "utf-8")
    sources = ["net.c", "net_weights.c", "net_example.c", "main.c", "units.c", "-lm"]
    compiler = [*find_compiler(), "-std=c11", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([*compiler, "-DNET_USE_UNITS", *sources, "-o", "called"], cwd=tmp_path, check=True)
    done = subprocess.run(["./called"], cwd=tmp_path, capture_output=True, encoding="utf-8", check=False)
    assert done.stdout.splitlines()[:3] == [word] * 3, done.stdout
    assert "PASSED" in done.stdout and done.returncode == 0
    agree(CModel(placed).run(feed), reference(inline(model), feed))
