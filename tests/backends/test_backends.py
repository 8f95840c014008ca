"""Backends execute regions from Python and in C: values against ONNX Runtime, and what is said of their mistakes."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

import eqsat
from eqsat import op
from eqsat.backends import Backend, Code, Kernel, Run, Writer
from eqsat.backends.backend import Prepared
from eqsat.backends.coverage import Coverage
from eqsat.backends.region import RegionOperand
from eqsat.codegen.compiler import find_compiler
from eqsat.codegen.folder import write_program
from eqsat.codegen.runtime import CModel
from eqsat.errors import BackendError
from eqsat.execute.inputs import complete_inputs
from eqsat.partition.saved import inline
from tests.backends.units import TARGET, Units


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("targets")
    (made / "units.target").write_text(TARGET.format(name="units", operators="Add, Relu, Mul"), "utf-8")
    (made / "others.target").write_text(
        TARGET.split("    composite")[0].format(name="others", operators="Tanh, Erf"), "utf-8"
    )
    return made


@pytest.fixture(scope="module")
def result(folder: Path) -> eqsat.Result:
    """Tensors that are read inside and outside of a region, two outputs, and an operator of the host between."""
    rng = np.random.default_rng(0)

    def weights(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    x, r = eqsat.input("x", (3, 5)), eqsat.input("r", (3, 4))
    a = op.Relu(op.MatMul(x, weights(5, 4)) + weights(4))
    b = op.MatMul(a, weights(4, 4))
    c = op.Relu(b + r)
    d = op.Relu(c * b + a)
    e = op.MatMul(op.HardSigmoid(d), weights(4, 6)) + weights(6)
    return eqsat.optimize(eqsat.graph([d, op.Erf(c), e]), targets=[folder / "units.target"])


@pytest.fixture(scope="module")
def inputs() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {"x": rng.standard_normal((3, 5)).astype(np.float32), "r": rng.standard_normal((3, 4)).astype(np.float32)}


def reference(model: ir.Model, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """ONNX Runtime, which knows nothing of regions."""
    session = onnxruntime.InferenceSession(
        ir.to_proto(inline(model)).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


def agree(got: dict[str, np.ndarray], want: dict[str, np.ndarray]) -> None:
    assert got.keys() == want.keys()
    for name, array in want.items():
        np.testing.assert_allclose(got[name], array, rtol=1e-5, atol=1e-5, err_msg=name)


VARIANTS = [
    {}, {"stateful": False}, {"joins": False}, {"refused": ["Mul", "Relu"]}, {"refused": ["units.dense"]},
    {"scratch": 1000}, {"declines": True}, {"stateful": False, "joins": False, "scratch": 8},
]  # fmt: skip


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_in_c(result: eqsat.Result, inputs: dict[str, np.ndarray], variant: dict) -> None:
    refused = ["Mul", *variant.get("refused", ())]
    backend = Units(**{**variant, "refused": refused})
    model = CModel(result.model, backends=[backend])
    agree(model.run(inputs), reference(result.model, inputs))
    assert backend.runs and model.emitted.runs == len(backend.runs)
    coverage = model.emitted.coverage["units"]
    assert {operator for _, operator, _ in coverage.refused} <= set(refused)
    assert coverage.called == sum(len(run.kernels) for run in backend.runs) > 0
    if variant.get("joins") is False:
        assert all(len(run.kernels) == 1 for run in backend.runs)
    else:
        assert any(len(run.kernels) > 1 for run in backend.runs) or variant.get("refused")


@pytest.mark.parametrize("variant", VARIANTS[:5], ids=str)
def test_from_python(result: eqsat.Result, inputs: dict[str, np.ndarray], variant: dict) -> None:
    refused = ["Mul", *variant.get("refused", ())]
    backend = Units(**{**variant, "refused": refused})
    agree(result.run(inputs, backends=[backend]), reference(result.model, inputs))
    assert backend.runs
    assert not {kernel.operator for run in backend.runs for kernel in run.kernels} & set(refused)


def test_the_results_are_the_backends(result: eqsat.Result, inputs: dict[str, np.ndarray]) -> None:
    """Neither executor computes beside it what it has been asked for."""

    class Wrong(Units):
        def prepare(self, run: Run) -> Prepared:
            execute = super().prepare(run)
            return lambda arrays: [y + 1 for y in execute(arrays)]

        def emit(self, writer: Writer, runs: Sequence[Run]) -> Code:
            code = super().emit(writer, runs)
            return Code(
                [f"{call}\ny0[0] += 1;" for call in code.calls], functions=code.functions, stateful=code.stateful
            )

    want = reference(result.model, inputs)
    for means in ("numpy", "c"):
        got = result.run(inputs, backend=means, backends=[Wrong(refused=["Mul"])])
        assert max(float(np.abs(got[name] - want[name]).max()) for name in want) > 0.1


def test_kernels_are_the_same_from_python_and_in_c(result: eqsat.Result, inputs: dict[str, np.ndarray]) -> None:
    found = []
    for means in ("numpy", "c"):
        backend = Units(refused=["Mul"])
        result.run(inputs, backend=means, backends=[backend])
        found.append([_described(kernel) for kernel in backend.seen])
    assert sorted(found[0]) == sorted(found[1])
    assert any("units.dense" in text and "MatMul" in text and "Relu" in text for text in found[0])


def _described(kernel: Kernel) -> str:
    def one(x: RegionOperand | None) -> str:
        if isinstance(x, np.ndarray):
            return f"constant {x.dtype}{list(x.shape)} {x.sum():.4f}"
        return "none" if x is None else f"{x.dtype}{list(x.shape)}"

    parts = [
        kernel.name,
        kernel.operator,
        " ".join(kernel.names),
        *map(one, kernel.operands),
        *map(one, kernel.results),
    ]
    return ", ".join([*parts, str(sorted(kernel.attributes.items()))])


def test_a_saved_model_runs_likewise(result: eqsat.Result, inputs: dict[str, np.ndarray], tmp_path: Path) -> None:
    result.save(tmp_path / "model.onnx")
    for means in ("numpy", "c"):
        backend = Units(refused=["Mul"])
        got = eqsat.run(tmp_path / "model.onnx", inputs, backend=means, backends=[backend])
        agree(got, reference(result.model, inputs))
        assert backend.runs


def two(folder: Path) -> eqsat.Result:
    rng = np.random.default_rng(2)
    x = eqsat.input("x", (4, 4))
    a = op.Tanh(op.MatMul(x, rng.standard_normal((4, 4)).astype(np.float32)))
    b = op.Erf(op.Relu(a + x))
    return eqsat.optimize(eqsat.graph([b, a]), targets=[folder / "units.target", folder / "others.target"])


class Others(Backend):
    """Only functions of one operand, with a context of its own."""

    target = "others"

    def prepare(self, run: Run) -> Prepared | None:
        return None

    def emit(self, writer: Writer, runs: Sequence[Run]) -> Code:
        from eqsat.backends import context_functions

        calls = []
        for run in runs:
            lines = []
            for kernel in run.kernels:
                (x,), (y,) = kernel.operands, kernel.results
                assert y is not None
                function = {"Tanh": "tanhf", "Erf": "erff"}[kernel.operator]
                lines.append(f"for (int i = 0; i < {y.elements}; i++)")
                lines.append(f"    {writer.pointer(run, y)}[i] = {function}({writer.pointer(run, x)}[i]);")
            calls.append("context->status = 0;\n" + "\n".join(lines))
        return Code(calls, functions="#include <math.h>\n" + context_functions(writer), stateful=True)


def test_two_backends_with_contexts_in_one_program(folder: Path, tmp_path: Path) -> None:
    result = two(folder)
    assert {region.target for region in result.regions} >= {"units", "others"}
    inputs = {"x": np.random.default_rng(3).standard_normal((4, 4)).astype(np.float32)}
    want = reference(result.model, inputs)
    model = CModel(result.model, backends=[Units(), Others()])
    assert [served.target for served in model.emitted.served] == ["others", "units"]
    agree(model.run(inputs), want)
    agree(result.run(inputs, backends=[Units(), Others()]), want)
    write_program(result.model, tmp_path, isas=[], backends=[Units(), Others()])
    sources = ["model.c", "model_weights.c", "model_example.c", "main.c"]
    parts = {"USE_UNITS": "model_units.c", "USE_OTHERS": "model_others.c"}
    for macros in ([], ["USE_UNITS"], ["USE_OTHERS"], ["USE_UNITS", "USE_OTHERS"]):
        flags = [*(f"-DMODEL_{m}" for m in macros), "-fsanitize=address,undefined", "-fno-sanitize-recover"]
        command = [*find_compiler(), "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", *flags]
        files = [*sources, *(parts[m] for m in macros)]
        subprocess.run([*command, *files, "-o", "check", "-lm"], cwd=tmp_path, check=True)
        done = subprocess.run(["./check"], cwd=tmp_path, capture_output=True, encoding="utf-8", check=False)
        assert done.returncode == 0 and done.stdout.count("PASSED") == 2, done.stdout + done.stderr


def test_threads_have_contexts_of_their_own(result: eqsat.Result, inputs: dict[str, np.ndarray]) -> None:
    model = CModel(result.model, backends=[Units(refused=["Mul"], scratch=64)])
    want = reference(result.model, inputs)
    with ThreadPoolExecutor(4) as pool:
        for got in pool.map(lambda _: [model.run(inputs) for _ in range(20)], range(4)):
            for one in got:
                agree(one, want)


def test_status_of_a_run_is_told(result: eqsat.Result, inputs: dict[str, np.ndarray]) -> None:
    class Failing(Units):
        def emit(self, writer: Writer, runs: Sequence[Run]) -> Code:
            code = super().emit(writer, runs)
            calls = [f"{call}\ncontext->status = 77;" for call in code.calls]
            return Code(calls, functions=code.functions, stateful=True)

    with pytest.raises(eqsat.errors.ExecutionError, match="status 77 of units"):
        CModel(result.model, backends=[Failing()]).run(inputs)


def test_what_turns_out_to_be_unavailable_is_taken_out(result: eqsat.Result, inputs: dict[str, np.ndarray]) -> None:
    class Learning(Units):
        def unavailable(self, loaded: object) -> dict[str, str]:
            return {kernel.name: "not on this machine" for kernel in self.seen if kernel.operator == "Relu"}

    model = CModel(result.model, backends=[Learning(refused=["Mul"])])
    agree(model.run(inputs), reference(result.model, inputs))
    reasons = {reason for _, operator, reason in model.emitted.coverage["units"].refused if operator == "Relu"}
    assert reasons == {"not on this machine"}


def test_failures_name_the_backend(result: eqsat.Result, inputs: dict[str, np.ndarray]) -> None:
    class Raising(Units):
        def refuse(self, kernel: Kernel) -> str:
            raise KeyError("oops")

    class Half(Units):
        def emit(self, writer: Writer, runs: Sequence[Run]) -> Code:
            return Code([])

    class Shapeless(Units):
        def prepare(self, run: Run) -> Prepared:
            return lambda arrays: [np.zeros(3, np.float32) for _ in run.outputs]

    for means in ("numpy", "c"):
        with pytest.raises(BackendError, match=r"backend of 'units', Raising.refusals.*KeyError: 'oops'"):
            result.run(inputs, backend=means, backends=[Raising()])
    with pytest.raises(BackendError, match=r"Half.emit: one call for each run is required .*; got 0 calls"):
        result.run(inputs, backend="c", backends=[Half()])
    with pytest.raises(BackendError, match=r"float32\[3\]"):
        result.run(inputs, backends=[Shapeless()])


def test_a_backend_that_writes_no_c_says_so(result: eqsat.Result, inputs: dict[str, np.ndarray]) -> None:
    class Inherited(Backend):
        target = "units"

        def emit(self, writer: Writer, runs: Sequence[Run]) -> Code:
            return super().emit(writer, runs)

    with pytest.raises(BackendError, match=r"Inherited.emit: a backend that writes C is required") as caught:
        result.run(inputs, backend="c", backends=[Inherited()])
    assert "override emit" in caught.value.hint


def test_a_backend_for_python_alone_leaves_c_portable(result: eqsat.Result, inputs: dict[str, np.ndarray]) -> None:
    class Arrays(Backend):
        target = "units"

        def prepare(self, run: Run) -> Prepared:
            return Units().prepare(run)

        def refuse(self, kernel: Kernel) -> str:
            return "no Mul" if kernel.operator == "Mul" else ""

    agree(result.run(inputs, backend="c", backends=[Arrays()]), reference(result.model, inputs))
    agree(result.run(inputs, backends=[Arrays()]), reference(result.model, inputs))


def test_a_kernel_with_a_call_is_not_counted_as_left_to_portable_c(tmp_path: Path) -> None:
    """Where the backend writes no C, the calls of the target's file are made, and each kernel counts once."""

    class Arrays(Backend):
        target = "units"

        def prepare(self, run: Run) -> Prepared:
            return Units().prepare(run)

    text = TARGET.format(name="units", operators="Add") + '        call "units_dense({x}, {w}, {b}, {s})"\n'
    (tmp_path / "units.target").write_text(text, "utf-8")
    x, w = eqsat.input("x", (4, 8)), np.ones((8, 8), np.float32)
    dense = op.MatMul(x, w) + np.ones(8, np.float32)
    result = eqsat.optimize(eqsat.graph(dense + x), targets=[tmp_path / "units.target"], default_rules=False)
    (region,) = result.regions
    coverage: dict[str, Coverage] = {}
    inputs = complete_inputs(result.model)
    agree(result.run(inputs, backend="c", backends=[Arrays()], coverage=coverage), reference(result.model, inputs))
    assert sorted(region.nodes) == ["Add", "units.dense"]
    assert (coverage["units"].total, coverage["units"].called) == (2, 1)
    assert [operator for _, operator, _ in coverage["units"].refused] == ["Add"]
