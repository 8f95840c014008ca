"""From pairs of equal terms to rules: the smallest that others do not imply, in the numerics class that holds."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir

from eqsat.arguments import checks_arguments
from eqsat.check import lints
from eqsat.check.checked import verdict_of
from eqsat.check.rule import Observed, check_rule
from eqsat.discover.implied import not_implied
from eqsat.discover.terms import Enumeration, Pair, Term, arities
from eqsat.egraph.saturate import Limits, Saturation
from eqsat.errors import RuleError
from eqsat.model.load import load
from eqsat.ops.operators import standard
from eqsat.ops.traits import ELEMENTWISE
from eqsat.progress import Shown, received, shows_progress
from eqsat.rules.ast import Rule
from eqsat.rules.format import format_file
from eqsat.rules.reader import read_text
from eqsat.rules.selection import select_rules
from eqsat.schema.functions import declared
from eqsat.schema.opset import did_you_mean, find_schema, required_attributes
from eqsat.schema.types import OpKey
from eqsat.stages.event import Event

AT_ONCE = 5
"""Rules that are added before the remaining pairs are looked at again."""
SAMPLES = 20
"""Instances of each rule."""
_CLASSES = ("exact", "real")


@dataclass(frozen=True)
class Discovery:
    """Rules that were found.

    Attributes:
        rules: In the order in which they were accepted, smallest first.
        text: The same as a rule file in canonical form.
        evaluated: Terms whose values were compared.
        equal: Pairs of terms of equal values.
        implied: How many of them the given rules already join.
        refuted: Pairs that are equal on the samples and not on what the check drew.
        undecided: Pairs that the check had no instance for.
        complete: False if there were more terms than are looked at.
        uses: Matches of each rule on the model, by name; empty without a model.
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

    @property
    def notes(self) -> list[str]:
        """What was looked at, a line each."""
        lines = [
            f"{self.evaluated:,} terms compared, {self.equal:,} equal pairs: {self.implied:,} implied by known rules, "
            f"{self.refuted:,} refuted, {self.undecided:,} without an instance, {len(self.rules):,} new rules"
        ]
        if not self.complete:
            lines.append(f"note: only the first {self.evaluated:,} terms were compared; fewer operators leave less out")
        return lines

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        counts = ("evaluated", "equal", "implied", "refuted", "undecided", "complete")
        texts = self.text.strip().split("\n\n") if self.rules else []
        return {
            "rules": [
                {"name": rule.name, "numerics": str(rule.numerics), "text": text}
                | ({"uses": self.uses[rule.name]} if rule.name in self.uses else {})
                for rule, text in zip(self.rules, texts, strict=True)
            ]
        } | {name: getattr(self, name) for name in counts}


@checks_arguments
@shows_progress
def discover_rules(
    operators: Sequence[str] = (),
    *,
    model: Any = None,
    dtype: str = "float32",
    size: int = 3,
    variables: int = 2,
    constants: Sequence[float] = (0.0, 1.0),
    rules: Sequence[Any] = (),
    default_rules: bool = True,
    seed: int = 0,
    progress: Shown = None,
) -> Discovery:
    """Finds rules over elementwise operators.

    All terms up to a size are compared by their values on random and special numbers. Pairs that are equal and that the
    rules so far do not join become rules, smallest first, if executing both sides on random instances does not refute
    them (:func:`eqsat.check_rules`).

    Args:
        operators: Names, such as ``["Relu", "Min", "Max"]``; attributes keep their defaults. By default those of the
            model.
        model: Rules that match on it come first, those that match most at the head.
        dtype: Element type of the variables.
        size: The most operators in a term, 1 to 5.
        variables: How many different ones, 1 to 4.
        constants: Numbers that terms may contain.
        rules: Files or rules that are known, besides the shipped ones.
        default_rules: Whether the shipped ones are known.
        seed: Of the samples and instances.
        progress: Receives events. By default a line shows them, in a terminal or a notebook; with False nothing does.

    Raises:
        RuleError: An operator is not elementwise or unknown, or a number is out of range.
    """
    loaded = None if model is None else load(model)
    if not operators and loaded is not None:
        operators = _used(loaded)
    kind = _check_arguments(operators, dtype, size, variables)
    known = list(select_rules(rules, "real", default_rules=default_rules).rules)
    enumeration = Enumeration(sorted(set(operators)), kind, variables, constants, size, seed)
    waiting = _ranked(enumeration.pairs)
    equal = len(waiting)
    waiting = not_implied(waiting, known, kind)
    implied = equal - len(waiting)
    found: list[_Found] = []
    names: set[str] = {rule.name for rule in known}
    verdicts: Counter[str] = Counter()
    total, receive = len(waiting), received(progress)
    while waiting:
        fresh: list[_Found] = []
        while waiting and len(fresh) < AT_ONCE:
            pair = waiting.pop(0)
            if receive is not None:
                receive(Event("discover", step=total - len(waiting), steps=total))
            verdict, rule = _rule_of(pair, kind, names, seed)
            verdicts[verdict] += 1
            if rule is not None:
                fresh.append(rule)
        found += fresh
        if fresh:
            waiting = not_implied(waiting, [*known, *(f.rule for f in found)], kind)
    found = _needed(found, known, kind)
    uses = {} if loaded is None else _uses(loaded, [f.rule for f in found])
    found.sort(key=lambda f: -uses.get(f.rule.name, 0))
    return Discovery(
        tuple(f.rule for f in found),
        format_file("\n\n".join(f.text for f in found), "<discovered>") if found else "",
        enumeration.evaluated,
        equal,
        implied,
        verdicts["refuted"],
        verdicts["undecided"],
        enumeration.complete,
        uses,
    )


