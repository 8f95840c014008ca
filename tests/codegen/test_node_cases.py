"""A part of the node cases of ``onnx.backend.test`` as C; ``make c-conformance`` runs all of them."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from eqsat.codegen.compiler import find_compiler
from tests.codegen import __main__ as conformance
from tests.codegen import calling, nodes
from tests.codegen.calling import Call
from tests.codegen.ways import WAYS, sanitized_ways
from tests.fuzz import progress
from tests.fuzz.progress import Progress

EVERY = 42
"""One case in so many is run here."""


@pytest.mark.slow
def test_expected_cases_pass():
    chosen = conformance.expected()[5::EVERY]
    outcomes = conformance.batch(chosen)
    assert {name: outcome for name, outcome in outcomes.items() if outcome != "pass"} == {}
    assert len(outcomes) == len(chosen) > 30


def test_the_list_is_as_long_as_it_was():
    assert len(conformance.expected()) >= 1600


@pytest.mark.heavy
@pytest.mark.parametrize("how", sanitized_ways())
def test_sanitizers_find_nothing(how: str):
    chosen = conformance.expected()[::15]
    outcomes = conformance.batch(chosen, how)
    assert {name: outcome for name, outcome in outcomes.items() if outcome != "pass"} == {}


def test_outcomes_are_kept_until_a_source_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "progress" / "outcomes.tsv"
    first = Progress(file)
    first.add("native", {"a": "pass", "b": "fail: why", "c": "refused: types"})
    with file.open("a", encoding="utf-8") as half:
        half.write("native\td")
    assert Progress(file).known == {("native", "a"): "pass", ("native", "c"): "refused: types"}
    monkeypatch.setattr(progress, "digest", lambda: "another program")
    assert Progress(file).known == {}
    assert Progress(file).known == {}
    assert file.read_text(encoding="utf-8") == "another program\n"


@pytest.mark.slow
def test_a_wrong_result_fails():
    ready = nodes.prepare("test_add", "sum", WAYS["native"].isas)
    (found,) = nodes.results(nodes.compiled([ready], WAYS["native"]), [ready], WAYS["native"]).values()
    assert isinstance(found, list)
    nodes.check(ready, found)
    ready.expected = [ready.expected[0] * np.float32(1.01)]
    with pytest.raises(AssertionError):
        nodes.check(ready, found)


def program(folder: Path, body: str, *flags: str) -> tuple[Path, Call]:
    """A library with a function that is called as programs are."""
    source = f"int f_run(const float *x, float *y, void *arena, const void *weights) {{\n{body}\nreturn 0; }}\n"
    (folder / "f.c").write_text(source, encoding="utf-8")
    command = [*find_compiler(), "-O0", "-w", *flags, "-fPIC", "-shared", "f.c", "-o", "f.so"]
    subprocess.run(command, cwd=folder, check=True)
    x = np.arange(4, dtype=np.float32)
    return folder / "f.so", Call("f", "f_run", [x], [(x.shape, x.dtype)], 64, np.zeros(64, np.uint8))


def test_a_crash_is_named_and_the_others_still_run(tmp_path: Path):
    library, call = program(tmp_path, "y[0] = x[0]; if (x[0] == 1.0f) *(volatile int *)8 = 1;")
    bad = replace(call, name="bad", inputs=[np.ones(4, np.float32)])
    results = calling.apart(library, [call, bad, replace(call, name="last")], WAYS["native"].environment())
    assert list(results) == ["f", "bad", "last"]
    assert "exit code" in results["bad"]
    assert isinstance(results["last"], list)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("y[3] = x[4];", "heap-buffer-overflow"),
        ("y[4] = x[3];", "heap-buffer-overflow"),
        ("((char *)arena)[64] = 1;", "heap-buffer-overflow"),
        ("y[0] = *((const float *)weights + 16);", "heap-buffer-overflow"),
        ("int i = 2147483647; i += (int)x[1]; y[0] = (float)i;", "signed integer overflow"),
    ],
)
def test_sanitizers_see_what_is_wrong(body: str, said: str, tmp_path: Path):
    way = WAYS["sanitize-portable"]
    library, call = program(tmp_path, body, *way.flags)
    found = calling.apart(library, [call], way.environment())["f"]
    assert isinstance(found, str)
    assert said in found


def test_what_differs_is_said():
    known = conformance.expected()[0]
    outcomes = {
        known: "refused: no",
        "new_one": "pass",
        "other": "fail: crash: x",
        "more": "fail: y",
        "rest": "refused",
    }
    lines = conformance.report(outcomes)
    assert [line.partition(":")[0] for line in lines] == [known, "new_one", "other"]
