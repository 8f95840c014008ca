"""Layers that read one mask are parts, alike ones are solved once, and both change no optimum."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from eqsat.extract import context, parts, shared
from eqsat.extract.context import find_context, rest_problem
from eqsat.extract.identical_parts import Known, form_of
from eqsat.extract.parts import PartwiseSearch
from eqsat.extract.problem import Problem
from eqsat.extract.program_cost import check, needed, program_cost
from eqsat.extract.recomputed import RelaxedSearch, recomputed
from eqsat.extract.reduce.class_dominators import Dominators
from eqsat.extract.shared import SharedSearch
from eqsat.extract.solve import solve
from eqsat.extract.split import split
from tests.extract.networks import Builder
from tests.extract.oracle import INF, cost, optimum, recurrent_problem

Costs = list[float]


def masked_chain(
    layers: int,
    *,
    seed: int,
    targets: int = 2,
    alike: bool = False,
    steps: int = 1,
    cyclic: bool = False,
    kept: bool = False,
    detour: bool = False,
    recomputed: bool = False,
    tail: int = 0,
) -> Problem:
    """Residual layers that read a mask, which is computed from an input; each operator has up to two spellings.

    Args:
        layers: Number of layers.
        seed: Of the costs, and of what a target cannot run.
        targets: The host and accelerators.
        alike: Whether all layers have the same costs.
        steps: Operators of a layer between its first and its last one.
        cyclic: Whether the mask can also be had back from what the first layer makes of it.
        kept: Whether a value of each layer is an output, like the keys of a decoder.
        detour: Whether the last output can also be computed without the layers.
        recomputed: Whether an accelerator can compute a layer's end from what the end of the layer before is made of.
        tail: Operators between the last layer and the output.
    """
    rng = random.Random(seed)
    build = Builder(targets)
    x, ids, mask = build.value(3e3), build.value(1e3), build.value(1e3)
    build.add(x, (), 0.0, own=True)
    build.add(ids, (), 0.0, own=True)

    def costs(scale: float) -> Costs:
        fast = [scale * rng.uniform(0.1, 0.9) if rng.random() < 0.8 else INF for _ in range(targets - 1)]
        return [scale, *fast]

    # A mask that an accelerator computes would join what reads it there, and is no context.
    build.add(mask, (ids,), *(costs(1e-6) if seed % 4 == 3 else [1e-6]), own=True)
    outputs: list[int] = []
    drawn: list[list[Costs]] = []
    before: tuple[int, ...] = ()
    for layer in range(layers):
        if not drawn or not alike:
            drawn.append([costs(rng.choice((2e-6, 6e-6, 2e-5))) for _ in range(steps + 3)])
        own = iter(drawn[-1])
        y = build.value(2e3)
        build.add(y, (x,), *next(own), own=True)
        if kept:
            outputs.append(y)
        for _ in range(steps):
            z = build.value(2e3)
            build.add(z, (y, mask), *next(own), own=True)
            y = z
        end = build.value(3e3)
        build.add(end, (y, x), *next(own), own=True)
        if cyclic and layer == 0:
            build.add(mask, (end,), *costs(1e-6))
        # Another spelling leaves the last step out.
        build.add(end, (mask, x, y), *next(own))
        if recomputed and before:
            build.add(end, (y, *before), INF, *(6e-6 * rng.uniform(0.1, 0.9) for _ in range(targets - 1)))
        before = (y, x)
        x = end
    for _ in range(tail):
        z = build.value(2e3)
        build.add(z, (x,), 1e-6, own=True)
        x = z
    out = build.value(1e3)
    build.add(out, (x,), 1e-6, own=True)
    if detour:
        build.add(out, (ids, mask), *costs(layers * rng.choice((4e-6, 1e-5, 3e-5))))
    return build.problem((out, *outputs), 1e9, 2e-7, 3e-6)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Contexts are looked for in problems of any size; yields whether each search had one."""
    found: list[bool] = []
    run = SharedSearch.run
    small = partial(split, least=3)
    monkeypatch.setattr(context, "LEAST_CLASSES", 3)
    monkeypatch.setattr(shared, "LEAST_GAIN", 1)
    monkeypatch.setattr(shared, "LEAST_GAIN_JOINING", 1)
    monkeypatch.setattr(shared, "split", small)
    monkeypatch.setattr(parts, "split", small)
    monkeypatch.setattr(SharedSearch, "run", lambda search: found.append(run(search)) or found[-1])
    yield found


