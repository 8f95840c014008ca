"""Random networks as C against the numpy executor, for each instruction set."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from eqsat.codegen.compiler import find_compiler, native_isas
from eqsat.codegen.folder import write_program
from eqsat.codegen.isa import AVX2, PORTABLE, SCALAR, Isa
from eqsat.codegen.runtime import CModel
from eqsat.execute.executor import Executor
from eqsat.execute.inputs import complete_inputs
from eqsat.model.load import load
from tests.codegen.random_graphs import random_model

STRICT = ("-O1", "-Wall", "-Wextra", "-Werror")


def check(seed: int, isas: tuple[Isa, ...] | None, flags: tuple[str, ...] = ()) -> None:
    model = load(random_model(seed))
    inputs = complete_inputs(model)
    compiled = CModel(model, isas=isas, flags=(*STRICT, *flags))
    first, again = compiled.run(inputs), compiled.run(inputs)
    expected = Executor(model).run(inputs)
    assert list(first) == list(expected)
    for name, array in expected.items():
        scale = max(1.0, float(np.abs(array).max(initial=0)))
        np.testing.assert_allclose(first[name], array, rtol=0, atol=1e-5 * scale, err_msg=f"{seed} {name}")
        # The second run finds the first one's values in the arena.
        np.testing.assert_array_equal(again[name], first[name])
    plan = compiled.emitted.plan
    assert plan.size <= 1.05 * plan.bound


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_native(seed: int) -> None:
    check(seed, None)


@pytest.mark.parametrize("seed", range(100, 104))
def test_portable(seed: int) -> None:
    check(seed, (PORTABLE,))


@pytest.mark.parametrize("seed", range(200, 204))
def test_scalar(seed: int) -> None:
    check(seed, (PORTABLE, SCALAR), ("-DMODEL_SCALAR", "-pedantic"))


@pytest.mark.parametrize("seed", range(300, 303))
def test_avx2(seed: int) -> None:
    if not any(isa.x86 for isa in native_isas()):
        pytest.skip("another processor")
    check(seed, (AVX2,))


@pytest.mark.heavy
@pytest.mark.parametrize("first", range(1000, 1100, 10))
def test_many(first: int) -> None:
    for seed in range(first, first + 10):
        check(seed, None)


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(2000, 2010))
def test_sanitized(seed: int, tmp_path: Path) -> None:
    """As a program with its own ``main``; ``tests.codegen.graphs`` runs many more of these networks."""
    sanitize(seed, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3000, 3003))
def test_some_sanitized(seed: int, tmp_path: Path) -> None:
    sanitize(seed, tmp_path)


def sanitize(seed: int, folder: Path) -> None:
    sanitizers = "-fsanitize=address,undefined"
    (folder / "probe.c").write_text("int main(void) { return 0; }\n", "utf-8")
    probe = [*find_compiler(), sanitizers, "probe.c", "-o", "probe"]
    if subprocess.run(probe, cwd=folder, capture_output=True, check=False).returncode:
        pytest.skip("no sanitizers here")
    write_program(load(random_model(seed)), folder)
    command = [*find_compiler(), "-std=c11", "-O1", "-g", "-ffp-contract=off", sanitizers]
    command += ["-fno-sanitize-recover=all", "model.c", "model_weights.c", "model_example.c", "main.c", "-lm"]
    subprocess.run([*command, "-o", "check"], cwd=folder, check=True)
    done = subprocess.run(["./check"], cwd=folder, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stdout + done.stderr
