"""How many of the shipped elementwise rules are found again when they are removed.

    python -m benchmarks.discover [--largest 4] [--json FILE]

`eqsat rules discover` could find those rules of `rules/activations.rules` and `rules/algebra.rules` whose sides consist
of elementwise operators with default attributes, whose conditions are about element types only, and whose variables
may have one type: float32 if they may, truth values or integers otherwise. Each is looked for in that type, with its
own operators, numbers and number of variables, without any known rules. It counts as found if the rules that were found
imply it. Columns: the rule, its operators, the type, the size of its larger side, whether it was found, seconds.
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
from eqsat.discover.elementwise_terms import ElementwiseTerm, Enumeration, Pair
from eqsat.discover.find_rules import require_enumerable
from eqsat.discover.implied_pairs import not_implied
from eqsat.discover.of_terms import rules_of_terms
from eqsat.errors import RuleError
from eqsat.proofs import conditions
from eqsat.rules.ast import Build, Match, Member, Name, Number, Rule
from eqsat.rules.expand import expand
from eqsat.rules.location import rules_dir
from eqsat.rules.reader import read_file
from eqsat.rules.tensor_types import possible_types
from eqsat.rules.tree import walk
from eqsat.schema.opset import dtype_of
from eqsat.schema.types import OpKey

FILES = ("activations.rules", "algebra.rules")
DTYPES = {"float32": ir.DataType.FLOAT, "bool": ir.DataType.BOOL, "int32": ir.DataType.INT32}
"""Element types in which rules are looked for, by name; the first that a rule allows is taken."""


class _Other(Exception):
    """A rule that is not made of such terms."""


@dataclass
class Row:
    rule: str
    operators: tuple[str, ...]
    dtype: str
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
    rows = [_row(rule, pair, dtype) for rule, pair, dtype in expressible if pair.left.size <= given.largest]
    print_table(
        ("rule", "operators", "type", ">size", "found", ">s"),
        [(r.rule, ", ".join(r.operators), r.dtype, str(r.size), _word(r.found), f"{r.seconds:.1f}") for r in rows],
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


def _row(rule: Rule, pair: Pair, dtype: str) -> Row:
    operators = tuple(sorted(set(_operators(pair.left)) | set(_operators(pair.right))))
    numbers = sorted(set(_numbers(pair.left)) | set(_numbers(pair.right)))
    start = time.process_time()
    is_found: bool | None = None
    try:
        require_enumerable(operators)
        size, variables = max(pair.left.size, pair.right.size), max(1, len(pair.left.variables))
        found = rules_of_terms(Enumeration(operators, DTYPES[dtype], variables, numbers, size), (), set())
        is_found = not not_implied([pair], [f.rule for f in found.found], DTYPES[dtype])
    except RuleError:
        # An operator with attributes that must be given.
        pass
    return Row(rule.name, operators, dtype, pair.left.size, is_found, time.process_time() - start)


def _expressible(rules: list[Rule]) -> Iterator[tuple[Rule, Pair, str]]:
    """Rules as pairs of terms, and the type of their variables."""
    for rule in rules:
        about_types = all(
            node.name == "dtype" for c in rule.where for node in walk(c.expr) if isinstance(node, Member)
        ) and not any(isinstance(node, Name) and node.name == "const" for c in rule.where for node in walk(c.expr))
        if len(rule.left) == 1 and about_types:
            try:
                pair = Pair(term(rule.left[0]), term(rule.right[0]))
            except _Other:
                continue
            dtype = _dtype(rule, pair)
            if dtype is not None:
                yield rule, pair, dtype


def _dtype(rule: Rule, pair: Pair) -> str | None:
    """The first of the types above that all variables of a rule may have; None if there is none."""
    clause = expand(rule.left)[0]
    groups = possible_types(clause, rule.right, conditions.assumed(rule, clause)) or []
    allowed = [types for names, types in groups if names & set(pair.left.variables)]
    return next((n for n, t in DTYPES.items() if all(t in map(dtype_of, types) for types in allowed)), None)


def term(node: Any) -> ElementwiseTerm:
    """A side of a rule as a term."""
    if isinstance(node, Name):
        return ElementwiseTerm(name=node.name)
    if isinstance(node, Number):
        return ElementwiseTerm(number=float(node.value))
    if isinstance(node, Match) and len(node.ops) == 1 and not node.attrs and not node.output:
        return ElementwiseTerm(_name(node.ops[0]), tuple(map(term, node.args)))
    if isinstance(node, Build) and isinstance(node.op, OpKey) and not node.attrs and not node.spread:
        return ElementwiseTerm(_name(node.op), tuple(map(term, node.args)))
    raise _Other


def _name(op: OpKey) -> str:
    if op.domain:
        raise _Other
    return op.name


def _operators(term: ElementwiseTerm) -> list[str]:
    return [term.op, *(op for operand in term.operands for op in _operators(operand))] if term.op else []


def _numbers(term: ElementwiseTerm) -> list[float]:
    own = [] if term.number is None else [term.number]
    return own + [number for operand in term.operands for number in _numbers(operand)]


if __name__ == "__main__":
    sys.exit(main())
