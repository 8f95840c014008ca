"""Rule files that ask for more than any machine has, or are none: one message each, and nothing written."""

from __future__ import annotations

import pytest

from tests.hostile.rule_runs import require_refused, require_taken, run


def rule(right: str, where: str = "", left: str = "Relu(x)") -> str:
    return f"rule r : exact\n    {left} => {right}\n" + (f"    where {where}\n" if where else "")


def cast(expression: str) -> str:
    """A rule whose condition evaluates an expression."""
    return rule("x", f"len({expression}) == 1")


def lets(first: str, step: str, count: int, last: str) -> str:
    """``let a0 = first``, and each of the next made of the one before."""
    lines = [f"let a0 = {first}", *(f"let a{i + 1} = {step.replace('@', f'a{i}')}" for i in range(count))]
    return "\n".join(lines) + "\n" + last.replace("@", f"a{count}")


BILLION = "[i for i in range(100000)]"

REFUSED = {
    "nested comprehensions": (cast("[[0 for i in range(100000)] for j in range(100000)]"), "steps"),
    "three of them": (cast("[[[0 for i in range(1000)] for j in range(1000)] for k in range(1000)]"), "steps"),
    "a condition in a comprehension": (
        cast("[i for i in range(100000) if sum([j for j in range(100000)]) < 0]"),
        "ste",
    ),
    "a sum of sums": (rule("x", f"sum([sum({BILLION}) for i in range(10000)]) == 0"), "steps"),
    "a list of lists of lists": (cast("[[[0] * 100000] * 100000] * 1000"), "elements"),
    "a large list added to a number": (cast("[[0] * 100000] * 100000 + [1]"), "elements"),
    "large lists that are compared": (rule("x", "[[0] * 90000] * 90000 == [[0] * 90000] * 90000"), "elements"),
    "a list that doubles 40 times": (lets("[0, 0]", "@ + @", 40, cast("@")), "expand"),
    "a list that doubles in one rule": (
        "rule r : exact\n    "
        + "\n    ".join(["let a0 = [0, 0]", *(f"let a{i + 1} = a{i} + a{i}" for i in range(40))])
        + "\n    Relu(x) => x\n    where len(a40) == 1\n",
        "expand",
    ),
    "macros that double 40 times": (
        "let m0(v) = v + v\n"
        + "\n".join(f"let m{i + 1}(v) = m{i}(m{i}(v))" for i in range(40))
        + "\nrule r : exact\n    Relu(x) => m40(x)\n",
        "",
    ),
    "a pattern that doubles 40 times": (lets("Relu(x)", "Add(@, @)", 40, rule("x", left="Relu(@)")), "billions"),
    "alternatives that double 40 times": (
        lets("Relu(x)", "Tanh(@) | Relu(@)", 40, rule("x", left="Neg(@)")),
        "billions",
    ),
    "a macro that calls itself": ("let m(v) = m(v)\n" + rule("m(x)"), "m"),
    "lets that name each other": ("let a = b\nlet b = a\n" + rule("a"), ""),
    "optional operators whose choices multiply": (
        rule("x", left="maybe(Relu)(" * 30 + "Neg(x)" + ")" * 30),
        "billions",
    ),
    "alternatives whose choices multiply": (
        rule("x", left="Sum(" + ", ".join(f"(Relu(x{i}) | Neg(x{i}) | Tanh(x{i}))" for i in range(12)) + ")"),
        "",
    ),
    "a choice among operators whose choices multiply": (
        rule("x0", left="Sum(" + ", ".join(f"(o{i}: Relu | Neg | Tanh)(x{i})" for i in range(12)) + ")"),
        "plain",
    ),
    "two hundred operands that are added": (rule("x0", left=" + ".join(f"x{i}" for i in range(200))), "nest"),
    "forty operands that are added in pairs": (
        rule("x0", left="Sum(" + ", ".join(f"x{i} + y{i}" for i in range(40)) + ")"),
        "commutative",
    ),
    "ten thousand operators in a pattern": (
        rule("x0", left="Sum(" + ", ".join(f"Relu(x{i})" for i in range(10_000)) + ")"),
        "operators",
    ),
    "ten thousand operators on the right": (rule("Sum(" + ", ".join(["Neg(x)"] * 10_000) + ")"), "operators"),
    "ten thousand square brackets": (cast("[" * 10_000 + "]" * 10_000), "nest"),
    "ten thousand operators inside of each other": (rule("Relu(" * 10_000 + "x" + ")" * 10_000), "nest"),
    "ten thousand signs": (rule("x", "-" * 10_000 + "1 == 1"), "nest"),
    "ten thousand times not": (rule("x", "not " * 10_000 + "true"), "nest"),
    "ten thousand powers": (rule("x", " ** ".join(["2"] * 10_000) + " == 1"), "nest"),
    "ten thousand indices": (rule("x", "x.shape" + "[0]" * 10_000 + " == 1"), "nest"),
    "ten thousand conditionals": (rule("x", "1 if true else " * 10_000 + "2 == 1"), "nest"),
    "ten thousand terms": (rule("x", " + ".join(["1"] * 10_000) + " == 1"), "nest"),
    "brackets that nobody closes": (rule("x" + "(" * 100_000), ""),
    "a number of a million digits": (rule("x", "1" * 1_000_000 + " == 1"), "400 digits"),
    "a number beyond floats": (rule("x", "1e999 == 1"), "64-bit"),
    "a name of a million letters": (rule("n" * 1_000_000), "letters"),
    "an operator of a million letters": (rule("N" * 1_000_000 + "(x)"), "letters"),
    "a hundred megabytes": (b"# nothing\n" * 10_000_000, "bytes"),
    "one line of ten megabytes": (b"rule r : exact  Relu(x) => " + b"x + " * 2_500_000 + b"x", "bytes"),
    "one line of a megabyte": ("rule r : exact  Relu(x) => " + "x + " * 250_000 + "x", "nest"),
    "two thousand lets": ("\n".join(f"let a{i} = {i}" for i in range(2000)) + "\n" + rule("x"), "`let`s"),
    "bytes that are not text": (b"rule r : exact \xff\xfe => x", "UTF-8"),
    "a string repeated": (rule("x", '"a" * 1000000000 == "b"'), "got a string"),
    "nothing but zeros": (b"\0" * 1000, ""),
    "one name twice": (rule("x") + rule("x"), "name of its own"),
    "a string without end": (rule("x", '"' + "a" * 100_000), ""),
}
"""What the file holds, and a word of the message."""

