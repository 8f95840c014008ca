"""Local response normalisation (Krizhevsky et al. 2012) of float32 in NHWC: neighbours are contiguous channels."""

from __future__ import annotations

from eqsat.codegen import c_types
from eqsat.codegen.isa import Isa
from eqsat.codegen.kernel import Family, GeneratedKernel, Task, Wants
from eqsat.codegen.kernels.shared.families import register
from eqsat.codegen.kernels.vectors import convolution_geometry as convolution
from eqsat.codegen.kernels.vectors.epilogue import SLACK
from eqsat.codegen.kernels.vectors.rows import is_float_row, row_kernel
from eqsat.schema.types import OpKey


def _accepts(task: Task) -> bool:
    return is_float_row(task) and 3 <= task.view(0).rank <= 5


def _wants(task: Task) -> Wants:
    return convolution.nhwc(task)


def _generate(task: Task, isa: Isa) -> GeneratedKernel:
    channels, size = task.view(0).shape[1], int(task.attributes["size"])
    beta = float(task.attributes.get("beta", 0.75))
    return row_kernel(
        "vectors/local_response.c.jinja",
        task,
        channels,
        1,
        isa,
        (),
        scratch=4 * (channels + size - 1 + SLACK),
        channels=channels,
        size=size,
        before=(size - 1) // 2,
        bias=c_types.literal(task.attributes.get("bias", 1.0), convolution.FLOAT),
        factor=c_types.literal(task.attributes.get("alpha", 1e-4) / size, convolution.FLOAT),
        beta=beta,
        power=c_types.literal(beta, convolution.FLOAT),
        lanes=isa.lanes(),
    )


register(Family("local response of channel vectors", (OpKey("", "LRN"),), _accepts, _generate, _wants, rank=10))
