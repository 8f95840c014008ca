"""Tensors that no machine can hold, and shapes that no library can count."""

from __future__ import annotations

from onnx import ModelProto, helper

from tests.hostile.case import hostile

HEAD = '<ir_version: 8, opset_import: ["": 17]>\n'
T40, T62 = 1 << 40, 1 << 62


def declared(*dims: int | str, rank: int | None = None) -> ModelProto:
    """A Relu of a tensor of this shape."""
    shape = list(dims) * (rank or 1)
    values = [helper.make_tensor_value_info(n, 1, shape) for n in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", values[:1], values[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@hostile("optimize", "optimize-dnnl", "run", "codegen", refused=True)
def two_to_40_squared() -> ModelProto:
    return declared(T40, T40)


@hostile("optimize", "run", "codegen", "compare")
def two_to_40() -> ModelProto:
    return declared(T40)


@hostile("optimize", "run", "codegen", refused=True)
def rank_100() -> ModelProto:
    return declared(1, rank=100)


@hostile("optimize", "run", "codegen")
def rank_60() -> ModelProto:
    return declared(1, rank=60)


@hostile(refused=True)
def no_elements_of_huge_strides() -> ModelProto:
    return declared(0, T62, 4)


@hostile()
def negative_dimension() -> ModelProto:
    return declared(-5)


@hostile(refused=True)
def power_tower() -> ModelProto:
    return declared("9**9**9**9")


@hostile(refused=True)
def dimension_of_brackets() -> ModelProto:
    return declared("(" * 3000 + "N" + ")" * 3000)


@hostile(refused=True)
def dimension_of_digits() -> ModelProto:
    return declared("9" * 5000 + "*N")


@hostile(refused=True)
def expanded_power() -> ModelProto:
    return declared("(N+M+K)**900")


@hostile("optimize", "run", "codegen", refused=True)
def outer_product() -> str:
    return f"{HEAD}g (float[{T40},1] x, float[1,{T40}] w) => (float[M,N] y) {{ y = MatMul(x, w) }}"


@hostile("optimize", "run", "codegen")
def outer_product_of_2_to_20() -> str:
    return f"{HEAD}g (float[1048576,1] x, float[1,1048576] w) => (float[M,N] y) {{ y = MatMul(x, w) }}"


@hostile("optimize", "run", "codegen")
def broadcast_of_two_vectors() -> str:
    return f"{HEAD}g (float[1048576,1] x, float[1,1048576] w) => (float[M,N] y) {{ y = Add(x, w) }}"


@hostile()
def einsum_of_four_vectors() -> str:
    inputs = ", ".join(f"float[100000] {n}" for n in "abcd")
    return f'{HEAD}g ({inputs}) => (float[I,J,K,L] y) {{ y = Einsum<equation = "i,j,k,l->ijkl">(a, b, c, d) }}'


@hostile()
def window_in_a_sea_of_padding() -> str:
    attributes = "kernel_shape=[4], pads=[1000000000000,1000000000000], strides=[1000000000000]"
    return f"{HEAD}g (float[1,1,4] x) => (float[1,1,N] y) {{ y = MaxPool<{attributes}>(x) }}"


@hostile()
def convolution_in_a_sea_of_padding() -> str:
    attributes = "pads=[1000000000000,1000000000000], strides=[1000000000000]"
    return f"{HEAD}g (float[1,1,4] x, float[1,1,4] w) => (float[1,1,N] y) {{ y = Conv<{attributes}>(x, w) }}"


@hostile()
def kernel_of_10_to_9() -> str:
    attributes = "kernel_shape=[1000000000], pads=[999999999,999999999]"
    return f"{HEAD}g (float[1,1,4] x) => (float[1,1,N] y) {{ y = AveragePool<{attributes}>(x) }}"


@hostile()
def dilation_of_10_to_12() -> str:
    attributes = "dilations=[1000000000000], pads=[2000000000000,2000000000000]"
    return f"{HEAD}g (float[1,1,4] x, float[1,1,2] w) => (float[1,1,N] y) {{ y = Conv<{attributes}>(x, w) }}"


@hostile()
def transposed_stride() -> str:
    return f"{HEAD}g (float[1,1,4] x, float[1,1,2] w) => (y) {{ y = ConvTranspose<strides=[1000000000000]>(x, w) }}"


@hostile()
def random_numbers() -> str:
    return f"{HEAD}g (float[1] x) => (float[N] y) {{ r = RandomNormal<shape=[{T40}]>() y = Add(r, x) }}"
