"""What evaluating one expression may take: steps and elements are counted, not seconds."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from eqsat.errors import RuleError
from eqsat.rules.evaluation import TensorFacts, Unknown, evaluate
from eqsat.rules.expand import MOST_SWAPS, extent
from eqsat.rules.reader import read_text
from eqsat.rules.step_limit import MOST_ELEMENTS, MOST_STEPS
from eqsat.schema.types import TensorType
from tests.rules.reading import expression


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "len([[0 for i in range(100000)] for j in range(100000)])",
        "sum([sum([j for j in range(1000)]) for i in range(100000)])",
        "len([0 for i in range(100000) if sum([0] * 1000) == 1])",
    ],
)
def test_steps_are_counted(text: str) -> None:
    with pytest.raises(RuleError, match=f"at most {MOST_STEPS:,} steps"):
        evaluate(expression(text), {})


@pytest.mark.parametrize("text", ["len([[0] * 1000] * 1001)", "len([[[0] * 100] * 100] * 100)"])
def test_a_list_counts_with_the_lists_in_it(text: str) -> None:
    with pytest.raises(RuleError, match=f"at most {MOST_ELEMENTS:,} elements"):
        evaluate(expression(text), {})


def test_what_is_moderate_is_computed() -> None:
    assert evaluate(expression("sum([i * 2 for i in range(300)])"), {}) == 300 * 299
    assert evaluate(expression("sum([sum([j for j in range(100)]) for i in range(1000)])"), {}) == 1000 * 4950
    assert evaluate(expression("len([[0] * 900] * 1000)"), {}) == 1000


@pytest.mark.slow
def test_contents_of_a_constant_count_little() -> None:
    array = np.arange(4096, dtype=np.int64)
    facts = TensorFacts(TensorType(ir.DataType.INT64, (4096,)), array, True)
    assert evaluate(expression("sum([w.value[i] for i in range(4096)])"), {"w": facts}) == array.sum()


@pytest.mark.slow
def test_each_evaluation_counts_anew() -> None:
    tree = expression("sum([i for i in range(100000)])")
    for _ in range(10):
        assert evaluate(tree, {}) == 4999950000


@pytest.mark.parametrize("text", ["prod([10 ** 1000] * 1000)", "sum([10 ** 1200] + [10 ** 10 ** 10])"])
def test_whole_numbers_have_a_length(text: str) -> None:
    with pytest.raises(Unknown):
        evaluate(expression(text), {})


def doubling(step: str, count: int) -> str:
    lines = ["let a0 = Relu(x)", *(f"let a{i + 1} = {step.replace('@', f'a{i}')}" for i in range(count))]
    return "\n".join(lines) + f"\nrule r : exact\n    Neg(a{count}) => x\n"


@pytest.mark.parametrize("step", ["Max(@, @)", "Relu(@) | Tanh(@)", "Add(@, @)"])
def test_patterns_are_measured_as_they_look_with_all_lets_written_out(step: str) -> None:
    with pytest.raises(RuleError, match="nested at most 60 deep"):
        read_text(doubling(step, 40))


def test_a_let_that_is_used_twice_is_allowed() -> None:
    (rule,) = read_text(doubling("Max(@, @)", 5)).rules
    assert extent(rule.left[0]) == (2**6, 7)


def test_commutative_operators_of_a_pattern_are_few() -> None:
    def text(count: int) -> str:
        return "rule r : exact\n    Sum(" + ", ".join(f"x{i} + y{i}" for i in range(count)) + ") => x0\n"

    assert read_text(text(MOST_SWAPS)).rules
    with pytest.raises(RuleError, match=f"at most {MOST_SWAPS} commutative operators"):
        read_text(text(MOST_SWAPS + 1))


@pytest.mark.slow
def test_a_message_shows_the_part_of_a_long_line_that_is_meant() -> None:
    with pytest.raises(RuleError) as caught:
        read_text("rule r : exact  Relu(x) => " + "x + " * 50_000 + "Nothing(x)")
    assert len(str(caught.value)) < 1000


def test_names_have_a_length() -> None:
    with pytest.raises(RuleError, match="names of at most 200 letters"):
        read_text(f"rule r : exact\n    Relu({'x' * 201}) => {'x' * 201}\n")


def test_comments_are_found_in_linear_time() -> None:
    text = "# a word\n" * 50_000 + "# the doc\nrule r : exact\n    Relu(x) => Relu(x)\n"
    assert read_text(text).rules[0].doc.endswith("the doc")
