"""The contents of a report about one optimization, as plain data.

The pipeline fills it in; the table, the page and the JSON only read it. Nothing here but seconds, measured times and
versions depends on the machine or on the moment.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from eqsat.audit.report import AuditReport
from eqsat.report.graphs import GraphComparison
from eqsat.report.memory_map import MemoryMap
from eqsat.report.provenance import Provenance
from eqsat.report.quantized import Quantization
from eqsat.report.trust import TrustInRules
from eqsat.targets.work import Limit, Work


@dataclass(frozen=True, slots=True)
class Totals:
    """One column of the before/after table. Constant expressions count nowhere: they cost nothing at run time.

    Attributes:
        cost: Seconds by the targets' cost model.
        operators: Standard operators that run, also those inside composites.
        composites: Coarse kernels, on any target.
        regions: Pieces of the program on accelerators; each is one launch from the host.
        host_operators: Standard operators that run on the host, also those inside its composites.
    """

    cost: float
    operators: int
    composites: int
    regions: int
    host_operators: int


@dataclass(frozen=True, slots=True)
class KernelRow:
    """One launch: a plain operator or a composite.

    Attributes:
        name: Its first output tensor.
        op: Operator or composite, such as ``dnnl.conv2d_bias_relu``.
        region: Name of its region.
        operators: The standard operators it computes, in order; one for a plain operator.
        cost: Seconds.
        rule: What made it; empty for an operator of the input model.
        place: ``file:line`` of that rule or composite.
        body: Where it is, if it is in a body: ``body of Loop 'loop'``; the cost is that of one run.
        work: What it computes and moves, and the target's times for that; None where it is not known.
        measured: Seconds of a run of the compiled program; None where it was not measured, or is part of another
            kernel there.
    """

    name: str
    op: str
    target: str
    region: str
    operators: tuple[str, ...]
    cost: float
    rule: str = ""
    place: str = ""
    body: str = ""
    work: Work | None = None
    measured: float | None = None

    @property
    def limit(self) -> Limit | None:
        """The resource that limits the kernel, by the target's rates; None if its work is unknown."""
        return None if self.work is None else self.work.limit

    @property
    def attained(self) -> float | None:
        """The share of the limiting rate that the kernel attains, in its measured time or else in its cost.

        Of a launch, which has no rate, the share of the time that it takes.
        """
        seconds = self.cost if self.measured is None else self.measured
        if self.work is None or seconds <= 0:
            return None
        return max(self.work.compute, self.work.memory, self.work.launch) / seconds


@dataclass(frozen=True, slots=True)
class RegionRow:
    """A piece of the program on one target, host pieces too, in execution order.

    Attributes:
        kernels: Launches in it.
        operators: Standard operators in it.
        inputs: Tensors it reads from outside, constants left out.
        outputs: Tensors that are read outside.
        cost: Seconds of its kernels, its dispatch and the copies it needs.
        body: Where it is, if it is in a body: ``body of Loop 'loop'``; the cost is that of one run.
        dispatch: Seconds to start it.
        copies: Seconds of the copies it needs between the memories of targets.
        nodes: The operator or composite of each kernel, in execution order.
    """

    name: str
    target: str
    kernels: int
    operators: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    cost: float
    body: str = ""
    dispatch: float = 0.0
    copies: float = 0.0
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RefusalRow:
    """Why a target does not run an operator: what it requires and what it finds, as one phrase.

    Attributes:
        cost: Seconds of the operator alone on that target, without copies and dispatch; None where it cannot run there.
    """

    target: str
    reason: str
    cost: float | None = None


@dataclass(frozen=True, slots=True)
class HostRow:
    """An operator that stays on the host, and the reason for each accelerator."""

    name: str
    op: str
    cost: float
    refusals: tuple[RefusalRow, ...]


