"""What TVM does before it partitions keeps the values, on networks and on graphs made for each step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from benchmarks import graphs
from benchmarks.baseline.relax_import import as_relax
from benchmarks.baseline.relay_import import as_relay
from benchmarks.models import before_softmax, light, with_output
from eqsat.model.load import load

IMPORTS: list[Callable[[ir.Model], None]] = [
    as_relay,
    as_relax,
    lambda model: as_relax(model, split_biases=False),
]
NAMES = ["relay", "relax", "relax_with_biases"]


def _run(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, inputs)


def _after(model: onnx.ModelProto, step: Callable[[ir.Model], None]) -> onnx.ModelProto:
    loaded = load(model)
    step(loaded)
    proto = ir.to_proto(loaded)
    onnx.checker.check_model(proto)
    return proto


def _inputs(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    constant = {t.name for t in model.graph.initializer}
    return {
        i.name: rng.standard_normal([d.dim_value for d in i.type.tensor_type.shape.dim]).astype(np.float32)
        for i in model.graph.input
        if i.name not in constant
    }


def _check(model: onnx.ModelProto, step: Callable[[ir.Model], None], tolerance: float) -> onnx.ModelProto:
    rewritten = _after(model, step)
    assert [o.name for o in rewritten.graph.output] == [o.name for o in model.graph.output]
    inputs = _inputs(model)
    for expected, found in zip(_run(model, inputs), _run(rewritten, inputs), strict=True):
        assert found.dtype == expected.dtype
        scale = max(float(np.max(np.abs(expected))), 1e-3)
        np.testing.assert_allclose(found / scale, expected / scale, rtol=0, atol=tolerance)
    return rewritten


@pytest.mark.parametrize("step", IMPORTS, ids=NAMES)
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("shufflenet", [1, 1000]),
        ("squeezenet", [1, 1000, 1, 1]),
        pytest.param("inception_v2", [1, 1000], marks=pytest.mark.slow),
    ],
)
def test_networks(name: str, shape: list[int], step: Callable[[ir.Model], None]) -> None:
    model = light(name)
    _check(with_output(model, before_softmax(model), shape), step, 2e-5)


@pytest.mark.parametrize("step", IMPORTS, ids=NAMES)
@pytest.mark.parametrize(
    "model",
    [
        graphs.overlapping_chains(),
        graphs.region_order(16, first=True),
        graphs.shared_sum(),
        *map(graphs.dense_spelling, graphs.SPELLINGS),
        graphs.ccompiler_example(),
        graphs.residual_chain(3),
        graphs.residual_chain(3, affine=False),
    ],
    ids=lambda model: model.graph.name,
)
def test_cases(model: onnx.ModelProto, step: Callable[[ir.Model], None]) -> None:
    _check(model, step, 2e-6)


# ---- step by step ------------------------------------------------------------------------------------


class _Net:
    """Builds small networks over a tensor x of 1 x 6 x 7 x 7."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(1)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, array: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def draw(self, *shape: int, positive: bool = False) -> str:
        array = self.rng.uniform(0.5, 1.5, shape) if positive else self.rng.standard_normal(shape)
        return self.constant(array.astype(np.float32))

    def node(self, op: str, *operands: str, **attributes: object) -> str:
        self.nodes.append(helper.make_node(op, list(operands), [f"t{len(self.nodes)}"], **attributes))
        return self.nodes[-1].output[0]

    def conv(self, x: str, *, groups: int = 1, bias: bool = False) -> str:
        weights = [self.draw(6, 6 // groups, 3, 3)] + ([self.draw(6)] if bias else [])
        return self.node("Conv", x, *weights, pads=[1] * 4, group=groups)

    def model(self, *outputs: str) -> onnx.ModelProto:
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 6, 7, 7])
        results = [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs]
        graph = helper.make_graph(self.nodes, "net", [x], results, self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
        model = onnx.shape_inference.infer_shapes(model, strict_mode=True)
        onnx.checker.check_model(model)
        return model


def _operators(model: onnx.ModelProto) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.node)


def test_normalisation_is_folded_into_a_convolution() -> None:
    for bias in (False, True):
        net = _Net()
        y = net.node(
            "BatchNormalization",
            net.conv("x", bias=bias),
            *(net.draw(6, positive=p) for p in (True, False, False, True)),
            epsilon=0.01,
        )
        model = net.model(net.node("Relu", y))
        assert _operators(_check(model, as_relay, 2e-6)) == {"Conv": 1, "Relu": 1}
        # Relax folds only where the convolution has no bias.
        left = {"BatchNormalization": 1} if bias else {}
        assert _operators(_check(model, as_relax, 2e-6)) == {"Conv": 1, "Add": 1, "Relu": 1, **left}


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_scales_are_folded_forward(groups: int) -> None:
    """Through relu where they are positive, into full and depthwise convolutions."""
    for positive in (True, False):
        net = _Net()
        scaled = net.node("Mul", net.node("Tanh", "x"), net.draw(1, 6, 1, 1, positive=positive))
        shifted = net.node("Add", scaled, net.draw(6, 1, 1))
        model = net.model(net.conv(net.node("Relu", shifted), groups=groups))
        found = _operators(_check(model, as_relay, 2e-6))
        assert found["Mul"] == (0 if positive and groups in (1, 6) else 1)


