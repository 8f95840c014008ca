"""Threads that share kernels: the same bits for any number of them, no races, one pool for several models."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import eqsat
from eqsat import op
from eqsat.cli import main
from eqsat.codegen import pools, sharing
from eqsat.codegen.compiler import find_compiler
from eqsat.codegen.generate import generate
from eqsat.codegen.parallel import MARK
from eqsat.codegen.runtime import CModel
from eqsat.errors import CodegenError
from eqsat.execute.executor import Executor
from eqsat.execute.inputs import complete_inputs
from eqsat.model.symbols import shaped_values
from tests.fuzz.generator import generate_case

RNG = np.random.default_rng(0)


def weights(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) / 8).astype(np.float32)


def convolutions() -> ir.Model:
    x = eqsat.input("x", (1, 16, 30, 30))
    y = op.Relu(op.Conv(x, weights(40, 16, 3, 3), weights(40), pads=[1, 1, 1, 1]))
    z = op.Conv(y, weights(40, 1, 3, 3), pads=[1, 1, 1, 1], group=40) + y
    pooled = op.MaxPool(z, kernel_shape=[3, 3], strides=[2, 2])
    mean = op.Flatten(op.GlobalAveragePool(op.Conv(pooled, weights(24, 40, 1, 1))))
    return eqsat.graph([op.Gemm(mean, weights(24, 50), weights(50)), op.LRN(y, size=5)])


def attention(batch: int | str = 2, seq: int | str = 19) -> ir.Model:
    x = eqsat.input("x", (batch, seq, 32))

    def heads(x: Any) -> Any:
        return op.Transpose(op.Reshape(op.MatMul(x, weights(32, 32)), np.array([0, -1, 4, 8])), perm=[0, 2, 1, 3])

    scores = op.Softmax(op.MatMul(heads(x), op.Transpose(heads(x), perm=[0, 1, 3, 2])), axis=-1)
    y = op.Reshape(op.Transpose(op.MatMul(scores, heads(x)), perm=[0, 2, 1, 3]), np.array([0, -1, 32]))
    y = op.LayerNormalization(y + x, np.ones(32, np.float32), weights(32))
    return eqsat.graph(op.Gelu(op.MatMul(y, weights(32, 64))))


def rows() -> ir.Model:
    x = eqsat.input("x", (2, 6, 21, 37))
    y = op.Conv(x, weights(3, 6, 5, 5), weights(3), pads=[2, 2, 2, 2])
    z = op.ConvTranspose(y, weights(3, 2, 4, 4), pads=[1, 1, 1, 1], strides=[2, 2])
    wide = op.Conv(x, weights(32, 6, 1, 1))
    larger = [
        op.Resize(v, None, None, np.array([2, channels, 42, 74]), mode=mode)
        for v, channels, mode in ((x, 6, "linear"), (y, 3, "nearest"), (wide, 32, "cubic"))
    ]
    return eqsat.graph([z, *larger])


def recurrent() -> ir.Model:
    x, lengths = eqsat.input("x", (5, 2, 24)), eqsat.input("lengths", (2,), "int32")
    one, other = (op.LSTM(x, weights(d, 160, 24), weights(d, 160, 40), hidden_size=40, direction=direction)[0]
                  for d, direction in ((1, "reverse"), (2, "bidirectional")))  # fmt: skip
    gates = [op.GRU(x, weights(1, 120, 24), weights(1, 120, 40), weights(1, 240), lengths, hidden_size=40,
                    linear_before_reset=before)[0] for before in (0, 1)]  # fmt: skip
    plain = op.RNN(x, weights(1, 7, 24), weights(1, 7, 7), hidden_size=7)[1]
    return eqsat.graph([one, other, *gates, plain])


LOOP = """<ir_version: 10, opset_import: ["": 21]>
g (float[40, 70] x, int64 rounds) => (float[40, 70] y) {
    cond = Constant<value = bool {1}>()
    y = Loop(rounds, cond, x) <body = b (int64 i, bool c, float[40, 70] state) => (bool d, float[40, 70] next) {
        d = Identity(c)
        t = Transpose<perm = [1, 0]>(state)
        square = MatMul(state, t)
        s = Softmax<axis = -1>(square)
        next = MatMul(s, state)
    }>
}"""
INTEGERS = """<ir_version: 10, opset_import: ["": 21]>
g (uint8[1, 20, 13, 11] x, uint8[30, 20] a, int8[20, 40] b)
  => (uint8[1, 20, 6, 5] p, int32[30, 40] y, uint8[1, 20, 13, 11] r) {
    p = MaxPool<kernel_shape = [3, 3], strides = [2, 2]>(x)
    y = MatMulInteger(a, b)
    m = Constant<value = uint8 {100}>()
    r = Min(x, m)
}"""
GENERAL = """<ir_version: 10, opset_import: ["": 21]>
g (double[5, 7, 9] x, int64[4] i)
  => (double[5, 7, 9] c, double[4, 7, 9] t, double[5, 9] s, double[5, 7, 3] v, int64[5, 7, 3] w) {
    axis = Constant<value = int64 {1}>()
    axes = Constant<value = int64[1] {1}>()
    three = Constant<value = int64[1] {3}>()
    c = CumSum(x, axis)
    t = Gather<axis = 0>(x, i)
    s = ReduceLogSumExp<keepdims = 0>(x, axes)
    v, w = TopK(x, three)
}"""
MODELS: dict[str, Any] = {
    "convolutions": convolutions,
    "rows": rows,
    "attention": attention,
    "loop": lambda: eqsat.load(LOOP),
    "recurrent": recurrent,
    "integers": lambda: eqsat.load(INTEGERS),
    "general": lambda: eqsat.load(GENERAL),
}


@pytest.fixture
def all_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kernel that can be is shared, down to single blocks."""
    monkeypatch.setattr(sharing, "WORTH", 0.0)
    monkeypatch.setattr(sharing, "LEAST", 1e-15)
    monkeypatch.setattr(sharing, "ENOUGH", 0.0)


