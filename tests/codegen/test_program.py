"""The generated program as a C programmer meets it: files, warnings, linking, arguments, threads."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from eqsat.codegen import weights as weights_module
from eqsat.codegen.compiler import find_compiler
from eqsat.codegen.folder import write_program
from eqsat.codegen.runtime import CModel
from eqsat.codegen.weights import aligned, literal
from eqsat.errors import CodegenError, ExecutionError
from eqsat.execute.executor import Executor
from eqsat.execute.inputs import complete_inputs
from eqsat.model.load import load
from tests.codegen.random_graphs import random_model

NET = """
<ir_version: 10, opset_import: ["" : 21]>
net (float[1, 3, 9, 9] image, float16[4] half, int64[2, 3] number, uint8[5] byte)
    => (float[1, 8, 9, 9] features, float[1, 8] pooled, float16[4] halves, int64[2, 3] sums, bool[5] flags, double[2] d)
<float[8, 3, 3, 3] w = {WEIGHTS}, float[8] b = {1, 2, 3, 4, 5, 6, 7, 8}, double[2] k = {0.1, -1e300}>
{
    c = Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(image, w, b)
    features = Relu(c)
    m = GlobalAveragePool(features)
    shape = Constant<value_ints = [1, 8]>()
    pooled = Reshape(m, shape)
    halves = Add(half, half)
    sums = Mul(number, number)
    limit = Constant<value = uint8[1] {7}>()
    flags = Greater(byte, limit)
    d = Identity(k)
}
""".replace("WEIGHTS", ", ".join(str(0.01 * ((7 * i) % 31 - 15)) for i in range(8 * 27)))
SMALL = """
<ir_version: 10, opset_import: ["" : 21]>
small (float[2, 3] x, float[3] y) => (float[2, 3] z)
{
    s = Add(x, y)
    z = Relu(s)
}
"""


def compile_and_run(folder: Path, sources: list[str], *flags: str) -> subprocess.CompletedProcess[str]:
    command = [*find_compiler(), "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", *flags, *sources, "-lm"]
    built = subprocess.run([*command, "-o", "program"], cwd=folder, capture_output=True, encoding="utf-8", check=False)
    assert built.returncode == 0, built.stderr
    return subprocess.run(["./program"], cwd=folder, capture_output=True, encoding="utf-8", check=False)


@pytest.mark.slow
def test_another_file_is_not_taken_for_the_weights(tmp_path: Path) -> None:
    write_program(load(random_model(3)), tmp_path, weights="blob")
    command = [*find_compiler(), "-std=c11", "-O0", "model.c", "model_example.c", "main.c", "-lm", "-o", "check"]
    subprocess.run(command, cwd=tmp_path, check=True)
    content = (tmp_path / "model_weights.bin").read_bytes()

    def answer(name: str) -> tuple[int, str]:
        done = subprocess.run(["./check", name], cwd=tmp_path, capture_output=True, encoding="utf-8", check=False)
        return done.returncode, done.stderr

    assert answer("model_weights.bin") == (0, "")
    assert answer("nowhere.bin") == (2, "nowhere.bin: the weights cannot be read\n")
    for other in (content + b"x", content[:-1]):
        (tmp_path / "other.bin").write_bytes(other)
        assert answer("other.bin") == (2, f"other.bin: not the weights, which are {len(content)} bytes\n")


def test_big_weights_are_included_by_the_assembler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model(3)
    write_program(load(model), tmp_path / "small")
    assert "incbin" not in (tmp_path / "small" / "model_weights.c").read_text("utf-8")
    assert not (tmp_path / "small" / "model_weights.bin").exists()
    monkeypatch.setattr(weights_module, "LARGEST", 100)
    emitted = write_program(load(model), tmp_path / "big")
    assert "incbin" in (tmp_path / "big" / "model_weights.c").read_text("utf-8")
    assert (tmp_path / "big" / "model_weights.bin").stat().st_size == len(emitted.weights)
    write_program(load(model), tmp_path / "literals", weights="string")
    assert "incbin" not in (tmp_path / "literals" / "model_weights.c").read_text("utf-8")


@pytest.mark.parametrize("weights", ["string", "incbin", "blob"])
@pytest.mark.parametrize("flags", [(), ("-DNET_SCALAR", "-pedantic", "-Wno-overlength-strings")], ids=["", "scalar"])
def test_checks_itself(weights: str, flags: tuple[str, ...], tmp_path: Path) -> None:
    emitted = write_program(load(NET), tmp_path, name="net", weights=weights)
    sources = ["net.c", "net_example.c", "main.c"] + (["net_weights.c"] if weights != "blob" else [])
    assert {"net.h", "CMakeLists.txt", *sources} <= {p.name for p in tmp_path.iterdir()}
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]
    if weights == "incbin":
        flags = tuple(f for f in flags if f != "-pedantic")
    done = compile_and_run(tmp_path, sources, *flags)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("PASSED") == len(emitted.outputs) == 6


def test_integer_results_need_no_distance(tmp_path: Path) -> None:
    head = '<ir_version: 10, opset_import: ["": 21]> whole (int32[4] x) => (int32[4] y, bool[4] z)'
    write_program(load(f"{head} {{ y = Add(x, x) z = Less(x, y) }}"), tmp_path)
    done = compile_and_run(tmp_path, [p.name for p in tmp_path.glob("*.c")])
    assert done.returncode == 0 and done.stdout.count("PASSED") == 2


TYPES = {"bool": "Less(x, z)", "uint8": "Add(b, b)", "int8": "QuantizeLinear(x, scale, zero)"}


@pytest.mark.parametrize(("dtype", "allowed"), [("bool", 0), ("uint8", 0), ("int8", 1)])
def test_what_the_program_allows(dtype: str, allowed: int, tmp_path: Path) -> None:
    """One unit where integers are rounded from floats, else nothing."""
    inputs = "uint8[4] b" if dtype == "uint8" else "float[4] x, float[4] z"
    text = f"""<ir_version: 10, opset_import: ["": 21]> g ({inputs}) => ({dtype}[4] y)
        <float scale = {{0.1}}, int8 zero = {{0}}> {{ y = {TYPES[dtype]} }}"""
    write_program(load(text), tmp_path)
    done = compile_and_run(tmp_path, [p.name for p in tmp_path.glob("*.c")])
    assert done.returncode == 0 and f"allowed {allowed}: PASSED" in done.stdout


def test_a_wrong_result_is_seen(tmp_path: Path) -> None:
    write_program(load(SMALL), tmp_path)
    example = tmp_path / "model_example.c"
    text = example.read_text("utf-8")
    other = load(SMALL.replace("Relu(s)", "Neg(s)"))
    write_program(other, tmp_path / "other")
    example.write_text((tmp_path / "other" / "model_example.c").read_text("utf-8"), "utf-8")
    assert example.read_text("utf-8") != text
    done = compile_and_run(tmp_path, ["model.c", "model_weights.c", "model_example.c", "main.c"])
    assert done.returncode == 1
    assert "FAILED" in done.stdout


def test_cmake(tmp_path: Path) -> None:
    if shutil.which("cmake") is None:
        pytest.skip("no cmake")
    write_program(load(NET), tmp_path, name="net")
    for command in (
        ["cmake", "-B", "build", "-DNET_WERROR=ON"],
        ["cmake", "--build", "build"],
        ["ctest", "--test-dir", "build", "--output-on-failure"],
    ):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, encoding="utf-8", check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_two_models_in_one_program(tmp_path: Path) -> None:
    write_program(load(NET), tmp_path, name="first")
    write_program(load(SMALL), tmp_path, name="second")
    (tmp_path / "both.c").write_text(
        """
        #include "first.h"
        #include "second.h"
        #include <stdio.h>
        static _Alignas(SECOND_ALIGNMENT) unsigned char arena[SECOND_ARENA_SIZE];
        int main(void) {
            const float x[6] = {1, -2, 3, -4, 5, -6}, y[3] = {1, 1, 1};
            float z[SECOND_Z_SIZE];
            if (second_run(x, y, z, arena, second_weights) != SECOND_OK) return 1;
            for (int i = 0; i < 6; i++) printf("%g ", (double)z[i]);
            return first_run(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, arena, first_weights) == FIRST_NULL_ARGUMENT ? 0 : 2;
        }
        """,
        "utf-8",
    )
    done = compile_and_run(tmp_path, ["first.c", "first_weights.c", "second.c", "second_weights.c", "both.c"])
    assert (done.returncode, done.stdout) == (0, "2 0 4 0 6 0 ")


def test_header_in_cpp(tmp_path: Path) -> None:
    if shutil.which("g++") is None:
        pytest.skip("no g++")
    write_program(load(NET), tmp_path)
    (tmp_path / "use.cpp").write_text(
        '#include "model.h"\nvoid *use() { return reinterpret_cast<void *>(&model_run); }\n', "utf-8"
    )
    done = subprocess.run(["g++", "-Wall", "-Wextra", "-Werror", "-c", "use.cpp"], cwd=tmp_path, check=False)
    assert done.returncode == 0


def test_arguments_are_checked() -> None:
    model = CModel(load(SMALL))
    library, cast = model._library, model._ffi.cast
    buffers = [aligned(64) for _ in range(3)] + [aligned(model.emitted.arena), aligned(len(model.emitted.weights))]
    good = [b.ctypes.data for b in buffers]

    def call(addresses: list[int]) -> int:
        kinds = ("const float *", "const float *", "float *", "void *", "const void *")
        return library.model_run(*(cast(kind, address) for kind, address in zip(kinds, addresses, strict=True)))

    assert call(good) == 0
    for i in range(5):
        assert call([0 if k == i else a for k, a in enumerate(good)]) == 1
        assert call([a + 2 if k == i else a for k, a in enumerate(good)]) == 2
    assert call([a + 4 if k < 3 else a for k, a in enumerate(good)]) == 0, "tensors need their elements' alignment only"


def test_eight_threads() -> None:
    model = load(NET)
    compiled = CModel(model)
    jobs = [complete_inputs(model, seed=seed) for seed in range(32)]
    expected = [Executor(model).run(inputs) for inputs in jobs]
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(compiled.run, jobs * 4))
    for i, result in enumerate(results):
        for name, array in expected[i % 32].items():
            np.testing.assert_allclose(result[name], array, rtol=1e-5, atol=1e-5)
    assert len(compiled._arenas) <= 8


def test_inputs_are_not_copied_and_not_written() -> None:
    compiled = CModel(load(SMALL))
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    x.flags.writeable = False
    assert compiled._binding.arrays({"x": x, "y": x[0]})[0][0] is x
    np.testing.assert_array_equal(compiled.run({"x": x, "y": x[0]})["z"], x + x[0])
    turned = np.asfortranarray(x)
    np.testing.assert_array_equal(compiled.run({"x": turned, "y": x[0]})["z"], x + x[0])


@pytest.mark.parametrize(
    "inputs, message",
    [
        ({"x": np.zeros((2, 3), np.float32)}, "'y'"),
        ({"x": np.zeros((2, 4), np.float32), "y": np.zeros(3, np.float32)}, "x"),
        ({"x": np.zeros((2, 3)), "y": np.zeros(3, np.float32)}, "float"),
        ({"x": np.zeros((2, 3), np.float32), "y": np.zeros(3, np.float32), "q": 0}, "'q'"),
    ],
)
def test_unfit_inputs(inputs: dict, message: str) -> None:
    with pytest.raises(ExecutionError, match=message):
        CModel(load(SMALL)).run(inputs)


@pytest.mark.slow
def test_same_text_in_any_process(tmp_path: Path) -> None:
    script = (
        "import sys\nfrom eqsat.codegen.generate import generate\nfrom eqsat.model.load import load\n"
        "e = generate(load(sys.argv[1]))\nsys.stdout.write(e.header + e.source + e.weights.tobytes().hex())\n"
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", script, NET],
            capture_output=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(texts) == 1


def test_no_machine_in_the_text(tmp_path: Path) -> None:
    write_program(load(NET), tmp_path)
    for path in tmp_path.iterdir():
        assert str(tmp_path).encode() not in path.read_bytes()


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    model = load(SMALL)
    inputs = complete_inputs(model)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(CodegenError, match="a C compiler is required"):
        CModel(model)
    assert "z" in Executor(model).run(inputs)
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(CodegenError, match="no-such-compiler"):
        CModel(model)


def test_a_compiler_that_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = tmp_path / "failing"
    script.write_text("#!/bin/sh\necho 'model.c:1: error: no' >&2\nexit 3\n", "utf-8")
    script.chmod(0o755)
    monkeypatch.setenv("CC", str(script))
    monkeypatch.setenv("EQSAT_CACHE", str(tmp_path / "cache"))
    with pytest.raises(CodegenError, match="exit code 3") as caught:
        CModel(load(SMALL))
    assert "model.c:1: error: no" in str(caught.value)
    assert list((tmp_path / "cache").iterdir()) == []


def test_compiled_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EQSAT_CACHE", str(tmp_path))
    CModel(load(SMALL))
    (library,) = tmp_path.iterdir()
    before = library.stat().st_mtime_ns
    CModel(load(SMALL))
    assert [p.stat().st_mtime_ns for p in tmp_path.iterdir()] == [before]


def test_all_that_is_not_supported_is_said_before_anything_is_written(tmp_path: Path) -> None:
    model = load(
        """<ir_version: 10, opset_import: ["" : 21]>
        g (float[3] x, string[2] s, bool c) => (float[3] y, string[2] t, float[N] z, float[3] n)
        {
            y = If(c) <
                then_branch = t1 () => (float[3] a) { a = RandomUniformLike(x) },
                else_branch = t2 () => (float[3] b) { b = Abs(x) }>
            t = StringConcat(s, s)
            n = RandomNormalLike(x)
            k = Cast<to: int = 7>(x)
            z = ConstantOfShape(k)
        }"""
    )
    with pytest.raises(CodegenError) as caught:
        write_program(model, tmp_path / "out")
    message = str(caught.value)
    for part in ("RandomUniformLike", "RandomNormalLike", "StringConcat", "type string", "nothing bounds"):
        assert part in message
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["", "1net", "a-b", "int", "class"])
def test_names_that_are_none(name: str, tmp_path: Path) -> None:
    with pytest.raises(CodegenError, match="a name of letters"):
        write_program(load(SMALL), tmp_path, name=name)


def test_other_mistakes(tmp_path: Path) -> None:
    with pytest.raises(CodegenError, match="sse9"):
        write_program(load(SMALL), tmp_path, isas=["sse9"])
    with pytest.raises(CodegenError, match="hex"):
        write_program(load(SMALL), tmp_path, weights="hex")
    (tmp_path / "file").write_text("", "utf-8")
    with pytest.raises(CodegenError, match="file"):
        write_program(load(SMALL), tmp_path / "file")
    with pytest.raises(CodegenError, match="for each symbolic dimension; got `N` without one"):
        write_program(load(SMALL.replace("float[2, 3]", "float[N, 3]")), tmp_path)


def test_odd_names(tmp_path: Path) -> None:
    model = load(SMALL)
    model.graph.inputs[0].name = "in/put:0 */"
    model.graph.inputs[1].name = "int"
    model.graph.outputs[0].name = "in.put.0"
    write_program(model, tmp_path)
    done = compile_and_run(tmp_path, ["model.c", "model_weights.c", "model_example.c", "main.c"])
    assert done.returncode == 0, done.stdout + done.stderr


def test_literals_hold_every_byte(tmp_path: Path) -> None:
    data = bytes(range(256)) * 40 + b'??/0\\8"9\n'
    (tmp_path / "a.c").write_text(
        f"#include <stdio.h>\nstatic const unsigned char a[] =\n{literal(data)};\n"
        "int main(void) { fwrite(a, 1, sizeof a - 1, stdout); return 0; }\n",
        "utf-8",
    )
    subprocess.run([*find_compiler(), "-std=c11", "a.c", "-o", "a"], cwd=tmp_path, check=True)
    assert subprocess.run(["./a"], cwd=tmp_path, capture_output=True, check=True).stdout == data
