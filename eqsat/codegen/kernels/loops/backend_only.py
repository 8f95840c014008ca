"""Operators that a backend alone computes: in their place the program has nothing that is portable."""

from __future__ import annotations

from eqsat.codegen.kernel import GeneratedKernel, Task
from eqsat.codegen.kernels.loops.family import loops
from eqsat.codegen.program import ELSEWHERE


@loops("a backend", ELSEWHERE.name, domain=ELSEWHERE.domain, epilogue=False)
def elsewhere(task: Task) -> GeneratedKernel:
    """No statements: without the backend the program does not compile."""
    return GeneratedKernel("", specialised=False)
