"""The C functions of kernels: equal texts share one function, in a section that is visible to all its callers."""

from __future__ import annotations

from dataclasses import dataclass, field

from eqsat.codegen.c_names import identifier
from eqsat.codegen.isa import PORTABLE, SCALAR, Isa
from eqsat.codegen.program import ProgramNode
from eqsat.codegen.sharing import Share, StageShare, sharing_functions

BASE = "base"
"""Section of functions that every variant may call: default flags, C11 alone."""
X86 = "x86"
"""Section of functions that several x86 variants share."""


@dataclass
class Section:
    """Functions that are compiled under one condition."""

    helpers: dict[str, None] = field(default_factory=dict)
    functions: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class CFunction:
    """A kernel as text, before its place and name are settled.

    Attributes:
        parameters: C type and name of each.
        body: Statements.
        contract: See :class:`~eqsat.codegen.kernel.GeneratedKernel`.
        specialised: Likewise.
        helpers: Likewise.
        constants: Arguments for the kernel's constants.
        share: How threads share it; None if one thread executes it as a whole.
    """

    parameters: tuple[tuple[str, str], ...]
    body: str
    contract: bool
    specialised: bool
    helpers: tuple[str, ...]
    constants: tuple[str, ...]
    share: Share | StageShare | None = None

    @property
    def signature(self) -> str:
        """The parameters of the C function, in parentheses."""
        ends = [] if self.share is None else self.share.parameters
        return ", ".join(f"{c}{n}" for c, n in (*self.parameters, *ends)) or "void"

    @property
    def text(self) -> tuple[str, str, bool]:
        """Equal for those that are one function."""
        return self.signature, self.body + ("" if self.share is None else self.share.text), self.contract


class Functions:
    """Collects the functions of a program.

    Args:
        name: Prefix of their names.
        isas: Instruction sets that kernels are written for.
    """

    def __init__(self, name: str, isas: tuple[Isa, ...]) -> None:
        self.name = name
        self.isas = isas
        self.sections: dict[str, Section] = {BASE: Section(), PORTABLE.name: Section(), X86: Section()}
        self.sections.update({isa.name: Section() for isa in isas if isa != PORTABLE})
        self.users: dict[tuple[str, str, bool], set[str]] = {}
        self.named: dict[tuple[str, tuple[str, str, bool]], str] = {}

    def add(self, made: CFunction, isa: Isa) -> CFunction:
        """Note the caller of a function."""
        self.users.setdefault(made.text, set()).add(isa.name)
        return made

    @property
    def shared(self) -> list[tuple[str, Section]]:
        """Sections of several instruction sets."""
        return [(name, self.sections[name]) for name in (BASE, PORTABLE.name, X86)]

    @property
    def own(self) -> list[tuple[Isa, Section]]:
        """Sections of one instruction set."""
        return [(isa, self.sections[isa.name]) for isa in self.isas if isa != PORTABLE]

    def _section(self, made: CFunction, isa: Isa) -> str:
        """The section of a function: functions that need no particular instruction set are shared."""
        if isa.x86 and made.specialised:
            return isa.name
        users = self.users[made.text]
        if SCALAR.name not in users:
            return PORTABLE.name if PORTABLE.name in users else isa.name
        return BASE if PORTABLE.name in users else SCALAR.name

    def name_of(self, node: ProgramNode, made: CFunction, isa: Isa) -> str:
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

            def written(name: str, signature: str, body: str) -> str:
                head = " ".join(["static", *attributes, "void", f"{name}({signature})"])
                lines = [*([f"{upper}_CONTRACT_BODY"] if made.contract else []), *body.splitlines()]
                body = "\n".join(f"    {line}" if line else "" for line in lines)
                return f"{head} {{\n{body}\n}}\n"

            section.functions.append(written(name, made.signature, made.body))
            if made.share is not None:
                section.functions.append(sharing_functions(self.name, name, made.parameters, made.share, written))
        return self.named[key]

    def hoist_helpers(self) -> None:
        """Moves declarations that several sections need into the section that all of them see."""
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
