"""Numbers as people read them: three significant digits and an SI prefix."""

from __future__ import annotations

import math

_ROUNDING = 1e-12
_TIME = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def seconds(value: float) -> str:
    """A time, such as ``"3.85 ms"``."""
    if value == 0:
        return "0 s"
    if not math.isfinite(value):
        return "unknown" if math.isnan(value) else ("∞" if value > 0 else "-∞")
    # Round first, so that 999.9996 µs becomes 1.00 ms and not 1000 µs.
    magnitude = abs(float(f"{value:.3g}"))
    scale, unit = next(((s, u) for s, u in _TIME if magnitude >= s), _TIME[-1])
    return f"{_three_digits(value / scale)} {unit}"


def percent(fraction: float) -> str:
    """A share, such as ``"0.31 %"``; never rounds a gap that is open to 0, unless sums of floats round by as much."""
    if _ROUNDING < abs(fraction) < 5e-5:
        return "<0.01 %" if fraction > 0 else ">-0.01 %"
    return f"{100 * fraction:.2f} %"


def factor(value: float) -> str:
    """A ratio, such as ``"3.85x"``."""
    return "∞" if math.isinf(value) else f"{_three_digits(value)}x"


def error(value: float) -> str:
    """A numerical error, such as ``"3.1e-06"``."""
    return "0" if value == 0 else f"{value:.1e}"


def _three_digits(value: float) -> str:
    value = float(f"{value:.3g}")
    whole = len(str(int(abs(value))))
    return f"{value:.{max(0, 3 - whole)}f}"


def decibel(value: float) -> str:
    """A ratio of signal to noise, such as ``"38.7 dB"``; ``"exact"`` without noise."""
    return "exact" if math.isinf(value) and value > 0 else f"{value:.1f} dB"


def amount(value: float, unit: str) -> str:
    """A number of something with an SI prefix, such as ``"3.85 GMACs/s"``."""
    for scale, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "µ")):
        if float(f"{value:.3g}") >= scale:
            return f"{_three_digits(value / scale)} {prefix}{unit}"
    return f"0 {unit}" if value == 0 else f"{value:.1e} {unit}"


def size(value: float) -> str:
    """Bytes, such as ``"3.85 MB"``; of a mean over sizes the nearest whole number."""
    for scale, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if float(f"{value:.3g}") >= scale:
            return f"{_three_digits(value / scale)} {unit}"
    return f"{value:.0f} bytes"