def same(found: dict[str, np.ndarray], want: dict[str, np.ndarray]) -> bool:
    return all(found[name].tobytes() == array.tobytes() for name, array in want.items())


def given(model: ir.Model, seed: int = 0, **dims: int) -> dict[str, Any]:
    values = {"rounds": np.array(5), "i": np.array([4, 0, -1, 2]), "lengths": np.array([3, 5], np.int32)}
    names = {value.name for value in model.graph.inputs}
    return complete_inputs(model, {k: v for k, v in values.items() if k in names}, dims=dims, seed=seed)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.usefixtures("all_shared")
def test_the_same_bits_for_any_number_of_threads(name: str) -> None:
    model = eqsat.load(MODELS[name]())
    inputs = given(model)
    alone = CModel(model).run(inputs)
    for threads in (2, 3, 7):
        compiled = CModel(model, threads=threads)
        assert compiled.emitted.shared > len(compiled.emitted.kernels) // 2
        assert all(same(compiled.run(inputs), alone) for _ in range(5))
    for output, array in Executor(model).run(inputs).items():
        np.testing.assert_allclose(alone[output].astype(float), array.astype(float), rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("all_shared")
@pytest.mark.parametrize("first", range(6))
def test_random_graphs(first: int) -> None:
    """The first graph of some without strings, which C does not have."""
    for seed in range(first, 100, 6):
        model = eqsat.load(generate_case(seed).model)
        inputs = complete_inputs(model, seed=seed)
        if not any(v.dtype == ir.DataType.STRING for v in shaped_values(model)):
            break
    assert same(CModel(model, threads=3).run(inputs), CModel(model).run(inputs))


@pytest.mark.slow
@pytest.mark.usefixtures("all_shared")
def test_free_sizes() -> None:
    model = eqsat.load(attention("batch", "seq"))
    dims = {"batch": (1, 4), "seq": (1, 40, 16)}
    alone, shared = CModel(model, dims=dims), CModel(model, dims=dims, threads=3)
    assert shared.emitted.shared > 4
    for batch, seq in ((1, 1), (2, 19), (4, 40), (1, 33)):
        inputs = given(model, batch=batch, seq=seq)
        assert same(shared.run(inputs), alone.run(inputs))


@pytest.mark.usefixtures("all_shared")
def test_winograd() -> None:
    x = eqsat.input("x", (2, 32, 20, 20))
    model = eqsat.load(eqsat.graph(op.Conv(x, weights(32, 32, 3, 3), pads=[1, 1, 1, 1])))
    inputs = given(model)
    alone, shared = CModel(model, winograd=True), CModel(model, winograd=True, threads=3)
    assert "inograd" in " ".join(k.family for k in alone.emitted.kernels)
    assert same(shared.run(inputs), alone.run(inputs))


@pytest.mark.usefixtures("all_shared")
def test_callers_and_models_share_a_pool() -> None:
    models = [eqsat.compile(MODELS[name](), threads=3) for name in ("convolutions", "attention")]
    graphs = [eqsat.load(MODELS[name]()) for name in ("convolutions", "attention")]
    jobs = [(models[i % 2], given(graphs[i % 2], seed=i)) for i in range(40)]
    alone = [model.run(inputs) for model, inputs in jobs]
    with ThreadPoolExecutor(4) as callers:
        found = list(callers.map(lambda job: job[0].run(job[1]), jobs))
    assert all(same(a, b) for a, b in zip(found, alone, strict=True))


def test_a_pool_of_more_threads_than_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "ENOUGH", 0.0)
    sizes = ((16, 96), (32, 200), (64, 96), (128, 64), (512, 400))
    few = [op.Relu(op.MatMul(eqsat.input(f"x{n}", (n, 96)), weights(96, columns))) for n, columns in sizes]
    model = eqsat.load(eqsat.graph(few))
    alone, shared = CModel(model), CModel(model, threads=7)
    assert len(set(re.findall(r"_shared\(pool, (\d+),", shared.emitted.source))) > 1
    for seed in range(50):
        inputs = given(model, seed=seed)
        assert same(shared.run(inputs), alone.run(inputs))


