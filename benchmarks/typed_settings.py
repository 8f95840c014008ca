"""Settings of operators in the element types that exported models rarely have, beside those of ``own_settings.py``."""

from __future__ import annotations

from benchmarks.operator_settings import Setting
from benchmarks.own_settings import setting

SETTINGS = """
h Hardmax x:T[64,1000] axis:-1
f Hardmax x:T[16,77,64] axis:1
hdilcub Transpose x:T[300,400] perm:1,0
hiu Transpose x:T[1,64,56,56] perm:0,2,3,1
hu Transpose x:T[1,56,56,64] perm:0,3,1,2
dil MatMul x:T[128,256] y:T[256,128]
h MatMul x:T[128,256] y:T[256,128]
d MatMul x:T[8,64,48] y:T[8,48,64]
d Gemm x:T[128,256] y:T[128,256] transB:1
f MaxUnpool x:T[1,32,28,28] i:l[1,32,28,28] kernel_shape:2,2 strides:2,2
dil Add x:T[64,1000] y:T[64,1000]
dil Mul x:T[64,1000] y:T[1000]
dil Sub x:T[64,1000] y:T[64,1]
hdilcu Div x:T[64,1000] y:T[64,1000]
dil Div x:T[64,1000] y:T[1]
il Mod x:T[64,1000] y:T[64,1000]
cu Add x:T[64,1000] y:T[64,1000]
hdilcu Max x:T[64,1000] y:T[64,1000]
hdilcu Min x:T[64,1000] y:T[1]
hdilcu Clip x:T[64,1000] low:T[] high:T[]
dil Abs x:T[64,1000]
dil Neg x:T[64,1000]
di Relu x:T[64,1000]
c Relu x:T[64,1000]
hdil Less x:T[64,1000] y:T[64,1000]
dilb Equal x:T[64,1000] y:T[64,1000]
b And x:T[64,1000] y:T[64,1000]
b Not x:T[64,1000]
b Or x:T[64,1000] y:T[1000]
hdilu Where m:b[64,1000] x:T[64,1000] y:T[64,1000]
hd Exp x:T[64,1000]
hd Sigmoid x:T[64,1000]
hd Tanh x:T[64,1000]
h Erf x:T[64,1000]
hd Sqrt x:T[64,1000]
hd Log x:T[64,1000]
hd Softmax x:T[64,1000] axis:-1
hd LayerNormalization x:T[128,768] scale:T[768] bias:T[768]
h RMSNormalization x:T[128,768] scale:T[768]
f RMSNormalization x:T[128,768] scale:T[768]
f MeanVarianceNormalization x:T[2,32,40,40] axes:0,2,3
f LpNormalization x:T[64,1000] axis:-1 p:1
hdil ReduceSum x:T[64,1000] axes=-1
hdil ReduceSum x:T[64,1000] axes=0
hdilcu ReduceMax x:T[64,1000] axes=-1
hdilcu ReduceMax x:T[64,1000] axes=0
hdil ReduceMean x:T[16,77,64] axes=1
d ReduceL2 x:T[64,1000] axes=-1
hdil ArgMax x:T[64,1000] axis:-1
hdil Gather x:T[1000,64] i:l[500] axis:0
hdlcu Gather x:T[64,1000] i:l[100] axis:1
fdl GatherElements x:T[64,1000] i:l[64,1000] axis:1
hdil ScatterND x:T[1000,64] i:l[100,1] u:T[100,64]
hdl CumSum x:T[64,1000] axis=1
hdlu Concat x:T[64,500] y:T[64,300] axis:1
hdlu Pad x:T[1,16,56,56] pads=0,0,1,1,0,0,1,1
hdlu Slice x:T[64,1000] starts=0 ends=1000 axes=1 steps=2
hdlu Tile x:T[64,100] repeats=2,3
hdlub Expand x:T[64,1,50] shape=64,20,50
fhdl TopK x:T[64,1000] k=50 axis:-1 out=2
h Resize x:T[1,16,28,28] _ scales=1,1,2,2 mode:linear
cu Resize x:T[1,16,28,28] _ scales=1,1,2,2 mode:nearest
h Conv x:T[1,16,28,28] w:T[32,16,3,3] pads:1,1,1,1
f Conv x:T[1,64,28,28] w:T[64,64,1,1]
f Conv x:T[1,64,28,28] w:T[64,64,3,3] pads:1,1,1,1
hd MaxPool x:T[1,32,56,56] kernel_shape:2,2 strides:2,2
f MaxPool x:T[1,64,56,56] kernel_shape:3,3 pads:1,1,1,1
u MaxPool x:T[1,64,56,56] kernel_shape:3,3 strides:2,2
hd AveragePool x:T[1,32,56,56] kernel_shape:3,3 strides:2,2
hd GlobalAveragePool x:T[1,64,56,56]
hd BatchNormalization x:T[1,64,28,28] scale:T[64] bias:T[64] mean:T[64] variance:T[64]
f Col2Im x:T[1,288,784] size=28,28 block=3,3 pads:1,1,1,1
cu MatMulInteger x:T[128,256] y:c[256,128]
u MatMulInteger x:T[128,256] y:u[256,128]
u ConvInteger x:T[1,16,28,28] w:u[32,16,3,3] pads:1,1,1,1
fhdilcu Cast x:T[64,1000] to:1
fdilcu Cast x:T[64,1000] to:10
fhil Cast x:T[64,1000] to:7
fhdl Cast x:T[64,1000] to:3
fhl Cast x:T[64,1000] to:9
fl OneHot i:l[64,50] depth=100 values:T[2]
fl NonZero x:T[64,1000]
hdl Trilu x:T[256,256]
u BitShift x:T[64,1000] y:T[64,1000] direction:LEFT
il BitwiseAnd x:T[64,1000] y:T[64,1000]
fhd Sign x:T[64,1000]
fhd Floor x:T[64,1000]
fhd Round x:T[64,1000]
fd Pow x:T[64,1000] y:T[1]
h Gelu x:T[64,1000]
hd IsNaN x:T[64,1000]
h PRelu x:T[64,1000] y:T[1000]
f EyeLike x:T[300,300]
f Det x:T[100,8,8]
f ReverseSequence x:T[100,8,64] n:l[8]
f Unique x:T[10000] out=4
f LRN x:T[1,64,28,28] size:5
f DFT x:T[1,1000,1]
"""
"""The types first: float32 (``f``), float16 (``h``), float64 (``d``), int32 (``i``), int64 (``l``), int8 (``c``), uint8
(``u``), bool (``b``). ``T`` stands for them."""


def typed() -> list[Setting]:
    """All settings, each in all of its types."""
    return in_types(SETTINGS)


def in_types(listed: str) -> list[Setting]:
    """The settings of a list whose lines begin with the types that ``T`` stands for."""
    lines = [line.split(" ", 1) for line in listed.split("\n") if line]
    return [setting(line.replace(":T[", f":{kind}[")) for kinds, line in lines for kind in kinds]
