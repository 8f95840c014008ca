"""The page that explains how eqsat thinks: its pictures are those of its programs, its sentences have their numbers."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from benchmarks.thinking import PAGE, PICTURES, Found, drawn, followed, pieces
from eqsat import units
from eqsat.extract.program_cost import program_cost
from tests.extract.oracle import programs

SPACE = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def found() -> Found:
    return followed()


def test_the_pictures_are_those_of_the_page() -> None:
    # `python -m benchmarks.thinking` draws them anew.
    pictures = drawn()
    assert {path.name: path.read_text("utf-8") for path in PICTURES.iterdir()} == pictures
    assert all(f"](pictures/thinking/{name})" in PAGE.read_text("utf-8") for name in pictures)


def test_the_egraph_shows_each_enode_and_the_choice(found: Found) -> None:
    boxes = list(ElementTree.fromstring(drawn()["egraph.svg"]).iter(f"{SPACE}rect"))
    kinds = [box.get("class") for box in boxes]
    problem = found.search.formulation.problem
    assert kinds.count("class") == problem.classes
    assert sum(kind in ("enode", "enode chosen") for kind in kinds) == problem.nodes
    assert kinds.count("enode chosen") == len(found.result.choices)


def test_the_bill_adds_up(found: Found) -> None:
    summary = found.result.summary
    before, after = pieces(summary)
    assert sum(piece.seconds for piece in before) == pytest.approx(summary.before.cost)
    assert sum(piece.seconds for piece in after) == pytest.approx(summary.after.cost)


def test_the_sentences_have_the_numbers_of_the_programs(found: Found) -> None:
    text = " ".join(PAGE.read_text("utf-8").split())
    problem, snapshot = found.search.formulation.problem, found.search.snapshot
    every = sorted(programs(problem), key=lambda choices: program_cost(problem, choices))
    costs = [program_cost(problem, choices) for choices in every]
    assert found.result.cost == pytest.approx(costs[0])
    assert f"there are {len(costs)}. Each dot is one of them" in text
    # The most expensive programs have the second product alone on the chip.
    second = found.search.formulation.position[snapshot.refs[found.search.model.graph.node(3).outputs[0]]]
    assert [c for c, choice in every[-1].items() if choice.target == 1] == [second]
    node = next(choice.node for c, choice in every[-1].items() if c == second)
    host, chip = (units.seconds(cost) for cost in problem.cost[node].tolist())
    assert f"Kite computes the second product in {chip} and the host in {host}." in text
    assert f"the program would be the most expensive of all: {units.seconds(costs[-1])}." in text
    gap = (found.result.baseline_cost - found.result.bound) / found.result.baseline_cost
    assert f"the gap would be {gap:.1%}".replace("%", " %") in text
