"""Targets that can be read and still make no sense."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from eqsat.errors import RuleError, TargetError
from eqsat.rules.ast import Alternatives, Name, Target
from eqsat.rules.expand import expand
from eqsat.rules.reader import read_text
from eqsat.schema.types import OpKey
from eqsat.targets.validate import problems, validate

HEAD = """
target npu
    peak float32 = 1e12
    bandwidth = 1e10, launch = 10e-6
    link bandwidth = 1e9, latency = 2e-6
"""


def read(entries: str, head: str = HEAD) -> Target:
    return read_text(head + entries, "npu.target").targets[0]


def messages(target: Target) -> list[str]:
    return [str(problem) for problem in problems(target)]


GOOD = "    supports Relu\n    composite pair : exact\n        Relu(x + y)\n"


def test_a_good_target() -> None:
    validate(read(GOOD))
    assert messages(read(GOOD)) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bandwidth": 0.0}, "bandwidth must be more than 0 byte/s; got 0"),
        ({"bandwidth": math.nan}, "bandwidth must be more than 0 byte/s; got nan"),
        ({"link_bandwidth": -1.0}, "link bandwidth must be more than 0 byte/s; got -1"),
        ({"launch": -1e-6}, "launch must be a number of seconds, 0 or more; got -1e-06"),
        ({"launch": math.inf}, "launch must be a number of seconds, 0 or more; got inf"),
        ({"dispatch": math.nan}, "dispatch must be"),
        ({"link_latency": -1.0}, "link latency must be a number of seconds"),
        ({"peak": ()}, "a peak is required"),
        ({"peak": (("float32", 0.0),)}, "peak float32 must be more than 0 MAC/s; got 0"),
        ({"peak": (("float33", 1.0),)}, "did you mean `float32`"),
        ({"peak": (("int8", 1.0), ("int8", 2.0))}, "`int8` twice"),
        ({"name": "eqsat"}, "not an ONNX domain is required"),
        ({"name": "ai"}, "not an ONNX domain"),
        ({"supports": (), "composites": ()}, "a target must run at least one operator"),
    ],
)
def test_numbers_and_names(changes: dict[str, object], message: str) -> None:
    target = replace(read(GOOD), **changes)
    assert any(message in m and m.startswith("npu.target:2:") for m in messages(target))
    with pytest.raises(TargetError):
        validate(target)


def test_fast_links_need_no_finite_number() -> None:
    assert messages(replace(read(GOOD), link_bandwidth=math.inf, link_latency=0.0, launch=0.0)) == []


def test_duplicates_in_a_target_made_by_hand() -> None:
    target = read(GOOD)
    twice = replace(target, composites=target.composites * 2)
    assert any("a unique name" in m and "`pair` twice" in m for m in messages(twice))
    (relu,) = target.supports
    assert any("listed once" in m for m in messages(replace(target, supports=(replace(relu, ops=relu.ops * 2),))))
    unknown = replace(relu, ops=(OpKey("", "Rely"),))
    assert any("an operator that exists" in m and "`Rely`" in m for m in messages(replace(target, supports=(unknown,))))


@pytest.mark.parametrize(
    "entries",
    [
        "    supports Relu\n    supports Relu where x.rank == 4\n",
        "    supports Relu, Add\n    supports Add, Mul\n",
        "    supports *\n    supports Add cost 1\n",
        "    supports *\n    supports *\n",
    ],
)
def test_entries_that_can_never_apply(entries: str) -> None:
    (message,) = messages(read(entries))
    assert message.startswith("npu.target:7:")
    assert "after npu.target:6:" in message


def test_conditions_make_room_for_further_entries() -> None:
    assert messages(read("    supports Relu where x.rank == 4\n    supports Relu\n    supports *\n")) == []


def test_a_host_runs_everything() -> None:
    head = "\nhost slow\n    peak float32 = 1e9\n    bandwidth = 1e9, launch = 1e-6\n"
    assert messages(read("    supports *\n", head)) == []
    assert any("run every operator" in m for m in messages(read("    supports Add\n", head)))
    assert any("run every operator" in m for m in messages(read("    supports * where x.rank == 4\n", head)))


@pytest.mark.parametrize(
    ("cost", "value"), [("-1", "-1"), ("launch - 1", "-0.99"), ("1 / 0", "nothing: "), ("inf - inf", "not a number")]
)
@pytest.mark.parametrize("entry", ["supports Add", "composite c : exact\n        Abs(x + y)\n       "])
def test_costs_that_no_kernel_can_have(entry: str, cost: str, value: str) -> None:
    (message,) = messages(read(f"    {entry} cost {cost}\n"))
    assert "must be a number of seconds, 0 or more" in message and value in message


def test_a_kernel_may_be_free_and_its_cost_may_depend_on_it() -> None:
    assert messages(read("    supports Reshape cost 0\n    supports Add cost launch + x.size / bandwidth\n")) == []


def test_patterns_that_explode() -> None:
    ops = "(Relu | Tanh | Sigmoid | Exp | Abs | Neg | Sqrt)"
    target = read(f"    composite big : exact\n        {ops}({ops}({ops}(x)))\n")
    assert any("343 for `big`" in m for m in messages(target))


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("x.dtype", "true or false is required"),
        ("x.rank", "true or false is required"),
        ("x.rank == float32 and x.shape", "true or false is required"),
        ('x.rank == "a"', "is required to compare with"),
        ("z.rank == 4", "z"),
        ("node.groups == 1", "did you mean `group`"),
        ("x.ranks == 4", "did you mean `rank`"),
    ],
)
def test_conditions_that_make_no_sense_are_not_read(condition: str, message: str) -> None:
    with pytest.raises(TargetError) as error:
        read(f"    supports Conv where {condition}\n")
    assert str(error.value).startswith("npu.target:6:")
    assert message in str(error.value)


UNARY = "Relu | Sigmoid | Tanh | Exp"
"""Four operators: each that may be one of them multiplies the plain patterns by four."""


@pytest.mark.parametrize(
    ("pattern", "count"),
    [
        (f"({UNARY})(({UNARY})(({UNARY})(({UNARY})(x))))", 256),
        (f"({UNARY})(({UNARY})(({UNARY})(({UNARY})(Neg(x) | Abs(x)))))", 512),
        (f"({UNARY})(x) | ({UNARY})(({UNARY})(x))", 20),
    ],
)
def test_clauses_are_counted_as_if_they_were_made(pattern: str, count: int) -> None:
    target = read(f"    supports Relu\n    composite chain : exact\n        {pattern}\n")
    found = messages(target)
    assert len(expand(target.composites[0].patterns)) == count
    assert [f"{count} for `chain`" in message for message in found] == [True] * (count > 256)


def test_a_pattern_without_a_root_is_refused() -> None:
    target = read(GOOD)
    place = target.composites[0].place
    bare = Alternatives((*target.composites[0].patterns, Name("x", place)), place)
    with pytest.raises(RuleError, match="an operator is required as the root of a pattern"):
        validate(replace(target, composites=(replace(target.composites[0], patterns=(bare,)),)))
