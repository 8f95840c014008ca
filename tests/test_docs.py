"""Every example of the README and of docs/ is run, in order, so that none of them can go stale.

- ``python`` blocks are executed; the blocks of a page share one namespace and one empty working directory. With
  ``>>>`` prompts they are doctests, whose output is compared.
- ``console`` blocks are run line by line: what follows ``$ `` is a command, the lines below it are its output, in
  which ``...`` stands for anything. A command must succeed; ``$? 1`` as the last line expects exit code 1. Commands of
  eqsat alone are run in this process, which has read the rules already; the shell runs the others.
- ``python file=NAME`` is a file, which is written.
- ``c`` blocks are compiled, with the newest folder of the page's that has the headers they include.
- ``sh`` blocks are not for this machine, or have no files here; of the commands of eqsat in them, the command line
  must know all options.
- The word ``skip`` after the language leaves a block out, ``onednn`` where that is not installed. Other languages
  are not run.
"""

from __future__ import annotations

import doctest
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click
import pytest

from eqsat.backends import find_backends
from eqsat.cli import cli, main
from eqsat.codegen.compiler import find_compiler
from eqsat.errors import CodegenError

ROOT = Path(__file__).parent.parent
PAGES = [
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")),
    *sorted((ROOT / "docs").rglob("*.md")),
]


@dataclass(frozen=True)
class Block:
    """A fenced block and the line on which its content starts."""

    page: Path
    line: int
    info: tuple[str, ...]
    text: str


def has_backend(name: str) -> bool:
    """Whether a backend's library is there."""
    try:
        find_backends.named(name).require(find_compiler())
    except CodegenError:
        return False
    return True


def blocks(page: Path, content: str) -> list[Block]:
    """The fenced blocks of a page, indented ones included."""
    found: list[Block] = []
    lines = content.splitlines()
    i = 0
    while i < len(lines):
        opening = re.match(r"^(\s*)(`{3,})\s*(\w.*)?$", lines[i])
        if opening is None:
            i += 1
            continue
        indent, fence, info = opening.groups()
        end = next((j for j in range(i + 1, len(lines)) if lines[j].strip() == fence), None)
        assert end is not None, f"{page.name}:{i + 1}: the block has no end"
        text = "\n".join(line.removeprefix(indent) for line in lines[i + 1 : end]) + "\n"
        found.append(Block(page, i + 2, tuple((info or "").split()), text))
        i = end + 1
    return found


def run_python(block: Block, namespace: dict[str, Any]) -> None:
    place = f"{block.page.name}:{block.line}"
    if block.text.lstrip().startswith(">>>"):
        test = doctest.DocTestParser().get_doctest(block.text, namespace, place, str(block.page), block.line - 1)
        report: list[str] = []
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
        runner.run(test, out=report.append, clear_globs=False)
        namespace.update(test.globs)
        assert runner.failures == 0, "".join(report)
        return
    # Leading newlines put errors on the page's own lines.
    code = compile("\n" * (block.line - 1) + block.text, str(block.page), "exec")
    exec(code, namespace)


def run_console(block: Block, folder: Path) -> None:
    environment = os.environ | {
        "PATH": f"{folder / '.bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "COLUMNS": "120",
        "NO_COLOR": "1",
    }
    for line, command, expected in sessions(block):
        place = f"{block.page.name}:{line}: $ {command}"
        code = 0
        if expected and (last := re.fullmatch(r"\$\? (\d+)", expected[-1])):
            code, expected = int(last[1]), expected[:-1]
        run = run_here if re.fullmatch(r"eqsat [^|&;<>$`*?~#\\]*", command) else run_in_shell
        found, output = run(command, folder, environment)
        assert found == code, f"{place}: exit code {found}\n{output}"
        if expected:
            assert matches("\n".join(expected), output), f"{place}: printed\n{output}"


def run_in_shell(command: str, folder: Path, environment: Mapping[str, str]) -> tuple[int, str]:
    """Exit code of a command, and what it prints."""
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment,
        encoding="utf-8",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=600,
    )
    return done.returncode, done.stdout


def run_here(command: str, folder: Path, environment: Mapping[str, str]) -> tuple[int, str]:
    """The same of a command of eqsat alone."""
    printed = io.BytesIO()
    with (
        chdir(folder),
        patch.dict(os.environ, environment),
        io.TextIOWrapper(printed, encoding="utf-8", newline="\n", write_through=True) as stream,
        redirect_stdout(stream),
        redirect_stderr(stream),
    ):
        code = main(shlex.split(command)[1:])
        return code, printed.getvalue().decode("utf-8")


def compile_c(block: Block, folder: Path) -> None:
    place = f"{block.page.name}:{block.line}"
    headers = re.findall(r'#include "(.+?)"', block.text)
    found = [f for f in folder.iterdir() if f.is_dir() and all((f / header).is_file() for header in headers)]
    assert found, f"{place}: no folder has {', '.join(headers)}"
    newest = max(found, key=lambda f: f.stat().st_mtime_ns)
    command = [*find_compiler(), "-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{newest}", "-xc", "-"]
    done = subprocess.run(command, input=block.text, encoding="utf-8", capture_output=True, check=False)
    assert done.returncode == 0, f"{place}:\n{done.stderr}"


def parse_commands(block: Block) -> int:
    """Has the command line read what a block asks of eqsat, without doing it; returns how many commands that were."""
    count = 0
    for line in block.text.splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] != ["eqsat"]:
            continue
        command: click.Command = cli
        context = click.Context(cli, info_name="eqsat")
        rest = words[1:]
        while isinstance(command, click.Group):
            known = command.get_command(context, rest[0])
            assert known is not None, f"{block.page.name}:{block.line}: {line}: no command {rest[0]!r}"
            command, rest = known, rest[1:]
        command.make_context(line, rest)
        count += 1
    return count


