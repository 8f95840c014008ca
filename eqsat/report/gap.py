"""The meaning of a result's gap, and advice if it is open or the e-graph was not finished."""

from __future__ import annotations

from dataclasses import dataclass

from eqsat import units
from eqsat.report.summary import SaturationSummary, Summary

_LIMITS = {
    "iteration limit": "allow more rounds of rewriting: --iterations N (iterations=)",
    "node limit": "allow a larger e-graph: --enodes N (enodes=)",
    "work limit": "allow more time: --time-limit SECONDS (time_limit=)",
    "time limit": "allow more time: --time-limit SECONDS (time_limit=)",
}
CLOSED = 1e-5
"""A smaller gap is rounding."""
NOTABLE = 0.2
"""Share of the e-nodes from which on a rule is worth a word."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Known facts about cheaper programs.

    Attributes:
        meaning: Sentences.
        advice: Suggestions, the most promising first; empty if nothing cheaper can be found.
    """

    meaning: str
    advice: tuple[str, ...] = ()


def explain_gap(summary: Summary) -> Gap:
    """The gap in words."""
    grown = summary.saturation
    if not grown.enodes:
        advice = (_LIMITS["time limit"],) if grown.stop_reason == "time limit" else ()
        unknown = f"The model was left unchanged ({grown.stop_reason}): cheaper programs were not searched."
        return Gap(unknown, advice)
    if summary.objective != "best":
        return Gap(
            f"The objective was {summary.objective!r}: the gap says how far the cheapest program can be from it."
        )
    finished = grown.stop_reason == "saturated"
    among = "the rules derive" if finished else "the e-graph contains"
    quantized = summary.quantization
    if quantized is not None and any(o.required is not None for o in quantized.outputs):
        among += " within the budget"
    if summary.stop_reason == "optimal" and quantized is not None and summary.gap > CLOSED:
        meaning = (
            f"No program that {among} costs less by more than {units.seconds(summary.after.cost - summary.bound)} "
            f"({units.percent(summary.gap)}). The search may pay this difference for less noise, so it ended."
        )
    elif summary.stop_reason == "optimal":
        meaning = f"No program that {among} costs less by the targets' cost model: the gap is closed."
    else:
        least = f"{units.seconds(summary.after.cost - summary.bound)} ({units.percent(summary.gap)})"
        meaning = (
            f"A program that {among} may cost up to {least} less. The bound, {units.seconds(summary.bound)}, is proven "
            f"by the integer program that chooses the result; its search ended early ({summary.stop_reason})."
        )
    if not finished:
        meaning += f" The rules may derive further programs: growth ended early ({grown.stop_reason})."
    return Gap(meaning, tuple(_advice(summary, grown)))


def _advice(summary: Summary, grown: SaturationSummary) -> list[str]:
    found = []
    if summary.stop_reason in ("work limit", "time limit"):
        found.append(_LIMITS["time limit"])
    if grown.stop_reason in _LIMITS and _LIMITS[grown.stop_reason] not in found:
        found.append(_LIMITS[grown.stop_reason])
    held = [row.name for row in summary.rules if row.held_back]
    if held:
        found.append(f"give conditions to rules that match too often: {', '.join(held[:3])}")
    for row in grown.growth[:1]:
        if row.enodes < NOTABLE * grown.enodes:
            break
        where = f", {row.largest:,} of them for {row.op} '{row.tensor}'" if row.op else ""
        place = f" ({row.place})" if row.place else ""
        found.append(
            f"leave out or restrict {row.rule}{place}: it added {row.enodes:,} of {grown.enodes:,} e-nodes{where}"
        )
    if summary.stop_reason == "size limit":
        found.append("make the e-graph smaller: --iterations N, --enodes N, or fewer rules")
    if summary.stop_reason != "optimal" and summary.numerics == "real":
        found.append("allow fewer rules: --numerics exact (numerics='exact')")
    return found
