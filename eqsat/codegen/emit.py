"""Kernels, weights and the memory plan become the text of one C file and its header.

For every instruction set there is one function that calls the kernels in turn; the entry function checks its arguments
and picks one. Kernels of equal text are one function. Everything but the entry function is static, and nothing is
written but what the caller passes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from eqsat.codegen import dtypes
from eqsat.codegen.emitted import Argument, Emitted, KernelInfo, MapEntry
from eqsat.codegen.halo import fill_halo
from eqsat.codegen.isa import PORTABLE, SCALAR, Isa
from eqsat.codegen.kernel import Kernel, Task, View
from eqsat.codegen.memory import Block, MemoryPlan, plan_memory
from eqsat.codegen.names import identifier, unique
from eqsat.codegen.onednn.tables import onednn_files
from eqsat.codegen.place import ALIGNMENT, SLACK, Buffer
from eqsat.codegen.placed import Layout
from eqsat.codegen.program import Group, Node, Program, Tensor
from eqsat.codegen.text import render
from eqsat.codegen.vendor import call_text, header
from eqsat.codegen.weights import Weights
from eqsat.text import plain

BASE = "base"
"""Section of functions that every variant may call: default flags, C11 alone."""
X86 = "x86"
"""Section of what several x86 variants share."""
SMALL = 4096
"""Elements of a constant that is kept for reports."""


@dataclass
class _Section:
    """Functions that are compiled under one condition."""

    helpers: dict[str, None] = field(default_factory=dict)
    functions: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Function:
    """A kernel as text, before its place and name are settled.

    Attributes:
        signature: Of the C function, in parentheses.
        body: Statements.
        contract: See :class:`~eqsat.codegen.kernel.Kernel`.
        specialised: Likewise.
        helpers: Likewise.
        constants: Arguments for the kernel's constants.
    """

    signature: str
    body: str
    contract: bool
    specialised: bool
    helpers: tuple[str, ...]
    constants: tuple[str, ...]

    @property
    def text(self) -> tuple[str, str, bool]:
        return self.signature, self.body, self.contract


def emit(program: Program, layout: Layout, name: str, isas: tuple[Isa, ...], *, embedded: bool = True) -> Emitted:
    """Generate the kernels of a planned program for some instruction sets and write the C around them.

    Args:
        program: What the layout belongs to.
        layout: Where everything lies.
        name: Prefix of all names.
        isas: Instruction sets.
        embedded: Whether the header declares the weights, as a part of the program.
    """
    return _Emitter(program, layout, name, isas).emit(embedded)


class _Emitter:
    def __init__(self, program: Program, layout: Layout, name: str, isas: tuple[Isa, ...]) -> None:
        self.program = program
        self.layout = layout
        self.name = name
        self.isas = isas
        self.weights = Weights()
        self.sections: dict[str, _Section] = {BASE: _Section(), PORTABLE.name: _Section(), X86: _Section()}
        self.sections.update({isa.name: _Section() for isa in isas if isa != PORTABLE})
        self.users: dict[tuple[str, str, bool], set[str]] = {}
        self.named: dict[tuple[str, tuple[str, str, bool]], str] = {}
        ios = unique([*(t.name for t in program.inputs), *(n for n, _ in program.outputs)], "t", name)
        self.inputs = [_argument(t.name, c, t) for t, c in zip(program.inputs, ios, strict=False)]
        targets = sorted({group.target for group in program.groups})
        self._vendor_names = dict(zip(targets, unique(targets, "t"), strict=True))
        named = zip(program.outputs, ios[len(program.inputs) :], strict=True)
        self.outputs = [_argument(n, c, t) for (n, t), c in named]

    def emit(self, embedded: bool) -> Emitted:
        nodes = self.layout.nodes
        self._lifetimes()
        functions: list[dict[str, _Function]] = []
        scratch = [0] * len(nodes)
        infos: list[KernelInfo] = []
        for number, node in enumerate(nodes):
            task, family = self.layout.task(node), self.layout.families[node]
            functions.append({})
            for isa in self.isas:
                kernel = family.generate(task, isa)
                made = self._function(node, kernel)
                functions[-1][isa.name] = made
                self.users.setdefault(made.text, set()).add(isa.name)
                scratch[number] = max(scratch[number], kernel.scratch)
            shape = next(t.shape for t in node.writes())
            infos.append(KernelInfo(node.name, node.describe(), family.name, shape, _without_weights(task)))
        plan, buffers, scratches = self._memory(scratch)
        onednn = self._onednn()
        variants: list[tuple[Isa, list[str]]] = []
        for isa in self.isas:
            lines: list[str] = []
            for number, node in enumerate(nodes):
                lines += self._vendor(number) + _halos(number, buffers)
                lines += self._call(number, node, functions[number][isa.name], isa, scratches.get(number))
            lines += self._vendor(len(nodes))
            variants.append((isa, lines))
        self._hoist_helpers()
        values = {
            "name": self.name,
            "upper": self.name.upper(),
            "model": self.program.name,
            "inputs": self.inputs,
            "outputs": self.outputs,
            "arena": plan.size + SLACK,
            "weights": self.weights.size + SLACK,
            "alignment": ALIGNMENT,
            "kernels": infos,
            "embedded": embedded,
            "vendors": sorted({*self._vendor_headers(), *(["dnnl"] if onednn else [])}),
            "onednn": bool(onednn),
            "portable": any(not isa.x86 for isa in self.isas),
        }
        shared = [(n, self.sections[n]) for n in (BASE, PORTABLE.name, X86)]
        own = [(isa, self.sections[isa.name]) for isa in self.isas if isa != PORTABLE]
        source = render(
            "model.c.jinja", **values, shared=shared, own=own, variants=variants, scalar=SCALAR in self.isas
        )
        files = onednn_files(onednn, lambda array: self.weights.add(array)[0], values) if onednn else {}
        values["weights"] = self.weights.size + SLACK
        entries = [MapEntry(_contents(b), b.offset, b.bytes, b.first, b.last) for b in buffers]
        entries += [MapEntry(f"scratch of {infos[n].name}", o, scratch[n], n, n) for n, o in scratches.items()]
        entries.sort(key=lambda e: (e.offset, e.first, e.name))
        return Emitted(
            name=self.name,
            model=self.program.name,
            header=render("model.h.jinja", **values),
            source=source,
            weights=self.weights.block(),
            inputs=self.inputs,
            outputs=self.outputs,
            arena=plan.size + SLACK,
            plan=plan,
            memory_map=entries,
            kernels=infos,
            vendors=self._vendor_headers(),
            sources={f"{self.name}{ending}": text for ending, text in files.items()},
            pieces=len(onednn),
        )

    # ---- memory ----------------------------------------------------------------------------------------

    def _lifetimes(self) -> None:
        """First and last node that touches each buffer."""
        for number, node in reversed(list(enumerate(self.layout.nodes))):
            for tensor in (*node.reads(), *node.writes()):
                self.layout.places[tensor].buffer.first = number
        for number, node in enumerate(self.layout.nodes):
            for tensor in (*node.reads(), *node.writes()):
                self.layout.places[tensor].buffer.last = number
        for group, (first, last) in self._spans().items():
            # A vendor's kernel reads and writes at any time within its group.
            for x in self.program.groups[group].operands.values():
                if isinstance(x, Tensor):
                    buffer = self.layout.places[x].buffer
                    buffer.last = max(buffer.last, last)
            for y in self.program.groups[group].results.values():
                buffer = self.layout.places[y].buffer
                buffer.first = min(buffer.first, first)

    def _vendor_headers(self) -> dict[str, str]:
        by_target: dict[str, list[Group]] = {}
        for number in self._spans():
            group = self.program.groups[number]
            if group.piece is not None:
                continue
            by_target.setdefault(self._vendor_names[group.target], []).append(group)
        return {target: header(self.name, target, groups) for target, groups in sorted(by_target.items())}

    def _spans(self) -> dict[int, tuple[int, int]]:
        """First and last node of each vendor's call."""
        spans: dict[int, tuple[int, int]] = {}
        for number, node in enumerate(self.layout.nodes):
            if node.group is not None:
                spans[node.group] = (spans.get(node.group, (number, number))[0], number)
        return spans

    def _vendor(self, number: int) -> list[str]:
        """What stands between two nodes of different groups: the end of one, the beginning of the other."""
        nodes = self.layout.nodes
        before = nodes[number - 1].group if number else None
        here = nodes[number].group if number < len(nodes) else None
        if before == here:
            return []
        lines = []
        if before is not None:
            lines.append("#endif" if self.program.groups[before].piece is None else "}")
        if here is not None and self.program.groups[here].piece is not None:
            lines += self._execution(here)
        elif here is not None:
            group = self.program.groups[here]
            operands = {
                i: self._location(x, True) if isinstance(x, Tensor) else self._constant(x)
                for i, x in group.operands.items()
            }
            results = {i: self._location(y, False) for i, y in group.results.items()}
            lines.append(f"#ifdef {self.name.upper()}_USE_{self._vendor_names[group.target].upper()}")
            lines += [f"{call_text(group, operands, results).rstrip().rstrip(';')};", "#else"]
        return lines

    def _onednn(self) -> list[Group]:
        """Groups that oneDNN executes, in order."""
        return [group for number in self._spans() if (group := self.program.groups[number]).piece is not None]

    def _execution(self, number: int) -> list[str]:
        """The condition under which oneDNN leaves a group to the nodes behind it."""
        group = self.program.groups[number]
        read = [self._location(x, True) for _, x in sorted(group.operands.items()) if isinstance(x, Tensor)]
        written = [self._location(y, False) for _, y in sorted(group.results.items())]
        at = self._onednn().index(group)
        return [
            f"#ifdef {self.name.upper()}_USE_DNNL",
            f"if (dnnl == NULL || !{self.name}_dnnl_execute(",
            f"        dnnl, {at}, (const void *const[]){{{', '.join(read) or 'NULL'}}},",
            f"        (void *const[]){{{', '.join(written)}}}))",
            "#endif",
            "{",
        ]

    def _constant(self, array: np.ndarray) -> str:
        offset, c = self.weights.add(array)
        return f"(const {c} *)(weights + {offset})"

    def _memory(self, scratch: list[int]) -> tuple[MemoryPlan, list[Buffer], dict[int, int]]:
        """The plan, the arena's buffers with their offsets set, and the offset of each kernel's working memory."""
        touched = {self.layout.places[t].buffer for n in self.layout.nodes for t in (*n.reads(), *n.writes())}
        buffers = [b for b in self.layout.buffers if b.kind == "arena" and b in touched]
        blocks = [Block(b.bytes, b.first, b.last) for b in buffers]
        working = [number for number, size in enumerate(scratch) if size]
        blocks += [Block(scratch[number], number, number) for number in working]
        plan = plan_memory(blocks, ALIGNMENT)
        for buffer, offset in zip(buffers, plan.offsets, strict=False):
            buffer.offset = offset
        return plan, buffers, dict(zip(working, plan.offsets[len(buffers) :], strict=True))

    # ---- functions -------------------------------------------------------------------------------------

    def _operands(self, node: Node) -> list[tuple[Tensor, str, bool]]:
        """Tensors that a kernel is given: name of the parameter, and whether it is read only."""
        result = [(x, f"x{i}", True) for i, x in enumerate(node.inputs) if isinstance(x, Tensor)]
        result += [(x, f"e{k}", True) for k, x in enumerate(node.operands) if isinstance(x, Tensor)]
        return result + [(y, f"y{i}", False) for i, y in enumerate(node.outputs) if y is not None]

    def _function(self, node: Node, kernel: Kernel) -> _Function:
        restrict = "" if node in self.layout.in_place else "restrict "
        parameters = [
            (f"{'const ' if const else ''}{dtypes.storage(tensor.dtype)} *{restrict}", name)
            for tensor, name, const in self._operands(node)
        ]
        constants = []
        for k, array in enumerate(kernel.constants):
            constants.append(self._constant(np.asarray(array)))
            c = dtypes.c_type(dtypes.as_stored(np.asarray(array)))
            parameters.append((f"const {c} *restrict ", f"w{k}"))
        if kernel.scratch:
            parameters.append(("void *restrict ", "scratch"))
        unused = [n for _, n in parameters if not re.search(rf"\b{n}\b", kernel.body)]
        return _Function(
            ", ".join(f"{c}{n}" for c, n in parameters) or "void",
            "\n".join([*(f"(void){n};" for n in unused), kernel.body]),
            kernel.contract,
            kernel.specialised,
            kernel.helpers,
            tuple(constants),
        )

    def _call(self, number: int, node: Node, made: _Function, isa: Isa, scratch: int | None) -> list[str]:
        arguments = [self._location(tensor, const) for tensor, _, const in self._operands(node)]
        arguments += made.constants
        if re.search(r"void \*restrict scratch$", made.signature):
            arguments.append(f"arena + {scratch}")
        function = self._name(node, made, isa)
        comment = plain(f"{node.name}: {node.describe()}")
        return [f"/* {comment} */", f"{self.name.upper()}_KERNEL({number}, {function}({', '.join(arguments)}));"]

    def _location(self, tensor: Tensor, const: bool) -> str:
        place = self.layout.places[tensor]
        buffer, start = place.buffer, place.start()
        c = dtypes.storage(tensor.dtype)
        if buffer.kind == "arena":
            at = buffer.offset + start * dtypes.size(tensor.dtype)
            return f"({'const ' if const else ''}{c} *)(arena + {at})"
        given = self.inputs[buffer.index] if buffer.kind == "input" else self.outputs[buffer.index]
        return given.c_name if start == 0 else f"{given.c_name} + {start}"

    def _section(self, made: _Function, isa: Isa) -> str:
        """Where a function belongs: what needs no instruction set of its own is shared."""
        if isa.x86 and made.specialised:
            return isa.name
        users = self.users[made.text]
        if SCALAR.name not in users:
            return PORTABLE.name if PORTABLE.name in users else isa.name
        return BASE if PORTABLE.name in users else SCALAR.name

    def _name(self, node: Node, made: _Function, isa: Isa) -> str:
        """Name of the function; it is written into its section when first asked for."""
        where = self._section(made, isa)
        section, key = self.sections[where], (where, made.text)
        section.helpers.update(dict.fromkeys(made.helpers))
        if key not in self.named:
            words = [s.operator.name for s in node.steps]
            if not node.is_chain or not words:
                words.insert(0, "copy" if node.is_chain else node.operator.name)
            name = f"{self.name}_k{len(self.named)}_{identifier('_'.join(words[:4]).lower(), 'k')}_{where}"
            self.named[key] = name
            upper = self.name.upper()
            attributes = [f"{upper}_CONTRACT"] if made.contract else []
            if isa.x86 and where == isa.name:
                attributes.append(f"{upper}_{isa.name.upper()}")
            head = " ".join(["static", *attributes, "void", f"{name}({made.signature})"])
            lines = [*([f"{upper}_CONTRACT_BODY"] if made.contract else []), *made.body.splitlines()]
            body = "\n".join(f"    {line}" if line else "" for line in lines)
            section.functions.append(f"{head} {{\n{body}\n}}\n")
        return self.named[key]

    def _hoist_helpers(self) -> None:
        """Declarations that several sections need stand once, in what all of them see."""
        where: dict[str, list[str]] = {}
        for name, section in self.sections.items():
            for helper in section.helpers:
                where.setdefault(helper, []).append(name)
        x86 = {X86, *(isa.name for isa in self.isas if isa.x86)}
        for helper, names in where.items():
            if len(names) > 1:
                home = X86 if x86.issuperset(names) else BASE if {BASE, SCALAR.name} & set(names) else PORTABLE.name
                for name in names:
                    del self.sections[name].helpers[helper]
                self.sections[home].helpers[helper] = None


