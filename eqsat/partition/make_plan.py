"""Turns the extractor's choices into a plan: kernels over numbered values, with constants folded where they are used.

Large constant expressions are computed only here, and only if the chosen program reads them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from eqsat.egraph.encode import Encoding
from eqsat.egraph.snapshot import ENode, Snapshot
from eqsat.errors import OptimizationError
from eqsat.extract.from_egraph import MappedProblem, Pricing
from eqsat.extract.problem import Choice
from eqsat.ops.evaluate import evaluate
from eqsat.ops.own_operators import LAYOUTS
from eqsat.partition.inherited import Heritage
from eqsat.partition.plan import Plan, PlanNode
from eqsat.partition.vendor_calls import vendor_call
from eqsat.partition.written_operators import written_operator
from eqsat.schema.attributes import array_of, tensor_of
from eqsat.schema.types import GraphAttr


@dataclass(frozen=True, slots=True)
class Assembled:
    """A plan, and for each of its nodes the e-node it comes from."""

    plan: Plan
    enodes: tuple[ENode, ...]


def assemble(
    formulation: MappedProblem,
    choices: dict[int, Choice],
    encoding: Encoding,
    outputs: list[ir.Value],
    pricing: Pricing,
) -> Assembled:
    """The plan of a feasible program; value ids are classes of the snapshot.

    Args:
        choices: Problem class -> choice, children before parents.
        pricing: The pricing from which the costs come.
    """
    snapshot = formulation.snapshot
    constants = _Constants(snapshot)
    nodes: list[PlanNode] = []
    enodes: list[ENode] = []
    captured: dict[str, int] = {}
    parts = _chosen_parts(formulation, choices)
    for position, choice in choices.items():
        node = snapshot.nodes[formulation.node[choice.node]]
        if node.kind in ("part", "input"):
            continue
        eclass = formulation.eclass[position]
        results = parts.get(eclass, {})
        produced = tuple(results.get(k) for k in range(node.outputs)) if node.outputs else (eclass,)
        body = node.composite.body if node.composite is not None else None
        written = written_operator(node, snapshot, pricing.outputs(node), produced)
        if written is not None:
            nodes.append(
                replace(
                    written,
                    target=choice.target,
                    cost=float(formulation.problem.cost[choice.node, choice.target]),
                    rule=snapshot.rules[node.rule],
                )
            )
            enodes.append(node)
            constants.need(c for c in node.children if c is not None)
            continue
        nodes.append(
            PlanNode(
                op=node.op,
                attrs=node.attrs,
                inputs=node.children,
                outputs=produced,
                target=choice.target,
                body=body,
                cost=float(formulation.problem.cost[choice.node, choice.target]),
                rule=snapshot.rules[node.rule],
                call=vendor_call(node, snapshot, formulation.targets[choice.target], pricing.outputs(node)),
                family=pricing.family(node, choice.target),
            )
        )
        enodes.append(node)
        captured.update(_captured(node))
        constants.need(c for c in node.children if c is not None)
    constants.need(snapshot.refs[v] for v in outputs)
    names: dict[int, str] = {}
    for value, eclass in snapshot.refs.items():
        if value.name and (eclass not in names):
            names[eclass] = value.name
    _name_both_layouts(names, snapshot)
    heritage = Heritage(snapshot, encoding, names)
    plan = Plan(
        targets=formulation.problem.targets,
        dispatch=tuple(float(d) for d in formulation.problem.dispatch),
        nodes=tuple(heritage.given(node, enode) for node, enode in zip(nodes, enodes, strict=True)),
        inputs=tuple((snapshot.refs[v], v) for v in encoding.inputs),
        outputs=tuple((snapshot.refs[v], v) for v in outputs),
        constants=constants.found,
        types={c: t for c, t in enumerate(snapshot.types) if t is not None},
        names=names,
        subgraph_names=captured,
        region_calls=tuple(target.region_call for target in formulation.targets),
    )
    return Assembled(plan, tuple(enodes))


def _name_both_layouts(names: dict[int, str], snapshot: Snapshot) -> None:
    """Gives a tensor its name in both of its layouts, because people find their layers by name."""
    known = dict(names)
    for node in snapshot.nodes:
        child = node.children[0] if node.op in LAYOUTS else None
        if child is not None:
            for one, other in ((child, node.eclass), (node.eclass, child)):
                if one in known:
                    names.setdefault(other, known[one])


def _chosen_parts(formulation: MappedProblem, choices: dict[int, Choice]) -> dict[int, dict[int, int]]:
    """Tuple class -> output index -> class of the projection that the program uses."""
    parts: dict[int, dict[int, int]] = {}
    for position, choice in choices.items():
        node = formulation.snapshot.nodes[formulation.node[choice.node]]
        if node.kind == "part":
            assert node.children[0] is not None
            parts.setdefault(node.children[0], {})[node.number] = formulation.eclass[position]
    return parts


def _captured(node: ENode) -> dict[str, int]:
    """Names of outer values that a node's subgraphs read -> classes; they are its last operands."""
    names = dict.fromkeys(n for _, v in node.attrs if isinstance(v, GraphAttr) for n in v.captured)
    classes = node.children[len(node.children) - len(names) :] if names else ()
    return {n: c for n, c in zip(names, classes, strict=True) if c is not None}


