"""Proves step by step that two models are equal.

1. Tensors that have equal values on random inputs are grouped (:mod:`candidates`).
2. Both models are cut at these groups, and all pieces go into one e-graph (:mod:`piece`). Its size is that of the
   models, and what rules add stays within a piece.
3. Pieces that end in one class are equal if the tensors that they read are. That is not circular: a tensor counts as
  joined only once what its piece reads has been joined, starting with inputs and constants.
4. Pieces that no rule joins pass further cuts in the next round. What cannot be joined even so is not a cut any more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from eqsat.audit.unions import Unions
from eqsat.egraph.engine import TimeUp
from eqsat.egraph.limits import Limits
from eqsat.egraph.saturate import Saturation
from eqsat.equivalence.candidates import ClassGroup
from eqsat.equivalence.closure import ROUNDED, ConstantClosure
from eqsat.equivalence.piece import Cutter, Goal, PieceModel
from eqsat.equivalence.tensors import Tensors
from eqsat.rules.ast import Rule
from eqsat.stages.clock import Clock
from eqsat.stages.event import Event

DEPTH = 3
"""Steps in which pieces become longer before their end is given up as a cut."""
ROUNDS = (6, 10, 16, 30)
"""Rounds of rules by depth: most pieces differ by few rules."""
GROWTH = (8, 12, 16, 19)
"""E-nodes by depth for each operator."""
LEAST_GROWTH = (400, 1000, 2500, 5000)
"""E-nodes by depth that rules may add at least."""
OPERATORS = 400
"""Operators of one e-graph, at least: further groups go into the next one."""
WORK_PER_SECOND = 1 / 2
"""Of a time limit: what the e-graphs of a proof may do together, in units of :class:`Saturation`. Reading what they
found takes as long again."""
LEAST_WORK = 1.0
"""Of an e-graph, also of the last one."""


@dataclass(frozen=True, slots=True)
class JoinedPair:
    """A tensor of the second model that is joined with one of the first.

    Attributes:
        left: Number of the first model's tensor.
        right: Number of the other one.
        rules: That lead from one to the other, and other steps, in order; empty if the operators are the same.
    """

    left: int
    right: int
    rules: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Claim:
    """Two tensors are equal if the tensors in each of the sets are."""

    left: int
    right: int
    group: int
    needs: tuple[tuple[int, frozenset[int]], ...]
    rules: tuple[str, ...]
    used: frozenset[str]


@dataclass
class Proof:
    """The proven facts.

    Attributes:
        tensors: Of both models; their partition holds what is joined.
        steps: In the order in which they were proven.
        used: Rules that suffice for all steps, and steps without a rule.
        enodes: E-nodes of all e-graphs.
        work: Of all e-graphs, in units of :class:`Saturation`.
        over: ``"work limit"``, or ``"time limit"`` for the last guard, if the search ended early; otherwise empty.
    """

    tensors: Tensors
    steps: list[JoinedPair] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    enodes: int = 0
    work: float = 0.0
    over: str = ""


class Prover:
    """The search for a proof.

    Args:
        tensors: Of both models.
        groups: Tensors that may be equal.
        ends: Pairs of outputs to be proven.
        rules: All that may be used.
        clock: Of the composition; the limit is that of the work.
        rounded: Whether constants that differ by rounding count as equal.
    """

    def __init__(
        self,
        tensors: Tensors,
        groups: Sequence[ClassGroup],
        ends: Sequence[tuple[int, int]],
        rules: Sequence[Rule],
        clock: Clock,
        *,
        rounded: bool = True,
    ) -> None:
        self.tensors = tensors
        self.rounded = rounded
        self.rules = tuple(rules)
        self.clock = clock
        self.ends = tuple(ends)
        self.proof = Proof(tensors)
        self._groups: dict[int, ClassGroup] = {}
        self._cuts: dict[int, int] = {}
        self._depth: dict[int, int] = {}
        self._tried: set[int] = set()
        self._reads: dict[int, set[int]] = {}
        self._claims: list[_Claim] = []
        for group in groups:
            self._open(group)
        for pair in self.ends:
            if len({self._cuts.get(k, -1) for k in pair}) > 1 or pair[0] not in self._cuts:
                self._goal(list(dict.fromkeys(pair)))

    def run(self) -> Proof:
        """Proves until the ends are joined, nothing is left to be tried, or the work is done."""
        try:
            while not self.is_proven():
                if self._left <= 0:
                    self.proof.over = "work limit"
                    break
                if not self._round():
                    break
        except TimeUp:
            self.proof.over = "time limit"
        return self.proof

    @property
    def _left(self) -> float:
        return WORK_PER_SECOND * self.clock.limit - self.proof.work

    def is_proven(self) -> bool:
        """Whether all ends are joined."""
        return all(self.tensors.joined.same(a, b) for a, b in self.ends)

    # ---- groups -----------------------------------------------------------------------------------

    def _goal(self, group: ClassGroup) -> int:
        number = len(self._depth)
        self._groups[number] = group
        self._depth[number] = 0
        return number

    def _open(self, group: ClassGroup) -> None:
        """Makes a group a cut."""
        self._cuts |= dict.fromkeys(group, self._goal(group))

    def _open_groups(self) -> list[int]:
        """Groups whose tensors are not all joined, without those that only wait for others."""
        waiting = {claim.group for claim in self._claims}
        same = self.tensors.joined.find
        return [n for n, g in self._groups.items() if n not in waiting and len({same(k) for k in g}) > 1]

    def _give_up(self, number: int) -> None:
        """Cuts no more at a group, except at those of its tensors that are joined."""
        group = self._groups[number]
        self._cuts = {k: n for k, n in self._cuts.items() if n != number}
        if not any({a, b} <= set(group) for a, b in self.ends):
            del self._groups[number]
        parts: dict[int, ClassGroup] = {}
        for k in group:
            parts.setdefault(self.tensors.joined.find(k), []).append(k)
        for part in parts.values():
            if {self.tensors.side[k] for k in part} == {0, 1}:
                self._open(part)
        # What read the cut has other pieces now.
        self._claims = [claim for claim in self._claims if all(g != number for g, _ in claim.needs)]
        self._tried -= {n for n, reads in self._reads.items() if number in reads}

    # ---- rounds -----------------------------------------------------------------------------------

    def _round(self) -> bool:
        """Tries the groups that have not been tried, otherwise makes pieces longer; returns whether there was anything
        to try.
        """
        numbers = [n for n in self._open_groups() if n not in self._tried]
        if not numbers:
            return self._retry()
        for batch, pieces in self._batches(numbers):
            if self._left <= 0 or self.is_proven():
                break
            self._attempt(batch, pieces)
            self._tried.update(batch)
            self._conclude()
        return True

    def _retry(self) -> bool:
        """Whether any group can be tried in another way."""
        stuck = self._open_groups()
        longer = [n for n in stuck if self._depth[n] < DEPTH]
        for n in longer:
            self._depth[n] += 1
            self._tried.discard(n)
        if longer:
            return True
        cutting = set(self._cuts.values())
        cut = [n for n in stuck if n in cutting]
        # Claims that wait for each other all the way round rest on a cut that nothing joins.
        cut = cut or [g for claim in self._claims for g, _ in claim.needs if g in cutting][:1]
        for n in cut:
            self._give_up(n)
        return bool(cut)

    def _batches(self, numbers: Sequence[int]) -> Iterator[tuple[list[int], PieceModel]]:
        """Groups in order of execution with their pieces, about as many as make one e-graph."""
        batch: list[int] = []
        cutter = Cutter(self.tensors, self._cuts)
        for n in sorted(numbers, key=lambda n: self._groups[n]):
            batch.append(n)
            cutter.add(n, self._groups[n], self._depth[n])
            if cutter.size >= OPERATORS:
                yield batch, cutter.pieces()
                batch, cutter = [], Cutter(self.tensors, self._cuts)
        if batch:
            yield batch, cutter.pieces()

    def _attempt(self, batch: Sequence[int], pieces: PieceModel) -> None:
        """Saturates the pieces of some groups and records the equal ones."""
        closure = self._saturated(pieces, self.rules, max(self._depth[n] for n in batch))
        found = _equal(pieces, closure)
        if closure.unions.saturation.stop_reason == "saturated":
            for n in batch:
                if not any(self._can_grow(goal) for goal in pieces.goals if goal.group == n):
                    self._depth[n] = DEPTH
        for goal in pieces.goals:
            self._reads.setdefault(goal.group, set()).update(goal.leaves)
        if not found:
            return
        chains = [tuple(dict.fromkeys(e.rule for e in closure.chain(a.value, b.value))) for a, b in found]
        used = self._sufficient(pieces, closure, found, chains)
        for (a, b), chain in zip(found, chains, strict=True):
            needs: dict[int, set[int]] = {}
            for leaves in (a.leaves, b.leaves):
                for group, members in leaves.items():
                    needs.setdefault(group, set()).update(members)
            open_needs = tuple((g, frozenset(m)) for g, m in sorted(needs.items()))
            self._claims.append(_Claim(a.tensor, b.tensor, a.group, open_needs, chain, used))

    def _can_grow(self, goal: Goal) -> bool:
        """Whether a longer piece is another one."""
        makers = (self.tensors.maker(k) for members in goal.leaves.values() for k in members)
        return any(maker is not None and not maker.is_opaque for maker in makers)

    def _saturated(self, pieces: PieceModel, rules: Sequence[Rule], depth: int) -> ConstantClosure:
        size = len(pieces.model.graph)
        most = size + max(GROWTH[depth] * size, LEAST_GROWTH[depth])
        self.clock.say(Event("prove", step=size, enodes=self.proof.enodes))
        saturation = Saturation(
            pieces.model,
            rules,
            (),
            Limits(ROUNDS[depth], most, max(self._left, LEAST_WORK)),
            guard=self.clock.guard,
            record=True,
        )
        saturation.run()
        self.proof.enodes += saturation.enodes
        self.proof.work += saturation.work
        return ConstantClosure(Unions(saturation), rounded=self.rounded)

    def _sufficient(
        self,
        pieces: PieceModel,
        closure: ConstantClosure,
        found: Sequence[tuple[Goal, Goal]],
        chains: Sequence[tuple[str, ...]],
    ) -> frozenset[str]:
        """Rules that suffice for the joints.

        The shortest chain between two tensors does not name the rules that made its operands equal. So the chains'
        rules alone are tried again, and if they are not enough, all rules that united anything below.
        """
        steps = frozenset(step for chain in chains for step in chain)
        below = closure.below(goal.value for pair in found for goal in pair)
        applied = {s.name for s in closure.unions.saturation.statistics if s.applied}
        for names in (steps, steps | below):
            rules = [rule for rule in self.rules if rule.name in names]
            again = self._saturated(pieces, rules, DEPTH)
            if _holds(again, found):
                return (
                    frozenset(names)
                    if _holds(ConstantClosure(again.unions, rounded=False), found)
                    else names | {ROUNDED}
                )
        return steps | below | applied | {ROUNDED}

    def _conclude(self) -> None:
        """Joins the tensors of all claims whose needs are joined."""
        same = self.tensors.joined.find
        again = True
        while again:
            again = self.tensors.spread()
            for claim in self._claims.copy():
                if all(len({same(k) for k in members}) == 1 for _, members in claim.needs):
                    self._claims.remove(claim)
                    if self.tensors.joined.join(claim.left, claim.right):
                        self.proof.steps.append(JoinedPair(claim.left, claim.right, claim.rules))
                        self.proof.used |= claim.used
                        again = True


def _holds(closure: ConstantClosure, found: Sequence[tuple[Goal, Goal]]) -> bool:
    return all(closure.same(a.value, b.value) for a, b in found)


def _equal(pieces: PieceModel, closure: ConstantClosure) -> list[tuple[Goal, Goal]]:
    """Pairs of goals of one group that are equal; each goal with the first that it equals."""
    found: list[tuple[Goal, Goal]] = []
    firsts: dict[int, list[Goal]] = {}
    for goal in pieces.goals:
        known = firsts.setdefault(goal.group, [])
        first = next((f for f in known if closure.same(f.value, goal.value)), None)
        if first is None:
            known.append(goal)
        else:
            found.append((first, goal))
        # A tensor may equal a tensor of its group that it is computed from, such as a sum with zero.
        own = goal.leaves.get(goal.group, set())
        if len(own) == 1 and closure.same(pieces.cuts[goal.group], goal.value):
            found.append((Goal(next(iter(own)), goal.group, pieces.cuts[goal.group], {goal.group: own}), goal))
    return found
