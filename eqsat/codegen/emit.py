"""Turns kernels, weights and the memory plan into the text of one C file and its header.

For every instruction set one function calls the kernels in turn; the entry function checks its arguments and picks one
of them. Kernels of equal text share one function. A region of a target without a backend is a function with the name of
the region, whose parameters are the buffers that it shares with the rest of the program. All functions except the entry
function are static, and they write only to memory that the caller passes.
"""

from __future__ import annotations

import re

import numpy as np
import onnx_ir as ir

from eqsat.codegen import c_types
from eqsat.codegen.backend_texts import BackendTexts
from eqsat.codegen.buffers import ALIGNMENT, SLACK, Buffer
from eqsat.codegen.c_names import unique
from eqsat.codegen.control.c_text import ControlText, free_label
from eqsat.codegen.control.control_node import Control, PlannedBody, control_of, finds, may_end
from eqsat.codegen.emitted import Emitted, KernelInfo, MapEntry, without_weights
from eqsat.codegen.entry_arguments import interface, sizes_in
from eqsat.codegen.found_text import declarations, readings, reports
from eqsat.codegen.halo import fill_halos
from eqsat.codegen.isa import SCALAR, Isa
from eqsat.codegen.kernel import GeneratedKernel
from eqsat.codegen.kernel_function import kernel_function
from eqsat.codegen.memory import Allocation, MemoryPlan, plan_memory
from eqsat.codegen.parallel import BLOCK_WITHIN
from eqsat.codegen.placed_program import Layout
from eqsat.codegen.program import Program, ProgramNode, ProgramTensor
from eqsat.codegen.program_templates import render
from eqsat.codegen.shared_functions import CFunction, Functions
from eqsat.codegen.sharing import Share, Sharing, StageShare
from eqsat.codegen.spans import NodeSpan, pieces, spans
from eqsat.codegen.weights import Weights
from eqsat.model.unused_names import unused
from eqsat.text import plain


def emit(
    program: Program,
    layout: Layout,
    name: str,
    isas: tuple[Isa, ...],
    *,
    embedded: bool = True,
    sharing: Sharing | None = None,
) -> Emitted:
    """Generate the kernels of a planned program for some instruction sets and write the C around them.

    Args:
        program: The program to which the layout belongs.
        layout: The places of all tensors.
        name: Prefix of all names.
        isas: Instruction sets.
        embedded: Whether the header declares the weights, as a part of the program.
        sharing: Decides which kernels threads share; None for a program of one thread.
    """
    decided = None if sharing is None else sharing.of(layout)
    return _Emitter(program, layout, name, isas, decided).emit(embedded)


