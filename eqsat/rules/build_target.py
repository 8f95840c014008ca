"""Declarations of targets to targets: settings, supported operators, composites with cost and call."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from eqsat.rules import ast
from eqsat.rules import declarations as s
from eqsat.rules.build_definition import Builder, define, read_doc, read_numerics
from eqsat.rules.callee import known, operators
from eqsat.rules.composite_clauses import read_annotations, read_call
from eqsat.rules.constness import forbid_facts_of_classes
from eqsat.rules.element_types import DTYPES, dtype_hint
from eqsat.rules.evaluation import evaluate
from eqsat.rules.known_facts import Unknown
from eqsat.rules.location import rules_dir
from eqsat.rules.matchable import check_buffers, check_results
from eqsat.rules.roots import read_roots
from eqsat.rules.scope import Context, Frame, PatternBinding
from eqsat.rules.source import Source, Sources, position_of
from eqsat.rules.tensor_types import check_types
from eqsat.rules.unit_hints import plain_number, without_unit
from eqsat.rules.written_operator import check_operands, read_written
from eqsat.schema.dtypes import dtype_name
from eqsat.schema.opset import did_you_mean
from eqsat.schema.types import OpKey

COST_SYMBOLS = ("macs", "bytes", "peak", "bandwidth", "launch")
"""Names with a meaning in costs: multiply-accumulates, bytes moved, and the target's own numbers."""
FAMILY_SYMBOLS = (*COST_SYMBOLS, "functions", "scattered")
"""Also in costs of generated code: elementary functions evaluated, bytes that are read across their order."""
_SETTINGS = ("bandwidth", "launch", "dispatch")
_LINK = ("bandwidth", "latency")
_SECTIONS = ("peak", "link")


def build_target(declaration: s.TargetDeclaration, frame: Frame, source: Source, sources: Sources) -> ast.Target:
    """The target of a declaration.

    Raises:
        TargetError: It is incomplete or contradicts itself.
    """
    peaks: dict[str, float] = {}
    numbers: dict[str, float] = {}
    summary: str | None = None
    supports: list[ast.Supports] = []
    composites: list[ast.Composite] = []
    files: dict[str, list[str]] = {"rules": [], "prepare": []}
    region_call: str | None = None
    families: list[ast.FamilyEntry] = []
    lets = [item for item in declaration.items if isinstance(item, s.Let)]
    frames = iter(define(lets, frame, sources, local=False))
    for item in declaration.items:
        with sources.recovering():
            match item:
                case s.Text():
                    if item.name in files:
                        files[item.name].append(_rule_file(item, sources))
                        continue
                    if item.name != "summary":
                        raise sources.error(
                            item.place,
                            "`summary`, `rules` or `prepare` is required before a text",
                            actual=f"`{item.name}`",
                        )
                    if summary is not None:
                        raise sources.error(item.place, "`summary` must be given once")
                    summary = item.text.value
                case s.RegionCall():
                    if region_call is not None:
                        raise sources.error(item.place, "`region call` must be given once")
                    region_call = _region_call(item, declaration, sources)
                case s.Setting():
                    _check_unit(item, declaration, sources)
                    _settings(item, declaration, peaks, numbers, sources)
                case s.Let():
                    frame = next(frames)
                case s.Entry(word="supports"):
                    supports.append(_supports(item, frame, sources))
                case s.Entry():
                    if not declaration.is_host:
                        raise sources.error(
                            item.place,
                            "a `family` of generated code belongs to a host",
                            actual=f"`{declaration.name}`, an accelerator",
                        )
                    families.append(_family(item, frame, sources))
                case s.Definition():
                    if any(item.name == c.name for c in composites):
                        raise sources.error(
                            item.place,
                            f"a composite of `{declaration.name}` must have a name of its own",
                            actual=f"`{item.name}` twice",
                            hint="rename one of the two",
                        )
                    composites.append(_composite(item, frame, source, sources))
    with sources.recovering():
        _check_families(declaration, families, sources)
    span = range(declaration.span.first, declaration.span.last + 1)
    if all(position_of(error)[0] not in span for error in sources.mistakes or ()):
        # A setting with a mistake is not one that is missing.
        with sources.recovering():
            _check_complete(declaration, peaks, numbers, sources)
    latency = numbers.get("link latency", 0.0)
    body = declaration.items[0].span.first if declaration.items else declaration.span.last + 1
    return ast.Target(
        name=declaration.name,
        summary=summary or "",
        is_host=declaration.is_host,
        peak=tuple(peaks.items()),
        bandwidth=numbers.get("bandwidth", math.nan),
        launch=numbers.get("launch", math.nan),
        dispatch=numbers.get("dispatch", latency),
        link_bandwidth=numbers.get("link bandwidth", math.inf),
        link_latency=latency,
        supports=tuple(supports),
        composites=tuple(composites),
        place=declaration.place,
        doc=source.doc(declaration.span.first, declaration.place.line, body),
        families=tuple(families),
        rules=tuple(files["rules"]),
        prepare=tuple(files["prepare"]),
        region_call=region_call or "",
    )


