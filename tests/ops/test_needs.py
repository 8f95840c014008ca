"""What operators are said to need is at least what their results take, on every node case of ONNX's own suite."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx.backend.test.case.node import collect_testcases

from eqsat import bounds
from eqsat.errors import LimitError
from eqsat.ops.evaluate import evaluate, fold, try_need
from eqsat.ops.needs import need_of
from eqsat.ops.schemas import defaults
from eqsat.schema.attributes import make_attrs
from eqsat.schema.types import OpKey


@pytest.mark.slow
def test_needs_cover_results() -> None:
    """A need below what is made would let a bomb pass; the suite has each operator in many forms."""
    seen: dict[str, int] = {}
    for case in collect_testcases(None):
        node = case.model.graph.node[0]
        if len(case.model.graph.node) > 1 or case.model.functions or node.domain:
            continue
        for inputs, outputs in case.data_sets:
            given = iter(inputs)
            operands = [next(given) if name else None for name in node.input]
            if not all(x is None or isinstance(x, np.ndarray) for x in operands):
                continue
            attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
            attributes = {k: v.decode() if isinstance(v, bytes) else v for k, v in attributes.items()}
            op = OpKey("", node.op_type)
            need = try_need(op, {**defaults(op), **attributes}, operands)
            made = sum(np.size(x) for x in outputs if isinstance(x, np.ndarray))
            if need is None or op.name in SMALL:
                continue
            seen[op.name] = seen.get(op.name, 0) + 1
            assert 4 * need.elements + 1000 >= made, f"{case.name}: {need} for {made}"
    assert len(seen) > 100


SMALL = frozenset({"Constant", "ImageDecoder"})
"""Operators whose result is an attribute, or unpacked from what is compressed."""


def _vector(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@pytest.mark.parametrize(
    ("name", "attributes", "inputs", "elements"),
    [
        ("Expand", {}, [np.ones((3, 1)), _vector(2, 1, 10**12)], 6 * 10**12),
        ("Tile", {}, [np.ones((3, 4)), _vector(10**9, 5)], 60 * 10**9),
        ("Pad", {}, [np.ones((2, 3)), _vector(0, 10**9, 1, 0)], 3 * (10**9 + 3)),
        ("ConstantOfShape", {}, [_vector(2**62, 4)], 2**64),
        ("Range", {}, [np.array(0), np.array(10**15), np.array(10)], 10**14),
        ("OneHot", {}, [_vector(1, 2), np.array(10**12), np.ones(2)], 2 * 10**12),
        ("MatMul", {}, [np.broadcast_to(1.0, (5, 2**20, 7)), np.broadcast_to(1.0, (7, 2**20))], 5 * 2**40),
        ("Add", {}, [np.broadcast_to(1.0, (2**20, 1)), np.broadcast_to(1.0, (1, 2**20))], 2**40),
        ("Gather", {}, [np.ones((2, 10)), np.broadcast_to(np.int64(0), (10**6, 10**6))], 10**13),
    ],
)
def test_large_needs_are_exact(name: str, attributes: dict, inputs: Sequence[np.ndarray], elements: int) -> None:
    op = OpKey("", name)
    assert need_of(op, {**defaults(op), **attributes}, inputs).elements == elements


def test_what_is_too_large_is_neither_computed_nor_folded() -> None:
    op = OpKey("", "Expand")
    attrs = make_attrs(op, {})
    with pytest.raises(LimitError, match="memory limit"), bounds.metered(memory=10**9):
        evaluate(op, attrs, [np.ones(1, np.float32), _vector(10**9)])
    with pytest.raises(LimitError, match="computed in advance"):
        fold(op, attrs, [np.ones(1, np.float32), _vector(10**8)])
    (found,) = fold(op, attrs, [np.ones(1, np.float32), _vector(10**6)])
    assert found is not None and found.shape == (10**6,)
