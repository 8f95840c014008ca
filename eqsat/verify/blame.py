"""The message for a wrong result: the tensor, the rules, the inputs, and what to do."""

from __future__ import annotations

from collections.abc import Mapping

from eqsat.errors import VerificationError
from eqsat.execute.difference import Difference
from eqsat.verify.judge_values import ValueDifference
from eqsat.verify.leaf_samples import Style
from eqsat.verify.pieces import ComparedPiece
from eqsat.verify.programs import Programs

MOST_RULES = 6


def error_of(
    programs: Programs,
    piece: ComparedPiece | None,
    found: ValueDifference | None,
    applied: Mapping[str, str],
    style: Style,
    *,
    value: int | None = None,
    output: Difference | None = None,
    guilty: tuple[str, ...] = (),
) -> VerificationError:
    """The error for a piece, a constant or an output that differs.

    Args:
        applied: Rules that applied, used if no kernel names a rule.
        guilty: Rules found guilty when tried alone.
    """
    if output is not None:
        name, actual = output.name, str(output)
    else:
        name = programs.name(piece.value if piece is not None else value or 0)
        actual = str(found)
    made = guilty or (piece.rules(programs) if piece is not None else ())
    made = tuple(r for r in made if r != "commutativity")
    on = f"on {style.name}" if piece is not None else "for ordinary numbers" if output is not None else "as a constant"
    if made:
        blame = f"by {_listed(made)}"
    elif applied:
        blame = f"by one of the rules that applied ({_listed(tuple(applied))}), without a new operator"
    else:
        blame = "although no rule applied"
    return VerificationError(
        f"the result must compute what the input model computes {on}; it was rewritten {blame}",
        place=f"tensor {name!r}",
        actual=actual,
        hint="nothing was returned. Leave the rule out, or try numerics='exact' (--numerics exact); `eqsat rules "
        "check` executes a rule on random instances. If the rule is eqsat's own, please report it with the model. "
        "verify=False (--no-verify) keeps the result as it is",
    )


def _listed(rules: tuple[str, ...]) -> str:
    shown = ", ".join(f"`{r}`" for r in rules[:MOST_RULES])
    return shown + (f" and {len(rules) - MOST_RULES} more" if len(rules) > MOST_RULES else "")
