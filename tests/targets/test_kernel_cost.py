"""Costs by hand: the roofline, a file's own expressions, copies, sizes that are not known."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqsat.errors import OptimizationError, TargetError
from eqsat.rules.ast import Target
from eqsat.rules.evaluation import NodeFacts, TensorFacts
from eqsat.rules.reader import read_text
from eqsat.schema.attributes import make_attrs
from eqsat.schema.body import Body, BodyNode
from eqsat.schema.types import Attrs, OpKey, TensorAttr, TensorType
from eqsat.targets.find_targets import load_targets
from eqsat.targets.kernel_cost import CostModel

FLOAT, INT8, INT64, STRING = ir.DataType.FLOAT, ir.DataType.INT8, ir.DataType.INT64, ir.DataType.STRING

HOST = """
host slow
    peak float32 = 1e9
    bandwidth = 1e9, launch = 1e-3
    supports *
"""
NPU = """
target npu
    summary "for sums by hand"
    peak float32 = 1e12, int8 = 4e12
    bandwidth = 1e10, launch = 10e-6, dispatch = 50e-6
    link bandwidth = 1e9, latency = 2e-6
    supports Conv where x.dtype == float32, node.group == 1      because "it has no groups"
    supports Conv where x.dtype == int8
    supports Relu cost launch + 3 * bytes / bandwidth
    supports Clip cost launch + 5 if const(min, max) else inf
    supports Add, Mul where x.rank >= 2 cost macs / peak + y.size
    supports Add
    supports Gather cost y.size * bits(y.dtype) / 8
    supports Sum cost len(data_0)
    supports Tile cost 1 if repeats.value[0] == 2 else 2
    composite conv_relu : exact
        let c = Conv(x, w, b?)
        Relu(c)
        where c.group == 1
    composite dear : exact
        let c = Conv(x, w)
        Sigmoid(c)
        cost launch + macs * c.strides[0] + w.size + k
        let k = x.rank
