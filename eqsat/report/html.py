"""The report as one HTML page without external parts, to send around and to open anywhere.

``page.html.jinja`` is the page; this file hands it the summary and the units.
"""

from __future__ import annotations

from functools import cache

import jinja2
import markupsafe

from eqsat.report import units
from eqsat.report.summary import Summary, group_host_operators
from eqsat.text import name_of


def to_html(summary: Summary) -> str:
    """The page as text; equal but for the seconds in each run."""
    accelerators = summary.targets[1:]
    # Colours go to targets by position: the host is grey, accelerators take the palette in turn.
    hue = {name: (210 + 67 * i) % 360 for i, name in enumerate(accelerators)}
    return _template().render(
        s=summary,
        host=summary.targets[0],
        accelerators=accelerators,
        hue=hue,
        host_groups=group_host_operators(summary.host_operators),
        longest_kernel=max((k.cost for k in summary.kernels), default=0.0),
        total_seconds=sum(summary.seconds.values()),
    )


def _visible(value: object) -> object:
    """Escapes characters that a page would hide or obey, such as text directions; markup is escaped afterwards."""
    return name_of(value) if isinstance(value, str) and not isinstance(value, markupsafe.Markup) else value


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("eqsat.report", package_path="."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
        finalize=_visible,
    )
    environment.filters.update(
        time=units.seconds,
        percent=units.percent,
        factor=units.factor,
        error=units.error,
        decibel=units.decibel,
        count=lambda n: f"{n:,}",
    )
    return environment.get_template("page.html.jinja")
