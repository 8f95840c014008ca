"""The cache of compiled models: how much it keeps, what goes first, and several processes at once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

from eqsat.codegen import cache
from eqsat.codegen.runtime import CModel
from eqsat.errors import CodegenError
from eqsat.model.load import load

MODEL = '<ir_version: 10, opset_import: ["": 21]> g (float[2] x) => (float[2] y) {{y = {}(x, x)}}'

IMPORTS = "from eqsat.codegen.runtime import CModel; from eqsat.model.load import load"


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
        (folder / "model.c").write_text("int x;\n", "utf-8")
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


def _cut(library: Path) -> None:
    os.truncate(library, 5000)


def _empty(library: Path) -> None:
    os.truncate(library, 0)


def _change(library: Path) -> None:
    content = bytearray(library.read_bytes())
    content[len(content) // 2] ^= 1
    library.write_bytes(content)


def _foreign(library: Path) -> None:
    library.write_bytes(b"#!/bin/sh\necho no library\n")


def _folder(library: Path) -> None:
    library.unlink()
    library.mkdir()


def _dangling(library: Path) -> None:
    library.unlink()
    library.symlink_to("nowhere")


def _another(library: Path) -> None:
    """A whole library, of another model."""
    other = library.parent / "other"
    with patch.dict(os.environ, EQSAT_CACHE=str(other)):
        CModel(load(MODEL.format("Mul")))
    (found,) = other.glob("*.so")
    found.replace(library)


@pytest.mark.slow
def test_what_is_not_whole_is_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process of its own, one for all kinds of damage: the wrong answer is a signal."""
    damages = (_cut, _empty, _change, _foreign, _folder, _dangling, _another)
    folders = [tmp_path / damage.__name__ for damage in damages]
    script = (
        f"import numpy as np, os, sys; {IMPORTS}\n"
        f"for os.environ['EQSAT_CACHE'] in sys.argv[1:]:\n"
        f"    print(CModel(load({MODEL.format('Add')!r})).run({{'x': np.array([3, 4], np.float32)}})['y'].tolist())"
    )
    monkeypatch.setenv("EQSAT_CACHE", str(tmp_path))
    CModel(load(MODEL.format("Add")))
    (whole,) = tmp_path.glob("*.so")
    for folder, damage in zip(folders, damages, strict=True):
        folder.mkdir()
        damage(Path(shutil.copy2(whole, folder)))
    command = [sys.executable, "-c", script, *map(str, folders)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    # What was printed before a signal says which damage it was.
    assert (done.stdout.splitlines(), done.returncode) == (["[6.0, 8.0]"] * len(damages), 0)


@pytest.mark.slow
def test_processes_compile_and_damage_at_the_same_time(tmp_path: Path) -> None:
    script = (
        "import os, sys, numpy as np\n"
        "from pathlib import Path\n"
        f"{IMPORTS}\n"
        "for k in range(4):\n"
        f"    y = CModel(load({MODEL.format('Add')!r})).run({{'x': np.array([3, 4], np.float32)}})['y']\n"
        "    assert y.tolist() == [6, 8]\n"
        "    for p in Path(sys.argv[1]).glob('*.so'):\n"
        "        cut = p.with_suffix(f'.{os.getpid()}.part'); cut.write_bytes(b'cut'); cut.replace(p)\n"
    )
    environment = {**os.environ, "EQSAT_CACHE": str(tmp_path)}
    command = [sys.executable, "-c", script, str(tmp_path)]
    running = [subprocess.Popen(command, env=environment) for _ in range(3)]
    assert [process.wait() for process in running] == [0] * 3
