"""Hosts of generated code: families of kernels, what they compute (``by``), rules that belong to a target."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import eqsat
from eqsat.errors import RuleError, TargetError
from eqsat.rules.ast import Build, Composite, Rest, Target
from eqsat.rules.format import format_file
from eqsat.rules.reader import read_text
from eqsat.rules.selection import NumericsClass
from eqsat.search import Search
from eqsat.targets.find_targets import load_targets
from tests.rules.printing import format_composite, format_rule

HOST = """host tiny
    summary "a host for tests"
    peak float32 = 1e9
    bandwidth = 1e9, launch = 1e-6

    supports Relu
        by steps
    supports *

    family steps
        cost 2e-6 + functions * 1e-9
    family direct
        cost launch + macs / peak

    # What it is.
    composite direct_convolution : exact
        let c = Conv(x, w, b?)
        Relu(c) | c
        by direct
        where const(w, b)
"""


def target(text: str) -> Target:
    (found,) = read_text(text, "tiny.target").targets
    return found


def composite(text: str) -> Composite:
    (found,) = target(text).composites
    return found


def test_what_by_says() -> None:
    found = target(HOST)
    assert [(len(s.ops), s.family) for s in found.supports] == [(1, "steps"), (0, "")]
    assert (composite(HOST).name, composite(HOST).family, composite(HOST).doc) == (
        "direct_convolution",
        "direct",
        "What it is.",
    )


def test_it_prints_as_it_was_read() -> None:
    assert format_file(HOST, "tiny.target") == HOST
    again = composite(HOST[: HOST.index("    # What")] + format_composite(composite(HOST)) + "\n")
    assert format_composite(again) == format_composite(composite(HOST))


def test_the_family_gives_the_cost(tmp_path: Path) -> None:
    """A fused kernel costs what its family says; an operator by itself likewise; the rest is a roofline."""
    (tmp_path / "tiny.target").write_text(HOST, "utf-8")
    x = eqsat.input("x", (1, 2, 4, 4))
    w = np.ones((2, 2, 1, 1), np.float32)
    graph = eqsat.graph(eqsat.op.Tanh(eqsat.op.Relu(eqsat.op.Relu(eqsat.op.Conv(x, w)))))
    result = eqsat.optimize(graph, host=tmp_path / "tiny.target", default_rules=False)
    kernels = {str(node.op): (node.family, node.cost) for node in result.plan.nodes}
    macs = 2 * 2 * 16 + 32  # The activation counts one for each element.
    assert kernels["tiny.direct_convolution"] == ("direct", pytest.approx(1e-6 + macs / 1e9))
    assert kernels["Relu"] == ("steps", pytest.approx(2e-6))
    assert kernels["Tanh"][0] == ""
    assert [n.metadata_props.get("eqsat.family") for n in result.model.graph] == ["direct", "steps", None]


def test_by_is_a_name_elsewhere() -> None:
    found = target(
        HOST.replace("    supports Relu", "    let by = 2e-6\n    supports Neg\n        cost by\n    supports Relu")
    )
    assert found.supports[0].cost is not None
    (rule,) = read_text("rule r : exact\n    by: Relu(x)  =>  Relu(by)").rules
    assert rule.name == "r"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("        by direct\n", '        by direct\n        call "f({x})"\n'), "has no `call` and no `annotate`"),
        (("        by direct\n", "        by direct\n        by steps\n"), "`by` must be given once"),
        (("        by direct\n", "        by direkt\n"), "(?s)a `family` entry.*`direkt`.*direct"),
        (("    # What", "    composite direct_convolution : exact\n        Relu(x)\n\n    # What"), "name of its own"),
        (("host tiny", "target tiny"), "belongs to a host"),
        (("    peak", '    rules "none.rules"\n    peak'), "(?s)path of a rule file.*none.rules"),
        (("    peak", '    text "none"\n    peak'), "`summary`, `rules` or `prepare` is required"),
        (("    composite direct", "    kernel direct"), "(?s)got `kernel`.*`composite NAME : CLASS`"),
    ],
)
def test_mistakes(change: tuple[str, str], message: str) -> None:
    with pytest.raises(TargetError, match=message):
        target(HOST.replace(*change))


def test_a_cost_serves_in_place_of_a_family_entry() -> None:
    found = composite(HOST.replace("        by direct\n", "        by winograd_convolution\n        cost 3e-6\n"))
    assert found.family == "winograd_convolution"
    assert found.cost is not None


# ---- rules that belong to a target ------------------------------------------------------------------------------

OWN = "rule twice : exact\n    Relu(Relu(x))  =>  Relu(x)\n\nrule once : real\n    Tanh(Relu(x))  =>  Relu(Tanh(x))\n"


def own_host(folder: Path) -> Path:
    (folder / "own.rules").write_text(OWN, "utf-8")
    path = folder / "tiny.target"
    path.write_text(
        HOST.replace("    peak", '    rules "own.rules"\n    rules "kernels/layout.rules"\n    peak'), "utf-8"
    )
    return path


def test_rules_are_found_beside_the_file_and_among_the_shipped(tmp_path: Path) -> None:
    (found,) = load_targets(own_host(tmp_path))
    assert [Path(r).name for r in found.rules] == ["own.rules", "layout.rules"]
    assert Path(found.rules[0]).parent == tmp_path


@pytest.mark.parametrize(("numerics", "names"), [("exact", {"twice"}), ("real", {"twice", "once"})])
def test_they_run_within_the_numerics_class(tmp_path: Path, numerics: NumericsClass, names: set[str]) -> None:
    x = eqsat.input("x", (1, 2, 4, 4))
    graph = eqsat.graph(eqsat.op.Tanh(eqsat.op.Relu(eqsat.op.Relu(x))))
    search = Search.of(graph, host=own_host(tmp_path), default_rules=False, numerics=numerics)
    assert {r.name for r in search.loaded.rules} & {"twice", "once"} == names
    assert sum(node.op.name == "Relu" for node in search.extract().plan.nodes) == 1


def test_a_rule_that_was_selected_anyhow_runs_once(tmp_path: Path) -> None:
    path = own_host(tmp_path)
    x = eqsat.input("x", (1, 2, 4, 4))
    search = Search.of(eqsat.graph(eqsat.op.Relu(x)), host=path, rules=[tmp_path / "own.rules"], default_rules=False)
    assert sum(rule.name == "twice" for rule in search.loaded.rules) == 1


def test_a_report_says_which_composites_are_left_out(tmp_path: Path) -> None:
    """Of accelerators: users would look for the reason in vain."""
    npu = """target npu
    peak float32 = 1e15
    bandwidth = 1e15, launch = 0, dispatch = 0
    link bandwidth = 1e15, latency = 0
    composite fast_tanh : approximate
        Tanh(x)
    composite rectify : exact
        Relu(x)
