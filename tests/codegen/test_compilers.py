"""Other compilers and machines than gcc on this one: no warning, the same values. What is not installed is skipped.

On Debian: ``apt-get install clang gcc-aarch64-linux-gnu gcc-arm-linux-gnueabihf gcc-s390x-linux-gnu qemu-user`` and the
``libc6-dev-*-cross`` of these.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest

from eqsat.codegen.folder import write_program
from eqsat.codegen.isa import ALL, AVX2, PORTABLE, SCALAR, Isa
from eqsat.codegen.runtime import CModel
from eqsat.execute.executor import Executor
from eqsat.execute.inputs import complete_inputs
from eqsat.model.load import load
from tests.codegen import graphs, nodes
from tests.codegen.random_graphs import random_model
from tests.codegen.ways import Way

STRICT = ("-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off")
QUANTIZED = """<ir_version: 10, opset_import: ["": 21]>
    g (float[1, 6, 9, 9] x) => (float[1, 8, 9, 9] y, uint8[1, 6, 9, 9] q)
    <float xs = {0.02}, uint8 xz = {120}, float ws = {0.01}, int8 wz = {0}, float ys = {0.05}, uint8 yz = {100}> {
        q = QuantizeLinear(x, xs, xz)
        shape = Constant<value = int64[4] {8, 6, 3, 3}>()
        flat = Constant<value_ints = [WEIGHTS]>()
        narrow = Cast<to = 3>(flat)
        w = Reshape(narrow, shape)
        c = QLinearConv<pads = [1, 1, 1, 1]>(q, xs, xz, w, ws, wz, ys, yz)
        y = DequantizeLinear(c, ys, yz)
    }"""
MIXED = """<ir_version: 10, opset_import: ["": 21]>
    g (float16[3, 40] h, double[3, 40] d, int64[3, 40] i, float[3, 40] f) =>
      (float16[3, 40] a, double[3, 40] b, int64[3, 40] c, bool[3, 40] e, float[3, 40] s, bfloat16[3, 40] t) {
        a = Mul(h, h)
        b = Tanh(d)
        c = Add(i, i)
        e = Less(f, s)
        g = Gelu(f)
        s = Softmax<axis = -1>(g)
        t = Cast<to = 16>(f)
    }"""
CROSS = {"aarch64-linux-gnu": "aarch64", "arm-linux-gnueabihf": "arm"}


def models() -> dict[str, str | onnx.ModelProto]:
    weights = np.random.default_rng(1).integers(-100, 100, 8 * 6 * 9)
    quantized = QUANTIZED.replace("WEIGHTS", ", ".join(map(str, weights)))
    return {"network": random_model(4), "other network": random_model(7), "quantized": quantized, "mixed": MIXED}


def need(*commands: str) -> None:
    for command in commands:
        if shutil.which(command) is None:
            pytest.skip(f"no {command} here")


@pytest.mark.slow
@pytest.mark.parametrize(
    "isas", [ALL, (AVX2, PORTABLE), (PORTABLE,), (PORTABLE, SCALAR)], ids=["all", "avx2", "portable", "scalar"]
)
@pytest.mark.parametrize("name", models())
def test_clang(name: str, isas: tuple[Isa, ...], monkeypatch: pytest.MonkeyPatch):
    need("clang")
    monkeypatch.setenv("CC", "clang")
    model = load(models()[name])
    inputs = complete_inputs(model)
    scalar = ("-DMODEL_SCALAR", "-pedantic") if isas == (PORTABLE, SCALAR) else ()
    found, expected = CModel(model, isas=isas, flags=(*STRICT, *scalar)).run(inputs), Executor(model).run(inputs)
    for key, value in expected.items():
        if value.dtype.kind in "biu":
            np.testing.assert_array_equal(found[key], value, key)
            continue
        wide = value.astype(np.float64)
        unit = {"float16": 2e-3, "bfloat16": 1e-2, "float64": 1e-12}.get(value.dtype.name, 1e-5)
        np.testing.assert_allclose(
            found[key].astype(np.float64), wide, rtol=0, atol=unit * max(1.0, np.abs(wide).max())
        )


@pytest.mark.heavy
def test_clang_takes_random_graphs(monkeypatch: pytest.MonkeyPatch):
    need("clang")
    monkeypatch.setenv("CC", "clang")
    way = Way(ALL)
    ready = [found for seed in range(40) if (found := graphs.prepare(seed, way)) is not None]
    results = nodes.results(nodes.compiled(ready, way), ready, way)
    for prepared in ready:
        found = results[prepared.name]
        assert isinstance(found, list), found
        names = [y.name for y in prepared.emitted.outputs]
        graphs.compare(
            prepared.name, dict(zip(names, prepared.expected, strict=True)), dict(zip(names, found, strict=True))
        )


@pytest.mark.slow
@pytest.mark.parametrize("flags", [(), ("-DMODEL_SCALAR", "-pedantic")], ids=["vectors", "scalar"])
@pytest.mark.parametrize("machine", CROSS)
@pytest.mark.parametrize("name", models())
def test_another_machine(name: str, machine: str, flags: tuple[str, ...], tmp_path: Path):
    compiler, emulator = f"{machine}-gcc", f"qemu-{CROSS[machine]}"
    need(compiler, emulator)
    write_program(load(models()[name]), tmp_path)
    command = [
        compiler,
        *STRICT,
        *flags,
        "-static",
        *sorted(p.name for p in tmp_path.glob("*.c")),
        "-o",
        "check",
        "-lm",
    ]
    subprocess.run(command, cwd=tmp_path, check=True)
    done = subprocess.run([emulator, "./check"], cwd=tmp_path, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAILED" not in done.stdout
    assert "PASSED" in done.stdout


def refused(folder: Path, command: str, *flags: str) -> str:
    write_program(load(random_model(4)), folder)
    done = subprocess.run(
        [command, "-std=c11", *flags, "-c", "model.c"], cwd=folder, capture_output=True, encoding="utf-8", check=False
    )
    assert done.returncode
    return done.stderr


def test_big_endian_machines_are_refused(tmp_path: Path):
    need("gcc")
    assert "weights of this program are little-endian" in refused(
        tmp_path, "gcc", "-U__BYTE_ORDER__", "-D__BYTE_ORDER__=4321"
    )


@pytest.mark.slow
def test_a_big_endian_machine_is_refused(tmp_path: Path):
    need("s390x-linux-gnu-gcc")
    assert "weights of this program are little-endian" in refused(tmp_path, "s390x-linux-gnu-gcc")


def test_floats_of_another_width_are_refused(tmp_path: Path):
    need("gcc")
    assert "float has to be computed as float" in refused(tmp_path, "gcc", "-mfpmath=387", "-DMODEL_SCALAR")
