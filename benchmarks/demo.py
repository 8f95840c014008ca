"""``make demo``: ResNet-50, optimized for oneDNN and the host, run, and checked against ONNX Runtime.

Prints what the optimization changed, saves the model and a report in ``out/``, and executes the model
as saved. The class scores before the final softmax are compared as well: with random weights the softmax is one-hot,
which would hide errors.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir

import eqsat
from benchmarks import peer
from benchmarks.models import before_softmax, light, with_output
from eqsat.execute.difference import compare_values
from eqsat.execute.inputs import complete_inputs
from eqsat.partition.saved import inline

OUT = Path("out")


def main() -> int:
    """Optimize, save, run, compare; 1 if anything disagrees."""
    print("ResNet-50 of the onnx package, with seeded random weights\n", flush=True)
    original = light("resnet50")
    result = eqsat.optimize(original, targets=["dnnl"])
    print(result)

    OUT.mkdir(exist_ok=True)
    saved, report = OUT / "resnet50.dnnl.onnx", OUT / "resnet50.dnnl.html"
    result.save(saved)
    result.report(report)
    print(f"saved     {saved}, and a report as {report}\n")

    scores = before_softmax(original)
    x = complete_inputs(ir.from_proto(original))
    truth = in_onnxruntime(with_output(original, scores, (1, 1000)), x)
    # What is inside a region has no way out; without regions every tensor can be an output.
    inlined = with_output(ir.to_proto(inline(result.model)), scores, (1, 1000))
    probabilities = original.graph.output[0].name

    print("The saved model against the original in ONNX Runtime, on a random image:")
    checks = [
        ("probabilities, by eqsat", eqsat.run(saved, x)[probabilities], truth[probabilities]),
        ("scores before softmax, by eqsat", eqsat.run(inlined, x)[scores], truth[scores]),
        ("probabilities, by ONNX Runtime", in_onnxruntime(saved, x)[probabilities], truth[probabilities]),
        ("scores before softmax, by ONNX Runtime", in_onnxruntime(inlined, x)[scores], truth[scores]),
    ]
    agree = True
    for what, value, expected in checks:
        difference = compare_values(what, expected, value)
        agree &= difference.agrees
        print(f"  {'agree ' if difference.agrees else 'DIFFER'}  {what}: {difference}")
    return 0 if agree else 1


def in_onnxruntime(model: onnx.ModelProto | Path, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Outputs by name, with one thread and without ONNX Runtime's own optimizations."""
    running = peer.session(model, level=peer.NONE)
    names = [output.name for output in running.get_outputs()]
    return {n: np.asarray(v) for n, v in zip(names, running.run(names, inputs), strict=True)}


if __name__ == "__main__":
    sys.exit(main())