def _region_call(item: s.RegionCall, declaration: s.TargetDeclaration, sources: Sources) -> str:
    if item.name != "region":
        raise sources.error(item.place, "`region` is required before `call`", actual=f"`{item.name}`")
    if declaration.is_host:
        raise sources.error(item.place, "only an accelerator has a `region call`", actual="a host")
    text = "".join(t.value for t in item.texts)
    holes = re.findall(r"\{\{|\}\}|\{[^{}]*\}?|\}", text)
    wrong = next((h for h in holes if h not in ("{{", "}}", "{name}", "{inputs}", "{outputs}", "{sizes}")), None)
    if wrong is not None or "{outputs}" not in holes:
        raise sources.error(
            item.texts[0].place,
            "a region's call has the placeholders {name}, {inputs}, {sizes} and {outputs}; {outputs} is required",
            actual=f"`{wrong}`" if wrong is not None else "no {outputs}",
            hint='for example `region call "npu_run_{name}({inputs}, {outputs})"`; write `{{` for a brace of C',
        )
    return text


def _rule_file(item: s.Text, sources: Sources) -> str:
    """Path of a rule file: relative to the target's file, otherwise among the shipped ones."""
    name = item.text.value
    beside = Path(item.place.file).parent / name
    found = next((path for path in (beside, rules_dir() / name) if path.is_file()), None)
    if found is None:
        raise sources.error(
            item.text.place,
            "the path of a rule file is required, seen from this file or among the shipped rules",
            actual=f"`{name}`, no file at {beside}",
        )
    return os.path.normpath(found)


def _check_families(declaration: s.TargetDeclaration, families: Sequence[ast.FamilyEntry], sources: Sources) -> None:
    """Each ``by`` names a family that the target gives a cost for."""
    named = {name for family in families for name in family.names}
    for item in declaration.items:
        if not isinstance(item, s.Entry | s.Definition):
            continue
        clauses = s.those(item.clauses, s.By)
        if len(clauses) > 1:
            raise sources.error(clauses[1].place, "`by` must be given once")
        for clause in clauses:
            if not declaration.is_host:
                raise sources.error(
                    clause.place,
                    "a family of generated code belongs to a host",
                    actual=f"`{declaration.name}`, an accelerator",
                )
            if clause.name in named or any(not family.names for family in families) or s.those(item.clauses, s.Cost):
                continue
            raise sources.error(
                clause.place,
                "`by` must name a `family` entry of this target, or the composite must have a `cost`",
                actual=f"`{clause.name}`",
                hint=did_you_mean(clause.name, sorted(named)) or f"`family {clause.name}` with a `cost`",
            )


def _named_family(clauses: Sequence[s.ParsedClause]) -> str:
    return next((clause.name for clause in s.those(clauses, s.By)), "")


def _settings(
    item: s.Setting,
    declaration: s.TargetDeclaration,
    peaks: dict[str, float],
    numbers: dict[str, float],
    sources: Sources,
) -> None:
    if item.section not in ("", *_SECTIONS):
        hint = did_you_mean(
            item.section, (*_SECTIONS, "summary", "supports", "composite", "family", "rules", "prepare")
        )
        raise sources.error(
            item.place, "`peak` or `link` is required before a setting", actual=f"`{item.section}`", hint=hint
        )
    if item.section == "link" and declaration.is_host:
        raise sources.error(item.place, "a host has no link", hint="`link` is the way from a target to the host")
    for name, term, place in item.assignments:
        value = _number(term, place, sources, least_exclusive=item.section == "peak" or name == "bandwidth")
        if item.section == "peak":
            if name not in DTYPES:
                raise sources.error(
                    place,
                    "an element type is required in `peak`",
                    actual=f"`{name}`",
                    hint=f"remove the comma, and write `{name}` on a line of its own"
                    if name in _SETTINGS
                    else dtype_hint(name) or "such as float32, int8",
                )
            key, known_names = dtype_name(DTYPES[name]), peaks
        else:
            allowed = _LINK if item.section else _SETTINGS
            if name not in allowed:
                prefix = "link " if item.section else ""
                raise sources.error(
                    place, f"a target has no setting `{prefix}{name}`", hint=_setting_hint(name, allowed, item.section)
                )
            key, known_names = f"{item.section} {name}".strip(), numbers
        if key in known_names:
            raise sources.error(place, f"`{key}` must be given once")
        known_names[key] = value


