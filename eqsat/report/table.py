"""The report for a terminal: before and after, regions, and why something stayed on the host.

Builds rich renderables and prints nothing; :func:`as_text` gives the same as plain text.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import TypeVar

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from eqsat import units
from eqsat.report.breakdown import NAMES, breakdown
from eqsat.report.fitting import FittingTable, Line
from eqsat.report.gap import explain_gap
from eqsat.report.memory_map import MemoryMap
from eqsat.report.quantized import Quantization
from eqsat.report.summary import ModelProof, SaturationSummary, Summary, Verification, group_host_operators
from eqsat.report.trust import trust_line, weakest_proof
from eqsat.text import name_of, shown

_NAMES_SHOWN = 3
_ROWS_SHOWN = 12

_Row = TypeVar("_Row")


def before_after(summary: Summary) -> Table:
    """Cost and counts, one row each, with the input model in one column and the result in the other."""
    before, after = summary.before, summary.after
    table = FittingTable("", ">before", ">after", "")
    table.add_row("cost", units.seconds(before.cost), units.seconds(after.cost), units.factor(summary.speedup))
    for label, field in (
        ("operators", "operators"),
        ("composites", "composites"),
        ("regions", "regions"),
        ("host operators", "host_operators"),
    ):
        table.add_row(label, f"{getattr(before, field):,}", f"{getattr(after, field):,}", "")
    return table


def regions(summary: Summary, limit: int | None = None) -> Table:
    """The pieces of the program in execution order, at most ``limit`` of them."""
    inside = ["in"] if any(row.body for row in summary.regions) else []
    table = FittingTable("region", "target", ">kernels", ">operators", ">inputs", ">outputs", ">cost", *inside)
    rows, left = _cut(summary.regions, limit)
    for row in rows:
        counts = (row.kernels, row.operators, len(row.inputs), len(row.outputs))
        cells = [f"{n:,}" for n in counts]
        last = [_raw(row.body)] if inside else []
        table.add_row(_raw(row.name), _raw(row.target), *cells, units.seconds(row.cost), *last)
    if left:
        table.add_row(f"… {left:,} more")
    return table


def host_operators(summary: Summary, limit: int | None = None) -> Table:
    """Operators that stay on the host; those of one kind and one set of reasons share a row; at most ``limit`` rows."""
    table = FittingTable("on the host", ">count", ">cost", "which", "why")
    groups, left = _cut(group_host_operators(summary.host_operators), limit)
    for group in groups:
        names = ", ".join(group.names[:_NAMES_SHOWN])
        if len(group.names) > _NAMES_SHOWN:
            names += ", …"
        why = [r.reason if r.target in r.reason else f"{r.target}: {r.reason}" for r in group.refusals]
        reasons = Text("\n").join(map(_raw, why))
        table.add_row(
            _raw(group.op),
            f"{len(group.names):,}",
            units.seconds(group.cost),
            _raw(names),
            reasons,
        )
    if left:
        table.add_row(f"… {left:,} more")
    return table


def cost_parts(summary: Summary) -> Table:
    """The parts of the result's cost, the greatest first."""
    timed = summary.measured is not None
    table = FittingTable(
        "cost of", "target", ">count", ">cost", ">share", *([">measured"] if timed else []), "limited by"
    )
    for part in breakdown(summary):
        limits = ", ".join(f"{limit} {n:,}" if len(part.limits) > 1 else limit for limit, n in part.limits)
        table.add_row(
            _raw(part.op or NAMES[part.part]),
            _raw(part.target),
            f"{part.count:,}",
            units.seconds(part.cost),
            units.percent(part.cost / summary.after.cost),
            *([units.seconds(part.measured) if part.measured is not None else ""] if timed else []),
            limits,
        )
    return table


def kernels(summary: Summary) -> Table:
    """Every launch of the program in execution order."""
    table = FittingTable("tensor", "kernel", "region", ">operators", ">cost", "limit", "made by")
    for row in summary.kernels:
        made_by = f"{row.rule} ({row.place})" if row.place else row.rule
        table.add_row(
            _raw(row.name),
            _raw(row.op),
            _raw(row.region),
            str(len(row.operators)),
            units.seconds(row.cost),
            row.limit or "",
            _raw(made_by),
        )
    return table


def rules(summary: Summary) -> Table:
    """The effect of each rule that matched."""
    table = FittingTable("rule", ">matches", ">applied", ">chosen", ">time", "place", "")
    for row in summary.rules:
        if not row.matches and not row.held_back:
            continue
        notes = []
        if row.held_back:
            notes.append(f"held back in {row.held_back:,} rounds: it matched too often")
        if row.mismatches:
            notes.append(f"not applied {row.mismatches:,} times, because its sides differ in type: {row.mismatch}")
        if row.misfits:
            notes.append(
                f"not applied {row.misfits:,} times, because it would make a constant out of range: {row.misfit}"
            )
        if row.undecided:
            why = f"because sizes are free: {row.undecided_condition}, not at all sizes"
            notes.append(f"not applied {row.undecided:,} times, {why}")
        table.add_row(
            _raw(row.name),
            f"{row.matches:,}",
            f"{row.applied:,}",
            f"{row.chosen:,}",
            units.seconds(row.seconds),
            _raw(row.place),
            _raw("; ".join(notes)),
        )
    return table


