"""Why an operator does not run on a target, and the cost of the cheapest equal program in which it does.

That program is found by further extractions (:mod:`eqsat.report.forced`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from eqsat import units
from eqsat.egraph.judge_match import Judge
from eqsat.egraph.snapshot import ENode
from eqsat.explain.near_misses import NearMisses
from eqsat.explain.why import MatchAttempt, Why
from eqsat.extract.problem import Choice, Solution
from eqsat.extract.program_cost import HOST, ProgramCost, cost_of, needed
from eqsat.report.by_values import NodeValues, covered
from eqsat.report.forced import Forcing
from eqsat.rules.expand import operators
from eqsat.stages.price import PricedGraph


@dataclass(frozen=True, slots=True)
class Placement:
    """Where an operator of the input runs, and what it takes to run it on a target.

    Attributes:
        node: Its first result.
        op: The operator.
        target: The target in question.
        outcome: ``"there"``: the cheapest program runs it there; ``"dearer"``: another program does, for ``extra``
            seconds more; ``"impossible"``: none does; ``"not computed"``: it is a constant or an input.
        kernel: What runs it: in that program, or in the cheapest one if none runs it there.
        runs_on: The target of that kernel; of several kernels, as an equal expression may have, all targets.
        extra: Seconds that the program costs more, and of these those of kernels, copies and dispatch.
        kernels, copies, dispatch: See ``extra``.
        proven: Whether no such program is cheaper.
        here, there: Seconds of the operator alone on the host and on the target, None where it cannot run alone.
        reason: Why no program runs it there, or why nothing computes it.
        nearest: The composite of the target that is nearest to a match, empty if there is none.
        place: Where, and what it lacks.
    """

    node: str
    op: str
    target: str
    outcome: str
    kernel: str = ""
    runs_on: str = ""
    extra: float = 0.0
    kernels: float = 0.0
    copies: float = 0.0
    dispatch: float = 0.0
    proven: bool = True
    here: float | None = None
    there: float | None = None
    reason: str = ""
    nearest: str = ""
    place: MatchAttempt | None = None

    def __str__(self) -> str:
        head = f"{self.node} ({self.op})"
        if self.outcome == "not computed":
            return f"{head}: {self.reason}"
        if self.outcome == "there":
            return f"{head}: it runs on {self.target}, as {self.kernel}"
        if self.outcome == "impossible":
            lines = [f"{head}: no equal program runs it on {self.target}: {self.reason}"]
            if self.place is not None:
                lines.append(f"  nearest: {self.nearest}, at {self.place}")
            return "\n".join(lines)
        most = "" if self.proven else "at most "
        lines = [f"{head}: the cheapest program that runs it on {self.target} costs {most}{_signed(self.extra)}"]
        lines[0] += f", and runs it as {self.kernel}"
        parts = (("kernels", self.kernels), ("copies", self.copies), ("dispatch", self.dispatch))
        lines.append("  " + ", ".join(f"{name} {_signed(value)}" for name, value in parts))
        alone = [
            f"{units.seconds(s)} on {t}"
            for s, t in ((self.here, "the host"), (self.there, self.target))
            if s is not None
        ]
        if alone:
            lines.append(f"  the operator alone: {', '.join(alone)}")
        return "\n".join(lines)


def _signed(value: float) -> str:
    return f"{units.seconds(abs(value))} {'less' if value < 0 else 'more'}"


class Placements:
    """Answers the question for one e-graph and its cheapest program.

    Args:
        priced: The e-graph with its costs.
        best: Its cheapest program.
        seconds: For each further extraction.
    """

    def __init__(self, priced: PricedGraph, best: Solution, seconds: float) -> None:
        self.priced = priced
        self.formulation = priced.formulation
        self.problem = priced.formulation.problem
        self.snapshot = priced.formulation.snapshot
        self.best = best
        self.seconds = seconds
        self.before = cost_of(self.problem, best.choices)
        self.judge = Judge(priced.saturated.saturation, self.snapshot, priced.pricing.facts)
        self.near_misses = NearMisses(self.judge)

    def of(self, name: str, eclass: int, target: int) -> Placement:
        """The answer for the operator of the input that computes a class.

        Args:
            name: Of the class.
            eclass: In the snapshot.
            target: By number.
        """
        where = self.problem.targets[target]
        position = self.formulation.position.get(eclass)
        own = None if position is None else self.formulation.original.get(position)
        if position is None:
            return Placement(name, "constant", where, "not computed", reason="it is a constant, computed in advance")
        if own is None:
            return Placement(name, "operator", where, "not computed", reason="it needs a newer opset than is allowed")
        if self._node(own).kind == "input":
            return Placement(name, "input", where, "not computed", reason="it is an input of the model")
        node, positions = self._node(own), [position]
        if node.kind == "part" and node.children[0] is not None:
            positions.append(self.formulation.position[node.children[0]])
            node = self._node(self.formulation.original[positions[-1]])
        pricing = self.priced.pricing
        here, there = (_finite(pricing.cost(node, t)) for t in (HOST, target))
        head = Placement(name, str(node.op), where, "impossible", here=here, there=there)
        kernels = self._kernels(self.best.choices, positions[-1])
        head = replace(head, kernel=self._named(kernels), runs_on=self._where(kernels))
        if self._all_on(kernels, target):
            return replace(head, outcome="there")
        forced = Forcing(
            self.problem,
            needed(self.problem, self.formulation.original) or {},
            positions,
            target,
            lambda n: self._contains(n, node),
            lambda choices: self._all_on(self._kernels(choices, positions[-1]), target),
            self.seconds,
        ).cheapest()
        if forced is None:
            return self._impossible(head, node, eclass, target)
        name = self._named(self._kernels(forced.choices, positions[-1]))
        parts = _differences(self.before, cost_of(self.problem, forced.choices))
        return replace(head, outcome="dearer", kernel=name, runs_on=where, proven=forced.proven, **parts)

    # ---- programs -----------------------------------------------------------------------------------

    def _node(self, choice: Choice) -> ENode:
        return self.snapshot.nodes[self.formulation.node[choice.node]]

    def _kernels(self, choices: Mapping[int, Choice], position: int) -> list[Choice]:
        """The kernels of a program that replace the operator of the input that computes a class."""
        own = needed(self.problem, self.formulation.original) or {}
        if position not in own:
            return []
        inputs = {p for p, c in own.items() if self._node(c).kind == "input"}
        stands_for = covered(self._steps(own, inputs), self._steps(choices, inputs), inputs)
        place = [p for p in own if p not in inputs].index(position)
        kernels = [c for p, c in choices.items() if p not in inputs]
        found = [k for k, nodes in zip(kernels, stands_for, strict=True) if place in nodes]
        return [k for k in found if self._node(k).kind != "part"]

    def _all_on(self, kernels: Sequence[Choice], target: int) -> bool:
        return bool(kernels) and all(k.target == target for k in kernels)

    def _named(self, kernels: Sequence[Choice]) -> str:
        return ", ".join(dict.fromkeys(str(self._node(k).op) for k in kernels))

    def _where(self, kernels: Sequence[Choice]) -> str:
        return ", ".join(dict.fromkeys(self.problem.targets[k.target] for k in kernels))

    def _steps(self, choices: Mapping[int, Choice], inputs: set[int]) -> list[NodeValues]:
        return [NodeValues(self.problem.children[c.node], (p,)) for p, c in choices.items() if p not in inputs]

    def _contains(self, problem_node: int, wanted: ENode) -> bool:
        """Whether an e-node is the operator, alone or within a composite, or an output of it."""
        found = self.snapshot.nodes[self.formulation.node[problem_node]]
        if found.composite is not None:
            return any(part.op == wanted.op for part in found.composite.body.nodes)
        return found.kind == "part" or found.op == wanted.op

    # ---- reasons ------------------------------------------------------------------------------------

    def _impossible(self, head: Placement, node: ENode, eclass: int, target: int) -> Placement:
        pricing = self.priced.pricing
        declared = pricing.costs.targets[target]
        reason = pricing.costs.why_not(target, node.op, node.attrs, pricing.operands(node), pricing.outputs(node))
        if reason and not any(node.op in entry.ops for entry in declared.supports):
            reason = self.near_misses.reason(declared, node, reason)
        why = Why(self.judge)
        best: tuple[float, str, MatchAttempt] | None = None
        for composite in declared.composites:
            if node.op not in operators(*composite.patterns):
                continue
            for place in why.places(composite, declared.name, {eclass})[:1]:
                near = len(place.matched) / place.operators
                if best is None or near > best[0]:
                    best = near, f"{declared.name}.{composite.name}", place
        reason = reason or "its operands or results cannot be copied there"
        return replace(head, reason=reason, nearest=best[1] if best else "", place=best[2] if best else None)


def _differences(before: ProgramCost, after: ProgramCost) -> dict[str, float]:
    return {
        "extra": after.total - before.total,
        "kernels": after.nodes - before.nodes,
        "copies": after.copies - before.copies,
        "dispatch": after.dispatch - before.dispatch,
    }


def _finite(seconds: float) -> float | None:
    return float(seconds) if np.isfinite(seconds) else None
