"""``optimize``, ``run`` and ``compare`` from end to end, on small models."""

from __future__ import annotations

import errno
import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest

from eqsat.cli import main

MODEL = """
<ir_version: 10, opset_import: ["" : 21]>
net (float[N, 8] x, float[N, 8] y) => (float[N, 8] z)
{
    zero = Constant<value_float = 0.0>()
    s = Add(x, y)
    d = Sub(x, y)
    p = Mul(s, d)
    z = Max(p, zero)
}
"""
OTHER = MODEL.replace("Sub(x, y)", "Sub(y, x)")

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(onnx.parser.parse_model(MODEL), "net.onnx")
    onnx.save(onnx.parser.parse_model(OTHER), "other.onnx")
    rng = np.random.default_rng(0)
    np.savez("xy.npz", **{n: rng.standard_normal((3, 8)).astype(np.float32) for n in "xy"})


def reference(path: str) -> np.ndarray:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, dict(np.load("xy.npz")))[0])


# ---- optimize -------------------------------------------------------------------------------------


def test_optimize_writes_a_standard_model_and_a_report(capsys: Capture) -> None:
    arguments = ["optimize", "net.onnx", "-t", "ccompiler", "--dim", "N=3", "-o", "out.onnx", "--report", "r.html"]
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.startswith("net for ccompiler + cpu")
    assert "verified  PASSED: 1 output" in out
    assert out.rstrip().endswith("saved     out.onnx")
    onnx.checker.check_model("out.onnx")
    np.testing.assert_allclose(reference("out.onnx"), reference("net.onnx"), rtol=1e-5, atol=1e-6)
    assert Path("r.html").read_text("utf-8").startswith("<!DOCTYPE html>")
    assert sorted(p.name for p in Path().iterdir()) == ["net.onnx", "other.onnx", "out.onnx", "r.html", "xy.npz"]


def test_optimize_as_json_prints_nothing_else(capsys: Capture) -> None:
    assert main(["optimize", "net.onnx", "-t", "ccompiler", "--dim", "N=3", "-o", "out.onnx", "--json"]) == 0
    out, err = capsys.readouterr()
    summary = json.loads(out)
    assert err == ""
    assert summary["targets"] == ["cpu", "ccompiler"]
    assert summary["after"]["cost"] <= summary["before"]["cost"]
    assert summary["verification"]["agrees"] is True
    assert Path("out.onnx").exists()


def test_optimize_quietly_and_without_output(capsys: Capture) -> None:
    assert main(["optimize", "net.onnx", "--dim", "N=3", "-q", "--no-verify"]) == 0
    assert capsys.readouterr() == ("", "")


def test_optimize_is_deterministic(capsys: Capture) -> None:
    for name in ("a.onnx", "b.onnx"):
        assert main(["optimize", "net.onnx", "-t", "ccompiler", "--dim", "N=3", "-q", "-o", name]) == 0
    assert Path("a.onnx").read_bytes() == Path("b.onnx").read_bytes()


@pytest.mark.slow
def test_an_unsound_rule_is_caught_and_nothing_is_written(capsys: Capture) -> None:
    Path("wrong.rules").write_text("rule wrong : real\n    Max(x, 0)  =>  x\n", "utf-8")
    arguments = ["optimize", "net.onnx", "--dim", "N=3", "-r", "wrong.rules", "--trust", "-o", "out.onnx"]
    assert main(arguments) == 1
    out, err = capsys.readouterr()
    assert "verified" not in out
    assert err.startswith("error: tensor 'z': the result must compute what the input model computes on ")
    assert "`wrong`" in err
    assert not Path("out.onnx").exists()
    assert main([*arguments, "--no-verify"]) == 0
    assert Path("out.onnx").exists()


