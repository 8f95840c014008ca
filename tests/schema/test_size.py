"""Sizes as numbers: every operation against the same one on integers, at every value of the symbols."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqsat.schema.dimension import broadcast_shapes, common_divisor, size_of
from eqsat.schema.free_sizes import FreeSize
from eqsat.schema.size import Size, Undecided, bounds, closer_bounds, symbol, value_at
from eqsat.schema.size_choices import largest, smallest
from eqsat.schema.size_questions import as_dim

FREE = {"n": FreeSize(1, 6, 2), "m": FreeSize(3, 9, 4)}
VALUES = [dict(zip(FREE, pair, strict=True)) for pair in itertools.product(range(1, 7), range(3, 10))]
N, M = (size_of(name, FREE) for name in FREE)

OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "largest": largest,
    "smallest": smallest,
}
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
Tree = Any
TREES = st.recursive(
    st.one_of(st.sampled_from(["n", "m"]), st.integers(-3, 16)),
    lambda inner: st.tuples(st.sampled_from(sorted(OPERATIONS)), inner, inner),
    max_leaves=6,
)


def size(tree: Tree) -> int:
    """A tree as a size."""
    if isinstance(tree, str):
        return size_of(tree, FREE)
    return tree if isinstance(tree, int) else OPERATIONS[tree[0]](size(tree[1]), size(tree[2]))


def number(tree: Tree, at: dict[str, int]) -> int:
    """A tree at values of the symbols, by integers alone."""
    if isinstance(tree, str):
        return at[tree]
    if isinstance(tree, int):
        return tree
    a, b = number(tree[1], at), number(tree[2], at)
    return {"largest": max, "smallest": min}.get(tree[0], OPERATIONS[tree[0]])(a, b)


def where_defined(*trees: Tree) -> list[dict[str, int]]:
    """Values of the symbols at which nothing is divided by zero."""
    found = []
    for at in VALUES:
        with contextlib.suppress(ZeroDivisionError):
            for tree in trees:
                number(tree, at)
            found.append(at)
    return found


def in_c(value: int, at: dict[str, int]) -> int:
    """The C text, read with C's division, which rounds to zero."""
    text = str(value)
    if "?" in text:
        return value_at(value, at)  # Python has another spelling.
    names = {f"dim_{name}": Whole(n) for name, n in at.items()}
    return int(eval(text, {}, names))


class Whole(int):
    """An integer of C."""

    def __truediv__(self, other: int) -> Whole:  # pyright: ignore[reportIncompatibleMethodOverride]
        return Whole(math.trunc(int(self) / int(other)))

    def __add__(self, other: int) -> Whole:
        return Whole(int(self) + int(other))

    def __mul__(self, other: int) -> Whole:
        return Whole(int(self) * int(other))

    def __sub__(self, other: int) -> Whole:
        return Whole(int(self) - int(other))

    def __mod__(self, other: int) -> Whole:
        return Whole(math.fmod(int(self), int(other)))

    __radd__, __rmul__ = __add__, __mul__

    def __rsub__(self, other: int) -> Whole:
        return Whole(int(other) - int(self))

    def __rtruediv__(self, other: int) -> Whole:  # pyright: ignore[reportIncompatibleMethodOverride]
        return Whole(math.trunc(int(other) / int(self)))

    def __rmod__(self, other: int) -> Whole:
        return Whole(math.fmod(int(other), int(self)))


@given(TREES)
def test_values_text_and_bounds_agree_with_integers(tree: Tree) -> None:
    try:
        found = size(tree)
    except (Undecided, ZeroDivisionError):
        return
    low, high = bounds(found)
    for at in where_defined(tree):
        wanted = number(tree, at)
        assert value_at(found, at) == wanted and low <= wanted <= high
        assert in_c(found, at) == wanted
    again = size_of(as_dim(found), FREE)
    assert all(value_at(again, at) == value_at(found, at) for at in VALUES)


@given(TREES, TREES, st.sampled_from(sorted(COMPARISONS)))
def test_comparisons_are_decided_for_all_sizes_or_not_at_all(left: Tree, right: Tree, kind: str) -> None:
    try:
        answer = COMPARISONS[kind](size(left), size(right))
    except (Undecided, ZeroDivisionError):
        return
    assert all(COMPARISONS[kind](number(left, at), number(right, at)) == answer for at in where_defined(left, right))


