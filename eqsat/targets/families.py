"""The cost of a kernel of generated code: the ``family`` entries of a host.

Generated code fuses more than patterns say and has kernels that no pattern describes, such as chains of elementwise
operators. A host therefore gives one expression for each family of kernels, over the work of the kernel as a whole.
The same entry prices a composite when programs are extracted and a kernel that was generated, so that predictions can
be compared with measurements.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir

from eqsat.ops.operators import has
from eqsat.ops.traits import Trait
from eqsat.rules.ast import FamilyEntry, Target
from eqsat.rules.evaluation import holds
from eqsat.schema.dtypes import dtype_name
from eqsat.schema.types import OpKey, TensorType

_QUOTIENTS = frozenset({OpKey("", "Div"), OpKey("", "Mod")})
_WIDE = frozenset({ir.DataType.INT64, ir.DataType.UINT64})


@dataclass(frozen=True, slots=True)
class TotalWork:
    """The work of a kernel as a whole.

    Attributes:
        macs: Multiply-accumulates, including elementwise operators after its anchor.
        bytes: Bytes of the tensors that cross its border, each as often as it is an operand; repeated elements count
            once.
        functions: Elementary functions evaluated, see :func:`evaluates_function`.
        scattered: Bytes of operands that neighbours of the result read from different cache lines.
    """

    macs: float
    bytes: float
    functions: float = 0
    scattered: float = 0


def evaluates_function(op: OpKey, dtype: ir.DataType | None) -> bool:
    """Whether an operator evaluates an elementary function for each element of its result, or a quotient of integers
    of 64 bits, for which there are no vectors either.
    """
    return has(op, Trait.ELEMENTARY) or (op in _QUOTIENTS and dtype in _WIDE)


def family_entry(target: Target, name: str, env: Mapping[str, object]) -> FamilyEntry | None:
    """The first entry for a family whose conditions hold, None if there is none.

    Args:
        name: Name in the file.
        env: The names in the entry's expressions, see :mod:`eqsat.targets.condition_names`.
    """
    entries = (f for f in target.families if not f.names or name in f.names)
    return next((f for f in entries if holds(f.where, env) is None), None)


def rates(target: Target, first: TensorType | None) -> dict[str, float]:
    """The target's own numbers by their names in expressions; the peak is that of a kernel's first tensor."""
    known = dict(target.peak)
    peak = known.get(dtype_name(first.dtype)) if first is not None else None
    if peak is None:
        peak = max(known.values(), default=math.inf)
    return {"peak": peak, "bandwidth": target.bandwidth, "launch": target.launch}