def test_scales_are_folded_forward_into_all_readers_or_none() -> None:
    for other in ("Conv", "Sigmoid"):
        net = _Net()
        scaled = net.node("Mul", net.node("Tanh", "x"), net.draw(6, 1, 1))
        second = net.conv(scaled) if other == "Conv" else net.node(other, scaled)
        found = _operators(_check(net.model(net.conv(scaled), second), as_relay, 2e-6))
        assert found["Mul"] == (other != "Conv")


def test_scales_are_folded_backward_through_both_sides_of_a_sum() -> None:
    net = _Net()
    total = net.node("Add", net.node("Relu", net.conv("x")), net.conv("x", bias=True))
    model = net.model(net.node("Mul", total, net.draw(1, 6, 1, 1, positive=True)))
    assert _operators(_check(model, as_relay, 2e-6)) == {"Conv": 2, "Relu": 1, "Add": 1}


@pytest.mark.parametrize("reason", ["negative", "read twice", "output", "another axis"])
def test_scales_that_cannot_be_folded_stay(reason: str) -> None:
    net = _Net()
    y = net.node("Relu", net.conv("x"))
    scale = net.draw(7, 1) if reason == "another axis" else net.draw(6, 1, 1, positive=reason != "negative")
    outputs = [net.node("Mul", y, scale)]
    if reason == "read twice":
        outputs.append(net.node("Sigmoid", y))
    if reason == "output":
        outputs.append(y)
    assert _operators(_check(net.model(*outputs), as_relay, 2e-6))["Mul"] == 1


def test_constants_that_are_added_are_summed() -> None:
    net = _Net()
    y = net.node("Add", net.draw(6, 1, 1), net.node("Add", net.node("Tanh", "x"), net.draw(1, 6, 1, 1)))
    assert _operators(_check(net.model(y), as_relay, 2e-6)) == {"Tanh": 1, "Add": 1}


def test_reshapes_and_transpositions_in_a_row_become_one() -> None:
    net = _Net()
    y = net.node("Transpose", net.node("Transpose", "x", perm=[0, 2, 3, 1]), perm=[0, 3, 1, 2])
    flat = net.node("Reshape", net.node("Relu", y), net.constant(np.array([6, 49], np.int64)))
    back = net.node("Reshape", flat, net.constant(np.array([1, 6, 49], np.int64)))
    assert _operators(_check(net.model(back), as_relay, 0)) == {"Relu": 1, "Reshape": 1}


def test_relax_spells_sums_pools_and_normalisation_over_channels() -> None:
    net = _Net()
    total = net.node("Sum", net.node("Tanh", "x"), "x", net.draw(6, 1, 1))
    y = net.node("LRN", total, size=5, alpha=0.5, beta=0.6, bias=1.5)
    pooled = net.node("GlobalAveragePool", net.node("Max", y, net.draw(1)))
    flat = net.node("Flatten", pooled)
    bounds = net.constant(np.array(-0.5, np.float32)), net.constant(np.array(0.5, np.float32))
    dense = net.node(
        "Gemm", net.node("Clip", flat, *bounds), net.draw(5, 6), net.draw(5), alpha=0.5, beta=2.0, transB=1
    )
    found = _operators(_check(net.model(dense), as_relax, 2e-6))
    assert found == {
        "Tanh": 1,
        "Expand": 3,  # constant operands are broadcast at once
        "stack3": 1,
        "stack2": 1,
        "ReduceSum": 1,
        "ReduceMax": 1,
        "ReduceMean": 1,
        "Mul": 3,
        "Unsqueeze": 1,
        "AveragePool": 1,
        "Squeeze": 1,
        "Add": 2,
        "Pow": 1,
        "Div": 1,
        "Reshape": 1,
        "Max": 1,
        "Min": 1,
        "MatMul": 1,
    }


def test_dropout_is_relays_to_remove_and_relaxs_to_keep() -> None:
    net = _Net()
    model = net.model(net.node("Relu", net.node("Dropout", "x")))
    assert _operators(_check(model, as_relay, 0)) == {"Relu": 1}
    assert _operators(_check(model, as_relax, 0)) == {"Dropout": 1, "Relu": 1}
