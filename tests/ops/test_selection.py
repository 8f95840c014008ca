"""Results have elements of operands where operators declare it: the results that ONNX has recorded are the judge."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from eqsat.ops.operators import declared
from eqsat.ops.registry import OperatorFacets
from tests.model.node_cases import as_array, cases

NEWER = ("Compress", "ReverseSequence")
"""Their cases in ONNX are of a version after the pinned one."""
SELECTING = [found for found in declared() if found.selects is not None and found.op.name not in NEWER]


def elements(arrays: Iterable[np.ndarray | None]) -> set[object]:
    return {x for array in arrays if array is not None for x in array.reshape(-1).tolist()}


@pytest.mark.parametrize("operator", SELECTING, ids=lambda operator: operator.op.name)
def test_elements_come_from_operands(operator: OperatorFacets) -> None:
    selects, tried, computed = operator.selects, 0, 0
    assert selects is not None
    for case in cases():
        operands = case.operand_values()
        result = as_array(case.expected[case.outputs[0]]) if case.op == operator.op else None
        if result is None or (operands[0] is not None and not operands[0].size):
            continue  # The greatest of no elements is the least number of the type.
        tried += 1
        computed += not elements([result]) <= elements(operands[i] for i in selects.sources(len(operands)))
    assert tried
    assert selects.adds or not computed