class _Constants:
    """Evaluates constant classes on demand, each once."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.found: dict[int, ir.TensorProtocol] = {}
        self._arrays: dict[int, np.ndarray] = {}
        self._ranks: dict[int, int] | None = None

    def need(self, classes: Iterable[int]) -> None:
        for eclass in classes:
            if eclass not in self.found and self.snapshot.is_fixed(eclass):
                self.found[eclass] = self._tensor(eclass)

    def _tensor(self, eclass: int) -> ir.TensorProtocol:
        leaf = self._leaf(eclass)
        if leaf is not None:
            return leaf
        kind = self.snapshot.types[eclass]
        array = self._array(eclass)
        if kind is None:
            return ir.Tensor(array)
        return tensor_of(array, kind.dtype)

    def _leaf(self, eclass: int) -> ir.TensorProtocol | None:
        value = self.snapshot.value[eclass]
        if value is not None:
            return value.tensor
        for n in self.snapshot.classes[eclass]:
            node = self.snapshot.nodes[n]
            if node.kind == "const":
                return self.snapshot.tables.constants[node.number].tensor
        return None

    def _array(self, eclass: int) -> np.ndarray:
        """The contents of a class; its operands are computed first, without recursion, because chains may be long."""
        todo = [eclass]
        while todo:
            top = todo[-1]
            if top in self._arrays:
                todo.pop()
                continue
            leaf = self._leaf(top)
            if leaf is not None:
                self._arrays[top] = array_of(leaf)
                continue
            node, index = self._producer(top)
            missing = [c for c in node.children if c is not None and c not in self._arrays]
            if missing:
                todo += reversed(missing)
            else:
                self._arrays[top] = self._compute(node, index)
        return self._arrays[eclass]

    def _compute(self, node: ENode, index: int) -> np.ndarray:
        inputs = [None if c is None else self._arrays[c] for c in node.children]
        with np.errstate(all="ignore"):
            results = evaluate(node.op, node.attrs, inputs, max(node.outputs, 1))
        result = results[index]
        assert result is not None
        return result

    def _producer(self, eclass: int) -> tuple[ENode, int]:
        """An e-node of the class whose operands are derivable without the class itself."""
        ranks = self._derive()
        best: tuple[int, int] | None = None
        for n in self.snapshot.classes[eclass]:
            rank = self._rank(n, ranks)
            if rank is not None and rank < ranks[eclass] and (best is None or rank < best[0]):
                best = (rank, n)
        if best is None:
            raise OptimizationError(
                "a constant expression must be computable", actual=f"class {eclass} without a producer"
            )
        node = self.snapshot.nodes[best[1]]
        if node.kind != "part":
            return node, 0
        holder = node.children[0]
        assert holder is not None
        inner, _ = self._producer(holder)
        return inner, node.number

    def _rank(self, n: int, ranks: dict[int, int]) -> int | None:
        node = self.snapshot.nodes[n]
        if n in self.snapshot.unfit:
            return None
        if node.kind not in ("op", "part"):
            return 0 if node.kind == "const" else None
        worst = 0
        for child in node.children:
            if child is not None:
                if child not in ranks:
                    return None
                worst = max(worst, ranks[child])
        return worst

    def _derive(self) -> dict[int, int]:
        """Per constant class the height of its lowest derivation: an order in which all can be computed."""
        if self._ranks is None:
            snapshot = self.snapshot
            ranks = {c: 0 for c, v in enumerate(snapshot.value) if v is not None}
            waiting = [c for c, fixed in enumerate(snapshot.constant) if fixed and c not in ranks]
            readers: dict[int, list[int]] = {}
            for c in waiting:
                for child in dict.fromkeys(k for n in snapshot.classes[c] for k in snapshot.nodes[n].children):
                    if child is not None:
                        readers.setdefault(child, []).append(c)
            height = 0
            while waiting:
                height += 1
                ready = []
                for c in waiting:
                    found = (self._rank(n, ranks) for n in snapshot.classes[c])
                    if any(r is not None for r in found):
                        ready.append(c)
                ranks.update(dict.fromkeys(ready, height))
                # Only readers of a class that became derivable can become derivable in the next round.
                waiting = sorted({r for c in ready for r in readers.get(c, ()) if r not in ranks})
            self._ranks = ranks
        return self._ranks
