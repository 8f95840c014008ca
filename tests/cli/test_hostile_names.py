"""Every command on a model of hostile names: a terminal and who parses the output see them as text."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from eqsat.cli import main
from tests.hostile_names import BYTES, EVERY, INSTRUCTIONS, PLANTED

NAMES = [n for n in dict.fromkeys((*INSTRUCTIONS, *(f"x{b}y" for b in BYTES[::7]))) if len(n) < 1000]
SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
"""What rich and click write themselves: colours, and moves of the cursor by the line of progress."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    nodes, outputs = [], []
    for k, name in enumerate(NAMES):
        outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]))
        nodes.append(helper.make_node(["Softplus", "Tanh"][k % 2], ["in\x1b[31m"], [name], name=name, doc_string=name))
    x = helper.make_tensor_value_info("in\x1b[31m", TensorProto.FLOAT, [2])
    graph = helper.make_graph(nodes, INSTRUCTIONS[0] + "\x1b[2J[red]", [x], outputs)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    path = tmp_path_factory.mktemp("hostile") / "m.onnx"
    onnx.save(made, path)
    return path


def commands(model: Path) -> list[list[str]]:
    m = str(model)
    return [
        ["run", m],
        ["run", m, "--json"],
        ["run", m, "-o", "y.npz"],
        ["run", m, "-i", "nothing=y.npy"],
        ["run", m, "-i", "bad.npz"],
        ["compare", m, m],
        ["compare", m, m, "--json"],
        ["optimize", m, "-v", "-o", "o.onnx", "--report", "r.html"],
        ["optimize", m, "--json", "--report", "r.txt"],
        ["optimize", m, "-t", "dnnl", "-v", "--report", "r.json"],
        ["codegen", m, "-o", "c", "--memory-map"],
        ["codegen", m, "-o", "c", "--json"],
    ]


@pytest.mark.parametrize("number", range(12))
def test_what_is_printed(number: int, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("bad.npz", **{"x\x1b[31m": np.ones(2)})
    np.save("y.npy", np.ones(2))
    command = commands(model)[number]
    assert main(command) == (2 if "-i" in command else 0)
    seen = capsys.readouterr()
    for text in (seen.out, seen.err):
        assert text.replace("\n", "").replace("\t", "").isprintable() or not text
        assert not re.search(r"^PASSED: everything", text, re.MULTILINE)
    if "--json" in command:
        json.loads(seen.out)
    for path in tmp_path.glob("r.*"):
        assert path.read_text("utf-8").replace("\n", "").isprintable()
    assert not list(tmp_path.rglob(PLANTED))


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo terminal")
@pytest.mark.parametrize("number", [1, 9, *(pytest.param(n, marks=pytest.mark.heavy) for n in (7, 10))])
def test_on_a_terminal(number: int, model: Path, tmp_path: Path) -> None:
    """Where rich draws: no markup, no sequence but its own."""
    parent, child = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "2000"}
    process = subprocess.Popen(
        [sys.executable, "-m", "eqsat", *commands(model)[number]],
        cwd=tmp_path, stdout=child, stderr=child, env=environment,
    )  # fmt: skip
    os.close(child)
    parts = []
    while True:
        try:
            part = os.read(parent, 1 << 16)
        except OSError:
            break
        if not part:
            break
        parts.append(part)
    assert process.wait() == 0
    os.close(parent)
    text = b"".join(parts).decode()
    assert "\x1b[2J" not in text and "\x1b]" not in text and "\x07" not in text
    left = SEQUENCE.sub("", text).replace("\r", "").replace("\n", "")
    assert left.isprintable()
    if number == 9:
        assert "\\x1b[2J[red] for" in left


@pytest.mark.slow
def test_in_an_encoding_without_these_characters(model: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    command = [sys.executable, "-m", "eqsat", "run", str(model)]
    assert b"\\u4e2d\\u6587" in subprocess.check_output(command, cwd=tmp_path, env=environment)


def test_arrays_are_found_by_their_names(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", str(model), "-q", "-o", "y.npz"]) == 0
    with np.load("y.npz") as arrays:
        assert len(arrays.files) == len(NAMES)
        assert {"file", "allow_pickle", "/etc/passwd", "é中文🙂"} <= set(arrays.files)
        assert not any(".." in re.split(r"[/\\]", name) for name in arrays.files)


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}


@pytest.mark.slow
def test_the_page_has_the_same_elements_whatever_names_are(model: Path, tmp_path: Path) -> None:
    from eqsat.report.html import to_html
    from tests.report.sample import sample

    harmless = Tags(to_html(sample(model="m")))
    for name in EVERY:
        page = to_html(sample(model=name))
        assert page.replace("\n", "").isprintable()
        found = Tags(page)
        assert (found.tags, found.attributes) == (harmless.tags, harmless.attributes)