@dataclass(frozen=True)
class _Found:
    """A rule, its text, and the pair that it was made of."""

    pair: Pair
    rule: Rule
    text: str


def _needed(found: Sequence[_Found], known: Sequence[Rule], dtype: ir.DataType) -> list[_Found]:
    """What the others do not imply; the largest are tried first."""
    kept = list(found)
    for candidate in reversed(found):
        others = [f.rule for f in kept if f is not candidate]
        if not not_implied([candidate.pair], [*known, *others], dtype):
            kept.remove(candidate)
    return kept


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


def _check_arguments(operators: Sequence[str], dtype: str, size: int, variables: int) -> ir.DataType:
    known = _elementwise()
    if not operators:
        raise RuleError("operators are required", actual="none", hint='such as "Relu,Min,Max"')
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
    for value, what, most in ((size, "size", 5), (variables, "variables", 4)):
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise RuleError(f"a whole number from 1 to {most} is required", place=what, actual=repr(value))
    kinds = {"float32" if d == ir.DataType.FLOAT else d.name.lower(): d for d in _DTYPES}
    if dtype not in kinds:
        raise RuleError("an element type is required", place="dtype", actual=repr(dtype), hint=", ".join(kinds))
    return kinds[dtype]


_DTYPES = (ir.DataType.FLOAT, ir.DataType.INT32, ir.DataType.INT64, ir.DataType.BOOL)


def _ranked(pairs: Sequence[Pair]) -> list[Pair]:
    """Each pair once, whatever its variables are called: small terms first, among them those of more variables."""
    unique: dict[str, Pair] = {}
    for pair in pairs:
        names = {name: "xyzuvw"[i] for i, name in enumerate(pair.left.variables)}
        renamed = Pair(pair.left.renamed(names), pair.right.renamed(names))
        unique.setdefault(f"{renamed.left.text} => {renamed.right.text}", renamed)

    def rank(pair: Pair) -> tuple[int, int, int, str]:
        numbers = pair.left.numbers + pair.right.numbers
        return pair.left.size + pair.right.size, numbers, -len(pair.left.variables), pair.left.text

    return sorted(unique.values(), key=rank)


def _rule_of(pair: Pair, dtype: ir.DataType, names: set[str], seed: int) -> tuple[str, _Found | None]:
    """The last verdict, and the rule of the strictest class and the widest types that hold."""
    verdict = "undecided"
    name = _name(pair, names)
    conditions = [""]
    if pair.left.variables:
        variable = pair.left.variables[0]
        conditions += [f"{variable}.dtype in {'floats' if dtype.is_floating_point() else 'integers'}"]
        conditions += [f"{variable}.dtype == {'float32' if dtype == ir.DataType.FLOAT else dtype.name.lower()}"]
    for condition in conditions:
        for numerics in _CLASSES:
            lines = [f"rule {name} : {numerics}", f"    {pair.left.text}  =>  {pair.right.text}"]
            text = "\n".join([*lines, f"    where {condition}"] if condition else lines)
            try:
                (rule,) = read_text(text, f"{name}.rules").rules
            except RuleError:
                # Types that the language refuses: a narrower condition may do.
                continue
            seen: list[Observed] = []
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)
                outcome = check_rule(
                    rule,
                    instances=SAMPLES,
                    seed=seed,
                    pointed=True,
                    observe=lambda *observed, seen=seen: seen.append(observed),
                )
            verdict = verdict_of(outcome)
            if verdict != "holds" or (outcome.mismatch is not None and not outcome.fires):
                continue
            with declared(rule.operators):
                if lints.grows(rule, [instance for instance, *_ in seen]):
                    return "grows", None
            names.add(name)
            return verdict, _Found(pair, rule, text)
    return verdict, None


def _name(pair: Pair, names: set[str]) -> str:
    def words(term: Term) -> list[str]:
        return [term.op, *(word for operand in term.operands for word in words(operand))] if term.op else []

    stem = "_of_".join(_snake(word) for word in words(pair.left)[:3])
    name, number = stem, 1
    while name in names:
        number += 1
        name = f"{stem}_{number}"
    return name


def _snake(word: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() and i else c.lower() for i, c in enumerate(word))
