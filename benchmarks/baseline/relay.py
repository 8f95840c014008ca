"""How TVM's Relay partitions: MergeComposite, AnnotateTarget, MergeCompilerRegions, PartitionGraph.

Written after reading `apache/tvm` 0.8 to 0.19, ``src/relay/transforms/{merge_composite, annotate_target,
merge_compiler_regions, partition_graph}.cc``, ``src/relay/ir/{dataflow_matcher, indexed_graph}.cc`` and
``src/relay/analysis/annotated_region_set.cc``. What decides its results:

- Patterns are tried one after the other, each over the whole program, from the outputs back. The first match keeps its
  operators; nothing is ever taken back.
- A match is dropped if a value inside it is read outside, unless the reader leads only to the match's root again.
- A match whose check fails has kept the operators from overlapping matches of the same pattern all the same.
- Each supported operator or composite is a region of its own at first. Operands before readers, a region takes in
  those of its operands' regions that have the same target and on which no other operand depends from outside.
- Tuples and projections go to the target of their operands, if that is one target.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from benchmarks.baseline.expr import Expr, Program, post_order, redirect, users
from benchmarks.baseline.matcher import Found, find
from benchmarks.baseline.partition import HOST, Partition, Tables
from eqsat.rules.ast import Composite, Target
from eqsat.schema.types import OpKey

_TUPLE_OPERANDS = frozenset({OpKey("", "Concat")})
"""Operators that Relay gives their operands as one tuple."""


def partition(program: Program, tables: Tables, *, merge: bool = True, non_call_targets: bool = True) -> Partition:
    """Partitions a program.

    Args:
        program: Is used up.
        tables: The targets.
        merge: Whether to run MergeCompilerRegions.
        non_call_targets: AnnotateTarget's ``include_non_call_ops``: give tuples and projections a target, too.
    """
    body = _relay_form(program)
    body = merge_composites(program, body, tables)
    target_of = annotate_targets(body, tables, non_call_targets)
    regions = merge_regions(body, target_of) if merge else [[e] for e in post_order([body]) if e in target_of]
    kept = [(target_of[r[0]], tuple(r)) for r in regions if target_of[r[0]] != HOST]
    return Partition(program, target_of, tuple(kept))


def _relay_form(program: Program) -> Expr:
    """Tuples where Relay has them; the program's outputs as one expression."""
    for call in program.bindings:
        if call.op in _TUPLE_OPERANDS:
            call.args = (Expr("tuple", args=call.args),)
    body = program.outputs[0] if len(program.outputs) == 1 else Expr("tuple", args=tuple(program.outputs))
    program.bindings = _bindings(body)
    return body


def _bindings(body: Expr) -> list[Expr]:
    return [e for e in post_order([body]) if e.kind in ("call", "item", "tuple")]


# ---- MergeComposite ------------------------------------------------------------------------------


def merge_composites(program: Program, body: Expr, tables: Tables) -> Expr:
    """Replaces the matches of each composite by calls of it; returns the body, which may be one of them."""
    for target, composite in tables.composites:
        replacement = {g.root: _composite_call(target, composite, g) for g in _groups(body, composite, tables)}
        if replacement:
            redirect(program, replacement)
            body = replacement.get(body, body)
            program.bindings = _bindings(body)
    return body


class _Group:
    """A match that keeps its operators.

    Attributes:
        leaves: What it reads.
        members: The expressions it stands for, the root last.
        names: What the pattern's names are bound to.
    """

    def __init__(self, found: Found, names: Mapping[str, object]) -> None:
        self.root = found.root
        self.names = names
        self.leaves = tuple(found.leaves)
        stop = set(found.leaves)
        seen: set[Expr] = set()

        def walk(expr: Expr) -> Iterator[Expr]:
            if expr in stop or expr in seen or expr.kind in ("input", "constant"):
                return
            seen.add(expr)
            for arg in expr.args:
                if arg is not None:
                    yield from walk(arg)
            yield expr

        self.members = tuple(walk(found.root))


