"""What egglog asks Python is answered, whatever was answered before, and absent operands are not unknown ones."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import eqsat
from eqsat import op
from eqsat.model.builder import Tensor
from eqsat.schema.types import TensorType
from tests.egraph.helpers import model, saturated

LARGE = np.abs(np.random.default_rng(0).standard_normal(5000)).astype(np.float32)
"""Too large to be computed during saturation."""


@pytest.mark.parametrize(
    ("unknown", "wanted"),
    [(op.CumSum(LARGE, np.int64(0)), LARGE.sum()), (op.Einsum(LARGE, equation="i->i"), LARGE.max())],
    ids=["CumSum", "Einsum"],
)
@pytest.mark.parametrize("size", [(2, 8), (100, 80)])
def test_an_operand_that_is_not_computed_is_not_absent(unknown: Tensor, wanted: float, size: tuple[int, int]) -> None:
    x = eqsat.input("x", size)
    least = op.ReduceMax(unknown, keepdims=0)
    result = eqsat.optimize(eqsat.graph(x + op.Clip(np.zeros(size, np.float32), least)), verify=False)
    (found,) = result.run({"x": np.zeros(size, np.float32)}).values()
    np.testing.assert_allclose(found, np.full(size, wanted), rtol=1e-5)


def test_a_demand_is_answered_after_answers_that_nobody_demanded() -> None:
    """A table of demands is read whenever it has grown, even if it is then as long as the list of answers."""
    saturation = saturated(model("out = Transpose<perm = [1, 0]>(x)", "float[2,3] x", "float[3,2] out"))
    facts, tables, engine = saturation.facts, saturation.tables, saturation.engine
    (transpose,) = (c for c in saturation.vocabulary.constructors.values() if c.op.name == "Transpose")
    unmoved = tables.attrs.id((("perm", (0, 1)),))
    other = TensorType(ir.DataType.FLOAT, (7, 7))
    assert facts._answer("type", transpose, (unmoved, tables.types.id(other)), [])
    typed = len(engine.tables()["type"].rows)
    engine.run_text([transpose.call(str(unmoved), ["(Input 0)"])])
    facts.saturate()
    assert len(engine.tables()["type"].rows) == typed + 1