@pytest.mark.slow
def test_rules_are_added_or_replace_the_shipped_ones(capsys: Capture) -> None:
    Path("mine.rules").write_text("rule mine : real\n    (x + y) * (x - y)  =>  x * x - y * y\n", "utf-8")

    def names(*options: str) -> set[str]:
        assert main(["optimize", "net.onnx", "--dim", "N=3", "--json", *options]) == 0
        return {rule["name"] for rule in json.loads(capsys.readouterr().out)["rules"]}

    shipped = names()
    assert names("--rules", "mine.rules") == shipped | {"mine"}
    assert names("--rules", "mine.rules", "--no-default-rules") == {"mine"}
    assert names("--no-default-rules") == set()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.onnx"], "missing.onnx"),
        (["xy.npz"], "xy.npz"),
        (["net.onnx", "--dim", "N=5..3"], "N"),
        (["net.onnx", "--dim", "M=3"], "M"),
        (["net.onnx", "--dim", "N=3", "-t", "dnl"], "did you mean `dnnl`"),
        (["net.onnx", "--dim", "N=3", "-r", "missing.rules"], "missing.rules"),
        (["net.onnx", "--dim", "N=3", "-o", "no/such/folder/out.onnx"], "no such directory"),
        (["net.onnx", "--dim", "N=3", "--report", "report.pdf"], ".html, .json, .svg or .txt"),
        (["net.onnx", "--dim", "N=3", "--report", "-"], "for example 'report.html'"),
        (
            ["net.onnx", "--dim", "N=3", "--report", "no/folder/r.html"],
            "error: no/folder: a directory to write to is required",
        ),
    ],
)
def test_wrong_input_is_one_message(arguments: list[str], message: str, capsys: Capture) -> None:
    assert main(["optimize", *arguments]) == 1
    _, err = capsys.readouterr()
    assert err.startswith("error: ")
    assert message in err
    assert "Traceback" not in err


# ---- run ------------------------------------------------------------------------------------------


