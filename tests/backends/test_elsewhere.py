"""Operators for which C has nothing, where a backend or the call of a target file computes them."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat import op
from eqsat.backends import Backend, Code, Kernel, Run, Writer, context_functions
from eqsat.codegen.compiler import find_compiler
from eqsat.codegen.folder import write_program
from eqsat.codegen.runtime import CModel
from eqsat.errors import CodegenError, ExecutionError

ERFC = eqsat.operator("acme.Soft(x: floats, k = 1.0)", reference=lambda x, k: (1 - np.tanh(x * k)).astype(x.dtype))
TARGET = """
target er
    summary "computes what nothing else does"
    peak float32 = 4e13
    bandwidth = 2e12, launch = 1e-9, dispatch = 1e-9
    link bandwidth = 1e13, latency = 1e-9
    supports acme.Soft
        where x.dtype == float32
        CALL
"""
CALL = 'call "er_soft({x}, {y}, {y.size}, {node.k})"'
LIBRARY = """
#include "net_er.h"
#include <math.h>
void er_soft(const float *x, float *y, int n, double k) {
    for (int i = 0; i < n; i++) y[i] = 1 - tanhf(x[i] * (float)k);
}
"""


class Soft(Backend):
    """Executes it in C."""

    target = "er"
    free_sizes = True

    def __init__(self, *, stateful: bool = False, reason: str = "", declines: bool = False) -> None:
        self.stateful, self.reason, self.declines = stateful, reason, declines

    def refuse(self, kernel: Kernel) -> str:
        return self.reason

    def emit(self, writer: Writer, runs: Sequence[Run]) -> Code:
        calls = []
        for run in runs:
            lines = ["return 0;"] if self.declines else []
            for kernel in run.kernels:
                (x,), (y,), k = kernel.operands, kernel.results, kernel.attributes["k"]
                assert y is not None and kernel.names == ("acme.Soft",)
                value = f"1 - tanhf({writer.pointer(run, x)}[i] * {k}f)"
                count = writer.size(y.elements)
                lines.append(f"for (ptrdiff_t i = 0; i < {count}; i++) {writer.pointer(run, y)}[i] = {value};")
            calls.append("\n".join(lines))
        functions = "#include <math.h>\n" + (context_functions(writer) if self.stateful else "")
        return Code(calls, functions=functions, stateful=self.stateful)


def soft(x: Any, **attributes: float) -> Any:
    return eqsat.op("acme").Soft(x, **attributes)


@pytest.fixture(params=["fixed", "free", "body"])
def case(request: pytest.FixtureRequest) -> tuple[Any, dict[str, Any], dict[str, np.ndarray], np.ndarray]:
    """A model with the operator, the ranges of its sizes, arrays, and what it computes."""
    x = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
    with eqsat.declarations(ERFC):
        if request.param == "body":
            given = eqsat.input("x", (4, 8)), eqsat.input("rounds", (), np.int64)
            last = op.Loop(given[1], None, given[0], body=lambda i, go, s: (go, soft(op.Exp(s), k=0.5)))
            want = x
            for _ in range(3):
                want = 1 - np.tanh(np.exp(want) * np.float32(0.5))
            return eqsat.graph(op.Relu(last)), {}, {"x": x, "rounds": np.array(3, np.int64)}, np.maximum(want, 0)
        given = eqsat.input("x", (4 if request.param == "fixed" else "n", 8))
        model = eqsat.graph(op.Relu(soft(op.Exp(given), k=2.0)))
        dims = {} if request.param == "fixed" else {"n": (1, 9)}
        return model, dims, {"x": x}, np.maximum(1 - np.tanh(np.exp(x) * 2), 0)


def placed(case: Any, call: str, folder: Path) -> eqsat.Result:
    (folder / "er.target").write_text(TARGET.replace("CALL", call), "utf-8")
    return eqsat.optimize(case[0], targets=[folder / "er.target"], declarations=[ERFC], dims=case[1])


def build(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    strict = ["-std=c11", "-Wall", "-Wextra", "-Werror"]
    files = ["net.c", "net_weights.c", "net_example.c", "main.c", "-lm", "-o", "check"]
    command = [*find_compiler(), *strict, *arguments, *files]
    return subprocess.run(command, cwd=folder, capture_output=True, encoding="utf-8", check=False)


def check(folder: Path) -> None:
    done = subprocess.run([str(folder / "check")], capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0 and "PASSED" in done.stdout, done.stdout + done.stderr


@pytest.mark.slow
def test_a_call_of_the_target_computes_it(case: Any, tmp_path: Path) -> None:
    emitted = placed(case, CALL, tmp_path).codegen(tmp_path, name="net", inputs=case[2])
    assert emitted.coverage["er"].called == emitted.coverage["er"].total == 1
    (tmp_path / "er.c").write_text(LIBRARY, "utf-8")
    done = build(tmp_path, "-DNET_USE_ER", "er.c")
    assert done.returncode == 0, done.stderr
    check(tmp_path)
    done = build(tmp_path)
    (line,) = [line for line in done.stderr.splitlines() if "error:" in line]
    assert '#error "acme.Soft: only er computes this; define NET_USE_ER and link with its library"' in line


def test_a_call_has_nothing_to_call_in_this_process(case: Any, tmp_path: Path) -> None:
    with pytest.raises(
        CodegenError, match=r"acme\.Soft, which the functions that the file of target 'er' names compute"
    ):
        placed(case, CALL, tmp_path).run(case[2], backend="c")


@pytest.mark.parametrize("stateful", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_backend_computes_it(case: Any, stateful: bool, tmp_path: Path) -> None:
    result, backend = placed(case, "", tmp_path), Soft(stateful=stateful)
    with eqsat.declarations(ERFC):
        for dims in ({}, case[1]):
            model = CModel(result.model, backends=[backend], dims={**case[1], **dims})
            (y,) = model.run(case[2]).values()
            np.testing.assert_allclose(y, case[3], rtol=1e-5, atol=1e-6)
    (y,) = result.run(case[2], backend="c", backends=[backend]).values()
    np.testing.assert_allclose(y, case[3], rtol=1e-5, atol=1e-6)
    result.codegen(tmp_path, name="net", inputs=case[2], backends=[backend])
    done = build(tmp_path, "-DNET_USE_ER", "net_er.c")
    assert done.returncode == 0, done.stderr
    check(tmp_path)
    assert "only er computes this" in build(tmp_path).stderr
    text = (tmp_path / "net.h").read_text("utf-8")
    assert ("NET_NO_PORTABLE_CODE" in text) == stateful


def test_a_backend_that_declines_ends_the_run(case: Any, tmp_path: Path) -> None:
    result = placed(case, "", tmp_path)
    with pytest.raises(ExecutionError, match=r"got one that left it to portable code \(er\)"):
        result.run(case[2], backend="c", backends=[Soft(stateful=True, declines=True)])


def test_a_backend_that_refuses_it_says_why(case: Any, tmp_path: Path) -> None:
    result = placed(case, "", tmp_path)
    for backends, why in (((), ""), ((Soft(reason="not today"),), ", because not today")):
        with pytest.raises(CodegenError, match=rf"acme\.Soft, which a Python function computes{why}: '") as caught:
            result.codegen(tmp_path / "out", backends=backends)
        assert "or let a backend or the `call` of a target execute it" in caught.value.hint
    assert not (tmp_path / "out").exists()


def test_a_backend_of_fixed_sizes_leaves_it(tmp_path: Path) -> None:
    with eqsat.declarations(ERFC):
        model = eqsat.graph(op.Relu(soft(op.Exp(eqsat.input("x", ("n", 8))))))
    result = placed((model, {"n": (1, 9)}), "", tmp_path)
    backend = Soft()
    backend.free_sizes = False
    with pytest.raises(CodegenError, match=r"acme\.Soft, which a Python function computes"):
        result.codegen(tmp_path / "out", backends=[backend])


def test_an_operator_of_the_standard_without_a_kernel(tmp_path: Path) -> None:
    """What ONNX defines and C does not have is the same: here random numbers."""
    text = TARGET.replace("acme.Soft", "RandomUniformLike").replace("        CALL\n", "")
    (tmp_path / "er.target").write_text(text, "utf-8")
    model = eqsat.graph(op.RandomUniformLike(eqsat.input("x", (2, 8))) * np.float32(2))
    result = eqsat.optimize(model, targets=[tmp_path / "er.target"])
    with pytest.raises(CodegenError, match="no kernel for RandomUniformLike"):
        result.codegen(tmp_path / "out")

    class Random(Backend):
        target = "er"

        def emit(self, writer: Writer, runs: Sequence[Run]) -> Code:
            (run,) = runs
            assert run.kernels[0].operator == "RandomUniformLike"
            return Code([f"for (int i = 0; i < {run.outputs[0].elements}; i++) y0[i] = i / 16.0f;"])

    (y,) = result.run({"x": np.zeros((2, 8), np.float32)}, backend="c", backends=[Random()]).values()
    np.testing.assert_allclose(y, np.arange(16, dtype=np.float32).reshape(2, 8) / 8)
    write_program(result.model, tmp_path / "out", name="net", backends=[Random()])
    assert "only er computes this" in (tmp_path / "out" / "net.c").read_text("utf-8")
