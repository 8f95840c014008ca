"""The text that backends write for a program and its bodies. Each backend is asked once, for all of its runs."""

from __future__ import annotations

from collections.abc import Iterator

from eqsat.backends.region import Run
from eqsat.codegen.backend_code import BackendText, Served
from eqsat.codegen.c_names import unique
from eqsat.codegen.control.control_node import control_of
from eqsat.codegen.placed_program import Layout
from eqsat.codegen.program import Group, Program
from eqsat.codegen.weights import Weights


class BackendTexts:
    """The text of all backends.

    Attributes:
        all: One for each target.
        contexts: Names of the targets with a context, in the order in which the program receives contexts.

    Args:
        program: With the groups that backends execute.
        layout: The places of its tensors.
        name: Prefix of all names.
        weights: The block that receives the constants of backends.
    """

    def __init__(self, program: Program, layout: Layout, name: str, weights: Weights) -> None:
        groups = list(_groups(program, layout))
        targets = sorted({group.region.target for group in groups})
        self.all: list[BackendText] = []
        self._texts: dict[Group, tuple[BackendText, int]] = {}
        for target, c_name in zip(targets, unique(["example", *targets], "t")[1:], strict=True):
            mine = [group for group in groups if group.region.target == target]
            backend = mine[0].backend
            assert backend is not None
            runs = [
                Run(k, g.kernels[0].name, g.region, g.kernels, g.inputs, tuple(g.results)) for k, g in enumerate(mine)
            ]
            operators = tuple(dict.fromkeys(operator for group in mine for operator in group.elsewhere))
            text = BackendText(Served(c_name, backend, runs, operators), name, program.name, weights)
            self.all.append(text)
            self._texts.update({group: (text, k) for k, group in enumerate(mine)})
        self.contexts = [text.served.target for text in self.all if text.served.code.stateful]

    def scratch(self, group: Group) -> int:
        """Bytes of working memory of a run."""
        text, number = self._texts[group]
        return text.scratch(number)

    def around(self, group: Group, inputs: list[str], outputs: list[str], at: int) -> tuple[list[str], str]:
        """The lines before and after the portable form of a run.

        Args:
            group: The run.
            inputs: The addresses of its inputs.
            outputs: Likewise.
            at: Offset of its memory in the arena.
        """
        text, number = self._texts[group]
        target = text.served.target
        index = self.contexts.index(target) if target in self.contexts else 0
        return text.call(number, inputs, outputs, at, index, is_only=bool(group.elsewhere))


def _groups(program: Program, layout: Layout) -> Iterator[Group]:
    """The groups that backends execute, in a program and in the bodies of its control flow."""
    seen: set[int] = set()
    for node in layout.nodes:
        control = control_of(node)
        for body in () if control is None else control.bodies:
            yield from _groups(body.program, body.layout)
        if node.group is None or node.group in seen:
            continue
        seen.add(node.group)
        if program.groups[node.group].backend is not None:
            yield program.groups[node.group]
