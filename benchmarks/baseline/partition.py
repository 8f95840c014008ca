"""What a partitioner returns: a program of composites and operators, and the regions it hands to targets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from benchmarks.baseline.expr import Expr, Program
from benchmarks.baseline.matcher import Evaluator, Found
from eqsat.rules.ast import Composite, Target

HOST = "default"
"""TVM's name for what no accelerator takes."""


@dataclass(frozen=True)
class Tables:
    """What the targets take, asked for by the passes.

    Attributes:
        targets: In order of priority.
        evaluate: Value of an expression of a target file under the bindings of a match.
        names: What the names of a pattern are bound to at a match.
        accepts: Whether the conditions of a composite hold for these names (TVM's ``check`` of a pattern).
        supports: Whether a target executes a call by itself (TVM's ``target.NAME`` attribute of an operator).
    """

    targets: tuple[Target, ...]
    evaluate: Evaluator
    names: Callable[[Composite, Found], Mapping[str, object]]
    accepts: Callable[[Composite, Mapping[str, object]], bool]
    supports: Callable[[Target, Expr], bool]

    @property
    def composites(self) -> list[tuple[Target, Composite]]:
        """Every composite, in the order of targets and files: the order in which TVM tries them.

        Its patterns have one root, so that it cannot have composites with several results.
        """
        return [(t, c) for t in self.targets for c in t.composites if len(c.patterns) == 1]


@dataclass(frozen=True)
class Partition:
    """A partitioned program.

    Attributes:
        program: Bindings in an order in which they can run.
        target_of: Target by binding, :data:`HOST` included.
        regions: The pieces that accelerators get as one function each, with their bindings in order.
    """

    program: Program
    target_of: dict[Expr, str]
    regions: tuple[tuple[str, tuple[Expr, ...]], ...]

    @property
    def composites(self) -> int:
        """Number of composite calls."""
        return sum(e.composite is not None for e in self.program.bindings)

    @property
    def host_operators(self) -> int:
        """Number of operators left to the host. Constants, tuples and projections are not operators."""
        return sum(self.host_counts().values())

    def host_counts(self) -> Counter[str]:
        """How many operators of each name are left to the host."""
        host = [e for e in self.program.bindings if e.kind == "call" and self.target_of[e] == HOST]
        return Counter(str(e.op) for e in host)