def _check_unit(item: s.Setting, declaration: s.TargetDeclaration, sources: Sources) -> None:
    """Raises: TargetError: What reads as a section is the unit of the number before it, as in ``launch = 4 us``."""
    numbers = [
        term
        for other in declaration.items
        if isinstance(other, s.Setting)
        for _, term, _ in other.assignments
        if isinstance(term, ast.Number)
        and (term.place.line, term.place.column) < (item.place.line, item.place.column)
        and term.place.line == item.place.line
    ]
    if item.section in ("", *_SECTIONS) or not numbers:
        return
    found = without_unit(f"{numbers[-1].value!r}".removesuffix(".0") + f" {item.section}")
    if found is not None:
        requirement, actual, hint = plain_number(*found)
        raise sources.error(numbers[-1].place, requirement, actual=actual, hint=hint)


def _setting_hint(name: str, allowed: Sequence[str], section: str) -> str:
    if not section and name == "latency":
        return "the link's latency is given as `link bandwidth = ..., latency = ...`"
    if not section and name in _SECTIONS:
        examples = {"peak": "peak float32 = 1e12", "link": "link bandwidth = 4e9, latency = 5e-6"}
        return f"name the element type or the property after `{name}`, as in `{examples[name]}`"
    return (
        did_you_mean(name, (*allowed, *(() if section else ("peak", "link", "summary"))))
        or f"its settings: {', '.join(allowed)}"
    )


def _number(term: ast.Term, place: ast.Place, sources: Sources, *, least_exclusive: bool) -> float:
    builder = Builder.over(Frame(), sources)
    expr = builder.templates.expressions.build(term, builder.frame, ("number",))
    try:
        value = float(evaluate(expr, {}))
    except Unknown as error:
        raise sources.error(place, "a number is required", actual=str(error)) from None
    if value < 0 or (least_exclusive and value == 0):
        raise sources.error(
            term.place, f"a number {'above' if least_exclusive else 'not below'} 0 is required", actual=f"{value:g}"
        )
    return value


def _check_complete(
    declaration: s.TargetDeclaration, peaks: dict[str, float], numbers: dict[str, float], sources: Sources
) -> None:
    needed = ["bandwidth", "launch", *([] if declaration.is_host else ["link bandwidth", "link latency"])]
    missing = [] if peaks else ["peak"]
    missing += [name for name in needed if name not in numbers]
    if missing:
        hints = {"peak": "peak float32 = 1e12", "bandwidth": "bandwidth = 8e9", "launch": "launch = 1e-6"}
        examples = dict.fromkeys(hints.get(name, "link bandwidth = 4e9, latency = 5e-6") for name in missing)
        *others, last = missing
        raise sources.error(
            declaration.place,
            f"`{declaration.name}` must give its {', '.join(others)}{' and ' if others else ''}{last}",
            hint=f"for example {', '.join(f'`{example}`' for example in examples)}",
        )


def _supports(item: s.Entry, frame: Frame, sources: Sources) -> ast.Supports:
    builder = Builder.over(frame, sources)
    named = [operators(name, place, builder.context, frame) for name, place in _names(item.names, "operator", sources)]
    ops = tuple(dict.fromkeys(op for found in named for op in found))
    where, cost = _conditions_and_cost(item, ops, builder, COST_SYMBOLS)
    call = _call(item.clauses, sources)
    parts = () if call is None else read_call(call, builder)
    return ast.Supports(ops, where, cost, item.place, parts, _named_family(item.clauses))


def _family(item: s.Entry, frame: Frame, sources: Sources) -> ast.FamilyEntry:
    names = tuple(name for name, _ in _names(item.names, "family", sources))
    where, cost = _conditions_and_cost(item, (), Builder.over(frame, sources), FAMILY_SYMBOLS)
    if cost is None:
        raise sources.error(item.place, "a `family` must give its `cost`")
    return ast.FamilyEntry(names, where, cost, item.place)


def _names(
    listed: Sequence[tuple[str, ast.Place]] | None, what: str, sources: Sources
) -> Iterator[tuple[str, ast.Place]]:
    """The names that an entry lists, each only once; empty for ``*``."""
    seen: set[str] = set()
    for name, place in listed or ():
        if name in seen:
            raise sources.error(place, f"each {what} must be listed once", actual=f"`{name}` twice")
        seen.add(name)
        yield name, place


def _conditions_and_cost(
    item: s.Entry, ops: Sequence[OpKey], builder: Builder, symbols: tuple[str, ...]
) -> tuple[tuple[ast.Condition, ...], ast.Expr | None]:
    _bind_operands(ops, item.place, builder.context)
    conditions = builder.plain_conditions(item.clauses)
    for condition in conditions:
        forbid_facts_of_classes(condition.expr, builder.context)
    return tuple(conditions), _cost(item.clauses, builder, symbols)


