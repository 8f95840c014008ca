"""Plain operators of the target dnnl on several shapes and element types, executed by oneDNN."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from eqsat.backends.onednn import mapper
from eqsat.model.load import load
from tests.codegen.onednn_cases import assert_same, needs_onednn
from tests.codegen.regions import Regions
from tests.quantization.runtime import needs_exact_products

pytestmark = needs_onednn

MS = "com.microsoft"
Operand = np.ndarray | tuple[int, ...] | None
"""A constant, a float tensor by its shape, or an absent one."""


class Ops:
    """Operators, each a region of its own."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.regions = Regions()

    def add(
        self,
        name: str,
        operands: Sequence[Operand | np.dtype],
        *,
        domain: str = "",
        tensors: Mapping[int, np.ndarray] | None = None,
        **attributes: Any,
    ) -> None:
        """One operator: tuples are drawn, arrays constant, ``tensors`` inputs of given content."""
        names, inputs, constants, feed = [], [], [], {}
        for i, operand in enumerate(operands):
            names.append("" if operand is None else f"x{i}")
            if operand is None:
                continue
            if isinstance(operand, tuple) or (tensors and i in tensors):
                data = tensors[i] if tensors and i in tensors else self.floats(*operand)
                feed[f"x{i}"] = data
                inputs.append(
                    helper.make_tensor_value_info(f"x{i}", helper.np_dtype_to_tensor_dtype(data.dtype), data.shape)
                )
            else:
                constants.append(numpy_helper.from_array(np.asarray(operand), f"x{i}"))
        node = helper.make_node(name, names, ["y"], domain=domain, **attributes)
        y = helper.make_empty_tensor_value_info("y")
        graph = helper.make_graph([node], "g", inputs, [y], constants)
        imports = [helper.make_opsetid("", 23), helper.make_opsetid(MS, 1)]
        typed = load(helper.make_model(graph, opset_imports=imports, ir_version=10))
        (result,) = typed.graph.outputs
        assert result.dtype is not None and result.shape is not None
        shape = [int(d) for d in result.shape.numpy()]
        graph.output[0].CopyFrom(helper.make_tensor_value_info("y", int(result.dtype), shape))
        self.regions.add(graph, feed)

    def floats(self, *shape: int) -> np.ndarray:
        return self.rng.standard_normal(shape).astype(np.float32)

    def bytes(self, *shape: int, dtype: type = np.uint8) -> np.ndarray:
        info = np.iinfo(dtype)
        return self.rng.integers(info.min, info.max + 1, shape).astype(dtype)

    def weights(self, *shape: int) -> np.ndarray:
        return self.rng.integers(-127, 128, shape).astype(np.int8)


def f4(value: float | Sequence[float]) -> np.ndarray:
    return np.array(value, np.float32)


def convolutions(o: Ops) -> None:
    o.add("Conv", [(2, 5, 9, 8), o.floats(7, 5, 3, 2), o.floats(7)], pads=[1, 0, 2, 1], strides=[2, 1])
    o.add("Conv", [(1, 8, 9, 8), o.floats(8, 1, 3, 3)], group=8, dilations=[2, 1], auto_pad="SAME_LOWER")
    o.add("Conv", [(1, 8, 9), o.floats(12, 4, 3)], group=2, pads=[1, 1])
    o.add("Conv", [(1, 4, 5, 6, 4), o.floats(6, 4, 2, 3, 3), o.floats(6)])
    o.add("Conv", [(1, 4, 6, 6), (6, 4, 3, 3), (6,)])
    o.add("ConvTranspose", [(2, 6, 5, 4), o.floats(6, 5, 3, 3), o.floats(5)], strides=[2, 2], pads=[1, 1, 0, 1])
    o.add("ConvTranspose", [(1, 6, 5, 4), o.floats(6, 2, 3, 3)], group=3, strides=[2, 2], output_padding=[1, 1])
    o.add("ConvTranspose", [(1, 6, 7), o.floats(6, 4, 4)], strides=[2], auto_pad="SAME_UPPER")


def products(o: Ops) -> None:
    o.add("MatMul", [(3, 5), o.floats(5, 7)])
    o.add("MatMul", [(2, 4, 3, 5), o.floats(5, 7)])
    o.add("MatMul", [(2, 1, 3, 5), (4, 5, 6)])
    o.add("MatMul", [o.floats(4, 5), (5, 6)])
    o.add("Gemm", [(3, 5), o.floats(7, 5), o.floats(7)], transB=1)
    o.add("Gemm", [(5, 3), o.floats(5, 7), o.floats(3, 1)], transA=1)
    o.add("Gemm", [(3, 5), (5, 7), (7,)])


