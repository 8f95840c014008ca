"""The C of sizes that data decides: where they are read, and where the shapes of outputs are reported."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from eqsat.codegen.emitted import EntryParameter
from eqsat.codegen.program import READ_SIZES, ProgramNode
from eqsat.schema.size import bounds
from eqsat.schema.size_questions import symbols
from eqsat.schema.symbol import LARGEST, Symbol


def readings(node: ProgramNode, values: str, upper: str) -> list[str]:
    """Statements that read the sizes that a node found.

    Args:
        node: Any node.
        values: C of the pointer to what the node wrote.
        upper: Prefix of the program's constants.
    """
    lines: list[str] = []
    for k, size in enumerate(node.attributes["sizes"] if node.operator == READ_SIZES else ()):
        least, most = bounds(size)
        tests = [f"value < {least}"] if least > -LARGEST else []
        tests += [f"value > {most}"] if most < LARGEST else []
        lines += [
            "{",
            f"    const int64_t value = ({values})[{k}];",
            f"    if ({' || '.join(tests)}) return {upper}_SIZE_OUT_OF_RANGE;",
            *(f"    {symbol.c_name} = (ptrdiff_t)value;" for symbol in symbols(size)),
            "}",
        ]
    return lines


def declarations(found: Collection[Symbol]) -> list[str]:
    """The variables of sizes that a function finds."""
    return [line for s in found for line in (f"ptrdiff_t {s.c_name} = 0;", f"(void){s.c_name};")]


def reports(outputs: Sequence[EntryParameter]) -> list[str]:
    """Statements that report the shapes of outputs whose sizes data decides."""
    return [f"{y.shape_name}[{axis}] = (size_t){n};" for y in outputs if y.found for axis, n in enumerate(y.shape)]