def _bind_operands(ops: Sequence[OpKey], place: ast.Place, context: Context) -> None:
    """Names in conditions on a plain operator: ``x``, ``y``, ``node``, and the schema's of operands and results."""
    context.bindings["x"] = PatternBinding("tensor", place)
    context.bindings["y"] = PatternBinding("tensor", place)
    context.bindings["node"] = PatternBinding("node", place, tuple(ops))
    if not ops:
        return
    signatures = [known(op) for op in ops]
    for parameter in (*signatures[0].inputs, *signatures[0].outputs):
        everywhere = all(parameter.name in [p.name for p in (*f.inputs, *f.outputs)] for f in signatures)
        if everywhere and parameter.name not in context.bindings:
            context.bindings[parameter.name] = PatternBinding("rest" if parameter.variadic else "tensor", place)


def _cost(
    clauses: Sequence[s.ParsedClause], builder: Builder, symbols: tuple[str, ...] = COST_SYMBOLS
) -> ast.Expr | None:
    costs = s.those(clauses, s.Cost)
    if not costs:
        return None
    if len(costs) > 1:
        raise builder.context.error(costs[1].expr.place, "`cost` must be given once")
    builder.context.symbols = symbols
    builder.templates.in_condition = True
    expr = builder.templates.expressions.build(costs[0].expr, builder.frame, ("number",))
    builder.templates.in_condition = False
    builder.context.symbols = ()
    return expr


def _call(clauses: Sequence[s.ParsedClause], sources: Sources) -> s.Call | None:
    calls = s.those(clauses, s.Call)
    if len(calls) > 1:
        raise sources.error(
            calls[1].texts[0].place, "`call` must be given once", hint="several strings after one `call` are joined"
        )
    return calls[0] if calls else None


def _composite(item: s.Definition, frame: Frame, source: Source, sources: Sources) -> ast.Composite:
    numerics = read_numerics(item.numerics, sources)
    builder = Builder.over(frame, sources, item.clauses)
    (side,) = s.those(item.clauses, s.Side)
    results, patterns = read_roots(side.roots, builder)
    roots, conditions = builder.resolve(patterns)
    conditions += builder.conditions(item.clauses)
    cost = _cost(item.clauses, builder)
    call = _call(item.clauses, sources)
    notes = s.those(item.clauses, s.Annotate)
    family = _named_family(item.clauses)
    if family and (call is not None or notes):
        place = call.texts[0].place if call is not None else notes[0].terms[0].place
        raise sources.error(
            place,
            "a composite with `by` has no `call` and no `annotate`",
            actual=f"`by {family}` beside",
        )
    if family and len(results) > 1:
        raise sources.error(
            s.those(item.clauses, s.By)[0].place,
            "a composite with `by` has one result",
            actual=f"{len(results)} results: {', '.join(results)}",
            hint="give the composite one result, or an accelerator's target a `call`",
        )
    parts = () if call is None else read_call(call, builder, results)
    written = _written(item, builder, results)
    if len(notes) > 1:
        raise sources.error(notes[1].terms[0].place, "`annotate` must be given once", hint="separate by commas")
    builder.check_lets()
    clauses = builder.clauses(roots)
    for clause in clauses:
        check_types(clause, (), builder.context)
        if written is not None:
            check_operands(written, clause, builder.context)
    check_results(clauses, results, builder.context)
    check_buffers(parts, clauses, results, builder.context)
    return ast.Composite(
        name=item.name,
        numerics=numerics,
        patterns=tuple(roots),
        where=tuple(conditions),
        cost=cost,
        call=None if call is None else "".join(t.value for t in call.texts),
        place=item.place,
        doc=read_doc(item, source),
        call_parts=parts,
        annotations=read_annotations(notes[0], builder) if notes else (),
        family=family,
        span=ast.Span(item.clauses[0].span.first, side.span.last),
        results=tuple(results),
        written=written,
    )


def _written(item: s.Definition, builder: Builder, results: Sequence[str]) -> ast.Written | None:
    clauses = s.those(item.clauses, s.WrittenClause)
    if not clauses:
        return None
    place = clauses[0].root.value.place
    if len(clauses) > 1:
        raise builder.context.error(clauses[1].root.value.place, "`as` must be given once")
    if s.those(item.clauses, s.By) or s.those(item.clauses, s.Call) or s.those(item.clauses, s.Annotate):
        raise builder.context.error(
            place,
            "a composite with `as` has no `by`, no `call` and no `annotate`",
            hint="give them to the `supports` entry of that operator",
        )
    return read_written(clauses[0], builder, results)
