"""What a process pays before its first model, and for each further one: CPU seconds by stage, each a fresh process.

The model has four operators, so that what is measured is everything but the model. The first process finds the cache
of rule and target files empty. ``modules`` counts what Python has imported.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

MODEL = """<ir_version: 8, opset_import: ["": 17]>
g (float[1, 8, 16, 16] x, float[8, 8, 3, 3] w, float[8] b) => (float[1, 8, 16, 16] y) {
    c = Conv <pads = [1, 1, 1, 1]> (x, w, b)
    r = Relu(c)
    a = Add(r, x)
    y = Sigmoid(a)
}"""

PROCESS = """
import json, sys, time
start = time.process_time()
import eqsat
from eqsat import api
seconds = {"python": start, "imports": time.process_time() - start}
for name in ("first model", "second", "third"):
    start = time.process_time()
    result = eqsat.optimize(sys.argv[1], targets=["dnnl"])
    seconds[name] = time.process_time() - start
    if name != "second":
        seconds |= {f"{name}: {stage}": spent for stage, spent in result.seconds.items()}
print(json.dumps({"seconds": seconds, "modules": len(sys.modules)}))
"""


def measured(cache: str) -> dict[str, float]:
    """CPU seconds of one process, by stage."""
    environment = {**os.environ, "EQSAT_CACHE": cache}
    command = [sys.executable, "-c", PROCESS, MODEL]
    done = subprocess.run(command, env=environment, capture_output=True, encoding="utf-8", check=True)
    found = json.loads(done.stdout)
    return {**found["seconds"], "modules": found["modules"]}


def main() -> None:
    """Prints the least of several processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="processes, after one that fills the cache")
    parser.add_argument("--json", help="file to write")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:
        empty = measured(cache)
        runs = [measured(cache) for _ in range(options.runs)]
    rows = {name: (empty[name], min(run[name] for run in runs)) for name in empty}
    total = "fresh process, first model"
    parts = ("python", "imports", "first model")
    rows[total] = sum(empty[name] for name in parts), min(sum(run[name] for name in parts) for run in runs)
    print(f"{'CPU seconds':32}{'empty cache':>12}{'cache':>12}")
    for name, (without, with_cache) in rows.items():
        shape = "12.0f" if name == "modules" else "12.3f"
        print(f"{name:32}{without:{shape}}{with_cache:{shape}}")
    if options.json:
        found = {name: {"empty": a, "cache": b} for name, (a, b) in rows.items()}
        Path(options.json).write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
