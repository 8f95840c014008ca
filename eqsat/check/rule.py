"""Checks one rule: draws instances of each clause of its pattern, rewrites them, executes both sides, compares."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from eqsat.check import verdict
from eqsat.check.attempt import draw
from eqsat.check.audit import Audit, Claim
from eqsat.check.domain import differing
from eqsat.check.draw_state import Drawing
from eqsat.check.instance import Instance
from eqsat.check.instance_data import Mood
from eqsat.check.oracle import Oracle, own_kernels
from eqsat.check.outcome import Outcome, RuleCounterexample
from eqsat.check.rounding import Rounding, is_beside_itself
from eqsat.check.sides_of_or import sides
from eqsat.errors import LimitError, reason
from eqsat.execute.difference import Difference
from eqsat.ops.sampling.chance import Chance, Rejected
from eqsat.rules.ast import Numerics, Rule
from eqsat.rules.expand import expand
from eqsat.schema.declared_operators import declared

ObservedInstance = tuple[Instance, Mapping[str, np.ndarray], Claim, np.ndarray]
Observer = Callable[[Instance, Mapping[str, np.ndarray], Claim, np.ndarray], None]
PATIENCE = 400
"""Attempts for one instance; several times as many for the first of a clause."""
MISMATCHES = 40
"""Instances of a clause to which the rule was not applied, after which the clause is given up if it has no other."""


def check_rule(
    rule: Rule,
    *,
    instances: int = 20,
    seed: int = 0,
    oracle: Oracle = own_kernels,
    stop: int = 1,
    bitwise: bool = False,
    observe: Observer | None = None,
    attempts: int | None = None,
    pointed: bool = False,
) -> Outcome:
    """Executes a rule on random instances.

    Args:
        instances: Least number of instances; each clause of the pattern gets one if possible.
        seed: Seed of the instances.
        oracle: Evaluates operators.
        stop: Counterexamples after which the check ends.
        bitwise: Also find out whether a rule of class ``real`` could be ``exact``.
        observe: Called with each instance, the values of its left side by name, the two sides that were compared, and
            where they differ beyond the rule's claim.
        pointed: Whether to draw also at the numbers that the rule mentions, and as its conditions require.
        attempts: Limit of attempts to draw instances; by default some hundred for each instance.

    Returns:
        The counterexamples and other results.
    """
    with declared(rule.operators):
        return _Check(rule, oracle, seed, bitwise, observe, attempts, pointed).run(max(instances, 1), stop)


def strange(error: Exception) -> str:
    """The message for an instance that ended with an unexpected exception."""
    return f"an instance ended with {type(error).__name__}: {reason(error)}"[:200]


class _Check:
    def __init__(
        self,
        rule: Rule,
        oracle: Oracle,
        seed: int,
        bitwise: bool,
        observe: Observer | None,
        attempts: int | None,
        pointed: bool,
    ) -> None:
        self.rule = rule
        self.oracle = oracle
        self.seed = (seed, zlib.crc32(rule.name.encode()))
        self.bitwise = bitwise
        self.observe = observe
        self.pointed = pointed
        self.attempts = math.inf if attempts is None else attempts
        self.outcome = Outcome(rule)
        self.tolerance = verdict.tolerance_of(rule)
        self.silent: dict[int, int] = {}
        """By clause, on how many instances it did not apply although its conditions hold."""

    def run(self, instances: int, stop: int) -> Outcome:
        drawings = [Drawing(self.rule, clause, self.pointed) for clause in expand(self.rule.left)]
        outcome = self.outcome
        outcome.clauses = dict.fromkeys(range(len(drawings)), 0)
        outcome.unmet = list(dict.fromkeys(side for drawing in drawings for side in sides(drawing.conditions)))
        for number in range(max(instances, len(drawings))):
            clause = number % len(drawings)
            self._one(drawings[clause], clause, number)
            if sum(c.kind != "silent" for c in outcome.counterexamples) >= stop:
                break
        return outcome

    def _one(self, drawing: Drawing, clause: int, number: int) -> None:
        outcome = self.outcome
        if not outcome.clauses[clause] and number >= len(outcome.clauses):
            return  # It was tried long enough.
        patience = PATIENCE * (1 if outcome.clauses[clause] else 10)
        for attempt in range(patience):
            in_vain = outcome.mismatches.get(clause, 0) + self.silent.get(clause, 0)
            if in_vain >= MISMATCHES and not outcome.clauses[clause]:
                return
            if outcome.attempts >= self.attempts:
                return
            outcome.attempts += 1
            seed = (*self.seed, number, attempt)
            chance = Chance(*seed)
            mood = self._mood(number)
            try:
                instance = draw(drawing, chance, mood)
                self._examine(instance, clause, seed, mood)
                drawing.learn(instance)
            except LimitError:
                raise
            except Exception as error:  # operators of users and other libraries may be among the executed ones
                text = str(error)[:200] if isinstance(error, Rejected) else strange(error)
                outcome.rejections[text] = outcome.rejections.get(text, 0) + 1
                continue
            outcome.instances += 1
            outcome.clauses[clause] += 1
            outcome.unmet = [side for side in outcome.unmet if side not in instance.met]
            return

    def _mood(self, number: int) -> Mood:
        if number % 2 == 1 and (self.rule.numerics.kind == "exact" or self.bitwise):
            return "special"
        return "grid" if self.pointed and number % 4 == 2 else "plain"

    # ---- one instance ---------------------------------------------------------------------------------

    def _examine(self, instance: Instance, clause: int, seed: tuple[int, ...], mood: Mood) -> None:
        outcome = self.outcome
        audit = Audit.of(instance, self.oracle)
        if audit.statistics.mismatches:
            outcome.mismatches[clause] = outcome.mismatches.get(clause, 0) + 1
            if outcome.mismatch is None:
                message = f"the right side has another type: {audit.statistics.mismatch}"
                outcome.mismatch = RuleCounterexample(self.rule, "mismatch", instance, message, seed=seed)
            raise Rejected("the right side has another type")
        if audit.statistics.misfits and not audit.statistics.applied:
            raise Rejected(f"a constant of the right side is out of range: {audit.statistics.misfit}")
        if not audit.statistics.applied:
            message = "all conditions hold and yet the rule does not apply"
            message += f": {audit.statistics.unknown}" if audit.statistics.unknown else ""
            if not self.silent:
                self._report("silent", instance, message, seed)
            self.silent[clause] = self.silent.get(clause, 0) + 1
            raise Rejected(message)
        values, claims = audit.execute()
        if not claims:
            if self.observe is not None:  # Both sides are the same program.
                left = audit.left_values[instance.roots[0]]
                same = Claim(instance.roots[0], left, "", left)
                self.observe(instance, audit.left_values, same, np.zeros(left.shape, bool))
            raise Rejected("nothing to compare")
        wrong = next(audit.wrong_types(values), None)
        if wrong is not None:
            self._report("type", instance, wrong, seed)
            return
        scale = verdict.scale_of(values.values())
        if mood == "special" and self.rule.numerics.kind != "exact":
            # The class does not claim anything for such data; they only show whether it could claim more.
            self._count(claims, scale)
            return
        rounding = Rounding(audit, self._reach(claims))
        for k, claim in enumerate(claims):
            if claim.right is None:
                self._report("failure", instance, claim.failure, seed, claim)
                return
            difference = self._judge(claim, scale)
            if self._may_be_rounding(claim, difference):
                difference = self._judge_rounding(rounding, k, difference)
            if self.observe is not None and not claim.folded:
                differs = self._where(claim, scale) if not difference.agrees else np.zeros(claim.left.shape, bool)
                self.observe(instance, audit.left_values, claim, differs)
            if not difference.agrees:
                self._report("value", instance, str(difference), seed, claim)
                return
        self._count(claims, scale)
        root = values[audit.class_of(instance.roots[0])].dtype.name
        outcome.dtypes[root] = outcome.dtypes.get(root, 0) + 1

    def _judge(self, claim: Claim, scale: float) -> Difference:
        assert claim.right is not None
        # Folding a constant may round as any execution does; the rule has no part in it.
        numerics = Numerics("real") if claim.folded else self.rule.numerics
        return verdict.judge(numerics, claim.left, claim.right, self._tolerance(claim), scale)

    def _where(self, claim: Claim, scale: float) -> np.ndarray:
        assert claim.right is not None
        numerics = self.rule.numerics
        if numerics.kind == "exact":
            return differing(claim.left, claim.right, None)
        if verdict.widened(claim.left).dtype.kind != "f":
            return differing(claim.left, claim.right, float(numerics.lsb))
        return differing(claim.left, claim.right, self._tolerance(claim) * scale)

    def _may_be_rounding(self, claim: Claim, difference: Difference) -> bool:
        """Whether a difference must be examined again, or an agreement that only large intermediate numbers allow."""
        if self.rule.numerics.kind != "real" or claim.folded:
            return False
        rtol = self._tolerance(claim)
        return not difference.agrees or (rtol > 0 and is_beside_itself(claim, rtol, verdict.widened))

    def _judge_rounding(self, rounding: Rounding, k: int, before: Difference) -> Difference:
        """The difference in wider floats.

        Raises:
            Rejected: Rounding decides on which side of a jump the values are, so that nothing follows.
        """
        try:
            values, claims = rounding.wide
        except Rejected:  # The oracle does not have such floats.
            return before
        claim, scale = claims[k], verdict.scale_of(values.values())
        if claim.right is None or claim.left.dtype.name in verdict.FOREIGN or claim.left.dtype != claim.right.dtype:
            return before
        after = verdict.judge(self.rule.numerics, claim.left, claim.right, rounding.reach, scale)
        if after.agrees:
            if is_beside_itself(claim, rounding.reach, verdict.widened) and not rounding.explains(k):
                return verdict.judge(self.rule.numerics, claim.left, claim.right, 0.0, scale)
            return after
        if before.agrees or rounding.is_exact or not rounding.explains(k):
            return before if not before.agrees else after
        raise Rejected("rounding decides between two results")

    def _reach(self, claims: Sequence[Claim]) -> float:
        """Relative size of roundings of constants and attributes, next to which those of float64 are negligible."""
        names = {claim.left.dtype.name for claim in claims}
        return verdict.FLOAT64_OF_DECIMALS if names - {"float64"} else self.tolerance

    def _tolerance(self, claim: Claim) -> float:
        name = claim.left.dtype.name
        return self.tolerance if name == "float64" else verdict.NARROW.get(name, 0.0)

    def _count(self, claims: list[Claim], scale: float) -> None:
        outcome = self.outcome
        for claim in claims:
            if claim.right is None or claim.folded:
                continue
            exact = verdict.judge(Numerics("exact"), claim.left, claim.right, 0.0, 0.0)
            outcome.bitwise &= exact.agrees
            if claim.left.dtype == np.float64 and scale and np.isfinite(exact.max_abs_error):
                outcome.worst = max(outcome.worst, exact.max_abs_error / scale)

    def _report(
        self, kind: str, instance: Instance, message: str, seed: tuple[int, ...], claim: Claim | None = None
    ) -> None:
        found = RuleCounterexample(self.rule, kind, instance, message, seed=seed)
        if claim is not None:
            both = None if claim.right is None else (claim.left, claim.right)
            found = replace(found, name=claim.name, right=claim.program, values=both)
        self.outcome.counterexamples.append(found)
