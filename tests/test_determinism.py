"""The same input gives the same output, byte for byte, in every process, however busy or slow the machine is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

SCRIPT = """
import hashlib, json, sys
import onnx_ir as ir
from benchmarks.models import light
from eqsat.report.as_json import to_dict
from eqsat.search import Search
from tests.fuzz.generator import generate

for name in sys.argv[1:]:
    model = light(name) if not name.isdigit() else generate(int(name))
    search = Search.of(model, ["dnnl", "ccompiler"], time_limit=60)
    for objective in ("best", "worst", "random"):
        result = search.extract(objective)
        content = ir.to_proto(result.model).SerializeToString(deterministic=True)
        told = to_dict(result.summary)
        told["seconds"] = None
        for rule in told["rules"]:
            rule["seconds"] = None
        digests = [hashlib.sha256(c).hexdigest() for c in (content, json.dumps(told).encode())]
        print(name, objective, *digests)
"""


@pytest.mark.slow
@pytest.mark.parametrize("models", [("3", "squeezenet"), pytest.param(("8", "15", "22"), marks=pytest.mark.heavy)])
def test_two_processes_agree(models):
    def run(seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", SCRIPT, *models]
        return subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, encoding="utf-8", check=True
        ).stdout

    first, second = run("1"), run("2")
    assert first.count("\n") == 3 * len(models)
    assert first == second


LIMITED = """
import hashlib, json, sys, time

factor = float(sys.argv[1])
for name in ("perf_counter", "process_time", "monotonic", "time"):
    usual = getattr(time, name)
    setattr(time, name, lambda usual=usual, start=usual(): start + factor * (usual() - start))

import onnx_ir as ir
import eqsat
from eqsat.report.as_json import to_dict
from tests.egraph.chains import CHAINS
from tests.fuzz.generator import generate

for chain, depth, limit in json.loads(sys.argv[2]):
    model = CHAINS[chain](depth) if chain else generate(depth)
    result = eqsat.optimize(model, "dnnl,ethos_n", time_limit=limit)
    told = to_dict(result.summary)
    told["seconds"] = None
    for rule in told["rules"]:
        rule["seconds"] = None
    content = ir.to_proto(result.model).SerializeToString(deterministic=True)
    digests = [hashlib.sha256(c).hexdigest() for c in (content, json.dumps(told).encode())]
    print(chain, depth, result.stop_reason, result.summary.saturation.stop_reason, *digests)
"""


def _optimized(models: list[tuple[str, int, float]], factor: float = 1.0) -> list[str]:
    """A line for each of some models: why the search has ended, and digests of result and report.

    Args:
        models: Kind of chain, or "" for a random graph; depth or seed; time limit.
        factor: How many times faster the clocks of the process run.
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", LIMITED, str(factor), json.dumps(models)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, encoding="utf-8", check=True)
    return done.stdout.splitlines()


@pytest.mark.slow
def test_other_programs_on_the_machine_do_not_change_a_result() -> None:
    """Neither where the search ends by itself nor where its work ends it."""
    models = [("", 3, 30.0), ("post_norm", 4, 30.0), ("pre_norm", 6, 0.1), ("post_norm", 12, 1.0)]
    idle = _optimized(models)
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        busy = _optimized(models)
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()
    assert busy == idle
    assert ["work limit" in line for line in idle] == [False, False, True, True]
    assert "time limit" not in "".join(idle)


@pytest.mark.slow
def test_a_machine_five_times_slower_finds_the_same_within_the_usual_limit() -> None:
    models = [("", 3, 30.0), ("", 8, 30.0), ("pre_norm", 4, 30.0), ("post_norm", 4, 30.0)]
    usual = _optimized(models)
    assert _optimized(models, 5.0) == usual
    assert all("optimal" in line for line in usual)
