"""Prepares the float model for calibration: folds normalisations, and finds the nodes that the user named again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import onnx_ir as ir

from eqsat.control.before import cost_before
from eqsat.errors import QuantizationError
from eqsat.partition.place import split
from eqsat.result import Result
from eqsat.rules.ast import Rule
from eqsat.rules.location import rules_dir
from eqsat.rules.selection import select_rules
from eqsat.schema.free_sizes import FreeSizes
from eqsat.schema.opset import name_hint
from eqsat.search import Search
from eqsat.stages.options import SearchOptions
from eqsat.targets.find_targets import load_targets


def folded(original: ir.Model, options: SearchOptions, sizes: FreeSizes) -> Result:
    """The model with constants folded into operators with weights, and with the annotations that rules place.

    A normalisation outside of its convolution would cost a rounding of its own; a hint gives the type to round to. The
    cost before is that of the original on the host of the search.
    """
    own: list[Path | Rule] = [rules_dir() / "fusion.rules"] if options.default_rules else []
    own += split(select_rules(options.rules, "real").rules)[0]
    asked = SearchOptions(
        rules=own, default_rules=False, time_limit=options.time_limit, dims=dict(sizes), free_sizes=True
    )
    found = Search.run(original, asked).extract()
    cost, _ = cost_before(original, load_targets((), options.host), sizes)
    before = replace(found.summary.before, cost=cost)
    return replace(found, baseline_cost=cost, summary=replace(found.summary, before=before))


def surviving(original: ir.Model, prepared: ir.Model, names: Sequence[str]) -> tuple[str, ...]:
    """The present form of the named nodes: the name of a tensor for each that is still computed.

    Raises:
        QuantizationError: A node does not exist.
    """
    left = {v.name for node in prepared.graph for v in node.outputs}
    by_name: dict[str, ir.Node] = {}
    for node in original.graph:
        for name in (node.name, *(v.name for v in node.outputs)):
            if name:
                by_name.setdefault(name, node)
    found: dict[str, None] = {}
    for name in names:
        if name not in by_name:
            raise QuantizationError(
                "the name of a node, or of one of its outputs, is required",
                place="option skip",
                actual=repr(name),
                hint=name_hint(name, by_name),
            )
        todo = [by_name[name]]
        seen = set(todo)
        while todo:
            node = todo.pop()
            outputs = [v.name for v in node.outputs if v.name and v.name in left]
            if outputs:
                found.update(dict.fromkeys(outputs))
                continue
            following = [use.node for v in node.outputs for use in v.uses() if use.node not in seen]
            seen.update(following)
            todo += following
    return tuple(found)
