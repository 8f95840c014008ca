"""The same input gives the same output, byte for byte, in every process."""

from __future__ import annotations

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