def errors(quantization: Quantization) -> Table:
    """How far each float output is from the original's."""
    table = FittingTable("output", ">required", ">predicted", ">measured")
    for row in quantization.outputs:
        required = "" if row.required is None else units.decibel(row.required)
        table.add_row(_raw(row.name), required, units.decibel(row.predicted), units.decibel(row.actual))
    return table


def floats(quantization: Quantization, limit: int | None = None) -> Table:
    """Kernels that compute with floats; those of one kind and one reason share a row; at most ``limit`` rows."""
    groups: dict[tuple[str, str], list[str]] = {}
    for row in quantization.floats:
        groups.setdefault((row.op, row.reason), []).append(row.name)
    table = FittingTable("in floats", ">count", "which", "why")
    shown_groups, left = _cut(list(groups.items()), limit)
    for (op, reason), names in shown_groups:
        which = ", ".join(names[:_NAMES_SHOWN]) + (", …" if len(names) > _NAMES_SHOWN else "")
        table.add_row(_raw(op), f"{len(names):,}", _raw(which), _raw(reason))
    if left:
        table.add_row(f"… {left:,} more")
    return table


def swept(quantization: Quantization) -> Table:
    """Programs from the cheapest to the most accurate."""
    table = FittingTable(">required", ">predicted", ">cost", ">tensors rounded", "gap")
    for point in quantization.sweep:
        required = "" if point.required is None else units.decibel(point.required)
        gap = f"{units.percent(point.gap)} ({point.stop_reason})"
        table.add_row(required, units.decibel(point.predicted), units.seconds(point.cost), f"{point.rounded:,}", gap)
    return table


def layers(quantization: Quantization) -> Table:
    """The cost of each operator in floats and in the result, and the effect of rounding it alone."""
    table = FittingTable("layer", "operator", ">rounded", ">by itself", ">in floats", ">in the result")
    for row in quantization.layers:
        table.add_row(
            _raw(row.name),
            _raw(row.op),
            f"{row.rounded} of {row.tensors}",
            units.decibel(row.noise),
            units.seconds(row.before),
            units.seconds(row.after),
        )
    return table


def quantized(quantization: Quantization) -> Table:
    """Every tensor that has integers, and the effect of rounding it alone on the worst output."""
    table = FittingTable("tensor", "kind", "integers", "rounded", ">by itself")
    for row in quantization.tensors:
        used = "yes" if row.rounded else "no"
        table.add_row(_raw(row.name), row.kind, row.dtype, used, units.decibel(row.noise))
    return table


def quantization_lines(quantization: Quantization) -> list[str]:
    """The integer share, and how the result came about."""
    kernels = quantization.integer + quantization.floating
    rounded = sum(row.rounded for row in quantization.tensors)
    share = quantization.integer_macs / quantization.macs if quantization.macs else 0.0
    often = f"{quantization.extractions} extraction{'s' if quantization.extractions != 1 else ''}"
    return [
        f"integer   {quantization.integer:,} of {kernels:,} kernels, {units.percent(share)} of the arithmetic; "
        f"{rounded:,} of {len(quantization.tensors):,} tensors rounded"
        + (", simulated with floats" if quantization.simulate else ""),
        f"samples   {quantization.samples:,}; {often} until the measured error was within the budget"
        if any(row.required is not None for row in quantization.outputs)
        else f"samples   {quantization.samples:,}",
    ]


def verification_lines(seen: Verification) -> list[str]:
    """The parts that were executed, the samples, the implementations, and the parts that were skipped."""
    if not seen.done:
        return [f"verified  no: {'; '.join(seen.skipped)}"]
    parts = []
    if seen.outputs:
        count = f"{seen.outputs} output{'s' if seen.outputs != 1 else ''}"
        parts.append(f"{count} on a random input (seed {seen.seed})")
    if seen.pieces:
        parts.append(f"{seen.executed:,} of {seen.pieces:,} rewritten pieces separately")
    lines = [
        f"verified  {'FAILED' if seen.agrees is False else 'PASSED'}: {', '.join(parts)}; "
        f"max abs error {units.error(seen.max_abs_error)}, max rel error {units.error(seen.max_rel_error)}"
        + (f"; the input executed by {' and '.join(seen.input_by)}" if seen.input_by else "")
    ]
    lines += [f"          note: {note}" for note in seen.notes]
    if seen.skipped:
        lines.append(f"          not verified: {'; '.join(seen.skipped)}")
    return lines