@dataclass(frozen=True, slots=True)
class RuleRow:
    """The effect of one rule or composite.

    Attributes:
        place: ``file:line``.
        matches: How often its pattern matched.
        applied: On how many distinct signatures its conditions held.
        chosen: Kernels of the result that it made.
        held_back: Rounds in which it was held back because it matched too often.
        mismatches: On how many signatures its sides differ in type; there it is not applied.
        mismatch: The first such contradiction, empty if none.
        misfits: On how many signatures it would make a constant that its type cannot hold; there it is not applied.
        misfit: The first such constant, empty if none.
        undecided: On how many signatures its conditions hold at sizes where costs are taken, but not at all sizes.
        undecided_condition: The first such condition and these sizes, empty if none.
        seconds: Time of searching and applying.
    """

    name: str
    place: str
    matches: int
    applied: int = 0
    chosen: int = 0
    held_back: int = 0
    mismatches: int = 0
    mismatch: str = ""
    misfits: int = 0
    misfit: str = ""
    undecided: int = 0
    undecided_condition: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class GrowthRow:
    """A rule that added many e-nodes before a limit ended saturation.

    Attributes:
        enodes: How many it added.
        tensor: The tensor of the input model at which it added most: they compute it, or what it is computed from.
        op: The operator of the input model that computes the tensor.
        largest: How many it added there.
    """

    rule: str
    place: str
    enodes: int
    tensor: str
    op: str
    largest: int


@dataclass(frozen=True, slots=True)
class SaturationSummary:
    """How the e-graph grew.

    Attributes:
        enodes: Operators in some spelling, inputs and constants; both operand orders count as one.
        classes: Values that they compute.
        stop_reason: Such as ``"saturated"``, ``"iteration limit"``, ``"node limit"``, ``"work limit"``.
        growth: The rules that added most, if it ended before everything was found.
    """

    iterations: int
    enodes: int
    classes: int
    stop_reason: str
    growth: tuple[GrowthRow, ...] = ()


@dataclass(frozen=True, slots=True)
class Verification:
    """The result executed against the input model: as a whole, and piece by piece where it was rewritten.

    Attributes:
        agrees: Whether every element is within the tolerance; None where nothing was executed.
        outputs: Number of outputs compared.
        max_abs_error: Largest absolute difference of two elements of an output.
        max_rel_error: That, relative to the largest magnitude in its output.
        seed: Of the random numbers.
        done: Whether anything was executed.
        samples: What was executed on.
        pieces: Values that the result computes in another way than the input.
        executed: How many of them were executed by themselves.
        input_by: The implementations that executed the input.
        result_by: Those that executed the result.
        tolerance: How much two elements may differ.
        max_piece_error: Largest difference in a piece, relative to the largest magnitude of its tensor.
        notes: Why outputs differ although every piece agrees: an operator that the two implementations compute
            differently, or rounding.
        skipped: What was not done, and why.
    """

    agrees: bool | None
    outputs: int
    max_abs_error: float
    max_rel_error: float
    seed: int
    done: bool = True
    samples: tuple[str, ...] = ()
    pieces: int = 0
    executed: int = 0
    input_by: tuple[str, ...] = ()
    result_by: tuple[str, ...] = ()
    tolerance: str = ""
    max_piece_error: float = 0.0
    notes: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelProof:
    """Whether rules prove the result equal to the input, found from the two models alone.

    Attributes:
        verdict: ``"equal"`` or ``"not proven"``.
        numerics: The weakest class of the rules of the proof; None without one.
        statement: In words.
        rules: That the proof uses, by name.
        apart: The first tensors that no rule joins.
        stop_reason: Why the search for a proof ended early; empty if it did not.
        trust: What is proven of these rules, and the weakest link among them.
    """

    verdict: str
    numerics: str | None
    statement: str
    rules: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()
    stop_reason: str = ""
    trust: TrustInRules | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """The result compiled as C and run on this machine, the regions of accelerators too.

    Attributes:
        seconds: Of all kernels of a run.
        others: Kernels of the compiled program that are not kernels of the result, such as conversions of layout, with
            their seconds.
    """

    seconds: float
    others: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class SearchRun:
    """How a search ran.

    Attributes:
        objective: What it minimised.
        numerics: The class of the rules that it used.
        seconds: By stage.
        notes: Sentences for its user.
    """

    objective: str
    numerics: str
    seconds: Mapping[str, float]
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Summary:
    """Attributes:
    model: Name of the graph or the file.
    targets: Names, the host first.
    objective: ``"best"``, ``"worst"`` or ``"random"``.
    numerics: The class of rules that were allowed.
    before: The input model, wholly on the host.
    bound: No program in the e-graph costs less than this many seconds.
    gap: ``(after.cost - bound) / after.cost``.
    stop_reason: Of the extraction: ``"optimal"``, ``"work limit"``, ``"time limit"``, ...
    seconds: CPU time by stage, in order.
    kernels: In execution order.
    regions: In execution order.
    rules: In the order of the rule files.
    notes: What was left out because the model is large or the time was short, a sentence each.
    trust: The rules that the result depends on; None if its origins were not requested.
    audit: None if none was requested.
    proof: None if none was requested.
    quantization: None for an optimization.
    memory: Of each target that needs any, the host first; empty of a model that is left unchanged.
    measured: None if the program was not compiled and run.
    made: From what and with what; None of a part of a result.
    graphs: Before and after, for the page: the main graph and the bodies; none of a model that is left unchanged.
    """

    model: str
    targets: tuple[str, ...]
    objective: str
    numerics: str
    before: Totals
    after: Totals
    bound: float
    gap: float
    stop_reason: str
    saturation: SaturationSummary
    seconds: dict[str, float]
    kernels: tuple[KernelRow, ...]
    regions: tuple[RegionRow, ...]
    host_operators: tuple[HostRow, ...]
    rules: tuple[RuleRow, ...]
    notes: tuple[str, ...] = ()
    trust: TrustInRules | None = field(default=None)
    verification: Verification | None = field(default=None)
    audit: AuditReport | None = field(default=None)
    proof: ModelProof | None = field(default=None)
    quantization: Quantization | None = field(default=None)
    memory: tuple[MemoryMap, ...] = field(default=(), repr=False)
    measured: Measured | None = field(default=None)
    made: Provenance | None = field(default=None)
    graphs: tuple[GraphComparison, ...] = field(default=(), repr=False)

    @property
    def speedup(self) -> float:
        """Cost before over cost after; infinite where nothing is left to do."""
        if self.after.cost > 0:
            return self.before.cost / self.after.cost
        return math.inf if self.before.cost > 0 else 1.0


