"""Settings of operators that the zoo may lack: odd sizes, other axes, other algorithms."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.operator_settings import Setting
from eqsat.schema.opset import PINNED_OPSET

_SCALAR = frozenset({"CumSum", "OneHot"})
"""Operators whose constants are scalars."""

SETTINGS = """
ReduceMean x:f[1,64,56,56] axes=2,3
ReduceMean x:f[1,64,56,56] axes=1
ReduceMean x:f[1,197,384] axes=1
ReduceMean x:f[8,197,384] axes=0
ReduceSum x:f[7,33,41,19] axes=0,2
ReduceSum x:f[512,1023] axes=-1
ReduceMax x:f[1,21,65,65] axes=1
ReduceMax x:f[64,1000] axes=-1
ReduceMin x:f[64,1000] axes=0
ReduceL2 x:f[128,768] axes=-1
ReduceL1 x:f[128,768] axes=0
ReduceSumSquare x:f[1,64,56,56] axes=1
ReduceLogSumExp x:f[64,1000] axes=-1
ReduceProd x:f[64,1000] axes=-1
ReduceMax x:l[64,1000] axes=-1
ReduceSum x:l[64,1000] axes=-1
ArgMax x:f[1,21,65,65] axis:1
ArgMax x:f[64,1000] axis:-1
ArgMin x:f[64,1000] axis:-1
InstanceNormalization x:f[1,64,56,56] scale:w[64] bias:w[64]
InstanceNormalization x:f[2,7,29,31] scale:w[7] bias:w[7]
GroupNormalization x:f[1,64,56,56] scale:w[64] bias:w[64] num_groups:32
GroupNormalization x:f[2,30,13,17] scale:w[30] bias:w[30] num_groups:6
LayerNormalization x:f[1,197,384] scale:w[384] bias:w[384]
LayerNormalization x:f[3,50,129] scale:w[129] bias:w[129]
RMSNormalization x:f[1,128,2048] scale:w[2048]
LpNormalization x:f[128,768] axis:-1 p:2
BatchNormalization x:f[1,64,56,56] scale:w[64] bias:w[64] mean:w[64] variance:v[64]
Softmax x:f[12,128,128] axis:-1
Softmax x:f[1,21,65,65] axis:1
LogSoftmax x:f[64,1000] axis:-1
TopK x:f[1,1000] k=5 axis:-1 out=2
TopK x:f[64,1000] k=10 axis:-1 out=2
TopK x:f[1,8400] k=300 axis:-1 out=2
TopK x:f[1,3000,91] k=100 axis:1 out=2
CumSum x:f[64,1000] axis=1
CumSum x:f[64,1000] axis=0
CumSum x:l[1,512] axis=1
Gather x:w[30522,384] i:l[1,128] axis:0
Gather x:f[64,1000] i:l[100] axis:1
GatherElements x:f[64,1000] i:l[64,100] axis:1
GatherND x:f[64,100,32] i:l[500,2]
ScatterElements x:f[64,1000] i:l[64,100] u:f[64,100] axis:1
ScatterND x:f[1000,64] i:l[100,1] u:f[100,64]
Einsum x:f[8,64,32] y:f[8,48,32] equation:bij,bkj->bik
Einsum x:f[1,12,64,49] y:f[1,12,64,49] equation:bhcn,bhcm->bhnm
Einsum x:f[4,20,30,8] y:f[30,16,8] equation:abcd,ced->abce
Where x:b[64,1000] y:f[64,1000] z:f[64,1]
Pad x:f[1,64,56,56] pads=0,0,1,1,0,0,1,1
Pad x:f[1,64,56,56] pads=0,0,3,3,0,0,3,3 mode:reflect
Concat x:f[1,64,28,28] y:f[1,64,28,28] axis:1
Transpose x:f[1,12,197,64] perm:0,2,1,3
Transpose x:f[64,96,49] perm:0,2,1
Tile x:f[1,64,1,49] repeats=2,1,3,1
Expand x:f[1,64,1,49] shape=4,64,32,49
Slice x:f[1,64,56,56] starts=0 ends=56 axes=3 steps=2
DepthToSpace x:f[1,64,56,56] blocksize:2
SpaceToDepth x:f[1,64,56,56] blocksize:2
Resize x:f[1,64,28,28] _ scales=1,1,2,2 mode:nearest
Resize x:f[1,64,28,28] _ scales=1,1,2,2 mode:linear
Resize x:f[1,3,64,64] _ scales=1,1,2,2 mode:cubic
Resize x:f[1,3,128,128] _ scales=1,1,0.5,0.5 mode:linear antialias:1
Conv x:f[1,48,64,64] w:w[96,1,7,7] b:w[96] group:48 strides:2,2 pads:3,3,3,3
Conv x:f[1,48,64,64] w:w[48,1,5,5] group:48 pads:2,2,2,2
Conv x:f[1,30,33,35] w:w[45,10,3,3] group:3 pads:1,1,1,1
Conv x:f[1,64,33,33] w:w[64,64,3,3] dilations:2,2 pads:2,2,2,2
Conv x:f[1,80,300] w:w[96,80,3] pads:1,1
Conv x:f[1,96,300] w:w[96,1,31] group:96 pads:15,15
Conv x:f[1,16,10,28,28] w:w[32,16,3,3,3] pads:1,1,1,1,1,1
ConvTranspose x:f[1,64,28,28] w:w[64,32,2,2] strides:2,2
ConvTranspose x:f[1,32,28,28] w:w[32,32,4,4] strides:2,2 pads:1,1,1,1
ConvTranspose x:f[1,17,19,23] w:w[17,9,3,3] strides:2,2
MaxPool x:f[1,64,57,59] kernel_shape:3,3 strides:2,2
MaxPool x:f[1,64,28,28] kernel_shape:5,5 pads:2,2,2,2
AveragePool x:f[1,64,57,59] kernel_shape:3,3 strides:1,1 pads:1,1,1,1
MaxPool x:f[1,16,10,28,28] kernel_shape:2,2,2 strides:2,2,2
AveragePool x:f[1,64,300] kernel_shape:4 strides:4
GlobalMaxPool x:f[1,64,56,56]
GlobalAveragePool x:f[1,64,56,56]
LRN x:f[1,64,56,56] size:5
LRN x:f[1,63,27,27] size:3
MatMul x:f[1,197,384] w:w[384,1536]
MatMul x:f[12,128,64] y:f[12,64,128]
MatMul x:f[1,768] w:w[768,3072]
LSTM x:f[100,1,64] w:w[1,512,64] r:w[1,512,128] hidden_size:128
GRU x:f[100,1,64] w:w[1,384,64] r:w[1,384,128] hidden_size:128 linear_before_reset:1
LSTM x:f[1,1,64] w:w[1,512,64] r:w[1,512,128] hidden_size:128
Erf x:f[64,1000]
Gelu x:f[128,1536]
HardSwish x:f[1,64,56,56]
Cast x:l[64,1000] to:1
OneHot i:l[64,10] depth=100 values:f[2]
NonZero x:f[64,1000]
GridSample x:f[1,16,32,32] grid:f[1,40,40,2]
Attention q:f[1,8,128,64] k:f[1,8,128,64] v:f[1,8,128,64]
Attention q:f[1,8,1,64] k:f[1,2,512,64] v:f[1,2,512,64]
Attention q:f[1,12,197,64] k:f[1,12,197,64] v:f[1,12,197,64]
Attention q:f[1,77,512] k:f[1,77,512] v:f[1,77,512] is_causal:1 q_num_heads:8 kv_num_heads:8
Attention q:f[2,4,50,32] k:f[2,4,50,32] v:f[2,4,50,32] mask:f[2,1,50,50]
Attention q:f[1,32,1,128] k:f[1,8,1000,128] v:f[1,8,1000,128]
RotaryEmbedding x:f[1,8,128,64] cos:f[1,128,32] sin:f[1,128,32]
Trilu x:f[128,128]
DynamicQuantizeLinear x:f[128,768] out=3
MaxPool x:f[1,64,3000] kernel_shape:3 strides:2 pads:1,1
MaxPool x:f[1,64,3000] kernel_shape:3 dilations:2
MaxPool x:f[1,32,10,28,28] kernel_shape:3,3,3 strides:2,2,2 pads:1,1,1,1,1,1
MaxPool x:f[1,32,10,28,28] kernel_shape:2,2,2 dilations:2,2,2
MaxPool x:f[1,64,57,57] kernel_shape:3,3 strides:2,2 ceil_mode:1
MaxPool x:f[1,64,112,112] kernel_shape:3,3 strides:2,2 pads:1,1,1,1
MaxPool x:f[1,64,112,112] kernel_shape:2,2 strides:2,2
MaxPool x:f[1,64,57,57] kernel_shape:3,3 dilations:2,2
MaxPool x:f[1,64,56,56] kernel_shape:3,3 strides:1,1 pads:1,1,1,1 out=2
AveragePool x:f[1,32,10,28,28] kernel_shape:3,3,3 pads:1,1,1,1,1,1
AveragePool x:f[1,64,57,57] kernel_shape:3,3 dilations:2,2
AveragePool x:f[1,64,57,57] kernel_shape:3,3 strides:2,2 ceil_mode:1 count_include_pad:1
LpPool x:f[1,64,56,56] kernel_shape:3,3 strides:2,2 p:2
Resize x:f[1,64,28,28] _ scales=1,1,2,2 mode:nearest coordinate_transformation_mode:asymmetric nearest_mode:floor
Resize x:f[1,64,28,28] _ scales=1,1,2,2 mode:linear coordinate_transformation_mode:align_corners
Resize x:f[1,32,60,60] _ scales=1,1,0.5,0.5 mode:cubic
Resize x:f[1,32,60,60] _ scales=1,1,1.5,1.5 mode:nearest
Resize x:f[1,8,16,16,16] _ scales=1,1,2,2,2 mode:linear
Resize x:f[1,32,1000] _ scales=1,1,2.5 mode:linear
ReduceMean x:f[8,64,30,40] axes=1,3
ReduceSum x:f[8,64,30,40] axes=1
ReduceMax x:f[16,77,64] axes=1
ReduceMin x:f[8,30,64,40] axes=0,2
ReduceProd x:f[16,77,64] axes=1
ReduceLogSumExp x:f[16,77,64] axes=1
ReduceL2 x:f[16,77,64] axes=1
ReduceSum x:l[16,77,64] axes=1
ReduceMax x:l[16,77,64] axes=1
ArgMax x:f[16,77,64] axis:1
ArgMax x:l[64,1000] axis:1
TopK x:f[512,100] k=3 axis:-1 out=2
TopK x:f[64,1000] k=500 axis:-1 out=2
TopK x:l[64,1000] k=5 axis:-1 out=2
ScatterND x:f[64,100,32] i:l[500,2] u:f[500,32]
ScatterND x:f[64,100] i:l[500,2] u:f[500] reduction:add
ScatterElements x:f[64,1000] i:l[64,1000] u:f[64,1000] axis:1
ScatterElements x:f[1000,64] i:l[100,64] u:f[100,64] axis:0 reduction:add
GatherElements x:f[64,1000] i:l[64,1000] axis:1
GatherElements x:f[1000,64] i:l[500,64] axis:0
GatherND x:f[64,100] i:l[5000,2]
Gather x:f[64,100,32] i:l[50] axis:1
Gather x:f[100000] i:l[50000] axis:0
OneHot i:l[512] depth=1000 values:f[2]
OneHot i:l[64,50] depth=100 values:f[2] axis:1
Einsum x:f[2,50,8,64] y:f[2,60,8,64] equation:bqhd,bkhd->bhqk
Einsum x:f[2,8,50,60] y:f[2,60,8,64] equation:bhqk,bkhd->bqhd
Einsum x:f[128,64] y:f[128,64] equation:ij,ij->i
Einsum x:f[200] y:f[300] equation:i,j->ij
Einsum x:f[64,40,40] equation:bii->bi
Einsum x:f[64,200,30] equation:abc->cb
Einsum x:f[50,60] y:f[60,70] z:f[70,80] equation:ab,bc,cd->ad
ConvTranspose x:f[1,32,28,28] w:w[32,8,3,3] group:4 strides:2,2 pads:1,1,1,1
ConvTranspose x:f[1,32,28,28] w:w[32,1,4,4] group:32 strides:2,2 pads:1,1,1,1
ConvTranspose x:f[1,32,500] w:w[32,16,8] strides:4 pads:2,2
ConvTranspose x:f[1,16,8,14,14] w:w[16,16,3,3,3] strides:2,2,2 pads:1,1,1,1,1,1
ConvTranspose x:f[1,32,28,28] w:w[32,32,3,3] dilations:2,2
Conv x:f[1,32,500] w:w[64,32,3] dilations:4 pads:4,4
Conv x:f[4,33,40,40] w:w[35,33,3,3]
Conv x:f[1,3,224,224] w:w[32,3,3,3] strides:2,2
Conv x:f[1,8,12,28,28] w:w[8,1,3,3,3] group:8 pads:1,1,1,1,1,1
Conv x:f[1,1,1,16000] w:w[64,1,1,400] strides:1,160
CumSum x:f[16,77,64] axis=1
CumSum x:f[64,1000] axis=1 exclusive:1
CumSum x:f[64,1000] axis=1 reverse:1
CumProd x:f[64,1000] axis=1
Softmax x:f[64,77,64] axis:1
LogSoftmax x:f[16,77,64] axis:1
Hardmax x:f[64,1000] axis:-1
LpNormalization x:f[16,77,64] axis:1 p:1
Transpose x:f[1,64,56,56] perm:0,2,3,1
Transpose x:f[1,56,56,64] perm:0,3,1,2
Transpose x:f[30,40,50] perm:2,1,0
Transpose x:f[8,3,14,14,16] perm:0,2,4,1,3
Transpose x:f[4,16,28,28] perm:0,3,2,1
Transpose x:l[200,300] perm:1,0
Transpose x:f[1,197,12,64] perm:0,2,3,1
RotaryEmbedding x:f[1,8,128,64] cos:f[1,128,32] sin:f[1,128,32] interleaved:1
Pow x:f[64,1000] y:f[1]
Log x:f[64,1000]
Cast x:f[64,1000] to:10
Mish x:f[64,1000]
Softplus x:f[64,1000]
ReduceMean x:f[3,5,7,11,13,17] axes=1,3,5
LSTM x:f[100,8,64] w:w[1,512,64] r:w[1,512,128] hidden_size:128
RNN x:f[100,1,64] w:w[1,128,64] r:w[1,128,128] hidden_size:128
"""
"""One a line: the operator, its operands, attributes with a colon, the number of results if there are several.
Operands are inputs (``f``, ``l``, ``b`` by type), weights (``w``; ``v``: positive), constants (``=``), none (``_``)."""

_TYPES = {
    "f": TensorProto.FLOAT, "h": TensorProto.FLOAT16, "d": TensorProto.DOUBLE, "i": TensorProto.INT32,
    "l": TensorProto.INT64, "c": TensorProto.INT8, "u": TensorProto.UINT8, "b": TensorProto.BOOL,
}  # fmt: skip
_OPERAND = re.compile(rf"(\w+):([{''.join(_TYPES)}wv])\[([\d,]*)\]")


def own() -> list[Setting]:
    """All settings of the list."""
    return [setting(line) for line in SETTINGS.split("\n") if line]


def setting(line: str) -> Setting:
    """The setting of one line."""
    operator, *words = line.split()
    rng = np.random.default_rng(0)
    schema = onnx.defs.get_schema(operator, PINNED_OPSET)
    inputs: list[onnx.ValueInfoProto] = []
    operands: list[str] = []
    weights: list[onnx.TensorProto] = []
    attributes: dict[str, Any] = {}
    results = 1
    for word in words:
        operand = _OPERAND.fullmatch(word)
        if operand is not None:
            name, kind, sizes = operand.groups()
            shape = _numbers(sizes)
            if kind in _TYPES:
                inputs.append(helper.make_tensor_value_info(name, _TYPES[kind], shape))
            else:
                drawn = rng.standard_normal(shape).astype(np.float32) * np.float32(0.1)
                weights.append(numpy_helper.from_array(np.abs(drawn) + 1 if kind == "v" else drawn, name))
            operands.append(name)
        elif word == "_":
            operands.append("")
        elif word.startswith("out="):
            results = int(word[4:])
        elif "=" in word:
            name, listed = word.split("=")
            values = _numbers(listed)
            array = np.array(values, np.float32 if name == "scales" else np.int64)
            weights.append(numpy_helper.from_array(array.reshape(()) if operator in _SCALAR else array, name))
            operands.append(name)
        else:
            name, value = word.split(":", 1)
            kind = schema.attributes[name].type
            many = kind == onnx.defs.OpSchema.AttrType.INTS
            attributes[name] = _numbers(value) if many else int(value) if re.fullmatch(r"-?\d+", value) else value
    names = [f"result{i}" for i in range(results)]
    node = helper.make_node(operator, operands, names, **attributes)
    outputs = [onnx.ValueInfoProto(name=name) for name in names]
    graph = helper.make_graph([node], "setting", inputs, outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", PINNED_OPSET)], ir_version=10)
    return Setting(operator, onnx.shape_inference.infer_shapes(model, strict_mode=True))


def _numbers(text: str) -> list[Any]:
    return [float(v) if "." in v else int(v) for v in text.split(",") if v]
