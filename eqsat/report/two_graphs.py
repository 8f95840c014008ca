"""Takes the two graphs of a report from the parts of the pipeline: the input as encoded, the program as assembled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from eqsat.egraph.enode import ENode
from eqsat.errors import EqsatError
from eqsat.explain.origin import Origin
from eqsat.extract.from_egraph import Pricing
from eqsat.ops.own_operators import ANNOTATIONS
from eqsat.partition.value_names import value_names
from eqsat.report.cover import covered
from eqsat.report.graphs import Graph, GraphComparison, GraphNode, GraphRegion, RuleText
from eqsat.report.region_rows import operators
from eqsat.rules.listing import short_place, texts_of
from eqsat.schema.types import TensorType
from eqsat.stages.assemble import ExtractedProgram
from eqsat.stages.load import LoadedInput
from eqsat.stages.price import PricedGraph
from eqsat.targets.work import Work


def compare(
    loaded: LoadedInput, priced: PricedGraph, program: ExtractedProgram, origins: Mapping[str, Origin]
) -> GraphComparison:
    """The graph before and after an optimization.

    Args:
        loaded: Rules and targets, for their texts.
        priced: With the input.
        program: The result.
        origins: Where its nodes come from.
    """
    before, after = _before(priced), _after(priced, program, origins)
    used = dict.fromkeys(name for node in after.nodes for name in node.rules)
    return GraphComparison(before, after, covered(before, after, origins), _rule_texts(loaded, used))


def _before(priced: PricedGraph) -> Graph:
    """The input as the search received it, wholly on the host; what is constant is left out."""
    pricing, formulation = priced.pricing, priced.formulation
    snapshot, encoding = pricing.snapshot, priced.saturated.saturation.encoding
    host = pricing.costs.targets[0].name

    def named(number: int) -> str:
        value = encoding.values[number]
        eclass = snapshot.refs[value]
        return _typed("" if snapshot.is_fixed(eclass) else value.name or "", snapshot.types[eclass])

    def fixed(number: int) -> bool:
        return snapshot.is_fixed(snapshot.refs[encoding.values[number]])

    running = [n for n in encoding.nodes if not all(map(fixed, n.results))]
    nodes = [GraphNode("input", v.name or "", "", host, (), (named(encoding.number[v]),)) for v in encoding.inputs]
    makers = {encoding.number[v]: i for i, v in enumerate(encoding.inputs)}
    edges: dict[tuple[int, int], None] = {}
    for own, index in zip(running, formulation.original_nodes, strict=True):
        enode, place = snapshot.nodes[index], len(nodes)
        edges.update(dict.fromkeys((makers[o], place) for o in own.operands if o is not None and o in makers))
        nodes.append(
            GraphNode(
                "operator",
                encoding.values[own.results[0]].name or "",
                str(own.constructor.op),
                host,
                tuple(named(o) for o in own.operands if o is not None),
                tuple(named(r) for r in own.results),
                pricing.baseline(enode),
                _work(pricing, enode, 0),
            )
        )
        makers.update((r, place) for r in own.results)
    for value in priced.outputs:
        maker = makers.get(encoding.number[value])
        if maker is not None:
            edges[maker, len(nodes)] = None
        nodes.append(GraphNode("output", value.name or "", "", host, (named(encoding.number[value]),)))
    return Graph(tuple(nodes), tuple(edges))


def _after(priced: PricedGraph, program: ExtractedProgram, origins: Mapping[str, Origin]) -> Graph:
    """The chosen program with its regions."""
    plan, pricing = program.plan, priced.pricing
    names = value_names(plan).of

    def named(vid: int) -> str:
        return _typed("" if vid in plan.constants else names.get(vid, ""), plan.types.get(vid))

    host = plan.targets[0]
    nodes = [GraphNode("input", value.name or "", "", host, (), (named(vid),)) for vid, value in plan.inputs]
    makers = {vid: i for i, (vid, _) in enumerate(plan.inputs)}
    edges: dict[tuple[int, int], None] = {}
    first = len(nodes)
    for node, enode in zip(plan.nodes, program.assembled.enodes, strict=True):
        place = len(nodes)
        reads = [v for v in node.inputs if v is not None]
        makes = tuple(v for v in node.outputs if v is not None)
        edges.update(dict.fromkeys((makers[v], place) for v in reads if v in makers))
        name = next((names[v] for v in makes), "")
        origin = origins.get(name)
        nodes.append(
            GraphNode(
                "operator" if node.body is None else "composite",
                name,
                str(node.op),
                plan.targets[node.target],
                tuple(map(named, reads)),
                tuple(map(named, makes)),
                node.cost,
                _work(pricing, enode, node.target),
                operators(node) if node.body is not None else (),
                () if origin is None else origin.steps,
                () if origin is None else origin.constants,
            )
        )
        makers.update((v, place) for v in makes)
    for vid, value in plan.outputs:
        if vid in makers:
            edges[makers[vid], len(nodes)] = None
        nodes.append(GraphNode("output", value.name or "", "", host, (named(vid),)))
    return Graph(tuple(nodes), tuple(edges), _regions(program, first))


def _regions(program: ExtractedProgram, first: int) -> tuple[GraphRegion, ...]:
    plan = program.plan
    return tuple(
        GraphRegion(r.name, plan.targets[r.target], tuple(first + i for i in r.nodes)) for r in program.regions
    )


def _work(pricing: Pricing, enode: ENode, target: int) -> Work | None:
    """None for what computes nothing, and where a size is not known."""
    operands, outputs = pricing.operands(enode), pricing.outputs(enode)
    try:
        if enode.composite is not None:
            return pricing.costs.work_of_body(target, enode.composite.body, operands, outputs)
        return None if enode.op in ANNOTATIONS else pricing.costs.work(target, enode.op, enode.attrs, operands, outputs)
    except EqsatError:
        return None


def _typed(name: str, kind: TensorType | None) -> str:
    """``name: type``; of a constant, which has no name here, its type."""
    text = "unknown type" if kind is None else str(kind)
    return f"{name}: {text}" if name else f"constant {text}"


def _rule_texts(loaded: LoadedInput, used: Iterable[str]) -> tuple[RuleText, ...]:
    rules = {rule.name: rule for rule in loaded.every_rule}
    composites = {f"{t.name}.{c.name}": c for t in loaded.targets for c in t.composites}
    known = {name: found for name in used if (found := rules.get(name) or composites.get(name)) is not None}
    texts = texts_of(list(known.values()))
    return tuple(
        RuleText(name, short_place(found.place), str(found.numerics), text)
        for (name, found), text in zip(known.items(), texts, strict=True)
    )
