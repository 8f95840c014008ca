"""From the saturated e-graph and the cost model to the extraction problem.

Constant expressions vanish here: they are computed before run time, lie in every memory and cost nothing. The problem
has one class for each run-time value, with every e-node priced on every target.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from eqsat.egraph.encode import EncodedNode, Encoding
from eqsat.egraph.snapshot import ENode, Snapshot
from eqsat.extract.body_costs import BodyCosts, mean_seconds
from eqsat.extract.newest import Newest
from eqsat.extract.problem import Choice, Problem
from eqsat.extract.runtime_operators import Runtime
from eqsat.ops.own_operators import CHANNELS_FIRST, CHANNELS_LAST
from eqsat.rules.ast import Target
from eqsat.rules.evaluation import TensorFacts
from eqsat.schema.types import TensorType
from eqsat.targets.kernel_cost import CostModel


@dataclass(frozen=True)
class MappedProblem:
    """An extraction problem and its mapping back to the snapshot.

    Attributes:
        node: Problem node -> index into ``snapshot.nodes``.
        eclass: Problem class -> class of the snapshot.
        position: Class of the snapshot -> problem class.
        original: The input's own program on the host, each value computed once; without operators that are too new.
        baseline: Seconds of the unchanged input on the host, including duplicates.
        original_nodes: Snapshot nodes of the input's own operators that run (constants excluded), one entry each.
        targets: Targets by number, the host first.
    """

    snapshot: Snapshot
    problem: Problem
    node: tuple[int, ...]
    eclass: tuple[int, ...]
    position: dict[int, int]
    original: dict[int, Choice]
    baseline: float
    original_nodes: tuple[int, ...]
    targets: tuple[Target, ...]


class Pricing:
    """Costs of e-nodes, with the facts of their operands looked up once per class.

    Args:
        snapshot: The e-graph.
        costs: The cost models of the targets.
        runtime: The operators that ONNX Runtime runs on the host; None for another host.
        bodies: The costs of bodies of control flow that are optimized by themselves.
        newest: The operators that the file may contain; None for all.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        costs: CostModel,
        runtime: Runtime | None = None,
        bodies: BodyCosts | None = None,
        newest: Newest | None = None,
    ) -> None:
        self.snapshot = snapshot
        self.costs = costs
        self.runtime = runtime
        self.bodies = bodies or BodyCosts()
        self.newest = newest
        self.facts = [
            TensorFacts(t, None if v is None else v.numpy(), c or v is not None, True)
            for t, v, c in zip(snapshot.types, snapshot.value, snapshot.constant, strict=True)
        ]
        self._inner = _in_inner_layout(snapshot)
        self._parts: dict[int, dict[int, int]] = {}
        for node in snapshot.nodes:
            if node.kind == "part":
                assert node.children[0] is not None
                self._parts.setdefault(node.children[0], {})[node.number] = node.eclass

    def outputs(self, node: ENode) -> list[TensorType | None]:
        """Types of a node's outputs, None for outputs without readers."""
        types = self.snapshot.types
        if not node.outputs:
            return [types[node.eclass]]
        parts = self._parts.get(node.eclass, {})
        return [types[parts[k]] if k in parts else None for k in range(node.outputs)]

    def operands(self, node: ENode) -> list[TensorFacts | None]:
        return [None if c is None else self.facts[c] for c in node.children]

    def family(self, node: ENode, target: int) -> str:
        """Family of kernels that computes an e-node on a target; empty if its file names none."""
        if node.composite is not None:
            return node.composite.composite.family
        if node.kind != "op":
            return ""
        return self.costs.family(target, node.op, node.attrs, self.operands(node), self.outputs(node))

    def baseline(self, node: ENode) -> float:
        """Seconds of an operator of the input, unchanged, on the host."""
        known = node.kind == "op" and self.bodies.knows(node.attrs)
        return self.control(node, "before") if known else self._cost(node, 0)

    def control(self, node: ENode, which: str, bodies: BodyCosts | None = None) -> float:
        """Seconds of an If, Loop or Scan on the host.

        Args:
            node: Whose bodies have costs.
            which: The field of :class:`~eqsat.extract.body_costs.BodyCost`.
            bodies: The costs; by default those of the pricing.
        """
        return mean_seconds(self.costs, bodies or self.bodies, node.op, node.attrs, self.operands(node), which)

    def too_new(self, node: ENode) -> int | None:
        """The opset that an e-node needs and the file must not have; None if there is no such obstacle."""
        if self.newest is None or node.kind not in ("op", "composite"):
            return None
        return self.newest.needs(node, self.operands(node), self.outputs(node))

    def cost(self, node: ENode, target: int) -> float:
        """Seconds of an e-node on a target, ``inf`` where it cannot run there."""
        return np.inf if self.too_new(node) is not None else self._cost(node, target)

    def _cost(self, node: ENode, target: int) -> float:
        """The same at any opset."""
        if target != 0 and not self._inner.isdisjoint((node.eclass, *node.children)):
            return np.inf
        if node.kind == "input":
            return 0.0 if target == 0 else np.inf
        if node.kind == "part":
            return 0.0
        if node.kind == "op":
            outputs = self.outputs(node)
            if node.rule and not any(outputs):
                return np.inf  # An e-node from a rule whose type cannot be inferred has no comparable price.
            if target == 0 and self.runtime is not None and not self.runtime.runs(node, outputs):
                return np.inf
            if target == 0 and self.bodies.knows(node.attrs):
                return self.control(node, "after")
            return self.costs.operator(target, node.op, node.attrs, self.operands(node), outputs)
        instance = node.composite
        assert instance is not None
        if instance.target != self.costs.targets[target].name:
            return np.inf
        outputs = [kind for kind in self.outputs(node) if kind is not None]
        if len(outputs) != len(instance.body.results):
            return np.inf
        env = instance.names(outputs)
        operands = self.operands(node)
        for name, facts in zip(instance.leaves, operands, strict=True):
            if name is not None and facts is not None:
                env[name] = facts
        return self.costs.composite(target, instance.composite, env, instance.body, operands, *outputs)


