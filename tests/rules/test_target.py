"""Target files: settings, supported operators, composites."""

from __future__ import annotations

import math

import pytest

from eqsat.rules.ast import Alternatives, Apply, Match, Member, Name
from eqsat.rules.location import rules_dir
from eqsat.rules.reader import read_file, read_text
from eqsat.schema.types import OpKey
from tests.rules.printing import shown
from tests.rules.reading import target


def test_settings() -> None:
    text = (
        "# Above.\ntarget npu   # Behind.\n    # Below.\n"
        '    summary "int8 NPU"\n    peak int8 = 4e12, uint8 = 2 * 2e12\n    peak float = 1e12\n'
        "    bandwidth = 8e9, launch = 20e-6, dispatch = 5e-6\n    link bandwidth = 4e9, latency = 6e-6\n"
    )
    found = read_text(text).targets[0]
    assert found.name == "npu"
    assert found.doc == "Above.\nBehind.\nBelow."
    assert found.summary == "int8 NPU"
    assert not found.is_host
    assert found.peak == (("int8", 4e12), ("uint8", 4e12), ("float32", 1e12))
    assert (found.bandwidth, found.launch, found.dispatch) == (8e9, 20e-6, 5e-6)
    assert (found.link_bandwidth, found.link_latency) == (4e9, 6e-6)


def test_defaults() -> None:
    assert target().dispatch == target().link_latency == 1e-6
    host = target(head="host h")
    assert host.is_host
    assert (host.dispatch, host.link_bandwidth, host.link_latency) == (0.0, math.inf, 0.0)


def test_supported_operators() -> None:
    found = target(
        'supports Add, Concat where x.dtype in (int8, uint8), y.rank == x.rank because "no broadcasting"\n'
        "    supports com.microsoft.Gelu cost launch + 2 * y.size * bits(y.dtype) / 8 / bandwidth\n    supports *"
    ).supports
    assert [s.ops for s in found] == [(OpKey("", "Add"), OpKey("", "Concat")), (OpKey("com.microsoft", "Gelu"),), ()]
    assert [c.because for c in found[0].where] == [None, "no broadcasting"]
    assert found[0].cost is None
    assert found[1].cost is not None
    assert shown(found[1].cost) == "launch + 2 * y.size * bits(y.dtype) / 8 / bandwidth"


@pytest.mark.parametrize(
    "text",
    [
        "supports Conv where W.rank == 4, const(W), not B.is_present, X.shape == x.shape, Y.rank == y.rank",
        "supports Conv where node.strides == [1, 1], node.group == 1",
        "supports Conv, ConvTranspose where const(W), node.dilations == [1, 1]",
        "supports Concat where len(inputs) == 2, all([v.rank == y.rank for v in inputs]), inputs[0].rank == 4",
        "supports MaxPool where not Indices.is_present",
        "supports MaxPool, GlobalMaxPool where not node.ceil_mode.is_present or node.ceil_mode == 0",
        "supports Clip where const(min, max), min.value == 0",
        "supports * where x.dtype == float32 cost launch",
    ],
)
def test_names_in_conditions_on_operators(text: str) -> None:
    assert len(target(text).supports) == 1


def test_composites() -> None:
    found = target(
        "composite conv_relu : within 1 lsb\n"
        "        # Doc.\n"
        "        maybe(Relu)(c: Conv(x, w, b?))\n"
        '        where const(w, b) because "the weights live on the device", c.group == 1\n'
        "        cost launch + max(macs / peak, bytes / bandwidth) + w.size\n"
        '        call "f({x}, {w}, {y}, {c.strides[0]}, "\n             "{{ {x.shape[1] + 1} }});"'
    ).composites[0]
    assert (found.name, str(found.numerics), found.doc) == ("conv_relu", "within 1 lsb", "Doc.")
    assert isinstance(found.patterns[0], Alternatives)
    assert [c.because for c in found.where] == ["the weights live on the device", None]
    assert found.cost is not None
    assert shown(found.cost) == "launch + max(macs / peak, bytes / bandwidth) + w.size"
    assert found.call == "f({x}, {w}, {y}, {c.strides[0]}, {{ {x.shape[1] + 1} }});"
    parts = [p if isinstance(p, str) else f"<{shown(p)}>" for p in found.call_parts]
    assert parts == ["f(", "<x>", ", ", "<w>", ", ", "<y>", ", ", "<c.strides[0]>", ", { ", "<x.shape[1] + 1>", " });"]


def test_a_composite_without_clauses() -> None:
    found = target("composite c : exact\n        Relu(x)").composites[0]
    assert (found.cost, found.call, found.call_parts, found.where) == (None, None, (), ())
    assert isinstance(found.patterns[0], Match)


def test_the_result_in_a_call_may_be_named_by_the_pattern() -> None:
    found = target('composite c : exact\n        out: Add(x, y)\n        call "add({x}, {y}, {out})"').composites[0]
    names = [p.name for p in found.call_parts if isinstance(p, Name)]
    assert names == ["x", "y", "out"]


def test_reasons_belong_to_the_condition_before_them() -> None:
    found = target('supports Relu where x.rank == 2, x.size > 1 because "large", x.dtype == float32')
    assert [c.because for c in found.supports[0].where] == [None, "large", None]


def test_a_host_and_a_target_in_one_file() -> None:
    text = (
        "host h\n    peak float32 = 1\n    bandwidth = 1, launch = 1\n    supports *\n"
        "target t\n    peak float32 = 1\n    bandwidth = 1, launch = 1\n    link bandwidth = 1, latency = 1\n"
        "    supports Relu\nrule r : exact\n    Relu(Relu(x))  =>  Relu(x)\n"
    )
    found = read_text(text)
    assert [t.name for t in found.targets] == ["h", "t"]
    assert [r.name for r in found.rules] == ["r"]


@pytest.mark.parametrize("path", sorted((rules_dir() / "targets").glob("*.target")), ids=lambda p: p.stem)
def test_shipped_targets(path) -> None:
    found = read_file(path)
    assert [t.name for t in found.targets] == [path.stem]
    assert found.targets[0].summary
    assert found.targets[0].supports or found.targets[0].composites
    for composite in found.targets[0].composites:
        for condition in composite.where:
            # These conditions are decided inside the e-graph, which looks at plain names only.
            if isinstance(condition.expr, Apply) and condition.expr.function == "const":
                assert all(isinstance(a, Name | Member) for a in condition.expr.args)


def test_constness_in_conditions_on_operators_is_a_fact_like_any_other() -> None:
    found = target("supports Clip where not min.is_present or const(min) or x.is_const").supports[0]
    assert len(found.where) == 1


def test_constness_in_composites_is_required_condition_by_condition() -> None:
    found = target(
        "let fixed(v) = v.rank == 1 and const(v) and v.dtype == float32\n"
        '    composite c : exact\n        x * w\n        where fixed(w) because "it is read once",'
        " x.rank == 2 and x.size > 1"
    ).composites[0]
    texts = [(shown(c.expr), c.because) for c in found.where]
    assert texts == [
        ("w.rank == 1", "it is read once"),
        ("const(w)", "it is read once"),
        ("w.dtype == float32", "it is read once"),
        ("x.rank == 2 and x.size > 1", None),
    ]
