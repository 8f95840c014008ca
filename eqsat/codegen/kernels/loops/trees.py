"""Ensembles of decision trees; mirrors ``eqsat/ops/families/trees.py``. Features and sums are float or double."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from eqsat.codegen import c_types
from eqsat.codegen.expressions.forms import INTEGERS
from eqsat.codegen.kernel import GeneratedKernel, Task
from eqsat.codegen.kernel_templates import Template
from eqsat.codegen.kernels.loops.family import are, dtype_of, loops, shape_of
from eqsat.codegen.kernels.loops.tree_tables import TooMany, tables
from eqsat.ops.ensemble import ensemble
from eqsat.ops.families.maps import ML
from eqsat.ops.families.trees import aggregate_of, base_values, is_plain
from eqsat.schema.dtypes import FLOATS

_TOGETHER = 32
"""Rows that meet a tree one after the other, while it is in the cache."""
_ON_STACK = 512
"""Sums that are local variables; more of them are working memory."""
_SIGNS = ("<=", "<", ">=", ">", "==", "!=")


def _fits(task: Task) -> bool:
    if not is_plain(task.attributes) or not are(task, FLOATS | INTEGERS, 0):
        return False
    try:
        trees = ensemble(task.attributes, _kind(task))
        tables(trees)
    except (ValueError, TooMany):
        return False
    return shape_of(task, 0)[-1] >= trees.features


def _kind(task: Task) -> np.dtype:
    return np.dtype(np.float64 if dtype_of(task, 0) == ir.DataType.DOUBLE else np.float32)


@loops("trees", "TreeEnsembleRegressor", "TreeEnsemble", domain=ML, accepts=_fits)
def tree_sums(task: Task) -> GeneratedKernel:
    """The sums, means, least or greatest values of the leaves that each row reaches."""
    template = Template(task)
    x, y = template.operand(0), template.result()
    kind = _kind(task)
    c = "double" if kind == np.float64 else "float"
    trees, aggregate, base = (
        ensemble(task.attributes, kind),
        aggregate_of(task.attributes),
        base_values(task.attributes),
    )
    made = tables(trees)
    seen, targets, rows = aggregate in ("MIN", "MAX"), trees.targets, y.shape[0]
    together = 1 if rows == 1 or targets > _ON_STACK else _TOGETHER
    on_stack = together * targets <= _ON_STACK

    def table(array: np.ndarray | None) -> str | None:
        return None if array is None else template.table(array).operand.name

    def feature(row: str, k: str) -> str:
        value = x.load(*((row, k) if x.rank == 2 else (k,)))
        return value if x.c == c else f"({c}){value}"

    return template.fill(
        "loops/trees.c.jinja",
        c=c,
        rows=rows,
        together=together,
        targets=targets,
        feature=feature,
        count=len(trees.roots),
        root=table(made.root),
        jump=table(made.jump),
        compared=table(made.feature),
        threshold=table(made.threshold),
        mode=table(made.mode),
        modes=[(number, _SIGNS[number]) for number in made.modes],
        missing=table(made.missing),
        first=table(made.first),
        target=table(made.target) if made.first is not None else None,
        weight=table(made.weight) if made.first is not None else None,
        base=table(np.broadcast_to(base, targets).astype(kind)) if base.size else None,
        seen=seen,
        sign={"MIN": "<", "MAX": ">"}.get(aggregate),
        divisor=c_types.literal(len(trees.roots), x.dtype) if aggregate == "AVERAGE" else None,
        on_stack=on_stack,
        scratch=0 if on_stack else together * targets * (kind.itemsize + seen),
    )
