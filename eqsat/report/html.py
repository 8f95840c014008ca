"""The report as one HTML page without external parts, to send around and to open anywhere.

The folder ``page`` has the page, its styles and its scripts; this file puts them together with the summary and the
units.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

import jinja2
import markupsafe

from eqsat import units
from eqsat.report import pictures
from eqsat.report.breakdown import NAMES, breakdown
from eqsat.report.drawn_graphs import script_data
from eqsat.report.gap import explain_gap
from eqsat.report.summary import Summary, group_host_operators, host_causes
from eqsat.report.table import as_text
from eqsat.text import name_of

SHORT = 200
"""Rows of a long table that are shown at once: thousands take a browser longer than all the rest of the page."""
SCRIPTS = ("tables.js", "view.js", "explore.js")


def to_html(summary: Summary) -> str:
    """The page as text; equal but for the seconds in each run."""
    accelerators = summary.targets[1:]
    # Colours go to targets by position: the host is grey, accelerators take the palette in turn.
    hue = {name: (210 + 67 * i) % 360 for i, name in enumerate(accelerators)}
    hues = [-1, *(hue[name] for name in accelerators)]
    return (
        _environment()
        .get_template("page.html.jinja")
        .render(
            s=summary,
            tiles=_tiles(summary),
            SHORT=SHORT,
            css=_part("style.css") + _part("graph.css") + _part("chart.css"),
            scripts=[_part(name) for name in SCRIPTS] if summary.graphs else [_part(SCRIPTS[0])],
            graphs=markupsafe.Markup(script_data(summary.graphs, summary.targets)),
            hues=hues,
            host=summary.targets[0],
            accelerators=accelerators,
            hue=hue,
            causes=host_causes(summary.host_operators),
            host_groups=group_host_operators(summary.host_operators),
            NAMES=NAMES,
            parts=breakdown(summary),
            roofline=pictures.roofline(summary),
            gap=explain_gap(summary),
            layers=pictures.layers(summary),
            pareto=pictures.pareto(summary),
            maps=[pictures.memory(found) for found in summary.memory],
            measured=summary.measured,
            longest_kernel=max((k.cost for k in summary.kernels), default=0.0),
            # Flexible boxes whose factors add up to less than 1 fill only that share of their row.
            longest_region=max((r.cost for r in summary.regions), default=0.0),
            total_seconds=sum(summary.seconds.values()),
        )
    )


def to_fragment(summary: Summary, width: int = 100) -> str:
    """The form of a result in a notebook: the head of the page, the gap, and the report for terminals, folded.

    Args:
        summary: Of the result.
        width: Of that report, in characters.
    """
    text = as_text(summary, width=width)
    values = {"s": summary, "tiles": _tiles(summary), "gap": explain_gap(summary), "text": markupsafe.escape(text)}
    return _environment().get_template("notebook.html.jinja").render(values).strip()


def _tiles(summary: Summary) -> list[tuple[str, str]]:
    """The numbers that say most, each with a label."""
    after = summary.after
    return [
        (units.seconds(after.cost), f"cost, from {units.seconds(summary.before.cost)}"),
        (units.factor(summary.speedup), "by the cost model"),
        (units.percent(summary.gap), f"gap to the bound ({summary.stop_reason})"),
        (f"{after.regions:,}", f"region{'' if after.regions == 1 else 's'} on accelerators"),
        (f"{after.host_operators:,}", f"operator{'' if after.host_operators == 1 else 's'} on the host"),
    ]


def _joined_samples(samples: Sequence[str]) -> str:
    """A line on the inputs of the verification; parts that several of them share are printed once."""
    shared = " at the borders of rewritten pieces"
    there = [text.removesuffix(shared) for text in samples if text.endswith(shared)]
    others = [text for text in samples if not text.endswith(shared)]
    return "; ".join(others + ([f"{shared.strip()}: {', '.join(there)}"] if there else []))


def _visible(value: object) -> object:
    """Escapes characters that a page would hide or obey, such as text directions; markup is escaped afterwards."""
    return name_of(value) if isinstance(value, str) and not isinstance(value, markupsafe.Markup) else value


@cache
def _part(name: str) -> markupsafe.Markup:
    """A file of the page that is part of the package, and so needs no escapes."""
    return markupsafe.Markup((files("eqsat.report") / "page" / name).read_text("utf-8"))


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("eqsat.report", package_path="page"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
        finalize=_visible,
    )
    environment.filters.update(
        joined_samples=_joined_samples,
        visible=_visible,
        time=units.seconds,
        percent=units.percent,
        factor=units.factor,
        error=units.error,
        decibel=units.decibel,
        size=units.size,
        # How JavaScript writes it.
        number=lambda v: "Infinity" if v == math.inf else v,
        count=lambda n: f"{n:,}",
    )
    return environment
