"""The workflow files call what is there: make targets, `.ci/run`, and the Python versions that the package names."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import eqsat

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_commands_are_there(path: Path) -> None:
    text = path.read_text("utf-8")
    commands = re.findall(r"^ +- run: (.+)$", text, re.MULTILINE)
    called = {word for command in commands for word in re.findall(r"\bmake ([a-z-]+)", command)}
    for matrix in re.findall(r"^ +target: \[(.*)\]", text, re.MULTILINE):
        called |= set(re.findall(r"[a-z-]+", matrix))
    assert called <= TARGETS
    for command in commands:
        assert command.startswith(("make ", "sudo apt-get ")) or (ROOT / command).is_file()
    # Actions are those of the host itself, of one version each.
    assert all(re.fullmatch(r"actions/[a-z-]+@v\d+", used) for used in re.findall(r"uses: (\S+)", text))
    assert "permissions: {contents: read}" in text


def test_each_version_of_the_package_is_tried() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    named = {
        c.rpartition(" ")[2] for c in project["classifiers"] if c.startswith("Programming Language :: Python :: 3.")
    }
    tests = (ROOT / ".github" / "workflows" / "tests.yml").read_text("utf-8")
    assert set(re.findall(r'"(3\.\d+)"', tests)) == named


def test_one_version_is_named() -> None:
    changes = (ROOT / "CHANGELOG.md").read_text("utf-8")
    cited = (ROOT / "CITATION.cff").read_text("utf-8")
    newest = re.findall(r"^## \[(.+?)\] - (?:not released yet|\d{4}-\d\d-\d\d)$", changes, re.MULTILINE)[0]
    assert re.findall(r"^version: (.+)$", cited, re.MULTILINE) == [newest]
    assert eqsat.__version__ == newest


def test_templates_ask_for_what_contributors_are_told() -> None:
    templates = (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")
    assert any("eqsat doctor" in path.read_text("utf-8") for path in templates)
    assert "eqsat doctor" in (ROOT / "CONTRIBUTING.md").read_text("utf-8")
