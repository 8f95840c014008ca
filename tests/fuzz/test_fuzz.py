"""Random graphs, and the graphs that once failed."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest

from eqsat.audit.report import AuditReport
from eqsat.errors import VerificationError
from eqsat.execute.inputs import complete_inputs
from eqsat.model.load import load
from tests.fuzz.cases import read, write
from tests.fuzz.check import DisagreementError, check
from tests.fuzz.generator import Case, generate, generate_case
from tests.fuzz.judge import Judge
from tests.fuzz.shrink import shrink

FAILURES = sorted((Path(__file__).parent / "failures").glob("*.onnx"))
DRAWN = 600
"""Graphs among which everything is drawn that a graph may have. Few operators of opsets 7 and 8 can be."""
GRAPHS, MORE, CHUNK = 100, 300, 10
"""Random graphs by default, and by `make check-rules`; `make fuzz` has any number."""


def network(seed: int) -> Case:
    """A float32 network with random inputs."""
    model = generate(seed)
    return Case(model, complete_inputs(load(model), seed=seed), seed)


def parsed(text: str, **feeds: np.ndarray) -> Case:
    return Case(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]>\n{text}'), feeds)


@pytest.mark.slow
@pytest.mark.parametrize(
    "start",
    [*range(0, GRAPHS, CHUNK), *(pytest.param(s, marks=pytest.mark.heavy) for s in range(GRAPHS, MORE, CHUNK))],
)
def test_extractions_compute_what_the_graph_computes(start):
    for seed in range(start, start + CHUNK):
        check(generate_case(seed))


@pytest.mark.parametrize("path", FAILURES, ids=lambda p: p.stem)
def test_what_once_failed(path):
    check(read(path))


def test_generator_is_deterministic():
    for make in (network, generate_case):
        first, second = make(5), make(5)
        assert first.model.SerializeToString(deterministic=True) == second.model.SerializeToString(deterministic=True)
        assert all(
            first.feeds[n].tobytes() == second.feeds[n].tobytes() for n in first.feeds if first.feeds[n].dtype != object
        )


@pytest.mark.slow
def test_all_dimensions_are_drawn():
    """Types, opsets, ranks, empty tensors, control flow, strings, several outputs: whatever a graph may have."""
    cases = [generate_case(seed) for seed in range(DRAWN)]
    operators = {n.op_type for c in cases for n in c.model.graph.node}
    assert {"If", "Loop", "Scan", "TopK", "QLinearConv", "Requantize", "DequantizeLinear", "Identity"} <= operators
    assert {c.tags["floats"] for c in cases} == {"float16", "bfloat16", "float32", "float64"}
    assert {int(c.tags["opset"]) for c in cases} == set(range(7, 27))
    arrays = [a for c in cases for a in c.feeds.values()]
    assert {a.ndim for a in arrays} >= {0, 1, 2, 3, 4, 5}
    assert any(not a.size for a in arrays)
    assert {a.dtype.name for a in arrays} >= {"int8", "uint8", "int16", "uint64", "bool", "object"}
    outputs = [({o.name for o in c.model.graph.output}, c.model.graph) for c in cases]
    assert any(names & {i.name for i in graph.input} for names, graph in outputs)
    assert any(names & {t.name for t in graph.initializer} for names, graph in outputs)


@pytest.mark.slow
@pytest.mark.parametrize("net", ["audit", "verification", "judge"])
def test_a_wrong_rule_is_caught_and_shrunk(net, tmp_path, monkeypatch):
    """Each net must be able to catch something: negation does not distribute over Relu."""
    from eqsat import search
    from eqsat.verify.verify import Verifier, switched_off

    wrong = tmp_path / "wrong.rules"
    wrong.write_text("rule wrong : exact\n    Relu(x)  =>  Neg(Relu(Neg(x)))\n", encoding="utf-8")
    original = search.Search.of

    def with_wrong_rule(source, targets=(), **options):
        return original(source, targets, rules=[wrong], default_rules=False, **options)

    monkeypatch.setattr(search.Search, "of", with_wrong_rule)
    if net != "audit":
        monkeypatch.setattr(search.Search, "audit", lambda self, samples: AuditReport(0, 0, samples, {}, ()))
    if net == "judge":
        monkeypatch.setattr(Verifier, "run", lambda self: switched_off("tested elsewhere"))

    def fails(case: Case) -> bool:
        try:
            check(case)
        except VerificationError:
            return net == "verification"
        except DisagreementError as error:
            return ("contradicts itself" in str(error)) == (net == "audit") and net != "verification"
        return False

    found = next(
        c for c in map(network, range(50)) if any(n.op_type == "Relu" for n in c.model.graph.node) and fails(c)
    )
    small = shrink(found, fails)
    assert len(small.model.graph.node) <= 3
    assert any(n.op_type == "Relu" for n in small.model.graph.node)
    again = read(write(small, tmp_path / "small.onnx"))
    assert fails(again)


# ---- the judge --------------------------------------------------------------------------------------------


def test_rounding_is_allowed_and_more_is_not():
    x = np.array([1.0, 2.0, -3.0], np.float32)
    case = parsed("g (float[3] x) => (float[3] y) { y = Mul(x, x) }", x=x)
    right = x * x
    Judge(case).compare("same", {"y": right})
    Judge(case).compare("rounded", {"y": np.nextafter(right, np.float32(0))})
    for other in (
        right * np.float32(1.0001),
        right.astype(np.float64),
        right[:2],
        np.array([1, np.nan, 9], np.float32),
    ):
        with pytest.raises(DisagreementError):
            Judge(case).compare("other", {"y": other})
    with pytest.raises(DisagreementError):
        Judge(case).compare("other", {"z": right})


def test_cancellation_is_known():
    """(x + c) - x loses digits, and how many is known; a difference beyond it is not let pass."""
    case = parsed(
        "g (float[1] x, float[1] c) => (float[1] y) { a = Add(x, c)  y = Sub(a, x) }",
        x=np.array([1e6], np.float32), c=np.array([0.3], np.float32),
    )  # fmt: skip
    Judge(case).compare("cancelled", {"y": np.array([0.3125], np.float32)})
    with pytest.raises(DisagreementError):
        Judge(case).compare("wrong", {"y": np.array([3.0], np.float32)})


def test_sums_on_the_way_to_a_small_result_round():
    """The sum of the first half of the terms is large, the sum of all of them is not."""
    half = np.random.default_rng(2).uniform(1, 2, 256)
    terms = np.concatenate([half, 0.1 - half]).astype(np.float32)[None]
    judge = Judge(
        parsed(
            "agraph (float[1,512] x, float[512,1] w) => (float[1,1] y) { y = MatMul(x, w) }",
            x=terms, w=np.ones((512, 1), np.float32),
        )
    )  # fmt: skip
    judge.compare("one after the other", {"y": np.cumsum(terms, dtype=np.float32)[None, -1:]})
    beyond = terms.sum(dtype=np.float64) + 2.0**-20 * np.abs(terms).sum()
    with pytest.raises(DisagreementError):
        judge.compare("wrong", {"y": np.array([[beyond]], np.float32)})


def test_ties_may_fall_to_either_side():
    """0.1 * 25 is near 2.5, but not 2.4; what is exact is not a tie."""
    text = "g (float[2] x, float[2] c) => (float[2] y) { a = Mul(x, c)  y = Round(a) }"
    case = parsed(text, x=np.array([0.1, 0.1], np.float32), c=np.array([25, 24], np.float32))
    Judge(case).compare("down", {"y": np.array([2, 2], np.float32)})
    Judge(case).compare("up", {"y": np.array([3, 2], np.float32)})
    with pytest.raises(DisagreementError):
        Judge(case).compare("wrong", {"y": np.array([2, 3], np.float32)})
    exact = parsed("g (float[1] x) => (float[1] y) { y = Round(x) }", x=np.array([2.5], np.float32))
    with pytest.raises(DisagreementError):
        Judge(exact).compare("wrong", {"y": np.array([3], np.float32)})


def test_what_overflows_in_the_input_is_explained_and_nothing_else():
    text = "g (float16[2] x, float16 c) => (float16[2] y) { a = Mul(x, c)  y = Mul(a, c) }"
    case = parsed(text, x=np.array([1, 1e-3], np.float16), c=np.array(300, np.float16))
    judge = Judge(case)
    judge.compare("another value where the input overflows", {"y": np.array([7, 90], np.float16)})
    assert judge.explained["input"] == 1
    with pytest.raises(DisagreementError):
        judge.compare("an infinity where it does not", {"y": np.array([7, np.inf], np.float16)})


def test_what_vanishes_in_the_input_may_be_false_and_nothing_else():
    """A number below the least one of its type is true over the reals; no small change of it is zero."""
    text = "g (bfloat16[3] x, bfloat16 c) => (bool[3] y) { a = Mul(x, c)  y = Cast<to = 9>(a) }"
    least = ml_dtypes.finfo(ml_dtypes.bfloat16).smallest_subnormal
    case = parsed(text, x=np.array([0.2, 1, 0], ml_dtypes.bfloat16), c=np.array(least, ml_dtypes.bfloat16))
    judge = Judge(case)
    judge.compare("as in its type", {"y": np.array([False, True, False])})
    assert judge.explained["input"] == 1
    judge.compare("over the reals", {"y": np.array([True, True, False])})
    for wrong in ([False, False, False], [True, True, True]):
        with pytest.raises(DisagreementError):
            judge.compare("wrong", {"y": np.array(wrong)})


def test_constants_that_leave_their_type_are_caught():
    """The result that once came of it: c * d is infinite, and x * (c * d) with it."""
    text = "g (float16[2] x, float16 c, float16 d) => (float16[2] y) { a = Mul(x, c)  y = Mul(a, d) }"
    half = np.float16
    case = parsed(text, x=np.array([1e-4, 2e-4], half), c=np.array(300, half), d=np.array(300, half))
    judge = Judge(case)
    merged = parsed("g (float16[2] x, float16 e) => (float16[2] y) { y = Mul(x, e) }").model
    merged.graph.initializer.append(onnx.numpy_helper.from_array(np.array(np.inf, half), "e"))
    program = judge.program(merged, lsb=False)
    with pytest.raises(DisagreementError):
        judge.compare("merged", {"y": np.array([np.inf, np.inf], half)}, program)
