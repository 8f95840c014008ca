"""Why a rule or a composite of a target does not apply to a model, and why an operator does not run on a target."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Unpack

from eqsat.arguments import checks_arguments, with_options
from eqsat.bounds import GRACE, GUARD, within_bounds
from eqsat.egraph.encode import constant_values
from eqsat.egraph.judge_match import Judge
from eqsat.errors import ModelError, OptimizationError, RuleError, TargetError
from eqsat.explain.why import Explanation, MatchAttempt, Why, roots_of
from eqsat.extract.problem import Solution
from eqsat.model.load import GivenModel
from eqsat.partition.place import split
from eqsat.progress import ProgressOption, received, shows_progress
from eqsat.report.host import Placement, Placements
from eqsat.rules.ast import Composite, Rule, Target
from eqsat.rules.expand import operators
from eqsat.rules.listing import short_place
from eqsat.rules.selection import allowed, select_rules
from eqsat.rules.turned_constants import turned_constants
from eqsat.rules.turned_rules import turned_rules
from eqsat.schema.declared_operators import declared
from eqsat.schema.free_sizes import within
from eqsat.schema.opset import did_you_mean, name_hint
from eqsat.search import Search
from eqsat.stages.clock import LEAST_TIME, Clock
from eqsat.stages.extract import extract
from eqsat.stages.options import ReasonArguments, SearchOptions
from eqsat.targets.find_targets import list_targets, load_targets

PLACES = 3
"""Places that are listed by default."""


@checks_arguments
@shows_progress
@within_bounds(lambda seconds: 2 * GUARD * seconds + GRACE)
@with_options(ReasonArguments, SearchOptions, trust=False)
def explain_rule(
    source: GivenModel,
    name: str,
    targets: str | Sequence[str | Path | Target] = (),
    *,
    node: str | None = None,
    places: int = PLACES,
    memory_limit: int | str | None = None,
    progress: ProgressOption = None,
    **options: Unpack[ReasonArguments],
) -> Explanation:
    """Why a rule, or a composite of a target, does not apply to a model.

    The left side is matched against the saturated e-graph, and so against each spelling of the model that the rules
    derive. The result lists the places where most of it matches, each with the first thing that differs from what the
    rule requires.

    Args:
        source: As for :func:`eqsat.optimize`, and so are the arguments that are not named here.
        name: Of the rule, or of a composite with its target: ``"dnnl.conv2d_bias_relu"``. The target need not be given.
        node: A node of the model, by its name or that of a result: only places at this node are listed.
        places: How many places are listed.
        numerics: A rule beyond this class does not run, but is explained as well.

    Raises:
        ModelError: The model is broken, or has no such node.
        RuleError, TargetError: There is no such rule or composite, or a file is wrong.
    """
    targets = _with_target_of(name, targets)
    asked = SearchOptions(targets=targets, free_sizes=True, **options)
    definition, target = _definition(name, asked)
    search = Search.run(source, asked, progress=received(progress))
    return explained(search, definition, target, node, places)


def explained(
    search: Search, definition: Rule | Composite, target: str = "", node: str | None = None, places: int = PLACES
) -> Explanation:
    """The same in a search that is done."""
    with declared(search.loaded.operators), within(search.loaded.sizes):
        return _explained(search, definition, target, node, places)


def _explained(search: Search, definition: Rule | Composite, target: str, node: str | None, places: int) -> Explanation:
    name = f"{target}.{definition.name}" if target else definition.name
    head = Explanation(name, short_place(definition.place), str(definition.numerics), "absent")
    if search.untouched:
        return replace(head, remark=search.notes[-1] if search.notes else "the model is left unchanged")
    left_out = _left_out(search, definition, target)
    if isinstance(definition, Rule) and split([definition])[0]:
        return replace(head, remark="the rule places annotations before the search, and has no matches in it")
    if node is not None:
        _require_node(search, node)
    found = sorted(_places(search, definition, target, node, left_out), key=lambda place: place.rank, reverse=True)
    if not found:
        where = "in the model" if node is None else f"at {node}"
        names = ", ".join(map(str, sorted(operators(*roots_of(definition)))))
        return replace(head, remark=left_out or f"no operator of the pattern ({names}) occurs {where}, in any spelling")
    more = Counter(place.outcome for place in found[places:])
    fired = any(place.outcome == "applied" for place in found)
    return replace(
        head,
        outcome="applied" if fired else found[0].outcome,
        remark=left_out,
        places=tuple(found[:places]),
        more=dict(more),
    )


def _places(
    search: Search, definition: Rule | Composite, target: str, node: str | None, left_out: str
) -> Iterator[MatchAttempt]:
    """The places in a model and in the bodies of its control flow."""
    classes = None if node is None else _classes(search, node)
    if not search.untouched and (classes is None or classes):
        judge = Judge(search.saturation, search.snapshot, search.priced.pricing.facts)
        yield from Why(judge).places(definition, target, classes, left_out)
    for site, inner in search.nested.searches:
        for place in _places(inner, definition, target, node, left_out):
            yield replace(place, node=f"{place.node} in the {site}")


def nearest(search: Search, rule: Rule) -> MatchAttempt | None:
    """The nearest match of a rule in a search that is done."""
    return next(iter(explained(search, rule, places=1).places), None)


def cost_without(search: Search, name: str) -> float:
    """Seconds of the cheapest program that is found without one of the rules.

    The e-graph cannot tell: what a rule united, further rules have built upon. So the search runs once more.
    """
    loaded, options = search.loaded, search.options
    kept = replace(
        loaded,
        model=search.given or loaded.model,
        rules=tuple(rule for rule in loaded.rules if rule.name != name),
        rewriting=tuple(rule for rule in loaded.rewriting if rule.name != name),
    )
    with declared(kept.operators), within(kept.sizes):
        again = Search.of_loaded(kept, options, Clock(options.time_limit), ())
    return again.extract(verify=False).cost


@checks_arguments
@shows_progress
@within_bounds(lambda seconds: 3 * GUARD * seconds + GRACE)
@with_options(ReasonArguments, SearchOptions, trust=False)
def explain_placement(
    source: GivenModel,
    targets: str | Sequence[str | Path | Target],
    nodes: Sequence[str] = (),
    *,
    places: int = PLACES,
    memory_limit: int | str | None = None,
    progress: ProgressOption = None,
    **options: Unpack[ReasonArguments],
) -> tuple[Placement, ...]:
    """Why operators of a model do not run on an accelerator, and how much more it costs if they do.

    For each operator, further extractions find the cheapest equal program in which the accelerator runs it. If there
    is none, the answer is the condition that fails, or the composite that comes nearest to a match.

    Args:
        source: As for :func:`eqsat.optimize`, and so are the arguments that are not named here.
        targets: The first accelerator among these is the one in question.
        nodes: Nodes of the model, by their names or those of results. By default the most expensive ones on the host.
        places: How many of the most expensive nodes to explain.
        time_limit: For the search, and once more for all further extractions together.

    Raises:
        ModelError: The model is broken, or has no such node.
        RuleError, TargetError: There is no accelerator, or a file is wrong.
    """
    asked = SearchOptions(targets=targets, free_sizes=True, **options)
    search = Search.run(source, asked, progress=received(progress))
    if len(search.loaded.targets) < 2:
        raise TargetError("an accelerator is required", actual="the host alone", hint="`eqsat targets list` lists them")
    if search.untouched:
        raise OptimizationError("a model that can be searched is required", actual=search.notes[-1])
    with declared(search.loaded.operators), within(search.loaded.sizes):
        best = extract(search.formulation, search.clock)
        classes = {name: _class(search, name) for name in nodes} or _dearest(search, best, places)
        seconds = max(asked.time_limit / max(len(classes), 1), LEAST_TIME)
        placements = Placements(search.priced, best, seconds)
        return tuple(placements.of(name, eclass, 1) for name, eclass in classes.items())


def _class(search: Search, node: str) -> int:
    _require_node(search, node)
    classes = _classes(search, node)
    if not classes:
        hint = "export the body as a model of its own"
        raise ModelError("a node outside of the bodies of control flow is required", actual=f"`{node}`", hint=hint)
    return min(classes)


def _dearest(search: Search, best: Solution, most: int) -> dict[str, int]:
    """The operators of the input that cost most on the host, by their first results, and their classes."""
    formulation, problem = search.formulation, search.formulation.problem
    names = {eclass: value.name for value, eclass in reversed(search.snapshot.refs.items()) if value.name}
    cost = {
        formulation.eclass[c]: problem.cost[choice.node, 0]
        for c, choice in best.choices.items()
        if choice.target == 0 and formulation.eclass[c] in names and problem.cost[choice.node, 0] > 0
    }
    return {str(names[c]): c for c in sorted(cost, key=lambda c: -cost[c])[:most]}


def _with_target_of(name: str, targets: str | Sequence[str | Path | Target]) -> Sequence[str | Path | Target]:
    """The targets, with a shipped one that the name of a composite begins with."""
    given = [targets] if isinstance(targets, str | Path | Target) else list(targets)
    of = name.partition(".")[0]
    if "." in name and of in list_targets() and all(t.name != of for t in load_targets(given)):
        given.append(of)
    return given


def _definition(name: str, options: SearchOptions) -> tuple[Rule | Composite, str]:
    """The rule or composite, and the name of its target."""
    targets = load_targets(options.targets, options.host)
    files = [path for target in targets for path in target.rules]
    rules = select_rules([*options.rules, *files], "approximate", options.default_rules).rules
    rules = [*rules, *turned_rules(targets, rules), *turned_constants(targets)]
    known: dict[str, tuple[Rule | Composite, str]] = {r.name: (r, "") for r in reversed(rules)}
    known |= {f"{t.name}.{c.name}": (c, t.name) for t in targets for c in t.composites}
    if name not in known:
        raise RuleError(
            "the name of a rule, or of a composite with its target, is required",
            actual=f"`{name}`",
            hint=did_you_mean(name, known)
            or "`eqsat rules list` lists rules and `eqsat targets show` composites; --rules and --target add further",
        )
    return known[name]


def _left_out(search: Search, definition: Rule | Composite, target: str) -> str:
    """Why the rule did not run, empty if it did."""
    name = f"{target}.{definition.name}" if target else definition.name
    if name in search.saturation.names:
        return ""
    if not allowed(definition.numerics, search.options.numerics):
        kind = definition.numerics.kind
        return f"it is left out: it is `{kind}`, and the search allows `{search.options.numerics}`"
    return "it is left out: it makes operators of domains that the search does not allow"


def _require_node(search: Search, node: str) -> None:
    """Raises: ModelError: Neither the model nor a body of its control flow has such a node."""
    names = dict.fromkeys(_names(search))
    if node not in names:
        raise ModelError(
            "the name of a node of the model, or of a result, is required",
            place=search.model.graph.name or "",
            actual=f"`{node}`",
            hint=name_hint(node, names),
        )


def _names(search: Search) -> Iterator[str]:
    """The names of all nodes and of their results; last those of nodes that are computed in advance."""
    encoding = None if search.untouched else search.saturation.encoding
    fixed = set() if encoding is None else {encoding.values[k] for k in constant_values(encoding)}
    for own in sorted(search.model.graph, key=lambda own: fixed.issuperset(own.outputs)):
        yield from (name for name in (own.name, *(v.name for v in own.outputs)) if name)
    for _, inner in search.nested.searches:
        yield from _names(inner)


def _classes(search: Search, node: str) -> frozenset[int]:
    """The classes of the results of a node of the model itself; empty if it has no such node."""
    found = (own for own in search.model.graph if node in (own.name, *(v.name for v in own.outputs)))
    refs = {} if search.untouched else search.snapshot.refs
    return frozenset(refs[v] for own in found for v in own.outputs if v in refs)