@pytest.mark.usefixtures("all_shared")
@pytest.mark.filterwarnings("ignore:This process.*:DeprecationWarning")
def test_a_child_has_threads_of_its_own() -> None:
    model = eqsat.compile(attention(), threads=2)
    inputs = given(eqsat.load(attention()))
    want = model.run(inputs)
    child = os.fork()
    if child == 0:
        os._exit(0 if same(model.run(inputs), want) and (os.getpid(), 2) in pools._POOLS else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_small_kernels_stay_on_one_thread() -> None:
    small = generate(eqsat.load(eqsat.graph(op.Relu(eqsat.input("x", (64,))))), threads=4)
    assert (small.shared, small.threads) == (0, 4)
    x = eqsat.input("x", (512, 512))
    large = generate(eqsat.load(eqsat.graph(op.Relu(op.MatMul(x, weights(512, 512))))), threads=4)
    assert large.shared == len(large.kernels) == 1
    least = re.search(r"_shared\(pool, (\d+),", large.source)
    assert least is not None


def test_threads_are_not_woken_for_a_program_of_few_small_kernels() -> None:
    x = eqsat.input("x", (64, 128))

    def products(x: Any, n: int) -> Any:
        return x if n == 0 else products(op.Softsign(op.MatMul(x, weights(128, 128))), n - 1)

    one, eight = (generate(eqsat.load(eqsat.graph(products(x, n))), threads=2) for n in (1, 8))
    assert (len(one.kernels), one.shared) == (1, 0)
    assert (len(eight.kernels), eight.shared) == (8, 8)
    # What a loop calls counts as often as it does.
    for rounds, shared in ((1, 0), (40, 1)):
        text = (
            LOOP.replace("40, 70", "64, 128")
            .replace(", int64 rounds", "")
            .replace("    cond", f"    rounds = Constant<value = int64 {{{rounds}}}>()\n    cond", 1)
        )
        assert bool(generate(eqsat.load(text), threads=2).shared) is bool(shared)


@pytest.mark.parametrize("name", MODELS)
def test_without_threads_the_text_has_none(name: str) -> None:
    emitted = generate(eqsat.load(MODELS[name]()))
    for word in ("pthread", "pool *", "block_", MARK, "stage", "atomic"):
        assert word not in emitted.source + emitted.header


@pytest.mark.parametrize("threads", [0, -1, True, 1025, 2.0, None])
def test_a_number_of_threads_is_required(threads: Any) -> None:
    with pytest.raises(CodegenError, match="a whole number from 1 to 1024 is required; got"):
        eqsat.compile(attention(), threads=threads)


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    eqsat.save(convolutions(), tmp_path / "m.onnx")
    arguments = ["run", str(tmp_path / "m.onnx"), "--backend", "c"]
    outputs = []
    for more in ([], ["--threads", "2"]):
        assert main([*arguments, *more, "-o", str(tmp_path / "y.npz")]) == 0
        with np.load(tmp_path / "y.npz") as arrays:
            outputs.append(dict(arrays))
    assert same(*outputs)
    capsys.readouterr()
    assert main(["run", str(tmp_path / "m.onnx"), "--threads", "2"]) == 2
    assert "only C has threads: add --backend c" in capsys.readouterr().err
    assert main(["codegen", str(tmp_path / "m.onnx"), "--threads", "3", "-o", str(tmp_path / "c")]) == 0
    assert re.search(r"threads   up to 3 share \d+ of the kernels", capsys.readouterr().out)


CALLERS = """
#include "a.h"
#include "b.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
extern const unsigned char a_example[], b_example[];
static a_pool *pool;
#define CALLER(name, NAME) \\
    static void *name##_caller(void *given) { \\
        unsigned char *const arena = aligned_alloc(64, (NAME##_ARENA_SIZE + 63) / 64 * 64); \\
        float *const first = malloc(sizeof(float) * NAME##_OUTPUT_SIZE); \\
        float *const y = malloc(sizeof(float) * NAME##_OUTPUT_SIZE); \\
        for (int i = 0; i < 12; i++) { \\
            const float *const x = (const float *)name##_example; \\
            if (name##_run(x, i ? y : first, arena, name##_weights, i ? pool : NULL)) \\
                exit(3); \\
            if (i && memcmp(y, first, sizeof(float) * NAME##_OUTPUT_SIZE)) exit(4); \\
        } \\
        free(arena); \\
        free(first); \\
        free(y); \\
        return given; \\
    }
CALLER(a, A)
CALLER(b, B)
int main(void) {
    pthread_t callers[3];
    pool = b_pool_create(3);
    if (pool == NULL) return 5;
    pthread_create(&callers[0], NULL, a_caller, NULL);
    pthread_create(&callers[1], NULL, b_caller, NULL);
    pthread_create(&callers[2], NULL, a_caller, NULL);
    for (int i = 0; i < 3; i++) pthread_join(callers[i], NULL);
    a_pool_destroy(pool);
    puts("equal");
    return 0;
}
"""


@pytest.fixture(params=["", "-fsanitize=thread", "-fsanitize=address,undefined"])
def sanitizer(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param:
        (tmp_path / "t.c").write_text("int main(void) { return 0; }\n", "utf-8")
        command = [*find_compiler(), request.param, "t.c", "-o", "t"]
        if subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode:
            pytest.skip("no such sanitizer")
    yield request.param


@pytest.mark.slow
@pytest.mark.usefixtures("all_shared")
def test_models_in_c_share_a_pool_without_races(tmp_path: Path, sanitizer: str) -> None:
    x = eqsat.input("x", (1, 8, 14, 14))
    y = op.MaxPool(op.Relu(op.Conv(x, weights(24, 8, 3, 3), pads=[1, 1, 1, 1])), kernel_shape=[2, 2])
    z = op.LSTM(y_of_attention(), weights(1, 64, 16), weights(1, 64, 16), hidden_size=16)[0]
    models = {"a": eqsat.graph({"output": op.Softmax(y, axis=-1)}), "b": eqsat.graph({"output": z})}
    for name, model in models.items():
        folder = tmp_path / name
        eqsat.write_c(model, folder, name=name, threads=3)
        for file in folder.glob(f"{name}*.[ch]"):
            shutil.copy(file, tmp_path)
    (tmp_path / "callers.c").write_text(CALLERS, "utf-8")
    files = [f.name for f in tmp_path.glob("*.c") if f.name != "t.c"]
    strict = ["-std=c11", "-O1", "-g", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", "-D_POSIX_C_SOURCE=200809L"]
    command = [*find_compiler(), *strict, *filter(None, [sanitizer]), *files, "-pthread", "-lm", "-o", "callers"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr[:4000]
    done = subprocess.run([str(tmp_path / "callers")], capture_output=True, encoding="utf-8", check=False, timeout=120)
    assert (done.returncode, done.stdout) == (0, "equal\n"), done.stderr[:4000]
    assert "given.stage = 1;" in (tmp_path / "b.c").read_text("utf-8")


def y_of_attention() -> Any:
    x = eqsat.input("x", (3, 17, 16))
    scores = op.Softmax(op.MatMul(x, op.Transpose(x, perm=[0, 2, 1])), axis=-1)
    return op.LayerNormalization(op.MatMul(scores, x) + x, np.ones(16, np.float32), weights(16))


@pytest.mark.parametrize("shares", [True, False])
def test_the_program_checks_itself(shares: bool, tmp_path: Path) -> None:
    small = eqsat.graph(op.Tanh(eqsat.input("x", (8,)) + 1.0))
    assert bool(eqsat.write_c(convolutions() if shares else small, tmp_path, threads=2).shared) is shares
    files = sorted(f.name for f in tmp_path.glob("*.c"))
    command = [
        *find_compiler(),
        "-std=c11",
        "-O1",
        "-Wall",
        "-Wextra",
        "-Werror",
        *files,
        "-pthread",
        "-lm",
        "-o",
        "check",
    ]
    subprocess.run(command, cwd=tmp_path, check=True)
    done = subprocess.run([str(tmp_path / "check"), "3"], capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0 and "PASSED" in done.stdout and " ms" in done.stdout


MOVEMENT = """<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]>
g (float[1, 33, 20, 18] x, uint8[2, 30, 40] a, uint8[2, 50, 40] b)
  => (float[1, 33, 26, 22] p, float[1, 66, 20, 18] c, float[1, 11, 20, 18] s, float[1, 22, 20, 18] t,
      uint8[2, 80, 40] q) {
    pads = Constant<value = int64[8] {0, 0, 3, 2, 0, 0, 3, 2}>()
    p = Pad<mode = "reflect">(x, pads)
    y = Floor(x)
    c = Concat<axis = 1>(x, y)
    sizes = Constant<value = int64[2] {11, 22}>()
    s, t = Split<axis = 1>(x, sizes)
    scale = Constant<value = float {0.5}>()
    other = Constant<value = float {0.25}>()
    zero = Constant<value = uint8 {3}>()
    q = com.microsoft.QLinearConcat<axis = 1>(scale, zero, a, other, zero, b, scale, zero)
}"""


@pytest.mark.usefixtures("all_shared")
def test_all_nests_of_a_kernel_are_shared() -> None:
    model = eqsat.load(MOVEMENT)
    inputs = given(model)
    alone, shared = CModel(model), CModel(model, threads=3)
    assert shared.emitted.shared == len(shared.emitted.kernels)
    assert MARK not in shared.emitted.source
    assert same(shared.run(inputs), alone.run(inputs))
    for output, array in Executor(model).run(inputs).items():
        np.testing.assert_array_equal(alone.run(inputs)[output], array)


@pytest.mark.usefixtures("all_shared")
def test_rows_without_elements() -> None:
    x, chosen = eqsat.input("x", (1, 1, 20)), eqsat.input("chosen", (20,), ir.DataType.BOOL)
    some = op.Compress(x, chosen, axis=2)
    model = eqsat.load(eqsat.graph(op.Tile(some, np.array([2, 3, 1]))))
    shared = CModel(model, threads=3)
    assert shared.emitted.shared > 0 and "block_row" in shared.emitted.source
    for count in (0, 1, 20):
        inputs = {"x": RNG.standard_normal((1, 1, 20)).astype(np.float32), "chosen": np.arange(20) < count}
        found = shared.run(inputs)[model.graph.outputs[0].name or ""]
        np.testing.assert_array_equal(found, np.tile(inputs["x"][:, :, :count], (2, 3, 1)))