def memory_line(found: MemoryMap) -> str:
    """How much memory a target needs at least, at which kernel, and how much of it a plan needs."""
    sizes = ", ".join(f"{name}={size}" for name, size in found.sizes.items())
    return (
        f"memory    {name_of(found.target)}: {units.size(found.peak)} at kernel {found.peak_at + 1:,} of "
        f"{found.steps:,}, {units.size(found.arena)} as planned"
        + (f", for {name_of(sizes)}" if sizes else "")
        + (f"; {found.unknown:,} tensors left out: their sizes are known only at run time" if found.unknown else "")
    )


def growth_lines(grown: SaturationSummary) -> list[str]:
    """The rules that added most e-nodes before a limit was reached, a line each."""
    return [
        f"growth    {row.rule} ({row.place}) added {row.enodes:,} e-nodes, "
        f"{row.largest:,} of them for {row.op} '{row.tensor}'"
        for row in grown.growth
    ]


def closing_lines(summary: Summary) -> list[str]:
    """Bound, saturation, times and verification: one line each."""
    grown = summary.saturation
    lines = [] if summary.quantization is None else quantization_lines(summary.quantization)
    lines += [
        f"bound     {units.seconds(summary.bound)}, gap {units.percent(summary.gap)} ({summary.stop_reason})",
        f"e-graph   {grown.enodes:,} e-nodes in {grown.classes:,} classes after "
        f"{grown.iterations:,} iteration{'' if grown.iterations == 1 else 's'} ({grown.stop_reason})",
        *growth_lines(grown),
        *(f"try       {advice}" for advice in explain_gap(summary).advice),
        "seconds   "
        + ", ".join(f"{stage} {value:.2f}" for stage, value in summary.seconds.items())
        + f"; together {sum(summary.seconds.values()):.2f} of CPU time",
    ]
    lines += [memory_line(found) for found in summary.memory]
    if summary.measured is not None:
        lines.append(f"measured  {units.seconds(summary.measured.seconds)} as compiled C on this machine")
    lines += [f"note      {note}" for note in summary.notes]
    if summary.trust is not None and summary.trust.rules:
        lines.append(trust_line(summary.trust))
    if summary.audit is not None:
        told = summary.audit
        lines.append(f"audit     {told.enodes:,} e-nodes agree in {told.classes:,} classes on {told.samples} samples")
    if summary.proof is not None:
        lines += proof_lines(summary.proof)
    if summary.verification is not None:
        lines += verification_lines(summary.verification)
    return lines


def proof_lines(proof: ModelProof) -> list[str]:
    """The statement of the proof of the result."""
    lines = [f"proof     {proof.statement}"]
    if proof.rules:
        lines.append(f"          by {', '.join(proof.rules)}")
    if proof.trust is not None and proof.trust.rules:
        lines.append(f"          {weakest_proof(proof.trust)}")
    lines += [f"          no rule joins {place}" for place in proof.apart]
    if proof.stop_reason:
        lines.append(f"          stopped: {proof.stop_reason}")
    return lines


def render(summary: Summary, *, details: bool = False) -> RenderableType:
    """The whole report; ``details`` adds the kernels and the rules, and lifts the limit on rows."""
    return Group(*_parts(summary, details))


def as_text(summary: Summary, *, details: bool = False, width: int = 120) -> str:
    """The whole report as plain text, ``width`` characters wide."""
    out = io.StringIO()
    console = Console(file=out, width=width, color_system=None, legacy_windows=False)
    console.print(render(summary, details=details), crop=False)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _parts(summary: Summary, details: bool) -> Iterator[RenderableType]:
    host, *accelerators = summary.targets
    where = " + ".join([*accelerators, host])
    yield Text(f"{name_of(summary.model)} for {name_of(where)}", style="bold")
    yield before_after(summary)
    limit = None if details else _ROWS_SHOWN
    if summary.regions:
        yield regions(summary, limit)
    if summary.host_operators and len(summary.targets) > 1:
        yield host_operators(summary, limit)
    if summary.quantization is not None:
        yield errors(summary.quantization)
        if summary.quantization.floats:
            yield floats(summary.quantization, limit)
        if summary.quantization.sweep:
            yield swept(summary.quantization)
        if details:
            yield layers(summary.quantization)
            yield quantized(summary.quantization)
    if details:
        yield cost_parts(summary)
        yield kernels(summary)
        yield rules(summary)
    for line in closing_lines(summary):
        failed = "FAILED" in line
        yield Line(shown(line), style="bold red" if failed else "")


def _cut(rows: Sequence[_Row], limit: int | None) -> tuple[Sequence[_Row], int]:
    """The rows to show and how many are left out; a single row is never left out."""
    if limit is None or len(rows) <= limit + 1:
        return rows, 0
    return rows[:limit], len(rows) - limit


def _raw(text: str) -> Text:
    """Text of the model or the user: brackets in it are not markup, and escape sequences are not commands."""
    return Text(name_of(text), overflow="fold")
