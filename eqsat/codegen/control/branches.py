"""Lowers If: both branches write the same results, which may differ in size."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from eqsat.codegen.control.border_sizes import common_range, merged
from eqsat.codegen.control.control_node import BRANCH, Branches, Sink
from eqsat.codegen.control.lowering import Lowering
from eqsat.codegen.program import ProgramTensor
from eqsat.codegen.shapes import operand_type


class BranchLowering(Lowering):
    """Lowers an ``If``."""

    def lower(self) -> None:
        """An ``If``: both branches write the same results; a condition that is known leaves one."""
        condition = self.node.operands[0]
        assert condition is not None
        names = ["then_branch", "else_branch"]
        if isinstance(condition, np.ndarray):
            names = names[:1] if condition.reshape(-1)[0] else names[1:]
        else:
            self.operand(condition)
        wanted = [k for k, used in enumerate(self.node.used) if used]
        made = [self.lowered(self.graph(name), [], wanted) for name in names]
        if any(found is None for found in made):
            return
        programs = [found for found in made if found is not None]
        outputs: list[ProgramTensor | None] = []
        unknown: list[list[int]] = []
        for k, number in enumerate(wanted):
            kinds = [program.outputs[k][1] for program, _ in programs]
            if len({(t.dtype, len(t.shape)) for t in kinds}) > 1:
                shown = " or ".join(str(operand_type(t)) for t in kinds)
                self.problems.add(f"a result of If of unknown rank, {shown}", self.node.name)
                return
            shape: list[int] = []
            for inner in zip(*(t.shape for t in kinds), strict=True):
                size = merged(map(self.sizes.from_inside, inner))
                if size is None:
                    unknown.append(list(inner))
                    size = self.found.size(self.node.names[number] or self.node.name, common_range(inner))
                shape.append(size)
            outputs.append(self.result(number, kinds[0].dtype, shape))
        bodies = []
        for j, (program, sources) in enumerate(programs):
            sinks = [Sink("result", k) for k in range(len(wanted))]
            reported = [inner[j] for inner in unknown]
            bodies.append(self.body(program, sources, sinks, BRANCH if len(made) > 1 else 1.0, reported))
        self.finish(Branches(tuple(bodies), sizes=tuple(self.sizes.arguments())), outputs)
        self._read(len(unknown))

    def _read(self, count: int) -> None:
        """A further result of the node has the sizes that data decides; they are read after it."""
        if not count:
            return
        values = ProgramTensor(f"{self.node.name}_sizes", ir.DataType.INT64, (count,))
        self.nodes[-1].outputs.append(values)
        self.found.reading(values, self.found.made[-count:], self.nodes)
