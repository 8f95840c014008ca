"""Checks one rule: draws instances of each clause of its pattern, rewrites them, executes both sides, compares."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from eqsat.check import verdict
from eqsat.check.attempt import draw
from eqsat.check.audit import Audit, Claim
from eqsat.check.data import Mood
from eqsat.check.domain import differing
from eqsat.check.drawing import Drawing
from eqsat.check.instance import Instance
from eqsat.check.oracle import Oracle, own_kernels
from eqsat.check.outcome import Counterexample, Outcome
from eqsat.errors import LimitError, reason
from eqsat.execute.difference import Difference
from eqsat.ops.sampling.chance import Chance, Rejected
from eqsat.rules.ast import Numerics, Rule
from eqsat.rules.expand import expand
from eqsat.schema.functions import declared

Observed = tuple[Instance, Mapping[str, np.ndarray], Claim, np.ndarray]
Observer = Callable[[Instance, Mapping[str, np.ndarray], Claim, np.ndarray], None]
PATIENCE = 400
"""Attempts for one instance; several times as many for the first of a clause."""
MISMATCHES = 10
"""Instances of a clause on which the rule was not applied, before it is given up while it has no other."""


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
        instances: How many, at least; each clause of the pattern gets one if it can.
        seed: Other instances for another number.
        oracle: What operators compute.
        stop: Counterexamples after which the check ends.
        bitwise: Also find out whether a rule of class ``real`` could be ``exact``.
        observe: Called with each instance, the values of its left side by name, the two sides that were compared, and
            where they differ beyond the rule's claim.
        pointed: Also draw at the numbers that the rule mentions, and as its conditions ask for.
        attempts: To draw instances, all in all; by default as many as it takes, up to some hundred for each.

    Returns:
        The counterexamples, and what else was seen.
    """
    with declared(rule.operators):
        return _Check(rule, oracle, seed, bitwise, observe, attempts, pointed).run(max(instances, 1), stop)


def strange(error: Exception) -> str:
    """What is said of an instance that ended with an exception that nobody foresaw."""
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
            mood: Mood = "special" if self._wants_specials(number) else "plain"
            try:
                instance = draw(drawing, chance, mood)
                self._examine(instance, clause, seed, mood)
                drawing.learn(instance)
            except LimitError:
                raise
            except Exception as error:  # operators of users and others' libraries are among what is executed
                text = str(error)[:200] if isinstance(error, Rejected) else strange(error)
                outcome.rejections[text] = outcome.rejections.get(text, 0) + 1
                continue
            outcome.instances += 1
            outcome.clauses[clause] += 1
            return

    def _wants_specials(self, number: int) -> bool:
        return number % 2 == 1 and (self.rule.numerics.kind == "exact" or self.bitwise)

    # ---- one instance ---------------------------------------------------------------------------------

    def _examine(self, instance: Instance, clause: int, seed: tuple[int, ...], mood: Mood) -> None:
        outcome = self.outcome
        audit = Audit.of(instance, self.oracle)
        if audit.statistics.mismatches:
            outcome.mismatches[clause] = outcome.mismatches.get(clause, 0) + 1
            if outcome.mismatch is None:
                message = f"the right side has another type: {audit.statistics.mismatch}"
                outcome.mismatch = Counterexample(self.rule, "mismatch", instance, message, seed=seed)
            raise Rejected("the right side has another type")
        if audit.statistics.misfits and not audit.statistics.applied:
            raise Rejected(f"a constant of the right side is out of range: {audit.statistics.misfit}")
        if not audit.statistics.applied:
            message = "all conditions hold and yet the rule does not apply"
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
            # Such data are beyond the claim of the class; they only show whether it could claim more.
            self._count(claims, scale)
            return
        wide: list[Claim] | None = None
        for k, claim in enumerate(claims):
            if claim.right is None:
                self._report("failure", instance, claim.failure, seed, claim)
                return
            difference = self._judge(claim, scale)
            if not difference.agrees and self._may_be_rounding(claim):
                if wide is None:
                    wide_values, wide = audit.execute(wide=True)
                    scale = verdict.scale_of(wide_values.values())
                difference = self._judge_wide(wide[k], scale, difference)
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
        name = claim.left.dtype.name
        rtol = self.tolerance if name == "float64" else verdict.NARROW.get(name, 0.0)
        # Folding a constant may round as any execution does; the rule has no part in it.
        numerics = Numerics("real") if claim.folded else self.rule.numerics
        return verdict.judge(numerics, claim.left, claim.right, rtol, scale)

    def _where(self, claim: Claim, scale: float) -> np.ndarray:
        assert claim.right is not None
        numerics, name = self.rule.numerics, claim.left.dtype.name
        if numerics.kind == "exact":
            return differing(claim.left, claim.right, None)
        if verdict.widened(claim.left).dtype.kind != "f":
            return differing(claim.left, claim.right, float(numerics.lsb))
        rtol = self.tolerance if name == "float64" else verdict.NARROW.get(name, 0.0)
        return differing(claim.left, claim.right, rtol * scale)

    def _may_be_rounding(self, claim: Claim) -> bool:
        return self.rule.numerics.kind == "real" and claim.left.dtype.name in verdict.NARROW

    def _judge_wide(self, claim: Claim, scale: float, before: Difference) -> Difference:
        if claim.right is None or claim.left.dtype != np.float64 or claim.right.dtype != np.float64:
            return before
        after = verdict.judge(self.rule.numerics, claim.left, claim.right, verdict.FLOAT64_OF_DECIMALS, scale)
        return before if not after.agrees else after

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
        found = Counterexample(self.rule, kind, instance, message, seed=seed)
        if claim is not None:
            both = None if claim.right is None else (claim.left, claim.right)
            found = replace(found, name=claim.name, right=claim.program, values=both)
        self.outcome.counterexamples.append(found)
