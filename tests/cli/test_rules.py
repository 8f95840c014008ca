"""``eqsat rules`` and ``eqsat targets``: what is shown is what the files say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from egglog.bindings import EGraph

import eqsat
from eqsat import op
from eqsat.cli import main
from eqsat.egraph.show import egg_text
from eqsat.rules.listing import list_rules, short_place
from eqsat.rules.reader import read_file, read_text
from eqsat.rules.selection import shipped_rules

MINE = """
# About doubling.
rule twice : exact
    x + x  =>  2 * x    # behind


rule both : real
    # A comment
    # of two lines.
    x - y
        <=>  x + -y
# about what follows
let z = 0
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.rules"
    path.write_text(MINE, "utf-8")
    return path


def test_list(mine: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert main(["rules", "list", str(mine)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:4] for line in lines[2:]] == [
        ["twice", "exact", "-", f"{mine}:3"],
        ["both", "real", "-", f"{mine}:7"],
    ]
    assert lines[2].endswith("About doubling.")
    assert lines[3].endswith("A comment of two lines.")


@pytest.mark.slow
def test_list_of_the_shipped_rules(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    declared = [r.name for p in shipped_rules() for r in read_file(p).rules]
    assert [row["name"] for row in rows] == [n for n in declared if not n.endswith(".reverse")]
    assert all(row["place"].startswith("rules/") for row in rows)
    assert {"proven", "bounded", "executed"} <= {row["proof"] for row in rows}


def test_list_on_a_model(mine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = eqsat.input("x", (4,))
    eqsat.save(eqsat.graph((x + x) - eqsat.input("y", (4,))), tmp_path / "m.onnx")
    mine.write_text(MINE + "rule wide : exact\n    Relu(x)  =>  Relu(Relu(x))\n    where x.rank > 3\n", "utf-8")
    assert main(["rules", "list", str(mine), "--on", str(tmp_path / "m.onnx"), "--json"]) == 0
    rows = {row.pop("name"): row for row in json.loads(capsys.readouterr().out)}
    assert list(rows) == ["twice", "both", "both.reverse", "wide"]
    assert (rows["twice"]["matches"], rows["twice"]["applied"], rows["twice"]["new_enodes"]) == (1, 1, 1)
    assert rows["both"]["applied"] == 1
    assert all(row.pop("seconds") >= 0 for row in rows.values())
    assert rows["wide"] == {
        "matches": 0,
        "applied": 0,
        "new_enodes": 0,
        "chosen": 0,
        "remark": "the pattern does not occur",
    }
    assert main(["rules", "list", str(mine), "--on", str(tmp_path / "m.onnx")]) == 0
    assert "new e-nodes" in capsys.readouterr().out


@pytest.mark.slow
def test_the_gain_of_each_rule(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A rule whose results another one reaches as well gains nothing."""
    x, model, rules = eqsat.input("x", (256, 256)), tmp_path / "m.onnx", tmp_path / "r.rules"
    eqsat.save(eqsat.graph(op.Neg(op.Neg(op.Relu(op.Relu(op.Relu(x)))))), model)
    texts = {
        "twice": "Relu(Relu(x))  =>  Relu(x)",
        "thrice": "Relu(Relu(Relu(x)))  =>  Relu(x)",
        "back": "Neg(Neg(x))  =>  x",
        "idle": "Sigmoid(Sigmoid(x))  =>  Sigmoid(Sigmoid(Identity(x)))",
    }

    def written(*names: str) -> str:
        return "\n".join(f"rule {name} : exact\n    {texts[name]}\n" for name in names)

    rules.write_text(written(*texts), "utf-8")
    assert main(["rules", "list", str(rules), "--on", str(model), "--gain", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == ["back", "twice", "thrice", "idle"]
    assert [row["gain"] > 0 for row in rows] == [True, False, False, False]

    def cost(*names: str) -> float:
        return eqsat.optimize(model, rules=read_text(written(*names)).rules, default_rules=False).cost

    assert rows[0]["gain"] == pytest.approx(cost("twice", "thrice") - cost(*texts))
    assert main(["rules", "list", str(rules), "--on", str(model), "--gain"]) == 0
    assert "%)" in capsys.readouterr().out
    assert main(["rules", "list", str(rules), "--gain"]) == 2
    assert "--gain and --target need a model" in capsys.readouterr().err


def test_the_gain_on_a_target(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, rules, target = tmp_path / "m.onnx", tmp_path / "r.rules", tmp_path / "npu.target"
    target.write_text(
        "target npu\n    peak float32 = 1e15\n    bandwidth = 1e15, launch = 1e-12, dispatch = 1e-12\n"
        "    link bandwidth = 1e15, latency = 1e-12\n\n    supports Clip\n",
        "utf-8",
    )
    eqsat.save(eqsat.graph(op.Relu(eqsat.input("x", (256, 256)))), model)
    rules.write_text("rule clip : exact\n    Relu(x)  =>  Clip(x, 0)\n", "utf-8")
    gains = []
    for options in ([], ["-t", str(target)]):
        assert main(["rules", "list", str(rules), "--on", str(model), "--gain", "--json", *options]) == 0
        gains.append(json.loads(capsys.readouterr().out)[0]["gain"])
    assert gains[0] == 0 and gains[1] > 0


def test_show_gives_the_text_with_its_comments(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "show", "both", "twice", "-r", str(mine)]) == 0
    assert capsys.readouterr().out == (
        f"# {mine}:7\nrule both : real\n    # A comment\n    # of two lines.\n    x - y\n        <=>  x + -y\n"
        f"\n# {mine}:3\n# About doubling.\nrule twice : exact\n    x + x  =>  2 * x    # behind\n"
    )


@pytest.mark.slow
def test_show_of_an_unknown_rule_proposes_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "show", "duble"]) == 1
    assert "did you mean `double`" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    [
        "rule a : exact  x + x => 2 * x",
        "rule a : real  Conv(x, w, b?) => Conv(x, w, b?)",
        "rule a : real  (op: Add | Sub)(x, y) => op(x, y)",
        "rule a : exact  Concat(xs..., axis=1) => Concat(xs..., axis=1)",
        "rule a : exact  Split(x, s)[1] => Split(x, s)[1]",
    ],
)
def test_egg_text_is_egglog_with_both_stages(text: str) -> None:
    (rule,) = read_text(text).rules
    shown = egg_text(rule)
    # egglog's own parser takes it.
    assert EGraph().parse_program(shown)
    assert shown.count(":ruleset find_a") == shown.count(":ruleset apply_a") >= 1


@pytest.mark.slow
def test_every_shipped_rule_can_be_shown_as_egglog() -> None:
    egraph = EGraph()
    for entry in list_rules(shipped_rules()):
        for rule in entry.rules:
            assert egraph.parse_program(egg_text(rule)), rule.name


def test_show_egg(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "show", "--egg", "twice", "-r", str(mine)]) == 0
    assert "(Add_2 a0 x_x x_x)" in capsys.readouterr().out


def test_broken_rule_files_are_told_with_the_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.rules"
    path.write_text("rule a : exact\n    Requantise(x) => x\n", "utf-8")
    assert main(["rules", "list", str(path)]) == 1
    err = capsys.readouterr().err
    assert f"{path}:2:5" in err
    assert "Requantise(x) => x" in err
    assert main(["rules", "list", str(tmp_path / "missing.rules")]) == 1
    assert "no such file" in capsys.readouterr().err


def test_short_places() -> None:
    (first, *_) = read_file(shipped_rules()[0]).rules
    assert short_place(first.place).startswith("rules/")
    assert short_place("a:b/mine.rules:3:7") == "a:b/mine.rules:3"


# ---- targets --------------------------------------------------------------------------------------


def test_targets_list(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert main(["targets", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = [line.split()[0] for line in lines[2:]]
    assert {"cpu", "dnnl", "ccompiler"} <= set(names)
    assert names == sorted(names)
    monkeypatch.setenv("COLUMNS", "50")
    assert main(["targets", "list"]) == 0
    narrow = capsys.readouterr().out.splitlines()
    assert max(map(len, narrow)) <= 50
    assert [line.split()[1] for line in narrow if line.startswith("target ")] == names


@pytest.mark.parametrize("arguments", [["rules", "list", "--sets"], ["targets", "show", "dnnl"]], ids=" ".join)
def test_what_is_shown_fits_a_narrow_terminal(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert main(arguments) == 0
    wide = capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", "50")
    assert main(arguments) == 0
    narrow = capsys.readouterr().out
    assert all(len(line) <= 50 or len(line.split()) == 1 for line in narrow.splitlines())
    if "show" in arguments:
        assert narrow.split() == wide.split()


def test_targets_show(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["targets", "show", "ccompiler"]) == 0
    out = capsys.readouterr().out
    assert "ccompiler  an accelerator  rules/targets/ccompiler.target:" in out
    assert "supports   Add, Sub, Mul" in out
    assert "because its loops have no broadcasting" in out
    assert "    (x + y) * (x - y)\n" in out


def test_targets_show_with_changed_numbers_and_of_the_host(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["targets", "show", "--json", "ccompiler -launch=3e-6"]) == 0
    assert json.loads(capsys.readouterr().out)["launch"] == 3e-6
    assert main(["targets", "show", "cpu", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["name"], shown["host"]) == ("cpu", True)


def test_targets_check_takes_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["targets", "check", "c", "dnnl"]) == 0
    assert [line.split(",")[0] for line in capsys.readouterr().out.splitlines()] == ["c: OK", "dnnl: OK"]
    assert main(["targets", "check", "dnll"]) == 1
    assert "did you mean `dnnl`?" in capsys.readouterr().err


def test_targets_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = tmp_path / "good.target", tmp_path / "bad.target"
    good.write_text(
        'target npu\n    summary "n"\n    peak float32 = 1e9\n    bandwidth = 1e9, launch = 1e-6\n'
        "    link bandwidth = 1e9, latency = 1e-6\n    supports Relu\n",
        "utf-8",
    )
    bad.write_text(
        good.read_text("utf-8").replace("target npu", "target npu2").replace("peak float32 = 1e9", "peak float32 = -1"),
        "utf-8",
    )
    assert main(["targets", "check", str(good)]) == 0
    assert "OK, npu with 0 composites" in capsys.readouterr().out
    assert main(["targets", "check", str(good), str(bad), str(tmp_path / "missing.target")]) == 1
    out, err = capsys.readouterr()
    assert "OK, npu" in out
    assert f"{bad}:3:20: a number above 0 is required; got -1" in err
    assert "no such file" in err


def test_unknown_targets_propose_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["targets", "show", "dnl"]) == 1
    assert "did you mean `dnnl`" in capsys.readouterr().err


def test_format_rewrites_keeps_comments_and_then_changes_nothing(
    mine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = read_file(mine)
    assert main(["rules", "format", "--check", str(mine)]) == 1
    assert mine.read_text("utf-8") == MINE
    assert main(["rules", "format", str(mine)]) == 0
    text = mine.read_text("utf-8")
    assert text != MINE
    for comment in ("# About doubling.", "# behind", "# A comment", "# of two lines.", "# about what follows"):
        assert comment in text
    after = read_file(mine)
    assert [(r.name, r.doc) for r in after.rules] == [(r.name, r.doc) for r in before.rules]
    assert main(["rules", "format", "--check", str(mine)]) == 0
    assert "0 of 1 files" in capsys.readouterr().out.splitlines()[-1]


def test_format_writes_nothing_if_one_file_is_wrong(mine: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.rules"
    bad.write_text("rule a : exact\n    Foo(x)  =>  x\n", "utf-8")
    assert main(["rules", "format", str(mine), str(bad)]) == 1
    assert mine.read_text("utf-8") == MINE
