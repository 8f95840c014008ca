"""The charts of the page: each takes what it shows from the summary."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

from eqsat import units
from eqsat.report.chart import Chart, ChartAxis
from eqsat.report.memory_map import MemoryMap
from eqsat.report.summary import KernelRow, Summary

MOST_DOTS = 600
"""Kernels that the roofline shows, the most expensive ones: more take a browser longer than they tell a reader."""
MOST_BOXES = 1500
"""Tensors that a map of memory shows, the ones with the largest boxes."""


def roofline(summary: Summary) -> Markup | None:
    """Kernels by MACs per byte and MACs per second, under the rates of their targets; None without arithmetic."""
    known = [k for k in summary.kernels if k.work is not None and k.work.macs > 0 and k.work.bytes > 0 and _time(k) > 0]
    rows = sorted(known, key=lambda k: -_time(k))[:MOST_DOTS]
    if not rows:
        return None
    roofs = _roofs(rows)
    points = [_point(row) for row in rows]
    knees = [peak / rate for _, peak, rate in roofs if math.isfinite(rate) and rate > 0]
    x = ChartAxis.around("MACs per byte", [*(p[0] for p in points), *knees], lambda v: f"{v:g}", log=True)
    peaks = [peak for _, peak, _ in roofs if math.isfinite(peak)]
    speeds = [*(p[1] for p in points), *peaks]
    rate = ChartAxis.around("MACs per second", speeds, lambda v: units.amount(v, "").strip(), log=True)
    chart = Chart("Roofline: kernels by MACs per byte and by MACs per second", x, rate)
    for target, peak, bandwidth in roofs:
        ends = [v for v in (x.low, peak / bandwidth if bandwidth > 0 else x.low, x.high) if x.low <= v <= x.high]
        line = [(v, min(peak, v * bandwidth)) for v in ends]
        chart.line(line, f"roof {style(summary, target)}")
    chart.legend((style(summary, target), _rates(target, peak, bandwidth)) for target, peak, bandwidth in roofs)
    longest = max(map(_time, rows))
    for row, (intensity, speed) in zip(rows, points, strict=True):
        said = (
            f"{row.op} {row.name}\n{units.seconds(_time(row))}, {units.amount(speed, 'MACs/s')}; limited by {row.limit}"
        )
        chart.dot(intensity, speed, style(summary, row.target), said, 3 + 6 * math.sqrt(_time(row) / longest))
    return chart.svg()


def memory(found: MemoryMap) -> Markup:
    """Tensors as boxes over the kernels of a run, by their place in memory; the peak is marked."""
    x = ChartAxis("kernel, in execution order", 0, found.steps, lambda v: f"{v:,.0f}")
    y = ChartAxis(f"place in the memory of {found.target}", 0, max(found.arena, 1), units.size)
    chart = Chart(f"Memory of {found.target}: tensors by kernel and by place", x, y)
    shown = sorted(found.tensors, key=lambda row: -row.bytes * (row.last - row.first + 1))[:MOST_BOXES]
    for row in shown:
        at_peak = row.first <= found.peak_at <= row.last
        span = (
            f"kernel {row.first + 1:,}" if row.first == row.last else f"kernels {row.first + 1:,} to {row.last + 1:,}"
        )
        said = " ".join(part for part in (row.name, row.type) if part)
        text = f"{said}\n{units.size(row.bytes)} at {row.offset:,}, {span}"
        end = row.offset + row.bytes
        chart.box(row.first, row.last + 1, row.offset, end, "tensor peak" if at_peak else "tensor", text)
    middle = found.peak_at + 0.5
    chart.line([(middle, 0), (middle, found.arena)], "mark")
    return chart.svg()


def layers(summary: Summary) -> Markup | None:
    """Operators of a quantized model by their cost in floats and by the error of their integers; None without any."""
    told = summary.quantization
    rows = [] if told is None else [r for r in told.layers if r.before > 0 and math.isfinite(r.noise)]
    rows = sorted(rows, key=lambda r: -r.before)[:MOST_DOTS]
    if not rows:
        return None
    x = ChartAxis.around("cost in floats", [r.before for r in rows], units.seconds, log=True)
    y = ChartAxis.around("SQNR if rounded alone", [r.noise for r in rows], units.decibel)
    chart = Chart("Layers by cost in floats and by signal to quantization noise", x, y)
    for row in rows:
        kind = "no" if not row.rounded else "yes" if row.rounded == row.tensors else "some"
        text = f"{row.op} {row.name}\n{units.seconds(row.before)} in floats, {units.seconds(row.after)} in the result"
        chart.dot(row.before, row.noise, kind, f"{text}\n{units.decibel(row.noise)} if rounded alone")
    return chart.svg()


def pareto(summary: Summary) -> Markup | None:
    """Cost against accuracy of the programs of a sweep, with this result; None without a sweep."""
    told = summary.quantization
    if told is None or not told.sweep:
        return None
    own = min((o.predicted for o in told.outputs), default=math.inf)
    known = [p.predicted for p in told.sweep if math.isfinite(p.predicted)]
    # Without any rounding the ratio is infinite; that program is at the top.
    top = max(known, default=0.0) + 10
    x = ChartAxis.around("cost", [summary.after.cost, *(p.cost for p in told.sweep)], units.seconds)
    y = ChartAxis.around("SQNR of the worst output; exact at the top", [*known, top], units.decibel)
    chart = Chart("Cost against signal to quantization noise", x, y)
    chart.line([(p.cost, min(p.predicted, top)) for p in told.sweep], "front")
    for point in told.sweep:
        limit = "no limit" if point.required is None else f"at least {units.decibel(point.required)}"
        said = f"{units.seconds(point.cost)}, {units.decibel(point.predicted)}; {point.rounded:,} tensors rounded"
        chart.dot(point.cost, min(point.predicted, top), "yes", f"{limit}\n{said}")
    chart.dot(summary.after.cost, min(own, top), "ring", f"this result\n{units.seconds(summary.after.cost)}", 8)
    return chart.svg()


def style(summary: Summary, target: str) -> str:
    """The class of a target's colour: accelerators by their position."""
    return "host" if target == summary.targets[0] else f"t{summary.targets.index(target)}"


def _time(row: KernelRow) -> float:
    return row.cost if row.measured is None else row.measured


def _point(row: KernelRow) -> tuple[float, float]:
    assert row.work is not None
    return row.work.macs / row.work.bytes, row.work.macs / _time(row)


def _rates(target: str, peak: float, bandwidth: float) -> str:
    known = [units.amount(peak, "MACs/s")] if math.isfinite(peak) else []
    known += [f"{units.size(bandwidth)}/s"] if math.isfinite(bandwidth) else []
    return f"{target}: {', '.join(known)}"


def _roofs(rows: Sequence[KernelRow]) -> list[tuple[str, float, float]]:
    """Per target and rates: peak in MACs per second, and bandwidth in bytes per second."""
    found: dict[tuple[str, str, str], tuple[str, float, float]] = {}
    for row in rows:
        work = row.work
        assert work is not None
        peak = work.macs / work.compute if work.compute > 0 else math.inf
        bandwidth = work.bytes / work.memory if work.memory > 0 else math.inf
        if math.isinf(peak) and math.isinf(bandwidth):
            continue
        found.setdefault((row.target, f"{peak:.4g}", f"{bandwidth:.4g}"), (row.target, peak, bandwidth))
    return list(found.values())
