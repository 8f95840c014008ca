"""The cache of compiled models: how much it keeps, what goes first, and several processes at once."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from eqsat.codegen import cache
from eqsat.codegen.runtime import CModel
from eqsat.errors import CodegenError
from eqsat.model.load import load

MODEL = '<ir_version: 10, opset_import: ["": 21]> g (float[2] x) => (float[2] y) {{y = {}(x, x)}}'


def library(folder: Path, name: str, age: float, size: int = 1000) -> Path:
    path = folder / name
    path.write_bytes(bytes(size))
    used = time.time() - age
    os.utime(path, (used, used))
    return path


def test_what_was_used_longest_ago_goes_first(tmp_path: Path):
    old, older, new = (library(tmp_path, n, age) for n, age in (("a.so", 5000), ("b.so", 9000), ("c.so", 3000)))
    assert cache.prune(tmp_path, 3000) == []
    assert cache.prune(tmp_path, 2999) == [older]
    assert cache.prune(tmp_path, 1500) == [old]
    assert sorted(tmp_path.iterdir()) == [new]


def test_what_is_in_use_stays(tmp_path: Path):
    kept = library(tmp_path, "a.so", cache.RECENT / 2)
    cache.mark_used(again := library(tmp_path, "b.so", 5000))
    assert cache.prune(tmp_path, 0) == []
    assert sorted(tmp_path.iterdir()) == [kept, again]


def test_only_what_belongs_to_the_cache_goes(tmp_path: Path):
    library(tmp_path, "a.so", 5000)
    notes = library(tmp_path, "notes.txt", 5000)
    interrupted, working = tmp_path / "build-old", tmp_path / "build-new"
    for folder in (interrupted, working):
        folder.mkdir()
        (folder / "model.c").write_text("int x;\n")
    os.utime(interrupted, (0, 0))
    cache.prune(tmp_path, 0)
    assert sorted(tmp_path.iterdir()) == sorted([notes, working])
    assert cache.prune(tmp_path / "nowhere", 0) == []


def test_compiling_prunes_and_finding_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("EQSAT_CACHE", str(tmp_path))
    x = np.array([3, 4], np.float32)
    CModel(load(MODEL.format("Add")))
    (first,) = tmp_path.glob("*.so")
    os.utime(first, (0, 0))
    np.testing.assert_array_equal(CModel(load(MODEL.format("Add"))).run({"x": x})["y"], 2 * x)
    assert time.time() - first.stat().st_atime < cache.RECENT
    assert first.stat().st_mtime == 0
    os.utime(first, (0, 0))
    monkeypatch.setenv("EQSAT_CACHE_LIMIT", "0.001")
    loaded = CModel(load(MODEL.format("Mul")))
    (second,) = tmp_path.glob("*.so")
    assert second != first
    np.testing.assert_array_equal(loaded.run({"x": x})["y"], x * x)


@pytest.mark.parametrize("wrong", ["much", "-1", "nan", "inf"])
def test_a_limit_that_is_no_number(wrong: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("EQSAT_CACHE_LIMIT", wrong)
    with pytest.raises(CodegenError, match="a number of megabytes"):
        CModel(load(MODEL.format("Add")))


def test_the_limit_in_bytes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("EQSAT_CACHE_LIMIT", raising=False)
    assert cache.limit() == cache.LIMIT * 2**20
    monkeypatch.setenv("EQSAT_CACHE_LIMIT", "1.5")
    assert cache.limit() == 3 * 2**19


@pytest.mark.slow
def test_processes_prune_at_the_same_time(tmp_path: Path):
    for k in range(200):
        library(tmp_path, f"{k:03}.so", 5000 + k)
    script = "import sys; from pathlib import Path; from eqsat.codegen import cache; cache.prune(Path(sys.argv[1]), 0)"
    running = [subprocess.Popen([sys.executable, "-c", script, str(tmp_path)]) for _ in range(4)]
    assert [process.wait() for process in running] == [0] * 4
    assert list(tmp_path.iterdir()) == []
