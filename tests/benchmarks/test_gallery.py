"""The gallery: bars end where the costs do, colours say where kernels run, and the page has what it links to."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

import eqsat
from benchmarks.gallery import COLOURS, DOCS, NETWORKS, Part, bars, merged, picture, row, sentence
from benchmarks.pictures import residual_block
from eqsat.report.summary import Summary


@pytest.fixture(scope="module")
def summary() -> Summary:
    return eqsat.optimize(residual_block(), targets=["dnnl"], verify=False).summary


def test_bars_last_as_long_as_the_programs(summary: Summary) -> None:
    before, after = bars(summary)
    assert sum(part.seconds for part in before) == pytest.approx(summary.before.cost)
    assert sum(part.seconds for part in after) == pytest.approx(summary.after.cost)
    assert [part.where for part in after] == ["accelerator"] * 3 + ["host", "copies"]
    assert [part.where for part in before] == ["accelerator"] * 8 + ["host"] * 2


def test_pictures_have_the_colours_of_the_targets(summary: Summary) -> None:
    drawn = ElementTree.fromstring(picture(summary))
    found = {rect.get("fill") for rect in drawn.iter("{http://www.w3.org/2000/svg}rect")}
    assert found == {*COLOURS.values(), "#fff"}


def test_short_bars_are_merged() -> None:
    parts = [Part("host", 1), Part("host", 1), Part("host", 3), Part("copies", 1), Part("host", 1)]
    assert merged(parts, 2) == [Part("host", 2), Part("host", 3), Part("copies", 1), Part("host", 1)]


def test_a_row_and_its_sentence(summary: Summary) -> None:
    assert row("block", summary) == "| block | 9 | 4 | 2 | 1 | 1 | 491 µs | 307 µs | 1.60x | 0.00 % |"
    assert "1 Softmax" in sentence(summary) and "cheaper on the host" in sentence(summary)


def test_the_page_is_complete() -> None:
    page = (DOCS / "gallery.md").read_text("utf-8")
    assert all(f"| {title} |" in page and f"## {title}\n" in page for title in NETWORKS.values())
    pictures = re.findall(r"\]\((pictures/gallery/.*?)\)", page)
    assert [(DOCS / path).stem for path in pictures] == list(NETWORKS)
    for path in pictures:
        ElementTree.parse(DOCS / path)


def test_the_readme_has_the_same_numbers() -> None:
    def rows(text: str) -> dict[str, set[str]]:
        cells = [
            [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:2] == "| "
        ]
        return {first: set(more) for first, *more in cells if first in NETWORKS.values()}

    page, readme = (rows(path.read_text("utf-8")) for path in (DOCS / "gallery.md", DOCS.parent / "README.md"))
    assert len(readme) >= 5
    assert all(cells <= page[title] for title, cells in readme.items())
