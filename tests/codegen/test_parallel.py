"""The text of kernels in parts: which loops become ranges of blocks, and how many blocks a nest has."""

from __future__ import annotations

import pytest

from eqsat.codegen.kernel_stages import END, STAGE, in_stages
from eqsat.codegen.parallel import MARK, STAGES, in_parts, whole


def test_loops_become_ranges() -> None:
    body = f"const int a = 1;\n{MARK}\nfor (ptrdiff_t i = 0; i < 100; i++) {{\n    y0[i] = a;\n}}"
    parts = in_parts(body, {})
    assert parts is not None and (parts.blocks, parts.count) == ("100", 100)
    assert "i = (ptrdiff_t)block_share(begin, 100, 100); i < (ptrdiff_t)(block_share(end, 100, 100)); i++" in parts.body
    assert whole(body) == body.replace(f"{MARK}\n", "")


@pytest.mark.parametrize(
    "body, blocks",
    [
        ("for (size_t o = 0; o < 4; o++) {\nfor (size_t r = 0; r < 8; r++) {\ny0[o] = r;\n}\n}", "32"),
        # What follows the inner loop keeps it whole.
        ("for (size_t o = 0; o < 4; o++) {\nfor (size_t r = 0; r < 8; r++) {\ny0[o] = r;\n}\ny0[o]++;\n}", "4"),
        (
            "for (size_t o = 0; o < 4; o++) {\nfor (size_t r = 0; r < 8; r++) {\n}\n"
            "for (size_t r = 0; r < 2; r++) {\n}\n}",
            "4",
        ),
        # An inner loop that depends on the outer one.
        ("for (size_t o = 0; o < 4; o++) {\nfor (size_t r = 0; r < o + 1; r++) {\n}\n}", "4"),
        ("for (ptrdiff_t j = 0; j < 10; j += 4)\n    y0[j] = 1;", "3"),
        ("for (ptrdiff_t j = 0; j < dim_n; j++) {\n}", "dim_n"),
        ("{\ny0[0] = 1;\n}", None),
        ("y0[0] = 1;", None),
    ],
)
def test_blocks_of_a_nest(body: str, blocks: str | None) -> None:
    parts = in_parts(f"{MARK}\n{body}", {"dim_n": 7})
    assert (None if parts is None else parts.blocks) == blocks


def test_a_range_is_the_same_share_of_each_nest() -> None:
    nests = (f"{MARK}\nfor (ptrdiff_t {i} = 0; {i} < {n}; {i}++)\n    y0[{i}] = 1;" for i, n in (("i", 100), ("j", 30)))
    parts = in_parts("\n".join(nests), {})
    assert parts is not None and parts.blocks == "130"
    for name, count in (("i", 100), ("j", 30)):
        assert f"{name} = (ptrdiff_t)block_share(begin, {count}, 130)" in parts.body
        assert f"{name} < (ptrdiff_t)(block_share(end, {count}, 130))" in parts.body


def test_small_nests_have_few_blocks() -> None:
    large = "for (size_t o = 0; o < 40; o++) {\nfor (size_t r = 0; r < 50; r++) {\ny0[o] = r;\n}\n}"
    middle = "for (size_t o = 0; o < 10; o++) {\nfor (size_t r = 0; r < 50; r++) {\ny0[o] = r;\n}\n}"
    small = "for (size_t i = 0; i < 30; i++)\n    y0[i] = 1;"
    # 64 blocks take both loops of the first nest, 16 those of the second; a sixtieth is one block.
    parts = in_parts("\n".join([MARK, large, MARK, middle, MARK, small]), {})
    assert parts is not None and parts.blocks == str(40 * 50 + 10 * 50 + 1)
    assert "if (begin <= 2500 && 2500 < end)\nfor (size_t i" in parts.body
    inner = f"for (size_t o = 0; o < 9; o++) {{\ny0[o] = 0;\n{MARK}\n{large}\n}}"
    parts = in_parts(f"{MARK}\n{inner}", {})
    assert parts is not None and parts.blocks == "9"


def test_marks_inside_of_other_loops_mean_nothing() -> None:
    body = f"for (ptrdiff_t i = 0; i < 9; i++) {{\n{MARK}\nfor (ptrdiff_t j = 0; j < 9; j++) {{\n}}\n}}"
    assert in_parts(body, {}) is None
    in_braces = f"{{\n{MARK}\nfor (ptrdiff_t j = 0; j < 9; j++) {{\n}}\n}}"
    parts = in_parts(in_braces, {})
    assert parts is not None and parts.blocks == "9"


def test_stages_of_a_sequence() -> None:
    head, large = STAGE.format(part=0.25), "for (size_t o = 0; o < 40; o++) {\nsums[o] = h[o];\n}"
    small = "for (size_t o = 0; o < 1; o++) {\nh[o] = 0;\n}"
    lines = ["float *h;", STAGES, head, MARK, small, END, "for (;;) {", head, MARK, large, END, "h[0]++;", "}"]
    body = "\n".join(lines)
    assert in_parts(body, {}) is None
    found = in_stages(body, {})
    assert found is not None
    assert [(parts.count, part) for parts, part in found.each] == [(1, 0.25), (40, 0.25)]
    assert found.before.strip() == "float *h;"
    assert [turn.split() for turn in found.turns] == [[], ["for", "(;;)", "{"], ["h[0]++;", "}"]]
    assert small in found.body and "sums[o] = h[o];" in found.body and "h[0]++" not in found.body
    assert whole(body) == "\n".join(["float *h;", small, "for (;;) {", large, "h[0]++;", "}"])
    assert in_stages(body.replace("< 40", "< 1"), {}) is None
    assert in_stages(large, {}) is None
