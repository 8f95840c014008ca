"""The operator that represents a composite in files: ``as com.microsoft.FusedConv(x, w, b, **c, activation="Relu")``.

Its operands are those of the composite; ``as (y, _, s) = ...`` names which of its outputs are the
composite's results.
"""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.rules import ast
from eqsat.rules import declarations as s
from eqsat.rules.build_definition import Builder
from eqsat.rules.callee import known
from eqsat.rules.expand import Clause
from eqsat.rules.roots import targets_of
from eqsat.rules.scope import Context
from eqsat.rules.tree import walk
from eqsat.schema.types import OpKey


def read_written(clause: s.WrittenClause, builder: Builder, results: Sequence[str]) -> ast.Written:
    """The operator of a clause.

    Args:
        clause: The clause.
        builder: With the names of the pattern.
        results: Names of the composite's results.

    Raises:
        TargetError: It is not an operator of the composite's operands, or leaves out a result.
    """
    root, context = clause.root, builder.context
    found = builder.templates.build(root.value, builder.frame)
    if not isinstance(found, ast.Build) or not isinstance(found.op, OpKey) or found.output:
        raise context.error(
            root.value.place, "one operator is required after `as`", hint="such as `as com.microsoft.Gelu(x)`"
        )
    for arg in found.args:
        if arg is None or (isinstance(arg, ast.Name) and context.bindings[arg.name].kind == "tensor"):
            continue
        raise context.error(
            arg.place,
            "an operand of the composite is required as operand after `as`",
            actual=_shown(arg),
            hint='a rule of the target (`rules "FILE"`) can compute others beforehand',
        )
    return ast.Written(found, _outputs(root, found.op, builder, results), root.value.place)


def check_operands(written: ast.Written, clause: Clause, context: Context) -> None:
    """Checks the operands of a composite's operator for one clause of its pattern.

    Raises:
        TargetError: One that the operator needs is absent there, or a node whose attributes it takes over.
    """
    assert isinstance(written.operator.op, OpKey)
    found = known(written.operator.op)
    for i, arg in enumerate(written.operator.args):
        if isinstance(arg, ast.Name) and arg.name in clause.absent and not found.parameter(i).optional:
            raise context.error(
                arg.place,
                f"`{found.op}` needs its operand `{found.parameter(i).name}`",
                actual=f"nothing where `{arg.name}` is absent",
                hint="write a composite of its own for that case",
            )
    nodes = {part.bind for part in walk(clause.roots, ast.operands) if isinstance(part, ast.Match)}
    missing = next((n for n in written.operator.spread if clause.aliases.get(n, n) not in nodes), None)
    if missing is not None:
        raise context.error(
            written.place,
            f"the attributes of `{missing}` must be bound by every alternative",
            actual=f"an alternative without `{missing}`",
            hint="write a composite of its own for that alternative",
        )


def _shown(arg: ast.TemplateTerm) -> str:
    match arg:
        case ast.Build():
            return f"`{arg.op}`"
        case ast.Name() | ast.Rest():
            return f"`{arg.name}`"
        case _:
            return "a constant"


def _outputs(root: s.Root, op: OpKey, builder: Builder, results: Sequence[str]) -> tuple[int | None, ...]:
    context = builder.context
    if root.target is None:
        if len(results) > 1:
            raise context.error(
                root.value.place,
                "the composite's results are required before the operator",
                actual=f"none of {', '.join(results)}",
                hint=f"such as `as ({', '.join(results)}) = {op}(...)`",
            )
        return (0,)
    names = targets_of(root.target, context, skips=True)
    outputs = known(op)
    if len(names) > len(outputs.outputs) and not outputs.variadic_outputs:
        raise context.error(
            root.target.place, f"`{op}` has {len(outputs.outputs)} outputs", actual=f"{len(names)} names"
        )
    for name in names:
        if name.name != "_" and name.name not in results:
            raise context.error(
                name.place,
                "a result of the composite, or `_`, is required before `=`",
                actual=f"`{name.name}`",
                hint=f"its results: {', '.join(r for r in results if r) or 'one without a name'}",
            )
    written = [name.name for name in names if name.name != "_"]
    missing = [name for name in results if written.count(name) != 1]
    if missing:
        raise context.error(
            root.target.place,
            "each result of the composite is required once before `=`",
            actual=f"`{missing[0]}` {'twice' if missing[0] in written else 'not at all'}",
        )
    return tuple(None if name.name == "_" else results.index(name.name) for name in names)