"""
    (tmp_path / "npu.target").write_text(npu, "utf-8")
    graph = eqsat.graph(eqsat.op.Tanh(eqsat.op.Relu(eqsat.input("x", (2, 3)))))
    found = eqsat.optimize(graph, targets=tmp_path / "npu.target", default_rules=False)
    assert found.summary.notes == ("1 composite of npu is left out, beyond the numerics class 'real': fast_tanh",)
    assert str(found).count("fast_tanh") == 1
    assert [str(n.op) for n in found.plan.nodes] == ["npu.rectify", "Tanh"]
    loose = eqsat.optimize(graph, targets=tmp_path / "npu.target", default_rules=False, numerics="approximate")
    assert loose.summary.notes == ()
    assert [str(n.op) for n in loose.plan.nodes] == ["npu.rectify", "npu.fast_tanh"]


def test_composites_beyond_the_numerics_class_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "tiny.target").write_text(
        HOST.replace("direct_convolution : exact", "direct_convolution : real"), "utf-8"
    )
    x = eqsat.input("x", (1, 2, 4, 4))
    graph = eqsat.graph(eqsat.op.Conv(x, np.ones((2, 2, 1, 1), np.float32)))
    for numerics, expected in (("exact", "Conv"), ("real", "tiny.direct_convolution")):
        result = eqsat.optimize(graph, host=tmp_path / "tiny.target", default_rules=False, numerics=numerics)
        assert [str(node.op) for node in result.plan.nodes] == [expected]


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
    result = eqsat.optimize(eqsat.graph(y), rules=[rule], default_rules=False, objective="worst")
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
            "takes? one operand|needs its operand|takes other than one operand",
        ),
    ],
)
def test_mistakes_with_each(text: str, message: str) -> None:
    with pytest.raises(RuleError, match=message):
        read_text(f"rule r : exact\n    {text}\n")
