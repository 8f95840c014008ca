"""What the report says of the gap follows from how the search ended, in the report's data and in real searches."""

from __future__ import annotations

import dataclasses

import eqsat
from eqsat.report.gap import explain_gap
from eqsat.report.quantized import OutputError, Quantization
from eqsat.report.summary import GrowthRow, SaturationSummary, Summary
from eqsat.report.table import as_text
from tests.report.sample import SUMMARY, sample

MODEL = """<ir_version: 8, opset_import: ["": 17]>
g (float[4, 4] x, float[4, 4] b) => (float[4, 4] y) { a = Add (x, b) c = Add (a, x) d = Relu (c) y = Add (d, b) }"""


def _ended(growth: str, extraction: str) -> Summary:
    grown = dataclasses.replace(SUMMARY.saturation, stop_reason=growth, growth=())
    return sample(saturation=grown, stop_reason=extraction, rules=())


def test_a_closed_gap_of_a_finished_search_needs_no_advice() -> None:
    found = explain_gap(_ended("saturated", "optimal"))
    assert found.meaning.startswith("No program that the rules derive costs less")
    assert found.advice == ()


def test_each_limit_has_its_remedy() -> None:
    for reason, option in (
        ("iteration limit", "--iterations"),
        ("node limit", "--enodes"),
        ("time limit", "--time-limit"),
    ):
        found = explain_gap(_ended(reason, "optimal"))
        assert "the gap is closed" in found.meaning
        assert f"growth ended early ({reason})" in found.meaning
        assert [option in text for text in found.advice] == [True]
    open_gap = explain_gap(_ended("time limit", "work limit"))
    assert "may cost up to 10.0 µs (0.33 %) less" in open_gap.meaning
    # The same advice is not given twice.
    assert sum("--time-limit" in text for text in open_gap.advice) == 1
    assert "--numerics exact" in open_gap.advice[-1]
    assert "fewer rules" in explain_gap(_ended("saturated", "size limit")).advice[0]


def test_the_rule_that_grows_is_named_if_it_is_much() -> None:
    grown = SUMMARY.saturation
    assert any("leave out or restrict explosive (my.rules:3)" in text for text in explain_gap(SUMMARY).advice)
    assert any("match too often: explosive" in text for text in explain_gap(SUMMARY).advice)
    small = dataclasses.replace(grown, growth=(GrowthRow("tiny", "my.rules:1", 12, "t", "Add", 3),))
    assert not any("tiny" in text for text in explain_gap(sample(saturation=small)).advice)


def test_what_less_noise_may_cost_is_said() -> None:
    outputs = (OutputError("y", 30.0, 31.0, 31.0),)
    told = Quantization(False, "enabled", 4, 1, 2, 0, 10, 10, outputs, (), ())
    near = sample(quantization=told, stop_reason="optimal", bound=SUMMARY.after.cost * (1 - 5e-5), gap=5e-5)
    meaning = explain_gap(near).meaning
    assert "within the budget costs less by more than" in meaning and "(0.01 %)" in meaning
    assert "closed" not in meaning
    closed = dataclasses.replace(near, gap=0.0)
    assert "within the budget costs less by the targets' cost model: the gap is closed" in explain_gap(closed).meaning


def test_without_a_search_nothing_is_known() -> None:
    none = sample(saturation=SaturationSummary(0, 0, 0, "time limit"), stop_reason="time limit")
    assert "left unchanged (time limit)" in explain_gap(none).meaning
    assert "--time-limit" in explain_gap(none).advice[0]
    assert explain_gap(sample(saturation=SaturationSummary(0, 0, 0, "size limit"))).advice == ()


def test_in_real_searches() -> None:
    done = eqsat.optimize(MODEL, verify=False)
    assert explain_gap(done.summary).advice == ()
    short = eqsat.optimize(MODEL, iterations=1, verify=False)
    if short.summary.saturation.stop_reason == "iteration limit":
        assert "try       allow more rounds" in as_text(short.summary)
    worst = eqsat.optimize(MODEL, objective="worst", verify=False)
    assert "'worst'" in explain_gap(worst.summary).meaning
