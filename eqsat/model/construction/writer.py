"""Writes tensors under construction as protobuf graphs; all names follow from the order in which they were made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import onnx
import onnx_ir as ir

from eqsat.errors import ModelError
from eqsat.model.expression import Branch, PendingNode, Tensor
from eqsat.model.read.sources import HEAVY, UncheckedModel
from eqsat.model.unused_names import unused
from eqsat.schema import opset
from eqsat.schema.attributes import default_attrs, tensor_of, to_protos
from eqsat.schema.types import TensorType

Named = tuple[str | None, Tensor]


def write_model(name: str, outputs: Sequence[Named], inputs: Sequence[Tensor] | None) -> UncheckedModel:
    """The model that computes the outputs.

    Args:
        name: Name of the graph.
        outputs: Tensors, with their names.
        inputs: In the order wanted; None means those that are read, in the order they were made.

    Raises:
        ModelError: Names that occur twice, or an input that is read and not listed.
    """
    leaves, steps = reachable([t for _, t in outputs])
    chosen = _inputs([t for t in leaves if t.is_input], inputs)
    writer = _Writer({str(t.name) for t in chosen}, steps, 0, None)
    proto = onnx.ModelProto(ir_version=opset.IR_VERSION, producer_name="eqsat")
    for domain in ["", *sorted(_domains(steps) - {""})]:
        proto.opset_import.add(domain=domain, version=opset.opset_version(domain))
    weights: dict[str, ir.TensorProtocol] = {}
    proto.graph.CopyFrom(writer.graph(name, chosen, leaves, outputs, weights))
    return UncheckedModel(proto, weights)


def write_branches(
    branches: Sequence[tuple[str, Branch]], name_of: Callable[[Tensor], str], taken: set[str]
) -> list[onnx.AttributeProto]:
    """The subgraphs of a node as attributes.

    Args:
        branches: Attribute name and subgraph.
        name_of: Names of outer tensors.
        taken: Names that are in use, added to.
    """
    result = []
    for name, branch in branches:
        leaves, steps = reachable(branch.outputs, branch.start)
        writer = _Writer(taken, steps, branch.start, name_of)
        for tensor in branch.inputs:
            writer.names[tensor.order, 0] = unused(str(tensor.name), taken)
        own = [t for t in leaves if t.order >= branch.start and t.is_constant]
        graph = writer.graph(name, branch.inputs, own, [(None, t) for t in branch.outputs], None)
        result.append(onnx.AttributeProto(name=name, type=onnx.AttributeProto.GRAPH, g=graph))
    return result


def reachable(outputs: Iterable[Tensor], start: int = 0) -> tuple[list[Tensor], list[PendingNode]]:
    """Leaves and steps that the outputs depend on, in the order they were made.

    There is no model yet whose nodes onnx_ir could walk through: it is written from what is found here.

    Args:
        outputs: The tensors to begin with.
        start: Tensors made before this are leaves: a subgraph captures them.
    """
    leaves: dict[tuple[int, int], Tensor] = {}
    steps: dict[int, PendingNode] = {}
    pending = list(outputs)
    while pending:
        tensor = pending.pop()
        step = tensor.step
        if step is None or tensor.order < start:
            leaves[tensor.order, tensor.index] = tensor
        elif step.order not in steps:
            steps[step.order] = step
            pending += [t for t in step.inputs if t is not None]
            pending += [t for _, branch in step.branches for t in captured(branch)]
    return [leaves[k] for k in sorted(leaves)], [steps[k] for k in sorted(steps)]


def captured(branch: Branch) -> list[Tensor]:
    """Outer tensors that a subgraph reads, in the order they were made."""
    return [t for t in reachable(branch.outputs, branch.start)[0] if t.order < branch.start]


def value_info(name: str, known: TensorType) -> onnx.ValueInfoProto:
    """Name and type as protobuf."""
    return onnx.helper.make_tensor_value_info(name, int(known.dtype), known.shape)


# ---- details -------------------------------------------------------------------------------------


def _inputs(read: list[Tensor], inputs: Sequence[Tensor] | None) -> list[Tensor]:
    chosen = read if inputs is None else list(inputs)
    for tensor in chosen:
        if not isinstance(tensor, Tensor) or not tensor.is_input:
            raise ModelError(
                "inputs made by eqsat.input are required",
                place="graph",
                actual=repr(tensor),
                hint='for example x = eqsat.input("x", (1, 3))',
            )
    names = [t.name for t in chosen]
    for i, name in enumerate(names):
        if name in names[:i]:
            raise ModelError(
                "every input needs a unique name",
                place=f"input {name!r}",
                actual="two of them",
                hint="call eqsat.input once for each name, and use that tensor wherever the input is read",
            )
    missing = [t for t in read if not any(t is c for c in chosen)]
    if missing:
        raise ModelError(
            "all inputs that are read must be listed",
            place="graph",
            actual=f"no {missing[0].name!r}",
            hint="add it to inputs=[...], or leave inputs= out",
        )
    return chosen


def _domains(steps: Iterable[PendingNode]) -> set[str]:
    found: set[str] = set()
    for step in steps:
        found.add(step.op.domain)
        for _, branch in step.branches:
            found |= _domains(reachable(branch.outputs, branch.start)[1])
    return found


class _Writer:
    """Writes one graph.

    Args:
        taken: Names in use, shared by a graph and its subgraphs.
        steps: The nodes.
        start: Tensors made before this belong to the outer graph.
        outer: Their names.
    """

    def __init__(
        self, taken: set[str], steps: Sequence[PendingNode], start: int, outer: Callable[[Tensor], str] | None
    ) -> None:
        self.taken = taken
        self.steps = steps
        self.start = start
        self.outer = outer
        self.names: dict[tuple[int, int], str] = {}

    def graph(
        self,
        name: str,
        inputs: Sequence[Tensor],
        leaves: Sequence[Tensor],
        outputs: Sequence[Named],
        weights: dict[str, ir.TensorProtocol] | None,
    ) -> onnx.GraphProto:
        proto = onnx.GraphProto(name=name)
        for tensor in inputs:
            assert tensor.type is not None
            proto.input.append(value_info(self._name(tensor), tensor.type))
        final = self._output_names(outputs)
        for tensor in leaves:
            if tensor.is_constant:
                self._constant(proto, tensor, weights)
        for step in self.steps:
            self._node(proto, step)
        for wanted, tensor in final:
            mine = self._name(tensor)
            if mine != wanted:
                proto.node.add(op_type="Identity", input=[mine], output=[wanted])
            info = proto.output.add(name=wanted)
            if tensor.type is not None:
                info.CopyFrom(value_info(wanted, tensor.type))
        return proto

    def _constant(self, proto: onnx.GraphProto, tensor: Tensor, weights: dict[str, ir.TensorProtocol] | None) -> None:
        assert tensor.type is not None and tensor.value is not None
        name = unused(tensor.name or "constant", self.taken)
        self.names[tensor.order, 0] = name
        held = tensor_of(tensor.value, tensor.type.dtype, name)
        if weights is not None and tensor.value.size > HEAVY:
            weights[name] = held
            proto.input.append(value_info(name, tensor.type))
        else:
            proto.initializer.append(ir.to_proto(held))

    def _node(self, proto: onnx.GraphProto, step: PendingNode) -> None:
        graphs = {name for name, _ in step.branches}
        defaults = dict(default_attrs(step.op))
        given = tuple((n, v) for n, v in step.attrs if n not in graphs and defaults.get(n) != v)
        inputs = ["" if t is None else self._name(t) for t in step.inputs]
        attributes = to_protos(given, step.op) + write_branches(step.branches, self._name, self.taken)
        proto.node.add(
            op_type=step.op.name,
            domain=step.op.domain,
            name=step.name or "",
            input=inputs,
            output=[self._name_of(step, i) for i in range(step.outputs)],
            attribute=attributes,
        )

    def _output_names(self, outputs: Sequence[Named]) -> list[tuple[str, Tensor]]:
        """Names of the outputs; a tensor that has no name yet gets its name from the start."""
        wanted = [name for name, _ in outputs if name is not None]
        for i, name in enumerate(wanted):
            if name in wanted[:i] or name in self.taken:
                other = "another output" if name in wanted[:i] else "an input"
                raise ModelError("every output needs a unique name", place=f"output {name!r}", actual=f"{other} has it")
        self.taken.update(wanted)
        for name, tensor in outputs:
            if name is not None and tensor.step is not None and tensor.order >= self.start:
                self.names.setdefault((tensor.order, tensor.index), name)
        for step in self.steps:
            if step.name is not None and step.outputs == 1 and (step.order, 0) not in self.names:
                self.names[step.order, 0] = unused(step.name, self.taken)
        final: list[tuple[str, Tensor]] = []
        for i, (name, tensor) in enumerate(outputs):
            place = (tensor.order, tensor.index)
            own = self.names.get(place) if tensor.step is not None and tensor.order >= self.start else None
            plain = "output" if len(outputs) == 1 else f"output_{i}"
            if name is None and own is not None and own not in [n for n, _ in final]:
                name = own
            elif name is None:
                name = unused(plain, self.taken)
            if tensor.step is not None and tensor.order >= self.start and own is None:
                self.names[place] = name
            final.append((name, tensor))
        return final

    def _name(self, tensor: Tensor) -> str:
        if tensor.order < self.start and self.outer is not None:
            return self.outer(tensor)
        if tensor.step is not None:
            return self._name_of(tensor.step, tensor.index)
        return self.names.get((tensor.order, 0)) or str(tensor.name)

    def _name_of(self, step: PendingNode, index: int) -> str:
        place = (step.order, index)
        if place not in self.names:
            base = step.name or step.op.name.lower()
            self.names[place] = unused(f"{base}_{index}" if step.outputs > 1 else base, self.taken)
        return self.names[place]
