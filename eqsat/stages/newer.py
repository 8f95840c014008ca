"""Notes on the limit of the opset: the cost of the best program without the limit, and its newer operators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from eqsat.extract.from_egraph import MappedProblem, Pricing, formulate
from eqsat.extract.problem import Choice, Solution
from eqsat.schema.types import OpKey
from eqsat.stages.clock import Clock
from eqsat.stages.extract import extract
from eqsat.stages.price import PricedGraph

MOST_OPERATORS = 5
"""Operators that a note lists."""
LEAST_GAIN = 1e-3
"""The part of the cost by which a program must be cheaper to be worth a note."""
SHARE = 0.25
"""Share of an extraction's work for finding that program."""


def about_opset(replaced: Mapping[OpKey, int], priced: PricedGraph, solution: Solution, clock: Clock) -> list[str]:
    """The notes; empty if no newer operator would have been cheaper.

    Args:
        replaced: Operators of the input that were replaced by their definitions, with the opsets that they need.
        priced: The problem that the program was chosen from.
        solution: The program.
        clock: Clock of the composition.
    """
    newest = priced.pricing.newest
    if newest is None:
        return []
    notes = []
    if replaced:
        notes.append(replaced_note(replaced, newest.bound))
    found = _without_bound(priced, solution, clock)
    if found is not None:
        cost, needed = found
        less = 1 - cost / solution.cost
        notes.append(f"operators newer than opset {newest.bound} would cost {less:.1%} less: {_listed(needed)}")
    return notes


def replaced_note(replaced: Mapping[OpKey, int], bound: int) -> str:
    """The note on operators of the input that were replaced by their definitions."""
    return f"replaced by definitions of opset {bound}: {_listed(replaced)}"


def _listed(needed: Mapping[OpKey, int]) -> str:
    rows = sorted((version, str(op)) for op, version in needed.items())
    shown = [f"{name} (opset {version})" for version, name in rows[:MOST_OPERATORS]]
    return ", ".join(shown + [f"{len(rows) - len(shown)} more"] * (len(rows) > len(shown)))


def _without_bound(priced: PricedGraph, solution: Solution, clock: Clock) -> tuple[float, dict[OpKey, int]] | None:
    """The cost of the cheapest program of any opset and its operators that are too new; None if it is not cheaper."""
    pricing, snapshot = priced.pricing, priced.formulation.snapshot
    if not any(pricing.too_new(node) for node in snapshot.nodes):
        return None
    free = Pricing(snapshot, pricing.costs, pricing.runtime, pricing.bodies)
    encoding = priced.saturated.saturation.encoding
    problem = formulate(snapshot, encoding, list(priced.outputs), free)
    start = dict(_moved(solution.choices, priced.formulation, problem))
    found = extract(problem, clock, share=SHARE, original=start)
    if found.cost >= solution.cost * (1 - LEAST_GAIN):
        return None
    needed: dict[OpKey, int] = {}
    for choice in found.choices.values():
        node = snapshot.nodes[problem.node[choice.node]]
        version = pricing.too_new(node)
        if version is not None:
            needed[node.op] = max(version, needed.get(node.op, 0))
    return (found.cost, needed) if needed else None


def _moved(choices: Mapping[int, Choice], source: MappedProblem, into: MappedProblem) -> Iterator[tuple[int, Choice]]:
    """The same program in another problem of the same e-graph."""
    index = {n: i for i, n in enumerate(into.node)}
    for c, choice in choices.items():
        if c < len(source.eclass):
            yield into.position[source.eclass[c]], Choice(index[source.node[choice.node]], choice.target)
