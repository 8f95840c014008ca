"""``eqsat doctor`` on a machine that has all, and on machines that lack something."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from eqsat.backends import find_backends
from eqsat.cli import main

Capture = pytest.CaptureFixture[str]


def findings(capsys: Capture) -> dict[str, dict[str, str]]:
    assert main(["doctor", "--json"]) == 0
    return {line["topic"]: line for line in json.loads(capsys.readouterr().out)}


def test_what_is_there(capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EQSAT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("COLUMNS", raising=False)
    found = findings(capsys)
    assert {"eqsat", "Python", "egglog", "numpy", "C compiler", "cache", "memory limit"} <= set(found)
    assert ": " in found["C compiler"]["found"] and not found["C compiler"]["missing"]
    assert str(tmp_path / "cache") in found["cache"]["found"]
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(found)
    assert all(line.startswith(topic) for line, topic in zip(lines, found, strict=True))
    monkeypatch.setenv("COLUMNS", "50")
    assert main(["doctor"]) == 0
    narrow = capsys.readouterr().out.splitlines()
    assert len([line for line in narrow if not line.startswith(" ")]) == len(lines) < len(narrow)
    assert all(len(line) <= 50 for line in narrow if len(line.split()) > 1 and str(tmp_path) not in line)


@pytest.mark.parametrize("compiler", ["no-such-command", "false"])
def test_a_compiler_that_is_missing_or_broken(
    compiler: str, capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EQSAT_CACHE", str(tmp_path))
    monkeypatch.setenv("CC", compiler)
    found = findings(capsys)
    assert not found["C compiler"]["found"] and compiler in found["C compiler"]["missing"]
    for name in find_backends.names():
        backend = found[f"backend {name}"]
        assert not backend["found"] and "compiler" in backend["missing"]


def test_a_package_that_is_missing(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["eqsat.cli.doctor"], "OPTIONAL", {"no-such-package": "pip install it"})
    assert findings(capsys)["no-such-package"]["missing"] == "pip install it"


def test_a_wrong_limit_of_the_cache(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EQSAT_CACHE_LIMIT", "much")
    assert "EQSAT_CACHE_LIMIT: a number of megabytes is required" in findings(capsys)["cache"]["found"]


def test_files_of_the_cache_that_vanish_meanwhile(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EQSAT_CACHE", str(tmp_path))
    (tmp_path / "short").write_bytes(b"short")
    stat, asked = Path.stat, set[Path]()

    def once(path: Path, **options: Any) -> os.stat_result:
        if path in asked:
            raise FileNotFoundError
        if path.name == "short":
            asked.add(path)
        return stat(path, **options)

    monkeypatch.setattr(Path, "stat", once)
    assert "files" in findings(capsys)["cache"]["found"]
    assert asked
