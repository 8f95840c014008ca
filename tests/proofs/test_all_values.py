"""Rules on truth values and bytes are decided by computing all values; plain arithmetic of Python is the oracle."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from eqsat.proofs.proved import prove_rules
from eqsat.proofs.prover import prove_every_rank
from eqsat.rules.ast import Rule
from eqsat.rules.reader import read_text

INT8, UINT8, BOOL = range(-128, 128), range(256), range(2)


def rule(text: str) -> Rule:
    return read_text(f"rule r : exact\n {text}").rules[0]


def wrapped(value: int, low: int = -128) -> int:
    return (value - low) % 256 + low


CASES: list[tuple[str, tuple[range, ...], Callable[..., int | None], Callable[..., int | None]]] = [
    (
        "Cast(Cast(x, to=int32), to=int8)  =>  x\n where x.dtype == int8",
        (INT8,),
        lambda x: wrapped(x),
        lambda x: x,
    ),
    (
        "Cast(Cast(x, to=int8), to=int32)  =>  Cast(x, to=int32)\n where x.dtype == uint8",
        (UINT8,),
        lambda x: wrapped(x),
        lambda x: x,
    ),
    (
        "Cast(Cast(x, to=int8), to=int32)  =>  Cast(x, to=int32)\n where x.dtype == uint8, x.value < 128",
        (range(128),),
        lambda x: wrapped(x),
        lambda x: x,
    ),
    (
        "Cast(Cast(x, to=int8), to=int32)  =>  Cast(x, to=int32)\n where x.dtype == uint8, x.value <= 128",
        (range(129),),
        lambda x: wrapped(x),
        lambda x: x,
    ),
    (
        "Cast(Cast(x, to=float32) * Cast(y, to=float32), to=int32)  =>  Cast(x, to=int32) * Cast(y, to=int32)\n"
        " where x.dtype == int8, y.dtype == uint8",
        (INT8, UINT8),
        lambda x, y: x * y,
        lambda x, y: x * y,
    ),
    (
        "Cast(Cast(x, to=float32) - Cast(y, to=float32), to=int8)  =>  x - y\n where x.dtype == int8, y.dtype == int8",
        (INT8, INT8),
        lambda x, y: x - y if -128 <= x - y < 128 else None,  # outside of the range, ONNX leaves the result open
        lambda x, y: wrapped(x - y),
    ),
    (
        "Cast(Cast(x, to=int16) + Cast(y, to=int16), to=uint8)  =>  x + y\n where x.dtype == uint8, y.dtype == uint8",
        (UINT8, UINT8),
        lambda x, y: wrapped(x + y, 0),
        lambda x, y: wrapped(x + y, 0),
    ),
    (
        "Cast(Round(Cast(x, to=float32) / 2), to=uint8)  =>  x / 2\n where x.dtype == uint8",
        (UINT8,),
        lambda x: round(x / 2),
        lambda x: x // 2,
    ),
    (
        "Cast(And(p, q), to=int8)  =>  Cast(p, to=int8) * Cast(q, to=int8)",
        (BOOL, BOOL),
        lambda p, q: p and q,
        lambda p, q: p * q,
    ),
    (
        "Cast(Xor(p, q), to=int8)  =>  Cast(p, to=int8) + Cast(q, to=int8)",
        (BOOL, BOOL),
        lambda p, q: p ^ q,
        lambda p, q: p + q,
    ),
]


@pytest.mark.parametrize(("text", "ranges", "left", "right"), CASES, ids=[case[0].splitlines()[0] for case in CASES])
def test_the_verdict_is_that_of_plain_arithmetic(
    text: str, ranges: tuple[range, ...], left: Callable[..., int | None], right: Callable[..., int | None]
) -> None:
    pairs = [(left(*given), right(*given)) for given in product(*ranges)]
    found = prove_every_rank(rule(text))
    assert found.proven == all(a is None or a == b for a, b in pairs), found.reason
    assert not found.proven or found.how == "values"


def test_three_operands_are_tried_in_parts() -> None:
    same = "where x.dtype == uint8, y.dtype == uint8, z.dtype == uint8"
    wide = "Cast(Cast(x, to=int16) + Cast(y, to=int16) + Cast(z, to=int16), to=uint8)"
    assert prove_every_rank(rule(f"{wide}  =>  (x + y) + z\n {same}")).how == "values"
    assert not prove_every_rank(rule(f"{wide}  =>  (x + y) + y\n {same}")).proven


@pytest.mark.parametrize(
    "text",
    [
        "Cast(Cast(x, to=int64), to=int32)  =>  x\n where x.dtype == int32",  # 2^32 values
        "Cast(Cast(x, to=float32), to=float16)  =>  x\n where x.dtype == float16",  # zeros have signs
        "Cast(Exp(Cast(x, to=float32)), to=int8)  =>  Cast(Exp(Cast(x, to=float16)), to=int8)\n where x.dtype == int8",
        "Cast(1 / Cast(x, to=float32), to=int8)  =>  Cast(1 / Cast(x, to=float16), to=int8)\n where x.dtype == int8",
    ],
)
def test_what_is_beyond_values_is_not_decided(text: str) -> None:
    assert not prove_every_rank(rule(text)).proven


def test_the_verdict_is_a_class_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EQSAT_CACHE", str(tmp_path))
    [found] = prove_rules(rule(CASES[0][0]))
    assert (found.trust, found.words) == ("decided", "decided by exact arithmetic")


@pytest.mark.parametrize(("dtype", "number"), [("uint8", -1), ("uint8", 300), ("int8", -300), ("int8", 128)])
def test_numbers_that_a_type_cannot_hold_leave_a_rule_undecided(dtype: str, number: int) -> None:
    found = prove_every_rank(rule(f"Max(x, {number})  =>  x\n where x.dtype == {dtype}"))
    assert not found.proven and dtype in found.reason
