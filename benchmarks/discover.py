"""How many of the shipped elementwise rules are found again when they are removed.

    python -m benchmarks.discover [--largest 4] [--json FILE]

`eqsat rules discover` could find those rules of `rules/activations.rules` and `rules/algebra.rules` whose sides consist
of elementwise operators with default attributes, and whose conditions are about element types only. Each is looked for
with its own operators, numbers and number of variables, without any known rules. It counts as found if the rules that
were found imply it. Columns: the rule, its operators, the size of its larger side, whether it was found, seconds.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx_ir as ir

from benchmarks.output import write_json
from eqsat.cli.tables import print_table
from eqsat.discover.implied import not_implied
from eqsat.discover.rules import discover_rules
from eqsat.discover.terms import Pair, Term
from eqsat.errors import RuleError
from eqsat.rules.ast import Build, Match, Member, Name, Number, Rule
from eqsat.rules.location import rules_dir
from eqsat.rules.reader import read_file
from eqsat.rules.tree import walk
from eqsat.schema.types import OpKey

FILES = ("activations.rules", "algebra.rules")


class _Other(Exception):
    """A rule that is not made of such terms."""


@dataclass
class Row:
    rule: str
    operators: tuple[str, ...]
    size: int
    found: bool | None
    seconds: float


def main(arguments: list[str] | None = None) -> int:
    """Prints the table and the share."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", type=int, default=3, help="operators of the larger side")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    rules = [rule for name in FILES for rule in read_file(rules_dir() / name).rules]
    expressible = list(_expressible(rules))
    rows = [_row(rule, pair) for rule, pair in expressible if pair.left.size <= given.largest]
    print_table(
        ("rule", "operators", ">size", "found", ">s"),
        [(r.rule, ", ".join(r.operators), str(r.size), _word(r.found), f"{r.seconds:.1f}") for r in rows],
    )
    found = sum(row.found is True for row in rows)
    print(
        f"{len(rules)} rules, {len(expressible)} of such terms, {len(rows)} of at most {given.largest} operators: "
        f"{found} found again ({100 * found / max(1, len(rows)):.0f} %)"
    )
    if given.json is not None:
        write_json(given.json, [vars(row) for row in rows])
    return 0


def _word(found: bool | None) -> str:
    return "refused" if found is None else "yes" if found else "no"


def _row(rule: Rule, pair: Pair) -> Row:
    operators = tuple(sorted(set(_operators(pair.left)) | set(_operators(pair.right))))
    numbers = sorted(set(_numbers(pair.left)) | set(_numbers(pair.right)))
    start = time.process_time()
    is_found: bool | None = None
    try:
        found = discover_rules(
            operators,
            size=max(pair.left.size, pair.right.size),
            variables=max(1, len(pair.left.variables)),
            constants=numbers,
            default_rules=False,
        )
        is_found = not not_implied([pair], found.rules, ir.DataType.FLOAT)
    except RuleError:
        # An operator with attributes that must be given.
        pass
    return Row(rule.name, operators, pair.left.size, is_found, time.process_time() - start)


def _expressible(rules: list[Rule]) -> Iterator[tuple[Rule, Pair]]:
    for rule in rules:
        about_types = all(
            node.name == "dtype" for c in rule.where for node in walk(c.expr) if isinstance(node, Member)
        ) and not any(isinstance(node, Name) and node.name == "const" for c in rule.where for node in walk(c.expr))
        if len(rule.left) == 1 and about_types:
            try:
                pair = Pair(_term(rule.left[0]), _term(rule.right[0]))
            except _Other:
                continue
            yield rule, pair


def _term(node: Any) -> Term:
    if isinstance(node, Name):
        return Term(name=node.name)
    if isinstance(node, Number):
        return Term(number=float(node.value))
    if isinstance(node, Match) and len(node.ops) == 1 and not node.attrs and not node.output:
        return Term(_name(node.ops[0]), tuple(map(_term, node.args)))
    if isinstance(node, Build) and isinstance(node.op, OpKey) and not node.attrs and not node.spread:
        return Term(_name(node.op), tuple(map(_term, node.args)))
    raise _Other


def _name(op: OpKey) -> str:
    if op.domain:
        raise _Other
    return op.name


def _operators(term: Term) -> list[str]:
    return [term.op, *(op for operand in term.operands for op in _operators(operand))] if term.op else []


def _numbers(term: Term) -> list[float]:
    own = [] if term.number is None else [term.number]
    return own + [number for operand in term.operands for number in _numbers(operand)]


if __name__ == "__main__":
    sys.exit(main())
