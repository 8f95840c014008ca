"""The Relay flow: against a literal replay of TVM's annotated graph, on TVM's own examples, and by what it computes."""

import random
from collections.abc import Iterator

import networkx as nx
import numpy as np
import pytest

from benchmarks.baseline import relay
from benchmarks.baseline.expr import Expr, post_order
from benchmarks.baseline.partition import HOST, Partition
from tests.benchmarks.programs import SHAPE, Data, as_pattern, as_program, as_tables, random_program, run, table

SUPPORTED = ("Add", "Mul", "Relu")


def _data(nodes: str, outputs: str, inputs: str = "p q", patterns: object = ()) -> Data:
    lines = [line.split() for line in nodes.split(";")]
    return {"inputs": inputs.split(), "nodes": lines, "outputs": outputs.split(), "patterns": list(patterns)}


# ---- a replay with explicit compiler_begin and compiler_end ------------------------------------------


class _Region:
    def __init__(self, number: int, target: str, member: Expr) -> None:
        self.id = number
        self.target = target
        self.members = {member}
        self.inputs: list[tuple[Expr, Expr]] = []  # (reader, what it reads), one for each compiler_begin


def _replay(body: Expr, target_of: dict[Expr, str]) -> list[_Region]:
    """MergeCompilerRegions on the graph that AnnotateTarget leaves: every operand between an end and a begin."""
    regions: list[_Region] = []

    def region(expr: Expr) -> _Region | None:
        return next((r for r in regions if expr in r.members), None)

    def create(expr: Expr) -> None:
        if expr in target_of and region(expr) is None:
            made = _Region(len(regions), target_of[expr], expr)
            regions.append(made)
            made.inputs = [(expr, a) for a in expr.args if a is not None]
            for arg in expr.args:
                if arg is not None:
                    create(arg)

    create(body)
    forbidden: dict[int, set[int]] = {r.id: set() for r in regions}
    merged: set[int] = set()

    def visit(expr: Expr) -> None:
        own = region(expr)
        if own is None or own.id in merged:
            return
        for _, arg in list(own.inputs):
            parent = region(arg)
            if parent is not None and parent.id not in merged:
                visit(arg)
        parents: list[_Region] = []
        for _, arg in own.inputs:
            parent = region(arg)
            if parent is not None and parent not in parents:
                parents.append(parent)
        for parent in parents:
            forbidden[own.id] |= forbidden[parent.id]
        for parent in parents:
            if parent.target != own.target:
                forbidden[own.id].add(parent.id)
            elif parent.id not in forbidden[own.id]:
                own.members |= parent.members
                own.inputs = [(r, a) for r, a in (*own.inputs, *parent.inputs) if a not in parent.members]
                regions.remove(parent)
                for r in regions:
                    if parent.id in forbidden[r.id]:
                        forbidden[r.id].remove(parent.id)
                        forbidden[r.id].add(own.id)
        merged.add(own.id)

    visit(body)
    return regions