@pytest.mark.parametrize("seed", range(6))
def test_what_is_shared_may_be_read_from_a_part(seed: int, tiny: list[bool]) -> None:
    problem = masked_chain(2, seed=seed, alike=seed % 2 == 0, cyclic=True)
    best = optimum(problem)
    found = solve(problem)
    assert found.cost == pytest.approx(best, rel=1e-9)
    assert found.bound <= best * (1 + 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(4))
def test_a_context_changes_no_optimum(block: int, tiny: list[bool]) -> None:
    for seed in range(100 * block, 100 * block + 8):
        problem = masked_chain(2, seed=seed, targets=3 if seed % 8 == 5 else 2, alike=seed % 3 == 0)
        best = optimum(problem)
        found = solve(problem)
        check(problem, found.choices)
        assert found.cost == pytest.approx(best, rel=1e-7)
        assert cost(problem, found.choices) == pytest.approx(best, rel=1e-7)
        assert found.bound == pytest.approx(best, rel=1e-6)
        assert found.bound <= found.cost
    assert sum(tiny) >= 4


@pytest.mark.parametrize("detour", [False, True])
@pytest.mark.parametrize("seed", range(16))
def test_outputs_below_a_separator_change_no_optimum(seed: int, detour: bool, tiny: list[bool]) -> None:
    problem = masked_chain(2, seed=seed, targets=3 if seed % 8 == 5 else 2, kept=True, detour=detour)
    found = solve(problem)
    check(problem, found.choices)
    best = optimum(problem)
    assert found.cost == pytest.approx(best, rel=1e-7)
    assert found.bound == pytest.approx(best, rel=1e-6)
    assert found.bound <= found.cost


def test_a_decoder_falls_into_parts_that_have_its_outputs(tiny: list[bool]) -> None:
    problem = masked_chain(3, seed=2, kept=True, tail=2)
    context_ = find_context(problem, Dominators(problem))
    assert context_ is not None
    rest, _, _ = rest_problem(problem, context_, next(context_.states()), {})
    found = split(rest, Dominators(rest), least=3)
    ends = [part.root for part in found]
    assert ends == [3, 6, 9, None]
    roots = set(rest.roots)
    assert all(roots & set(part.classes) for part in found)
    # The end of the last layer is no separator where a program need not contain it.
    problem = masked_chain(3, seed=2, kept=True, detour=True, tail=2)
    context_ = find_context(problem, Dominators(problem))
    assert context_ is not None
    rest, _, _ = rest_problem(problem, context_, next(context_.states()), {})
    assert 9 not in [part.root for part in split(rest, Dominators(rest), least=3)]


def steps_with_outputs(steps: int, seed: int | None = None) -> Problem:
    """A recurrent network whose steps have an output each, and whose input costs nothing to copy."""
    whole = recurrent_problem(steps, None if seed is None else random.Random(seed))
    top = whole.classes - 1
    assert whole.node_class.tolist().count(top) == 1
    assert int(whole.node_class[-1]) == top
    copies = whole.copy_in[:-1].copy()
    copies[0] = 0.0
    return replace(
        whole,
        classes=top,
        node_class=whole.node_class[:-1],
        children=whole.children[:-1],
        cost=whole.cost[:-1],
        copy_in=copies,
        copy_out=copies.copy(),
        roots=whole.children[-1],
    )


def test_outputs_beside_a_chain_do_not_keep_its_steps_together() -> None:
    problem = steps_with_outputs(5)
    found = split(problem, Dominators(problem), least=4)
    assert len(found) == 5
    assert sorted(r for part in found for r in problem.roots if r in part.classes) == sorted(problem.roots)


@pytest.mark.parametrize("seed", [0, 2, 3, 4, 5])
def test_outputs_beside_a_chain_change_no_optimum(seed: int, tiny: list[bool]) -> None:
    problem = steps_with_outputs(2, seed)
    found = solve(problem)
    check(problem, found.choices)
    best = optimum(problem)
    assert found.cost == pytest.approx(best, rel=1e-7)
    assert found.bound == pytest.approx(best, rel=1e-6)
    assert found.bound <= found.cost


@pytest.mark.slow
@pytest.mark.parametrize("detour", [False, True])
@pytest.mark.parametrize("seed", range(24))
def test_the_bound_of_a_context_is_one(seed: int, detour: bool, tiny: list[bool]) -> None:
    """Also where no other search follows."""
    problem = masked_chain(2, seed=seed, detour=detour)
    search = SharedSearch(problem, shared.Effort(30.0), 1e-6, 0, joining=True)
    if not search.run():
        assert find_context(problem, Dominators(problem)) is None
        return
    best = optimum(problem)
    assert search.bound <= best * (1 + 1e-9)
    assert search.choices is not None
    check(problem, search.choices)
    assert best * (1 - 1e-9) <= search.cost == pytest.approx(program_cost(problem, search.choices))
    # Only a launch for the context may be missing.
    assert search.cost - search.bound <= 3e-6 + 1e-6 * best


