"""One graph through the whole pipeline: every extraction computes what the graph does, here and in ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort

from eqsat.execute.executor import Executor
from eqsat.execute.inputs import complete_inputs
from eqsat.model.load import load
from eqsat.search import Result, Search

TOLERANCE = 2e-4
"""Relative to the largest magnitude of a tensor: rules reorder float32 arithmetic, some graphs cancel."""

TARGETS = ((), ("dnnl",), ("dnnl", "ccompiler"))


class DisagreementError(AssertionError):
    """An extraction computes something else."""


def check(model: onnx.ModelProto, seed: int = 0, randoms: int = 5) -> None:
    """Extracts the best, the worst and some random programs and compares each with the input.

    Raises:
        DisagreementError: Outputs differ.
    """
    loaded = load(model)
    arrays = complete_inputs(loaded, seed=seed)
    expected = Executor(loaded).run(arrays)
    compare("the executor", expected, ort_outputs(model.SerializeToString(), arrays))
    search = Search(model, TARGETS[seed % len(TARGETS)], time_limit=20.0, iterations=8)
    best = search.extract("best")
    if best.cost > best.baseline_cost * (1 + 1e-9):
        raise DisagreementError(f"best costs {best.cost}, the input {best.baseline_cost}")
    if best.bound > best.cost * (1 + 1e-6):
        raise DisagreementError(f"best costs {best.cost}, its bound is {best.bound}")
    results = {"best": best, "worst": search.extract("worst")}
    results |= {f"random {i}": search.extract("random", i) for i in range(randoms)}
    for name, result in results.items():
        check_result(f"{name} extraction", result, arrays, expected)


def check_result(
    name: str, result: Result, arrays: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]
) -> None:
    """The result agrees when executed here, and after saving in ONNX Runtime."""
    rules = sorted({n.rule for n in result.plan.nodes if n.rule})
    place = f"{name} ({', '.join(rules) or 'no rule'})"
    compare(place, expected, result.run(arrays))
    content = ir.to_proto(result.model).SerializeToString(deterministic=True)
    onnx.checker.check_model(onnx.load_from_string(content), full_check=True)
    compare(f"{place} in ONNX Runtime", expected, ort_outputs(content, arrays))


def ort_outputs(content: bytes, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Outputs by ONNX Runtime without its own graph optimisations."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(None, dict(arrays)), strict=True))


def compare(place: str, expected: Mapping[str, np.ndarray], found: Mapping[str, np.ndarray]) -> None:
    """Equal names, types and shapes; equal integers; floats within the tolerance."""
    if list(expected) != list(found):
        raise DisagreementError(f"{place}: outputs {list(found)} instead of {list(expected)}")
    for name, right in expected.items():
        other = found[name]
        if other.shape != right.shape or other.dtype != right.dtype:
            raise DisagreementError(f"{place}: {name} is {other.dtype}{other.shape}, not {right.dtype}{right.shape}")
        if right.dtype.kind != "f":
            if not np.array_equal(right, other):
                raise DisagreementError(f"{place}: {name} differs")
            continue
        scale = max(float(np.abs(right).max(initial=0.0)), 1e-3)
        error = float(np.abs(right.astype(np.float64) - other.astype(np.float64)).max(initial=0.0)) / scale
        if not error <= TOLERANCE:
            raise DisagreementError(f"{place}: {name} differs by {error:.3g} of its magnitude {scale:.3g}")
