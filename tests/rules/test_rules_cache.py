"""The cache of read rule and target files: equal to reading, and never trusted where it is damaged or foreign."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from eqsat.errors import RuleError
from eqsat.rules import reader, rules_cache
from eqsat.rules.ast import Alternatives
from eqsat.rules.reader import read_files, read_unchanged
from eqsat.rules.selection import shipped_rules
from eqsat.rules.stored import from_text, to_text
from eqsat.rules.tree import walk
from eqsat.targets.find_targets import targets_dir

ROOT = Path(__file__).parents[2]
TEXT = "rule double : exact\n    x + x => 2 * x\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EQSAT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "rules"


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "own.rules"
    path.write_text(TEXT, "utf-8")
    return path


def _as_new_process() -> None:
    reader._read_once.cache_clear()


def _reads(path: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the file is read, rather than found in the cache; it must say the same either way."""
    read: list[object] = []
    plain = reader._read_texts

    def counted(texts: list[reader._Text]) -> list[reader.ast.RuleFile]:
        read.append(texts)
        return plain(texts)

    _as_new_process()
    with monkeypatch.context() as patch:
        patch.setattr(reader, "_read_texts", counted)
        found = read_unchanged([path])
    assert found == read_files([path])
    return bool(read)


@pytest.mark.slow
@pytest.mark.parametrize("paths", [shipped_rules(), *([p] for p in sorted(targets_dir().glob("*.target")))], ids=str)
def test_shipped_files_come_back_as_they_were(paths: list[Path]) -> None:
    files = read_files(paths)
    text = to_text(files)
    assert text is not None
    again = from_text(text)
    assert again == files
    assert repr(again) == repr(files)
    # What a `let` names is one object, and means one value.
    for kind in (Alternatives, object):
        before, after = ([n for n in walk(tuple(x), once=True) if isinstance(n, kind)] for x in (files, again))
        assert len(before) == len(after)
    assert to_text(again) == text


def test_a_second_process_reads_nothing(folder: Path, rules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _reads(rules, monkeypatch)
    assert not _reads(rules, monkeypatch)
    assert len(list(folder.iterdir())) == 1


def test_another_text_or_another_reader_is_another_entry(
    folder: Path, rules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _reads(rules, monkeypatch)
    rules.write_text(TEXT.replace("double", "twofold"), "utf-8")
    assert _reads(rules, monkeypatch)
    monkeypatch.setattr(rules_cache, "_sources", lambda rooms: "another eqsat")
    assert _reads(rules, monkeypatch)
    assert len(list(folder.iterdir())) == 3


def _damages(entry: Path) -> dict[str, bytes]:
    content = entry.read_bytes()

    def hashed(text: bytes) -> bytes:
        return hashlib.sha256(text).hexdigest().encode() + b"\n" + text

    texts = (b"", b"[]", b"[1]", b"{}", b"[[99]]", b"[[0,7]]", b"[[4,0]]", b'["x",[0,0]]', b"\xff", b"[" * 100_000)
    return {
        "empty": b"",
        "short": content[:-9],
        "changed": content.replace(b"double", b"triple"),
        **{repr(text[:9]): hashed(text) for text in texts},
    }


def test_damaged_entries_are_replaced(folder: Path, rules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _reads(rules, monkeypatch)
    (entry,) = folder.iterdir()
    intact = entry.read_bytes()
    for name, content in _damages(entry).items():
        entry.write_bytes(content)
        assert _reads(rules, monkeypatch), name
        assert entry.read_bytes() == intact, name


@pytest.mark.skipif(os.name != "posix", reason="owners and modes")
def test_what_others_could_have_written_is_not_used(
    folder: Path, rules: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _reads(rules, monkeypatch)
    (entry,) = folder.iterdir()
    for path, mode in ((folder, 0o777), (entry, 0o666)):
        before = path.stat().st_mode
        path.chmod(mode)
        assert rules_cache.find(entry.name) is None
        path.chmod(before)
    assert rules_cache.find(entry.name) is not None
    elsewhere = entry.rename(tmp_path / "elsewhere")
    entry.symlink_to(elsewhere)
    assert rules_cache.find(entry.name) is None
    entry.unlink()
    os.mkfifo(entry)
    assert rules_cache.find(entry.name) is None


def test_without_a_cache_folder_files_are_read(rules: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("x", "utf-8")
    monkeypatch.setenv("EQSAT_CACHE", str(tmp_path / "file"))
    assert _reads(rules, monkeypatch)
    assert _reads(rules, monkeypatch)


def test_errors_are_the_same_each_time(folder: Path, rules: Path) -> None:
    rules.write_text(TEXT + "rule wrong : exact\n    Relu(x, y) => x\n", "utf-8")
    messages = set()
    for _ in range(2):
        _as_new_process()
        with pytest.raises(RuleError) as caught:
            read_unchanged([rules])
        messages.add(str(caught.value))
    with pytest.raises(RuleError) as caught:
        read_files([rules])
    assert messages == {str(caught.value)}
    assert not folder.exists()


def test_files_with_operators_are_read(folder: Path, rules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rules.write_text("operator acme.Twice(x: floats) = x + x\n" + TEXT, "utf-8")
    assert _reads(rules, monkeypatch)
    assert _reads(rules, monkeypatch)


@pytest.mark.slow
def test_a_rule_file_that_a_target_names_is_looked_for_again(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "own.target"
    target.write_bytes((targets_dir() / "c.target").read_bytes())
    assert _reads(target, monkeypatch)
    assert not _reads(target, monkeypatch)
    (tmp_path / "fusion.rules").write_text(TEXT, "utf-8")
    assert _reads(target, monkeypatch)
    _as_new_process()
    assert str(tmp_path / "fusion.rules") in read_unchanged([target])[0].targets[0].rules


def test_old_entries_go(folder: Path, rules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules_cache, "MOST_ENTRIES", 2)
    for number in range(4):
        rules.write_text(f"# {number}\n{TEXT}", "utf-8")
        assert _reads(rules, monkeypatch)
    assert len(list(folder.iterdir())) == 2
    assert not _reads(rules, monkeypatch)


@pytest.mark.slow
def test_processes_share_the_folder(folder: Path) -> None:
    found = "select_rules((), 'real', default_rules=True).rules"
    code = f"import eqsat; from eqsat.rules.selection import select_rules; print(len({found}))"
    command = [sys.executable, "-c", code]
    started = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, encoding="utf-8") for _ in range(3)]
    assert len({process.communicate()[0] for process in started}) == 1
    assert all(process.returncode == 0 for process in started)
    assert all(len(path.name) == 64 for path in folder.iterdir())


@pytest.mark.slow
def test_a_process_imports_only_what_its_model_needs(folder: Path) -> None:
    # Time is not asserted; what would cost it is.
    code = (
        "import sys, eqsat\n"
        "model = '<ir_version: 8, opset_import: [\"\": 17]> g (float[4] x) => (float[4] y) { y = Relu(x) }'\n"
        "result = eqsat.optimize(model, targets=['dnnl'])\n"
        "heavy = {'lark', 'egglog', 'networkx', 'black', 'jinja2', 'rich', 'scipy', 'eqsat.quantization.pipeline'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
        "import egglog\n"
        "from eqsat.egraph.bindings import bindings\n"
        "assert egglog.bindings.EGraph is bindings.EGraph\n"
    )
    found = []
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, encoding="utf-8")
        assert done.returncode == 0, done.stderr
        found.append(done.stdout.strip())
    assert found == ["['lark']", "[]"]
