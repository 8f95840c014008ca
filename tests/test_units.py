"""Numbers keep three digits, also where rounding changes the unit."""

from __future__ import annotations

import pytest

from eqsat import units


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0 s"),
        (12.34567, "12.3 s"),
        (1.0, "1.00 s"),
        (0.9999, "1.00 s"),
        (0.0123, "12.3 ms"),
        (999.6e-6, "1.00 ms"),
        (999.4e-6, "999 µs"),
        (1.5e-9, "1.50 ns"),
        (2.5e-10, "0.25 ns"),
        (-0.002, "-2.00 ms"),
        (float("inf"), "∞"),
        (float("-inf"), "-∞"),
        (float("nan"), "unknown"),
        (7200.0, "7200 s"),
    ],
)
def test_seconds(value: float, text: str) -> None:
    assert units.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.00 %"),
        (1e-9, "<0.01 %"),
        (5e-5, "0.01 %"),
        (0.5, "50.00 %"),
        (-1e-9, ">-0.01 %"),
        (3e-16, "0.00 %"),  # What sums of floats round by.
    ],
)
def test_percent_never_closes_an_open_gap(value: float, text: str) -> None:
    assert units.percent(value) == text


def test_factor_and_error() -> None:
    assert units.factor(3.8449) == "3.84x"
    assert units.factor(1234.0) == "1230x"
    assert units.factor(float("inf")) == "∞"
    assert units.error(0.0) == "0"
    assert units.error(3.14e-6) == "3.1e-06"


def test_decibel() -> None:
    assert units.decibel(38.66) == "38.7 dB"
    assert units.decibel(-3.0) == "-3.0 dB"
    assert units.decibel(float("inf")) == "exact"
    assert units.decibel(float("-inf")) == "-inf dB"
