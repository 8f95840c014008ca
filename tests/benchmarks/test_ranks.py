"""Rank correlations against values from the literature and against counting pairs."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest

from benchmarks.ranks import kendall, ranks, spearman


def test_ranks_of_equal_values_are_their_mean():
    assert ranks([10, 20, 20, 5]).tolist() == [2, 3.5, 3.5, 1]
    assert ranks([7, 7, 7]).tolist() == [2, 2, 2]


def test_known_value():
    """IQ and hours of television: rho = -29 / 165, as Wikipedia's article on Spearman's coefficient works out."""
    iq = [106, 86, 100, 101, 99, 103, 97, 113, 112, 110]
    hours = [7, 0, 27, 50, 28, 29, 20, 12, 6, 17]
    assert spearman(iq, hours) == pytest.approx(-29 / 165)


def test_extremes():
    values = [1.0, 4.0, 9.0, 16.0]
    assert spearman(values, [math.exp(v) for v in values]) == pytest.approx(1)
    assert spearman(values, [-v for v in values]) == pytest.approx(-1)
    assert kendall(values, [v**3 for v in values]) == pytest.approx(1)
    assert kendall(values, values[::-1]) == pytest.approx(-1)


def test_without_order_there_is_none():
    assert math.isnan(spearman([1, 1, 1], [1, 2, 3]))
    assert math.isnan(kendall([1, 2, 3], [5, 5, 5]))


@pytest.mark.parametrize("seed", range(5))
def test_against_pairs_and_the_formula_without_ties(seed: int):
    rng = np.random.default_rng(seed)
    a, b = rng.permutation(30), rng.permutation(30)
    difference = ranks(a) - ranks(b)
    assert spearman(a, b) == pytest.approx(1 - 6 * (difference**2).sum() / (30 * (30**2 - 1)))
    pairs = [np.sign(a[i] - a[j]) * np.sign(b[i] - b[j]) for i, j in combinations(range(30), 2)]
    assert kendall(a, b) == pytest.approx(sum(pairs) / len(pairs))


@pytest.mark.parametrize("seed", range(5))
def test_ties_as_tau_b(seed: int):
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, 5, 25), rng.integers(0, 5, 25)
    signs = [(np.sign(a[i] - a[j]), np.sign(b[i] - b[j])) for i, j in combinations(range(25), 2)]
    untied = [sum(1 for pair in signs if pair[side]) for side in (0, 1)]
    assert kendall(a, b) == pytest.approx(sum(x * y for x, y in signs) / math.sqrt(untied[0] * untied[1]))
