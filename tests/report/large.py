"""A summary with graphs of any size, made without a search: for layouts, pages and their benchmark."""

from __future__ import annotations

import dataclasses
import random

from eqsat.report.graphs import Graph, GraphComparison, GraphNode, GraphRegion
from eqsat.report.memory_map import MemoryMap, MemoryRow
from eqsat.report.summary import KernelRow, Summary
from eqsat.targets.work import Work
from tests.report.sample import SUMMARY


def large(count: int, seed: int = 0) -> Summary:
    """Chains with branches and skips, in regions of 100 nodes on two targets in turn."""
    rng = random.Random(seed)
    work = Work(1e6, 1e5, 1e-5, 2e-6, 1e-6)
    edges = [(i - 1 if rng.random() < 0.8 else max(0, i - rng.randrange(1, 9)), i) for i in range(1, count)]
    edges += [(max(0, i - rng.randrange(2, 60)), i) for i in range(1, count) if rng.random() < 0.3]

    def node(i: int) -> GraphNode:
        operands = ("a: float[1, 64, 56, 56]", "constant float[64, 64, 3, 3]")
        target = ("dnnl", "cpu")[i // 100 % 2]
        return GraphNode("operator", f"block{i // 50}/t{i}", "Add", target, operands, operands[:1], 1e-5, work)

    nodes = tuple(map(node, range(count)))
    pieces = [tuple(range(k, min(k + 100, count))) for k in range(0, count, 100)]
    regions = tuple(GraphRegion(f"{nodes[p[0]].target}_{k}", nodes[p[0]].target, p) for k, p in enumerate(pieces))
    unique = tuple(dict.fromkeys(edges))
    covers = tuple((i,) for i in range(count))
    pair = GraphComparison(Graph(nodes, unique), Graph(nodes, unique, regions), covers)
    rows = tuple(
        KernelRow(n.name, n.op, n.target, f"r{i // 100}", (n.op,), n.cost * rng.uniform(1, 9), work=work)
        for i, n in enumerate(nodes)
    )
    tensors = tuple(MemoryRow(n.name, "float[250]", 1000, 1000 * (i % 7), i, i + 6) for i, n in enumerate(nodes))
    memory = MemoryMap("cpu", "plan", 7000, 7000, 6, count + 6, {}, 0, tensors)
    return dataclasses.replace(SUMMARY, graphs=(pair,), kernels=rows, memory=(memory,))
