"""What the entry function of a program receives: tensors, and free sizes."""

from __future__ import annotations

import re

from eqsat.codegen import dtypes
from eqsat.codegen.emitted import Argument, SizeArgument
from eqsat.codegen.program import Tensor
from eqsat.schema.free_sizes import FreeSize
from eqsat.schema.size import Symbol


def argument(name: str, c_name: str, tensor: Tensor) -> Argument:
    dtype = tensor.dtype
    return Argument(name, c_name, dtypes.storage(dtype), dtypes.size(dtype), tensor.shape, dtype.name.lower())


def size_argument(received: tuple[str, FreeSize], c_name: str) -> SizeArgument:
    name, size = received
    assert size.most is not None
    return SizeArgument(name, c_name, Symbol(name, size).c_name, size.least, size.most, size.typical)


def sizes_in(text: str) -> list[str]:
    """The variables of sizes that C text reads."""
    return sorted(set(re.findall(r"\bdim_\w+", text)))