@given(TREES, TREES)
def test_equal_sizes_are_equal_everywhere(left: Tree, right: Tree) -> None:
    try:
        a, b = size(left), size(right)
    except (Undecided, ZeroDivisionError):
        return
    if a == b:
        assert hash(a) == hash(b)
        assert all(number(left, at) == number(right, at) for at in where_defined(left, right))
    divisor = common_divisor(a, 16)
    assert not divisor or all(number(left, at) % divisor == 0 for at in where_defined(left))


def test_remainders_of_remainders_have_none_in_them() -> None:
    """sympy takes ``Mod(3*Mod(n, 4), 4)`` for ``3*Mod(n, 4)``."""
    assert (3 * (N % 8) * M + M % 4) % 4 == (3 * N * M + M) % 4 and (N % 4 % M) % M == N % 4 % M
    assert (3 * (N % 6)) % 4 != 3 * N % 4


def test_what_is_padded_to_a_multiple_is_one() -> None:
    padded = N + (4 - N % 4) % 4
    assert padded == 4 * ((N + 3) // 4) and padded % 4 == 0 and closer_bounds(padded - N) == (0, 3)


@pytest.mark.parametrize("divisor", [7, 64, M])
@pytest.mark.parametrize("dividend", [-32 * N - 12, -7 * N * M - 5, 1000 - 3 * N, -N - M])
def test_what_has_one_sign_is_divided(dividend: int, divisor: int) -> None:
    """Also where the constant is divided and leaves a rest that has either sign."""
    quotient = dividend // divisor
    for at in VALUES:
        assert value_at(quotient, at) == value_at(dividend, at) // value_at(divisor, at) == in_c(quotient, at)


def test_what_is_exact_stays_a_polynomial() -> None:
    assert N * 8 // 8 == N and (8 * N + 3) // 8 == N and (16 * N + 5) % 16 == 5
    assert (N * M) // M == N and N - N == 0 and not isinstance(N - N, Size)
    assert size_of("floor((n + 1)/2) + floor((n + 1)/2)", FREE) == 2 * ((N + 1) // 2)
    assert size_of("n/2 + n/2", FREE) == N


def test_specialisations_do_not_apply() -> None:
    assert N != 1 and N % 16 != 0 and bool(N % 16) and 0 not in (N, M) and 1 not in (N, M)


def test_numbers_are_not_made_of_sizes() -> None:
    for use in (int, float, range, lambda n: math.gcd(n, 4), lambda n: [0, 1][n], lambda n: 1 << n, lambda n: n / 2):
        with pytest.raises(Undecided):
            use(N)
    with pytest.raises(Undecided):
        bool(N < 3)


def test_shapes_broadcast_for_all_sizes_or_not_at_all() -> None:
    assert broadcast_shapes((N, 1, 4), (M, 1)) == (N, M, 4)
    assert broadcast_shapes((2, 1), (3,)) == (2, 3)
    for other in ((M,), (3,)):
        with pytest.raises(ValueError, match="do not broadcast"):
            broadcast_shapes((N,), other)


@pytest.mark.parametrize("dim", ["k", "n/2", "sqrt(n)", "n + ", "n ** m"])
def test_other_expressions_are_refused(dim: str) -> None:
    with pytest.raises(Undecided):
        size_of(dim, FREE)


@pytest.mark.parametrize(("least", "most"), [(1, 8), (3, 40), (5, 6)])
def test_bounds_of_quotients_are_those_of_all_values(least: int, most: int) -> None:
    n = symbol("n", FreeSize(least, most, least))
    forms: dict[str, Callable[[int], int]] = {
        "the other half": lambda n: n - (n + 1) // 2,
        "rest": lambda n: n - 3 * (n // 3),
        "two quotients": lambda n: (n + 5) // 3 - n // 3,
        "a quotient of a quotient": lambda n: n - 2 * ((n // 2 + 1) // 2),
    }
    for name, form in forms.items():
        values = [form(value) for value in range(least, most + 1)]
        low, high = closer_bounds(form(n))
        assert low <= min(values) and high >= max(values), name
        assert low >= min(values) - 1, name


@pytest.mark.parametrize("sign", ["+", "-", "*", "//", "%"])
def test_fractions_are_no_sizes(sign: str) -> None:
    for a, b in ((1.0, N), (N, 1.0), (N, 0.5)):
        with pytest.raises(TypeError):
            OPERATIONS[sign](a, b)


@pytest.mark.parametrize("text", ["1//0", "n/0", "(" * 300, "n +", "n // (n - n)"])
def test_texts_that_are_no_sizes(text: str) -> None:
    with pytest.raises(Undecided):
        size_of(text, FREE)