"""


def read(text: str) -> Target:
    return read_text(text, "hand.target").targets[0]


@pytest.fixture
def model() -> CostModel:
    return CostModel([read(HOST), read(NPU)])


def tensor(*shape: int | str | None, dtype: ir.DataType = FLOAT) -> TensorType:
    return TensorType(dtype, shape)


def known(*types: TensorType | None) -> list[TensorFacts | None]:
    return [None if t is None else TensorFacts(t) for t in types]


def attrs(op: str, **values: object) -> Attrs:
    return make_attrs(OpKey("", op), values)


CONV = OpKey("", "Conv")
X, W, B, Y = tensor(1, 3, 32, 32), tensor(16, 3, 3, 3), tensor(16), tensor(1, 16, 30, 30)
MACS = 16 * 30 * 30 * 3 * 3 * 3
BYTES = 4 * (3 * 32 * 32 + 16 * 27 + 16 + 16 * 30 * 30)


def test_roofline_of_a_convolution(model: CostModel) -> None:
    operands = known(X, W, B)
    slow = 1e-3 + max(MACS / 1e9, BYTES / 1e9)
    assert model.operator(0, CONV, attrs("Conv"), operands, [Y]) == pytest.approx(slow, rel=1e-12)
    assert model.operator(1, CONV, attrs("Conv"), operands, [Y]) == pytest.approx(10e-6 + BYTES / 1e10, rel=1e-12)
    wide = tensor(1, 300, 32, 32), tensor(160, 300, 3, 3)
    macs, moved = 160 * 900 * 2700, 4 * (300 * 1024 + 160 * 2700 + 160 * 900)
    assert macs / 1e12 > moved / 1e10
    assert model.operator(1, CONV, attrs("Conv"), known(*wide), [tensor(1, 160, 30, 30)]) == pytest.approx(
        10e-6 + macs / 1e12, rel=1e-12
    )


def test_peak_is_that_of_the_first_operand_else_the_largest(model: CostModel) -> None:
    macs = 1600 * 900 * 2700
    for dtype, peak in ((FLOAT, 1e12), (INT8, 4e12), (ir.DataType.FLOAT16, 4e12)):
        text = NPU.replace("supports Conv where x.dtype == int8", "supports Conv")
        priced = CostModel([read(HOST), read(text)])
        types = [tensor(1, 300, 32, 32, dtype=dtype), tensor(1600, 300, 3, 3, dtype=dtype)]
        y = tensor(1, 1600, 30, 30, dtype=dtype)
        moved = sum(t.bytes or 0 for t in (*types, y))
        expected = 10e-6 + max(macs / peak, moved / 1e10)
        assert priced.operator(1, CONV, attrs("Conv"), known(*types), [y]) == pytest.approx(expected, rel=1e-12)


def test_first_entry_that_holds_counts_and_else_it_is_unsupported(model: CostModel) -> None:
    grouped = attrs("Conv", group=3)
    x, w, y = tensor(1, 3, 8, 8), tensor(3, 1, 3, 3), tensor(1, 3, 6, 6)
    assert model.operator(1, CONV, grouped, known(x, w), [y]) == math.inf
    assert model.operator(1, CONV, attrs("Conv"), known(x, tensor(3, 3, 3, 3)), [y]) < math.inf
    small = [TensorType(INT8, t.shape) for t in (x, w)]
    assert model.operator(1, CONV, grouped, known(*small), [TensorType(INT8, y.shape)]) < math.inf
    assert model.operator(1, OpKey("", "Sigmoid"), (), known(x), [x]) == math.inf
    assert model.operator(1, OpKey("npu", "Conv"), (), known(x), [x]) == math.inf
    add = OpKey("", "Add")
    assert model.operator(1, add, (), known(tensor(2, 5), tensor(5)), [tensor(2, 5)]) == pytest.approx(10 / 1e12 + 10)
    assert model.operator(1, add, (), known(tensor(5), tensor(5)), [tensor(5)]) == pytest.approx(10e-6 + 60 / 1e10)


def test_costs_of_the_file(model: CostModel) -> None:
    x = tensor(10, 10)
    assert model.operator(1, OpKey("", "Relu"), (), known(x), [x]) == pytest.approx(10e-6 + 3 * 800 / 1e10)
    gather = known(tensor(1000, 10), tensor(3, dtype=INT64))
    assert model.operator(1, OpKey("", "Gather"), attrs("Gather"), gather, [tensor(3, 10)]) == 120
    assert model.operator(1, OpKey("", "Sum"), (), known(x, x, x), [x]) == 3
    clip = OpKey("", "Clip")
    bound = TensorFacts(tensor(), np.array(0, np.float32), True)
    assert model.operator(1, clip, (), [TensorFacts(x), bound, bound], [x]) == pytest.approx(5 + 10e-6)
    assert model.operator(1, clip, (), [TensorFacts(x), bound], [x]) == pytest.approx(5 + 10e-6)
    assert model.operator(1, clip, (), [TensorFacts(x), TensorFacts(tensor())], [x]) == math.inf


def test_the_same_types_with_other_values_are_priced_anew(model: CostModel) -> None:
    tile = OpKey("", "Tile")
    for count, cost in ((2, 1), (3, 2), (2, 1)):
        repeats = TensorFacts(tensor(1, dtype=INT64), np.array([count]), True)
        assert model.operator(1, tile, (), [TensorFacts(tensor(6)), repeats], [tensor(6 * count)]) == cost


def body(op: str, conv: Attrs, inputs: int) -> Body:
    nodes = (BodyNode(CONV, conv, tuple(range(inputs))), BodyNode(OpKey("", op), (), (inputs,)))
    return Body(inputs, nodes, (inputs + 1,))


def test_a_composite_moves_its_outer_tensors_only(model: CostModel) -> None:
    composite = read(NPU).composites[0]
    fused = model.composite(1, composite, {}, body("Relu", attrs("Conv"), 3), [X, W, B], Y)
    assert fused == pytest.approx(10e-6 + BYTES / 1e10, rel=1e-12)
    assert fused == model.composite(1, composite, {}, body("Relu", attrs("Conv"), 3), known(X, W, B), Y)
    alone = model.operator(1, CONV, attrs("Conv"), known(X, W, B), [Y])
    assert fused < alone + model.operator(1, OpKey("", "Relu"), (), known(Y), [Y])


def test_macs_of_a_composite_are_those_of_its_body(model: CostModel) -> None:
    composite = read(NPU).composites[1]
    conv = attrs("Conv", strides=[1, 1])
    env = {"x": TensorFacts(X), "w": TensorFacts(W), "c": NodeFacts(CONV, conv, TensorFacts(Y))}
    priced = model.composite(1, composite, env, body("Sigmoid", conv, 2), [X, W], Y)
    work = MACS + 16 * 900  # one for each element of the sigmoid
    assert priced == pytest.approx(10e-6 + work + 16 * 27 + 4, rel=1e-12)


def test_a_shape_inside_that_depends_on_an_input(model: CostModel) -> None:
    """The product after a Reshape has MACs only if the new shape is known."""
    composite = read(NPU).composites[0]
    nodes = (BodyNode(OpKey("", "Reshape"), attrs("Reshape"), (0, 1)), BodyNode(OpKey("", "MatMul"), (), (3, 2)))
    flat = Body(3, nodes, (4,))
    x, shape, w, y = tensor(2000, 40, 50), tensor(2, dtype=INT64), tensor(2000, 3000), tensor(2000, 3000)
    facts = [TensorFacts(x), TensorFacts(shape, np.array([2000, 2000]), True), TensorFacts(w)]
    assert model.composite(1, composite, {}, flat, facts, y) == pytest.approx(10e-6 + 2000 * 2000 * 3000 / 1e12)


@given(st.lists(st.integers(1, 50), max_size=4), st.sampled_from([FLOAT, INT8, ir.DataType.INT4, ir.DataType.DOUBLE]))
def test_bytes_of_any_tensor(shape: list[int], dtype: ir.DataType) -> None:
    model = CostModel([read(HOST), read(NPU)])
    x = TensorType(dtype, tuple(shape))
    size = math.ceil(math.prod(shape) * dtype.bitwidth / 8)
    assert model.copy_in(1, x) == model.copy_out(1, x) == pytest.approx(2e-6 + size / 1e9, rel=1e-12)
    assert model.copy_in(0, x) == model.copy_out(0, x) == 0
    relu = model.operator(1, OpKey("", "Relu"), (), known(x), [x])
    assert relu == pytest.approx(10e-6 + 3 * 2 * size / 1e10, rel=1e-12)


def test_dispatch(model: CostModel) -> None:
    assert [model.dispatch(0), model.dispatch(1)] == [0, 50e-6]
    without = read(NPU.replace(", dispatch = 50e-6", ""))
    assert CostModel([read(HOST), without]).dispatch(1) == 2e-6


def test_views_cost_a_launch_on_the_host_and_lookups_what_they_read() -> None:
    model = CostModel(load_targets("cpu"))
    x = tensor(1000, 1000)
    shape = TensorFacts(tensor(1, dtype=INT64), np.array([-1]), True)
    assert model.operator(0, OpKey("", "Reshape"), attrs("Reshape"), [TensorFacts(x), shape], [tensor(10**6)]) == 1e-6
    assert model.operator(0, OpKey("", "Identity"), (), known(x), [x]) == 1e-6
    assert model.operator(0, OpKey("", "Shape"), attrs("Shape"), known(x), [tensor(2, dtype=INT64)]) == 1e-6
    assert model.operator(0, OpKey("", "Transpose"), attrs("Transpose", perm=[1, 0]), known(x), [x]) == pytest.approx(
        1e-6 + 8e6 / 10e9
    )
    table = known(tensor(30000, 768), tensor(128, dtype=INT64))
    rows = tensor(128, 768)
    assert model.operator(0, OpKey("", "Gather"), attrs("Gather"), table, [rows]) == pytest.approx(
        1e-6 + 2 * 128 * 768 * 4 / 10e9
    )


# ---- sizes that are not known ----------------------------------------------------------------------


@pytest.mark.parametrize("shape", [("batch", 4), ("2*batch", 4), (None, "batch + _d3")])
def test_a_symbol_that_can_be_bound_is_an_error(model: CostModel, shape: tuple[str | None, ...]) -> None:
    x = tensor(*shape)
    with pytest.raises(OptimizationError) as error:
        model.operator(0, OpKey("", "Relu"), (), known(x), [x], place="node `act`")
    assert "node `act`" in str(error.value)
    assert "input 0" in str(error.value)
    assert 'dims={"batch": 1}' in str(error.value)
    assert "--dim batch=1" in str(error.value)
    with pytest.raises(OptimizationError):
        model.copy_in(1, x)


def test_a_target_that_does_not_run_it_need_not_know_sizes(model: CostModel) -> None:
    x = tensor("batch", 4)
    assert model.operator(1, OpKey("", "Sigmoid"), (), known(x), [x]) == math.inf


@pytest.mark.parametrize("shape", [(2, None), (None, None), None, (2, "_d0"), ("unk__3", 2)])
def test_sizes_that_data_decide_are_bounded_by_the_largest_tensor(shape: tuple[str | None, ...] | None) -> None:
    model = CostModel([read(HOST), read(NPU)], unknown_elements=1000)
    x = TensorType(FLOAT, shape)
    assert model.operator(0, OpKey("", "Relu"), (), known(x), [x]) == pytest.approx(1e-3 + 8000 / 1e9)
    assert model.copy_in(1, x) == pytest.approx(2e-6 + 4000 / 1e9)


def test_estimated_sizes_never_fail(model: CostModel) -> None:
    """A rank that does not fit the operator: its elements are the estimate."""
    unknown = TensorType(FLOAT, None)
    cost = model.operator(0, CONV, attrs("Conv"), known(unknown, unknown), [unknown])
    assert 1e-3 < cost < math.inf
    einsum = attrs("Einsum", equation="ij,jk")
    assert model.operator(0, OpKey("", "Einsum"), einsum, known(unknown, unknown), [unknown]) > 1e-3


def test_tensors_of_strings_and_values_that_are_no_tensors(model: CostModel) -> None:
    names = tensor(5, dtype=STRING)
    assert model.operator(0, OpKey("", "Identity"), (), known(names), [names]) == pytest.approx(1e-3 + 80 / 1e9)
    sequence = [TensorFacts(None)]
    length = model.operator(0, OpKey("", "SequenceLength"), (), sequence, [tensor(dtype=INT64)])
    assert length == pytest.approx(1e-3 + 8 / 1e9)


def test_operators_without_operands_or_schema(model: CostModel) -> None:
    value = (("value", TensorAttr(np.zeros((5,), np.float32), FLOAT)),)
    assert model.operator(0, OpKey("", "Constant"), value, [], [tensor(5)]) == pytest.approx(1e-3 + 20 / 1e9)
    opaque = OpKey("some.vendor", "Thing")
    assert model.operator(0, opaque, (), known(X), [X]) == pytest.approx(1e-3 + 2 * 4 * 3 * 1024 / 1e9)


# ---- expressions that give no cost -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("cost", "actual"),
    [("-1", "-1"), ("y.size - 1000", "-900"), ("1 / (y.size - 100)", "nothing"), ("max(x.value)", "nothing")],
)
def test_a_cost_that_is_none_names_its_place(cost: str, actual: str) -> None:
    text = NPU.replace("cost launch + 3 * bytes / bandwidth", f"cost {cost}")
    line = next(i for i, row in enumerate(text.splitlines(), 1) if "supports Relu" in row)
    model = CostModel([read(HOST), read(text)])
    with pytest.raises(TargetError) as error:
        model.operator(1, OpKey("", "Relu"), (), known(tensor(10, 10)), [tensor(10, 10)])
    assert f"hand.target:{line}:" in str(error.value)
    assert "the cost of Relu" in str(error.value)
    assert f"got {actual}" in str(error.value)
