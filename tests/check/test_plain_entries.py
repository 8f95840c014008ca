"""Conditions of plain operators that no instance meets are named, the fewest of them; those that one meets are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from eqsat.check.matching import unmatched
from eqsat.check.plain_entries import never_runs
from eqsat.cli import main
from eqsat.rules.tensor_types import never_held
from eqsat.schema.declared_operators import declared
from eqsat.targets.find_targets import list_targets, load_targets, read_target_file

HEAD = """target mine
    summary "s"
    peak float32 = 1e12
    bandwidth = 1e9, launch = 1e-6, dispatch = 1e-6
    link bandwidth = 1e9, latency = 1e-6
"""


def _said(tmp_path: Path, entry: str) -> list[str]:
    file = tmp_path / "mine.target"
    file.write_text(HEAD + entry, "utf-8")
    return list(unmatched(read_target_file(file)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("op", "conditions", "culprits"),
    [
        ("Relu", "x.dtype == float32, x.rank == 4, x.rank == 3", ("x.rank == 4", "x.rank == 3")),
        ("Conv", "node.group == 1, W.rank == 4, node.group == 2", ("node.group == 1", "node.group == 2")),
        ("Abs", "x.dtype == int8, x.dtype in (float32, float16)", ("x.dtype == int8", "in [float32, float16]")),
        ("Softmax", "node.axis > 3, node.axis < 2", ("node.axis > 3", "node.axis < 2")),
        ("MaxPool", "Indices.is_present and not Indices.is_present", ("Indices.is_present", "not Indices")),
        ("Concat", "all([v.rank == 4 for v in inputs]), y.rank == 3", ("for v in inputs", "y.rank == 3")),
        ("LRN", "node.size % 2 == 1, node.size % 2 == 0", ("% 2 == 1", "% 2 == 0")),
        ("Gemm", "const(B), B.shape[0] == 16, B.shape[0] == 8", ("B.shape[0] == 16", "B.shape[0] == 8")),
        ("Add", "A.shape == B.shape, A.rank != B.rank", ("A.shape == B.shape", "A.rank != B.rank")),
        ("Mul", "x.shape[1] > 32, x.shape[1] <= 16", ("> 32", "<= 16")),
        ("Clip", "min.value == 0, min.value == 1", ("min.value == 0", "min.value == 1")),
        ("Conv", "W.rank == 2", ("W.rank == 2",)),
    ],
)
def test_conditions_that_contradict_each_other(
    op: str, conditions: str, culprits: tuple[str, ...], tmp_path: Path
) -> None:
    (found,) = _said(tmp_path, f"    supports {op}\n        where {conditions}\n")
    assert f"`{op}` may never run here: of " in found
    named = found.partition("none meets ")[2]
    assert all(culprit in named for culprit in culprits)
    assert named.count("(7:") == len(culprits)


@pytest.mark.parametrize(
    "entry",
    [
        "supports Relu\n        where x.size >= 100000",
        "supports Conv\n        where x.shape[1] % 64 == 0, W.shape[0] * x.shape[1] >= 4097, node.group == 1,"
        " node.strides in ([1, 1], [2, 2]), y.shape[2] * y.shape[3] >= 1024",
        "supports Conv\n        where B.is_present, W.shape[0] >= 8 * node.group, node.group >= 2",
        "composite c : exact\n        Conv(x, w, b, group=g)\n        where w.shape[0] >= 16 * g, g >= 3",
        "supports Concat\n        where node.axis == 1,"
        " all([v.rank == 4 and v.dtype == int8 and v.shape[1] % 16 == 0 for v in inputs])",
        'supports LSTM\n        where node.direction == "bidirectional", node.hidden_size % 32 == 0,'
        " not sequence_lens.is_present, Y_h.is_present, not Y.is_present",
        "supports Gemm\n        where node.transB == 1, B.shape[0] % 8 == 0, const(B, C),"
        " A.shape[1] >= 5000, C.rank == 1",
        "supports DequantizeLinear\n        where x.dtype == int16, node.axis == 1, x_scale.rank == 1",
        'supports Resize\n        where node.mode == "linear", sizes.is_present, y.shape[2] == 2 * X.shape[2]',
        "supports LayerNormalization\n        where node.axis == x.rank - 1,"
        " x.shape[x.rank - 1] % 128 == 0, not B.is_present",
        "composite c : exact\n        Relu(x)\n        where x.size >= 100000",
        "composite c : exact\n        c: Conv(x, w, b?)\n"
        "        where x.shape[1] * w.shape[0] >= 4097, c.shape[2] * c.shape[3] >= 1024",
    ],
)
def test_conditions_that_something_meets(entry: str, tmp_path: Path) -> None:
    assert not _said(tmp_path, f"    {entry}\n")


def test_it_is_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.target"
    file.write_text(HEAD + "    supports Relu\n        where x.rank == 4, x.rank == 3\n", "utf-8")
    assert main(["targets", "check", str(file)]) == 0
    found = capsys.readouterr()
    assert "OK" in found.out and "`Relu` may never run here" in found.err


@pytest.mark.slow
@pytest.mark.parametrize("name", list_targets())
def test_conditions_of_shipped_targets_can_be_met(name: str) -> None:
    (target,) = (t for t in load_targets(name) if t.name == name)
    with declared(target.operators):
        said = {
            str(op) for e in target.supports for op in e.ops if never_held(op, e.where) is None and never_runs(op, e)
        }
    # Among the operators that one entry lists together, this one has no result of the types that the entry asks for.
    assert said <= {"eqsat.Requantize"}
