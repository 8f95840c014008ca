"""What a kernel stands for: found by values, so that rewriting, fusing and sharing are all seen."""

from __future__ import annotations

from eqsat.report.cover import Step, covered

CHAIN = [Step(("x",), ("a",)), Step(("a",), ("b",)), Step(("b",), ("c",))]


def test_the_same_graph_covers_itself() -> None:
    assert covered(CHAIN, CHAIN, ["x"]) == [(0,), (1,), (2,)]


def test_a_fused_kernel_covers_all_operators_behind_its_result() -> None:
    assert covered(CHAIN, [Step(("x",), ("a",)), Step(("a",), ("c",))], ["x"]) == [(0,), (1, 2)]


def test_values_that_only_the_result_has_belong_to_the_piece_that_reads_them() -> None:
    after = [Step(("x",), ("new",)), Step(("new",), ("c",))]
    assert covered(CHAIN, after, ["x"]) == [(0, 1, 2), (0, 1, 2)]


def test_a_shared_helper_covers_what_both_readers_stand_for() -> None:
    before = [Step(("x",), ("a",)), Step(("x",), ("b",))]
    after = [Step(("x",), ("h",)), Step(("h",), ("a",)), Step(("h",), ("b",))]
    assert covered(before, after, ["x"]) == [(0, 1), (0,), (1,)]


def test_a_kernel_with_several_results_covers_all_of_them() -> None:
    before = [Step(("x",), ("a",)), Step(("a",), ("b",)), Step(("a",), ("c",))]
    assert covered(before, [Step(("x",), ("b", "c"))], ["x"]) == [(0, 1, 2)]


def test_duplicates_of_the_input_are_covered_together_and_what_is_not_needed_not_at_all() -> None:
    before = [Step(("x",), ("a",)), Step(("x",), ("a",)), Step(("a",), ("unread",))]
    assert covered(before, [Step(("x",), ("a",))], ["x"]) == [(0, 1)]


def test_a_result_that_is_an_input_has_no_kernels() -> None:
    assert covered(CHAIN, [], ["x"]) == []
