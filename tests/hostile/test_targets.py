"""Target files that ask for more than any machine has, or are none: one message each, and nothing written."""

from __future__ import annotations

import pytest

from tests.hostile.rule_runs import require_refused, require_taken

HEAD = """target npu
    summary "an accelerator"
    dispatch = 1e-5
    launch = 1e-6
    peak float32 = 1e12
    bandwidth = 1e10
    link bandwidth = 1e9, latency = 1e-6
"""
NESTED = "sum([sum([i for i in range(100000)]) for j in range(100000)])"


def target(*lines: str) -> str:
    return HEAD + "".join(f"    {line}\n" for line in lines)


def composite(pattern: str, *lines: str) -> str:
    return target("composite c : exact", f"    {pattern}", *(f"    {line}" for line in lines))


REFUSED = {
    "a number that is nested comprehensions": (HEAD.replace("1e12", NESTED), ""),
    "a number that is a power of a power": (HEAD.replace("1e12", "10 ** 10 ** 10"), ""),
    "a number that is a range": (HEAD.replace("1e12", "len(range(10 ** 18))"), ""),
    "no number": (HEAD.replace("1e12", "1e999"), ""),
    "a cost of nested comprehensions": (target("supports Relu", f"    cost {NESTED}"), "steps"),
    "a condition of nested comprehensions": (target("supports Relu", f"    where {NESTED} == 0"), "steps"),
    "a cost that is negative": (target("supports Relu", "    cost -1"), "0 or more"),
    "a cost that divides by zero": (target("supports Relu", "    cost 1 / 0"), "cost"),
    "a composite of two hundred sums": (composite(" + ".join(f"x{i}" for i in range(200))), "nest"),
    "a composite of forty sums": (
        composite("Sum(" + ", ".join(f"x{i} + y{i}" for i in range(40)) + ")"),
        "commutative",
    ),
    "a composite whose choices multiply": (
        composite("Sum(" + ", ".join(f"(Relu(x{i}) | Neg(x{i}) | Tanh(x{i}))" for i in range(12)) + ")"),
        "plain",
    ),
    "a composite that doubles 40 times": (
        target(
            "let a0 = Relu(x)",
            *(f"let a{i + 1} = Max(a{i}, a{i})" for i in range(40)),
            "composite c : exact",
            "    Neg(a40)",
        ),
        "billions",
    ),
    "a composite of ten thousand operators": (composite("Relu(" * 10_000 + "x" + ")" * 10_000), "nest"),
    "ten thousand brackets": (target("supports Relu", "    where " + "[" * 10_000), ""),
    "a hundred megabytes": (b"# nothing\n" * 10_000_000, "bytes"),
    "no target": ("", ""),
    "bytes that are not text": (b"target t\xff", "UTF-8"),
    "nothing but zeros": (b"\0" * 1000, ""),
    "a name of a million letters": (HEAD.replace("npu", "n" * 1_000_000), "letters"),
    "a host": (HEAD.replace("target npu", "host npu"), ""),
}
"""What the file holds, and a word of the message."""

TAKEN = {
    "a cost that is infinite, which nothing runs at": target("supports Relu", "    cost 1e308 * 1e308"),
    "a composite of 200 operands": composite("Sum(" + ", ".join(f"x{i}" for i in range(200)) + ")"),
    "five hundred composites": target(
        *(line for i in range(500) for line in (f"composite c{i} : exact", f"    Relu(x) + {i}"))
    ),
    "ten thousand comments": target(*["# a word"] * 10_000, "supports Relu"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    content, word = REFUSED[name]
    require_refused(content, word, ".target")


@pytest.mark.slow
@pytest.mark.parametrize("name", TAKEN)
def test_taken(name: str) -> None:
    require_taken(TAKEN[name], ".target")