class _Emitter:
    """Writes the calls of a program's kernels. A body of control flow has an emitter of its own and shares all else
    with the model's.
    """

    def __init__(
        self,
        program: Program,
        layout: Layout,
        name: str,
        isas: tuple[Isa, ...],
        sharing: Sharing | None,
        outer: _Emitter | None = None,
    ) -> None:
        self.sharing = sharing
        self.program = program
        self.layout = layout
        self.name = name
        self.isas = isas
        self.weights = Weights() if outer is None else outer.weights
        self.functions = Functions(name, isas) if outer is None else outer.functions
        self.infos: list[KernelInfo] = [] if outer is None else outer.infos
        self.taken: set[str] = set() if outer is None else outer.taken
        self.times = 1.0
        self.reported: tuple[int, ...] = ()
        self.ends = may_end(program)
        self.inputs, self.outputs, self.sizes = interface(program, name)
        self.spans = spans(layout)
        self.renamed: dict[Buffer, str] = {}
        labels = unique((program.groups[number].region.name for number in self.spans), "region", name)
        self.labels = {number: unused(label, self.taken) for number, label in zip(self.spans, labels, strict=True)}

    def emit(self, embedded: bool) -> Emitted:
        self._generate()
        self._settle(BackendTexts(self.program, self.layout, self.name, self.weights))
        plan, infos, texts = self.plan, self.infos, self.backends.all
        variants = [(isa, *self._lines(isa)) for isa in self.isas]
        self.functions.hoist_helpers()
        values = {
            "name": self.name,
            "upper": self.name.upper(),
            "model": self.program.name,
            "inputs": self.inputs,
            "outputs": self.outputs,
            "sizes": self.sizes,
            "found": any(node.reads_sizes or finds(node) for node in self.program.nodes),
            "ends": self.ends,
            "arena": plan.size + SLACK,
            "weights": self.weights.size + SLACK,
            "alignment": ALIGNMENT,
            "kernels": infos,
            "embedded": embedded,
            "texts": texts,
            "contexts": self.backends.contexts,
            "threads": self.threads,
            "shares": any(info.shared for info in infos),
            "portable": any(not isa.x86 for isa in self.isas),
        }
        source = render(
            "model.c.jinja",
            **values,
            shared=self.functions.shared,
            own=self.functions.own,
            variants=variants,
            declarations=declarations(self.program.found),
            reports=reports(self.outputs),
            scalar=SCALAR in self.isas,
            block_within=BLOCK_WITHIN,
        )
        entries = self._entries()
        entries.sort(key=lambda e: (e.offset, e.first, e.name))
        return Emitted(
            name=self.name,
            model=self.program.name,
            header=render("model.h.jinja", **values),
            source=source,
            weights=self.weights.block(),
            inputs=self.inputs,
            outputs=self.outputs,
            sizes=self.sizes,
            arena=plan.size + SLACK,
            plan=plan,
            memory_map=entries,
            kernels=infos,
            served=[text.served for text in texts],
            threads=self.threads,
            shared=sum(info.shared for info in infos),
            files={f"{self.name}{ending}": file for text in texts for ending, file in text.files(values).items()},
        )

    def _generate(self) -> None:
        """Makes the kernels of all instruction sets, including those of bodies."""
        nodes = self.layout.nodes
        self._lifetimes()
        self.made: list[dict[str, CFunction]] = []
        self.scratch = [0] * len(nodes)
        self.steps: list[tuple[int, int]] = []
        self.bodies: dict[int, list[_Emitter]] = {}
        for number, node in enumerate(nodes):
            first = len(self.infos)
            self.made.append({})
            control = control_of(node)
            if control is not None:
                self.bodies[number] = [self._body(body, control) for body in control.bodies]
            else:
                self._kernel(number, node)
            self.steps.append((first, max(first, len(self.infos) - 1)))

    def _settle(self, backends: BackendTexts) -> None:
        """Give all memory its place, once it is known how much kernels, bodies and backends need."""
        self.backends = backends
        self.common = [("unsigned char *", "arena"), ("const unsigned char *", "weights")]
        self.common += [(f"{self.name}_pool *", "pool")] if self.sharing is not None else []
        self.common += [("void *const *", "contexts")] if backends.contexts else []
        self.controls: dict[int, ControlText] = {}
        for number, bodies in self.bodies.items():
            node = self.layout.nodes[number]
            control = control_of(node)
            assert control is not None
            for body in bodies:
                body._settle(backends)
            label = f"{self.name}_{free_label(node.operator.name.lower(), self.taken)}"
            common = tuple(self.common)
            text = ControlText(node, control, label, bodies, self._constant, common, self.name.upper())
            self.controls[number], self.scratch[number] = text, text.scratch
        groups = self.program.groups
        self.extra = {g: backends.scratch(groups[g]) for g in self.spans if groups[g].backend is not None}
        self.plan, self.buffers, self.scratches, self.memory = self._memory(self.scratch, self.extra)
        for number, control in self.controls.items():
            control.move(self.scratches.get(number, 0))

    def _kernel(self, number: int, node: ProgramNode) -> None:
        task, family = self.layout.task(node), self.layout.families[node]
        seconds = 0.0 if self.sharing is None else self.sharing.seconds(task, family.name)
        for isa in self.isas:
            kernel = family.generate(task, isa)
            parts = None if self.sharing is None else self.sharing.share(kernel, seconds)
            self.made[number][isa.name] = self.functions.add(self._function(node, kernel, parts), isa)
            size = kernel.scratch if parts is None else parts[1].scratch(kernel.scratch, self.threads)
            self.scratch[number] = max(self.scratch[number], size)
        written = next(iter(node.writes()))
        shared = any(made.share is not None for made in self.made[number].values())
        what, bare = node.describe(), without_weights(task)
        info = KernelInfo(node.name, what, family.name, written.shape, bare, self.times, shared, written.name)
        self.infos.append(info)

    def _lines(self, isa: Isa) -> tuple[list[str], list[str]]:
        """The calls for an instruction set, and the functions among them that are not kernels."""
        nodes = self.layout.nodes
        lines: list[str] = []
        own: list[str] = []
        for span in pieces(self.layout):
            found: list[str] = []
            if span.group is not None and self.program.groups[span.group].elsewhere:
                lines += self._run(span.group, found)
                continue
            plain_group = span.group is not None and self.program.groups[span.group].backend is None
            if plain_group:
                self.renamed = self._shared(span)
            for number in span.numbers:
                found += fill_halos(number, self.buffers, lambda pad: self._location(pad, True))
                if number in self.controls:
                    control = self.controls[number]
                    own += control.written(isa)
                    arguments = [self._location(tensor, const) for tensor, _, const in self._operands(nodes[number])]
                    found += control.call(isa, arguments)
                    continue
                step, made = self.steps[number][0], self.made[number][isa.name]
                found += self._call(step, nodes[number], made, isa, self.scratches.get(number))
                found += self._readings(nodes[number])
            if plain_group:
                lines += self._function_of(span, isa, found, own)
            elif span.group is not None:
                lines += self._run(span.group, found)
            else:
                lines += found
        return lines, own

    def _entries(self) -> list[MapEntry]:
        """The memory map."""
        entries = [self._entry(b.contents, b.offset, b.bytes, b.first, b.last) for b in self.buffers]
        for number, offset in self.scratches.items():
            size, control = self.scratch[number], self.controls.get(number)
            if control is not None:
                size = control.own
                entries += [entry for body in self.bodies[number] for entry in body._entries()]
            what = f"scratch of {self.layout.nodes[number].name}"
            entries += [self._entry(what, offset, size, number, number)] if size else []
        for group, offset in self.memory.items():
            what = f"scratch of {self.program.groups[group].region.name}"
            entries.append(self._entry(what, offset, self.extra[group], *self.spans[group]))
        return entries

    def _entry(self, what: str, offset: int, size: int, first: int, last: int) -> MapEntry:
        return MapEntry(what, offset, size, self.steps[first][0], self.steps[last][1])

    # ---- control flow ----------------------------------------------------------------------------------

    def _body(self, body: PlannedBody, control: Control) -> _Emitter:
        made = _Emitter(body.program, body.layout, self.name, self.isas, self.sharing, self)
        made.times = self.times * control.times
        made.reported = body.reported
        made._generate()
        return made

    @property
    def threads(self) -> int:
        """How many may share a kernel."""
        return 1 if self.sharing is None else self.sharing.threads

    @property
    def arena(self) -> int:
        """Bytes of working memory of a body."""
        return self.plan.size

    def move(self, offset: int) -> None:
        """Let a body's memory begin at a place of the one arena."""
        for buffer in self.buffers:
            buffer.offset += offset
        self.scratches = {number: at + offset for number, at in self.scratches.items()}
        self.memory = {group: at + offset for group, at in self.memory.items()}
        for control in self.controls.values():
            control.move(offset)

    def function(self, isa: Isa, label: str) -> list[str]:
        """A body as a function."""
        lines, own = self._lines(isa)
        given = [(f"const {x.c_type} *", x.c_name) for x in self.inputs]
        given += [(f"{y.c_type} *", y.c_name) for y in self.outputs]
        given += [("int64_t *", "sizes")] if self.reported else []
        given += [("ptrdiff_t ", x.variable) for x in self.sizes]
        given += self.common
        head = f"static {'int' if self.ends else 'void'} {label}({', '.join(c + name for c, name in given)}) {{"
        lines = [*(f"(void){name};" for _, name in given), *declarations(self.program.found), *lines]
        lines += [f"sizes[{k}] = {n};" for k, n in enumerate(self.reported)]
        lines += ["return 0;"] if self.ends else []
        return [*own, "\n".join([head, *(f"    {line}" for line in lines), "}"])]

    # ---- memory ----------------------------------------------------------------------------------------

    def _lifetimes(self) -> None:
        """First and last node that touches each buffer."""
        for number, node in reversed(list(enumerate(self.layout.nodes))):
            for tensor in (*node.reads(), *node.writes()):
                self.layout.places[tensor].buffer.first = number
        for number, node in enumerate(self.layout.nodes):
            for tensor in (*node.reads(), *node.writes()):
                self.layout.places[tensor].buffer.last = number
        for buffer in self.layout.buffers:
            if isinstance(buffer.pad, ProgramTensor):
                pad = self.layout.places[buffer.pad].buffer
                pad.last = max(pad.last, buffer.first)
        for number, (first, last) in self.spans.items():
            # A backend reads and writes at any time within its run.
            group = self.program.groups[number]
            for x in group.operands if group.backend is not None else ():
                buffer = self.layout.places[x].buffer
                buffer.last = max(buffer.last, last)
            for y in group.results if group.backend is not None else ():
                buffer = self.layout.places[y].buffer
                buffer.first = min(buffer.first, first)

    # ---- groups ----------------------------------------------------------------------------------------

    def _run(self, group: int, portable: list[str]) -> list[str]:
        """A backend's run, and the portable form that is executed instead of it."""
        inputs = [self._location(x, True) for x in self.program.groups[group].operands]
        outputs = [self._location(y, False) for y in self.program.groups[group].results]
        at = self.memory.get(group, 0)
        before, after = self.backends.around(self.program.groups[group], inputs, outputs, at)
        return [*before, *portable, after]

    def _shared(self, span: NodeSpan) -> dict[Buffer, str]:
        """Buffers that a region shares with the rest of the program, and the names of the parameters for them."""
        places, nodes = self.layout.places, self.layout.nodes
        inside = set(span.numbers)
        others = (node for i, node in enumerate(nodes) if i not in inside)
        outer = {places[t].buffer for node in others for t in (*node.reads(), *node.writes())}
        mine = [t for i in span.numbers for t in nodes[i].reads()] + [
            t for i in span.numbers for t in nodes[i].writes()
        ]
        names: dict[Buffer, str] = {}
        for tensor in mine:
            buffer = places[tensor].buffer
            if buffer.kind != "arena" or buffer in outer:
                names.setdefault(buffer, buffer.owner.name)
        return dict(zip(names, unique(names.values(), "t", self.name), strict=True))

    def _function_of(self, span: NodeSpan, isa: Isa, body: list[str], functions: list[str]) -> list[str]:
        """Make a function of a region's lines; returns the call."""
        assert span.group is not None
        places, nodes = self.layout.places, self.layout.nodes
        region = self.program.groups[span.group].region.name
        written = {places[t].buffer for i in span.numbers for t in nodes[i].writes()}
        parameters: list[str] = []
        arguments: list[str] = []
        names, self.renamed = self.renamed, {}
        for buffer, name in names.items():
            const = "" if buffer in written else "const "
            parameters.append(f"{const}{c_types.storage(buffer.owner.dtype)} *{name}")
            arguments.append(self._element(buffer, buffer.owner.dtype, bool(const)))
        for c, name in self.common:
            if any(re.search(rf"\b{name}\b", line) for line in body):
                parameters.append(f"{c}{name}")
                arguments.append(name)
        for size in sizes_in("\n".join(body)):
            parameters.append(f"ptrdiff_t {size}")
            arguments.append(size)
        label = f"{self.name}_{self.labels[span.group]}_{isa.name}"
        head = f"static void {label}({', '.join(parameters) or 'void'}) {{"
        functions.append("\n".join([f"/* {plain(region)} */", head, *(f"    {line}" for line in body), "}"]))
        return [f"{label}({', '.join(arguments)});"]

    # ---- memory ----------------------------------------------------------------------------------------

    def _constant(self, array: np.ndarray) -> str:
        offset, c = self.weights.add(array)
        return f"(const {c} *)(weights + {offset})"

    def _memory(
        self, scratch: list[int], extra: dict[int, int]
    ) -> tuple[MemoryPlan, list[Buffer], dict[int, int], dict[int, int]]:
        """The plan, the arena's buffers with their offsets set, and where the memory of kernels and of runs lies."""
        touched = {self.layout.places[t].buffer for n in self.layout.nodes for t in (*n.reads(), *n.writes())}
        buffers = [b for b in self.layout.buffers if b.kind == "arena" and b in touched]
        # Pointers to different tensors differ, even if there are no elements: compilers warn of equal ones.
        blocks = [Allocation(max(b.bytes, 1), b.first, b.last) for b in buffers]
        working = [number for number, size in enumerate(scratch) if size]
        blocks += [Allocation(scratch[number], number, number) for number in working]
        runs = [group for group, size in extra.items() if size]
        blocks += [Allocation(extra[group], *self.spans[group]) for group in runs]
        plan = plan_memory(blocks, ALIGNMENT)
        for buffer, offset in zip(buffers, plan.offsets, strict=False):
            buffer.offset = offset
        rest = plan.offsets[len(buffers) :]
        return plan, buffers, dict(zip(working, rest, strict=False)), dict(zip(runs, rest[len(working) :], strict=True))

    # ---- functions -------------------------------------------------------------------------------------

    def _operands(self, node: ProgramNode) -> list[tuple[ProgramTensor, str, bool]]:
        """Tensors that a kernel receives: name of the parameter, and whether it is read only."""
        result = [(x, f"x{i}", True) for i, x in enumerate(node.inputs) if isinstance(x, ProgramTensor)]
        result += [(x, f"e{k}", True) for k, x in enumerate(node.operands) if isinstance(x, ProgramTensor)]
        return result + [(y, f"y{i}", False) for i, y in enumerate(node.outputs) if y is not None]

    def _function(
        self, node: ProgramNode, kernel: GeneratedKernel, shared: tuple[str, Share | StageShare] | None
    ) -> CFunction:
        return kernel_function(self._operands(node), node in self.layout.in_place, kernel, shared, self._constant)

    def _call(self, number: int, node: ProgramNode, made: CFunction, isa: Isa, scratch: int | None) -> list[str]:
        arguments = [self._location(tensor, const) for tensor, _, const in self._operands(node)]
        arguments += made.constants
        if ("void *restrict ", "scratch") in made.parameters:
            arguments.append(f"arena + {scratch}")
        function = self.functions.name_of(node, made, isa)
        if made.share is not None:
            function += "_shared"
            arguments = ["pool", *made.share.arguments, *arguments]
        comment = plain(f"{node.name}: {node.describe()}")
        return [f"/* {comment} */", f"{self.name.upper()}_KERNEL({number}, {function}({', '.join(arguments)}));"]

    def _readings(self, node: ProgramNode) -> list[str]:
        return readings(node, self._location(node.output, True), self.name.upper()) if node.reads_sizes else []

    def _location(self, tensor: ProgramTensor, const: bool) -> str:
        place = self.layout.places[tensor]
        buffer, start = place.buffer, place.start()
        if buffer in self.renamed:
            name = self.renamed[buffer]
            return name if start == 0 else f"{name} + {start}"
        return self._element(buffer, tensor.dtype, const, start)

    def _element(self, buffer: Buffer, dtype: ir.DataType, const: bool, start: int = 0) -> str:
        """An element of a buffer, seen from the function that calls the kernels."""
        if buffer.kind == "arena":
            at = buffer.offset + start * c_types.size(dtype)
            return f"({'const ' if const else ''}{c_types.storage(dtype)} *)(arena + {at})"
        given = self.inputs[buffer.index] if buffer.kind == "input" else self.outputs[buffer.index]
        return given.c_name if start == 0 else f"{given.c_name} + {start}"
