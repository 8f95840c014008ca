"""A model, or a body inside of one, from its graph to a program whose tensors all have places."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import onnx_ir as ir

from eqsat.backends.backend import Backend
from eqsat.backends.coverage import Coverage, Tally
from eqsat.codegen.assign import Unavailable, assign
from eqsat.codegen.control.body_model import body_model
from eqsat.codegen.found_sizes import SizeLimits
from eqsat.codegen.fuse import fuse
from eqsat.codegen.kernels.bytes.table import look_up_bytes
from eqsat.codegen.layout import plan_layout
from eqsat.codegen.lower import lower
from eqsat.codegen.placed_program import Layout
from eqsat.codegen.problems import Problems
from eqsat.codegen.program import Program, ProgramOperand
from eqsat.codegen.select import KernelSelection, given_kernels, select_kernels
from eqsat.codegen.whole_regions import ModelRegions, decide_pieces, keep_known_regions, opaque_operators
from eqsat.errors import ModelError
from eqsat.execute.settle import settled
from eqsat.partition.onnx_nodes import has_subgraphs
from eqsat.partition.plan import Plan
from eqsat.partition.read_plan import read_plan
from eqsat.rules.ast import Target
from eqsat.rules.selection import NumericsClass
from eqsat.schema.free_sizes import FreeSizes
from eqsat.schema.integer_ranges import IntegerRange


@dataclass(frozen=True)
class Choices:
    """The caller's decisions about the program.

    Attributes:
        host: The host whose kernels are available.
        select: Whether extraction chooses families and layouts.
        numerics: How far rules and kernels of the host may change values.
        backends: The backends that execute regions, by target.
        unavailable: Kernels that a backend is known to lack on this machine.
        sizes: The free sizes that the program receives.
        limits: The caller's bounds of sizes that data decides.
    """

    host: Target
    select: bool
    numerics: NumericsClass
    backends: Mapping[str, Backend] = field(default_factory=dict)
    unavailable: Unavailable = field(default_factory=dict)
    sizes: FreeSizes = field(default_factory=dict)
    limits: SizeLimits = field(default_factory=SizeLimits)


@dataclass(frozen=True)
class Chosen:
    """The plan of a model, and how it came about.

    Attributes:
        model: The planned model.
        plan: With the host's kernels, if extraction chose them.
        pieces: The regions that it calls.
        selection: The kernels that extraction chose; None if it chose nothing.
    """

    model: ir.Model
    plan: Plan
    pieces: ModelRegions
    selection: KernelSelection | None


@dataclass(frozen=True)
class Planned:
    """A program with places, and what was decided on the way."""

    program: Program
    layout: Layout
    coverage: dict[str, Coverage]
    selection: KernelSelection | None


def plan_program(chosen: Chosen, choices: Choices) -> Planned:
    """The program of a chosen plan.

    Raises:
        CodegenError: The model has operators, types or sizes that cannot become C; all are listed.
    """
    problems, tally = Problems(), Tally()
    program, selection = _lowered(chosen, chosen.model.graph.name or "model", choices, problems, tally)
    problems.check(program.name)
    return Planned(program, _placed(program, choices, tally, problems), tally.coverage(), selection)


class Bodies:
    """Plans the bodies of a model's control flow like models of their own.

    Args:
        model: The one with the bodies.
        choices: Those for the model.
        problems: Receives what cannot become C.
        tally: Receives the kernels that backends take and refuse.
    """

    def __init__(self, model: ir.Model, choices: Choices, problems: Problems, tally: Tally) -> None:
        self._model = model
        self._choices = replace(choices, sizes={})
        self._problems = problems
        self._tally = tally
        self._selections: dict[Program, KernelSelection] = {}
        self._executed: list[tuple[KernelSelection, float]] = []

    def lower(
        self,
        name: str,
        graph: ir.Graph,
        given: Sequence[ProgramOperand],
        captured: Mapping[str, ProgramOperand],
        results: Sequence[int],
        sizes: FreeSizes,
        ranges: Sequence[IntegerRange | None],
    ) -> Program | None:
        """The program of a body; None if there are problems.

        Args:
            name: Of the node, for messages.
            sizes: The free sizes of its operands.
            ranges: Ranges of the elements of its inputs, as far as they are known.
            graph, given, captured, results: See :func:`eqsat.codegen.control.body_model.body_model`.
        """
        try:
            model = body_model(self._model, graph, given, captured, results)
        except ModelError as error:
            self._problems.add(f"a body that does not fit its operands ({' '.join(str(error).split())})", name)
            return None
        choices = replace(self._choices, sizes=sizes)
        chosen = choose(settled(model), choices)
        program, selection = _lowered(chosen, graph.name or name, choices, self._problems, self._tally, ranges)
        if selection is not None:
            self._selections[program] = selection
        return None if self._problems.nodes else program

    def place(self, program: Program, times: float) -> Layout:
        """The places of the tensors of a lowered body that is executed ``times`` times."""
        if program in self._selections:
            self._executed.append((self._selections[program], times))
        return _placed(program, self._choices, self._tally, self._problems)

    def with_bodies(self, selection: KernelSelection | None, plan: Plan) -> KernelSelection | None:
        """The choices in a plan and in the bodies of its control flow, each as often as it is executed."""
        if not self._executed:
            return selection
        kernels = Counter(selection.kernels if selection is not None else {})
        for chosen, _ in self._executed:
            kernels.update(chosen.kernels)
        # The plan has a price for a node with bodies, which does not know what was chosen in them.
        rest = sum(node.cost for node in plan.nodes if has_subgraphs(node.attrs))
        first = selection or KernelSelection({}, 0, rest, rest, self._executed[0][0].stop_reason)
        stopped = [s.stop_reason for s in (first, *(chosen for chosen, _ in self._executed))]
        return KernelSelection(
            dict(sorted(kernels.items())),
            first.conversions + sum(chosen.conversions for chosen, _ in self._executed),
            first.cost - rest + sum(times * chosen.cost for chosen, times in self._executed),
            max(first.bound - rest, 0.0) + sum(times * chosen.bound for chosen, times in self._executed),
            next((reason for reason in ("time limit", "work limit") if reason in stopped), first.stop_reason),
        )


def choose(model: ir.Model, choices: Choices) -> Chosen:
    """Reads the plan of a model, and lets extraction choose kernels and layouts if it is asked to.

    Args:
        model: Without control flow that constants determine.
        choices: Those for the model.
    """
    saved = read_plan(model)
    pieces = decide_pieces(saved, choices.backends, choices.host if choices.select else None)
    plan, selection = saved.main.plan, None
    if choices.select:
        selection = None if pieces.taken_apart else given_kernels(plan, choices.host)
        if selection is None:
            found = select_kernels(
                model,
                opaque_operators(model, pieces),
                choices.host,
                numerics=choices.numerics,
                dims={name: replace(size, least=max(size.least, 1)) for name, size in choices.sizes.items()},
            )
            plan, selection = (plan, None) if found is None else found
    return Chosen(model, plan, pieces, selection)


def _lowered(
    chosen: Chosen,
    name: str,
    choices: Choices,
    problems: Problems,
    tally: Tally,
    ranges: Sequence[IntegerRange | None] = (),
) -> tuple[Program, KernelSelection | None]:
    bodies = Bodies(chosen.model, choices, problems, tally)
    for kernel in chosen.pieces.left:
        tally.add(kernel.backend, (kernel.region, kernel.name), kernel.name, kernel.operator, kernel.reason)
    decided = chosen.selection is not None
    program = lower(
        chosen.plan,
        chosen.pieces,
        name,
        bodies,
        problems,
        decided=decided,
        sizes=choices.sizes,
        limits=choices.limits,
        ranges=ranges,
    )
    program.sizes = tuple(choices.sizes.items())
    keep_known_regions(program, tally)
    return program, bodies.with_bodies(chosen.selection, chosen.plan)


def _placed(program: Program, choices: Choices, tally: Tally, problems: Problems) -> Layout:
    assign(program, choices.unavailable, tally, problems)
    problems.check(program.name)
    look_up_bytes(program)
    fuse(program)
    return plan_layout(program)
