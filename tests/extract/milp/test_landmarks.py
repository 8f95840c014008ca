"""Landmarks are found whichever input of an option leads to them, and equal choices are tried once."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from eqsat.extract.milp.fact_dominators import AndOrGraph, Derivation
from eqsat.extract.milp.highs import Rows
from eqsat.extract.milp.landmarks import Landmarks


def facts(reads: list[str]) -> AndOrGraph:
    """A result, derived in two ways from a wide and a narrow fact, which are derived from nothing."""
    graph = AndOrGraph()
    result, wide, narrow = (graph.add((column,)) for column in (0, 1, 2))
    number = {"wide": wide, "narrow": narrow}
    graph.facts[result].options = [Derivation((column,), [number[name] for name in reads]) for column in (3, 4)]
    graph.facts[wide].options = [Derivation((5,), []), Derivation((6,), [])]
    graph.facts[narrow].options = [Derivation((7,), [])]
    graph.always = [False] * 3
    return graph


def rows(reads: list[str], narrow: float) -> list[tuple[list[int], list[float]]]:
    """The rows for a point that derives the result in full, and the narrow fact less often."""
    found = Rows()
    Landmarks(facts(reads)).add_rows([1.0, 0.9, narrow], [[0.5, 0.5], [0.5, 0.5], [narrow]], found)
    starts, index, value, _, upper = found.arrays()
    assert not upper.any()
    return [
        (index[starts[row] : starts[row + 1]].tolist(), value[starts[row] : starts[row + 1]].tolist())
        for row in range(found.count)
    ]


def test_the_input_that_says_too_little_is_found_at_any_place() -> None:
    landmark = ([0, 7], [1.0, -1.0])
    assert rows(["wide", "narrow"], 0.5) == rows(["narrow", "wide"], 0.5) == [landmark]


def test_nothing_is_violated_where_each_input_is_derived_often_enough() -> None:
    assert rows(["wide", "narrow"], 1.0) == []


def test_one_input_leaves_no_choice() -> None:
    assert rows(["narrow"], 0.5) == [([0, 7], [1.0, -1.0])]
    assert rows(["wide"], 0.5) == []


def test_each_way_to_choose_inputs_that_says_too_little_gives_a_row() -> None:
    graph = facts(["wide", "narrow"])
    further = graph.add((8,))
    graph.facts[further].options = [Derivation((9,), [])]
    graph.facts[0].options = [Derivation((column,), [2, 1, further]) for column in (3, 4)]
    graph.always.append(False)
    found = Rows()
    Landmarks(graph).add_rows([1.0, 0.9, 0.5, 0.25], [[0.5, 0.5], [0.5, 0.5], [0.5], [0.25]], found)
    starts, index, _, _, _ = found.arrays()
    assert {tuple(index[a:b].tolist()) for a, b in pairwise(starts)} == {(0, 7), (0, 9)}
    assert found.count == 2


def all_rows(landmarks: Landmarks, activity: list[float], weights: list[list[float]]) -> list[tuple[list[int], ...]]:
    found = Rows()
    landmarks.add_rows(activity, weights, found)
    starts, index, _, _, _ = found.arrays()
    return [(index[a:b].tolist(),) for a, b in pairwise(starts)]


def test_what_one_point_has_shown_is_right_for_the_next_one() -> None:
    """Rows of points that change in few places, found one after the other and each from the beginning."""
    rng = np.random.default_rng(0)
    many = 0
    for _ in range(40):
        graph, columns, layers = AndOrGraph(), 0, 24
        for number in range(layers):
            graph.add((columns,))
            columns += 1
            for _ in range(int(rng.integers(1, 4))):
                below = rng.choice(number, min(number, int(rng.integers(1, 4))), replace=False).tolist()
                graph.facts[number].options.append(Derivation((columns,), below))
                columns += 1
        graph.always = [False] * layers
        activity = rng.uniform(0.1, 1, layers).tolist()
        weights = [rng.uniform(0, a, len(f.options)).tolist() for a, f in zip(activity, graph.facts, strict=True)]
        landmarks = Landmarks(graph)
        for _ in range(12):
            found = all_rows(landmarks, activity, weights)
            assert found == all_rows(Landmarks(graph), activity, weights)
            many += len(found)
            at = int(rng.integers(layers))
            activity, weights = [*activity], [*weights]
            if rng.random() < 0.5:
                activity[at] = float(rng.uniform(0.1, 1))
            else:
                weights[at] = rng.uniform(0, 1, len(weights[at])).tolist()
    assert many > 100
