"""``kernel`` entries of a host, and operators applied to each of several operands."""

from __future__ import annotations

import numpy as np
import pytest

import eqsat
from eqsat.errors import RuleError, TargetError
from eqsat.rules.ast import Build, Composite, Rest, Target
from eqsat.rules.describe import format_composite, format_rule
from eqsat.rules.format import format_file
from eqsat.rules.reader import read_text
from eqsat.targets.registry import load_targets

HOST = """host tiny
    summary "a host for tests"
    peak float32 = 1e9
    bandwidth = 1e9, launch = 1e-6
    supports *

    # What it is.
    kernel direct : exact
        let c = Conv(ChannelsFirst(x), w, b?)
        ChannelsLast(c)
        where const(w, b)
        cost launch + macs / peak
"""


def target(text: str) -> Target:
    (found,) = read_text(text, "tiny.target").targets
    return found


def kernel(text: str) -> Composite:
    (found,) = target(text).kernels
    return found


def test_an_entry_is_a_composite_of_generated_code() -> None:
    found = kernel(HOST)
    assert (found.name, found.generated, found.doc) == ("direct", True, "What it is.")
    assert target(HOST).composites == ()


def test_it_prints_as_it_was_read() -> None:
    assert format_file(HOST, "tiny.target") == HOST
    again = kernel(HOST[: HOST.index("    # What")] + format_composite(kernel(HOST)) + "\n")
    assert format_composite(again) == format_composite(kernel(HOST))


def test_optimizing_ignores_it(tmp_path) -> None:
    (tmp_path / "tiny.target").write_text(HOST, "utf-8")
    x = eqsat.input("x", (1, 2, 4, 4))
    graph = eqsat.graph(eqsat.op.Conv(x, np.ones((2, 2, 1, 1), np.float32)))
    result = eqsat.optimize(graph, targets=tmp_path / "tiny.target")
    assert [n.op_type for n in result.model.graph] == ["Conv"]


def test_the_word_is_a_name_elsewhere() -> None:
    found = target(
        HOST.replace("    supports *", "    let kernel = 2e-6\n    supports Relu\n        cost kernel\n    supports *")
    )
    assert found.supports[0].cost is not None
    (rule,) = read_text("rule r : exact\n    kernel: Relu(x)  =>  Relu(kernel)").rules
    assert rule.name == "r"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("cost launch", 'call "f({x})"\n        cost launch'), "no `call` and no `annotate`"),
        (("    # What", "    composite direct : exact\n        Relu(x)\n\n    # What"), "name of its own"),
        (("host tiny", "target tiny"), "belongs to a host"),
    ],
)
def test_mistakes(change: tuple[str, str], message: str) -> None:
    with pytest.raises(TargetError, match=message):
        target(HOST.replace(*change))


def test_the_shipped_host_has_kernels() -> None:
    (cpu,) = load_targets()
    assert {"direct_convolution", "depthwise_convolution", "winograd_convolution"} <= {k.name for k in cpu.kernels}
    assert cpu.composites == ()


# ---- an operator for each of several operands -------------------------------------------------------------------

EACH = "rule each : exact\n    Abs(c: Concat(x, xs...))  =>  Concat(Abs(x), Abs(xs...), **c)\n"


def test_an_operator_for_each() -> None:
    (rule,) = read_text(EACH).rules
    (built,) = rule.right
    assert isinstance(built, Build)
    rest = built.args[1]
    assert isinstance(rest, Rest)
    assert rest.each is not None
    assert rest.each.name == "Abs"
    assert "Abs(xs...)" in format_rule(rule)
    (again,) = read_text(format_rule(rule)).rules
    assert format_rule(again) == format_rule(rule)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_it_is_applied_to_each(count: int) -> None:
    (rule,) = read_text(EACH).rules
    inputs = [eqsat.input(f"x{i}", (2, 1 + i)) for i in range(count)]
    y = eqsat.op.Abs(eqsat.op.Concat(*inputs, axis=1))
    rng = np.random.default_rng(count)
    feeds = {f"x{i}": rng.standard_normal((2, 1 + i)).astype(np.float32) for i in range(count)}
    result = eqsat.optimize(eqsat.graph(y), rules=[rule], objective="worst")
    names = [n.op_type for n in result.model.graph]
    assert sorted(names) == sorted(["Abs"] * names.count("Abs") + ["Concat"])
    (found,) = result.run(feeds).values()
    np.testing.assert_array_equal(found, np.abs(np.concatenate(list(feeds.values()), axis=1)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Concat(x, xs..., axis=0)  =>  Relu(Abs(xs...))", "any number of operands"),
        (
            "Concat(x, xs..., axis=0)  =>  Concat(Add(xs...), axis=0)",
            "takes? one operand|needs its operand|what does not",
        ),
    ],
)
def test_mistakes_with_each(text: str, message: str) -> None:
    with pytest.raises(RuleError, match=message):
        read_text(f"rule r : exact\n    {text}\n")