def _groups(body: Expr, composite: Composite, tables: Tables) -> list[_Group]:
    order = post_order([body])
    readers = users(order)
    dominators = _Dominators(order, readers)
    taken: set[Expr] = set()
    groups = []
    for expr in reversed(order):
        if expr in taken:
            continue
        found = find(composite.patterns[0], expr, tables.evaluate)
        if found is None:
            continue
        group = _Group(found, tables.names(composite, found))
        inside = set(group.members)
        if inside & taken or any(
            reader not in inside and not dominators.dominates(expr, reader)
            for member in group.members
            if member is not expr
            for reader in readers[member]
        ):
            continue
        taken |= inside
        if tables.accepts(composite, group.names):
            groups.append(group)
    return groups


def _composite_call(target: Target, composite: Composite, group: _Group) -> Expr:
    root = group.root
    op = OpKey(target.name, composite.name)
    return Expr(
        "call",
        op,
        args=group.leaves,
        types=root.types[:1],
        name=root.name,
        composite=composite,
        members=group.members,
        results=(root,),
        names=group.names,
    )


class _Dominators:
    """The tree of post-dominators: the closest expression through which everything that reads a value passes."""

    def __init__(self, order: list[Expr], readers: dict[Expr, list[Expr]]) -> None:
        self._parent: dict[Expr, Expr | None] = {}
        self._depth: dict[Expr, int] = {}
        for expr in reversed(order):
            parent: Expr | None = None
            for i, reader in enumerate(readers[expr]):
                parent = reader if i == 0 else self._common(parent, reader)
            self._parent[expr] = parent
            self._depth[expr] = 1 if parent is None else self._depth[parent] + 1

    def dominates(self, above: Expr, below: Expr) -> bool:
        """Whether everything that reads ``below`` passes through ``above``, another expression."""
        climb = self._parent[below]
        while climb is not None:
            if climb is above:
                return True
            climb = self._parent[climb]
        return False

    def _common(self, first: Expr | None, second: Expr | None) -> Expr | None:
        while first is not second:
            if first is None or second is None:
                return None
            if self._depth[first] == self._depth[second]:
                first, second = self._parent[first], self._parent[second]
            elif self._depth[first] > self._depth[second]:
                first = self._parent[first]
            else:
                second = self._parent[second]
        return first


# ---- AnnotateTarget ------------------------------------------------------------------------------


def annotate_targets(body: Expr, tables: Tables, non_call_targets: bool = True) -> dict[Expr, str]:
    """The target of each call, and of tuples and projections unless told otherwise."""
    names = [t.name for t in tables.targets]
    chosen: dict[Expr, str] = {}
    for expr in post_order([body]):
        if expr.kind == "call":
            if expr.composite is not None:
                chosen[expr] = expr.op.domain if expr.op.domain in names else HOST
            else:
                chosen[expr] = next((t.name for t in tables.targets if tables.supports(t, expr)), HOST)
        elif expr.kind in ("tuple", "item"):
            operands = {chosen.get(a, HOST) for a in expr.args if a is not None}
            chosen[expr] = operands.pop() if non_call_targets and len(operands) == 1 else HOST
    return chosen


# ---- MergeCompilerRegions ------------------------------------------------------------------------


def merge_regions(body: Expr, target_of: dict[Expr, str]) -> list[list[Expr]]:
    """Merges neighbouring regions of one target; returns them, each in order, in the order of their last members."""
    regions: dict[int, list[Expr]] = {}
    region_of: dict[Expr, int] = {}
    forbidden: dict[int, set[int]] = {}
    for number, expr in enumerate(e for e in post_order([body]) if e in target_of):
        operands = list(dict.fromkeys(region_of[a] for a in expr.args if a in region_of))
        regions[number] = [expr]
        region_of[expr] = number
        # What an operand depends on from outside must not come into this region: it would wait for itself.
        own = forbidden[number] = set().union(*(forbidden[r] for r in operands))
        for other in operands:
            if target_of[regions[other][0]] != target_of[expr]:
                own.add(other)
            elif other not in own:
                absorbed = regions.pop(other)
                regions[number] += absorbed
                region_of.update(dict.fromkeys(absorbed, number))
                for restrictions in forbidden.values():
                    if other in restrictions:
                        restrictions.discard(other)
                        restrictions.add(number)
    position = {e: i for i, e in enumerate(post_order([body]))}
    return [sorted(r, key=position.__getitem__) for r in regions.values()]
