"""The input's graph and the result's as plain data for a drawing: operators, edges, regions, and what covers what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from eqsat.explain.origin import DerivationStep, FoldedConstant
from eqsat.targets.work import Work

NodeKind = Literal["input", "output", "operator", "composite"]


@dataclass(frozen=True, slots=True)
class GraphNode:
    """An operator or a composite, or an input or output of the model.

    Attributes:
        name: Its first result; that of the tensor for an input or an output.
        op: The operator or composite; empty for inputs and outputs.
        target: Where it runs.
        reads: Operands as ``name: type``; of a constant only the type.
        makes: Results as ``name: type``.
        cost: Seconds by the cost model.
        work: None where it is not known.
        operators: The standard operators that a composite computes.
        steps: The rules that led to it, in an order in which they can be applied, each from operators of the input or
            from what a step before it made. None for an operator of the input.
        constants: Those among its operands that the input does not contain.
    """

    kind: NodeKind
    name: str
    op: str
    target: str
    reads: tuple[str, ...] = ()
    makes: tuple[str, ...] = ()
    cost: float = 0.0
    work: Work | None = None
    operators: tuple[str, ...] = ()
    steps: tuple[DerivationStep, ...] = ()
    constants: tuple[FoldedConstant, ...] = ()

    @property
    def rules(self) -> tuple[str, ...]:
        """The rules that led to it, each once."""
        return tuple(dict.fromkeys(step.rule for step in self.steps))


@dataclass(frozen=True, slots=True)
class GraphRegion:
    """A region and its kernels, as indices of nodes."""

    name: str
    target: str
    nodes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Graph:
    """A graph whose nodes are in a topological order.

    Attributes:
        edges: From and to, each pair once.
        regions: In execution order; inputs and outputs of the model are in none.
    """

    nodes: tuple[GraphNode, ...]
    edges: tuple[tuple[int, int], ...]
    regions: tuple[GraphRegion, ...] = ()


@dataclass(frozen=True, slots=True)
class RuleText:
    """A rule or composite as its file has it; the text is empty where the file cannot be read."""

    name: str
    place: str
    numerics: str
    text: str


@dataclass(frozen=True, slots=True)
class GraphComparison:
    """A graph before and after.

    Attributes:
        covers: Per node of ``after`` the nodes of ``before`` that it was made from, and whose results it computes.
        rules: Those that nodes of ``after`` name.
        body: Which body of control flow it is; empty for the main graph.
    """

    before: Graph
    after: Graph
    covers: tuple[tuple[int, ...], ...]
    rules: tuple[RuleText, ...] = ()
    body: str = ""
