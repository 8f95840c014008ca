"""Asks z3 about a set of formulas, independently of earlier questions.

The solver's search depends on the numbers of formulas in their context, and so on earlier formulas in it. So each
question gets a context of its own, and a rule's verdict does not depend on the rules proven before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

MEMORY = 512
"""Megabytes that the solver may take."""


def contradict(formulas: Iterable[Any], work: int, logic: str = "") -> bool | None:
    """Whether formulas of z3 cannot all hold; None if the solver gives up.

    Args:
        formulas: Truth values of one context.
        work: Limit of the solver, in its own unit.
        logic: SMT-LIB's name for the logic of the formulas.
    """
    import z3

    context = z3.Context()
    solver = z3.SolverFor(logic, ctx=context) if logic else z3.Solver(ctx=context)
    solver.set("rlimit", work)
    solver.set("max_memory", MEMORY)
    solver.add(*(formula.translate(context) for formula in formulas))
    found = solver.check()
    return True if found == z3.unsat else False if found == z3.sat else None
