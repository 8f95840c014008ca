"""Attention and norms as exporters write them: who finds them, and how fast the result is in ONNX Runtime.

    python -m benchmarks.fusion [FOLDER] [--seconds 2] [--python PYTHON] [--json FILE]

The graphs are those of `benchmarks/fusion_graphs`, which `benchmarks.fusion_models` exports where torch is installed:
eager attention, `scaled_dot_product_attention`, `nn.MultiheadAttention`, grouped queries with rotary embedding, and a
decoder's step with a cache and cross attention, each by both exporters of PyTorch.

Compared are ONNX Runtime's optimizer, its transformers optimizer, onnxscript's rewriter with its fusions for ONNX
Runtime, onnxsim and onnxslim, which the interpreter that `--python` names executes, and eqsat for the hosts `cpu` and
`ort`. Each row has the number of attentions and norms that are one operator, out of those that the network has, and
the time in ONNX Runtime of the original divided by that of the file (`benchmarks.ort_speed`). The host `cpu` takes
every operator that it knows; `ort` takes what ONNX Runtime was measured to run faster. ``different`` marks a file whose
outputs differ from the original's by more than 1e-3 of the greatest magnitude; ``does not run`` one that ONNX Runtime
refuses with the original's inputs.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import eqsat
from benchmarks.executor import table
from benchmarks.ort_speed import ORIGINAL, PEERS, operands, optimized, ratios, session
from benchmarks.output import write_json
from benchmarks.zoo import error_of, files, name_of, notes_of, read

Row = dict[str, Any]
GRAPHS = Path(__file__).parent / "fusion_graphs"
ATTENTIONS = frozenset({"Attention", "MultiHeadAttention", "GroupQueryAttention", "SDPA"})
NORMS = frozenset(
    {
        "LayerNormalization",
        "SkipLayerNormalization",
        "RMSNormalization",
        "SimplifiedLayerNormalization",
        "SkipSimplifiedLayerNormalization",
    }
)
_TRANSFORMERS = """
import sys
from onnxruntime.transformers import optimizer
optimizer.optimize_model(sys.argv[1], model_type="bert", num_heads=0, hidden_size=0).save_model_to_file(sys.argv[2])
"""
_ONNXSCRIPT = """
import sys, onnx_ir as ir
from onnxscript import optimizer, rewriter
from onnxscript.rewriter.ort_fusions import optimize_for_ort
model = ir.load(sys.argv[1])
optimizer.optimize(model)
optimize_for_ort(rewriter.rewrite(model))
ir.save(model, sys.argv[2])
"""
_TOLERANCE = 1e-3
_PEERS = {**PEERS, "transformers": _TRANSFORMERS, "onnxscript": _ONNXSCRIPT}


def fused(path: Path) -> tuple[int, int]:
    """The attentions and the norms that are one operator, in the graph and in the functions that it calls."""
    model = onnx.load(str(path))
    bodies = {(f.domain, f.name): f.node for f in model.functions}

    def count(nodes: Any) -> tuple[int, int]:
        attentions = norms = 0
        for node in nodes:
            inner = bodies.get((node.domain, node.op_type))
            if inner is not None and node.op_type not in ATTENTIONS:
                more = count(inner)
                attentions, norms = attentions + more[0], norms + more[1]
            attentions += node.op_type in ATTENTIONS
            norms += node.op_type in NORMS
        return attentions, norms

    return count(model.graph.node)


def row_of(path: Path, seconds: float, python: str) -> tuple[Row, Row, list[str]]:
    """Fused operators of each optimizer's file, the ratios of times, and what was left out."""
    has = notes_of(path)
    found: Row = {"graph": name_of(path), "has": f"{has['attentions']}+{has['norms']}"}
    with tempfile.TemporaryDirectory() as folder:
        paths, skipped = optimized(path, Path(folder), python, _PEERS)
        paths["eqsat cpu"] = Path(folder) / "cpu.onnx"
        eqsat.optimize(read(path)).save(paths["eqsat cpu"])
        for name, file in paths.items():
            attentions, norms = fused(file)
            found[name] = f"{attentions}+{norms}"
        given = operands(path)
        right, wrong = _right(paths, given)
        times: Row = {"graph": name_of(path), **ratios(right, given, 1, seconds), **wrong}
    return found, times, skipped


def _right(paths: Mapping[str, Path], given: Mapping[str, np.ndarray]) -> tuple[dict[str, Path], dict[str, str]]:
    """The files that compute what the original computes, and why the others are left out."""
    wanted = session(paths[ORIGINAL], 1).run(None, dict(given))
    right, wrong = {}, {}
    for name, file in paths.items():
        try:
            error = error_of(wanted, session(file, 1).run(None, dict(given)))
        except Exception:  # Its exceptions have no common base; the table shows what it says of another tool's file.
            wrong[name] = "does not run"
            continue
        if error <= _TOLERANCE:
            right[name] = file
        else:
            wrong[name] = "different"
    return right, wrong


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("places", nargs="*", default=[str(GRAPHS)], metavar="FOLDER")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each graph and optimizer")
    parser.add_argument("--python", default="python", help="an interpreter that has the other optimizers")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows as JSON")
    options = parser.parse_args(arguments)
    counts, times, left = [], [], dict[str, None]()
    for path in files(options.places):
        found, taken, skipped = row_of(path, options.seconds, options.python)
        counts.append(found)
        times.append(taken)
        left |= dict.fromkeys(skipped)
        print(f"{name_of(path)}: done", flush=True)
    print(
        f"attentions + norms that are one operator\n\n{table(counts)}\n\ntime of the original / time\n\n{table(times)}"
    )
    for reason in left:
        print(reason)
    if options.json:
        write_json(options.json, {"fused": counts, "faster": times})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
