"""Regions for fixed nodes and targets: exact against enumeration, and fast on what networks look like."""

from __future__ import annotations

import random

import pytest

from eqsat.extract.regions.stages import Staging, stages
from tests.extract.oracle import regions


def valid(reads: list[list[int]], target: list[int], dispatch: list[float], staging: Staging) -> None:
    assert sorted(v for nodes in staging.regions for v in nodes) == list(range(len(reads)))
    position = {v: i for i, v in enumerate(v for nodes in staging.regions for v in nodes)}
    for v, before in enumerate(reads):
        for u in before:
            assert position[u] < position[v]
            assert staging.stage[u] <= staging.stage[v]
            assert (staging.stage[u] == staging.stage[v]) == (staging.region[u] == staging.region[v])
    for number, nodes in enumerate(staging.regions):
        assert {staging.region[v] for v in nodes} == {number}
        assert len({target[v] for v in nodes}) == 1
        reached = {nodes[0]}
        while True:
            more = {v for v in nodes if reached & set(reads[v])} | {u for v in reached for u in reads[v] if u in nodes}
            if more <= reached:
                break
            reached |= more
        assert reached == set(nodes)
    assert staging.cost == pytest.approx(sum(dispatch[target[nodes[0]]] for nodes in staging.regions))


def random_graph(rng: random.Random) -> tuple[list[list[int]], list[int], list[float]]:
    count = rng.randint(4, 9)
    width = rng.choice([2, 2, 3])
    density = rng.choice([0.2, 0.35, 0.5])
    order = list(range(count))
    rng.shuffle(order)
    reads: list[list[int]] = [[] for _ in range(count)]
    for i, v in enumerate(order):
        reads[v] = [u for u in order[:i] if rng.random() < density][:3]
    target = [rng.randrange(width) if rng.random() < 0.5 else 1 for _ in range(count)]
    return reads, target, [0.0, *[rng.choice([1.0, 2.0, 3.5]) for _ in range(width - 1)]]


@pytest.mark.parametrize("seed", range(10))
def test_random_graphs_are_cut_at_the_least_cost(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(60):
        reads, target, dispatch = random_graph(rng)
        staging = stages(reads, target, dispatch)
        valid(reads, target, dispatch, staging)
        assert staging.proven
        assert staging.cost == pytest.approx(regions(reads, target, dispatch)), (reads, target, dispatch)


def test_merges_that_exclude_each_other_are_weighed() -> None:
    # {1, 5} on the dear target and {2, 4} on the cheap one would wait for each other.
    reads = [[], [0], [0, 1, 4], [], [], [1, 4]]
    staging = stages(reads, [0, 2, 1, 1, 1, 2], [0.0, 1.0, 2.0])
    assert staging.cost == 5.0
    assert [1, 5] in staging.regions


def waiting(k: int, rng: random.Random) -> tuple[list[list[int]], list[int]]:
    """``a=p+p; b=q+q; h=tanh(b); n=a*b; d_i=a∘h; e_i=exp(d_i)`` in a random order; tanh and exp on the host."""
    reads = {"p": "", "q": "", "a": "p", "b": "q", "h": "b", "n": "a b"}
    for i in range(k):
        reads |= {f"d{i}": "a h", f"e{i}": f"d{i}"}
    names = list(reads)
    rng.shuffle(names)
    number = {name: i for i, name in enumerate(names)}
    target = [int(name[0] in "abnd") for name in names]
    return [[number[other] for other in reads[name].split()] for name in names], target


@pytest.mark.parametrize("k", range(1, 65))
def test_nodes_wait_for_the_region_they_can_join(k: int) -> None:
    rng = random.Random(k)
    for _ in range(3):
        reads, target = waiting(k, rng)
        staging = stages(reads, target, [0.0, 1.0])
        valid(reads, target, [0.0, 1.0], staging)
        assert staging.proven
        assert staging.cost == 2.0


def chain(blocks: int, *, host_only: bool, add_on: int) -> tuple[list[list[int]], list[int]]:
    """Residual blocks of three operators and an addition, the second on the host or not."""
    reads: list[list[int]] = [[]]
    target = [0]
    for _ in range(blocks):
        x = len(reads) - 1
        reads += [[x], [x + 1], [x + 2], [x + 3, x]]
        target += [1, 0 if host_only else 1, 1, add_on]
    return reads, target


def test_a_residual_chain_on_one_target_is_one_region() -> None:
    reads, target = chain(1250, host_only=False, add_on=1)
    staging = stages(reads, target, [0.0, 1.0])
    assert staging.proven
    assert staging.regions == [[0], list(range(1, 5001))]


def test_an_operator_on_the_host_cuts_each_block_though_the_skip_edge_goes_around_it() -> None:
    reads, target = chain(1250, host_only=True, add_on=1)
    staging = stages(reads, target, [0.0, 1.0])
    assert staging.proven
    assert staging.cost == 1251.0


def test_pieces_of_the_host_are_few_too() -> None:
    # Two chains through the host that could be cut between every two of its nodes.
    reads = [[], [0], [1], [2], [3], [0], [5], [4, 6]]
    staging = stages(reads, [0, 0, 1, 0, 0, 0, 0, 0], [0.0, 1.0])
    assert staging.cost == 1.0
    assert len(staging.regions) == 3


def test_targets_without_launch_cost_do_not_stand_in_the_way() -> None:
    reads, target = waiting(5, random.Random(0))
    assert stages(reads, target, [0.0, 0.0]).cost == 0.0


def test_order_of_the_nodes_does_not_matter() -> None:
    rng = random.Random(7)
    for _ in range(40):
        reads, target, dispatch = random_graph(rng)
        order = list(range(len(reads)))
        rng.shuffle(order)
        place = {v: i for i, v in enumerate(order)}
        moved = stages([[place[u] for u in reads[v]] for v in order], [target[v] for v in order], dispatch)
        assert moved.cost == pytest.approx(stages(reads, target, dispatch).cost)


def test_nothing_at_all() -> None:
    staging = stages([], [], [0.0])
    assert staging.regions == []
    assert staging.cost == 0.0


def test_a_cycle_is_refused() -> None:
    with pytest.raises(ValueError, match="acyclic"):
        stages([[1], [0]], [0, 0], [0.0])