def pools(o: Ops) -> None:
    o.add("MaxPool", [(2, 5, 9, 8)], kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1])
    o.add("MaxPool", [(1, 16, 8, 9)], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
    o.add("MaxPool", [(1, 3, 11)], kernel_shape=[3], dilations=[2])
    o.add("AveragePool", [(2, 5, 9, 8)], kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    o.add("AveragePool", [(2, 5, 9, 8)], kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1)
    o.add("AveragePool", [(1, 5, 8, 8)], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
    for name in ("GlobalAveragePool", "GlobalMaxPool"):
        o.add(name, [(2, 5, 4, 6)])
    for axes, kept in (([1], 1), ([0, 2], 0), ([-1], 0)):
        for name in ("Mean", "Sum", "Max", "Min", "L1", "L2", "SumSquare", "Prod"):
            o.add(f"Reduce{name}", [(3, 4, 5), np.array(axes)], keepdims=kept)
    o.add("Resize", [(1, 3, 4, 5), None, f4([1, 1, 2, 3])], mode="nearest")
    o.add("Resize", [(1, 3, 4, 5), None, f4([1, 1, 2, 2])], mode="linear")
    half: dict[str, Any] = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    o.add("Resize", [(1, 3, 4, 5), None, f4([1, 1, 2, 2])], mode="nearest", **half)


def norms(o: Ops) -> None:
    for axis in (0, 1, -1):
        o.add("Softmax", [(3, 5, 7)], axis=axis)
        o.add("LogSoftmax", [(3, 5, 7)], axis=axis)
    o.add("LayerNormalization", [(3, 5, 16), o.floats(16), o.floats(16)])
    o.add("LayerNormalization", [(3, 16), o.floats(16)])
    o.add("GroupNormalization", [(2, 6, 5, 4), o.floats(6), o.floats(6)], num_groups=3)
    o.add("InstanceNormalization", [(2, 6, 5, 4), o.floats(6), o.floats(6)])
    o.add("LRN", [(2, 7, 5, 4)], size=5, alpha=1e-2)
    variance = np.abs(o.floats(6)) + np.float32(0.5)
    o.add("BatchNormalization", [(2, 6, 5, 4), o.floats(6), o.floats(6), o.floats(6), variance])


def elementwise(o: Ops) -> None:
    functions: tuple[tuple[str, dict[str, Any]], ...] = (
        ("Relu", {}), ("LeakyRelu", {"alpha": 0.2}), ("Elu", {"alpha": 0.7}), ("Sigmoid", {}), ("Tanh", {}),
        ("Abs", {}), ("Exp", {}), ("HardSigmoid", {"alpha": 0.3}), ("HardSwish", {}), ("Mish", {}), ("Gelu", {}),
        ("Gelu", {"approximate": "tanh"}), ("Softplus", {}), ("Round", {}), ("Neg", {}),
    )  # fmt: skip
    for name, attributes in functions:
        o.add(name, [(3, 5, 4)], **attributes)
    positive = {0: np.abs(o.floats(3, 5, 4)) + np.float32(0.1)}
    for name in ("Sqrt", "Log", "Reciprocal"):
        o.add(name, [(3, 5, 4)], tensors=positive)
    o.add("Pow", [(3, 5, 4), f4(1.5)], tensors=positive)
    o.add("Clip", [(3, 5, 4), f4(-0.5), f4(0.3)])
    o.add("Clip", [(3, 5, 4), None, f4(0.3)])
    o.add("PRelu", [(2, 5, 4), o.floats(5, 1)])
    o.add("PRelu", [(2, 5, 4), (2, 5, 4)])
    for name in ("Add", "Sub", "Mul", "Max", "Min"):
        for shape in ((2, 5, 4), (1,), (5, 1), (4,), (2, 1, 4)):
            o.add(name, [(2, 5, 4), shape])
        o.add(name, [(5, 1), (2, 5, 4)])
        o.add(name, [f4(1.5), (2, 5, 4)])
    o.add("Div", [(2, 5, 4), (5, 1)], tensors={1: positive[0][0, :, :1]})
    o.add("Div", [(2, 5, 4), (2, 5, 4)], tensors={1: np.abs(o.floats(2, 5, 4)) + np.float32(0.1)})
    o.add("Div", [f4(1.5), (3, 5, 4)], tensors={1: positive[0]})
    o.add("Sum", [(2, 5, 4), (2, 5, 4), (2, 5, 4)])


def movement(o: Ops) -> None:
    for data in (o.floats(2, 6, 4, 3), o.bytes(2, 6, 4, 3), o.bytes(2, 6, 4, 3, dtype=np.int8)):
        o.add("Transpose", [()], tensors={0: data}, perm=[0, 2, 3, 1])
        o.add("Reshape", [(), np.array([4, -1])], tensors={0: data})
        o.add("Slice", [(), np.array([1, 2]), np.array([3, -1]), np.array([2, 1])], tensors={0: data})
        o.add("Flatten", [()], tensors={0: data}, axis=2)
        o.add("Concat", [(), ()], tensors={0: data, 1: data[:, :2]}, axis=1)
        o.add("MaxPool", [()], tensors={0: data}, kernel_shape=[2, 2])


def quantized(o: Ops) -> None:
    for dtype, zero in ((np.uint8, 131), (np.int8, -7), (np.uint8, 0)):
        z = np.array(zero, dtype)
        o.add("QuantizeLinear", [(3, 4, 5), f4(0.03), z])
        o.add("QuantizeLinear", [(3, 4, 5), np.abs(o.floats(4)) + f4(0.1), np.full(4, zero, dtype)], axis=1)
        x = o.bytes(2, 6, 7, 6, dtype=dtype)
        o.add("DequantizeLinear", [(), f4(0.03), z], tensors={0: x})
        o.add("DequantizeLinear", [(), np.abs(o.floats(6)) + f4(0.1), np.full(6, zero, dtype)], tensors={0: x}, axis=1)
        parameters = [f4(0.02), z]
        for group, size in ((1, 3), (6, 3), (1, 1)):
            w = o.weights(6, 6 // group, size, size)
            scales = np.abs(o.floats(6)) * f4(0.01) + f4(0.001)
            bias = o.rng.integers(-900, 900, 6).astype(np.int32)
            o.add(
                "QLinearConv", [(), *parameters, w, scales, np.zeros(6, np.int8), f4(0.11), z, bias],
                tensors={0: x}, pads=[size // 2] * 4, group=group,
            )  # fmt: skip
        o.add("ConvInteger", [(), o.weights(5, 6, 3, 2), z], tensors={0: x}, pads=[1, 1, 1, 0])
        a = o.bytes(4, 8, dtype=dtype)
        product = [f4(0.01), np.array(0, np.int8), f4(0.06), z]
        o.add("QLinearMatMul", [(), *parameters, o.weights(8, 6), *product], tensors={0: a})
        o.add("MatMulInteger", [(), o.weights(8, 6), z], tensors={0: a})
        o.add(
            "QGemm", [(), *parameters, o.weights(6, 8), f4(0.01), np.array(0, np.int8), np.arange(6, dtype=np.int32),
            f4(0.06), z], domain=MS, tensors={0: a}, transB=1,
        )  # fmt: skip
        o.add("QLinearAdd", [(), *parameters, (), f4(0.03), z, f4(0.04), z], domain=MS, tensors={0: x, 3: x[::-1]})
        o.add("QLinearSigmoid", [(), *parameters, f4(1 / 250), z], domain=MS, tensors={0: x})
        o.add("QLinearLeakyRelu", [(), *parameters, f4(0.03), z], domain=MS, tensors={0: x}, alpha=0.1)
        o.add("QLinearAveragePool", [(), *parameters, f4(0.015), z], domain=MS, tensors={0: x}, kernel_shape=[3, 2])
        o.add("QLinearGlobalAveragePool", [(), *parameters, f4(0.01), z], domain=MS, tensors={0: x})
        o.add("QLinearSoftmax", [(), f4(0.1), z, f4(1 / 256), z], domain=MS, tensors={0: x}, axis=-1, opset=13)
        o.add("Clip", [(), np.array(3, dtype), np.array(99, dtype)], tensors={0: x})
    x, none = o.bytes(2, 6, 5), np.array(0, np.uint8)
    o.add("QLinearMul", [(), f4(0.02), np.array(9, np.uint8), (), f4(0.03), none, f4(0.08), np.array(5, np.uint8)],
          domain=MS, tensors={0: x, 3: x[::-1]})  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    # Without VNNI, oneDNN's products of bytes saturate as well.
    [convolutions, products, pools, norms, elementwise, movement, pytest.param(quantized, marks=needs_exact_products)],
)
def test_plain_operators_agree_with_numpy(make: Any) -> None:
    o = Ops(seed=3)
    make(o)
    made = assert_same(o.regions)
    assert len({p.kernel for p in made.primitives()}) > 1


def test_a_kernel_without_primitives_stands_between_two_that_have_them() -> None:
    text = """
        g (float[1,4,6,6] x) => (float[1,4,6,6] y, float[1,4,6,6] z) {
            a = Relu(x)
            b = Erf(a)
            c = Tanh(x)
            y = Add(b, c)
            z = Sigmoid(c)
        }
    """
    graph = onnx.parser.parse_graph(text)
    regions = Regions()
    regions.add(graph, {"x": np.random.default_rng(0).standard_normal((1, 4, 6, 6)).astype(np.float32)})
    made = assert_same(regions, refused=1)
    assert made.emitted.runs == 2
    assert made.emitted.coverage["dnnl"].refused == (("r0_Erf_1", "Erf", "oneDNN has no Erf"),)
    assert [p.kernel for p in made.primitives()] == ["r0_Relu_0", "r0_Tanh_2", "r0_Sigmoid_4", "r0_Add_3"]


def test_a_second_mapping_of_an_operator_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapper, "MAPPINGS", {})
    register = mapper.mapping("Conv", "Gemm")
    function = register(lambda *given: None)
    with pytest.raises(ValueError, match="Conv is mapped twice"):
        register(function)