def joined_chain(layers: int, *, seed: int, alone: bool) -> Problem:
    """Layers on the host that read results of an accelerator, which reads a mask that it can compute as well.

    Args:
        layers: Number of layers.
        seed: Of the costs.
        alone: Whether the accelerator reads nothing but the mask, so that one region can have results of all layers;
            otherwise it has two regions in each layer, unless the mask joins them.
    """
    rng = random.Random(seed)
    build = Builder(2)
    x, ids, mask = build.value(3e3), build.value(1e3), build.value(1e3)
    build.add(x, (), 0.0, own=True)
    build.add(ids, (), 0.0, own=True)
    build.add(mask, (ids,), 1e-6, 1e-6 + rng.choice((0.0, 2e-6, 4e-6, 9e-6)), own=True)
    for _ in range(layers):
        scale = rng.choice((8e-6, 1.2e-5, 3e-5))
        one, two, end = build.value(2e3), build.value(2e3), build.value(3e3)
        if alone:
            build.add(one, (mask,), scale, scale * 0.1, own=True)
            build.add(two, (x,), scale, own=True)
        else:
            before = build.value(2e3)
            build.add(before, (x,), 1e-6, own=True)
            for result in (one, two):
                build.add(result, (mask, before), scale, scale * 0.1, own=True)
        build.add(end, (one, two, x), 1e-6, own=True)
        x = end
    return build.problem((x,), 1e9, 2e-7, 3e-6)


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_a_launch_that_layers_share_is_counted_once(seed: int, alone: bool, tiny: list[bool]) -> None:
    problem = joined_chain(2, seed=seed, alone=alone)
    search = SharedSearch(problem, shared.Effort(30.0), 1e-6, 0, joining=True)
    assert search.run()
    best = optimum(problem)
    assert search.bound <= best * (1 + 1e-9)
    if alone:
        assert best * (1 - 1e-6) <= search.bound, "by what computes the mask, each case is closed"
    found = solve(problem)
    check(problem, found.choices)
    assert found.cost == pytest.approx(best, rel=1e-7)
    assert best * (1 - 1e-6) <= found.bound <= best * (1 + 1e-9)


def test_layers_with_a_mask_of_an_accelerator_are_parts(tiny: list[bool]) -> None:
    problem = joined_chain(4, seed=0, alone=False)
    found = find_context(problem, Dominators(problem))
    assert found is not None and len(found.joining) == 1
    rest, _, _ = rest_problem(problem, found, next(found.states()), {})
    layers = parts.split(rest, Dominators(rest))
    (mask,) = set.intersection(*(set(part.classes) for part in layers))
    assert len(layers) == 4 and set(rest.cost[rest.node_class == mask].ravel()) == {0.0}, "each layer has a copy"


@pytest.mark.slow
@pytest.mark.parametrize("block", range(4))
def test_a_sum_that_is_computed_once_more_changes_no_optimum(block: int, tiny: list[bool]) -> None:
    """The relaxed problem bounds the cost, and its best program is one of the problem."""
    ran = applied = 0
    for seed in range(100 * block, 100 * block + 24):
        problem = masked_chain(2, seed=seed, alike=seed % 3 == 0, kept=seed % 5 == 0, recomputed=True)
        search = RelaxedSearch(problem, shared.Effort(30.0), 1e-6, 0)
        applied += bool(recomputed(problem, Dominators(problem)))
        if not search.run():
            continue
        ran += 1
        best = optimum(problem)
        assert search.bound <= best * (1 + 1e-9)
        if search.choices is not None:
            check(problem, search.choices)
            assert best * (1 - 1e-9) <= search.cost == pytest.approx(program_cost(problem, search.choices))
        found = solve(problem)
        assert found.cost == pytest.approx(best, rel=1e-7)
        assert best * (1 - 1e-6) <= found.bound <= found.cost
    assert applied >= ran >= 4


@pytest.mark.parametrize("is_needed", [False, True])
def test_only_a_sum_that_is_needed_anyway_is_computed_once_more(is_needed: bool) -> None:
    """Otherwise what the e-node reads may tie it to a region, and what reads the sum may be computed without it."""
    build = Builder(2)
    x, a, b, total, c, out = (build.value(1e3) for _ in range(6))
    build.add(x, (), 0.0)
    build.add(a, (x,), 1e-6, 1e-6)
    build.add(b, (x,), 1e-6, 1e-6)
    build.add(total, (a, b), 1e-6, 1e-6)
    build.add(c, (total,) if is_needed else (x,), 1e-6)
    build.add(out, (c, total), 1e-6, 1e-6)
    build.add(out, (a, b, c), INF, 1e-6)
    problem = build.problem((out,), 1e9, 2e-7, 3e-6)
    assert recomputed(problem, Dominators(problem)) == ({6: (c,)} if is_needed else {})


