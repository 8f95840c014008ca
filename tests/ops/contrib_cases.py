"""Nodes of ``com.microsoft`` in the forms that ONNX Runtime runs: attributes, optional inputs, types and shapes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import helper, numpy_helper

MS = "com.microsoft"
Array = np.ndarray | None


@dataclass
class Case:
    """One node.

    Attributes:
        name: The operator.
        inputs: Arrays, None for an absent one.
        attrs: Its attributes.
        outputs: How many it has.
        weights: Positions of inputs that are constants of the model.
        tolerance: Relative and absolute, where the result is not exact to some ulps.
    """

    name: str
    inputs: Sequence[Array]
    attrs: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    weights: tuple[int, ...] = ()
    tolerance: float = 2e-5

    def __str__(self) -> str:
        shapes = ["-" if x is None else f"{x.dtype}{list(x.shape)}".replace(" ", "") for x in self.inputs]
        attrs = ",".join(f"{k}={v}" for k, v in self.attrs.items())
        return f"{self.name}({','.join(shapes)};{attrs};{self.outputs})".replace(" ", "")

    def model(self, dims: dict[int, Sequence[int | str]] | None = None) -> onnx.ModelProto:
        """The node as a model; ``dims`` names sizes of inputs by position."""
        names = ["" if x is None else f"i{i}" for i, x in enumerate(self.inputs)]
        results = [f"o{i}" for i in range(self.outputs)]
        node = helper.make_node(self.name, names, results, domain=MS, **self.attrs)
        given, constants = [], []
        for i, x in enumerate(self.inputs):
            if x is None:
                continue
            if i in self.weights:
                constants.append(numpy_helper.from_array(x, names[i]))
            else:
                kind = helper.np_dtype_to_tensor_dtype(x.dtype)
                given.append(helper.make_tensor_value_info(names[i], kind, (dims or {}).get(i, x.shape)))
        made = [helper.make_value_info(name, onnx.TypeProto()) for name in results]
        graph = helper.make_graph([node], "node", given, made, constants)
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MS, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def feed(self) -> dict[str, np.ndarray]:
        return {f"i{i}": x for i, x in enumerate(self.inputs) if x is not None and i not in self.weights}


_RNG = np.random.default_rng(0)
B, S, T, P, N, H, D = 2, 5, 7, 3, 4, 4, 16


def floats(*shape: int) -> np.ndarray:
    return _RNG.standard_normal(shape).astype(np.float32)


def integers(low: int, high: int, shape: Sequence[int], dtype: Any = np.int32) -> np.ndarray:
    return np.asarray(_RNG.integers(low, high, shape)).astype(dtype)


def whole(dtype: Any, *shape: int) -> np.ndarray:
    return integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, shape, dtype)


def small(*shape: int) -> np.ndarray:
    """Scales."""
    return np.asarray(_RNG.uniform(0.01, 0.02, shape), np.float32)


def _masks() -> list[Array]:
    return [
        None,
        np.array([3, 5], np.int32),
        np.array([3, 5, 1, 0], np.int32),
        integers(0, 2, (B, S)),
        integers(0, 2, (B, S, S)),
    ]


def attention() -> Iterator[Case]:
    x, w, b = floats(B, S, D), floats(D, 3 * D), floats(3 * D)
    fixed = (1, 2)
    for mask in _masks():
        for causal in (0, 1):
            # A masked score is -10000, beside which the scores of a row lose digits.
            attrs = {"num_heads": N, "unidirectional": causal}
            yield Case("Attention", [x, w, b, mask], attrs, weights=fixed, tolerance=2e-3)
            yield Case("Attention", [x, w, b, mask], {**attrs, "mask_filter_value": -1.0}, weights=fixed)
    yield Case("Attention", [x, w, b], {"num_heads": 1, "scale": 0.3}, outputs=2, weights=fixed)
    past = floats(2, B, N, P, H)
    for causal in (0, 1):
        attrs = {"num_heads": N, "unidirectional": causal}
        yield Case("Attention", [x, w, b, None, past], attrs, outputs=2, weights=fixed)
        yield Case(
            "Attention", [x, w, b, integers(0, 2, (B, S + P)), past], attrs, outputs=2, weights=fixed, tolerance=2e-3
        )
    for shape in ((B, N, S, S), (1, N, S, S), (B, 1, S, S), (1, 1, S, S)):
        yield Case("Attention", [x, w, b, None, None, floats(*shape)], {"num_heads": N}, weights=fixed)
    attrs = {"num_heads": N, "qkv_hidden_sizes": [16, 16, 8]}
    yield Case("Attention", [x, floats(D, 40), floats(40)], attrs, weights=fixed)


def multi_head_attention() -> Iterator[Case]:
    name = "MultiHeadAttention"
    q, k, v = floats(B, S, D), floats(B, T, D), floats(B, T, 8)
    attrs: dict[str, Any] = {"num_heads": N}
    yield Case(name, [q, k, v], attrs, outputs=3)
    yield Case(name, [q, k, v, floats(40)], attrs, weights=(3,))
    yield Case(name, [q, k, v, None, integers(0, 2, (B, T))], attrs, tolerance=2e-3)
    yield Case(name, [q, k, v, None, integers(0, 2, (B, S, T))], attrs, tolerance=2e-3)
    yield Case(name, [q, k, v, None, integers(0, 2, (B, S, T))], {**attrs, "mask_filter_value": -2.0})
    yield Case(name, [q, k, v, None, None, floats(B, N, S, T)], attrs)
    yield Case(name, [q, k, v, None, None, floats(1, 1, S, T)], attrs)
    for keys in (3, S, T):
        k, v = floats(B, keys, D), floats(B, keys, D)
        yield Case(name, [q, k, v], {**attrs, "unidirectional": 1, "scale": 0.7})
    yield Case(name, [q, floats(B, N, T, H), floats(B, N, T, H)], attrs)
    yield Case(name, [q, floats(B, N, T, H), floats(B, N, T, H), floats(48)], attrs, weights=(3,))
    k, v, old_k, old_v = floats(B, S, D), floats(B, S, D), floats(B, N, P, H), floats(B, N, P, H)
    yield Case(name, [q, k, v, None, None, None, old_k, old_v], attrs, outputs=3)
    causal = {**attrs, "unidirectional": 1}
    yield Case(name, [q, k, v, floats(48), None, None, old_k, old_v], causal, outputs=3, weights=(3,))
    mask = integers(0, 2, (B, S + P))
    yield Case(name, [q, k, v, None, mask, None, old_k, old_v], attrs, outputs=3, tolerance=2e-3)


def rotary_embedding() -> Iterator[Case]:
    for interleaved in (0, 1):
        for x in (floats(B, S, D), floats(B, N, S, H)):
            for positions in (integers(0, 20, (B, S), np.int64), np.array([3], np.int64)):
                attrs = {"interleaved": interleaved, "num_heads": N}
                inputs = [x, positions, floats(20, H // 2), floats(20, H // 2)]
                yield Case("RotaryEmbedding", inputs, attrs, weights=(2, 3))
                inputs = [x, positions, floats(20, 1), floats(20, 1)]
                yield Case("RotaryEmbedding", inputs, {**attrs, "rotary_embedding_dim": 2}, weights=(2, 3))
        yield Case(
            "RotaryEmbedding",
            [floats(B, S, D), integers(0, 20, (B, S), np.int64), floats(20, 2), floats(20, 2)],
            {"interleaved": interleaved},
            weights=(2, 3),
        )


def matmul_n_bits() -> Iterator[Case]:
    name = "MatMulNBits"
    for bits in (2, 4, 8):
        for depth, width, block in ((32, 8, 16), (48, 5, 32), (40, 3, 16)):
            blocks = -(-depth // block)
            packed = whole(np.uint8, width, blocks, block * bits // 8)
            scales = small(width * blocks)
            zeros = whole(np.uint8, width * -(-blocks * bits // 8))
            attrs = {"K": depth, "N": width, "block_size": block, "bits": bits}
            fixed = (1, 2, 3, 4, 5)
            tolerance = 1e-4 if bits == 8 else 2e-5
            x = floats(B, 3, depth)
            yield Case(name, [x, packed, scales], attrs, weights=fixed, tolerance=tolerance)
            yield Case(name, [x[0], packed, scales, zeros, None, floats(width)], attrs, 1, fixed, tolerance)
            if bits < 8:
                inputs = [x, packed, scales.reshape(width, blocks), floats(width, blocks)]
                yield Case(name, inputs, attrs, weights=fixed)
            if bits == 4:
                groups = np.sort(integers(0, blocks, (depth,)))
                yield Case(name, [x, packed, scales, None, groups], attrs, weights=fixed)
                unsorted = integers(0, blocks, (depth,))
                yield Case(name, [x, packed, scales, floats(width * blocks), unsorted], attrs, weights=fixed)
            half = [x.astype(np.float16), packed, scales.astype(np.float16)]
            yield Case(name, half, attrs, weights=fixed, tolerance=2e-2)


def gather_block_quantized() -> Iterator[Case]:
    name = "GatherBlockQuantized"
    fixed = (0, 2, 3)
    for dtype, bits in ((np.uint8, 4), (np.uint8, 8), (ml_dtypes.uint4, 4), (ml_dtypes.int4, 4)):
        packing = 8 // bits if dtype is np.uint8 else 1
        for shape, at in (((6, 64), (3,)), ((6, 48), (2, 3)), ((3, 5, 32), (2,))):
            if dtype is np.uint8:
                data = whole(np.uint8, *shape[:-1], shape[-1] // packing)
                zeros = whole(np.uint8, *shape[:-1], -(-(shape[-1] // 16) // packing))
            else:
                low = -8 if dtype is ml_dtypes.int4 else 0
                data, zeros = (integers(low, low + 16, (*shape[:-1], n), dtype) for n in (shape[-1], shape[-1] // 16))
            indices, scales = integers(-shape[0], shape[0], at, np.int64), small(*shape[:-1], shape[-1] // 16)
            attrs = {"bits": bits, "block_size": 16, "gather_axis": 0, "quantize_axis": len(shape) - 1}
            yield Case(name, [data, indices, scales], attrs, weights=fixed)
            yield Case(name, [data, indices, scales, zeros], attrs, weights=fixed)


def embeddings() -> Iterator[Case]:
    name = "EmbedLayerNormalization"
    ids, segments, mask = integers(0, 10, (B, S)), integers(0, 2, (B, S)), integers(0, 2, (B, S))
    words, places, kinds = floats(10, 8), floats(9, 8), floats(2, 8)
    gamma, beta = floats(8), floats(8)
    fixed = (2, 3, 4, 5, 6)
    yield Case(name, [ids, segments, words, places, kinds, gamma, beta, mask], {}, 2, fixed)
    yield Case(name, [ids, segments, words, places, kinds, gamma, beta], {"epsilon": 1e-3}, 3, fixed)
    for batch in (1, B):
        positions = integers(0, 9, (batch, S))
        yield Case(name, [ids, None, words, places, None, gamma, beta, mask, positions], {}, 3, fixed)
    for dtype in (np.uint8, np.int8):
        tables = [whole(dtype, n, 8) for n in (10, 9, 2)]
        vectors = [whole(dtype, 8) for _ in range(2)]
        scales, zeros = [small() for _ in range(5)], [whole(dtype) for _ in range(5)]
        inputs: list[Array] = [ids, segments, *tables, *vectors, mask, *scales, *zeros]
        constants = (*fixed, *range(8, 18))
        yield Case("QEmbedLayerNormalization", inputs, {}, 2, constants, 1e-4)
        for absent in (1, 4, 7, 10, 15):
            inputs[absent] = None
        yield Case("QEmbedLayerNormalization", inputs, {}, 2, constants, 1e-4)


def quantized_attention() -> Iterator[Case]:
    name, attrs = "QAttention", {"num_heads": N}
    b, scale, past = floats(3 * D), [small(), small()], floats(2, B, N, P, H)
    for kind in (np.int8, np.uint8):
        x, w = whole(np.uint8, B, S, D), whole(kind, D, 3 * D)
        zeros = [whole(np.uint8), whole(kind)]
        fixed = (1, 2, 3, 4, 6, 7)
        yield Case(name, [x, w, b, *scale], attrs, weights=fixed, tolerance=1e-4)
        yield Case(name, [x, w, b, *scale, np.array([3, 5], np.int32), *zeros], attrs, 1, fixed, 2e-3)
        causal = {**attrs, "unidirectional": 1}
        yield Case(name, [x, w, b, *scale, None, *zeros, past], causal, 2, fixed, 1e-4)
        inputs = [x, w, b, scale[0], small(3 * D), integers(0, 2, (B, S)), zeros[0], whole(kind, 3 * D)]
        yield Case(name, inputs, attrs, 1, fixed, 2e-3)


def dynamic_quantize_lstm() -> Iterator[Case]:
    name, fixed = "DynamicQuantizeLSTM", (1, 2, 3, 7, 8, 9, 10, 11)
    for kind in (np.int8, np.uint8):
        for direction, count in (("forward", 1), ("reverse", 1), ("bidirectional", 2)):
            x, w, r = floats(S, B, 6), whole(kind, count, 6, 4 * H), whole(kind, count, H, 4 * H)
            attrs = {"direction": direction, "hidden_size": H}
            scales = [small(count), whole(kind, count), small(count), whole(kind, count)]
            state = [floats(count, B, H), floats(count, B, H)]
            b, p = floats(count, 8 * H), floats(count, 3 * H)
            yield Case(name, [x, w, r, b, None, None, None, None, *scales], attrs, 3, fixed)
            yield Case(name, [x, w, r, None, None, *state, p, *scales], attrs, 3, fixed)
            lengths = np.array([3, 4], np.int32)
            yield Case(name, [x, w, r, b, lengths, None, None, None, *scales], attrs, 3, fixed)
            columns = [small(count, 4 * H), np.full((count, 4 * H), 0, kind)] * 2
            inputs = [x, w, r, b, None, *state, p, *columns]
            yield Case(name, inputs, {**attrs, "input_forget": 1, "clip": 0.5}, 3, fixed)
        names = ["Relu", "Tanh", "HardSigmoid"]
        attrs = {"hidden_size": H, "activations": names, "activation_alpha": [0.3], "activation_beta": [0.4]}
        yield Case(name, [x, w[:1], r[:1], b[:1], None, None, None, None, *(s[:1] for s in scales)], attrs, 3, fixed)


def variants() -> Iterator[Case]:
    image, grid = floats(B, 3, S, 6), np.asarray(_RNG.uniform(-1.2, 1.2, (B, 4, 3, 2)), np.float32)
    for mode in ("bilinear", "nearest", "bicubic"):
        for padding in ("zeros", "border", "reflection"):
            attrs = {"mode": mode, "padding_mode": padding, "align_corners": int(mode == "nearest")}
            # onnx.reference, which evaluates it, clamps cubic weights otherwise than ONNX Runtime.
            if (mode, padding) != ("bicubic", "border"):
                yield Case("GridSample", [image, grid], attrs)
    for kind in (np.uint8, np.int8):
        pool = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}
        yield Case("NhwcMaxPool", [whole(kind, B, 9, 8, 3)], pool)
        yield Case("NhwcMaxPool", [whole(kind, B, 9, 8, 3)], {"kernel_shape": [3, 3], "dilations": [2, 1]})
        yield Case("NhwcMaxPool", [whole(kind, 1, 9, 8, 3)], {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER"})
    for kind in (np.int32, np.int64):
        yield Case("GatherND", [floats(4, 5, 3), integers(0, 4, (6, 2), kind)])
        yield Case("GatherND", [floats(4, 5), integers(-4, 4, (2, 3, 1), kind)])
    for metric in ("euclidean", "sqeuclidean"):
        yield Case("CDist", [floats(4, 6), floats(5, 6)], {"metric": metric})
    yield Case("Inverse", [floats(B, 3, 4, 4) + 3 * np.eye(4, dtype=np.float32)])
    yield Case("Inverse", [(floats(3, 3) + 3 * np.eye(3)).astype(np.float64)])
    yield Case("MatMulInteger16", [whole(np.int16, 3, 5), whole(np.int16, 5, 4)])
    yield Case("MatMulInteger16", [whole(np.int16, B, 3, 5), whole(np.int16, B, 5, 4)])
    yield Case("Unique", [np.array([3, 1, 1, 2, 3, 0], np.float32)], outputs=3)
    yield Case("Unique", [np.array([2], np.float32)], outputs=3)


def group_query_attention() -> Iterator[Case]:
    name, groups, size = "GroupQueryAttention", 2, 16
    attrs: dict[str, Any] = {"num_heads": N, "kv_num_heads": groups}
    fixed, turns = (5, 6, 7, 8), [floats(20, size // 2), floats(20, size // 2)]

    def tensors(steps: int, past: int, batch: int) -> list[Array]:
        new = [floats(batch, steps, N * size), floats(batch, steps, groups * size), floats(batch, steps, groups * size)]
        old: list[Array] = (
            [floats(batch, groups, past, size), floats(batch, groups, past, size)] if past else [None, None]
        )
        return [*new, *old]

    def sizes(lengths: Sequence[int]) -> list[Array]:
        return [np.array(lengths, np.int32) - 1, np.array(max(lengths), np.int32)]

    turned = {**attrs, "do_rotary": 1}
    for steps, past, lengths in ((S, 0, (S, S)), (1, 6, (4, 7)), (1, 9, (4, 7)), (3, 4, (7,))):
        known, batch = sizes(lengths), len(lengths)
        for further in (
            {},
            {"scale": 0.3},
            {"softcap": 2.0},
            {"causal": 0},
            {"local_window_size": 2},
            {"smooth_softmax": 1},
        ):
            yield Case(name, [*tensors(steps, past, batch), *known], {**attrs, **further}, 3, fixed)
        for interleaved in (0, 1):
            yield Case(
                name,
                [*tensors(steps, past, batch), *known, *turns],
                {**turned, "rotary_interleaved": interleaved},
                3,
                fixed,
            )
        packed = [floats(batch, steps, (N + 2 * groups) * size), None, None, *tensors(steps, past, batch)[3:]]
        yield Case(name, [*packed, *known, *turns], turned, 3, fixed)
        bias = floats(1, N, steps, max(lengths))
        yield Case(name, [*tensors(steps, past, batch), *known, None, None, None, bias], attrs, 3, fixed)
        sink = floats(N)
        yield Case(name, [*tensors(steps, past, batch), *known, None, None, None, None, sink], attrs, 3, fixed)


CASES = [
    *attention(),
    *multi_head_attention(),
    *rotary_embedding(),
    *matmul_n_bits(),
    *gather_block_quantized(),
    *embeddings(),
    *quantized_attention(),
    *dynamic_quantize_lstm(),
    *variants(),
    *group_query_attention(),
]
