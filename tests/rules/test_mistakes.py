"""Files with one typical mistake each: the whole message that each gives, and all messages of a file with many.

``tests/data/mistakes`` has the files, ``messages.txt`` what they give. After a change of messages,
``python -m tests.rules.test_mistakes`` writes it anew; what changed is then read by a person.
"""

from __future__ import annotations

import io
import re
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from eqsat.cli import main
from eqsat.rules.reader import read_mistakes
from eqsat.rules.source import position_of
from tests.rules.reading import at

FOLDER = Path(__file__).parent.parent / "data" / "mistakes"
MESSAGES = FOLDER / "messages.txt"
FILES = sorted(path for path in FOLDER.iterdir() if path != MESSAGES)
HARMLESS = {"t19.txt", "t21.target"}
"""Another suffix and a tab are not mistakes to the language."""


def said(path: Path) -> str:
    """What the command line says of a file, with the file's name for its path."""
    kind = "rules" if path.suffix == ".rules" else "targets"
    return check(kind, path)[1].replace(str(path), path.name).strip()


def check(kind: str, path: Path) -> tuple[int, str]:
    """Exit code and output of a command."""
    text = io.StringIO()
    with redirect_stdout(text), redirect_stderr(text):
        code = main([kind, "check", str(path)])
    return code, text.getvalue()


def expected() -> dict[str, str]:
    """The messages by the name of the file."""
    parts = re.split(r"^== (.*)\n", MESSAGES.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {name: text.strip() for name, text in zip(parts[1::2], parts[2::2], strict=True)}


def test_each_file_has_a_message() -> None:
    assert set(expected()) == {path.name for path in FILES}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_message(path: Path) -> None:
    text = said(path)
    assert text == expected()[path.name]
    if path.name not in HARMLESS:
        assert re.match(rf"(error|warning): {re.escape(path.name)}", text)
        assert " required" in text or "hint: " in text or "takes" in text or text.startswith("warning")


MANY = """\
let bad = ‸Rleu(3)
operator acme.Gate(x: floats) = ‸gone(x)
target npu
    ‸peek float32 = 1e12
    peak ‸fp32 = 1e12
    bandwidth = ‸4 GB
    supports ‸Con
    composite a : exact
        Relu(Conv(x, w, b)‸
        where x.rank == 4
    composite b : exact
        Relu(x)
        where x.rank ‸= 4
    composite c : exact
        Relu(x)
        cost ‸flops
target ‸other
    peak float32 = 1e9
rule q ‸exact
    Relu(x) => bad
rule z : exact
    Relu(x)
‸rule y : exact
    Relu(x) => Relu(‸k)
rule fine : exact
    Relu(x) => Relu(Relu(x))
rule unknown : exact
    Relu(x) => acme.Gate(x)
rule ‸fine : exact
    Relu(Relu(x)) => Relu(x)
"""


def places(text: str) -> tuple[str, list[str]]:
    """A text without its marks, and the lines and columns of the marks."""
    found = []
    while "‸" in text:
        first, _, rest = text.partition("‸")
        _, line, column = at(f"{first}‸")
        found.append(f"{line}:{column}")
        text = first + rest
    return text, found


def test_all_mistakes_of_a_file_at_once(tmp_path: Path) -> None:
    text, wanted = places(MANY)
    path = tmp_path / "many.target"
    path.write_text(text, "utf-8")
    found = [error.place.removeprefix(f"{path}:") for error in read_mistakes([path])]
    assert found == wanted


def test_what_is_right_beside_a_mistake_is_not_reported(tmp_path: Path) -> None:
    # Without indentation, with a lost target header, with a let whose users are right.
    for text in (
        "rule a : exact\nRelu(x) => ‸)\nrule b : exact\nRelu(x) => x\n",
        "target ‸3 npu\n    peak float32 = 1e9\n    bandwidth = 1\nrule b : exact\n    Relu(x) => x\n",
        "let f(t) = (t +‸\nrule b : exact\n    Relu(x) => f(x)\n",
        "‸",
    ):
        text, wanted = places(text)
        path = tmp_path / "few.rules"
        path.write_text(text, "utf-8")
        found = [error.place.removeprefix(f"{path}:") for error in read_mistakes([path])]
        assert found == (wanted if text else []), text


@pytest.mark.parametrize("step", [-1, 1])
def test_any_cut_file_is_read_to_its_end(tmp_path: Path, step: int) -> None:
    text, _ = places(MANY)
    path = tmp_path / "cut.target"
    for length in range(0, len(text), 29):
        path.write_text(
            (text[:length] if step > 0 else text[length:]) + "\nrule last : exact\n    Relu(x) => lost_", "utf-8"
        )
        last = path.read_text("utf-8").count("\n") + 1
        assert any(position_of(error)[0] in (last, last - 1) for error in read_mistakes([path])), length


def test_commands_report_all_mistakes(tmp_path: Path) -> None:
    text, wanted = places(MANY)
    for kind in ("rules", "targets"):
        path = tmp_path / f"many.{kind}"
        path.write_text(text, "utf-8")
        code, output = check(kind, path)
        assert code == 1
        assert output.count("error: ") == len(wanted)


if __name__ == "__main__":
    MESSAGES.write_text("\n".join(f"== {path.name}\n{said(path)}\n" for path in FILES), encoding="utf-8")