@pytest.mark.slow
def test_deep_networks_with_sums_that_are_computed_once_more_are_proven() -> None:
    for layers in (6, 24):
        problem = masked_chain(layers, seed=11, alike=True, steps=90, recomputed=True)
        assert recomputed(problem, Dominators(problem))
        assert solve(problem).stop_reason == "optimal"


@pytest.mark.slow
def test_deep_networks_of_equal_layers_cost_a_constant(monkeypatch: pytest.MonkeyPatch) -> None:
    searched = 0
    one = PartwiseSearch._searched

    def counted(search: PartwiseSearch, *arguments: Any) -> object:
        nonlocal searched
        searched += 1
        return one(search, *arguments)

    monkeypatch.setattr(PartwiseSearch, "_searched", counted)
    counts, costs = {}, {}
    for layers in (8, 24, 48):
        searched = 0
        found = solve(masked_chain(layers, seed=7, alike=True, steps=90))
        assert found.stop_reason == "optimal"
        counts[layers], costs[layers] = searched, found.cost
    assert max(counts.values()) <= counts[8] + 2, counts
    assert costs[48] - costs[24] == pytest.approx(1.5 * (costs[24] - costs[8]), rel=1e-6), "each layer costs the same"


@pytest.mark.slow
def test_large_networks_have_the_same_cost_without_a_context(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(3):
        problem = masked_chain(3, seed=seed, steps=90, alike=seed % 2 == 0)
        with_it = solve(problem)
        with monkeypatch.context() as patch:
            patch.setattr(SharedSearch, "run", lambda _: False)
            without = solve(problem)
        assert with_it.stop_reason == without.stop_reason == "optimal"
        assert with_it.cost == pytest.approx(without.cost, rel=2e-6)


def shuffled(problem: Problem, seed: int) -> Problem:
    """The same problem with other numbers of classes and e-nodes."""
    rng = np.random.default_rng(seed)
    number, order = rng.permutation(problem.classes), rng.permutation(problem.nodes)
    back = np.argsort(number)
    return replace(
        problem,
        node_class=number[problem.node_class[order]],
        children=tuple(tuple(sorted(int(number[k]) for k in problem.children[n])) for n in order),
        cost=problem.cost[order],
        copy_in=problem.copy_in[back],
        copy_out=problem.copy_out[back],
        roots=tuple(int(number[r]) for r in problem.roots),
    )


@pytest.mark.parametrize("seed", range(8))
def test_a_form_does_not_depend_on_numbers_but_on_all_else(seed: int) -> None:
    problem = masked_chain(3, seed=seed)
    known = Known()
    form = form_of(problem, set())
    solved = solve(problem)
    known.keep(form, solved.choices, solved.bound, 1e-6)
    other = shuffled(problem, seed)
    again = form_of(other, set())
    assert again.key == form.key
    assert known.find(other, again, 1e-7) is None, "a larger gap is no answer"
    found = known.find(other, again, 1e-6)
    assert found is not None
    choices, price, bound = found
    assert choices is not None and needed(other, choices) is not None
    check(other, choices)
    assert price == pytest.approx(solved.cost) and bound <= price
    assert bound == pytest.approx(solved.bound, rel=1e-6)
    rng = random.Random(seed)
    for field in ("cost", "copy_in", "copy_out", "dispatch"):
        values = getattr(problem, field).copy()
        finite = [int(i) for i in np.flatnonzero(np.isfinite(values))]
        values.ravel()[rng.choice(finite)] += 1e-7
        assert form_of(replace(problem, **{field: values}), set()).key != form.key, field


def test_what_lies_below_a_leaf_is_no_part_of_a_form() -> None:
    problem = masked_chain(2, seed=1)
    (leaf,) = (n for n, reads in enumerate(problem.children) if not reads and problem.node_class[n] == 0)
    cost_ = problem.cost.copy()
    cost_[leaf] = [5e-5, 6e-5]
    dearer = cost_.copy()
    dearer[leaf] += 1e-3
    first, second = (form_of(replace(problem, cost=c), {0}) for c in (cost_, dearer))
    assert first.key == second.key
    assert second.base - first.base == pytest.approx(1e-3)
    apart = cost_.copy()
    apart[leaf, 1] += 1e-6
    assert form_of(replace(problem, cost=apart), {0}).key != first.key
