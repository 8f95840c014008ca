"""Charts as SVG: two axes with ticks, and dots, lines and boxes in them. A pointer on a mark shows its text."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from markupsafe import Markup, escape

from eqsat.text import name_of

WIDTH, HEIGHT = 760, 330
LEFT, RIGHT, TOP, BOTTOM = 84, 14, 12, 46
MOST_TICKS = 7


@dataclass(frozen=True, slots=True)
class ChartAxis:
    """An axis.

    Attributes:
        label: With its unit, unless the ticks name it.
        low, high: The values at its ends; both positive on a logarithmic axis.
        text: Of a tick.
        log: Whether equal distances are equal ratios.
    """

    label: str
    low: float
    high: float
    text: Callable[[float], str]
    log: bool = False

    @classmethod
    def around(cls, label: str, values: Iterable[float], text: Callable[[float], str], log: bool = False) -> ChartAxis:
        """An axis that shows all of some values, with room around them."""
        known = [v for v in values if math.isfinite(v) and (v > 0 or not log)] or [1.0]
        low, high = min(known), max(known)
        if log:
            return cls(label, low / 1.6, high * 1.6, text, log)
        room = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
        return cls(label, low - room, high + room, text)

    def share(self, value: float) -> float:
        """Position of a value, from 0 at the low end to 1; values outside are at the ends."""
        value = min(max(value, self.low), self.high)
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        """Round values, at most about :data:`MOST_TICKS`."""
        if self.log:
            first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
            if last - first >= 2:
                return [10.0**k for k in range(first, last + 1, -(-(last - first + 1) // MOST_TICKS))]
            steps = [d * 10.0**k for k in range(first - 1, last + 1) for d in (1, 2, 5)]
            return [v for v in steps if self.low <= v <= self.high]
        span = self.high - self.low
        unit = 10.0 ** math.floor(math.log10(span / MOST_TICKS))
        step = next(unit * d for d in (1, 2, 5, 10, 20) if span / (unit * d) <= MOST_TICKS)
        return [k * step for k in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)]


@dataclass
class Chart:
    """A chart; marks are drawn in the order in which they are added.

    Attributes:
        title: Text for screen readers.
        x, y: Its axes.
    """

    title: str
    x: ChartAxis
    y: ChartAxis
    marks: list[Markup] = field(default_factory=list)

    def dot(self, x: float, y: float, kind: str, text: str, radius: float = 4.5) -> None:
        """A point; ``kind`` is the class of its style."""
        shape = Markup('<circle class="{}" cx="{:.1f}" cy="{:.1f}" r="{:.1f}"><title>{}</title></circle>')
        self.marks.append(shape.format(kind, *self._place(x, y), radius, _visible(text)))

    def line(self, points: Iterable[tuple[float, float]], kind: str) -> None:
        """Points connected by lines."""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (self._place(*point) for point in points))
        self.marks.append(Markup('<polyline class="{}" points="{}"/>').format(kind, path))

    def legend(self, entries: Iterable[tuple[str, str]]) -> None:
        """Texts at the top left, each after a dot of its kind."""
        row = Markup('<circle class="{}" cx="{}" cy="{}" r="4"/><text x="{}" y="{}" class="name">{}</text>')
        for i, (kind, text) in enumerate(entries):
            y = TOP + 14 + 16 * i
            self.marks.append(row.format(kind, LEFT + 14, y - 4, LEFT + 24, y, _visible(text)))

    def box(self, left: float, right: float, low: float, high: float, kind: str, text: str) -> None:
        """A rectangle between values of both axes."""
        (x0, y0), (x1, y1) = self._place(left, high), self._place(right, low)
        shape = Markup('<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"><title>{}</title></rect>')
        self.marks.append(shape.format(kind, x0, y0, max(x1 - x0, 0.5), max(y1 - y0, 0.5), _visible(text)))

    def svg(self) -> Markup:
        """The chart as an element of a page."""
        head = Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">')
        parts = [head.format(WIDTH, HEIGHT, _visible(self.title)), *self._axes(), *self.marks, Markup("</svg>")]
        return Markup("\n").join(parts)

    def _place(self, x: float, y: float) -> tuple[float, float]:
        across, down = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
        return LEFT + self.x.share(x) * across, TOP + (1 - self.y.share(y)) * down

    def _axes(self) -> Iterable[Markup]:
        bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
        rule = Markup('<line class="rule" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>')
        text = Markup('<text x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>')
        # Ticks that read alike, as whole steps do on an axis of few, are one.
        for value, said in _distinct(self.x):
            x, _ = self._place(value, self.y.low)
            yield rule.format(x, TOP, x, bottom) + text.format(x, bottom + 16, "middle", said)
        for value, said in _distinct(self.y):
            _, y = self._place(self.x.low, value)
            yield rule.format(LEFT, y, right, y) + text.format(LEFT - 6, y + 4, "end", said)
        yield text.format((LEFT + right) / 2, HEIGHT - 8, "middle", _visible(self.x.label))
        middle = (TOP + bottom) / 2
        turned = Markup('<text transform="translate(13 {:.1f}) rotate(-90)" text-anchor="middle">{}</text>')
        yield turned.format(middle, _visible(self.y.label))


def _distinct(axis: ChartAxis) -> list[tuple[float, str]]:
    pairs = [(value, axis.text(value)) for value in axis.ticks()]
    return [next(group) for _, group in itertools.groupby(pairs, key=lambda pair: pair[1])]


def _visible(text: str) -> Markup:
    return escape("\n".join(name_of(line) for line in text.split("\n")))