def _in_inner_layout(snapshot: Snapshot) -> set[int | None]:
    """Classes of tensors with channels innermost, which only kernels of the host read and write."""
    found: set[int | None] = set()
    for node in snapshot.nodes:
        if node.op == CHANNELS_LAST.op:
            found.add(node.eclass)
        elif node.op == CHANNELS_FIRST.op:
            found.add(node.children[0])
    return found


def formulate(
    snapshot: Snapshot,
    encoding: Encoding,
    outputs: list[ir.Value],
    pricing: Pricing,
    forbidden: Container[int] = (),
) -> MappedProblem:
    """Builds the extraction problem for a model's outputs.

    Args:
        forbidden: E-nodes of the snapshot that no program may contain. If they are among the input's own, there may be
            no program, and ``original`` is incomplete.

    Raises:
        OptimizationError: The type of a run-time value is not known.
    """
    fixed = [c or v is not None for c, v in zip(snapshot.constant, snapshot.value, strict=True)]
    roots = [snapshot.refs[v] for v in outputs if not fixed[snapshot.refs[v]]]
    reached = _reachable(snapshot, roots, fixed)
    position = {c: i for i, c in enumerate(reached)}
    targets = range(len(pricing.costs.targets))
    nodes: list[int] = []
    children: list[tuple[int, ...]] = []
    rows: list[list[float]] = []
    for eclass in reached:
        for n in snapshot.classes[eclass]:
            node = snapshot.nodes[n]
            operands = {c for c in node.children if c is not None and not fixed[c]}
            if node.kind == "const" or eclass in operands or n in forbidden:
                continue
            costs = [pricing.cost(node, d) for d in targets]
            if all(np.isinf(costs)):
                continue
            nodes.append(n)
            children.append(tuple(sorted(position[c] for c in operands)))
            rows.append(costs)
    problem = Problem(
        targets=tuple(t.name for t in pricing.costs.targets),
        classes=len(reached),
        node_class=np.array([position[snapshot.nodes[n].eclass] for n in nodes], dtype=np.int64),
        children=tuple(children),
        cost=np.array(rows, dtype=np.float64).reshape(len(nodes), len(targets)),
        copy_in=_copies(snapshot, reached, pricing, "copy_in"),
        copy_out=_copies(snapshot, reached, pricing, "copy_out"),
        dispatch=np.array([pricing.costs.dispatch(d) for d in targets]),
        roots=tuple(dict.fromkeys(position[r] for r in roots)),
    )
    original, own = _original(snapshot, encoding, nodes, position, fixed)
    baseline = float(sum(pricing.baseline(snapshot.nodes[n]) for n in own))
    return MappedProblem(
        snapshot, problem, tuple(nodes), tuple(reached), position, original, baseline, own, pricing.costs.targets
    )


