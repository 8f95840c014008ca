"""Attributes of functions that an older opset lacks: bound to the values of the calls, so that the file may be old."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from eqsat.model.write.older import with_source_opset
from eqsat.schema.opset import PINNED_OPSET
from eqsat.schema.versions import SOURCE_OPSET
from tests.model.running import run_reference

_TEXT = f"""<ir_version: 10, opset_import: ["": {PINNED_OPSET}, "my": 1]>
g (float[2,3] x) => (int64[2] y, int64[2] z) {{
  y = my.last<last = %d, keep = 0>(x)
  z = my.last<last = %d, keep = 0>(x)
}}
<domain: "my", opset_import: ["": {PINNED_OPSET}]>
last <last, keep> (a) => (b) {{
  b = ArgMax<axis = 1, keepdims: int = @keep, select_last_index: int = @last>(a)
}}
"""


@pytest.mark.parametrize(("first", "second", "version", "functions"), [(0, 0, 11, 1), (1, 1, 12, 1), (0, 1, 12, 2)])
def test_a_new_attribute_is_bound(first: int, second: int, version: int, functions: int) -> None:
    proto = onnx.parser.parse_model(_TEXT % (first, second))
    x = {"x": np.array([[1, 5, 5], [7, 7, 2]], np.float32)}
    wanted = run_reference(proto, x)
    model = ir.from_proto(proto)
    model.metadata_props[SOURCE_OPSET] = "11,6"
    old = with_source_opset(model)
    assert old.opset_imports[""] == version
    assert len(old.functions) == functions
    assert all(node.op_type == "ArgMax" for f in old.functions.values() for node in f)
    for a, b in zip(wanted, run_reference(ir.to_proto(old), x), strict=True):
        np.testing.assert_array_equal(a, b)
    onnx.checker.check_model(ir.to_proto(old), full_check=True)
