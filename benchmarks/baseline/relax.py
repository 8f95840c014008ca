"""How TVM's Relax partitions: FuseOpsByPattern, then MergeCompositeFunctions.

Written after reading ``src/relax/transform/{fuse_ops, merge_composite_functions}.cc`` of `apache/tvm` and compared with
TVM 0.27 on random programs (``tests/benchmarks/data``). What decides its results:

- Patterns are tried one after the other, each over the whole program in the order in which it is written; operators
  that accelerators should take alone need a pattern of their own.
- A match that ends where an earlier match of the same pattern ended absorbs it if it covers it, and is dropped if it
  does not. A match that only shares operators inside with an earlier one takes those away from it.
- A value inside a match that is read outside becomes a second result of the composite. Where that makes the
  composite wait for itself, compilation fails.
- A composite joins the regions of those of its operands that no other operand depends on, in program order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from benchmarks.baseline.expr import Expr, Program, drop_dead, redirect
from benchmarks.baseline.matcher import find
from benchmarks.baseline.partition import HOST, Partition, Tables
from eqsat.errors import OptimizationError
from eqsat.rules.ast import Composite, Target
from eqsat.schema.types import OpKey


def partition(program: Program, tables: Tables) -> Partition:
    """Partitions a program.

    Args:
        program: Is used up.
        tables: The targets; plain operators that a target supports are tried as patterns after its composites.

    Raises:
        OptimizationError: TVM fails on this program.
    """
    drop_dead(program)
    for target, composite in tables.composites:
        _fuse(program, target, composite, tables)
    target_of = dict.fromkeys(program.bindings, HOST)
    for expr in program.bindings:
        if expr.composite is not None:
            target_of[expr] = expr.op.domain
        elif expr.kind == "call":
            target_of[expr] = next((t.name for t in tables.targets if tables.supports(t, expr)), HOST)
    regions = _merge(program, target_of)
    return Partition(program, target_of, regions)


class _Group:
    """A set of bindings in the making; groups form trees whose roots count.

    Attributes:
        size: Bindings, as far as TVM keeps count.
        listed: Bindings that were put into this very group, those since taken away included.
        fused: Whether it is a match.
        names: What the pattern's names are bound to.
        literals: Constants that the pattern names by their value.
    """

    def __init__(self, listed: Iterable[Expr] = ()) -> None:
        self.parent: _Group | None = None
        self.size = 1
        self.listed = list(listed)
        self.fused = False
        self.names: Mapping[str, object] = {}
        self.literals: frozenset[Expr] = frozenset()

    def root(self) -> _Group:
        group = self
        while group.parent is not None:
            group = group.parent
        return group


# ---- FuseOpsByPattern ----------------------------------------------------------------------------


def _fuse(program: Program, target: Target, composite: Composite, tables: Tables) -> None:
    group_of = {e: _Group([e]) for e in program.bindings}
    for expr in program.bindings:
        if expr.kind != "call":
            continue
        found = find(composite.patterns[0], expr, tables.evaluate)
        if found is None:
            continue
        names = tables.names(composite, found)
        if not tables.accepts(composite, names):
            continue
        covered = set(found.calls)
        inside = [e for e in found.calls if e is not expr]
        if any(group_of[e].root().size > 1 and not covered.issuperset(group_of[e].listed) for e in inside):
            continue
        group = group_of[expr].root()
        group.fused = True
        group.names = names
        group.literals = frozenset(found.literals)
        for e in inside:
            if group_of[e] is not group:
                group_of[e].size -= 1
                group_of[e].parent = group
                group.listed.append(e)
                group.size += 1

    of = {e: group_of[e].root() for e in program.bindings}
    program.bindings = _sorted_by_group(program, of)
    _outline(program, of, target, composite)
    drop_dead(program)


def _outline(program: Program, of: dict[Expr, _Group], target: Target, composite: Composite) -> None:
    """Replaces each fused group by a call with one result for each value that is read outside."""
    members: dict[_Group, list[Expr]] = {}
    for expr in program.bindings:
        if of[expr].fused:
            members.setdefault(of[expr], []).append(expr)
    exported: dict[_Group, dict[Expr, int]] = {g: {} for g in members}
    for reader in (*program.bindings, *(Expr("tuple", args=(o,)) for o in program.outputs)):
        for arg in reader.args:
            if arg in of and of[arg].fused and of[arg] is not of.get(reader):
                exported[of[arg]].setdefault(arg, len(exported[of[arg]]))

    replacement: dict[Expr, Expr] = {}
    after: dict[Expr, list[Expr]] = {}
    for group, inside in members.items():
        results = list(exported[group])
        op = OpKey(target.name, composite.name)
        own = {*inside, *group.literals}
        leaves = tuple(dict.fromkeys(a for e in inside for a in e.args if a is not None and a not in own))
        call = Expr(
            "call",
            op,
            args=leaves,
            types=tuple(e.type for e in results),
            name=results[0].name if len(results) == 1 else "",
            composite=composite,
            members=tuple(inside),
            results=tuple(results),
            names=group.names,
        )
        after[inside[-1]] = [call]
        if len(results) == 1:
            replacement[results[0]] = call
            continue
        for i, result in enumerate(results):
            item = Expr("item", args=(call,), types=(result.type,), name=result.name, index=i)
            replacement[result] = item
            after[inside[-1]].append(item)
    bindings: list[Expr] = []
    for expr in program.bindings:
        if not of[expr].fused:
            bindings.append(expr)
        bindings += after.get(expr, ())
    program.bindings = bindings
    redirect(program, replacement)


def _sorted_by_group(program: Program, of: dict[Expr, _Group]) -> list[Expr]:
    """Bindings so that each group is in one piece, groups after those that they read.

    Raises:
        OptimizationError: Two groups wait for each other.
    """
    pieces: dict[_Group, list[Expr]] = {}
    reads: dict[_Group, dict[_Group, None]] = {}
    for expr in program.bindings:
        pieces.setdefault(of[expr], []).append(expr)
        before = reads.setdefault(of[expr], {})
        for arg in expr.args:
            if arg in of and of[arg] is not of[expr]:
                before[of[arg]] = None
    order: list[Expr] = []
    state: dict[_Group, bool] = {}
    for start in pieces:
        walk = [(start, iter(reads[start]))] if start not in state else []
        state.setdefault(start, False)
        while walk:
            group, rest = walk[-1]
            for other in rest:
                if other not in state:
                    state[other] = False
                    walk.append((other, iter(reads[other])))
                    break
                if not state[other]:
                    raise OptimizationError(
                        "fused operators must not wait for themselves",
                        place="TVM Relax",
                        actual=f"{pieces[group][0]!r} and {pieces[other][0]!r} read each other's results",
                    )
            else:
                walk.pop()
                state[group] = True
                order += pieces[group]
    return order


# ---- MergeCompositeFunctions ---------------------------------------------------------------------


def _merge(program: Program, target_of: dict[Expr, str]) -> tuple[tuple[str, tuple[Expr, ...]], ...]:
    group_of: dict[Expr, _Group] = {}
    target: dict[_Group, str] = {}
    depends: dict[_Group, dict[_Group, None]] = {}

    def group(expr: Expr) -> _Group:
        if expr.kind == "item" and expr.args[0] is not None:
            return group(expr.args[0])
        # An input or a constant has a group of its own, which depends on nothing.
        return group_of.setdefault(expr, _Group()).root()

    for expr in program.bindings:
        if expr.kind != "call":
            continue
        own = target_of[expr]
        operands = [group(a) for a in expr.args if a is not None]
        joined: _Group | None = None
        if own != HOST:
            earlier = {d for g in operands for d in depends.get(g, ())}
            for other in operands:
                if target.get(other.root()) != own or other in earlier:
                    continue
                if joined is None:
                    joined = other.root()
                elif other.root() is not joined:
                    _absorb(other.root(), joined, depends)
        if joined is None:
            joined = _Group()
            if own != HOST:
                target[joined] = own
        group_of[expr] = joined
        mine = depends.setdefault(joined, {})
        for other in (g.root() for g in operands):
            if other is not joined:
                mine[other] = None
                mine.update(depends.get(other, {}))

    of = {e: group(e) for e in program.bindings}
    program.bindings = _sorted_by_group(program, of)
    regions: dict[_Group, list[Expr]] = {}
    for expr in program.bindings:
        if of[expr] in target:
            regions.setdefault(of[expr], []).append(expr)
    return tuple((target[g], tuple(members)) for g, members in regions.items())


def _absorb(other: _Group, into: _Group, depends: dict[_Group, dict[_Group, None]]) -> None:
    other.parent = into
    depends.setdefault(into, {}).update(depends.pop(other, {}))
    for before in depends.values():
        if other in before:
            del before[other]
            before[into] = None