TAKEN = {
    "range of 10 ** 18": cast("range(10 ** 18)"),
    "a power of a power": rule("x", "10 ** 10 ** 10 == 1"),
    "powers of a list": rule("x", "sum([10] * 3 + [10 ** 10 ** 10]) == 1"),
    "a list repeated": cast("[0] * 10 ** 12"),
    "a product of many large numbers": rule("x", "prod([10 ** 1000] * 100000) == 1"),
    "a division by zero": rule("x", "1 // 0 == 1"),
    "an exponential": rule("x", "exp(1e9) == 1"),
    "ten thousand comments": "# a word\n" * 20_000 + rule("x", "x.rank == 7"),
    "a thousand rules": "".join(f"rule r{i} : exact\n    Relu(x) => Relu(x)\n" for i in range(1000)),
    "a pattern of 200 operands": rule("x0", left="Sum(" + ", ".join(f"x{i}" for i in range(200)) + ")"),
    "an operand that grows": "rule r : exact\n    Sum(x, xs...) => Sum(x, x, xs...)\n    where x.rank == 2\n",
    "ten thousand brackets around a name": rule("(" * 10_000 + "Relu(x)" + ")" * 10_000),
    "nothing": "",
    "rows of nothing": " \n" * 100_000,
}
"""Files that are none of a rule's business to refuse: what cannot be computed does not hold."""


@pytest.mark.slow
@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    content, word = REFUSED[name]
    require_refused(content, word, ".rules")


@pytest.mark.slow
@pytest.mark.parametrize("name", TAKEN)
def test_taken(name: str) -> None:
    require_taken(TAKEN[name], ".rules")


@pytest.mark.heavy
def test_ten_thousand_rules() -> None:
    text = "".join(f"rule r{i} : exact\n    Relu(x) => Max(x, {i})\n    where x.rank == {i}\n" for i in range(10_000))
    outcome = run(text.encode(), ".rules")
    assert outcome.code == 0 and "PASSED" in outcome.said, outcome.said[-3000:]
