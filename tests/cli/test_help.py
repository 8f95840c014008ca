"""``--help`` fits the terminal: every command at 50 columns, and nothing but words is cut."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from eqsat.cli import cli, main


def commands(command: click.Command = cli, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words that call each command."""
    yield path
    for name, below in command.commands.items() if isinstance(command, click.Group) else ():
        yield from commands(below, (*path, name))


def shown(path: tuple[str, ...], width: int, capsys: pytest.CaptureFixture[str], where: pytest.MonkeyPatch) -> str:
    where.setenv("COLUMNS", str(width))
    assert main([*path, "--help"]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("path", list(commands()), ids=" ".join)
def test_narrow(path: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    narrow, wide = (shown(path, width, capsys, monkeypatch) for width in (50, 110))
    assert max(map(len, narrow.splitlines())) <= 50
    # The same words in the same order; folded commands have the shell's sign at the ends of their lines.
    assert "".join(narrow.replace("\\\n", "").split()) == "".join(wide.split())


def test_an_example_is_folded_as_the_shell_reads_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = shown(("quantize",), 50, capsys, monkeypatch)
    assert "  eqsat quantize model.onnx -c samples.npz -o \\\n      q.onnx\n" in text
    assert "  --dim NAME=SIZE[,SIZE...]|\n" in text
    assert "  -o, --output FILE\n    Where to write" in text


def test_wide_is_two_columns(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert "  -o, --output FILE               Where to write" in shown(("optimize",), 110, capsys, monkeypatch)


def test_commands_are_listed_in_their_own_order(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = shown((), 110, capsys, monkeypatch).partition("Commands:\n")[2].splitlines()
    assert [line.split()[0] for line in lines if line[2:3].strip()] == list(cli.commands)
    assert lines[0].startswith("  optimize ")
