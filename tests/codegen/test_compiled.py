"""Compiled models as callers keep them: forms of arguments, errors, threads, free sizes, profiles, the cache."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat import op
from eqsat.errors import CodegenError, EqsatError, ExecutionError, LimitError
from eqsat.execute.executor import Executor
from eqsat.schema.types import TensorType

RNG = np.random.default_rng(0)
TWO = """<ir_version: 10, opset_import: ["": 21]>
two (float[n, 4] a, int32[3] b) => (float[n, 4] y, int32[3] z, int64[2] s) {
    y = Relu(a)
    z = Neg(b)
    s = Shape(a)
}"""
RELU = """<ir_version: 10, opset_import: ["": 21]> one (float[4] x) => (float[4] y) {y = Relu(x)}"""


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.fixture(scope="module")
def two() -> eqsat.CompiledModel:
    return eqsat.compile(TWO, dims={"n": (1, 9, 4)})


@pytest.mark.parametrize("n", [1, 3, 9])
def test_results_have_the_form_of_the_arguments(two: eqsat.CompiledModel, n: int) -> None:
    a, b = floats(n, 4), np.array([1, -2, 3], np.int32)
    want = Executor(eqsat.load(TWO)).run({"a": a, "b": b})
    named = two({"a": a, "b": b})
    assert list(named) == ["y", "z", "s"]
    placed = two(a, b)
    for i, (name, array) in enumerate(want.items()):
        for found in (named[name], placed[i], two.run({"b": b, "a": a})[name]):
            assert found.dtype == array.dtype
            np.testing.assert_array_equal(found, array)


def test_a_single_result_is_an_array() -> None:
    with eqsat.compile(RELU) as relu:
        np.testing.assert_array_equal(relu(np.array([-1, 2, -3, 4], np.float32)), [0, 2, 0, 4])


def test_results_that_fit_into_no_memory() -> None:
    compiled = eqsat.compile(eqsat.graph(op.Expand(eqsat.input("x", (1,)), np.array([2**46]))))
    with pytest.raises(LimitError, match="results: the memory of this process does not suffice"):
        compiled(floats(1))


def test_facts(two: eqsat.CompiledModel) -> None:
    floating, integer = eqsat.load(TWO).graph.inputs[0].dtype, eqsat.load(TWO).graph.inputs[1].dtype
    assert floating is not None and integer is not None
    assert two.inputs == {"a": TensorType(floating, ("n", 4)), "b": TensorType(integer, (3,))}
    assert list(map(str, two.outputs.values())) == ["float[n, 4]", "int32[3]", "int64[2]"]
    assert two.sizes == {"n": (1, 9)}
    assert (
        repr(two) == "<eqsat.CompiledModel two: (a float[n, 4], b int32[3]) -> (y float[n, 4], z int32[3], s int64[2])>"
    )


def test_results_are_written_where_the_caller_wants(two: eqsat.CompiledModel) -> None:
    a, b = floats(5, 4), np.array([1, -2, 3], np.int32)
    y = np.full((5, 4), np.nan, np.float32)
    results = two(a, b, out=[y, None, None])
    assert isinstance(results, tuple) and results[0] is y
    np.testing.assert_array_equal(y, np.maximum(a, 0))
    z = np.zeros(3, np.int32)
    assert two({"a": a, "b": b}, out={"z": z})["z"] is z
    np.testing.assert_array_equal(z, -b)
    parts = np.zeros((2, 5, 4), np.float32)
    relu = eqsat.compile(eqsat.graph(op.Relu(eqsat.input("x", (5, 4)))))
    assert relu(a, out=parts[1]) is not None
    np.testing.assert_array_equal(parts, [np.zeros((5, 4)), np.maximum(a, 0)])


def test_results_are_new_arrays(two: eqsat.CompiledModel) -> None:
    a, b = floats(2, 4), np.zeros(3, np.int32)
    first = two(a, b)
    kept = [r.copy() for r in first]
    two(-a, b + 1)
    for array, before in zip(first, kept, strict=True):
        np.testing.assert_array_equal(array, before)


A, B = floats(2, 4), np.zeros(3, np.int32)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda c: c(A), "2 arrays are required, for a, b; got 1"),
        (lambda c: c(A, B, B), "2 arrays are required"),
        (lambda c: c({"a": A}), "input 'b': a value is required; got nothing"),
        (lambda c: c({"a": A, "B": B}), "'B': the name of an input is required.*\n.*`b`"),
        (lambda c: c(A.astype(np.float64), B), "an array of float32 is required; got float64"),
        (lambda c: c(A, B.astype(np.int64)), "input 'b': an array of int32 is required"),
        (lambda c: c(A[:, :3], B), r"float32\[n, 4\] is required"),
        (lambda c: c(A[0], B), r"float32\[n, 4\] is required"),
        (lambda c: c(floats(10, 4), B), "a size `n` of 1 to 9 is required.*got 10"),
        (lambda c: c(floats(0, 4), B), "a size `n` of 1 to 9 is required.*got 0"),
        (lambda c: c(A, B, out=np.zeros((2, 4), np.float32)), "3 arrays are required for the results; got 1"),
        (lambda c: c(A, B, out=[np.zeros((2, 3), np.float32), None, None]), r"float32\[2, 4\] is required; got"),
        (lambda c: c(A, B, out=[np.zeros((2, 4)), None, None]), r"float32\[2, 4\] is required; got float64"),
        (lambda c: c(A, B, out=[np.zeros((4, 2), np.float32).T, None, None]), "got one that is not dense"),
        (lambda c: c(A, B, out=[A, None, None]), "out, 'y': arrays that share no memory"),
        (lambda c: c({"a": A, "b": B}, out={"z": B}), "out, 'z': arrays that share no memory"),
        (lambda c: c({"a": A, "b": B}, out={"w": B}), "out, 'w': the name of an output is required"),
        (lambda c: c.profile({"a": A, "b": B}, repeat=0), "at least one run is required"),
        (lambda c: pickle.dumps(c), "stays in its process"),
        (lambda c: copy.deepcopy(c), "stays in its process"),
    ],
)
def test_errors(two: eqsat.CompiledModel, call: Any, message: str) -> None:
    two(A, B)  # what the shapes of this call left behind must not hide an error
    with pytest.raises(ExecutionError, match=message):
        call(two)


def test_a_read_only_result_is_refused(two: eqsat.CompiledModel) -> None:
    y = np.zeros((2, 4), np.float32)
    y.flags.writeable = False
    with pytest.raises(ExecutionError, match="read-only"):
        two(A, B, out=[y, None, None])


def test_outputs_may_not_overlap_each_other() -> None:
    x = eqsat.input("x", (4,))
    both = eqsat.compile(eqsat.graph([op.Relu(x), op.Neg(x)]))
    block = np.zeros(6, np.float32)
    with pytest.raises(ExecutionError, match="share no memory"):
        both(floats(4), out=[block[:4], block[2:]])


def test_a_closed_model() -> None:
    model = eqsat.compile(RELU)
    with model:
        model(floats(4))
    assert model.closed and "closed" in repr(model)
    for call in (lambda: model(floats(4)), model.__enter__, lambda: model.emitted, lambda: model.profile(floats(4))):
        with pytest.raises(ExecutionError, match="a model that is not closed is required"):
            call()
    model.close()


def test_threads_share_a_model_and_may_close_it() -> None:
    x = eqsat.input("x", ("n", 16))
    w = floats(16, 16)
    model = eqsat.compile(eqsat.graph(op.Softmax(op.MatMul(op.MatMul(x, w), w), axis=-1)), dims={"n": (1, 40)})
    jobs = [floats(1 + i % 40, 16) for i in range(200)]
    alone = [model(job) for job in jobs]
    with ThreadPoolExecutor(6) as pool:
        for found, want in zip(pool.map(model, jobs), alone, strict=True):
            np.testing.assert_array_equal(found, want)
        running = [pool.submit(model, job) for job in jobs]
        model.close()
        for future, want in zip(running, alone, strict=True):
            if future.exception() is None:
                np.testing.assert_array_equal(future.result(), want)
            else:
                assert isinstance(future.exception(), ExecutionError)


def test_profile(two: eqsat.CompiledModel) -> None:
    x = eqsat.input("x", (1, 8, 12, 12))
    y = op.Relu(op.Conv(x, floats(16, 8, 3, 3), pads=[1, 1, 1, 1]))
    model = eqsat.compile(eqsat.graph(op.Softmax(op.ReduceMean(y, np.array([2, 3])), axis=1)))
    profile = model.profile(floats(1, 8, 12, 12), repeat=3)
    assert [k.operators for k in profile.kernels] == [k.what for k in model.emitted.kernels]
    assert sum(k.share for k in profile.kernels) == pytest.approx(1)
    assert profile.microseconds == pytest.approx(sum(k.microseconds for k in profile.kernels))
    shares = [k.share for k in profile.by_time()]
    assert shares == sorted(shares, reverse=True)
    lines = str(profile).splitlines()
    assert len(lines) == len(profile.kernels) + 2 and "Conv + Relu" in lines[1] and "100.0%" in lines[-1]
    free = two.profile({"a": A, "b": B}, repeat=1)
    assert ("n", 4) in [k.shape for k in free.kernels]


def test_what_an_optimization_returns_is_compiled_for_its_ranges(tmp_path: Path) -> None:
    x = eqsat.input("x", ("batch", 8))
    result = eqsat.optimize(eqsat.graph(op.Relu(op.MatMul(x, floats(8, 8)))), dims={"batch": (2, 6)})
    model = result.compile()
    assert model.sizes == {"batch": (2, 6)}
    (name,) = result.model.graph.outputs
    for n in (2, 5, 6):
        given = floats(n, 8)
        np.testing.assert_allclose(model(given), result.run({"x": given})[name.name or ""], atol=1e-5)
    with pytest.raises(ExecutionError, match="2 to 6"):
        model(floats(7, 8))
    assert result.compile(dims={"batch": 3}).inputs["x"].shape == (3, 8)
    assert [s.most for s in result.codegen(tmp_path / "c").sizes] == [6]
    result.save(tmp_path / "saved.onnx")
    saved = eqsat.compile(tmp_path / "saved.onnx", dims={"batch": (2, 4)})
    np.testing.assert_array_equal(saved(given[:3]), model(given[:3]))


def test_a_size_without_a_bound_is_named() -> None:
    with pytest.raises(CodegenError, match=r"upper bound.*got `n`(.|\n)*--dim"):
        eqsat.compile(TWO)
    with pytest.raises(CodegenError, match="upper bound"):
        eqsat.optimize(TWO).compile()


def test_runs_of_a_result_compile_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from eqsat.codegen import kept_programs

    made: list[Any] = []

    class Counted(kept_programs.CModel):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            made.append(options["dims"])
            super().__init__(*arguments, **options)

    monkeypatch.setattr(kept_programs, "CModel", Counted)
    x = eqsat.input("x", ("n", 4))
    graph = eqsat.graph(op.Relu(x))
    ranged, unbounded = eqsat.optimize(graph, dims={"n": (1, 4)}), eqsat.optimize(graph)
    for n in (1, 4, 3, 1):
        (y,) = ranged.run({"x": A[:1].repeat(n, 0)}, backend="c").values()
        np.testing.assert_array_equal(y, np.maximum(A[:1].repeat(n, 0), 0))
    assert len(made) == 1
    for n in (9, 2, 9, 2):
        unbounded.run({"x": floats(n, 4)}, backend="c")
    assert made[1:] == [{"n": 9}, {"n": 2}]
    with pytest.raises(EqsatError, match=r"a size `n` within 1\.\.4 is required"):
        ranged.run({"x": floats(9, 4)}, backend="c")
    assert made[3:] == [{"n": 9}]
    assert pickle.loads(pickle.dumps(ranged)).cost == ranged.cost
    # A model that was changed is compiled again.
    for node in ranged.model.graph:
        node.op_type = "Abs"
    (y,) = ranged.run({"x": A}, backend="c").values()
    np.testing.assert_array_equal(y, np.abs(A))


@pytest.mark.slow
def test_a_second_process_does_not_compile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EQSAT_CACHE", str(tmp_path / "cache"))
    script = (
        "import sys, numpy as np, eqsat\nfrom eqsat.codegen import compiler\n"
        "known = compiler.subprocess.run\n"
        "def run(command, **options):\n"
        "    print(*['compiles'] * ('--version' not in command), end='')\n"
        "    return known(command, **options)\n"
        "compiler.subprocess.run = run\n"
        "print(eqsat.compile(sys.argv[1])(np.array([-1, 2, 3, 4], np.float32)))\n"
    )
    for first in ("compiles", ""):
        done = subprocess.run(
            [sys.executable, "-c", script, RELU],
            capture_output=True,
            encoding="utf-8",
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            check=False,
        )
        assert (done.returncode, done.stdout.strip()) == (0, f"{first}[0. 2. 3. 4.]"), done.stderr


def test_progress() -> None:
    events: list[str] = []
    eqsat.compile(RELU, progress=lambda event: events.append(event.stage))
    assert events == ["generate", "compile", "compile"]


TYPES = ["float16", "bfloat16", "double", "int8", "uint16", "int64", "bool", "int4", "uint4"]


@pytest.mark.parametrize("dtype", TYPES)
def test_all_element_types(dtype: str) -> None:
    model = eqsat.load(
        f'<ir_version: 10, opset_import: ["": 21]> g ({dtype}[n, 3] x) => ({dtype}[3, n] y) {{y = Transpose(x)}}'
    )
    numpy = model.graph.inputs[0].dtype.numpy()
    x = RNG.integers(0, 2, (4, 3)).astype(numpy)
    compiled = eqsat.compile(model, dims={"n": (1, 5)})
    for given in (x, np.asfortranarray(x), x[::-1], x[:2]):
        out = np.empty(given.T.shape, numpy)
        assert compiled(given, out=out) is out
        np.testing.assert_array_equal(out.astype(float), given.T.astype(float))
        np.testing.assert_array_equal(compiled(given).astype(float), given.T.astype(float))
