"""The verdict on two models: equal, different, or equal on some inputs and not proven."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from eqsat.execute.difference import Difference
from eqsat.report.trust import TrustInRules
from eqsat.rules.selection import NumericsClass
from eqsat.rules.verdicts import Trust
from eqsat.text import name_of

Verdict = Literal["equal", "different", "not proven"]
_MEANING: dict[str, str] = {
    "exact": "to the bit",
    "lsb": "up to the last place",
    "real": "up to rounding",
    "approximate": "up to an approximation",
}


@dataclass(frozen=True, slots=True)
class Joint:
    """Two tensors that are equal, and why.

    Attributes:
        first: Name in the first model.
        second: Name in the second model.
        operators: Operators that compute them.
        rules: Names of rules and steps of arithmetic, in order from the first tensor to the second.
        numerics: The weakest class of these rules.
        model: ``"first"`` or ``"second"`` if both are tensors of one model.
        proof: The weakest verdict on these rules; None if there is no rule, or none is known of one.
    """

    first: str
    second: str
    operators: tuple[str, str]
    rules: tuple[str, ...]
    numerics: NumericsClass
    model: str = ""
    proof: Trust | None = None


@dataclass(frozen=True, slots=True)
class DivergencePoint:
    """The first tensors, in order of execution, that are not joined.

    Attributes:
        first: Name in the first model; empty if all of it is joined.
        second: Name in the second model; likewise.
        operators: Operators that compute them.
        reason: Why they are not joined.
    """

    first: str
    second: str
    operators: tuple[str, str]
    reason: str = ""

    def __str__(self) -> str:
        parts = [
            f"{name_of(name)} ({name_of(op)})" if name else "nothing"
            for name, op in zip((self.first, self.second), self.operators, strict=True)
        ]
        return " and ".join(parts) + (f": {self.reason}" if self.reason else "")


@dataclass(frozen=True, slots=True)
class Counterexample:
    """An input on which the models differ.

    Attributes:
        number: Of the input, from 0.
        inputs: Arrays by the first model's name.
        difference: Of the first output that differs: the index, and both values.
    """

    number: int
    inputs: Mapping[str, Any] = field(repr=False)
    difference: Difference


@dataclass(frozen=True, slots=True)
class Equivalence:
    """The result of comparing two models.

    Attributes:
        verdict: ``"equal"`` is proven by rules, ``"different"`` is shown by an input.
        numerics: How far equal models may differ in values: the weakest class of all rules that were used.
        outputs: Pairs of names; whether each is proven.
        joints: Tensors that rules joined, in order of execution.
        shared: Tensors that were joined because they are computed in the same way.
        used: All rules that suffice for the proof.
        places: The first tensors that are not joined.
        counterexample: A counterexample if the models differ.
        samples: Number of inputs on which both were executed.
        inputs: Pairs of names that were treated as the same input.
        notes: Assumptions, a sentence each.
        stop_reason: Why the search for a proof ended early; empty if it did not.
        enodes: Size of all e-graphs.
        seconds: CPU seconds by stage.
        trust: Verdicts on the rules in ``used``, and the weakest link among them.
    """

    verdict: Verdict
    numerics: NumericsClass
    outputs: tuple[tuple[str, str, bool], ...]
    joints: tuple[Joint, ...] = ()
    shared: int = 0
    used: tuple[str, ...] = ()
    places: tuple[DivergencePoint, ...] = ()
    counterexample: Counterexample | None = None
    samples: int = 0
    inputs: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    stop_reason: str = ""
    enodes: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)
    trust: TrustInRules = field(default_factory=lambda: TrustInRules(()))

    def __str__(self) -> str:
        if self.verdict == "equal":
            return f"equal {_MEANING[self.numerics]}"
        if self.counterexample is not None:
            return f"different: output {name_of(self.counterexample.difference.name)}, {self.counterexample.difference}"
        inputs = "1 input" if self.samples == 1 else f"{self.samples} inputs"
        return f"equal on {inputs}, not proven" if self.samples else "neither proven equal nor executed"
