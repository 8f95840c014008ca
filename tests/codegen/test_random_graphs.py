"""Random graphs as C, by the fuzzer's generator and as networks; ``make check-c`` runs many more under sanitizers."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.codegen import graphs
from tests.codegen.ways import sanitized_ways


@pytest.mark.slow
def test_random_graphs_agree_with_the_executor():
    ran, wrong = graphs.failures(range(12))
    assert wrong == []
    assert ran >= 11


@pytest.mark.slow
def test_networks_inside_of_control_flow():
    """Branches, loops and scans; in 24 and 27 the branches captured values in different orders."""
    ran, wrong = graphs.failures([*range(8), 24, 27], kind="bodies")
    assert wrong == []
    assert ran == 10


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [range(12), [193, 388, 397]], ids=["first", "found"])
def test_cases_of_all_kinds_and_types(seeds: Sequence[int]):
    """As they are and optimized; warnings are errors. Found were an axis of one, an empty output, a large attribute."""
    ran, wrong = graphs.failures(seeds, kind="cases")
    assert wrong == []
    assert ran >= 0.7 * len(seeds)


@pytest.mark.heavy
@pytest.mark.parametrize("kind", graphs.KINDS)
@pytest.mark.parametrize("how", sanitized_ways())
def test_sanitizers_find_nothing_in_random_graphs(how: str, kind: str):
    done = graphs.apart(0, 20, how, kind)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    assert int(done.stdout.split()[-4]) >= 18, done.stdout
