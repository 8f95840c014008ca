"""A program of the main graph with the programs of its bodies: as one model, and as one result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from eqsat.control.before import cost_before
from eqsat.control.nested import FoundProgram, Inner, bodies_of
from eqsat.control.origins import add_origins
from eqsat.control.put_back import add_functions, drop_unread
from eqsat.control.totals import bodies_of_input, summary_with_bodies, within_program
from eqsat.explain.origin import Origins
from eqsat.extract.problem import Solution
from eqsat.model.optimized_sizes import keep_ranges
from eqsat.model.read.given_sizes import split
from eqsat.report.collect import collect
from eqsat.report.summary import SearchRun, Totals
from eqsat.result import Result
from eqsat.stages.assemble import ExtractedProgram, assemble, export
from eqsat.stages.load import LoadedInput
from eqsat.stages.options import SearchOptions
from eqsat.stages.price import PricedGraph


@dataclass(frozen=True, slots=True)
class WholeProgram:
    """A program with its bodies.

    Attributes:
        program: The program of the main graph.
        model: It and its bodies, as a model.
        inner: The programs of the bodies that it contains.
        every: The programs of all bodies that were searched.
        origins: Where its nodes come from.
    """

    program: ExtractedProgram
    model: ir.Model
    inner: tuple[Inner, ...]
    every: Sequence[Inner]
    origins: Origins


def whole_program(
    priced: PricedGraph,
    solution: Solution,
    loaded: LoadedInput,
    options: SearchOptions,
    every: Sequence[Inner],
    counts: dict[str, int],
) -> WholeProgram:
    """Assembles and exports a program.

    Args:
        priced: The problem.
        solution: The program in it.
        loaded: The input.
        options: Options of the search.
        every: Programs of all bodies.
        counts: Number of the last named region by target.
    """
    program = assemble(priced, solution, loaded.targets, options.partition_functions, counts)
    inner = within_program(every, program)
    bodies, functions = bodies_of(inner)
    model = export(program, loaded.model, bodies)
    add_functions(model, functions)
    if every:
        drop_unread(model.graph)
    origins = add_origins(model, priced, program, inner, loaded.carried_out)
    keep_ranges(model, split(options.dims)[1], loaded.sizes)
    return WholeProgram(program, model, inner, every, origins)


def found_program(
    whole: WholeProgram,
    priced: PricedGraph,
    solution: Solution,
    loaded: LoadedInput,
    options: SearchOptions,
    run: SearchRun,
) -> FoundProgram:
    """The program with its report.

    Args:
        whole: The program.
        priced, loaded, options: As for :func:`whole_program`.
        solution: Its cost and bound, bodies included.
        run: How the search ran.
    """
    summary = collect(loaded, priced, solution, whole.program, whole.origins, run)
    summary = summary_with_bodies(summary, whole.inner, bodies_of_input(whole.every, loaded.model))
    if loaded.given is not loaded.model:
        cost, count = cost_before(loaded.given, loaded.targets, loaded.sizes)
        summary = replace(summary, before=Totals(cost, count, 0, 0, count))
    result = Result(
        model=whole.model,
        cost=solution.cost,
        baseline_cost=summary.before.cost,
        bound=solution.bound,
        stop_reason=solution.stop_reason,
        seconds=dict(run.seconds),
        summary=summary,
        plan=whole.program.plan,
        choices=solution.choices,
        operators=loaded.operators,
        sizes=loaded.sizes,
        origins=whole.origins,
        opset=options.opset,
    )
    return FoundProgram(result, whole.inner)
