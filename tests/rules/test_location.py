"""The shipped rules are found from a checkout and from an installed package."""

from __future__ import annotations

from pathlib import Path

import pytest

from eqsat.errors import RuleError
from eqsat.rules import location


def test_of_this_checkout() -> None:
    assert (location.rules_dir() / "prelude.rules").is_file()
    assert (location.rules_dir() / "targets" / "cpu.target").is_file()


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package elsewhere."""
    package = tmp_path / "eqsat"
    (package / "rules").mkdir(parents=True)
    monkeypatch.setattr(location, "__file__", str(package / "rules" / "location.py"))
    return package


def test_beside_the_package(package: Path) -> None:
    (package.parent / "rules").mkdir()
    assert location.rules_dir() == package.parent / "rules"


def test_what_is_packaged_comes_first(package: Path) -> None:
    (package.parent / "rules").mkdir()
    (package / "_rules").mkdir()
    assert location.rules_dir() == package / "_rules"


def test_a_broken_installation(package: Path) -> None:
    with pytest.raises(RuleError, match="the rules that eqsat ships with are required"):
        location.rules_dir()
