"""What models to be optimized may have as inputs, and which sizes must be known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat.errors import QuantizationError
from eqsat.model.load import load

_HEAD = '<ir_version: 10, opset_import: ["": 21]> '


X = np.array([1, -2], np.float32)


@pytest.mark.parametrize(
    ("kind", "body", "given", "expected"),
    [
        ("seq(float[2])", "y = SequenceLength(s)", [X, X, X], 3),
        ("seq(float[2])", "y = SequenceLength(s)", [], 0),
        ("optional(float[2])", "y = OptionalHasElement(s)", X, True),
        ("optional(float[2])", "y = OptionalHasElement(s)", None, False),
    ],
)
def test_sequences_and_optionals_are_inputs(kind: str, body: str, given: Any, expected: int) -> None:
    kind_of_result = "int64" if "seq" in kind else "bool"
    result = eqsat.optimize(
        f"{_HEAD} g ({kind} s, float[2] x) => ({kind_of_result} y, float[2] z) {{ {body} n = Neg(x) z = Neg(n) }}"
    )
    assert "Neg" not in {node.op_type for node in result.model.graph}
    found = result.run({"s": given, "x": X})
    assert found["y"] == expected
    np.testing.assert_array_equal(found["z"], X)


def test_symbols_of_inputs_are_bound_where_samples_are_measured() -> None:
    with pytest.raises(QuantizationError, match="at least one sample is required"):
        eqsat.quantize(f"{_HEAD} g (float[N,2] x) => (float[N,2] y) {{ y = Relu(x) }}", [])


def test_symbols_of_outputs_depend_on_data() -> None:
    text = _HEAD + "g (float[4] x) => (float[N] y) { z = Neg(x) n = Neg(z) c = Greater(x, z) y = Compress(n, c) }"
    assert load(text).graph.outputs[0].shape == ["N"]
    result = eqsat.optimize(text)
    assert result.summary.after.operators < 4
    x = np.array([1, -2, 3, 0], np.float32)
    np.testing.assert_array_equal(result.run({"x": x})["y"], [1, 3])
