"""Settings of operators that are rare: odd channels, groups, axes and sizes, small images, large kernels."""

from __future__ import annotations

from benchmarks.operator_settings import Setting
from benchmarks.typed_settings import in_types

SETTINGS = """
f Conv x:T[1,1,64,64] w:w[1,1,3,3] pads:1,1,1,1
f Conv x:T[1,3,64,64] w:w[3,3,3,3] pads:1,1,1,1
f Conv x:T[1,5,40,40] w:w[7,5,3,3] pads:1,1,1,1
f Conv x:T[1,7,40,40] w:w[13,7,3,3] pads:1,1,1,1
f Conv x:T[1,13,40,40] w:w[31,13,3,3] pads:1,1,1,1
f Conv x:T[1,31,40,40] w:w[33,31,3,3] pads:1,1,1,1
f Conv x:T[1,33,40,40] w:w[33,33,1,1]
f Conv x:T[1,33,40,40] w:w[5,33,1,1]
f Conv x:T[1,64,56,56] w:w[1,64,1,1]
f Conv x:T[1,64,56,56] w:w[3,64,3,3] pads:1,1,1,1
f Conv x:T[1,1,112,112] w:w[32,1,5,5] pads:2,2,2,2
f Conv x:T[7,13,20,20] w:w[13,13,3,3] pads:1,1,1,1
f Conv x:T[8,64,14,14] w:w[64,64,3,3] pads:1,1,1,1
f Conv x:T[1,256,1,1] w:w[256,256,1,1]
f Conv x:T[1,256,2,2] w:w[256,256,3,3] pads:1,1,1,1
f Conv x:T[1,512,7,7] w:w[512,512,3,3] pads:1,1,1,1
f Conv x:T[1,64,4,4] w:w[128,64,3,3] strides:2,2 pads:1,1,1,1
f Conv x:T[16,64,4,4] w:w[128,64,4,4]
f Conv x:T[1,3,96,96] w:w[16,3,31,31] pads:15,15,15,15
f Conv x:T[1,32,56,56] w:w[32,1,31,31] group:32 pads:15,15,15,15
f Conv x:T[1,32,40,40] w:w[32,32,13,13] pads:6,6,6,6
f Conv x:T[1,32,40,40] w:w[32,32,1,7] pads:0,3,0,3
f Conv x:T[1,32,40,40] w:w[32,32,7,1] pads:3,0,3,0
f Conv x:T[1,3,224,224] w:w[96,3,16,16] strides:16,16
f Conv x:T[1,3,224,224] w:w[64,3,7,7] strides:2,2 pads:3,3,3,3
f Conv x:T[1,15,33,35] w:w[25,3,3,3] group:5 pads:1,1,1,1
f Conv x:T[1,14,40,40] w:w[14,2,3,3] group:7 pads:1,1,1,1
f Conv x:T[1,64,40,40] w:w[64,4,3,3] group:16 pads:1,1,1,1
f Conv x:T[1,64,40,40] w:w[128,1,3,3] group:64 pads:1,1,1,1
f Conv x:T[1,128,28,28] w:w[128,4,3,3] group:32 pads:1,1,1,1
f Conv x:T[1,33,40,40] w:w[33,1,3,3] group:33 pads:1,1,1,1
f Conv x:T[1,5,40,40] w:w[5,1,3,3] group:5 pads:1,1,1,1
f Conv x:T[1,32,40,40] w:w[32,32,3,3] pads:0,1,2,1
f Conv x:T[1,32,40,40] w:w[32,32,3,3] pads:2,0,0,1 strides:2,1
f Conv x:T[1,32,40,40] w:w[32,32,3,3] dilations:3,1 pads:3,1,3,1
f Conv x:T[1,32,40,40] w:w[32,1,3,3] group:32 dilations:3,3 pads:3,3,3,3
f Conv x:T[1,1,16000] w:w[32,1,251] strides:5
f Conv x:T[1,1,16000] w:w[512,1,10] strides:5
f Conv x:T[1,2,16000] w:w[128,2,10] strides:5
f Conv x:T[1,3,16000] w:w[64,3,8] strides:4
f Conv x:T[1,1,28,28] w:w[32,1,5,5]
f Conv x:T[1,1,28,28] w:w[6,1,5,5] pads:2,2,2,2
f Conv x:T[1,33,400] w:w[31,33,5] pads:2,2
f Conv x:T[1,64,400] w:w[64,64,3] dilations:9 pads:9,9
f Conv x:T[1,512,100] w:w[512,512,1]
f Conv x:T[8,512,100] w:w[512,16,3] group:32 pads:1,1
f Conv x:T[1,512,100] w:w[512,1,15] group:512 pads:7,7
f Conv x:T[1,3,8,40,40] w:w[7,3,3,3,3] pads:1,1,1,1,1,1
f Conv x:T[1,1,16,32,32] w:w[16,1,5,5,5] pads:2,2,2,2,2,2
f Conv x:T[1,32,8,14,14] w:w[32,32,1,3,3] pads:0,1,1,0,1,1
f Conv x:T[1,32,8,14,14] w:w[32,32,3,1,1] pads:1,0,0,1,0,0
f Conv x:T[1,32,8,14,14] w:w[32,8,3,3,3] group:4
f Conv x:T[1,64,8,14,14] w:w[128,64,1,1,1] strides:2,2,2
fh Conv x:T[1,32,28,28] w:T[32,32,3,3] pads:1,1,1,1
fh Conv x:T[1,32,28,28] w:T[32,1,3,3] group:32 pads:1,1,1,1
fh Conv x:T[1,32,28,28] w:T[32,8,3,3] group:4 pads:1,1,1,1
f Conv x:T[1,5,28,28] w:T[5,5,3,3] pads:1,1,1,1
f Conv x:T[1,256,25,25] w:T[256,1,5,5] group:256
f Conv x:T[1,32,400] w:T[33,32,5] pads:2,2
f ConvTranspose x:T[1,3,28,28] w:w[3,3,3,3] strides:2,2
f ConvTranspose x:T[1,32,28,28] w:w[32,1,2,2] strides:2,2
f ConvTranspose x:T[1,32,28,28] w:w[32,3,4,4] strides:2,2 pads:1,1,1,1
f ConvTranspose x:T[1,33,13,13] w:w[33,31,3,3] strides:3,2 output_padding:1,1
f ConvTranspose x:T[1,100,1,1] w:w[100,256,4,4]
f ConvTranspose x:T[1,64,16,16] w:w[64,64,16,16] strides:8,8 pads:4,4,4,4
f ConvTranspose x:T[1,30,14,14] w:w[30,5,3,3] group:3 strides:2,2
f ConvTranspose x:T[1,256,100] w:w[256,128,16] strides:8 pads:4,4
f ConvTranspose x:T[4,32,14,14] w:w[32,16,2,2] strides:2,2
fh ConvTranspose x:T[1,32,14,14] w:T[32,16,2,2] strides:2,2
f ConvTranspose x:T[1,32,28,28] w:T[32,32,4,4] strides:2,2 pads:1,1,1,1
f ConvTranspose x:T[1,30,14,14] w:T[30,5,3,3] b:T[15] group:3 strides:2,2
f DeformConv x:T[1,64,28,28] w:w[64,64,3,3] offset:T[1,18,28,28] _ mask:T[1,9,28,28] pads:1,1,1,1
f DeformConv x:T[1,256,14,14] w:w[256,256,3,3] offset:T[1,18,14,14] b:w[256] mask:T[1,9,14,14] pads:1,1,1,1
f DeformConv x:T[1,64,56,56] w:w[64,64,3,3] offset:T[1,18,56,56] b:w[64] pads:1,1,1,1
f DeformConv x:T[2,30,33,35] w:w[45,10,3,3] offset:T[2,36,33,35] group:3 offset_group:2 pads:1,1,1,1
f DeformConv x:T[1,3,64,64] w:w[16,3,5,5] offset:T[1,50,32,32] strides:2,2 pads:2,2,2,2
f DeformConv x:T[1,32,28,28] w:w[32,1,3,3] offset:T[1,18,28,28] group:32 pads:1,1,1,1
f MaxPool x:T[1,5,57,57] kernel_shape:3,3 strides:2,2
f MaxPool x:T[1,33,40,40] kernel_shape:13,13 pads:6,6,6,6
f MaxPool x:T[1,33,40,40] kernel_shape:5,5 pads:2,2,2,2
f MaxPool x:T[1,256,20,20] kernel_shape:9,9 pads:4,4,4,4
f MaxPool x:T[1,64,28,28] kernel_shape:1,5 pads:0,2,0,2
f MaxPool x:T[7,13,20,20] kernel_shape:2,2 strides:2,2
f MaxPool x:T[1,256,3,3] kernel_shape:2,2
f MaxPool x:T[1,64,28,28] kernel_shape:3,3 strides:3,3 ceil_mode:1
f MaxPool x:T[1,64,28,28] kernel_shape:2,3 strides:2,1 pads:0,1,1,0
hdcu MaxPool x:T[1,64,28,28] kernel_shape:5,5 pads:2,2,2,2
cu MaxPool x:T[1,64,28,28] kernel_shape:2,2 strides:2,2
f AveragePool x:T[1,5,57,57] kernel_shape:3,3 strides:2,2
f AveragePool x:T[1,33,40,40] kernel_shape:13,13 pads:6,6,6,6
f AveragePool x:T[1,256,7,7] kernel_shape:7,7
f AveragePool x:T[1,256,8,8] kernel_shape:2,2 strides:2,2
f AveragePool x:T[1,64,28,28] kernel_shape:5,5 pads:2,2,2,2 count_include_pad:1
f AveragePool x:T[1,64,28,28] kernel_shape:3,3 pads:0,2,1,0
h AveragePool x:T[1,64,28,28] kernel_shape:5,5 pads:2,2,2,2
f LpPool x:T[1,33,28,28] kernel_shape:3,3 p:1
f LpPool x:T[1,33,28,28] kernel_shape:3,3 p:3
fh GlobalMaxPool x:T[1,256,7,7]
fh GlobalAveragePool x:T[1,256,7,7]
f Resize x:T[1,16,27,31] _ scales=1,1,1.7,1.3 mode:linear
f Resize x:T[1,16,27,31] _ scales=1,1,1.7,1.3 mode:cubic
f Resize x:T[1,16,27,31] _ scales=1,1,1.7,1.3 mode:nearest
f Resize x:T[1,16,67,61] _ scales=1,1,0.37,0.43 mode:linear antialias:1
f Resize x:T[1,16,67,61] _ scales=1,1,0.37,0.43 mode:cubic antialias:1
f Resize x:T[1,16,67,61] _ scales=1,1,0.37,0.43 mode:linear
f Resize x:T[1,3,60,60] _ scales=1,1,4.0,4.0 mode:linear coordinate_transformation_mode:pytorch_half_pixel
f Resize x:T[1,27,31,16] _ scales=1,1.7,1.3,1 mode:linear
f Resize x:T[31,33] _ scales=2.0,2.0 mode:linear
f Resize x:T[1,64,16,16] _ scales=1,1,2,2 mode:cubic coordinate_transformation_mode:align_corners
hcu Resize x:T[1,16,27,31] _ scales=1,1,1.7,1.3 mode:linear
hi Resize x:T[1,16,28,28] _ scales=1,1,2,2 mode:nearest
hdilcu Where m:b[64,1000] x:T[64,1] y:T[1000]
f Where m:b[64,1] x:T[64,1000] y:T[1]
hdilcu Greater x:T[64,1000] y:T[64,1000]
hdil LessOrEqual x:T[64,1000] y:T[1000]
hdilcub Equal x:T[64,1000] y:T[1]
il Add x:T[64,1000] y:T[1]
cu Sub x:T[64,1000] y:T[64,1000]
cu Mul x:T[64,1000] y:T[64,1000]
h Add x:T[64,1000] y:T[64,1000]
h Mul x:T[64,1000] y:T[1000]
h Div x:T[64,1000] y:T[64,1]
h Sub x:T[64,1000] y:T[1]
h Relu x:T[64,1000]
h LeakyRelu x:T[64,1000]
h HardSigmoid x:T[64,1000]
h HardSwish x:T[64,1000]
h Neg x:T[64,1000]
h Abs x:T[64,1000]
h Reciprocal x:T[64,1000]
f Reciprocal x:T[64,1000]
fd Sin x:T[64,1000]
fd Cos x:T[64,1000]
f Atan x:T[64,1000]
f Tan x:T[64,1000]
f Sinh x:T[64,1000]
f Asin x:T[64,1000]
f Acosh x:T[64,1000]
f Elu x:T[64,1000]
f Selu x:T[64,1000]
f Celu x:T[64,1000]
f LeakyRelu x:T[64,1000]
f PRelu x:T[1,64,28,28] y:T[64,1,1]
f ThresholdedRelu x:T[64,1000]
f Softsign x:T[64,1000]
f HardSigmoid x:T[64,1000]
f Gelu x:T[64,1000] approximate:tanh
f Mod x:T[64,1000] y:T[64,1000] fmod:1
il Pow x:T[64,1000] y:T[1]
f Pow x:T[64,1000] y:T[64,1000]
f Max x:T[64,1000] y:T[64,1000] z:T[1000]
f Sum x:T[64,1000] y:T[64,1000] z:T[64,1000]
f Mean x:T[64,1000] y:T[64,1000] z:T[1000]
f Add x:T[16,1,50,1] y:T[1,20,1,60]
f Mul x:T[1,64,28,28] y:T[1,64,1,1]
f IsInf x:T[64,1000]
b Xor x:T[64,1000] y:T[64,1]
cu BitwiseXor x:T[64,1000] y:T[64,1000]
hdilcub Cast x:T[64,1000] to:11
hdilcub Cast x:T[64,1000] to:6
dicub Cast x:T[64,1000] to:7
hdilcb Cast x:T[64,1000] to:2
ilcub Cast x:T[64,1000] to:10
hilub Cast x:T[64,1000] to:3
hdilcu Cast x:T[64,1000] to:9
b Cast x:T[64,1000] to:1
fdil Gather x:T[30,50,7] i:l[20] axis:2
hdil Gather x:T[30,50,7] i:l[20] axis:1
cub Gather x:T[1000,64] i:l[500] axis:0
f Gather x:T[30522,64] i:l[4,77] axis:0
f Gather x:T[1000,3] i:l[1000] axis:0
f Gather x:T[64,1000] i:l[] axis:1
hilu GatherElements x:T[30,50,7] i:l[30,20,7] axis:1
f GatherElements x:T[30,50,7] i:l[30,50,7] axis:0
il GatherND x:T[64,100,32] i:l[500,2]
f GatherND x:T[8,64,32] i:l[8,20,1] batch_dims:1
f ScatterElements x:T[30,50,7] i:l[30,20,7] u:T[30,20,7] axis:1
hil ScatterElements x:T[64,1000] i:l[64,100] u:T[64,100] axis:1
f ScatterElements x:T[64,1000] i:l[64,100] u:T[64,100] axis:1 reduction:max
f ScatterND x:T[64,100,32] i:l[64,1] u:T[64,100,32]
f ScatterND x:T[30,50,7] i:l[200,3] u:T[200] reduction:mul
hdil TopK x:T[16,77,64] k=5 axis:1 out=2
f TopK x:T[16,77,64] k=77 axis:1 out=2
f TopK x:T[4,50000] k=1 axis:-1 out=2
f TopK x:T[4,50000] k=100 axis:-1 largest:0 out=2
f TopK x:T[2000,7] k=2 axis:-1 out=2
fl Unique x:T[10000] sorted:0 out=4
lb NonZero x:T[64,1000]
ib NonZero x:T[7,9,11,13]
f Compress x:T[64,1000] m:b[64] axis:0
f Compress x:T[64,1000] m:b[1000] axis:1
hdil ReduceSum x:T[8,30,64,40] axes=0,2
hdilcu ReduceMax x:T[8,30,13,40] axes=1,3
hdilcu ReduceMin x:T[16,77,64] axes=1
hdil ReduceProd x:T[16,77,64] axes=1
hdil ReduceMean x:T[8,30,13,40] axes=2
hdil ReduceMean x:T[64,1000] axes=-1
hdil ReduceL1 x:T[64,1000] axes=-1
hdil ReduceL2 x:T[16,77,64] axes=1
hdil ReduceSumSquare x:T[64,1000] axes=0
hd ReduceLogSumExp x:T[64,1000] axes=-1
fhd ReduceLogSum x:T[64,1000] axes=-1
fhdil ReduceSum x:T[64,1000] axes=0,1
fhdil ReduceMax x:T[64,1000] axes=0,1
f ReduceMean x:T[5,7,3] axes=1
f ReduceMean x:T[1000,3] axes=-1
f ReduceMax x:T[3,1000,3] axes=1
f ReduceSum x:T[100000,2] axes=0
hdilcu ArgMax x:T[16,77,64] axis:1
hdilcu ArgMin x:T[64,1000] axis:-1
f ArgMax x:T[1000,3] axis:-1
f ArgMax x:T[64,1000] axis:-1 select_last_index:1
f Softmax x:T[100000,3] axis:-1
f Softmax x:T[10000,10] axis:-1
f LogSoftmax x:T[100000,2] axis:-1
f ReduceMax x:T[3,1000,3] axes=-1
f ReduceSum x:T[3000,5] axes=-1
f ArgMax x:T[3,1000,3] axis:-1
f LSTM x:f[50,7,33] w:w[1,148,33] r:w[1,148,37] hidden_size:37
f LSTM x:f[50,1,31] w:w[2,124,31] r:w[2,124,31] hidden_size:31 direction:bidirectional
f LSTM x:f[50,7,33] w:w[1,148,33] r:w[1,148,37] b:w[1,296] n:i[7] hidden_size:37
f LSTM x:f[50,7,33] w:w[1,148,33] r:w[1,148,37] b:w[1,296] _ h:f[1,7,37] c:f[1,7,37] p:w[1,111] hidden_size:37
f LSTM x:f[50,7,33] w:w[1,148,33] r:w[1,148,37] hidden_size:37 direction:reverse
f LSTM x:f[20,1,512] w:w[1,2048,512] r:w[1,2048,512] hidden_size:512
f LSTM x:f[20,1,64] w:f[1,256,64] r:f[1,256,64] hidden_size:64
f LSTM x:f[100,8,64] w:f[1,512,64] r:f[1,512,128] b:f[1,1024] hidden_size:128
f GRU x:f[100,8,64] w:f[1,384,64] r:f[1,384,128] hidden_size:128
f LSTM x:f[100,8,64] w:w[1,512,64] r:w[1,512,128] b:w[1,1024] n:i[8] hidden_size:128
f GRU x:f[50,7,33] w:w[1,111,33] r:w[1,111,37] hidden_size:37
f GRU x:f[50,7,33] w:w[1,111,33] r:w[1,111,37] hidden_size:37 linear_before_reset:1 direction:reverse
f GRU x:f[50,1,33] w:w[2,111,33] r:w[2,111,37] hidden_size:37 direction:bidirectional
f GRU x:f[50,7,33] w:w[1,111,33] r:w[1,111,37] b:w[1,222] n:i[7] hidden_size:37
f RNN x:f[50,7,33] w:w[1,37,33] r:w[1,37,37] hidden_size:37
f RNN x:f[50,1,33] w:w[2,37,33] r:w[2,37,37] hidden_size:37 direction:bidirectional
h LSTM x:T[20,1,64] w:T[1,256,64] r:T[1,256,64] hidden_size:64
fd Einsum x:T[5,7,33] y:T[5,33,13] equation:bij,bjk->bik
f Einsum x:T[20,30] y:T[30,40,5] equation:ij,jkl->lik
f Einsum x:T[8,50,33] y:T[8,50,33] equation:bnc,bnc->bn
f Einsum x:T[8,33,50] y:T[33] equation:bcn,c->bn
f Einsum x:T[4,8,50,50] y:T[4,50,8,16] equation:nhql,nlhd->nqhd
f Einsum x:T[30,40,50] equation:abc->bca
f Einsum x:T[64,64] equation:ii->i
f Einsum x:T[64,64] equation:ii->
f Einsum x:T[20,30,40] y:T[20,30,40] equation:abc,abc->
f Einsum x:T[50,20] y:T[50,30] z:T[50,10] equation:ai,aj,ak->ijk
hil Einsum x:T[50,60] y:T[60,70] equation:ij,jk->ik
f Attention q:T[1,8,128,20] k:T[1,8,128,20] v:T[1,8,128,20]
f Attention q:T[1,8,256,40] k:T[1,8,256,40] v:T[1,8,256,40]
f Attention q:T[1,8,256,80] k:T[1,8,256,80] v:T[1,8,256,80]
f Attention q:T[1,8,128,96] k:T[1,8,77,96] v:T[1,8,77,96]
f Attention q:T[1,8,64,160] k:T[1,8,64,160] v:T[1,8,64,160]
f Attention q:T[1,12,100,64] k:T[1,4,100,64] v:T[1,4,100,64] is_causal:1
f Attention q:T[1,12,1,40] k:T[1,4,333,40] v:T[1,4,333,40]
f Attention q:T[1,8,100,64] k:T[1,8,100,64] v:T[1,8,100,64] mask:b[100,100]
f Attention q:T[7,3,33,20] k:T[7,3,33,20] v:T[7,3,33,20]
f Attention q:T[1,8,128,32] k:T[1,8,128,32] v:T[1,8,128,72]
h Attention q:T[1,8,128,64] k:T[1,8,128,64] v:T[1,8,128,64]
f MatMul x:T[1,1,333] y:w[333,777]
f MatMul x:T[7,33] y:w[33,5]
f MatMul x:T[128,256] y:T[256,128]
f MatMul x:T[333] y:T[333,77]
f MatMul x:T[77,333] y:T[333]
f MatMul x:T[33,1] y:T[1,77]
f MatMul x:T[100,3,3] y:T[100,3,3]
f MatMul x:T[100,4,4] y:T[100,4,1]
f MatMul x:T[8,33,31] y:T[31,35]
f MatMul x:T[3,5,17,129] y:T[5,129,13]
f Gemm x:T[256,33] y:T[256,65] transA:1
f Gemm x:T[33,256] y:T[65,256] c:T[65] transB:1
f Gemm x:T[1,256] y:T[512,256] c:T[512] transB:1
f Gemm x:T[256,33] y:T[65,256] transA:1 transB:1
h Gemm x:T[33,256] y:T[65,256] c:T[65] transB:1
h MatMul x:T[8,64,48] y:T[8,48,64]
h MatMul x:T[1,256] y:T[256,512]
f Softmax x:T[64,33] axis:-1
f Softmax x:T[5,7,9,11] axis:2
f Softmax x:T[100000,3] axis:-1
fh LogSoftmax x:T[64,33] axis:-1
h Softmax x:T[64,77,64] axis:1
fh LayerNormalization x:T[100,33] scale:T[33] bias:T[33]
h GroupNormalization x:T[1,64,28,28] scale:T[64] bias:T[64] num_groups:8
h InstanceNormalization x:T[1,64,28,28] scale:T[64] bias:T[64]
f BatchNormalization x:T[1,64,28,28] scale:T[64] bias:T[64] mean:T[64] variance:T[64]
f BatchNormalization x:T[64,333] scale:T[333] bias:T[333] mean:T[333] variance:T[333]
hdilcub Transpose x:T[30,40,50] perm:2,1,0
hdlu Transpose x:T[8,3,14,14,16] perm:0,2,4,1,3
f Transpose x:T[100,3,3] perm:0,2,1
f Transpose x:T[3,1000,1000] perm:1,2,0
f Transpose x:T[1000,1000,3] perm:2,0,1
f Transpose x:T[5,6,7,8,9] perm:4,2,0,3,1
hdiu Concat x:T[64,33] y:T[64,7] axis:1
f Concat x:T[1000,3] y:T[1000,1] axis:1
f Split x:T[64,1000] num_outputs:4 axis:1 out=4
hdiu Split x:T[64,100] num_outputs:4 axis:1 out=4
hdiu Slice x:T[64,1000] starts=3 ends=-5 axes=1 steps=1
f Slice x:T[30,40,50] starts=-1,-1 ends=-1000,-1000 axes=0,2 steps=-1,-3
f Pad x:T[30,40,50] pads=1,2,3,3,2,1
f Pad x:T[1,3,50,50] pads=0,0,7,7,0,0,7,7 mode:edge
f Pad x:T[1,3,50,50] pads=0,0,7,7,0,0,7,7 mode:wrap
hdiu Tile x:T[7,33] repeats=5,3
f Tile x:T[64,100] repeats=2,3
f Tile x:T[1,1,333] repeats=1,77,1
f Expand x:T[333,1] shape=333,77
f Expand x:T[1] shape=100,100
f DepthToSpace x:T[1,48,33,31] blocksize:4 mode:CRD
hu DepthToSpace x:T[1,48,32,32] blocksize:4
hu SpaceToDepth x:T[1,16,32,32] blocksize:2
f CumSum x:T[30,40,50] axis=0
fhdl CumSum x:T[30,40,50] axis=2
f Trilu x:T[8,100,100] upper:0
f GridSample x:T[2,3,31,33] grid:f[2,17,19,2] mode:cubic
f GridSample x:T[1,16,32,32] grid:f[1,40,40,2] mode:nearest padding_mode:border
f GridSample x:T[1,16,32,32] grid:f[1,40,40,2] padding_mode:reflection align_corners:1
h GridSample x:T[1,16,32,32] grid:h[1,40,40,2]
f LRN x:T[2,33,13,13] size:3
f RotaryEmbedding x:T[1,3,33,40] cos:f[1,33,20] sin:f[1,33,20]
h RotaryEmbedding x:T[1,8,128,64] cos:T[1,128,32] sin:T[1,128,32]
fd Shrink x:T[64,1000]
f LpNormalization x:T[64,33] axis:-1 p:2
f ReverseSequence x:T[8,100,64] n:l[8] batch_axis:0 time_axis:1
h Where m:b[64,1] x:T[64,1000] y:T[1]
"""


def odd() -> list[Setting]:
    """All settings."""
    return in_types(SETTINGS)
