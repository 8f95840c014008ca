"""One graph through the whole pipeline: the e-graph agrees with itself, and each program with the graph.

Programs are executed here and in ONNX Runtime.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from eqsat.errors import ModelError
from eqsat.execute.executor import Executor
from eqsat.model.load import load
from eqsat.result import Result
from eqsat.rules.selection import NumericsClass, select_rules
from eqsat.search import Search
from tests.fuzz.generator import Case
from tests.fuzz.judge import DisagreementError, Judge
from tests.fuzz.nearness import compare
from tests.fuzz.operators import UnjudgedError
from tests.fuzz.runtime import ort_outputs
from tests.fuzz.values import Value
from tests.fuzz.widen import NARROW

TARGETS: tuple[tuple[str, ...], ...] = ((), ("dnnl",), (), ("ethos_n",), (), ("dnnl", "ccompiler"))

AUDITED = 2000
"""E-graphs with up to so many e-nodes are audited."""
AUDIT_SAMPLES = 2


@dataclass
class Seen:
    """What a graph has shown.

    Attributes:
        explained: Elements by what explains a difference.
        applied: Rules that added something to the e-graph.
        chosen: By objective, rules whose e-nodes were chosen.
        notes: What was not looked at, and why.
        finite: Whether all outputs of the input are.
    """

    explained: Counter[str] = field(default_factory=Counter)
    applied: set[str] = field(default_factory=set)
    chosen: dict[str, set[str]] = field(default_factory=dict)
    notes: Counter[str] = field(default_factory=Counter)
    finite: bool = True


def targets_of(seed: int) -> tuple[str, ...]:
    return TARGETS[seed % len(TARGETS)]


def numerics_of(seed: int) -> NumericsClass:
    """Every fifth graph is optimized to the bit."""
    return "exact" if seed % 5 == 4 else "real"


@cache
def _rules_within_a_step() -> frozenset[str]:
    return frozenset(
        rule.name for rule in select_rules((), "real", default_rules=True).rules if rule.numerics.kind == "lsb"
    )


def check(case: Case, randoms: int = 2) -> Seen:
    """Extracts the best, the worst and some random programs and compares each with the input.

    Raises:
        DisagreementError: A difference that nothing explains.
        EqsatError: The pipeline refuses a valid model.
    """
    seed, seen = case.seed, Seen()
    try:
        judge = Judge(case)
    except UnjudgedError as error:
        seen.notes[f"no judge: {str(error)[:60]}"] += 1
        return seen
    seen.explained = judge.explained
    if judge.runtime is None:
        seen.notes[f"ONNX Runtime does not run the input: {judge.refusal[:50]}"] += 1
    try:
        loaded = load(case.model)
    except ModelError as error:
        if "a model that can be brought from opset" not in str(error):
            raise
        seen.notes["onnx cannot convert the input to a newer opset"] += 1
        return seen
    expected = Executor(loaded).run(case.feeds)
    judge.compare("the executor", expected)
    seen.finite = all(np.isfinite(x.astype(np.float64)).all() for x in expected.values() if _is_float(x))
    numerics = numerics_of(seed)
    search = Search.of(case.model, targets_of(seed), time_limit=30.0, iterations=6, enodes=4000, numerics=numerics)
    seen.applied = {s.name for s in search.saturation.statistics if s.applied}
    if len(search.snapshot.nodes) <= AUDITED:
        report = search.audit(AUDIT_SAMPLES)
        if not report.ok:
            raise DisagreementError(f"the e-graph contradicts itself: {report}")
        seen.notes["audited"] += 1
    # Each result is verified as a user's is, and then by the judge of this fuzzer.
    best = search.extract("best")
    if best.cost > best.baseline_cost * (1 + 1e-9):
        raise DisagreementError(f"best costs {best.cost}, the input {best.baseline_cost}")
    if best.bound > best.cost * (1 + 1e-6):
        raise DisagreementError(f"best costs {best.cost}, its bound is {best.bound}")
    results = {"best": best, "worst": search.extract("worst")}
    results |= {f"random {i}": search.extract("random", i + 100 * seed) for i in range(randoms)}
    within = _rules_within_a_step()
    known: dict[bytes, str] = {}
    for name, result in results.items():
        used = {n.rule for n in result.plan.nodes if n.rule}
        seen.chosen.setdefault(name.split()[0], set()).update(used)
        content = ir.to_proto(result.model).SerializeToString(deterministic=True)
        if content in known:
            continue
        known[content] = name
        composites = any(n.body is not None for n in result.plan.nodes)
        lsb = bool(used & within) or (composites and numerics == "real" and bool(targets_of(seed)))
        _check_result(name, result, content, used, judge, seen, expected if numerics == "exact" else None, lsb)
    return seen


def _check_result(
    name: str,
    result: Result,
    content: bytes,
    used: set[str],
    judge: Judge,
    seen: Seen,
    expected: dict[str, Any] | None,
    lsb: bool,
) -> None:
    """The result agrees over the reals, when executed here, and after saving in ONNX Runtime."""
    place = f"{name} ({', '.join(sorted(used)) or 'no rule'})"
    proto = onnx.load_from_string(content)
    onnx.checker.check_model(proto, full_check=True)
    infinite = _infinite_constants(proto)
    # A rule may show that what overflows in the model follows from constants.
    if infinite and not _infinite_constants(judge.case.model) and seen.finite:
        raise DisagreementError(f"{place}: {infinite} is not finite")
    found = result.run(judge.case.feeds)
    if expected is not None:
        judge.same_bits(f"{place}, exact", expected, found)
    program: dict[str, Value] | None = None
    try:
        program = judge.program(proto, lsb=lsb)
    except UnjudgedError as error:
        seen.notes[f"no judge of a result: {str(error)[:60]}"] += 1
    judge.compare(place, found, program, lsb=lsb)
    if judge.runtime is None:
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "result.onnx"
        result.save(path)
        outside = ort_outputs(path.read_bytes(), judge.case.feeds)
    judge.compare(f"{place} in ONNX Runtime", outside, program, lsb=lsb)


def _is_float(value: Any) -> bool:
    return isinstance(value, np.ndarray) and "float" in value.dtype.name


def _infinite_constants(model: onnx.ModelProto) -> list[str]:
    """Constants of the graph that hold an infinity or no number."""
    found = []
    for tensor in model.graph.initializer:
        if tensor.data_type in NARROW or tensor.data_type == onnx.TensorProto.DOUBLE:
            array = onnx.numpy_helper.to_array(tensor).astype(np.float64)
            found += [tensor.name] if not np.isfinite(array).all() else []
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t") and attribute.t.data_type in (*NARROW, onnx.TensorProto.DOUBLE):
                array = onnx.numpy_helper.to_array(attribute.t).astype(np.float64)
                found += [node.output[0]] if not np.isfinite(array).all() else []
            if (
                attribute.type in (onnx.AttributeProto.FLOAT, onnx.AttributeProto.FLOATS)
                and not np.isfinite([attribute.f, *attribute.floats]).all()
            ):
                found.append(node.output[0])
    return found


__all__ = ["DisagreementError", "Seen", "check", "compare", "ort_outputs"]
