"""The benchmark of extraction reads e-graphs as others write them, and reports what was measured."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from benchmarks import extraction

EGRAPH = {
    "nodes": {
        "x": {"op": "x", "children": [], "eclass": "0", "cost": 3.0},
        "f": {"op": "f", "children": ["x"], "eclass": "1", "cost": 1.0},
        "f'": {"op": "g", "children": [], "eclass": "1", "cost": 3.5},
        "h": {"op": "h", "children": ["x", "x"], "eclass": "2", "cost": 1.0},
        "r": {"op": "r", "children": ["f", "h"], "eclass": "3", "cost": 0.0},
        "back": {"op": "b", "children": ["r"], "eclass": "1", "cost": 0.0},
    },
    "root_eclasses": ["3"],
}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    folder = tmp_path / "small"
    folder.mkdir()
    (folder / "shared.json").write_text(json.dumps(EGRAPH), "utf-8")
    with gzip.open(folder / "shared_zipped.json.gz", "wt") as file:
        json.dump(EGRAPH, file)
    negative = json.loads(json.dumps(EGRAPH))
    negative["nodes"]["h"]["cost"] = -1.0
    (folder / "negative.json").write_text(json.dumps(negative), "utf-8")
    (tmp_path / "best_known.csv").write_text(
        "egraph,bottom_up,faster_greedy_dag,highs_ilp,best_known\nsmall/shared.json,6.5,6,5,5\n", "utf-8"
    )
    return tmp_path


def test_children_stand_for_their_classes(directory: Path) -> None:
    problem = extraction.read_egraph(directory / "small" / "shared.json")
    assert problem.classes == 4
    assert problem.children == ((), (0,), (), (0,), (1, 2), (3,))
    assert problem.node_class.tolist() == [0, 1, 1, 2, 3, 1]
    assert problem.roots == (3,)


def test_roots_without_e_nodes_are_left_out(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = directory / "small" / "shared.json"
    path.write_text(json.dumps(EGRAPH | {"root_eclasses": ["absent", "3"]}), "utf-8")
    assert extraction.read_egraph(path).roots == (3,)
    path.write_text(json.dumps(EGRAPH | {"root_eclasses": ["absent"]}), "utf-8")
    assert extraction.main([str(directory), "--only", "small/shared"]) == 0
    assert "no root has e-nodes: left out" in capsys.readouterr().out


def test_the_table_and_the_file(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert extraction.main([str(directory), "--json", str(directory / "out.json")]) == 0
    output = capsys.readouterr().out
    assert "negative costs: left out" in output
    assert "+0.000%" in output
    results = json.loads((directory / "out.json").read_text("utf-8"))
    assert set(results) == {"small/shared", "small/shared_zipped"}
    assert results["small/shared"]["cost"] == results["small/shared"]["bound"] == 5.0
    assert results["small/shared"]["published"]["best_known"] == 5.0
    assert results["small/shared_zipped"]["cost"] == 5.0


def test_only_some_and_none_at_all(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert extraction.main([str(directory), "--only", "zipped"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert extraction.main([str(directory / "small")]) == 1
    assert "no e-graphs" in capsys.readouterr().err
