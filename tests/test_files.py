"""Writing: whole or not at all, only files are replaced, and what is not a file gets everything as one piece."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from eqsat.errors import EqsatError
from eqsat.files import filling, replacing, staged

pytestmark = pytest.mark.skipif(os.name != "posix", reason="devices and modes")


def tree(folder: Path) -> dict[str, bytes | None]:
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in folder.rglob("*")}


def write(path: Path, content: bytes = b"new") -> None:
    with replacing(path) as file:
        file.write(content)


class TestFile:
    def test_new_and_replaced(self, tmp_path: Path) -> None:
        path = tmp_path / "f"
        write(path, b"old")
        path.chmod(0o640)
        write(path)
        assert tree(tmp_path) == {"f": b"new"}
        assert stat.S_IMODE(path.stat().st_mode) == 0o640

    def test_the_longest_name(self, tmp_path: Path) -> None:
        write(tmp_path / ("x" * 255))
        assert tree(tmp_path) == {"x" * 255: b"new"}

    @pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt(), ValueError("x")])
    def test_a_failure_leaves_the_old_file(self, error: BaseException, tmp_path: Path) -> None:
        write(tmp_path / "f", b"old")
        with pytest.raises((type(error), EqsatError)), replacing(tmp_path / "f") as file:
            file.write(b"half")
            raise error
        assert tree(tmp_path) == {"f": b"old"}

    def test_a_limit_of_the_system(self, tmp_path: Path) -> None:
        write(tmp_path / "f", b"old")
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, before[1]))
        try:
            with pytest.raises(EqsatError, match="File too large"):
                write(tmp_path / "f", bytes(1 << 20))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert tree(tmp_path) == {"f": b"old"}

    def test_a_link_stays(self, tmp_path: Path) -> None:
        (tmp_path / "to").mkdir()
        (tmp_path / "to" / "f").write_bytes(b"old")
        (tmp_path / "link").symlink_to("to/f")
        (tmp_path / "dangling").symlink_to("to/g")
        write(tmp_path / "link")
        write(tmp_path / "dangling")
        assert (tmp_path / "link").is_symlink() and (tmp_path / "dangling").is_symlink()
        assert tree(tmp_path / "to") == {"f": b"new", "g": b"new"}

    def test_a_link_says_the_format(self, tmp_path: Path) -> None:
        (tmp_path / "m.json").symlink_to("blob")
        with staged(tmp_path / "m.json") as part:
            assert part.name == "m.json"
            part.write_bytes(b"new")
        assert (tmp_path / "blob").read_bytes() == b"new"

    @pytest.mark.parametrize("what", ["nowhere/f", "f/g", "folder", "loop", "x" * 256, "socket"])
    def test_what_cannot_be_written(self, what: str, tmp_path: Path) -> None:
        (tmp_path / "f").write_bytes(b"old")
        (tmp_path / "folder").mkdir()
        (tmp_path / "loop").symlink_to("loop")
        os.mknod(tmp_path / "socket", 0o600 | stat.S_IFSOCK)
        before = tree(tmp_path)
        with pytest.raises(EqsatError, match="a file that can be written is required"):
            write(tmp_path / what)
        assert tree(tmp_path) == before


class TestWhatIsNoFile:
    def test_full(self) -> None:
        with pytest.raises(EqsatError, match="No space left on device"):
            write(Path("/dev/full"), bytes(100))
        assert stat.S_ISCHR(Path("/dev/full").stat().st_mode)

    @pytest.mark.parametrize("linked", [False, True])
    def test_null(self, linked: bool, tmp_path: Path) -> None:
        path = Path("/dev/null")
        if linked:
            path = tmp_path / "link"
            path.symlink_to("/dev/null")
        write(path, bytes(1 << 20))
        assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)

    def test_a_pipe_gets_everything_at_the_end(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "p")
        content = os.urandom(1 << 20)
        found: list[bytes] = []
        reader = threading.Thread(target=lambda: found.append((tmp_path / "p").read_bytes()))
        reader.start()
        write(tmp_path / "p", content)
        reader.join()
        assert found == [content]
        assert stat.S_ISFIFO((tmp_path / "p").stat().st_mode)

    def test_a_pipe_that_nobody_reads(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("eqsat.files.PATIENCE", 0.05)
        os.mkfifo(tmp_path / "p")
        with pytest.raises(EqsatError, match="a pipe that nobody reads"):
            write(tmp_path / "p")

    @pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "link"])
    @pytest.mark.parametrize("to_file", [False, True])
    def test_open_streams(self, name: str, to_file: bool, tmp_path: Path) -> None:
        """What was printed before and after stays in order, also where the stream is a file."""
        (tmp_path / "link").symlink_to("/dev/stdout")
        script = (
            "import sys; from eqsat.files import replacing\nprint('before')\n"
            "with replacing(sys.argv[1]) as f: f.write(b'new')\nprint('after')"
        )
        command = [sys.executable, "-c", script, name]
        if to_file:
            with (tmp_path / "out").open("wb") as out:
                subprocess.run(command, cwd=tmp_path, stdout=out, check=True)
            text = (tmp_path / "out").read_text("utf-8")
        else:
            text = subprocess.check_output(command, cwd=tmp_path, encoding="utf-8")
        assert text == "before\nnewafter\n"
        assert {p.name for p in tmp_path.iterdir()} <= {"link", "out"}

    def test_a_failure_before_the_end_writes_nothing(self, tmp_path: Path) -> None:
        read, write_end = os.pipe()
        with pytest.raises(ValueError, match="x"), replacing(f"/dev/fd/{write_end}") as file:
            file.write(b"half")
            raise ValueError("x")
        os.close(write_end)
        assert os.read(read, 10) == b""
        os.close(read)

    def test_several_files_need_a_folder(self) -> None:
        with pytest.raises(OSError, match="not several"), staged("/dev/null") as part:
            part.write_bytes(b"x")
            part.with_name("more").write_bytes(b"x")


@pytest.fixture(params=["new", "deep/new", "old"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "base" / request.param
    (tmp_path / "base").mkdir()
    if request.param == "old":
        folder.mkdir()
        for name in ("a", "b", "other"):
            (folder / name).write_text("old", "utf-8")
        (folder / "link").symlink_to("other")
    yield folder


class TestFolder:
    def test_filled(self, place: Path) -> None:
        kept = place.exists()
        with filling(place) as part:
            for name in ("a", "b", "c", "link"):
                (part / name).write_text("new", "utf-8")
        new = dict.fromkeys(("a", "b", "c", "link"), b"new")
        assert tree(place) == (new | {"other": b"old"} if kept else new)
        assert not list(place.parent.glob(".eqsat*"))

    @pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt(), SystemExit(1)])
    def test_a_failure_while_it_is_made(self, error: BaseException, place: Path, tmp_path: Path) -> None:
        before = tree(tmp_path)
        with pytest.raises(type(error)), filling(place) as part:
            (part / "a").write_text("new", "utf-8")
            raise error
        assert tree(tmp_path) == before

    @pytest.mark.parametrize("error", [OSError(5, "Input/output error"), KeyboardInterrupt()])
    @pytest.mark.parametrize("when", range(4))
    @pytest.mark.parametrize("after", [False, True])
    def test_a_failure_while_it_is_moved(
        self, error: BaseException, when: int, after: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """At each file, before it is moved and after it was; also what a link was comes back."""
        place = tmp_path / "old"
        place.mkdir()
        for name in ("a", "b"):
            (place / name).write_text("old", "utf-8")
        (place / "link").symlink_to("a")
        before = tree(tmp_path)
        real, calls = Path.replace, []

        def fail(self: Path, target: Path) -> Path:
            calls.append(self)
            if len(calls) != when + 1:
                return real(self, target)
            if after:
                real(self, target)
            raise error

        monkeypatch.setattr(Path, "replace", fail)
        with pytest.raises(type(error)), filling(place) as part:
            for name in ("a", "b", "c", "link"):
                (part / name).write_text("new", "utf-8")
        monkeypatch.undo()
        assert tree(tmp_path) == before
        assert (place / "link").is_symlink()

    @pytest.mark.parametrize("kind", ["folder", "pipe"])
    def test_only_files_are_replaced(self, kind: str, tmp_path: Path) -> None:
        place = tmp_path / "old"
        place.mkdir()
        (place / "a").write_text("old", "utf-8")
        (place / "b").mkdir() if kind == "folder" else os.mkfifo(place / "b")
        with pytest.raises(OSError, match="b exists and is not a file"), filling(place) as part:
            (part / "a").write_text("new", "utf-8")
            (part / "b").write_text("new", "utf-8")
        assert (place / "a").read_text("utf-8") == "old"
        assert sorted(p.name for p in place.iterdir()) == ["a", "b"]

    def test_a_device_is_no_folder(self) -> None:
        with pytest.raises(OSError, match="Not a directory"), filling("/dev/null"):
            pass

    def test_somebody_else_was_faster(self, tmp_path: Path) -> None:
        with filling(tmp_path / "new") as part:
            (part / "a").write_text("new", "utf-8")
            (tmp_path / "new").mkdir()
            (tmp_path / "new" / "theirs").write_text("theirs", "utf-8")
        assert tree(tmp_path / "new") == {"a": b"new", "theirs": b"theirs"}


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_command_leaves_nothing(number: signal.Signals, tmp_path: Path) -> None:
    """The signal comes while the command writes."""
    model = '<ir_version: 10, opset_import: ["": 21]> g (float[2] x) => (float[2] y) {y = Relu(x)}'
    (tmp_path / "m.onnxtxt").write_text(model, "utf-8")
    script = (
        # Where tests run in the background, signals are ignored, and processes inherit that.
        "import os, sys, pathlib, signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"
        "from eqsat.cli import main\nreal = pathlib.Path.write_bytes\n"
        "def write(self, data):\n"
        f"    os.kill(os.getpid(), {int(number)})\n"
        "    return real(self, data)\n"
        "pathlib.Path.write_bytes = write\n"
        "sys.exit(main(['codegen', 'm.onnxtxt', '-o', 'out/deep', '-q']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, encoding="utf-8", check=False
    )
    assert (done.returncode, done.stderr) == (128 + number, "interrupted\n")
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnxtxt"]


class Ended(BaseException):
    """What the handler of a test raises."""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("where", ["while a file is moved", "while the folder is removed"])
def test_a_signal_at_the_end_leaves_no_folder(
    number: signal.Signals, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Signals wait: files are moved completely or come back, and then the handler runs."""

    def handler(number: int, frame: object) -> None:
        raise Ended

    place = tmp_path / "old"
    place.mkdir()
    for name in ("a", "b"):
        (place / name).write_text("old", "utf-8")
    before = tree(tmp_path)
    of, name = (Path, "replace") if where == "while a file is moved" else (shutil, "rmtree")
    real = getattr(of, name)

    def interrupted(*arguments: object, **options: object) -> object:
        signal.raise_signal(number)
        return real(*arguments, **options)

    old = signal.signal(number, handler)
    try:
        with monkeypatch.context() as patch, pytest.raises(Ended):
            patch.setattr(of, name, interrupted)
            with filling(place) as part:
                for name in ("a", "b"):
                    (part / name).write_text("new", "utf-8")
        assert signal.getsignal(number) is handler
    finally:
        signal.signal(number, old)
    moved = where == "while the folder is removed"
    assert tree(tmp_path) == (dict.fromkeys(before, b"new") | {"old": None} if moved else before)


def test_an_ignored_signal_stays_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.replace

    def interrupted(self: Path, target: Path) -> Path:
        signal.raise_signal(signal.SIGINT)
        return real(self, target)

    old = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        monkeypatch.setattr(Path, "replace", interrupted)
        write(tmp_path / "f")
    finally:
        signal.signal(signal.SIGINT, old)
    assert tree(tmp_path) == {"f": b"new"}


def test_a_handler_that_goes_on_keeps_the_new_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    real = Path.replace

    def interrupted(self: Path, target: Path) -> Path:
        signal.raise_signal(signal.SIGTERM)
        return real(self, target)

    old = signal.signal(signal.SIGTERM, lambda number, _: seen.append(number))
    try:
        monkeypatch.setattr(Path, "replace", interrupted)
        write(tmp_path / "f")
    finally:
        signal.signal(signal.SIGTERM, old)
    assert seen == [signal.SIGTERM]
    assert tree(tmp_path) == {"f": b"new"}
