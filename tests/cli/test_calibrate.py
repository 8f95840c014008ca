"""``eqsat targets calibrate``, on a machine whose kernels all take twice what the shipped file says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eqsat.cli import main
from eqsat.codegen.calibration import measure_host as calibration
from eqsat.codegen.emitted import KernelInfo
from eqsat.codegen.generate import generate
from eqsat.codegen.predict import predict
from eqsat.targets.find_targets import load_host, targets_dir

Capture = pytest.CaptureFixture[str]
SHIPPED = (targets_dir() / "c.target").read_text("utf-8")


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = load_host("c")

    def probe(name: str, seconds: float) -> list[tuple[KernelInfo, float]]:
        kernels = generate(calibration.PROBES[name](), isas=()).kernels
        return [(k, 2 * predict(k, host)) for k in kernels]

    names = ("small convolutions", "small products")
    monkeypatch.setattr(calibration, "PROBES", {name: calibration.PROBES[name] for name in names})
    monkeypatch.setattr(calibration, "probe", probe)
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
def test_table_without_writing(capsys: Capture) -> None:
    assert main(["targets", "calibrate"]) == 0
    out, err = capsys.readouterr()
    assert err == "" and list(Path().iterdir()) == []
    lines = {line.split()[0]: line.split() for line in out.splitlines() if line.strip()}
    assert lines["number"] == ["number", "old", "new", "new", "/", "old"]
    _, old, new, ratio = lines["depthwise_rate"]
    assert float(new) / float(old) == pytest.approx(float(ratio), abs=0.006) == pytest.approx(0.5, rel=0.1)
    assert "half of them are predicted within a factor of 1.0" in out and "(2.00 before)" in out
    assert out.rstrip().endswith("nothing is written without -o: `eqsat targets calibrate c -o my_c.target`")


@pytest.mark.slow
def test_a_file_for_everything_else(capsys: Capture) -> None:
    assert main(["targets", "calibrate", "c", "--quick", "-o", "mine.target"]) == 0
    assert capsys.readouterr().out.rstrip().endswith("saved     mine.target")
    assert main(["targets", "check", "mine.target"]) == 0
    assert capsys.readouterr().out.startswith("mine.target: OK, c with")
    text = Path("mine.target").read_text("utf-8")
    assert text != SHIPPED and text.count("\n") == SHIPPED.count("\n")
    assert main(["targets", "calibrate", "mine.target", "-q", "-o", "mine.target"]) == 0
    assert capsys.readouterr() == ("", "")
    assert [p.name for p in Path().iterdir()] == ["mine.target"]


@pytest.mark.slow
def test_json(capsys: Capture) -> None:
    assert main(["targets", "calibrate", "c", "--json", "-o", "mine.target"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["target"], found["output"]) == ("c", "mine.target")
    assert found["spread"] < 1.1 and found["spread_before"] == pytest.approx(2)
    lines = Path("mine.target").read_text("utf-8").splitlines()
    for number in found["numbers"]:
        written = lines[number["line"] - 1].replace(",", " ").split()
        assert any(_is(word, number["new"]) for word in written), number


def _is(word: str, value: float) -> bool:
    try:
        return float(word) == value
    except ValueError:
        return False


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["dnnl"],
            "a host is required, which runs everything that no accelerator takes; got `dnnl`, an accelerator",
        ),
        (["cpuu"], "did you mean `cpu`"),
        (["missing.target"], "missing.target: a target file is required; got no such file"),
        (
            ["-o", "mine.txt"],
            "mine.txt: a file name that ends in .target is required; got `.txt`\n  hint: write `-o mine.target`",
        ),
        (["-o", "notes.target"], "notes.target: a new file or the file of a host is required as output"),
        (
            ["-o", "npu.target"],
            "npu.target: a new file or the file of a host is required as output; got the file of npu",
        ),
        (["-o", "nowhere/mine.target"], "nowhere/mine.target: a file that can be written is required"),
    ],
)
def test_errors(arguments: list[str], message: str, capsys: Capture) -> None:
    Path("notes.target").write_text("call the vendor", "utf-8")
    numbers = "    peak float32 = 1\n    bandwidth = 1, launch = 1\n    link bandwidth = 1, latency = 1\n"
    npu = f"target npu\n{numbers}    supports Relu\n"
    Path("npu.target").write_text(npu, "utf-8")
    assert main(["targets", "calibrate", *arguments]) == 1
    out, err = capsys.readouterr()
    assert out == "" and message in err and "Traceback" not in err
    assert Path("notes.target").read_text("utf-8") == "call the vendor" and Path("npu.target").read_text("utf-8") == npu


def test_no_compiler(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    assert main(["targets", "calibrate"]) == 1
    assert "a C compiler is required" in capsys.readouterr().err


def test_interrupted_nothing_is_left(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    Path("mine.target").write_text(SHIPPED, "utf-8")

    def interrupted(name: str, seconds: float) -> list[tuple[KernelInfo, float]]:
        raise KeyboardInterrupt

    monkeypatch.setattr(calibration, "probe", interrupted)
    assert main(["targets", "calibrate", "-o", "mine.target"]) == 130
    assert Path("mine.target").read_text("utf-8") == SHIPPED and len(list(Path().iterdir())) == 1


def test_families_are_shown(capsys: Capture) -> None:
    assert main(["targets", "show", "c"]) == 0
    assert "  family     direct_convolution\n    cost     " in capsys.readouterr().out
    assert main(["targets", "show", "c", "--json"]) == 0
    families = json.loads(capsys.readouterr().out)["families"]
    assert families[0]["names"] == ["direct_convolution"] and families[-1]["names"] == ["*"]
    assert all(f["cost"] for f in families)


def test_check_knows_families(capsys: Capture) -> None:
    Path("mine.target").write_text(SHIPPED.replace("family winograd_convolution", "family winograd"), "utf-8")
    assert main(["targets", "check", "mine.target"]) == 1
    assert "a family of generated kernels is required; got `winograd`" in capsys.readouterr().err
