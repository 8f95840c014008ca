"""Loads two models for comparison, whatever the names of inputs, outputs and free sizes are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import onnx_ir as ir

from eqsat.errors import ModelError
from eqsat.execute.compare import SAME_INPUTS, pair_names
from eqsat.model.load import GivenModel
from eqsat.model.load import load as load_model
from eqsat.model.map_types import is_map
from eqsat.model.symbols import put_in_place
from eqsat.ops.own_operators import ANNOTATIONS
from eqsat.partition.place import places_annotations
from eqsat.partition.saved import inline
from eqsat.rules.ast import Build, Rule
from eqsat.rules.location import rules_dir
from eqsat.rules.tree import replaced
from eqsat.schema.declared_operators import declared
from eqsat.schema.metadata import is_own_domain
from eqsat.schema.types import TensorType, type_of
from eqsat.stages.load import LoadedInput, load
from eqsat.stages.options import SearchOptions

PROOFS = "proofs"
"""The folder of shipped rules that only proofs use."""
Pairs = tuple[tuple[str, str], ...]
"""Names that belong together: of the first model and of the second."""


@dataclass(frozen=True)
class JoinedModels:
    """Two models with the same inputs.

    Attributes:
        first: The first one, with the rules.
        second: The second one; its free sizes have the names of the first one's.
        rules: What may prove them equal; rules that the search carries out are equalities here, like all others.
        inputs: Which belong together.
        outputs: Which belong together.
        notes: What was assumed, a sentence each.
    """

    first: LoadedInput
    second: LoadedInput
    rules: tuple[Rule, ...]
    inputs: Pairs
    outputs: Pairs
    notes: tuple[str, ...] = ()


def join(a: GivenModel, b: GivenModel, options: SearchOptions) -> JoinedModels:
    """Loads both models.

    Args:
        a: The first one, as for :func:`eqsat.optimize`.
        b: The second one.
        options: Rules, sizes of the first model's dimensions, values of inputs.

    Raises:
        ModelError: One is broken, or they differ in inputs or outputs.
        RuleError: A rule file is wrong.
    """
    options = replace(options, rules=(*options.rules, *sorted((rules_dir() / PROOFS).glob("*.rules"))))
    first = _plain(load(a, options))
    with declared(first.operators):
        plain = replace(options, dims=None, values=None, rules=(), default_rules=False)
        second = _plain(load(b, plain))
        given = {n: v for n, v in (options.values or {}).items() if n in {i.name for i in second.model.graph.inputs}}
        if given:
            plain = replace(plain, values=given)
            second = _plain(load(b, plain))
        inputs, said = _paired(_inputs(first.model), _inputs(second.model), "input")
        left, right = _bound(first.model, second.model, inputs)
        if left:
            first = _plain(load(a, replace(options, dims={**(options.dims or {}), **left})))
            said += [f"`{name}` of the first model is {size}, as in the second" for name, size in left.items()]
        if right:
            second = _plain(load(b, replace(plain, dims=right)))
        put_in_place(second.model, _renamed(first.model, second.model, inputs))
    for pair in inputs:
        _require_same_type(first.model, second.model, pair)
    outputs, more = _paired(list(first.model.graph.outputs), list(second.model.graph.outputs), "output")
    rules = tuple(map(_without_annotations, (*first.every_rule, *first.claims)))
    return JoinedModels(first, second, rules, inputs, outputs, (*said, *more))


def _plain(loaded: LoadedInput) -> LoadedInput:
    """The model as given, before rules were carried out on it, with eqsat's own operators replaced: their meaning is
    proven, not their names.
    """
    given = loaded.given
    if any(is_own_domain(node.domain) for node in ir.traversal.RecursiveGraphIterator(given.graph)):
        given = load_model(inline(given))
    return replace(loaded, given=given, model=given)


def _without_annotations(rule: Rule) -> Rule:
    """The part of a rule about values: the annotations on its right side are identities."""

    def bare(node: Any) -> Any:
        if not isinstance(node, Build) or node.op not in ANNOTATIONS or node.name is not None:
            return None
        return replaced(node.args[0], bare)

    return rule if not places_annotations(rule) else replace(rule, right=replaced(rule.right, bare))


def _inputs(model: ir.Model) -> list[ir.Value]:
    return [v for v in model.graph.inputs if v.name not in model.graph.initializers]


def _paired(a: Sequence[ir.Value], b: Sequence[ir.Value], what: str) -> tuple[Pairs, list[str]]:
    """By name, and those without a namesake by position."""
    left, right = [v.name or "" for v in a], [v.name or "" for v in b]
    if len(left) != len(right):
        raise ModelError(
            f"two models with equally many {what}s are required",
            actual=f"{len(left)} ({', '.join(left)}) and {len(right)} ({', '.join(right)})",
            hint="`--set NAME=VALUE`, `values={...}`, makes an input a constant" if what == "input" else "",
        )
    pairs = tuple(pair_names(left, right).items())
    renamed = [f"{what} {x!r} of the first model is {y!r} of the second, by position" for x, y in pairs if x != y]
    return pairs, renamed


def _values(a: ir.Model, b: ir.Model, pair: tuple[str, str]) -> tuple[ir.Value, ir.Value]:
    left, right = pair
    return (
        next(v for v in a.graph.inputs if v.name == left),
        next(v for v in b.graph.inputs if v.name == right),
    )


def _dims(a: ir.Model, b: ir.Model, pairs: Pairs) -> list[tuple[int | str, int | str]]:
    """Dimensions that belong together."""
    found: list[tuple[int | str, int | str]] = []
    for pair in pairs:
        left, right = (type_of(v) for v in _values(a, b, pair))
        if left is not None and right is not None and left.rank == right.rank:
            both = zip(left.shape or (), right.shape or (), strict=True)
            found += [(x, y) for x, y in both if x is not None and y is not None and x != y]
    return found


def _bound(a: ir.Model, b: ir.Model, pairs: Pairs) -> tuple[dict[str, int], dict[str, int]]:
    """Symbols of each model that are numbers in the other."""
    dims = _dims(a, b, pairs)
    left = {x: y for x, y in dims if isinstance(x, str) and x.isidentifier() and isinstance(y, int)}
    right = {y: x for x, y in dims if isinstance(y, str) and y.isidentifier() and isinstance(x, int)}
    return left, right


def _renamed(a: ir.Model, b: ir.Model, pairs: Pairs) -> dict[str, str]:
    """Symbols of the first model by those of the second."""
    dims = _dims(a, b, pairs)
    names: dict[str, str] = {}
    for x, y in dims:
        if isinstance(x, str) and isinstance(y, str) and y.isidentifier():
            names.setdefault(y, x)
    return names


def _require_same_type(a: ir.Model, b: ir.Model, pair: tuple[str, str]) -> None:
    values = _values(a, b, pair)
    left, right = (type_of(v) for v in values)
    kinds = [_kind(v) for v in values]
    place = f"input {pair[0]!r}" + (f", in the second model {pair[1]!r}" if pair[0] != pair[1] else "")
    if None not in kinds and kinds[0] != kinds[1]:
        raise ModelError(
            "inputs of equal type are required", place=place, actual=f"a {kinds[0]} and a {kinds[1]}", hint=SAME_INPUTS
        )
    if left == right or left is None or right is None:
        return
    raise ModelError(
        "inputs of equal type are required", place=place, actual=f"{left} and {right}", hint=_hint(left, right)
    )


def _kind(value: ir.Value) -> str | None:
    if is_map(value):
        return "sequence of maps" if isinstance(value.type, ir.SequenceType) else "map"
    kinds = {ir.TensorType: "tensor", ir.SequenceType: "sequence", ir.OptionalType: "optional"}
    return next((name for kind, name in kinds.items() if isinstance(value.type, kind)), None)


def _hint(left: TensorType, right: TensorType) -> str:
    if left.dtype == right.dtype and left.rank == right.rank:
        return "sizes that differ between the models make them different functions; bind free ones with --dim"
    return SAME_INPUTS
