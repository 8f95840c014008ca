"""Regions are connected, convex, as large as can be, and can be executed in the order given: checked with networkx."""

from __future__ import annotations

import networkx as nx
import numpy as np
import onnx_ir as ir
import pytest

from eqsat.partition.plan import Plan, PlanNode, PlanRegion
from eqsat.partition.regions import regions
from eqsat.schema.types import OpKey


def make_plan(nodes: list[tuple[str, tuple[int | None, ...], tuple[int, ...]]], inputs: int, outputs: list[int],
              constants: tuple[int, ...] = (), dispatch: tuple[float, ...] = (0.0, 1.0, 2.0)) -> Plan:  # fmt: skip
    """A plan of ``(target, inputs, outputs)``; the operators are of no interest here."""
    targets = ("cpu", "dnnl", "npu")
    return Plan(
        targets=targets,
        dispatch=dispatch,
        nodes=tuple(PlanNode(OpKey("", "Op"), (), i, o, targets.index(t)) for t, i, o in nodes),
        inputs=tuple((k, ir.Value(name=f"x{k}")) for k in range(inputs)),
        outputs=tuple((v, ir.Value(name=f"y{k}")) for k, v in enumerate(outputs)),
        constants={c: ir.tensor(np.zeros(1, np.float32)) for c in constants},
        types={},
        names={},
    )


def random_dag(seed: int) -> Plan:
    rng = np.random.default_rng(seed)
    size, chance = int(rng.integers(1, 40)), float(rng.choice([0.2, 0.5]))
    values, nodes = [0, 1], []
    constant = 10_000
    targets = rng.choice(["cpu", "dnnl", "npu"], size=size, p=[0.3, 0.5, 0.2])
    for k in range(size):
        reads = {values[-1 - min(int(rng.geometric(chance)), len(values)) + 1] for _ in range(int(rng.integers(1, 4)))}
        operands = (*sorted(reads), constant, None)[: len(reads) + int(rng.integers(0, 3))]
        written = tuple(range(100 + 2 * k, 100 + 2 * k + int(rng.integers(1, 3))))
        values.extend(written)
        nodes.append((str(targets[k]), operands, written))
    outputs = [v for v in values[2:] if rng.random() < 0.2] or [values[-1]]
    return make_plan(nodes, 2, outputs, (constant,))


def node_graph(plan: Plan) -> nx.DiGraph:
    graph = nx.DiGraph()
    graph.add_nodes_from(range(len(plan.nodes)))
    producer = {v: i for i, n in enumerate(plan.nodes) for v in n.outputs}
    graph.add_edges_from((producer[v], i) for i, n in enumerate(plan.nodes) for v in n.inputs if v in producer)
    return graph


def quotient(graph: nx.DiGraph, parts: list[set[int]]) -> nx.DiGraph:
    of = {n: k for k, part in enumerate(parts) for n in part}
    result = nx.DiGraph()
    result.add_nodes_from(range(len(parts)))
    result.add_edges_from((of[a], of[b]) for a, b in graph.edges if of[a] != of[b])
    return result


def check_regions(plan: Plan, found: list[PlanRegion]) -> None:
    graph = node_graph(plan)
    parts = [set(r.nodes) for r in found]
    assert sorted(n for r in found for n in r.nodes) == list(range(len(plan.nodes)))
    position = {n: k for k, n in enumerate(n for r in found for n in r.nodes)}
    assert all(position[a] < position[b] for a, b in graph.edges), "not an execution order"
    for region, part in zip(found, parts, strict=True):
        assert {plan.nodes[n].target for n in part} == {region.target}
        assert nx.is_connected(graph.subgraph(part).to_undirected())
        after = set().union(*(nx.descendants(graph, n) for n in part)) - part
        before = set().union(*(nx.ancestors(graph, n) for n in part)) - part
        assert not after & before, "a value leaves the region and comes back"
    between = quotient(graph, parts)
    assert nx.is_directed_acyclic_graph(between)
    for a, b in between.edges:
        if found[a].target == found[b].target:
            merged = [parts[a] | parts[b], *(p for k, p in enumerate(parts) if k not in (a, b))]
            assert not nx.is_directed_acyclic_graph(quotient(graph, merged)), "two neighbours could be one region"

    for k, target in enumerate(plan.targets):
        assert [r.name for r in found if r.target == k] == [
            f"{target}_{i}" for i in range(sum(r.target == k for r in found))
        ]
    producer = {v: i for i, n in enumerate(plan.nodes) for v in n.outputs}
    for region, part in zip(found, parts, strict=True):
        read = {v for n in part for v in plan.nodes[n].inputs if v is not None and producer.get(v) not in part}
        assert set(region.inputs) == read - set(plan.constants) and len(set(region.inputs)) == len(region.inputs)
        wanted = {v for v, _ in plan.outputs} | {
            v for i, n in enumerate(plan.nodes) if i not in part for v in n.inputs if v is not None
        }
        written = [v for n in region.nodes for v in plan.nodes[n].outputs if v in wanted]
        assert list(region.outputs) == written


@pytest.mark.parametrize("seed", range(150))
def test_random_programs(seed):
    plan = random_dag(seed)
    found = regions(plan)
    check_regions(plan, found)
    assert found == regions(plan)


@pytest.mark.parametrize("seed", range(20))
def test_launches_that_cost_nothing_are_merged_all_the_same(seed):
    plan = random_dag(seed)
    free = make_plan(
        [(plan.targets[n.target], n.inputs, n.outputs) for n in plan.nodes], 2, [v for v, _ in plan.outputs],
        tuple(plan.constants), (0.0, 0.0, 0.0),
    )  # fmt: skip
    check_regions(free, regions(free))


@pytest.mark.parametrize("k", [1, 2, 5, 64])
@pytest.mark.parametrize("early", [True, False])
def test_a_node_waits_where_that_saves_a_launch(k, early):
    """``a=p+p; b=q+q; h=tanh(b); n=a*b; d_i=a*h``: two regions wherever ``n`` stands in the program."""
    n = [("dnnl", (10, 11), (13,))]
    first = [("dnnl", (0, 0), (10,)), ("dnnl", (1, 1), (11,))]
    host = [("cpu", (11,), (12,))]
    last = [("dnnl", (10, 12), (20 + i,)) for i in range(k)]
    nodes = [*first, *n, *host, *last] if early else [*first, *host, *last, *n]
    plan = make_plan(nodes, 2, [13, *range(20, 20 + k)])
    found = regions(plan)
    check_regions(plan, found)
    assert [r.name for r in found] == ["dnnl_0", "cpu_0", "dnnl_1"]
    if k > 1:
        assert found[0].outputs == (11,) and sorted(found[2].inputs) == [0, 11, 12]


def test_empty_program():
    assert regions(make_plan([], 1, [0])) == []


def test_constant_only_nodes_and_absent_operands():
    plan = make_plan([("dnnl", (None, 7), (10,)), ("cpu", (0, None, 7, 10), (11,))], 1, [11], (7,))
    first, second = regions(plan)
    assert (first.inputs, first.outputs) == ((), (10,))
    assert (second.inputs, second.outputs) == ((0, 10), (11,))