def test_run_on_given_inputs(capsys: Capture) -> None:
    assert main(["run", "net.onnx", "-i", "xy.npz", "-o", "z.npy"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("z  float32[3, 8]")
    assert err == ""
    np.testing.assert_allclose(np.load("z.npy"), reference("net.onnx"), rtol=1e-6)


def test_run_draws_what_is_not_given(capsys: Capture) -> None:
    np.save("x.npy", np.load("xy.npz")["x"])
    assert main(["run", "net.onnx", "-i", "x=x.npy", "-o", "a.npz"]) == 0
    assert capsys.readouterr().err == "random    y (seed 0)\n"
    assert main(["run", "net.onnx", "-i", "x=x.npy", "--seed", "0", "-o", "b.npz", "-q"]) == 0
    assert main(["run", "net.onnx", "-i", "x=x.npy", "--seed", "1", "-o", "c.npz", "-q"]) == 0
    assert capsys.readouterr() == ("", "")
    a, b, c = (np.load(f"{n}.npz")["z"] for n in "abc")
    assert a.shape == (3, 8)
    np.testing.assert_array_equal(a, b)
    assert not np.array_equal(a, c)


def test_run_as_json_and_in_full(capsys: Capture) -> None:
    assert main(["run", "net.onnx", "-i", "xy.npz", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)["z"]
    expected = reference("net.onnx")
    assert facts["shape"] == [3, 8]
    assert facts["max"] == pytest.approx(float(expected.max()))
    assert main(["run", "net.onnx", "-i", "xy.npz", "--full"]) == 0
    assert "..." not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.onnx"], "missing.onnx"),
        (["net.onnx"], "--dim N=1"),
        (["net.onnx", "--dim", "N=3", "--dim", "M=3"], "got `M`"),
        (["net.onnx", "-i", "x=wrong.npy"], "float32"),
        (["net.onnx", "--dim", "N=3", "-o", "no/folder/y.npz"], "no/folder/y.npz"),
    ],
)
def test_wrong_runs_are_one_message(arguments: list[str], message: str, capsys: Capture) -> None:
    np.save("wrong.npy", np.zeros((3, 8)))
    assert main(["run", *arguments]) == 1
    err = capsys.readouterr().err
    assert "error: " in err
    assert message in err


# ---- compare --------------------------------------------------------------------------------------


def test_compare_equal_models(capsys: Capture) -> None:
    assert main(["optimize", "net.onnx", "-t", "ccompiler", "--dim", "N=3", "-q", "-o", "out.onnx"]) == 0
    assert main(["compare", "net.onnx", "out.onnx", "-i", "xy.npz"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("same  z  max abs error")
    assert out.endswith("PASSED: net.onnx and out.onnx compute the same\n")


def test_compare_names_the_first_difference(capsys: Capture) -> None:
    assert main(["compare", "net.onnx", "other.onnx", "--dim", "N=3"]) == 1
    out = capsys.readouterr().out
    assert "DIFFERENT  z" in out
    assert "first     d  " in out
    assert "FAILED" in out
    assert main(["compare", "net.onnx", "other.onnx", "--dim", "N=3", "--json"]) == 1
    tree = json.loads(capsys.readouterr().out)
    assert (tree["agrees"], tree["first"]["name"]) == (False, "d")
    assert main(["compare", "net.onnx", "other.onnx", "--dim", "N=3", "-q"]) == 1
    assert capsys.readouterr() == ("", "")


def test_compare_with_tolerances() -> None:
    assert main(["compare", "net.onnx", "net.onnx", "--dim", "N=3", "--exact", "-q"]) == 0
    assert main(["compare", "net.onnx", "missing.onnx", "-q"]) == 2
    assert main(["compare", "net.onnx", "net.onnx", "--dim", "M=3", "-q"]) == 2
    assert main(["compare", "net.onnx", "other.onnx", "--dim", "N=3", "--atol", "100", "-q"]) == 0


def test_files_keep_the_usual_permissions() -> None:
    umask = os.umask(0o022)
    try:
        assert main(["optimize", "net.onnx", "--dim", "N=3", "-q", "-o", "o.onnx", "--report", "r.txt"]) == 0
    finally:
        os.umask(umask)
    assert [oct(Path(f).stat().st_mode & 0o777) for f in ("o.onnx", "r.txt")] == ["0o644", "0o644"]


# ---- streams -------------------------------------------------------------------------------------------------------


def eqsat_in_shell(command: str) -> subprocess.CompletedProcess[bytes]:
    program = f"{shlex.quote(sys.executable)} -m eqsat"
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command.replace("eqsat", program)], capture_output=True, timeout=300
    )


@pytest.mark.slow
def test_commands_are_parts_of_a_pipe() -> None:
    done = eqsat_in_shell("eqsat optimize - -o - < net.onnx | eqsat run - -i xy.npz -o out.npz")
    assert done.returncode == 0, done.stderr
    with np.load("out.npz") as found:
        np.testing.assert_allclose(found["z"], reference("net.onnx"), rtol=1e-6)
    for redirected in ("> out.bin", ">> more.bin"):
        done = eqsat_in_shell(f"cat net.onnx | eqsat optimize - -o - {redirected}")
        assert done.returncode == 0 and not done.stdout and not done.stderr
    assert Path("out.bin").read_bytes() == Path("more.bin").read_bytes()
    onnx.checker.check_model(onnx.load_from_string(Path("out.bin").read_bytes()))


@pytest.mark.slow
def test_rules_come_from_a_pipe() -> None:
    rule = "'rule twice : exact  Relu(Relu(x)) => Relu(x)'"
    done = eqsat_in_shell(f"echo {rule} | eqsat rules check -")
    assert done.returncode == 0 and b"rules: 1, holds: 1" in done.stdout, done.stderr
    done = eqsat_in_shell(f"echo {rule} | eqsat optimize net.onnx -r - -o out.onnx")
    assert done.returncode == 0, done.stderr


def test_c_is_not_written_to_standard_output(capsys: Capture) -> None:
    assert main(["codegen", "net.onnx", "-o", "-"]) == 2
    assert "the name of a folder is required, not `-`" in capsys.readouterr().err
    assert not Path("-").exists()


def test_standard_output_holds_one_thing(capsys: Capture) -> None:
    assert main(["optimize", "net.onnx", "-o", "-", "--json"]) == 2
    assert "both the model and JSON" in capsys.readouterr().err


@pytest.mark.parametrize("place", ["out.txt", "out", "missing/out.onnx", "net.onnx/out.onnx", "."])
def test_the_place_is_tried_before_the_work(place: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eqsat.api.optimize", lambda *_, **__: pytest.fail("the work was done"))
    assert main(["optimize", "net.onnx", "-o", place]) in (1, 2)
    assert "required" in (message := capsys.readouterr().err) or "is a directory" in message


LOOP = """<ir_version: 10, opset_import: ["": 21]> g (int64 n, bool c, float[3] x) => (float[3] y, float[K, 3] ys) {
    y, ys = Loop(n, c, x) <body = b (int64 i, bool ci, float[3] s) => (bool co, float[3] so, float[3] sc) {
        co = Identity(ci) so = Add(s, x) sc = Mul(s, s) }> }"""


def test_a_size_that_data_decides_is_bounded_by_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the message says that asks for it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop.onnxtxt").write_text(LOOP, "utf-8")
    assert main(["run", "loop.onnxtxt", "--backend", "c", "-q"]) == 1
    assert "give a bound with --dim ys=..N" in capsys.readouterr().err
    assert main(["run", "loop.onnxtxt", "--backend", "c", "--dim", "ys=..8", "-q"]) == 0
    assert main(["run", "loop.onnxtxt", "--dim", "ys=..8", "-q"]) == 2
    assert "only C has ranges, as for `ys`: add --backend c" in capsys.readouterr().err


def test_elements_are_not_part_of_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop.onnxtxt").write_text(LOOP, "utf-8")
    assert main(["run", "loop.onnxtxt", "--full", "--json"]) == 2
    assert "--json prints no elements" in capsys.readouterr().err


NOWHERE = "no file can be made here"


@pytest.mark.parametrize(
    "arguments",
    [
        ["optimize", "net.onnx", "-o", "out.onnx"],
        ["optimize", "net.onnx", "--report", "report.html"],
        ["codegen", "net.onnx", "-o", "program"],
    ],
)
def test_a_place_that_cannot_be_written_is_refused_before_the_work(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def refused(**_: object) -> str:
        raise OSError(errno.EROFS, NOWHERE)

    def worked(*_: object, **__: object) -> None:
        raise AssertionError("the work has begun")

    monkeypatch.setattr(tempfile, "mkdtemp", refused)
    monkeypatch.setattr("eqsat.api.optimize", worked)
    monkeypatch.setattr("eqsat.codegen.folder.generate", worked)
    assert main(arguments) == 1
    assert f"is required; got {NOWHERE}" in capsys.readouterr().err


def test_a_hint_at_files_does_not_rest_on_their_suffix(capsys: Capture) -> None:
    assert main(["optimize", "xyz.onnx"]) == 1
    assert "did you mean" not in capsys.readouterr().err
    assert main(["optimize", "nett.onnx"]) == 1
    assert "did you mean `net.onnx`?" in capsys.readouterr().err
    assert main(["optimize", "net.json"]) == 1
    assert "did you mean `net.onnx`?" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["optimize", "net.onnx", "--dim", "N=3"],
        ["compare", "net.onnx", "other.onnx", "--dim", "N=3"],
        ["rules", "why", "relu_twice", "net.onnx"],
        ["targets", "why", "dnnl", "net.onnx", "z"],
    ],
)
def test_lines_are_folded_to_the_columns_that_are_asked_for(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    main(arguments)
    whole = capsys.readouterr().out
    assert max(map(len, whole.splitlines())) > 50
    monkeypatch.setenv("COLUMNS", "50")
    main(arguments)
    narrow = capsys.readouterr().out
    wide = [line for line in narrow.splitlines() if len(line) > 50]
    # A table of numbers that is as narrow as it can be, and words without a blank.
    assert all(len(line.split()) <= 2 or set(line.strip()) == {"─"} for line in wide), wide
