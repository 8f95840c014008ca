"""The JSON holds every field, is valid for strict readers, and keeps to its documented keys."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

from eqsat.report import summary as module
from eqsat.report.as_json import SCHEMA, to_dict, to_json
from eqsat.report.summary import Summary

from .large import large
from .sample import SUMMARY, sample


def test_every_field_arrives() -> None:
    tree = json.loads(to_json(SUMMARY))
    assert tree["schema"] == SCHEMA
    assert set(tree) == {f.name for f in dataclasses.fields(Summary)} | {
        *("schema", "speedup", "breakdown", "gap_meaning", "advice"),
    }
    assert tree["speedup"] == 4.0
    assert tree["after"] == {
        "cost": 0.003,
        "operators": 124,
        "composites": 54,
        "regions": 2,
        "host_operators": 3,
    }
    assert tree["kernels"][0]["operators"] == ["Conv", "Relu"]
    assert tree["host_operators"][1]["refusals"] == [
        {"target": "dnnl", "reason": "dnnl runs MaxPool only where ceil_mode == 0: ceil_mode is 1", "cost": None},
        {"target": "ccompiler", "reason": "cheaper on the host", "cost": None},
    ]
    assert tree["regions"][0]["outputs"] == ["conv1", "y"]
    assert tree["verification"]["max_abs_error"] == 3.14e-6


def test_what_is_unknown_is_null() -> None:
    text = to_json(sample(bound=float("-inf"), gap=float("nan"), verification=None))
    tree = json.loads(text, parse_constant=lambda name: (_ for _ in ()).throw(ValueError(name)))
    assert tree["bound"] is None
    assert tree["gap"] is None
    assert tree["verification"] is None


def test_same_text_each_time_and_equal_to_the_dict() -> None:
    assert to_json(sample()) == to_json(sample())
    assert json.loads(to_json(SUMMARY)) == to_dict(SUMMARY)


def test_names_of_rows_are_those_documented() -> None:
    # The schema's promise: a key is never renamed. Change SCHEMA when this has to change.
    keys = {
        name: [f.name for f in dataclasses.fields(getattr(module, name))]
        for name in (
            "KernelRow",
            "RegionRow",
            "HostRow",
            "RefusalRow",
            "RuleRow",
            "SaturationSummary",
            "GrowthRow",
            "Verification",
            "Measured",
            "MemoryMap",
        )
    }
    assert keys == {
        "KernelRow": [
            *("name", "op", "target", "region", "operators", "cost", "rule", "place", "body", "work", "measured"),
        ],
        "RegionRow": [
            *(
                "name",
                "target",
                "kernels",
                "operators",
                "inputs",
                "outputs",
                "cost",
                "body",
                "dispatch",
                "copies",
                "nodes",
            ),
        ],
        "HostRow": ["name", "op", "cost", "refusals"],
        "RefusalRow": ["target", "reason", "cost"],
        "RuleRow": [
            "name",
            "place",
            "matches",
            "applied",
            "chosen",
            "held_back",
            "mismatches",
            "mismatch",
            "misfits",
            "misfit",
            "undecided",
            "undecided_condition",
            "seconds",
        ],
        "SaturationSummary": ["iterations", "enodes", "classes", "stop_reason", "growth"],
        "GrowthRow": ["rule", "place", "enodes", "tensor", "op", "largest"],
        "Measured": ["seconds", "others"],
        "MemoryMap": ["target", "of", "arena", "peak", "peak_at", "steps", "sizes", "unknown", "tensors"],
        "Verification": [
            *("agrees", "outputs", "max_abs_error", "max_rel_error", "seed", "done", "samples", "pieces", "executed"),
            *("input_by", "result_by", "tolerance", "max_piece_error", "notes", "skipped"),
        ],
    }


def test_the_documentation_names_every_key() -> None:
    page = (Path(__file__).parent.parent.parent / "docs" / "report.md").read_text("utf-8")
    documented = set(re.findall(r"`([a-z_.0-9]+)`", page.split("## JSON")[1]))

    def keys(tree: object) -> set[str]:
        if isinstance(tree, dict):
            return set(tree) | {k for v in tree.values() for k in keys(v)}
        return {k for v in tree for k in keys(v)} if isinstance(tree, list) else set()

    assert keys(to_dict(sample(seconds={}))) <= documented
    found = keys(to_dict(sample(seconds={}, graphs=large(20).graphs))["graphs"])
    assert found <= documented
    assert f"`{SCHEMA}`" in page