@dataclass(frozen=True, slots=True)
class HostGroup:
    """Host operators of one kind that stay for the same reasons."""

    op: str
    refusals: tuple[RefusalRow, ...]
    names: tuple[str, ...]
    cost: float


@dataclass(frozen=True, slots=True)
class HostCause:
    """A reason for which operators stay on the host.

    Attributes:
        operators: How many by operator, the most frequent first.
        host: Seconds of all of them on the host.
        cost: Seconds of all of them on the target, without copies and dispatch; None where they cannot run there.
    """

    target: str
    reason: str
    operators: tuple[tuple[str, int], ...]
    host: float
    cost: float | None

    @property
    def count(self) -> int:
        return sum(n for _, n in self.operators)


def host_causes(rows: Iterable[HostRow]) -> list[HostCause]:
    """The rows by target and reason, the most frequent reason of a target first."""
    groups: dict[tuple[str, str, bool], list[tuple[HostRow, RefusalRow]]] = {}
    for row in rows:
        for refusal in row.refusals:
            groups.setdefault((refusal.target, refusal.reason, refusal.cost is None), []).append((row, refusal))
    causes = [
        HostCause(
            target,
            reason,
            tuple(sorted(Counter(row.op for row, _ in group).items(), key=lambda item: (-item[1], item[0]))),
            sum(row.cost for row, _ in group),
            None if unknown else sum(refusal.cost or 0.0 for _, refusal in group),
        )
        for (target, reason, unknown), group in groups.items()
    ]
    order = {target: i for i, target in enumerate(dict.fromkeys(c.target for c in causes))}
    return sorted(causes, key=lambda c: (order[c.target], -c.count))


def group_host_operators(rows: Iterable[HostRow]) -> list[HostGroup]:
    """The rows with equal operator and equal reasons taken together, in order of first occurrence."""
    groups: dict[tuple[str, tuple[RefusalRow, ...]], list[HostRow]] = {}
    for row in rows:
        groups.setdefault((row.op, row.refusals), []).append(row)
    return [
        HostGroup(op, refusals, tuple(r.name for r in group), sum(r.cost for r in group))
        for (op, refusals), group in groups.items()
    ]
