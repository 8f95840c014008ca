"""What models to be optimized may have as inputs, and which sizes must be known."""

from __future__ import annotations

import numpy as np
import pytest

import eqsat
from eqsat.errors import OptimizationError, QuantizationError
from eqsat.model.load import load

_HEAD = '<ir_version: 10, opset_import: ["": 21]> '


@pytest.mark.parametrize(
    ("kind", "body", "found"),
    [
        ("seq(float[2])", "y = SequenceLength(s)", "a sequence"),
        ("optional(float[2])", "y = OptionalHasElement(s)", "an optional"),
    ],
)
def test_tensors_are_required(kind: str, body: str, found: str) -> None:
    result = "int64" if "seq" in kind else "bool"
    with pytest.raises(OptimizationError) as error:
        eqsat.optimize(f"{_HEAD} g ({kind} s) => ({result} y) {{ {body} }}")
    assert (error.value.place, error.value.actual) == ("input 's'", found)
    assert "dims" not in error.value.hint


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
