"""Groups the nodes of regions: runs of kernels that a backend executes, and regions that become plain C functions.

A kernel that a backend refuses stays an ordinary node between two runs. A run is a group of nodes with dense operands
and results: if the program is compiled for the backend, the backend executes the run instead of the nodes. A function
of plain C is a group as well; its operands and results have the layouts that the kernels on both sides prefer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest

import numpy as np

from eqsat.backends import region
from eqsat.backends.asking import refusals
from eqsat.backends.backend import Backend
from eqsat.backends.coverage import Tally
from eqsat.backends.region import Kernel, Operator, Region, RegionOperand
from eqsat.backends.runs import alternating, as_a_whole
from eqsat.codegen.family_choice import report
from eqsat.codegen.problems import Problems
from eqsat.codegen.program import IDENTITY, Group, Program, ProgramNode, ProgramTensor, WholeKernel, WholeRegion
from eqsat.codegen.shape_arithmetic import is_sizes
from eqsat.schema.size_questions import any_free

Unavailable = Mapping[str, Mapping[str, str]]
"""By target the kernels that its library is known to lack, each with the reason."""


def assign(program: Program, unavailable: Unavailable, tally: Tally, problems: Problems) -> None:
    """Makes groups of the nodes of regions that stay whole; the program's nodes are reordered and rewired.

    Args:
        program: The lowered program; its nodes name the kernel to which they belong.
        unavailable: Kernels that are known to be unavailable, by target.
        tally: Receives the kernels that backends take, and the reasons for the others.
        problems: Receives operators that a backend alone could compute, and does not.
    """
    _Assignment(program, unavailable, tally, problems).run()


_NOT_COMPUTED = "one of its operands or results is not computed in C"


class _Assignment:
    def __init__(self, program: Program, unavailable: Unavailable, tally: Tally, problems: Problems) -> None:
        self.program = program
        self.unavailable = unavailable
        self.tally = tally
        self.problems = problems
        self.consumers = program.consumers()
        self.written = {t for node in program.nodes for t in node.writes()}.union(program.inputs)
        self.returned = {tensor for _, tensor in program.outputs}
        self.refused: dict[object, str] = {}
        self.uses: dict[region.Tensor, int] = {}
        for node in program.nodes:
            for tensor in node.reads():
                self.uses[tensor] = self.uses.get(tensor, 0) + 1
        for _, tensor in program.outputs:
            self.uses[tensor] = self.uses.get(tensor, 0) + 2

    def run(self) -> None:
        members: dict[int, list[ProgramNode]] = {}
        for node in self.program.nodes:
            if node.kernel is not None:
                members.setdefault(node.kernel[0], []).append(node)
        last = {region: nodes[-1] for region, nodes in members.items()}
        nodes: list[ProgramNode] = []
        for node in self.program.nodes:
            if node.kernel is None:
                nodes.append(node)
            elif node is last[node.kernel[0]]:
                # All of the region's operands have been computed by now.
                nodes += self._region(self.program.regions[node.kernel[0]], members[node.kernel[0]])
        self.program.nodes = nodes
        for node in nodes:
            if node.is_elsewhere and (node.group is None or self.program.groups[node.group].backend is None):
                because = self.refused.get(node.kernel, "sizes in its region depend on data")
                report(node.attributes["node"], self.problems, because)

    # ---- a region --------------------------------------------------------------------------------------

    def _region(self, whole: WholeRegion, nodes: list[ProgramNode]) -> list[ProgramNode]:
        members: dict[int, list[ProgramNode]] = {}
        for node in nodes:
            assert node.kernel is not None
            members.setdefault(node.kernel[1], []).append(node)
        kernels = {number: self._kernel(whole.kernels[number], inside) for number, inside in members.items()}
        inputs, outputs = tuple(x for x in whole.inputs if x is not None), tuple(_tensors(whole.outputs))
        made_of = tuple(kernels.values())
        region = Region(whole.name, whole.target, made_of, self.uses, self.program.dequantized, inputs, outputs)
        backend = whole.backend
        if backend is None:
            return nodes + self._group(region, None, (), nodes)
        made = {t for node in nodes for t in node.writes()}
        is_computed = len(region.outputs) == len(whole.outputs) and made.issuperset(region.outputs)
        is_computed = is_computed and not any(isinstance(x, np.ndarray) and is_sizes(x) for x in region.inputs)
        reasons = self._reasons(backend, region, kernels, is_computed)
        taken = {number for number, reason in reasons.items() if not reason}
        self.refused.update({node.kernel: reasons[k] for k, inside in members.items() for node in inside})
        producer = {t: k for k, inside in members.items() for node in inside for t in node.writes()}
        waits = {
            k: {producer[t] for node in inside for t in node.reads() if producer.get(t, k) != k}
            for k, inside in members.items()
        }
        result: list[ProgramNode] = []
        for run, called in alternating(list(members), waits, taken, joins=backend.joins or backend.whole):
            inside = [node for k in run for node in members[k]]
            if called:
                inside += self._group(region, backend, tuple(kernels[k] for k in run), inside)
            result += inside
        return result

    def _reasons(
        self, backend: Backend, region: Region, kernels: Mapping[int, Kernel], is_computed: bool
    ) -> dict[int, str]:
        """Why the backend does not take each kernel, empty if it does.

        Args:
            backend, region, kernels: The region with its kernels, by number.
            is_computed: Whether the program has all operands and results of the region.
        """
        fixed = {k: kernel for k, kernel in kernels.items() if backend.free_sizes or not _is_free(kernel)}
        said = refusals(backend, replace(region, kernels=tuple(fixed.values())))
        known = self.unavailable.get(region.target, {})
        reasons: dict[int, str] = {}
        for number, kernel in kernels.items():
            reason = said[kernel] if number in fixed else not_fixed(backend)
            reasons[number] = known.get(kernel.name) or reason
            if not reasons[number] and not self.written.issuperset(_tensors((*kernel.operands, *kernel.results))):
                reasons[number] = _NOT_COMPUTED
        if backend.whole and not is_computed:
            reasons = {number: reason or _NOT_COMPUTED for number, reason in reasons.items()}
        reasons = as_a_whole(backend, reasons)
        for number, reason in reasons.items():
            kernel = kernels[number]
            self.tally.add(backend, (region.name, kernel.name), kernel.name, kernel.operator, reason)
        return reasons

    def _kernel(self, whole: WholeKernel, nodes: Sequence[ProgramNode]) -> Kernel:
        operators = tuple(operator for node in nodes for operator in self._operators(node))
        found = list(zip_longest(whole.results, whole.places))
        while found and found[-1] == (None, None):
            found.pop()
        results = tuple(t if isinstance(t, ProgramTensor) and t in self.uses else None for t, _ in found)
        unread = tuple(place if t is None else None for t, (_, place) in zip(results, found, strict=True))
        return Kernel(
            whole.name,
            whole.operator,
            whole.attributes,
            tuple(whole.operands),
            results,
            operators,
            whole.call,
            unread,
        )

    def _operators(self, node: ProgramNode) -> list[Operator]:
        """The operators of a node one by one, with tensors between them."""
        if node.is_elsewhere:
            inner = node.attributes["node"]
            return [Operator(inner.operator, inner.attributes, list(node.inputs), list(node.outputs))]
        if node.is_chain and not node.steps:
            return [Operator(IDENTITY, {}, list(node.inputs), list(node.outputs))]
        known: list[RegionOperand | None] = [node.inputs[0] if node.is_chain else None, *node.operands]
        made: list[Operator] = []
        if not node.is_chain:
            first = (
                ProgramTensor(f"{node.name}_anchor", node.dtype, node.output.shape) if node.steps else node.outputs[0]
            )
            made.append(Operator(node.operator, node.attributes, list(node.inputs), [first, *node.outputs[1:]]))
            known[0] = first
        for k, step in enumerate(node.steps):
            last = k == len(node.steps) - 1
            out = node.output if last else ProgramTensor(f"{node.name}_{k}", step.dtype, node.output.shape)
            inputs = [None if i is None else known[i] for i in step.inputs]
            made.append(Operator(step.operator, step.attributes, inputs, [out]))
            known.append(out)
        outer = set(node.reads())
        for tensor in (t for operator in made for t in operator.reads() if t not in outer):
            self.uses[tensor] = self.uses.get(tensor, 0) + 1
        return made

    # ---- a group ---------------------------------------------------------------------------------------

    def _group(
        self, region: Region, backend: Backend | None, kernels: tuple[Kernel, ...], nodes: Sequence[ProgramNode]
    ) -> list[ProgramNode]:
        """Make a group of nodes; returns the copies that are its results."""
        program, number = self.program, len(self.program.groups)
        group = Group(region, backend, kernels)
        group.elsewhere = tuple(dict.fromkeys(node.describe() for node in nodes if node.is_elsewhere))
        program.groups.append(group)
        for node in nodes:
            node.group = number
        if backend is None:
            return []
        written = [t for node in nodes for t in node.writes()]
        asked = [t for kernel in kernels for t in _tensors(kernel.operands)]
        border: tuple[region.Tensor, ...] = ()
        if backend.whole:
            # Whoever made code of the region's function expects its operands and results.
            asked, border = [*_tensors(region.inputs), *asked], region.outputs
            written.sort(key=lambda t: border.index(t) if t in border else len(border))
        reads = [t for node in nodes for t in node.reads()]
        group.operands += [t for t in dict.fromkeys((*asked, *reads)) if t not in set(written)]
        group.inputs = tuple(group.operands)
        inside = set(nodes)
        copies: list[ProgramNode] = []
        for tensor in written:
            is_read = tensor in self.returned or not inside.issuperset(self.consumers.get(tensor, ()))
            if not is_read and tensor not in border:
                continue
            # A tensor that is read outside is copied to row-major order; often the kernel that computes it can write
            # the copy.
            inner = ProgramTensor(tensor.name, tensor.dtype, tensor.shape, tensor.order)
            tensor.order = None
            for node in nodes:
                node.outputs = [inner if t is tensor else t for t in node.outputs]
                node.replace_reads(tensor, inner)
            copies.append(
                ProgramNode(tensor.name, IDENTITY, {}, [inner], [tensor], tensor.dtype, group=number, boundary=True)
            )
            group.results.append(tensor)
        return copies


def not_fixed(backend: Backend) -> str:
    """Why a backend does not execute a kernel whose sizes are not numbers."""
    return f"its sizes are not fixed, and {backend.library or 'the backend'} takes only fixed ones"


def _is_free(kernel: Kernel) -> bool:
    inside = (t for operator in kernel.operators for t in (*operator.reads(), *operator.writes()))
    return any(any_free(t.shape) for t in (*_tensors((*kernel.operands, *kernel.results)), *inside))


def _tensors(operands: Sequence[RegionOperand | None]) -> list[ProgramTensor]:
    return [x for x in operands if isinstance(x, ProgramTensor)]
