"""Small graphs as ONNX text, saturated with rules as text."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from eqsat.egraph.limits import Limits
from eqsat.egraph.saturate import Additions, Saturation
from eqsat.egraph.snapshot import Snapshot, snapshot
from eqsat.model.load import load
from eqsat.rules.reader import read_text


def model(body: str, inputs: str = "float[4] x, float[4] y", outputs: str = "float[4] out") -> ir.Model:
    """A model from the text of its nodes."""
    head = '<ir_version: 10, opset_import: ["" : 22, "com.microsoft" : 1]>'
    return load(f"{head}\nagraph ({inputs}) => ({outputs}) {{\n{body}\n}}")


def saturated(
    graph: ir.Model, rules: str = "", limits: Limits | None = None, targets: str = "", raw: Sequence[str] = ()
) -> Saturation:
    """A saturated e-graph."""
    found = read_text(targets, "test.target").targets if targets else ()
    saturation = Saturation(graph, read_text(rules, "test.rules").rules, found, limits, Additions(raw=raw))
    saturation.run()
    return saturation


def operators(snap: Snapshot, graph: ir.Model, output: int = 0) -> set[str]:
    """Names of the operators that can compute an output."""
    eclass = snap.refs[graph.graph.outputs[output]]
    nodes = [snap.nodes[n] for n in snap.classes[eclass]]
    return {str(n.op) if n.kind in ("op", "composite") else n.kind for n in nodes}


def read(graph: ir.Model, rules: str = "", **options) -> Snapshot:
    return snapshot(saturated(graph, rules, **options))
