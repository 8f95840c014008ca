"""The picture is well-formed, takes names literally, and gives one colour to a kernel and to what it replaces."""

from __future__ import annotations

import re
import time
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import eqsat
from benchmarks.pictures import PICTURE, drawn
from eqsat import op
from eqsat.report.svg import to_svg

from .large import large
from .sample import sample

SPACE = "{http://www.w3.org/2000/svg}"


def colours(svg: str) -> list[tuple[str, str | None]]:
    """The first line of text of each node of a picture, and its own colour."""
    found: list[tuple[str, str | None]] = []
    for group in ElementTree.fromstring(svg).iter(f"{SPACE}g"):
        box, text = group.find(f"{SPACE}rect"), group.find(f"{SPACE}text")
        if group.find(f"{SPACE}title") is not None and box is not None and text is not None:
            found.append((text.text or "", box.get("fill")))
    return found


def test_the_picture_of_the_readme_is_of_a_run() -> None:
    svg = drawn()
    # `python -m benchmarks.pictures` draws it anew.
    assert svg == PICTURE.read_text("utf-8")
    found = colours(svg)
    before, after = found[: found.index(("output", None)) + 1], found[found.index(("output", None)) + 1 :]
    colour = dict(after)
    assert [c for name, c in before if name in ("Conv", "Relu", "Max", "Add")] == [
        colour["dnnl.conv_eltwise"],
        colour["dnnl.conv_eltwise"],
        colour["dnnl.conv_sum"],
        colour["dnnl.conv_sum"],
        colour["dnnl.conv_sum"],
    ]
    assert dict(before)["Softmax"] is colour["Softmax"] is None


def test_bodies_have_pictures_of_their_own(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[4] x, bool c) => (float[4] y) {
        y = If (c) <then_branch = t () => (float[4] a) { a = Relu(x) },
                    else_branch = e () => (float[4] b) { b = Neg(x) }> }"""
    result = eqsat.optimize(text)
    result.report(tmp_path / "picture.svg")
    heads = re.findall(r'class="head".*?>(.*?)<', (tmp_path / "picture.svg").read_text("utf-8"))
    assert len(heads) == 6
    assert heads[0].startswith("before: ")
    assert "of" in heads[2]


def test_names_are_taken_literally() -> None:
    x = eqsat.input("<script>&\u202e", (2, 2))
    svg = to_svg(eqsat.optimize(eqsat.graph(op.Relu(x + np.float32(1))), verify=False).summary)
    ElementTree.fromstring(svg)
    assert "<script>" not in svg
    assert "\u202e" not in svg


def test_a_model_that_is_left_unchanged_has_an_empty_picture() -> None:
    assert ElementTree.fromstring(to_svg(sample())).find(f"{SPACE}g") is None


@pytest.mark.parametrize("count", [1, 2000])
def test_pictures_have_any_size(count: int) -> None:
    start = time.process_time()
    svg = to_svg(large(count))
    assert time.process_time() - start < 5
    assert len(colours(svg)) == 2 * count
