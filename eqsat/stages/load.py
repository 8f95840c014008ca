"""The first stage: loads a model, computes control flow that constants determine, and loads targets and rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import onnx_ir as ir

from eqsat.egraph.limits import RuleStatistics
from eqsat.execute.settle import settled
from eqsat.model.load import GivenModel
from eqsat.model.load import load as load_model
from eqsat.model.read.dims import free_sizes, require_bound, require_ranks
from eqsat.model.read.given_sizes import split as split_dims
from eqsat.model.write.max_opset import within_opset
from eqsat.partition.partition_functions import check_names
from eqsat.partition.place import AnnotatedModel, CarriedOut, place, split
from eqsat.partition.saved import inline, is_partitioned
from eqsat.rules.ast import Rule, Target
from eqsat.rules.claims import claims_of
from eqsat.rules.location import is_shipped
from eqsat.rules.reader import read_operators
from eqsat.rules.selection import NumericsClass, allowed, select_rules
from eqsat.rules.turned_constants import turned_constants
from eqsat.rules.turned_rules import turned_rules
from eqsat.rules.user_operators import operators_of
from eqsat.schema.declared_operators import DeclaredOperator, declared, declared_here
from eqsat.schema.free_sizes import FreeSizes
from eqsat.schema.metadata import targets_of
from eqsat.schema.types import OpKey
from eqsat.stages.domains import domains, makes_only, writes_only
from eqsat.stages.options import SearchOptions
from eqsat.targets.find_targets import load_targets, target_files

MOST_NAMES = 5
"""Composites that a note lists."""


@dataclass(frozen=True, slots=True)
class LoadedInput:
    """The input of the search.

    Attributes:
        given: Checked and normalised, before any rule was carried out on it.
        model: The same without operators that are too new, once those rules were carried out that prepare it or place
            annotations.
        targets: The host first.
        preparing: Rules of the targets that were carried out on the model before all others.
        rules: All others that were selected.
        rewriting: Those of them that add equal programs.
        egg: Commands of the user for egglog itself.
        placed: Statistics of the rules that were carried out.
        carried_out: What they changed, step by step.
        notes: What was left out, a sentence each.
        operators: All that the options, the targets and the rules declare.
        sizes: Of the inputs, as far as they stay free.
        newer: Operators of the input that are replaced by their definitions, with the opset that they need.
        turned: Those of the rules that the targets' composites have turned around.
    """

    given: ir.Model
    model: ir.Model
    targets: tuple[Target, ...]
    preparing: tuple[Rule, ...]
    rules: tuple[Rule, ...]
    rewriting: tuple[Rule, ...]
    egg: tuple[str, ...]
    placed: tuple[RuleStatistics, ...]
    carried_out: tuple[CarriedOut, ...] = ()
    notes: tuple[str, ...] = ()
    operators: tuple[DeclaredOperator, ...] = ()
    sizes: FreeSizes = field(default_factory=dict)
    newer: Mapping[OpKey, int] = field(default_factory=dict)
    turned: tuple[Rule, ...] = ()

    @property
    def outputs(self) -> list[ir.Value]:
        return list(self.model.graph.outputs)

    @property
    def every_rule(self) -> tuple[Rule, ...]:
        """All rules that a result may rest on."""
        return (*self.preparing, *self.rules)

    @property
    def strange(self) -> list[Rule]:
        """The rules and claims among them that do not ship with eqsat."""
        others = (rule for rule in (*self.every_rule, *self.claims) if not is_shipped(rule.place.file))
        return list(dict.fromkeys((*others, *self.turned)))

    @property
    def claims(self) -> list[Rule]:
        """The claims of targets about operators as which their composites are written."""
        return claims_of(self.targets)


def load(source: GivenModel, options: SearchOptions) -> LoadedInput:
    """Loads targets and rules, and then the model, in which the operators that they declare may stand.

    Raises:
        ModelError, RuleError, TargetError: One of them is broken.
        OptimizationError: Sizes of inputs are unknown.
    """
    bound, _ = split_dims(options.dims)
    return _loaded(lambda: load_model(source, dims=bound, values=options.values), options)


def prepare(model: ir.Model, options: SearchOptions, opaque: Mapping[ir.Node, OpKey] | None = None) -> LoadedInput:
    """The same for a model that is loaded already, or was written by eqsat.

    Args:
        model: The model with the sizes of its symbolic dimensions; it is not changed.
        options: Options of the search.
        opaque: Nodes of the model that the search does not look into, with the operators that it sees in their place.
    """
    return _loaded(lambda: model, options, opaque)


def _loaded(
    source: Callable[[], ir.Model], options: SearchOptions, opaque: Mapping[ir.Node, OpKey] | None = None
) -> LoadedInput:
    _, ranges = split_dims(options.dims)
    with declared(operators_of_options(options)):
        available = load_targets(options.targets, options.host)
        with declared(operators_of(path for target in available for path in (*target.rules, *target.prepare))):
            selected = select_rules(options.rules, options.numerics, options.default_rules)
            permitted = [_within(target, options.numerics) for target in available]
            rules = [*selected.rules, *_rules_of(permitted, selected.rules, options.numerics)]
            before = select_rules(_files(available, "prepare"), options.numerics).rules
            known = operators_of((*declared_here(), *available, *rules, *before))
            with declared(known):
                ops = domains(options.ops, known)
                rules = [rule for rule in rules if makes_only(rule, ops)]
                targets = [_of_domains(target, ops) for target in permitted]
                turned = (*turned_rules(targets, rules), *turned_constants(targets))
                rules += turned
    check_names(dict(options.partition_functions or {}), available)
    notes = [
        _left_out(*pair, options.numerics) for pair in zip(available, permitted, strict=True) if pair[0] != pair[1]
    ]
    notes += _unchecked(options.rules)
    with declared(known):
        model = source()
        if opaque or is_partitioned(model) or targets_of(model.metadata_props):
            model = load_model(inline(model, operators=False, opaque=opaque))
        given = settled(model)
        placing, rewriting = split(rules)
        oldest, newer = within_opset(given, options.opset)
        prepared = place(oldest, before)
        placed = place(prepared.model, placing)
        model = placed.model
    require_ranks(model.graph.inputs)
    sizes = free_sizes(model, ranges)
    if not options.free_sizes:
        require_bound(model.graph.inputs, sizes)
    return LoadedInput(
        given,
        model,
        tuple(targets),
        before,
        tuple(rules),
        tuple(rewriting),
        tuple(selected.egg),
        (*prepared.statistics, *placed.statistics),
        _changes(prepared, placed),
        tuple(filter(None, notes)),
        known,
        sizes,
        newer,
        turned,
    )


def inside(loaded: LoadedInput, body: ir.Model) -> LoadedInput:
    """The body of control flow as input of a search of its own, with the same targets and rules.

    Args:
        loaded: The model around it.
        body: As loaded; the rank of an input may be unknown, as what control flow around it gives may have several.
    """
    given = settled(body)
    placing, rewriting = split(loaded.rules)
    prepared = place(given, loaded.preparing)
    placed = place(prepared.model, placing)
    sizes = sizes_inside(loaded.sizes, placed.model)
    return replace(
        loaded,
        given=given,
        model=placed.model,
        rewriting=tuple(rewriting),
        placed=(*prepared.statistics, *placed.statistics),
        carried_out=_changes(prepared, placed),
        notes=(),
        sizes=sizes,
    )


def sizes_inside(sizes: FreeSizes, body: ir.Model) -> FreeSizes:
    """The free sizes of a body: those of the enclosing model, and its own."""
    return {name: sizes.get(name, size) for name, size in free_sizes(body, {}).items()}


def _changes(*placed: AnnotatedModel) -> tuple[CarriedOut, ...]:
    return tuple(step.carried_out for step in placed if step.carried_out is not None)


def operators_of_options(options: SearchOptions) -> tuple[DeclaredOperator, ...]:
    """The operators that the declarations, rules and targets of a search declare.

    Raises:
        RuleError, TargetError: A file cannot be read, or a declaration is wrong.
    """
    targets = [*target_files(options.targets), *target_files(() if options.host is None else options.host)]
    files = [target for target in targets if isinstance(target, Path)]
    others = (target for target in targets if isinstance(target, Target))
    found = operators_of((*options.declarations, *options.rules, *others))
    return (*found, *read_operators(files, targets=True))


def _within(target: Target, numerics: NumericsClass) -> Target:
    """A target without the composites that change values further than is allowed."""
    kept = tuple(c for c in target.composites if allowed(c.numerics, numerics))
    return target if len(kept) == len(target.composites) else replace(target, composites=kept)


def _of_domains(target: Target, ops: frozenset[str] | None) -> Target:
    """A target without the composites that are written as operators of other domains."""
    kept = tuple(c for c in target.composites if writes_only(c, ops))
    return target if len(kept) == len(target.composites) else replace(target, composites=kept)


def _left_out(declared: Target, target: Target, numerics: NumericsClass) -> str:
    """The note on an accelerator's composites that are not offered; a host has other kernels for the same operators."""
    names = [c.name for c in declared.composites if c not in target.composites]
    if declared.is_host or not names:
        return ""
    shown = ", ".join(names[:MOST_NAMES]) + (f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else "")
    subject, verb = ("composite", "is") if len(names) == 1 else ("composites", "are")
    return f"{len(names)} {subject} of {declared.name} {verb} left out, beyond the numerics class {numerics!r}: {shown}"


def _unchecked(sources: Sequence[str | Path | Rule]) -> list[str]:
    """The note on files of the user for egglog itself."""
    files = [Path(s).name for s in sources if not isinstance(s, Rule) and Path(s).suffix == ".egg"]
    return [f"used unchecked, since only egglog understands them: {', '.join(files)}"] if files else []


def _files(targets: Sequence[Target], which: Literal["rules", "prepare"]) -> list[str]:
    return list(dict.fromkeys(path for target in targets for path in getattr(target, which)))


def _rules_of(targets: Sequence[Target], known: Sequence[Rule], numerics: NumericsClass) -> list[Rule]:
    """Rules that belong to the targets, without those that were selected anyhow."""
    found = select_rules(_files(targets, "rules"), numerics).rules
    places = {rule.place for rule in known}
    return [rule for rule in found if rule.place not in places]
