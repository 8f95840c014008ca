"""Backends execute the regions of a target: the interface that libraries and users implement, and the shipped ones.

A folder in here is a backend that eqsat ships. It offers ``BACKEND``; nothing lists it, and nothing else depends on it.
"""

from eqsat.backends.backend import Backend, Loaded, Primitive
from eqsat.backends.code import Code, Writer, context_functions
from eqsat.backends.coverage import Coverage
from eqsat.backends.region import Kernel, Operator, Region, Run, Tensor

__all__ = [
    "Backend", "Code", "Coverage", "Kernel", "Loaded", "Operator", "Primitive", "Region", "Run", "Tensor", "Writer",
    "context_functions",
]  # fmt: skip
