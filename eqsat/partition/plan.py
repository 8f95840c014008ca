"""The chosen program: the result of extraction, before it becomes regions, functions and an ONNX model."""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx_ir as ir

from eqsat.schema.body import Body
from eqsat.schema.declared_operators import find_declared
from eqsat.schema.types import Attrs, OpKey, TensorType


@dataclass(frozen=True, slots=True)
class PlanNode:
    """One kernel of the program: a plain operator, or a composite with its definition.

    Attributes:
        op: The operator; a composite is ``OpKey(target name, composite name)``.
        attrs: The operator's attributes. A composite's body holds them; where the plan was read from a model, these
            are the attributes of the call.
        inputs: Value ids, None for an absent optional input.
        outputs: Value ids; None for an output without readers.
        target: Index into ``Plan.targets``.
        body: Definition of a composite, None for a plain operator.
        cost: Seconds.
        rule: Name of the rule that made it, empty for an operator of the input model.
        call: C call of a composite, see :mod:`eqsat.partition.vendor_calls`; None without one.
        family: Family of kernels of generated code that computes it; empty if the target names none.
        name: Name of the node in the model that the plan was read from. In a new plan, the name of a node of the input
            with the same result, so two nodes may have the same name; empty if there is none.
        source: The identical node of the input, with the same operator and result; None if there is none.
        inner: For each operator of a composite's definition, the name of the identical node of the input; empty if
            there is none.
    """

    op: OpKey
    attrs: Attrs
    inputs: tuple[int | None, ...]
    outputs: tuple[int | None, ...]
    target: int
    body: Body | None = None
    cost: float = 0.0
    rule: str = ""
    call: str | None = None
    family: str = ""
    name: str = ""
    source: ir.Node | None = None
    inner: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """A program over numbered values.

    Attributes:
        targets: Names, the host first.
        dispatch: Seconds to start a region, by target.
        region_calls: C call of a whole region, by target, with a hole for its name; empty without one.
        nodes: In a topological order.
        inputs: Value id and the original graph input, in the model's order.
        outputs: Value id and the original graph output, in the model's order; one value may serve several.
        constants: Value id -> tensor, for values that are constant (initialisers and folded expressions).
        types: Value id -> type where known.
        names: Value id -> the name of the original tensor, for values that still exist.
        subgraph_names: For nodes with subgraphs: name of a captured outer value -> value id that now holds it.
    """

    targets: tuple[str, ...]
    dispatch: tuple[float, ...]
    nodes: tuple[PlanNode, ...]
    inputs: tuple[tuple[int, ir.Value], ...]
    outputs: tuple[tuple[int, ir.Value], ...]
    constants: dict[int, ir.TensorProtocol]
    types: dict[int, TensorType]
    names: dict[int, str]
    subgraph_names: dict[str, int] = field(default_factory=dict)
    region_calls: tuple[str, ...] = ()

    def is_composite(self, node: PlanNode) -> bool:
        """Whether a node is the kernel of a composite; an operator that is declared has a body as well."""
        known = node.body is not None and node.op.domain == self.targets[node.target]
        return known and find_declared(node.op) is None


@dataclass(frozen=True, slots=True)
class PlanRegion:
    """A maximal convex piece of the program on one target.

    Attributes:
        name: Deterministic, such as ``dnnl_0``; host pieces too.
        target: Index into ``Plan.targets``.
        nodes: Indices into ``Plan.nodes``, in execution order.
        inputs: Non-constant value ids read from outside, in order of first use.
        outputs: Value ids read outside (graph outputs included), in order of definition.
    """

    name: str
    target: int
    nodes: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