@pytest.mark.parametrize("seed", range(6))
def test_regions_are_those_of_a_literal_replay(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(40):
        data = random_program(rng)
        program = as_program(data)
        tables = as_tables(data, SUPPORTED)
        body = relay._relay_form(program)
        body = relay.merge_composites(program, body, tables)
        targets = relay.annotate_targets(body, tables, non_call_targets=rng.random() < 0.7)
        found = {frozenset(r) for r in relay.merge_regions(body, targets)}
        assert found == {frozenset(r.members) for r in _replay(body, targets)}


# ---- properties ------------------------------------------------------------------------------------


def _partitions(seed: int, count: int) -> Iterator[tuple[Data, Partition]]:
    rng = random.Random(seed)
    for _ in range(count):
        data = random_program(rng)
        yield data, relay.partition(as_program(data), as_tables(data, SUPPORTED))


@pytest.mark.parametrize("seed", range(5))
def test_regions_can_be_put_in_an_order(seed: int) -> None:
    for _, found in _partitions(100 + seed, 40):
        piece = {e: ("region", i) for i, (_, members) in enumerate(found.regions) for e in members}
        graph = nx.DiGraph()
        for expr in post_order(found.program.outputs):
            for arg in expr.args:
                if arg is not None and piece.get(arg, arg) != piece.get(expr, expr):
                    graph.add_edge(piece.get(arg, arg), piece.get(expr, expr))
        assert nx.is_directed_acyclic_graph(graph)


@pytest.mark.parametrize("seed", range(5))
def test_partitioned_programs_compute_the_same(seed: int) -> None:
    for data, found in _partitions(200 + seed, 40):
        arrays = np.random.default_rng(seed)
        inputs = {name: arrays.standard_normal(SHAPE, np.float32) * np.float32(0.5) for name in data["inputs"]}
        for a, b in zip(run(as_program(data), inputs), run(found.program, inputs), strict=True):
            np.testing.assert_array_equal(a, b)


def test_every_operator_is_in_one_place() -> None:
    for data, found in _partitions(7, 100):
        names = [e.name for e in post_order(found.program.outputs) if e.kind == "call"]
        assert len(names) == len(set(names)), data
        listed = [e for _, members in found.regions for e in members]
        assert len(listed) == len(set(listed))
        assert all(found.target_of[e] != HOST for e in listed)


# ---- examples from TVM's own tests -------------------------------------------------------------------


def test_a_region_does_not_wait_for_itself() -> None:
    """The diamond of TVM's test_pass_merge_compiler_regions: two regions, since X lies between them."""
    data = _data("o1 Mul p p; o2 Relu o1; x Tanh o1; o3 Add o2 x; o4 Sub o3 x", "o4", "p")
    found = relay.partition(as_program(data), as_tables(data, SUPPORTED))
    assert [[e.name for e in members] for _, members in found.regions] == [["o1", "o2"], ["o3"]]
    assert found.host_operators == 2


def test_without_merging_every_operator_is_a_region() -> None:
    data = _data("o1 Mul p p; o2 Relu o1; x Tanh o1; o3 Add o2 x", "o3", "p")
    assert len(relay.partition(as_program(data), as_tables(data, SUPPORTED), merge=False).regions) == 3


def test_a_branching_pattern_matches_twice_in_a_row() -> None:
    """(a+b)*(a-b), then the same of c and that, from test_pass_merge_composite."""
    pattern = ["Mul", ["Add", "x", "y"], ["Sub", "x", "y"]]
    data = _data("s Add p q; d Sub p q; m Mul s d; t Add r m; e Sub r m; n Mul t e; z Relu n", "z", "p q r")
    found = relay.partition(as_program(data), table([("add_sub_mul", as_pattern(pattern))]))
    assert (found.composites, found.host_operators) == (2, 1)


@pytest.mark.parametrize(
    ("total", "difference", "composites"), [("p q", "p q", 1), ("q p", "p q", 0), ("p q", "q p", 0), ("p p", "p q", 0)]
)
def test_operand_orders_are_not_reconsidered(total: str, difference: str, composites: int) -> None:
    """(x+y)*(x-y) as Relay 0.11.1 matches it: (y+x)*(x-y) binds the sum first, and then the difference does not fit."""
    pattern = as_pattern(["Mul", ["Add", "x", "y"], ["Sub", "x", "y"]])
    data = _data(f"s Add {total}; d Sub {difference}; m Mul s d", "m")
    assert relay.partition(as_program(data), table([("add_sub_mul", pattern)])).composites == composites


@pytest.mark.parametrize(("nodes", "composites"), [("s Add p q; d Sub q p; m Mul d s", 1), ("s Add p q; m Sub q s", 0)])
def test_only_sums_and_products_commute(nodes: str, composites: int) -> None:
    patterns = [["m", ["Mul", ["Add", "_", "_"], ["Sub", "_", "_"]]], ["s", ["Sub", ["Add", "_", "_"], "_"]]]
    data = _data(nodes, "m", patterns=patterns)
    assert relay.partition(as_program(data), as_tables(data)).composites == composites


def test_the_first_pattern_wins() -> None:
    data = _data("s Add p q; t Tanh s; r Relu t", "r")
    long, short = ["abc", ["Relu", ["Tanh", ["Add", "_", "_"]]]], ["bc", ["Relu", ["Tanh", "_"]]]
    first = relay.partition(as_program(data), as_tables(data | {"patterns": [long, short]}))
    second = relay.partition(as_program(data), as_tables(data | {"patterns": [short, long]}))
    assert (first.host_operators, second.host_operators) == (0, 1)


def test_what_is_read_outside_is_not_covered() -> None:
    data = _data("s Add p q; r Relu s; t Tanh s; u Mul r t", "u", patterns=[["ar", ["Relu", ["Add", "_", "_"]]]])
    assert relay.partition(as_program(data), as_tables(data)).composites == 0


def test_a_reader_that_leads_back_to_the_root_does_no_harm() -> None:
    """Relay lets it pass if everything after the reader passes through the root; the value is computed twice."""
    data = _data("s Relu p; t Tanh s; u Mul s t", "u", "p", patterns=[["rm", ["Mul", ["Relu", "_"], "_"]]])
    found = relay.partition(as_program(data), as_tables(data))
    assert (found.composites, found.host_counts()) == (1, {"Relu": 1, "Tanh": 1})


def test_alternatives_are_not_reconsidered() -> None:
    """The left side fits s by itself, so TVM never tries the right one, with which the whole would fit."""
    inner = ["|", "_", ["Add", "x", "y"]]
    data = _data("s Add p q; m Mul s p", "m", patterns=[["m", ["Mul", inner, "x"]]])
    assert relay.partition(as_program(data), as_tables(data)).program.bindings[-1].args[0].name == "s"