def sessions(block: Block) -> list[tuple[int, str, list[str]]]:
    """Line, command and expected output of each command of a block."""
    found: list[tuple[int, str, list[str]]] = []
    for offset, line in enumerate(block.text.splitlines()):
        if line.startswith("$ "):
            found.append((block.line + offset, line[2:], []))
        elif found:
            found[-1][2].append(line)
        else:
            raise AssertionError(f"{block.page.name}:{block.line}: a console block starts with `$ `")
    return found


def matches(expected: str, output: str) -> bool:
    """Whether the output is the expected one; ``...`` stands for anything, blank space at line ends for nothing."""

    def tidy(text: str) -> str:
        return "\n".join(line.rstrip() for line in text.strip().splitlines())

    pattern = ".*?".join(re.escape(part) for part in tidy(expected).split("..."))
    return re.fullmatch(pattern, tidy(output), re.DOTALL) is not None


@pytest.mark.slow
@pytest.mark.every_case
@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    program = tmp_path / ".bin" / "eqsat"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m eqsat "$@"\n', "utf-8")
    program.chmod(0o755)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(page, page.read_text("utf-8")):
        if not block.info or "skip" in block.info or ("onednn" in block.info and not has_backend("dnnl")):
            continue
        name = next((word[5:] for word in block.info if word.startswith("file=")), None)
        if name is not None:
            (tmp_path / name).write_text(block.text, "utf-8")
        elif block.info[0] == "python":
            run_python(block, namespace)
        elif block.info[0] == "console":
            run_console(block, tmp_path)
        elif block.info[0] == "c":
            compile_c(block, tmp_path)
        elif block.info[0] == "sh":
            parse_commands(block)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^(\s*)```.*?^\1```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not re.match(r"[a-z]+:|#", target):
            path = page.parent / target.partition("#")[0]
            assert path.exists(), f"{page.name} links to {target}"


# ---- the harness itself ---------------------------------------------------------------------------


def test_blocks_are_found_with_their_lines() -> None:
    text = "# t\n```python\nx = 1\n```\ntext\n  ```console skip\n  $ a\n  ```\n````md\n```python\n```\n````\n"
    found = blocks(Path("p.md"), text)
    assert [(b.line, b.info, b.text) for b in found] == [
        (3, ("python",), "x = 1\n"),
        (7, ("console", "skip"), "$ a\n"),
        (10, ("md",), "```python\n```\n"),
    ]


def test_output_is_compared() -> None:
    assert matches("a ... c\n", "a b c")
    assert matches("a\n...\nd", "a\nb\nc\nd  \n")
    assert not matches("a", "a b")
    assert not matches("a ... c", "a b d")


@pytest.mark.slow
def test_failures_are_failures(tmp_path: Path) -> None:
    page = tmp_path / "p.md"
    with pytest.raises(AssertionError, match="exit code 3"):
        run_console(Block(page, 1, ("console",), "$ exit 3\n"), tmp_path)
    run_console(Block(page, 1, ("console",), "$ exit 3\n$? 3\n"), tmp_path)
    with pytest.raises(AssertionError, match="printed"):
        run_console(Block(page, 1, ("console",), "$ echo one\ntwo\n"), tmp_path)
    run_console(Block(page, 1, ("console",), "$ eqsat run none.onnx\nerror: none.onnx: ...\n$? 1\n"), tmp_path)
    with pytest.raises(AssertionError, match=r"exit code 1"):
        run_console(Block(page, 1, ("console",), "$ eqsat run none.onnx\n"), tmp_path)
    with pytest.raises(AssertionError, match="printed"):
        run_console(Block(page, 1, ("console",), "$ eqsat rules list\nnothing\n"), tmp_path)
    with pytest.raises(ZeroDivisionError):
        run_python(Block(page, 1, ("python",), "1 / 0\n"), {})
    with pytest.raises(AssertionError, match="Expected"):
        run_python(Block(page, 1, ("python",), ">>> 1 + 1\n3\n"), {})
    namespace: dict[str, Any] = {}
    run_python(Block(page, 1, ("python",), ">>> x = 1 + 1\n>>> x\n2\n"), namespace)
    assert namespace["x"] == 2
    assert shutil.which("bash")


def test_c_is_compiled(tmp_path: Path) -> None:
    block = Block(tmp_path / "p.md", 1, ("c",), '#include "one.h"\nint two(void) { return ONE + 1; }\n')
    with pytest.raises(AssertionError, match=r"no folder has one\.h"):
        compile_c(block, tmp_path)
    header = tmp_path / "out" / "one.h"
    header.parent.mkdir()
    header.write_text("#define ONE 1\nint two(void);\n", "utf-8")
    compile_c(block, tmp_path)
    header.write_text("int two(void);\n", "utf-8")
    with pytest.raises(AssertionError, match="ONE"):
        compile_c(block, tmp_path)


def test_commands_are_read(tmp_path: Path) -> None:
    def read(text: str) -> int:
        return parse_commands(Block(tmp_path / "p.md", 1, ("sh",), text))

    assert read("make demo\neqsat rules list   # all of them\neqsat optimize m.onnx -t dnnl --dim N=1\n") == 2
    with pytest.raises(AssertionError, match="no command 'optimise'"):
        read("eqsat optimise m.onnx")
    with pytest.raises(click.NoSuchOption):
        read("eqsat optimize m.onnx --fast")
    with pytest.raises(click.MissingParameter):
        read("eqsat codegen m.onnx")
