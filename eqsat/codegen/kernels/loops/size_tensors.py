"""Tensors whose elements are free sizes: where a model uses a shape as data."""

from __future__ import annotations

from eqsat.codegen.kernel import GeneratedKernel, Task
from eqsat.codegen.kernel_templates import Template
from eqsat.codegen.kernels.loops.family import loops
from eqsat.codegen.program import SIZES


@loops("sizes", SIZES.name, domain=SIZES.domain)
def sizes(task: Task) -> GeneratedKernel:
    """One store for each element."""
    writer = Template(task)
    y = writer.result()
    values = task.attributes["values"]
    for number, value in enumerate(values):
        index, rest = [], number
        for n in reversed(y.shape):
            index.append(str(rest % n))
            rest //= n
        writer.add(y.store(str(value), *reversed(index)))
    return writer.kernel()