def _without_weights(task: Task) -> Task:
    """A task to be kept: large constants are replaced by one element that is repeated."""

    def shell(operand: View | np.ndarray | None) -> Any:
        if not isinstance(operand, np.ndarray) or operand.size <= SMALL:
            return operand
        return np.broadcast_to(np.zeros((), operand.dtype), operand.shape)

    epilogue = replace(task.epilogue, operands=tuple(map(shell, task.epilogue.operands)))
    return replace(task, inputs=tuple(map(shell, task.inputs)), epilogue=epilogue)


def _argument(name: str, c_name: str, tensor: Tensor) -> Argument:
    dtype = tensor.dtype
    return Argument(name, c_name, dtypes.storage(dtype), dtypes.size(dtype), tensor.shape, dtype.name.lower())


def _halos(number: int, buffers: list[Buffer]) -> list[str]:
    """Statements that fill the halos of the buffers that come to life with a node."""
    lines: list[str] = []
    for buffer in buffers:
        if buffer.first == number and buffer.has_halo:
            lines += fill_halo(buffer, f"(arena + {buffer.offset})")
    return lines


def _contents(buffer: Buffer) -> str:
    """Names of the tensors in a buffer: its owner, what is computed in place, what is part of it."""
    names = list(dict.fromkeys(t.name for t in (buffer.owner, *buffer.tensors)))
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