def _reachable(snapshot: Snapshot, roots: list[int], fixed: list[bool]) -> list[int]:
    """Run-time classes that some program may need, in a deterministic order.

    One walk over the lists that are there: a graph of networkx would need another one to be built.
    """
    seen = dict.fromkeys(roots)
    stack = list(reversed(roots))
    while stack:
        for n in snapshot.classes[stack.pop()]:
            for child in snapshot.nodes[n].children:
                if child is not None and not fixed[child] and child not in seen:
                    seen[child] = None
                    stack.append(child)
    return list(seen)


def _copies(snapshot: Snapshot, reached: list[int], pricing: Pricing, direction: str) -> np.ndarray:
    """Copy costs; tuples have no type and never move."""
    price = getattr(pricing.costs, direction)
    targets = range(len(pricing.costs.targets))
    rows = np.full((len(reached), len(targets)), np.inf)
    for i, eclass in enumerate(reached):
        kind = snapshot.types[eclass]
        for d in targets:
            if d == 0:
                rows[i, d] = 0.0
            elif kind is not None:
                rows[i, d] = price(d, kind)
    return rows


def _original(
    snapshot: Snapshot, encoding: Encoding, nodes: list[int], position: dict[int, int], fixed: list[bool]
) -> tuple[dict[int, Choice], tuple[int, ...]]:
    """The input's own program: per problem class the first of its nodes that computes it, all on the host."""
    index = {n: i for i, n in enumerate(nodes)}
    choices: dict[int, Choice] = {}
    own: list[int] = []

    def choose(eclass: int, n: int | None) -> None:
        if n is not None and eclass in position and position[eclass] not in choices and n in index:
            choices[position[eclass]] = Choice(index[n], 0)

    for value in encoding.inputs:
        eclass = snapshot.refs[value]
        leaf = (n for n in snapshot.classes[eclass] if snapshot.nodes[n].kind == "input")
        choose(eclass, next((n for n in leaf if encoding.inputs[snapshot.nodes[n].number] is value), None))
    for own_node in encoding.nodes:
        children = tuple(None if o is None else snapshot.refs[encoding.values[o]] for o in own_node.operands)
        classes = [snapshot.refs[encoding.values[r]] for r in own_node.results]
        if all(fixed[c] for c in classes):
            continue
        if own_node.constructor.outputs:
            parts = [_part(snapshot, c, k, own_node, children) for k, c in enumerate(classes)]
            holder = snapshot.nodes[parts[0]].children[0]
            found = find_node(snapshot, holder, own_node, children)
            assert holder is not None
            choose(holder, found)
            for c, n in zip(classes, parts, strict=True):
                choose(c, n if found in index else None)
        else:
            found = find_node(snapshot, classes[0], own_node, children)
            choose(classes[0], found)
        assert found is not None, "an operator of the model is lost"
        own.append(found)
    return choices, tuple(own)


def find_node(
    snapshot: Snapshot, eclass: int | None, node: EncodedNode, children: tuple[int | None, ...]
) -> int | None:
    """The e-node of a class that represents a node of the model (operands in either order if they commute)."""
    if eclass is None:
        return None
    wanted = sorted_operands(children)
    for n in snapshot.classes[eclass]:
        found = snapshot.nodes[n]
        if found.kind != "op" or found.attrs != node.attrs:
            continue
        same = found.op == node.constructor.op and found.outputs == node.constructor.outputs
        swapped = node.constructor.is_commutative and sorted_operands(found.children) == wanted
        if same and (found.children == children or swapped):
            return n
    return None


def _part(snapshot: Snapshot, eclass: int, index: int, node: EncodedNode, children: tuple[int | None, ...]) -> int:
    """The projection e-node of a class that reads output ``index`` of a tuple node of the model."""
    for n in snapshot.classes[eclass]:
        part = snapshot.nodes[n]
        reads = part.kind == "part" and part.number == index
        if reads and find_node(snapshot, part.children[0], node, children) is not None:
            return n
    raise AssertionError("an output of the model is lost")


def sorted_operands(children: tuple[int | None, ...]) -> tuple[int, ...]:
    """Operands as a multiset."""
    return tuple(sorted(-1 if c is None else c for c in children))
