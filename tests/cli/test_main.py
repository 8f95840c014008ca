"""The entry point: exit codes, one message for each kind of failure, and a start that loads nothing heavy."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import eqsat
from eqsat.cli import cli, main
from eqsat.errors import ModelError

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def failing() -> Iterator[list[BaseException]]:
    """Adds the command ``fail``, which raises what the test puts into the list."""
    what: list[BaseException] = []

    @cli.command()
    @click.option("--debug", is_flag=True, expose_value=False)
    def fail() -> None:
        raise what[0]

    yield what
    del cli.commands["fail"]


def test_wrong_input_is_one_message_and_exit_code_1(
    failing: list[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    failing.append(ModelError("an edge has a source", place="node 'a'", actual="none", hint="look at x"))
    assert main(["fail"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "error: node 'a': an edge has a source; got none\n  hint: look at x\n"


def test_defects_are_told_from_wrong_input(failing: list[BaseException], capsys: pytest.CaptureFixture[str]) -> None:
    failing.append(KeyError("first line\nsecond"))
    assert main(["fail"]) == 1
    _, err = capsys.readouterr()
    assert err.startswith("internal error: KeyError: ")
    assert "--debug" in err
    assert "Traceback" not in err
    assert main(["fail", "--debug"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_errors_of_the_system_name_the_file(failing: list[BaseException], capsys: pytest.CaptureFixture[str]) -> None:
    failing.append(PermissionError(13, "Permission denied", "/some/file"))
    assert main(["fail"]) == 1
    assert capsys.readouterr().err == "error: /some/file: Permission denied\n"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.Abort()])
def test_interrupting_is_clean(
    failing: list[BaseException], capsys: pytest.CaptureFixture[str], error: BaseException
) -> None:
    failing.append(error)
    assert main(["fail"]) == 130
    assert capsys.readouterr().err.strip() == "interrupted"


@pytest.mark.parametrize(
    "arguments",
    [
        ["no-such-command"],
        ["optimize"],
        ["optimize", "m.onnx", "--no-such-option"],
        ["optimize", "m.onnx", "--dim", "N"],
        ["optimize", "m.onnx", "--dim", "N=x!"],
        ["optimize", "m.onnx", "--dim", "N=1", "--dim", "N=2"],
        ["optimize", "m.onnx", "--time-limit", "0"],
        ["optimize", "m.onnx", "--objective", "cheapest"],
        ["run", "m.onnx", "-o", "y.txt"],
        ["compare", "a.onnx"],
        ["compare", "a.onnx", "b.onnx", "--exact", "--rtol", "0.1"],
        [],
    ],
)
def test_wrong_usage_is_exit_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert "Usage: eqsat" in capsys.readouterr().err


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"eqsat {eqsat.__version__}\n"
    assert main(["--help"]) == 0
    assert "optimize" in capsys.readouterr().out
    for name in cli.commands:
        assert main([name, "--help"]) == 0
        assert f"Usage: eqsat {name}" in capsys.readouterr().out


def test_start_up_loads_nothing_heavy() -> None:
    # Time is not asserted; what would cost it is.
    code = (
        "import sys, eqsat\n"
        "from eqsat.cli import cli, main\n"
        "assert main(['--help']) == 0\n"
        "assert all(main([name, '--help']) == 0 for name in cli.commands)\n"
        "heavy = {'numpy', 'onnx', 'onnx_ir', 'egglog', 'highspy', 'networkx', 'rich', 'jinja2', 'lark'}\n"
        "found = sorted(heavy & set(sys.modules))\n"
        "sys.exit(f'loaded {found}' if found else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr


def test_output_into_a_closed_pipe_ends_quietly() -> None:
    command = f"{sys.executable} -m eqsat optimize --help | head -c 1"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, encoding="utf-8")
    assert done.stderr == ""


def test_top_level_names_are_there_and_no_others() -> None:
    assert set(eqsat.__all__) <= set(dir(eqsat))
    with pytest.raises(AttributeError, match="no attribute 'optimise'"):
        _ = eqsat.optimise
    assert eqsat.errors.EqsatError is not None
