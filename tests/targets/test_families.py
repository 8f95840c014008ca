"""``family`` entries: how they are read, what is wrong with them, and what they make of kernels."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from eqsat.codegen.family_names import family_names, unknown_families
from eqsat.errors import RuleError, TargetError
from eqsat.rules.ast import Composite, Target
from eqsat.rules.evaluation import TensorFacts
from eqsat.rules.format import format_file
from eqsat.rules.reader import read_text
from eqsat.schema.body import Body, BodyNode
from eqsat.schema.types import OpKey, TensorType
from eqsat.targets.condition_names import bind_operands
from eqsat.targets.families import family_entry
from eqsat.targets.find_targets import load_host
from eqsat.targets.kernel_cost import CostModel
from eqsat.targets.validate import problems

HEAD = """host core
    peak float32 = 40e9
    bandwidth = 10e9, launch = 1e-6

    supports *

"""
FLOAT = ir.DataType.FLOAT
RELU, EXP = OpKey("", "Relu"), OpKey("", "Exp")


def core(entries: str) -> Target:
    (found,) = read_text(HEAD + entries, "core.target").targets
    return found


def test_what_is_read():
    host = core('    family a, b where x.rank == 4 because "images" cost launch\n    family * cost 2 * launch\n')
    first, rest = host.families
    assert first.names == ("a", "b") and rest.names == ()
    assert first.where[0].because == "images" and first.place.line == 7
    assert list(problems(host)) == []


def test_canonical_form_is_a_fixed_point():
    text = (
        HEAD
        + "    let s = 1e-9\n\n    family a,  b\n      where x.rank==4\n      cost s+macs*2\n    family *   cost s\n"
    )
    once = format_file(text, "core.target")
    assert "    family a, b\n        where x.rank == 4\n        cost s + macs * 2\n" in once
    assert format_file(once, "core.target") == once
    assert len(read_text(once, "core.target").targets[0].families) == 2


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("    family a", "a `family` must give its `cost`"),
        ("    family a, a cost launch", "each family must be listed once"),
        ("    family a cost speed", "`speed` is not bound"),
        ("    family a where functions > 1 cost launch", "`functions` is not bound"),
        ("    family a cost launch cost launch", "`cost` must be given once"),
    ],
)
def test_errors_of_reading(entry: str, message: str):
    with pytest.raises((RuleError, TargetError), match=message):
        core(entry)


def test_accelerators_have_none():
    text = HEAD.replace("host core", "target npu") + "    link bandwidth = 1, latency = 1\n    family a cost launch\n"
    with pytest.raises(TargetError, match="belongs to a host"):
        read_text(text, "npu.target")


def test_family_is_a_name_elsewhere():
    (host,) = read_text(HEAD + "    let family = 3\n    family a cost family * launch\n", "core.target").targets
    assert len(host.families) == 1


def test_entries_that_cannot_apply():
    (problem,) = problems(core("    family a cost launch\n    family a, b cost launch\n"))
    assert "one after core.target:7:5, which takes each `a`" in str(problem)
    (problem,) = problems(core("    family * cost launch\n    family b cost launch\n"))
    assert "which takes everything" in str(problem)
    assert not list(problems(core("    family a where x.rank == 4 cost launch\n    family a cost launch\n")))


def test_names_are_those_of_families():
    entry = "    family direct_convolutions cost launch\n"
    kernel = "    composite a : exact\n        Relu(Exp(x))\n        by direct_convolutions\n"
    for text, count in ((entry, 1), (entry + kernel, 2)):
        problems = list(unknown_families(core(text)))
        assert len(problems) == count
        assert all("did you mean `direct_convolution`" in str(problem) for problem in problems)
    assert {"direct_convolution", "winograd_convolution", "packed_matrix_product"} <= set(family_names())
    assert list(unknown_families(load_host("c"))) == []


def test_first_entry_whose_conditions_hold():
    host = core("    family a where x.rank == 4 cost 1\n    family a cost 2\n    family * cost 3\n")

    def found(name: str, rank: int) -> float:
        x = TensorType(FLOAT, (2,) * rank)
        env = bind_operands(RELU, (), [], [x]) | bind_operands(RELU, (), [_facts(x)], [x])
        entry = family_entry(host, name, env)
        assert entry is not None
        return CostModel([host]).composite(0, _kernel(name), {}, BODY, [x], x)

    assert [found("a", 4), found("a", 3), found("b", 4)] == [1, 2, 3]


def _facts(x: TensorType) -> TensorFacts:
    return TensorFacts(x)


BODY = Body(1, (BodyNode(EXP, (), (0,)), BodyNode(RELU, (), (1,))), (2,))


def _kernel(name: str) -> Composite:
    """A composite without a cost of its own."""
    text = f"    family * cost 1\n    composite fused : exact\n        Relu(Exp(x))\n        by {name}\n"
    return core(text).composites[0]


@pytest.mark.parametrize(
    ("cost", "seconds"),
    [
        ("macs * 1", 2 * 24),
        ("bytes * 1", 2 * 96),
        ("functions * 1", 24),
        ("scattered * 1", 0),
        ("y.size + x.shape[1]", 27),
        ("peak / bandwidth", 4),
        ("launch * 1e6", 1),
    ],
)
def test_a_kernel_without_a_cost_has_its_familys(cost: str, seconds: float):
    """Exp and Relu on 24 floats: work is that of both, bytes are those that cross the border."""
    host = core(f"    family a cost {cost}\n")
    x = TensorType(FLOAT, (2, 3, 4, 1))
    assert CostModel([host]).composite(0, _kernel("a"), {}, BODY, [x], x) == pytest.approx(seconds)


def test_a_conversion_on_the_way_reads_across():
    layout = Body(1, (BodyNode(RELU, (), (0,)), BodyNode(OpKey("eqsat", "ChannelsLast"), (), (1,))), (2,))
    both = Body(
        1,
        (
            BodyNode(OpKey("eqsat", "ChannelsFirst"), (), (0,)),
            BodyNode(RELU, (), (1,)),
            BodyNode(OpKey("eqsat", "ChannelsLast"), (), (2,)),
        ),
        (3,),
    )
    host, x = core("    family a cost scattered\n"), TensorType(FLOAT, (1, 3, 4, 4))
    costs = CostModel([host])
    assert costs.composite(0, _kernel("a"), {}, layout, [x], x) == 192
    assert costs.composite(0, _kernel("a"), {}, both, [x], x) == 0


def test_without_entry_or_elements_the_roofline_holds():
    x, nothing = TensorType(FLOAT, (4, 6)), TensorType(FLOAT, (4, 0))
    plain, own = core(""), core("    family a cost bytes / y.size\n")
    expected = 1e-6 + 2 * 96 / 10e9
    assert CostModel([plain]).composite(0, _kernel("a"), {}, BODY, [x], x) == pytest.approx(expected)
    assert CostModel([own]).composite(0, _kernel("a"), {}, BODY, [nothing], nothing) == pytest.approx(1e-6)


CONV = OpKey("", "Conv")
CONV_AND_ADD = Body(3, (BodyNode(CONV, (("group", 1),), (0, 1)), BodyNode(OpKey("", "Add"), (), (3, 2))), (4,))


def _estimated(batch: int, length: int) -> float:
    """Seconds of Conv (8 channels of 4, kernel of 5) and Add, where the operands' sizes are estimates."""
    host = core("    family a cost macs * 1 + node.group\n")
    x, w, y = (TensorType(FLOAT, shape) for shape in [("M", 4, length), (8, 4, 5), ("N", 8, 6)])
    costs = CostModel([host], sizes=[{"M": 2, "N": batch}])
    return costs.composite(0, _kernel("a"), {}, CONV_AND_ADD, [_facts(x), _facts(w), _facts(y)], y)


def test_estimated_sizes_that_do_not_fit_together_leave_each_operator_its_attributes():
    convolution, addition = 2 * 8 * 6 * 4 * 5, 2 * 8 * 6
    assert _estimated(2, 10) == convolution + addition + 1
    assert _estimated(3, 10) == convolution + 3 * 8 * 6 + 1  # batches of 2 and 3 are not added
    assert _estimated(2, 3) == 8 * 4 * 5 + 1  # a kernel of 5 has no place on 3: one for each element of the largest


def test_an_own_cost_goes_first():
    text = "    composite fused : exact\n        Relu(Exp(x))\n        by a\n        cost 7\n"
    host = core("    family a cost 3\n" + text)
    x = TensorType(FLOAT, (4,))
    assert CostModel([host]).composite(0, host.composites[0], {"x": _facts(x)}, BODY, [x], x) == 7
