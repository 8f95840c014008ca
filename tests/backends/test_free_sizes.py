"""Backends at sizes that are free in the model: from Python at those of the arrays, in C as arguments or refused."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
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
from eqsat.codegen.compiler import find_compiler
from eqsat.codegen.folder import write_program
from eqsat.codegen.runtime import CModel
from eqsat.errors import BackendError
from eqsat.execute.backend_regions import MOST_SHAPES
from eqsat.partition.saved import inline
from tests.backends.units import TARGET, Units

DIMS = {"n": (1, 40), "m": (1, 9)}


def weights(*shape: int) -> np.ndarray:
    return (np.random.default_rng(sum(shape)).standard_normal(shape) / 4).astype(np.float32)


def feed(n: int, m: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(n + 100 * m)
    return {name: rng.standard_normal((k, 6)).astype(np.float32) for name, k in (("x", n), ("z", m))}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("target") / "units.target"
    path.write_text(TARGET.format(name="units", operators="Add, Relu"), "utf-8")
    return path


@pytest.fixture(scope="module")
def result(target: Path) -> eqsat.Result:
    """Kernels in a row and side by side, over two free sizes and one that is fixed."""
    x, z = eqsat.input("x", ("n", 6)), eqsat.input("z", ("m", 6))
    a = op.Relu(op.MatMul(x, weights(6, 5)) + weights(5))
    b = op.MatMul(a, weights(5, 5)) + weights(5)
    c = op.Tanh(op.Relu(b + a))
    d = op.Relu(op.MatMul(z, weights(6, 5)) + weights(5))
    e = op.Relu(op.MatMul(op.Erf(d), weights(5, 7)))
    return eqsat.optimize(eqsat.graph([c + a, e, op.ReduceSum(e) * op.ReduceSum(c)]), targets=[target], dims=DIMS)


def reference(model: ir.Model, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """ONNX Runtime, which knows nothing of regions."""
    session = onnxruntime.InferenceSession(
        ir.to_proto(inline(model)).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, map(np.asarray, session.run(names, inputs)), strict=True))


def agree(got: dict[str, np.ndarray], want: dict[str, np.ndarray]) -> None:
    assert got.keys() == want.keys()
    for name, array in want.items():
        np.testing.assert_allclose(got[name], array, rtol=1e-5, atol=1e-4, err_msg=name)


SIZES = [(1, 1), (2, 9), (7, 3), (40, 1), (16, 8)]


# ---- from Python -----------------------------------------------------------------------------------------


def test_from_python_all_sizes_are_numbers(result: eqsat.Result) -> None:
    for n, m in SIZES:
        backend, coverage = Units(), {}
        agree(result.run(feed(n, m), backends=[backend], coverage=coverage), reference(result.model, feed(n, m)))
        shapes = {t.shape for run in backend.runs for k in run.kernels for t in k.results if t is not None}
        assert shapes == {(n, 5), (m, 5), (m, 7)}
        assert coverage["units"].called == coverage["units"].total == sum(len(run.kernels) for run in backend.runs)


def test_a_saved_model_runs_likewise(result: eqsat.Result, tmp_path: Path) -> None:
    result.save(tmp_path / "model.onnx")
    backend = Units()
    agree(eqsat.run(tmp_path / "model.onnx", feed(3, 2), backends=[backend]), reference(result.model, feed(3, 2)))
    assert {run.inputs[0].shape for run in backend.runs} >= {(3, 6), (2, 6)}


def test_what_was_prepared_is_kept_for_the_same_shapes(result: eqsat.Result) -> None:
    backend = Units()
    result.run(feed(4, 2), backends=[backend])
    first = len(backend.runs)
    for _ in range(3):
        result.run(feed(4, 2), backends=[backend])
    assert len(backend.runs) == first > 0
    # One region has other shapes, the others have the same as before.
    result.run(feed(4, 3), backends=[backend])
    assert first < len(backend.runs) < 2 * first
    for n in range(1, MOST_SHAPES + 2):
        result.run(feed(n, 2), backends=[backend])
    last = len(backend.runs)
    result.run(feed(4, 2), backends=[backend])
    assert len(backend.runs) == last
    result.run(feed(1, 2), backends=[backend])  # Its place was needed for others.
    assert len(backend.runs) > last


def test_sizes_that_data_decides_are_numbers_as_well(target: Path) -> None:
    x = eqsat.input("x", (12,))
    rows = op.Cast(op.Transpose(op.NonZero(op.Floor(x)), perm=[1, 0]), to=1)
    y = op.Relu(op.MatMul(rows, weights(1, 5)) + weights(5))
    result = eqsat.optimize(eqsat.graph(y), targets=[target])
    for seed in range(3):
        given = {"x": np.random.default_rng(seed).standard_normal(12).astype(np.float32)}
        backend = Units()
        agree(result.run(given, backends=[backend]), reference(result.model, given))
        assert [run.inputs[0].shape for run in backend.runs][-1] == (int((np.floor(given["x"]) != 0).sum()), 1)


# ---- in C ------------------------------------------------------------------------------------------------

VARIANTS = [{}, {"stateful": False}, {"joins": False}, {"refused": ["Relu"]}, {"scratch": 100}, {"declines": True}]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_sizes_are_arguments(result: eqsat.Result, variant: dict, threads: int) -> None:
    backend = Units(**variant, free_sizes=True)
    strict = ("-Wall", "-Wextra", "-Werror", "-Wno-unused-function")
    model = CModel(result.model, backends=[backend], dims=DIMS, flags=strict, threads=threads)
    for n, m in SIZES:
        agree(model.run(feed(n, m)), reference(result.model, feed(n, m)))
    coverage = model.emitted.coverage["units"]
    assert coverage.called == sum(len(run.kernels) for run in backend.runs) > 0
    assert {operator for _, operator, _ in coverage.refused} == set(variant.get("refused", ()))
    shapes = {str(t.shape) for run in backend.runs for t in (*run.inputs, *run.outputs)}
    assert any("n" in shape for shape in shapes) and any("m" in shape for shape in shapes)


def test_the_results_are_the_backends(result: eqsat.Result) -> None:
    class Wrong(Units):
        def emit(self, writer: Writer, runs: Sequence[Run]) -> Code:
            code = super().emit(writer, runs)
            calls = [f"{call}\ny0[0] += 1;" for call in code.calls]
            return Code(calls, functions=code.functions, stateful=code.stateful)

    model = CModel(result.model, backends=[Wrong(free_sizes=True)], dims=DIMS)
    got, want = model.run(feed(5, 3)), reference(result.model, feed(5, 3))
    assert max(float(np.abs(got[name] - want[name]).max()) for name in want) > 0.1


@pytest.mark.slow
@pytest.mark.parametrize("stateful", [False, True])
def test_the_folder_is_right_at_any_size(result: eqsat.Result, stateful: bool, tmp_path: Path) -> None:
    """Its own check, with and without the backend: the header declares what the program defines."""
    backend = Units(stateful=stateful, free_sizes=True)
    for n, m in SIZES[:3]:
        write_program(result.model, tmp_path, dims=DIMS, inputs=feed(n, m), backends=[backend])
        files = ["model.c", "model_weights.c", "model_example.c", "main.c"]
        for more in ([], ["-DMODEL_USE_UNITS", "model_units.c"]):
            command = [*find_compiler(), "-std=c11", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined"]
            subprocess.run([*command, *more, *files, "-o", "check", "-lm"], cwd=tmp_path, check=True)
            done = subprocess.run(["./check"], cwd=tmp_path, capture_output=True, encoding="utf-8", check=False)
            assert done.returncode == 0 and done.stdout.count("PASSED") == 3, done.stdout + done.stderr


def test_a_backend_of_fixed_sizes_is_told_of(result: eqsat.Result) -> None:
    backend = Units()
    model = CModel(result.model, backends=[backend], dims=DIMS)
    agree(model.run(feed(5, 3)), reference(result.model, feed(5, 3)))
    coverage = model.emitted.coverage["units"]
    assert not backend.seen and coverage.called == 0 < coverage.total
    reasons = {reason for _, _, reason in coverage.refused}
    assert reasons == {"its sizes are not fixed, and the backend takes only fixed ones"}


def test_it_still_gets_regions_whose_sizes_are_fixed(result: eqsat.Result) -> None:
    backend = Units()
    model = CModel(result.model, backends=[backend], dims={"n": 4, "m": (1, 9)})
    agree(model.run(feed(4, 3)), reference(result.model, feed(4, 3)))
    coverage = model.emitted.coverage["units"]
    assert coverage.called > 0 and coverage.refused
    assert all(isinstance(n, int) for run in backend.runs for t in run.inputs for n in t.shape)


def test_a_question_without_an_answer_refuses_the_kernel(result: eqsat.Result) -> None:
    class Narrow(Units):
        def refuse(self, kernel: Kernel) -> str:
            rows = kernel.operands[0]
            assert rows is not None
            return "too many rows" if rows.shape[0] > 9 else ""

    model = CModel(result.model, backends=[Narrow(free_sizes=True)], dims=DIMS)
    agree(model.run(feed(20, 3)), reference(result.model, feed(20, 3)))
    coverage = model.emitted.coverage["units"]
    assert {reason for _, _, reason in coverage.refused} == {"whether n < 10 depends on the sizes"}
    assert coverage.called > 0  # m is at most 9.


def test_a_question_elsewhere_is_a_failure(result: eqsat.Result) -> None:
    class Asking(Units):
        def emit(self, writer: Writer, runs: Sequence[Run]) -> Code:
            return Code(["" if run.inputs[0].shape[0] > 9 else ";" for run in runs])

    with pytest.raises(BackendError, match=r"Asking.emit \(.*line \d+\): .*Undecided: whether"):
        CModel(result.model, backends=[Asking(free_sizes=True)], dims=DIMS)


def test_found_sizes_are_passed_on(target: Path) -> None:
    """Data decides how many rows a region of the accelerator gets; nothing in the region finds sizes."""
    x = eqsat.input("x", (12,))
    rows = op.Cast(op.Transpose(op.NonZero(op.Floor(x)), perm=[1, 0]), to=1)
    y = op.Relu(op.MatMul(rows, weights(1, 5)) + weights(5))
    result = eqsat.optimize(eqsat.graph(y), targets=[target])
    taken, left = Units(free_sizes=True), Units()
    for backend in (taken, left):
        model = CModel(result.model, backends=[backend])
        for seed in range(3):
            given = {"x": np.random.default_rng(seed).standard_normal(12).astype(np.float32)}
            agree(model.run(given), reference(result.model, given))
        coverage = model.emitted.coverage["units"]
        assert (coverage.called > 0) == bool(backend.runs) == (backend is taken)
        assert bool(coverage.refused) == (backend is left)


# ---- whole regions ---------------------------------------------------------------------------------------


class Whole(Backend):
    """Takes regions as a whole, with their operands and results in the order of the function."""

    target = "units"
    whole = True
    free_sizes = True

    def __init__(self) -> None:
        self.runs: list[Run] = []

    def prepare(self, run: Run) -> Prepared:
        self.runs.append(run)
        return Units().prepare(run)

    def emit(self, writer: Writer, runs: Sequence[Run]) -> Code:
        self.runs += runs
        return Units(stateful=False).emit(writer, runs)


def test_whole_regions_have_the_border_of_their_functions(result: eqsat.Result) -> None:
    functions = {f.name: f for f in result.model.functions.values()}
    for means in ("numpy", "c"):
        backend, coverage = Whole(), {}
        agree(result.run(feed(6, 2), means, backends=[backend], coverage=coverage), reference(result.model, feed(6, 2)))
        assert coverage["units"].called == coverage["units"].total > 0
        for run in backend.runs:
            function = functions[run.region.name]
            assert len(run.outputs) == len(function.outputs) == len(run.region.outputs)
            tensors = [x for x in run.region.inputs if not isinstance(x, np.ndarray)]
            assert list(run.inputs) == tensors and len(run.region.inputs) == len(function.inputs)


def test_coverage_as_lines() -> None:
    rows = tuple((f"k{i}", "Add", "no adder") for i in range(6))
    lines = Coverage(9, (*rows, ("m", "Mul", "no multiplier")), "the NPU").lines("npu", "with numpy")
    assert lines == [
        "npu       2 of 9 kernels call the NPU",
        "          k0 (Add), k1 (Add), k2 (Add), k3 (Add) and 2 more run with numpy: no adder",
        "          m (Mul) runs with numpy: no multiplier",
    ]
