"""A lowered node of control flow: one or two bodies, and the roles of their operands and results.

``Scan`` is a loop whose number of rounds is known. The node's operands are tensors like all others, dense and
row-major; the bodies' arguments are pointers to them, or into them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from eqsat.codegen.placed_program import Layout
from eqsat.codegen.program import Program, ProgramNode
from eqsat.schema.size_questions import is_free, typical

CONTROL = "control"
"""The attribute of a node that has its :class:`Control`."""
UNKNOWN_ROUNDS = 10.0
"""The guess for how many rounds a loop takes if data decides that."""
BRANCH = 0.5
"""The guess for how often each branch of an If is taken."""


@dataclass(frozen=True, slots=True)
class OperandSource:
    """Where an operand of a body comes from.

    Attributes:
        kind: An operand of the node as it is, the number of the round, a state, or the round's slice of an operand.
        index: Number of the node's operand, or of the state.
        backwards: Whether rounds take the slices from last to first.
    """

    kind: Literal["operand", "round", "state", "slice"]
    index: int = 0
    backwards: bool = False


@dataclass(frozen=True, slots=True)
class Sink:
    """The role of a result of a body.

    Attributes:
        kind: A result of the node, whether there is another round, the next value of a state, or a row of a result.
        index: Number of the node's result, or of the state.
        backwards: Whether rounds write the rows from last to first.
    """

    kind: Literal["result", "condition", "state", "row"]
    index: int = 0
    backwards: bool = False


@dataclass(frozen=True, slots=True)
class LoopState:
    """A value that each round makes anew from the one before.

    Attributes:
        operand: Number of the node's operand that is its first value.
        result: Number of the node's result that is its last value.
        shape: In the body, if rounds change its sizes.
    """

    operand: int
    result: int
    shape: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class MeasuredSize:
    """A size that the body of a loop reports in each round.

    Attributes:
        kind: Size of a state, which the next round receives, or of a row, which all rows share.
        index: Number of the state, or of the node's result.
        axis: Which size.
        variable: C of the variable that holds it.
        between: The least and the greatest size that memory is reserved for.
        first: C of the size before the first round.
    """

    kind: Literal["state", "row"]
    index: int
    axis: int
    variable: str
    between: tuple[int, int]
    first: str = "0"


@dataclass(frozen=True, eq=False)
class PlannedBody:
    """A body, planned like a program of its own.

    Attributes:
        program: Its inputs and outputs are arguments of a function.
        layout: The places of its tensors.
        sources: For each input of the program.
        sinks: For each output of the program.
        reported: The sizes of results that the node finds, as the body knows them.
    """

    program: Program
    layout: Layout
    sources: tuple[OperandSource, ...]
    sinks: tuple[Sink, ...]
    reported: tuple[int, ...] = ()

    @property
    def finds(self) -> bool:
        """Whether it finds sizes that data decides."""
        return any(node.reads_sizes or finds(node) for node in self.program.nodes)

    @property
    def ends(self) -> bool:
        """Whether it may end with an error status."""
        return may_end(self.program)


@dataclass(frozen=True, eq=False)
class Branches:
    """An ``If``.

    Attributes:
        bodies: The bodies for a true and for a false condition; only one if the condition is known.
        condition: Number of the operand.
        sizes: C of the parameters for sizes that the bodies receive, and of the arguments.
    """

    bodies: tuple[PlannedBody, ...]
    condition: int = 0
    sizes: tuple[tuple[str, str], ...] = ()

    @property
    def finds(self) -> bool:
        """Whether a body finds sizes."""
        return any(body.finds for body in self.bodies)

    @property
    def ends(self) -> bool:
        """Whether a body may end with a status."""
        return any(body.ends for body in self.bodies)

    @property
    def times(self) -> float:
        """How often a body is executed, by guess."""
        return BRANCH if len(self.bodies) > 1 else 1.0


@dataclass(frozen=True, eq=False)
class ControlLoop:
    """A ``Loop`` or a ``Scan``.

    Attributes:
        bodies: The one body.
        states: The values that one round hands to the next.
        rounds: The number of rounds, in sizes of the body; None if it depends on data.
        limit: Number of the operand that limits the rounds, None without one.
        condition: Number of the operand that decides whether the first round runs, None without one.
        sizes: C of the parameters for sizes that the body receives, and of the arguments.
        counted: Number of the result that holds the number of rounds, if sizes depend on it.
        measured: The sizes that the body reports in each round, in this order.
        reported: Number of the result that holds the sizes after the last round, if there are such.
        last_sizes: The variables of these sizes.
    """

    bodies: tuple[PlannedBody]
    states: tuple[LoopState, ...]
    rounds: int | None
    limit: int | None = None
    condition: int | None = None
    sizes: tuple[tuple[str, str], ...] = ()
    counted: int | None = None
    measured: tuple[MeasuredSize, ...] = ()
    reported: int | None = None
    last_sizes: tuple[str, ...] = ()

    @property
    def fixed(self) -> int | None:
        """The number of rounds if it is a number."""
        return None if is_free(self.rounds) else self.rounds

    @property
    def finds(self) -> bool:
        """Whether the body finds sizes."""
        return self.bodies[0].finds or bool(self.measured)

    @property
    def ends(self) -> bool:
        """Whether a round may end with a status."""
        return self.bodies[0].ends or bool(self.measured)

    @property
    def times(self) -> float:
        """How often the body is executed, by guess where data decides."""
        return UNKNOWN_ROUNDS if self.rounds is None else float(typical(self.rounds))


Control = Branches | ControlLoop


def may_end(program: Program) -> bool:
    """Whether a program may end with an error status: it finds a size, or it has no portable form."""
    if any(group.elsewhere for group in program.groups):
        return True
    return any(
        node.reads_sizes or ((control := control_of(node)) is not None and control.ends) for node in program.nodes
    )


def control_of(node: ProgramNode) -> Control | None:
    """The control flow of a node; None for an ordinary kernel."""
    found = node.attributes.get(CONTROL)
    return found if isinstance(found, Branches | ControlLoop) else None


def finds(node: ProgramNode) -> bool:
    """Whether a node is control flow in which sizes are found."""
    control = control_of(node)
    return control is not None and control.finds
