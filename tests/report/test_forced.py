"""The cheapest program in which a target runs an operator, beside all programs of small random graphs."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence

import pytest

import eqsat
from eqsat.extract.program_cost import program_cost
from eqsat.report.host import Placements
from eqsat.rules.ast import Target
from eqsat.rules.reader import read_text
from eqsat.schema.declared_operators import declared
from eqsat.schema.free_sizes import within
from eqsat.search import Search
from eqsat.stages.extract import extract
from tests.extract.oracle import programs
from tests.report.test_host import HEAD

COMPOSITES = (
    "Relu(x + y)",
    "Tanh(Relu(x))",
    "Exp(Relu(x + y))",
    "Relu(x) * y",
    "Exp(x * y)",
    "Tanh(x + y)",
    "Transpose(Relu(x), perm=p)",
    "Relu(Neg(x))",
    "Relu(x) + Relu(y)",
)
OPERATORS = ("Relu", "Tanh", "Exp", "Neg", "Add", "Mul", "Transpose")
MOST_PROGRAMS = 20_000


def npu(rng: random.Random) -> Target:
    composites = rng.sample(COMPOSITES, rng.randint(1, 3))
    supported = rng.sample(OPERATORS, rng.randint(0, 4))
    peak, bandwidth = rng.choice(("1e12", "1e15")), rng.choice(("1e10", "1e12"))
    launch, dispatch = rng.choice(("1e-6", "1e-7")), rng.choice(("1e-12", "5e-6", "1e-3"))
    text = f"""target npu
    peak float32 = {peak}
    bandwidth = {bandwidth}, launch = {launch}, dispatch = {dispatch}
    link bandwidth = {rng.choice(("1e9", "1e11"))}, latency = 1e-6
"""
    text += f"    supports {', '.join(supported)}\n" if supported else ""
    return read_text(text + declared_composites(composites)).targets[0]


def host(rng: random.Random) -> Target:
    text = f"""host cpu
    peak float32 = 1e11
    bandwidth = 1e10, launch = {rng.choice(("1e-6", "5e-6"))}
    supports *
"""
    return read_text(text + declared_composites(rng.sample(COMPOSITES, rng.randint(0, 3)))).targets[0]


def declared_composites(patterns: Sequence[str]) -> str:
    return "".join(f"    composite c{i} : exact\n        {pattern}\n" for i, pattern in enumerate(patterns))


def graph(rng: random.Random) -> str:
    values, nodes = ["x"], list[str]()
    count = rng.randint(2, 5)
    for i in range(count):
        operand, drawn = rng.choice(values[-2:]), rng.random()
        if drawn < 0.5:
            node = f"{rng.choice(('Relu', 'Tanh', 'Exp', 'Neg'))}({operand})"
        elif drawn < 0.9:
            node = f"{rng.choice(('Add', 'Mul'))}({operand}, {rng.choice(values)})"
        else:
            node = f"Transpose<perm = [1, 0]>({operand})"
        values.append(f"v{i}" if i < count - 1 else "z")
        nodes.append(f"{values[-1]} = {node}")
    return f"{HEAD}(float[64,64] x) => (float[64,64] z) {{ {' '.join(nodes)} }}"


def agrees(seed: int) -> tuple[int, int]:
    """Compares the answers for all operators of a graph with all programs; how many were asked and proven."""
    rng = random.Random(seed)
    text = graph(rng)
    search = Search.of(text, [npu(rng)], host=host(rng), default_rules=rng.random() < 0.5)
    asked = proven = 0
    with declared(search.loaded.operators), within(search.loaded.sizes):
        formulation, problem = search.formulation, search.formulation.problem
        found = list(itertools.islice(programs(problem), MOST_PROGRAMS))
        if len(found) == MOST_PROGRAMS:
            return 0, 0
        costs = [program_cost(problem, program) for program in found]
        placements = Placements(search.priced, extract(formulation, search.clock), 5.0)
        names = {c: v.name for v, c in reversed(search.snapshot.refs.items()) if v.name and v.name != "x"}
        for eclass, name in names.items():
            position = formulation.position.get(eclass)
            own = None if position is None else formulation.original.get(position)
            if position is None or own is None or placements._node(own).kind == "input":
                continue
            there = [
                cost
                for program, cost in zip(found, costs, strict=True)
                if placements._all_on(placements._kernels(program, position), 1)
            ]
            one = placements.of(name, eclass, 1)
            least = min(there) - min(costs) if there else math.inf
            extra = {"there": 0.0, "dearer": one.extra, "impossible": math.inf}[one.outcome]
            assert math.isfinite(extra) == math.isfinite(least), (seed, name, text)
            assert extra == least or extra >= least - 1e-12, (seed, name, text)
            assert not one.proven or extra == least or extra == pytest.approx(least, abs=1e-12), (seed, name, text)
            asked, proven = asked + 1, proven + one.proven
    return asked, proven


def check(seeds: range) -> None:
    counts = [agrees(seed) for seed in seeds]
    asked, proven = sum(a for a, _ in counts), sum(p for _, p in counts)
    assert asked > len(seeds) and proven > 0.95 * asked


@pytest.mark.slow
def test_programs_of_small_graphs() -> None:
    check(range(60))


@pytest.mark.heavy
def test_programs_of_more_graphs() -> None:
    check(range(60, 900))


def test_a_kernel_of_the_host_does_not_hide_one_of_the_target() -> None:
    """Both fuse: no program computes the sum by itself, and one runs it on the target."""
    fused = "composite fused : exact\n        Relu(x + y)"
    numbers = "peak float32 = {0}\n    bandwidth = {0}, launch = 1e-6{1}\n    {2}"
    link = "link bandwidth = 1e9, latency = 1e-6"
    there = read_text(f"target npu\n    {numbers.format('1e12', ', dispatch = 1e-3', link)}\n    {fused}\n").targets[0]
    here = read_text(f"host cpu\n    {numbers.format('1e11', '', 'supports *')}\n    {fused}\n").targets[0]
    model = f"{HEAD}(float[64,64] x) => (float[64,64] z) {{ s = Add(x, x) z = Relu(s) }}"
    (one,) = eqsat.explain_placement(model, [there], ["s"], host=here, default_rules=False)
    assert (one.outcome, one.kernel, one.proven) == ("dearer", "npu.fused", True)
    assert one.dispatch == pytest.approx(1e-3)
