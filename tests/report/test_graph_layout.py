"""Layouts: nothing overlaps, edges point down, regions enclose their nodes, and large graphs take near-linear time."""

from __future__ import annotations

import itertools
import random

import pytest

from eqsat.report.drawn_graphs import place
from eqsat.report.graph_layout import DrawnEdge, layered
from eqsat.report.graphs import Graph, GraphNode, GraphRegion


def random_graph(seed: int) -> tuple[int, list[DrawnEdge]]:
    rng = random.Random(seed)
    count = rng.randint(1, 24)
    pairs = (sorted(rng.sample(range(count), 2)) for _ in range(rng.randint(0, 40) if count > 1 else 0))
    return count, list(dict.fromkeys((a, b) for a, b in pairs))


Box = tuple[float, float, float, float]


def apart(a: Box, b: Box) -> bool:
    e = 1e-6
    return a[2] <= b[0] + e or b[2] <= a[0] + e or a[3] <= b[1] + e or b[3] <= a[1] + e


def box(centre: tuple[float, float], size: tuple[float, float]) -> Box:
    return centre[0] - size[0] / 2, centre[1] - size[1] / 2, centre[0] + size[0] / 2, centre[1] + size[1] / 2


@pytest.mark.parametrize("seed", range(60))
def test_nodes_do_not_overlap_and_edges_point_down(seed: int) -> None:
    count, edges = random_graph(seed)
    rng = random.Random(seed)
    sizes = [(rng.uniform(5, 300), rng.uniform(5, 200)) for _ in range(count)]
    placed = layered(sizes, edges)
    boxes = [box(c, s) for c, s in zip(placed.centres, sizes, strict=True)]
    assert all(apart(a, b) for a, b in itertools.combinations(boxes, 2))
    for a, b in edges:
        heights = [boxes[a][3], *(y for _, y in placed.routes[a, b]), boxes[b][1]]
        assert heights == sorted(heights)
    assert min(b[0] for b in boxes) >= -1e-6 and max(b[2] for b in boxes) <= placed.width + 1e-6
    assert min(b[1] for b in boxes) >= -1e-6 and max(b[3] for b in boxes) <= placed.height + 1e-6


def nodes(count: int) -> tuple[GraphNode, ...]:
    return tuple(GraphNode("operator", f"t{i}", "Add", "cpu") for i in range(count))


@pytest.mark.parametrize("seed", range(40))
def test_regions_enclose_their_nodes_and_nothing_else(seed: int) -> None:
    count, edges = random_graph(seed)
    parts = seed % 6 + 1
    # Pieces of the execution order are regions whose graph has no cycle.
    size = -(-count // parts)
    regions = tuple(GraphRegion(f"r{k}", "cpu", tuple(range(k, min(k + size, count)))) for k in range(0, count, size))
    placed, frames = place(Graph(nodes(count), tuple(edges), regions))
    frames = [(x, y, x + w, y + h) for x, y, w, h in frames]
    assert all(apart(a, b) for a, b in itertools.combinations(frames, 2))
    for region, (left, top, right, bottom) in zip(regions, frames, strict=True):
        for i in region.nodes:
            a, b, c, d = box(placed.centres[i], (176.0, 40.0))
            assert left <= a and top <= b and c <= right and d <= bottom


def test_an_edge_that_skips_layers_leaves_the_nodes_between_free() -> None:
    placed = layered([(100.0, 20.0)] * 4, [(0, 1), (1, 2), (2, 3), (0, 3)])
    for x, y in placed.routes[0, 3]:
        assert all(abs(x - cx) > 50 or abs(y - cy) > 10 for cx, cy in placed.centres)


def test_an_empty_graph_and_one_without_edges() -> None:
    assert layered([], []).width == 0
    assert len({x for x, _ in layered([(10.0, 10.0)] * 3, []).centres}) == 3


@pytest.mark.parametrize("far", [1, 2000])
def test_work_grows_with_the_graph_not_with_its_square(far: int) -> None:
    """Very long edges are not routed, or 3,000 of them would take 3,000 layers each."""
    count = 3000
    edges = list(dict.fromkeys([*((i, i + 1) for i in range(count - 1)), *((i, i + far) for i in range(count - far))]))
    placed = layered([(100.0, 20.0)] * count, edges)
    assert sum(len(points) for points in placed.routes.values()) <= 2 * (6 * count + 1000)
