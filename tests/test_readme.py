"""What a package index shows of the README: no link and no picture leads nowhere."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
RELATIVE = r"(?:\]\(|src=\")(?![a-z]+:|#)[^)\"]*"


@pytest.fixture(scope="module")
def for_index() -> Callable[[str, str], str]:
    pytest.importorskip("hatchling")
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.for_index


def test_links_become_absolute(for_index: Callable[[str, str], str]) -> None:
    source = "https://example.org/eqsat"
    assert re.findall(RELATIVE, README)
    text = for_index(README, source)
    assert re.findall(RELATIVE, text) == []
    assert f'<img src="{source}/raw/main/docs/pictures/partition.svg"' in text
    assert f"[Installing]({source}/blob/main/docs/install.md)" in text


def test_without_a_place_links_become_text(for_index: Callable[[str, str], str]) -> None:
    text = for_index(README, "")
    assert re.findall(RELATIVE, text) == []
    assert "<img" not in text and "- Installing: " in text
    # Programs are left as they are.
    assert re.findall(r"```.*?```", text, re.DOTALL) == re.findall(r"```.*?```", README, re.DOTALL)
