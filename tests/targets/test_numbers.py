"""Numbers of target files: where they stand, and the same text with others."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqsat.errors import TargetError
from eqsat.rules.ast import Target
from eqsat.rules.reader import read_text
from eqsat.targets.find_targets import targets_dir
from eqsat.targets.numbers import numerals, places, rewritten, substituted, written

TEXT = """# A core.
let shared = 3e-9  # of the whole file
host core
    summary "0.5 and 7 are not numbers here"
    peak float32 = 40e9, int8 = 1_000  # MAC/s
    bandwidth = 2 * 5e9, launch = 1e-6
    let rate = 58e9
    let lanes(n) = (n + 15) // 16 * 16 / n
    let twice = 2 * rate
    supports *
    family direct_convolution
        cost shared + macs * lanes(y.shape[1]) / rate
    family *
        cost launch + bytes / twice
target other
    peak float32 = 1e12
    bandwidth = 1e9, launch = 1e-6
    link bandwidth = 1e9, latency = 1e-6
    supports Relu
"""


def core(text: str = TEXT) -> Target:
    return next(t for t in read_text(text, "core.target").targets if t.is_host)


def test_what_a_number_is():
    """Settings of the host and `let`s that are nothing but a number; not expressions, macros, other targets."""
    found = numerals(TEXT, "core.target", "core")
    assert [(n.name, n.is_let, n.value) for n in found] == [
        ("shared", True, 3e-9),
        ("peak float32", False, 40e9),
        ("peak int8", False, 1000),
        ("launch", False, 1e-6),
        ("rate", True, 58e9),
    ]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_nothing_else_changes(end: str, mark: str):
    text = mark + TEXT.replace("\n", end)
    found = numerals(text, "core.target", "core")
    assert rewritten(text, {}) == text
    assert rewritten(rewritten(text, dict.fromkeys(found, 123.0)), {}).count("123") == len(found)
    changed = rewritten(text, {n: n.value * 2 for n in found})
    expected = text
    for old, new in (
        ("3e-9", "6e-9"),
        ("40e9", "80e9"),
        ("1_000", "2000"),
        ("launch = 1e-6", "launch = 2e-6"),
        ("58e9", "116e9"),
    ):
        expected = expected.replace(old, new, 1)
    assert changed == expected
    host = core(changed)
    assert dict(host.peak) == {"float32": 80e9, "int8": 2000} and host.launch == 2e-6 and host.bandwidth == 10e9


def test_several_on_a_line_of_any_length():
    found = {n.name: n for n in numerals(TEXT, "core.target", "core")}
    changed = rewritten(TEXT, {found["peak int8"]: 5.0, found["peak float32"]: 1.23456789e11})
    assert "    peak float32 = 123e9, int8 = 5  # MAC/s\n" in changed


def test_another_text_is_refused():
    found = numerals(TEXT, "core.target", "core")
    with pytest.raises(TargetError, match=r"core.target:5:20: a number is required; got `xxxxxxxxxxxx`"):
        rewritten(TEXT.replace("40e9", "x" * 12), {found[1]: 1.0})


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(targets_dir().glob("*.target")), ids=lambda p: p.stem)
def test_shipped_files_survive(path: Path):
    """Written again in three digits, they say the same and are as long."""
    text = path.read_text("utf-8")
    for target in read_text(text, str(path)).targets:
        again = rewritten(text, {n: n.value for n in numerals(text, str(path), target.name)})
        assert again.count("\n") == text.count("\n")
        (same,) = [t for t in read_text(again, str(path)).targets if t.name == target.name]
        assert (same.launch, same.bandwidth) == pytest.approx((target.launch, target.bandwidth), rel=5e-3)
        assert len(same.families) == len(target.families) and len(same.composites) == len(target.composites)


def test_numbers_of_an_expression():
    host = core()
    found = {n.name: n for n in numerals(TEXT, "core.target", "core")}
    cost = host.families[0].cost
    inside = places(cost)
    assert found["rate"].place in inside and found["shared"].place in inside and found["launch"].place not in inside
    other = substituted(cost, {found["rate"].place: 1e9})
    changed = core(rewritten(TEXT, {found["rate"]: 1e9})).families[0].cost
    assert other == changed
    assert substituted(cost, {}) == cost


@given(st.floats(1e-12, 1e15))
def test_three_digits(value: float):
    text = written(value)
    assert float(text) == pytest.approx(value, rel=5.1e-3)
    assert float(text) == float(f"{value:.3g}") and len(text) <= 9


def test_as_people_write():
    assert [written(v) for v in (5.7999e10, 3.14159e-8, 1e6, 0.7, 16.0, 999.9, 9.999e8)] == [
        "58e9", "31.4e-9", "1e6", "0.7", "16", "1000", "1e9",
    ]  # fmt: skip


def test_the_file_is_found_by_its_own_name(tmp_path: Path):
    """Places are those of the reader, so that numbers are found again in expressions."""
    path = tmp_path / "core.target"
    path.write_text(TEXT, "utf-8")
    host = next(t for t in read_text(TEXT, str(path)).targets if t.is_host)
    used = {n.name for n in numerals(TEXT, str(path), "core") if any(n.place in places(f.cost) for f in host.families)}
    assert used == {"shared", "rate"}
