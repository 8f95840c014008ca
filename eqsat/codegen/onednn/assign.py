"""Which kernels oneDNN executes: those of a region that have primitives, in as few pieces as their order allows.

A kernel without primitives stays an ordinary node between two pieces. A piece is a group of nodes with dense operands
and results: in the program it stands where the region stood, with the nodes as its portable form.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from eqsat.codegen.onednn import convolution, movement, normalization, pooling, products
from eqsat.codegen.onednn.description import Coverage, Memory, Operation, Piece, Refused
from eqsat.codegen.onednn.mapper import MAPPINGS, Context, Mapper, distinct
from eqsat.codegen.onednn.marks import Kernel
from eqsat.codegen.onednn.steps import map_steps, materialize
from eqsat.codegen.program import IDENTITY, Group, Node, Program, Tensor

TARGET = "dnnl"
FAMILIES = (convolution, movement, normalization, pooling, products)
"""Modules that register mappings when they are imported."""


def assign(program: Program, kernels: Sequence[Kernel], refused: Collection[str] = ()) -> Coverage:
    """Makes groups of the kernels of marked regions; the program's nodes are reordered and rewired.

    Args:
        program: Lowered, with nodes that say which kernel they belong to.
        kernels: Of all regions.
        refused: Names of kernels that are known not to work.
    """
    return _Assignment(program, kernels, refused).run()


class _Assignment:
    def __init__(self, program: Program, kernels: Sequence[Kernel], refused: Collection[str]) -> None:
        self.program = program
        self.kernels = {(k.region, k.number): k for k in kernels}
        self.never = refused
        uses: dict[Tensor, int] = {}
        for node in program.nodes:
            for tensor in node.reads():
                uses[tensor] = uses.get(tensor, 0) + 1
        for _, tensor in program.outputs:
            uses[tensor] = uses.get(tensor, 0) + 2
        self.context = Context({}, uses, program.dequantized)
        self.refused: list[tuple[str, str, str]] = []
        self.total = 0

    def run(self) -> Coverage:
        regions: dict[int, list[Node]] = {}
        for node in self.program.nodes:
            if node.kernel is not None:
                regions.setdefault(node.kernel[0], []).append(node)
        done: set[int] = set()
        nodes: list[Node] = []
        last = {region: members[-1] for region, members in regions.items()}
        for node in self.program.nodes:
            if node.kernel is None:
                nodes.append(node)
            elif node is last[node.kernel[0]] and node.kernel[0] not in done:
                # All of the region's operands are there now.
                done.add(node.kernel[0])
                nodes += self._region(node.kernel[0], regions[node.kernel[0]])
        self.program.nodes = nodes
        return Coverage(self.total, tuple(self.refused))

    # ---- a region --------------------------------------------------------------------------------------

    def _region(self, number: int, nodes: list[Node]) -> list[Node]:
        members: dict[int, list[Node]] = {}
        for node in nodes:
            assert node.kernel is not None
            members.setdefault(node.kernel[1], []).append(node)
        self.total += len(members)
        mapped = {k: self._kernel(number, k, members[k]) for k in members}
        result: list[Node] = []
        runs = 0
        for run, called in _runs(members, {k for k, ops in mapped.items() if ops is not None}):
            inside = [node for k in run for node in members[k]]
            if called:
                operations = [op for k in run for op in mapped[k] or ()]
                name = self.kernels[number, run[0]].name
                inside += self._group(Piece(name, operations), inside)
                runs += 1
            result += inside
        return result

    def _kernel(self, region: int, number: int, nodes: list[Node]) -> list[Operation] | None:
        """The operations of a kernel; None, and a note, if there are none."""
        kernel = self.kernels[region, number]
        mapper = Mapper(self.context)
        mapper.materialize = materialize
        known = dict(self.context.memories)
        try:
            if kernel.name in self.never:
                raise Refused("not implemented by this version of oneDNN on this machine")
            if not movement.shuffle(mapper, nodes):
                for node in nodes:
                    _map(mapper, node)
                for tensor in (t for node in nodes for t in node.writes()):
                    inside = sum(list(n.reads()).count(tensor) for n in nodes)
                    outside = inside < self.context.uses.get(tensor, 0)
                    if outside and (tensor in mapper.quantized or tensor in mapper.joined):
                        materialize(mapper, tensor)
            for operation in mapper.operations:
                operation.name = kernel.name
                operation.posts = distinct(operation.posts, len(operation.dst.shape))
        except Refused as reason:
            self.context.memories.clear()
            self.context.memories.update(known)
            self.refused.append((kernel.name, kernel.operator, str(reason)))
            return None
        return mapper.operations

    # ---- a group ---------------------------------------------------------------------------------------

    def _group(self, piece: Piece, nodes: list[Node]) -> list[Node]:
        """Make a group of nodes; returns the copies that are its results."""
        program, number = self.program, len(self.program.groups)
        group = Group(piece.name, TARGET, "", piece=piece)
        program.groups.append(group)
        written = {t for node in nodes for t in node.writes()}
        inner = set(nodes)
        for node in nodes:
            node.group = number
        for node in nodes:
            for tensor in node.reads():
                if tensor not in written and tensor not in group.operands.values():
                    group.operands[len(group.operands)] = tensor
                    piece.inputs.append(self.context.memories.get(tensor))
        copies: list[Node] = []
        returned = {t for _, t in program.outputs}
        for tensor in [t for node in nodes for t in node.writes()]:
            readers = [n for n in program.nodes if n not in inner and tensor in n.reads()]
            if not readers and tensor not in returned:
                continue
            result = Tensor(tensor.name, tensor.dtype, tensor.shape)
            group.results[len(group.results)] = result
            piece.outputs.append(self.context.memories[tensor])
            copies.append(
                Node(
                    tensor.name, IDENTITY, {}, [tensor], [result], result.dtype, group=number, boundary=True
                )
            )  # fmt: skip
            for reader in readers:
                reader.replace_reads(tensor, result)
            program.outputs = [(n, result if t is tensor else t) for n, t in program.outputs]
            # Pieces behind read the result, this one writes it: the same memory under two tensors.
            self.context.memories[result] = self.context.memories[tensor]
        return copies


def _map(mapper: Mapper, node: Node) -> None:
    if node.is_chain:
        map_steps(mapper, node)
        return
    function = MAPPINGS.get(node.operator)
    if function is None or node.steps:
        raise Refused(f"oneDNN has no {node.operator.name}")
    function(mapper, node)


def _runs(members: dict[int, list[Node]], called: Collection[int]) -> list[tuple[list[int], bool]]:
    """Kernels in an order that alternates as seldom as possible between those that are called and the others."""
    producer = {t: k for k, nodes in members.items() for node in nodes for t in node.writes()}
    waits = {
        k: {producer[t] for node in nodes for t in node.reads() if producer.get(t, k) != k}
        for k, nodes in members.items()
    }
    runs: list[tuple[list[int], bool]] = []
    pending = list(members)
    done: set[int] = set()
    kind = any(k in called and not waits[k] for k in pending)
    while pending:
        run: list[int] = []
        for k in pending:
            if (k in called) == kind and waits[k] <= done:
                run.append(k)
                done.add(k)
        pending = [k for k in pending if k not in done]
        if run:
            runs.append((run, kind))
        kind = not kind
    return runs


def memories(operations: Sequence[Operation]) -> list[Memory]:
    """All memories of operations, each once, in order."""
    found: dict[Memory, None] = {}
    for operation in operations:
        found.update(dict.fromkeys((*operation.reads(), operation.dst)))
    return list(found)
