"""Why an operator stays on the host: which condition, what it says, what was found."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from eqsat.rules.evaluation import TensorFacts
from eqsat.rules.print_term import flat
from eqsat.rules.reader import read_text
from eqsat.schema.attributes import make_attrs
from eqsat.schema.types import OpKey, TensorType
from eqsat.targets.find_targets import load_targets
from eqsat.targets.kernel_cost import CostModel

FILE = """
target npu
    peak float32 = 1e12
    bandwidth = 1e10, launch = 10e-6
    link bandwidth = 1e9, latency = 2e-6
    supports Conv
        where x.dtype == int8                       because "its multipliers are 8 bits wide",
              node.group == 1 and x.rank == 4       because "it has no groups"
    supports Conv
        where x.dtype == float32, x.shape[1] <= 64
    supports MaxPool
        where not Indices.is_present
    supports Sum
        where len(data_0) <= 3, all([v.shape == y.shape for v in data_0])
    supports Clip
        where const(min, max)                       because "bounds are fixed"
    supports Resize
        where all([y.shape[i] % x.shape[i] == 0 and x.shape[i] <= y.shape[i] < 1000 for i in range(x.rank)])
                                                    because "it repeats pixels"
    composite pair : exact
        Relu(x + y) | Tanh(x + y)
"""
FLOAT, INT8 = ir.DataType.FLOAT, ir.DataType.INT8


@pytest.fixture
def model() -> CostModel:
    return CostModel([*load_targets(()), *read_text(FILE, "npu.target").targets])


def why(
    model: CostModel, op: str, inputs: list[TensorFacts | None], outputs: list[TensorType | None], **attrs: object
) -> str:
    return model.why_not(1, OpKey("", op), make_attrs(OpKey("", op), attrs), inputs, outputs)


def tensor(*shape: int | str | None, dtype: ir.DataType = FLOAT) -> TensorFacts:
    return TensorFacts(TensorType(dtype, shape))


def kind(*shape: int | str | None, dtype: ir.DataType = FLOAT) -> TensorType:
    return TensorType(dtype, shape)


def test_not_supported_at_all(model: CostModel) -> None:
    assert why(model, "Softmax", [tensor(4)], [kind(4)]) == "operator not supported by npu"


def test_only_within_composites(model: CostModel) -> None:
    assert why(model, "Add", [tensor(4), tensor(4)], [kind(4)]) == "npu runs Add only within pair"
    assert why(model, "Tanh", [tensor(4)], [kind(4)]) == "npu runs Tanh only within pair"


def test_each_entry_says_why(model: CostModel) -> None:
    x, w = tensor(1, 128, 8, 8), tensor(16, 128, 3, 3)
    assert why(model, "Conv", [x, w], [kind(1, 16, 6, 6)]) == (
        "npu runs Conv only where x.dtype == int8 (its multipliers are 8 bits wide): x.dtype is float32; "
        "or where x.shape[1] <= 64: x.shape is [1, 128, 8, 8]"
    )


def test_of_a_conjunction_the_part_that_fails(model: CostModel) -> None:
    x, w = tensor(1, 128, 8, 8, dtype=INT8), tensor(16, 64, 3, 3, dtype=INT8)
    reason = why(model, "Conv", [x, w], [kind(1, 16, 6, 6, dtype=INT8)], group=2)
    assert "node.group == 1 (it has no groups): node.group is 2;" in reason
    x = tensor(1, 128, 8, dtype=INT8)
    assert "x.rank == 4 (it has no groups): x.rank is 3;" in why(model, "Conv", [x, w], [kind(1, 16, 6, dtype=INT8)])


def test_empty_where_it_is_supported(model: CostModel) -> None:
    assert why(model, "Conv", [tensor(1, 3, 8, 8), tensor(16, 3, 3, 3)], [kind(1, 16, 6, 6)]) == ""
    assert model.why_not(0, OpKey("", "Softmax"), (), [tensor(4)], [kind(4)]) == ""


def test_results_operands_and_constants(model: CostModel) -> None:
    pooled = [kind(1, 3, 4, 4), kind(1, 3, 4, 4, dtype=ir.DataType.INT64)]
    assert why(model, "MaxPool", [tensor(1, 3, 5, 5)], pooled, kernel_shape=[2, 2]) == (
        "npu runs MaxPool only where not Indices.is_present: Indices.is_present is true"
    )
    four = [tensor(4)] * 4
    assert why(model, "Sum", four, [kind(4)]) == "npu runs Sum only where len(data_0) <= 3: len(data_0) is 4"
    assert why(model, "Sum", [tensor(2, 4), tensor(4)], [kind(2, 4)]) == (
        "npu runs Sum only where all([v.shape == y.shape for v in data_0]): y.shape is [2, 4]"
    )
    bound = TensorFacts(kind(), np.array(0, np.float32), True)
    assert why(model, "Clip", [tensor(4), bound, tensor()], [kind(4)]) == (
        "npu runs Clip only where const(min, max) (bounds are fixed): min.is_const is true, max.is_const is false"
    )
    assert why(model, "Clip", [tensor(4), bound], [kind(4)]) == ""


def test_a_long_condition_is_left_to_its_explanation(model: CostModel) -> None:
    reason = why(model, "Resize", [tensor(1, 1, 4, 4)], [kind(1, 1, 6, 6)])
    assert reason == (
        "npu runs Resize only where it repeats pixels: x.rank is 4, y.shape is [1, 1, 6, 6], x.shape is [1, 1, 4, 4]"
    )


def test_what_is_not_known_is_said(model: CostModel) -> None:
    x = tensor("N", None, 8, 8)
    reason = why(model, "Conv", [x, tensor(16, 3, 3, 3)], [kind("N", 16, 6, 6)])
    assert reason.endswith("x.shape[1] <= 64: x.shape is [N, ?, 8, 8]")
    assert "x.dtype is not known" in why(model, "Conv", [TensorFacts(None), None], [None])
    assert "x.dtype is absent" in why(model, "Conv", [None], [None])


@pytest.mark.parametrize(
    "text",
    [
        "x.rank == 4 and (x.size > 3 or not x.is_const)",
        "x.shape[0:2] == [1, 2] and x.shape[1:] != [] and x.shape[:-1] == x.shape[:2]",
        "1 < x.rank <= 4 and x.dtype in [int8, uint8] and x.dtype not in floats",
        "-x.rank * (2 + 3) ** 2 // 4 % 5 - (1 - (2 - 3)) < 0.5",
        "2 ** 3 ** 2 == (2 ** 3) ** 2",
        "all([i * i == 4 for i in x.shape if i > 1])",
        "(1 if x.is_const else 2) == 1",
        'node.auto_pad in ["NOTSET", "VALID"] or true',
        "not (x.is_const and x.rank == 1)",
        "(x.rank == 1) == true",
    ],
)
def test_words_read_back_as_the_same_expression(text: str) -> None:
    def read(condition: str) -> str:
        file = FILE.replace("not Indices.is_present", condition)
        (entry,) = (s for s in read_text(file, "npu.target").targets[0].supports if s.ops == (OpKey("", "MaxPool"),))
        (where,) = entry.where
        return flat(where.expr)

    assert read(text) == text
    assert read(read(text)) == text
