"""The public interface to search for rules over elementwise operators, and for rules in the e-graph of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir

from eqsat.arguments import checks_arguments
from eqsat.discover.accept import FoundRule
from eqsat.discover.elementwise_terms import Enumeration, arities
from eqsat.discover.of_terms import rules_of_terms
from eqsat.discover.on_model import ModelCounts, rules_of_model
from eqsat.egraph.saturate import Limits, Saturation
from eqsat.errors import RuleError
from eqsat.model.load import load
from eqsat.model.read.given_sizes import Bound
from eqsat.ops.operators import standard
from eqsat.ops.traits import ELEMENTWISE
from eqsat.progress import ProgressOption, received, shows_progress
from eqsat.proofs.proved import ProvenRule, prove_rules
from eqsat.rules.ast import Rule
from eqsat.rules.format import format_file
from eqsat.rules.selection import select_rules
from eqsat.rules.verdicts import Trust
from eqsat.schema.opset import did_you_mean, find_schema, required_attributes
from eqsat.schema.types import OpKey
from eqsat.stages.event import Event
from eqsat.text import name_of

PLACES = 5
"""Nodes that the documentation of a rule names."""


@dataclass(frozen=True)
class Discovery:
    """Rules that were found.

    Attributes:
        rules: In the order in which they were accepted, smallest first.
        text: The same as a rule file in canonical form.
        evaluated: Terms whose values were compared.
        equal: Pairs of terms of equal values.
        implied: Number of these that the given rules already join.
        refuted: Pairs that are equal on the samples but not on the instances of the check.
        undecided: Pairs without an instance in the check.
        complete: False if there were too many terms to examine.
        uses: Matches of each rule on the model, by name; empty without a model.
        verdicts: Verdicts of the prover on each rule, by name; empty without its solver.
        places: Nodes of the model at which a rule was found, by its name.
        on_model: The search in the model's e-graph; None without a model.
    """

    rules: tuple[Rule, ...]
    text: str
    evaluated: int
    equal: int
    implied: int
    refuted: int
    undecided: int
    complete: bool
    uses: Mapping[str, int] = field(default_factory=dict)
    verdicts: Mapping[str, Trust] = field(default_factory=dict)
    places: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    on_model: ModelCounts | None = None

    @property
    def notes(self) -> list[str]:
        """A report of the search, a line per topic."""
        lines = [
            f"{self.evaluated:,} terms compared, {self.equal:,} equal pairs: {self.implied:,} implied by known rules, "
            f"{self.refuted:,} refuted, {self.undecided:,} without an instance, {len(self.rules):,} new rules"
        ]
        if not self.complete:
            lines.append(
                f"note: only the first {self.evaluated:,} terms were compared; with fewer operators, fewer are left out"
            )
        return lines if self.on_model is None else [*lines, *self.on_model.notes]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        counts = ("evaluated", "equal", "implied", "refuted", "undecided", "complete")
        texts = self.text.strip().split("\n\n") if self.rules else []
        return {
            "rules": [
                {"name": rule.name, "numerics": str(rule.numerics), "text": text}
                | ({"uses": self.uses[rule.name]} if rule.name in self.uses else {})
                | ({"proof": self.verdicts[rule.name]} if rule.name in self.verdicts else {})
                | ({"places": self.places[rule.name]} if rule.name in self.places else {})
                for rule, text in zip(self.rules, texts, strict=True)
            ]
        } | {
            **{name: getattr(self, name) for name in counts},
            **({} if self.on_model is None else {"model": vars(self.on_model)}),
        }


@checks_arguments
@shows_progress
def discover_rules(
    operators: Sequence[str] = (),
    *,
    model: Any = None,
    dims: Mapping[str, Bound] | None = None,
    dtype: str = "float32",
    size: int = 3,
    variables: int = 2,
    constants: Sequence[float] = (0.0, 1.0),
    rules: Sequence[Any] = (),
    default_rules: bool = True,
    seed: int = 0,
    progress: ProgressOption = None,
) -> Discovery:
    """Finds rules over elementwise operators, and with a model rules over any of its operators.

    All terms up to a size are compared by value on random and special numbers. Equal pairs that known rules do not join
    become rules, smallest first, unless executing both sides on random instances refutes them
    (:func:`eqsat.check_rules`).

    With a model, the classes of its saturated e-graph are compared in the same way. If two classes are always equal,
    their programs are cut at classes that both share, and what is between becomes a rule.

    Args:
        operators: Names, such as ``["Relu", "Min", "Max"]``; attributes keep their defaults. By default those of the
            model.
        model: Its e-graph is searched as well: classes of equal values that no rule joined become rules. Rules that
            match most often on the model come first.
        dims: Sizes of the model's symbolic dimensions.
        dtype: Element type of the variables.
        size: The greatest number of operators in a term, 1 to 5.
        variables: The greatest number of different variables, 1 to 4.
        constants: Numbers that terms may contain.
        rules: Files or rules that are known, in addition to the shipped ones.
        default_rules: Whether the shipped ones are known.
        seed: Of the samples and instances.
        progress: Receives events. By default a line in terminals and notebooks shows them; False hides it.

    Raises:
        RuleError: An operator is not elementwise or unknown, or a number is out of range.
        ModelError: The model is broken.
        ExecutionError: A size of the model's inputs is not known.
    """
    loaded = None if model is None else load(model, dims=dims)
    if not operators and loaded is not None:
        operators = _used(loaded)
    kind = _check_arguments(operators, dtype, size, variables, loaded is not None)
    known = list(select_rules(rules, "real", default_rules=default_rules).rules)
    names: set[str] = {rule.name for rule in known}
    receive = received(progress)

    def report(step: int, steps: int) -> None:
        if receive is not None:
            receive(Event("discover", step=step, steps=steps))

    terms = rules_of_terms(
        Enumeration(sorted(set(operators)), kind, variables, constants, size, seed), known, names, seed, report
    )
    shown = None
    found = terms.found
    if loaded is not None:
        shown = rules_of_model(loaded, [*known, *(f.rule for f in found)], names, seed, report)
        found = [*found, *shown.found]
    uses = {} if loaded is None else _uses(loaded, [f.rule for f in found])
    found.sort(key=lambda f: -uses.get(f.rule.name, 0))
    proofs = _proofs([f.rule for f in found])
    wrong = {name for name, proof in proofs.items() if proof.trust == "refuted"}
    found = [f for f in found if f.rule.name not in wrong]
    text = "\n\n".join(_documented(f, proofs.get(f.rule.name)) for f in found)
    return Discovery(
        tuple(f.rule for f in found),
        format_file(text, "<discovered>") if found else "",
        terms.evaluated,
        terms.equal,
        terms.implied,
        terms.verdicts["refuted"] + len(wrong),
        terms.verdicts["undecided"],
        terms.complete,
        {name: count for name, count in uses.items() if name not in wrong},
        {f.rule.name: proofs[f.rule.name].trust for f in found if f.rule.name in proofs},
        {f.rule.name: tuple(f.places) for f in found if f.places},
        None if shown is None else shown.counts,
    )


def _proofs(rules: Sequence[Rule]) -> dict[str, ProvenRule]:
    """The verdicts of the prover by name; empty if its solver is not installed."""
    try:
        return {rule.name: prove_rules(rule)[0] for rule in rules}
    except RuleError:
        return {}


def _documented(found: FoundRule, proof: ProvenRule | None) -> str:
    """The text of a rule, with its evidence as documentation."""
    head, _, rest = found.text.partition("\n")
    lines = [head]
    if proof is not None:
        lines.append(f"    # {proof.words.capitalize()}.")
    if found.places:
        more = f" and {len(found.places) - PLACES:,} more" if len(found.places) > PLACES else ""
        lines.append(f"    # At {', '.join(map(name_of, found.places[:PLACES]))}{more}.")
    return "\n".join([*lines, rest])


def _elementwise() -> set[str]:
    known = {o.op.name for o in standard() if ELEMENTWISE in o.traits and not o.op.domain}
    return {n for n in known if find_schema(OpKey("", n)) is not None}


def _is_plain(name: str) -> bool:
    return not required_attributes(OpKey("", name)) and bool(arities(name))


def _used(model: ir.Model) -> list[str]:
    """The operators of a model that can be enumerated."""
    known = _elementwise()
    used = {node.op_type for node in model.graph.all_nodes() if node.domain in ("", "ai.onnx")}
    return sorted(name for name in used & known if _is_plain(name))


def _uses(model: ir.Model, rules: Sequence[Rule]) -> dict[str, int]:
    """Matches of each rule alone on the nodes of a model."""
    saturation = Saturation(model, rules, [], Limits(iterations=1))
    saturation.run()
    return {s.name: s.matches for s in saturation.statistics}


def require_enumerable(operators: Sequence[str]) -> None:
    """Raises a RuleError for operators that cannot be part of terms."""
    known = _elementwise()
    for name in operators:
        if name not in known:
            hint = did_you_mean(name, known) or "`eqsat rules list --sets` lists them"
            raise RuleError("an elementwise operator of ONNX is required", actual=f"`{name}`", hint=hint)
        if not _is_plain(name):
            raise RuleError(
                "an operator of at most three operands that needs no attributes is required",
                actual=f"`{name}`",
                hint="leave it out",
            )


def _check_arguments(operators: Sequence[str], dtype: str, size: int, variables: int, has_model: bool) -> ir.DataType:
    if not operators and not has_model:
        raise RuleError("operators are required", actual="none", hint='such as "Relu,Min,Max"')
    require_enumerable(operators)
    for value, what, most in ((size, "size", 5), (variables, "variables", 4)):
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise RuleError(f"a whole number from 1 to {most} is required", place=what, actual=repr(value))
    kinds = {"float32" if d == ir.DataType.FLOAT else d.name.lower(): d for d in _DTYPES}
    if dtype not in kinds:
        raise RuleError("an element type is required", place="dtype", actual=repr(dtype), hint=", ".join(kinds))
    return kinds[dtype]


_DTYPES = (ir.DataType.FLOAT, ir.DataType.INT32, ir.DataType.INT64, ir.DataType.BOOL)
