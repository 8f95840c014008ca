"""Operators on arrays of terms, of known shapes and attributes.

Operators that move elements are computed by eqsat's own kernels, on numbers that represent the elements. Sums and
products are written out: their terms are valid over the reals, and modulo 2^n, but do not describe how a kernel rounds.

Operators that add and multiply are defined here again, and not where they are declared: a proof must not take the
meaning of an operator from the kernel that it judges. If an operator is missing here, rules with it are not proven.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import inf
from typing import Any

import numpy as np

from eqsat.ops.evaluate import evaluate
from eqsat.ops.operators import has
from eqsat.ops.traits import Trait
from eqsat.proofs.scalar_terms import NotModelled, ScalarTerm, apply, number
from eqsat.proofs.term_arrays import (
    Array,
    GivenArrays,
    each,
    elementwise,
    filled,
    minus,
    multiplied,
    over,
    plus,
    present,
    scalar,
    terms,
    times,
    total,
)
from eqsat.schema.attributes import make_attrs
from eqsat.schema.types import Attributes, OpKey

_MOVES = frozenset(
    {"Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Expand", "Tile", "Slice", "Concat", "Split"}
    | {"Gather", "GatherElements", "GatherND", "DepthToSpace", "SpaceToDepth", "Pad"}
)
_SAME = frozenset({"Identity", "CastHint", "StopFusion", "ChannelsLast", "ChannelsFirst"})


def computed(op: OpKey, attrs: Attributes, given: GivenArrays, outputs: int, *, rounds: bool) -> list[Array]:
    """The results of an operator.

    Args:
        attrs: Its attributes; numbers may be terms.
        rounds: Whether it matters how results are rounded.

    Raises:
        NotModelled: The operator has no meaning here.
    """
    name = op.name
    if op.domain not in ("", "eqsat"):
        raise NotModelled(f"{op}: not modelled")
    if name in _SAME or (name == "Dropout" and outputs == 1 and (len(given) < 3 or _is_false(given[2]))):
        return [present(given[0])]
    if name in _MOVES:
        return _moved(op, attrs, given, outputs)
    if has(op, Trait.ELEMENTWISE):
        return [elementwise(op, attrs, given)]
    make = _OPERATORS.get(name)
    if make is None:
        raise NotModelled(f"{op}: not modelled at bounded sizes")
    if rounds and name not in _SELECTING:
        raise NotModelled(f"{op}: how it rounds is not modelled")
    return [make(attrs, given)]


def _is_false(array: Array | None) -> bool:
    return array is None or (array.dtype == bool and not array.any())


def _moved(op: OpKey, attrs: Attributes, given: GivenArrays, outputs: int) -> list[Array]:
    """By the operator's kernel, on the positions of the elements."""
    if op.name == "Pad" and given[0] is not None and not given[0].ndim:
        return [given[0]]
    known: list[ScalarTerm] = []
    inputs: list[Array | None] = []
    # The shape, axes and the like are numbers; moved elements are terms or numbers.
    for array in given:
        if array is None or array.dtype != object:
            inputs.append(array)
            continue
        numbers = np.arange(len(known), len(known) + array.size, dtype=np.int64).reshape(array.shape)
        known += list(array.ravel())
        inputs.append(numbers)
    if not known:
        bundle = make_attrs(op, dict(attrs))
        return [np.asarray(r) for r in evaluate(op, bundle, inputs, outputs) if r is not None]
    if any(a is not None and a.dtype != object for a in (given if op.name == "Concat" else ())):
        return _moved(op, attrs, [None if a is None else terms(a) for a in given], outputs)
    if op.name == "Pad" and (len(inputs) < 3 or inputs[2] is None):
        inputs = [*inputs, *[None] * (3 - len(inputs))]
        inputs[2] = np.asarray(len(known), np.int64)
        known.append(number(0))
    results = evaluate(op, make_attrs(op, dict(attrs)), inputs, outputs)
    return [_at(known, np.asarray(r)) for r in results if r is not None]


def _at(known: list[ScalarTerm], numbers: Array) -> Array:
    return filled(numbers.shape, lambda place: known[int(numbers[place])])


# ---- sums and products --------------------------------------------------------------------------------------------


def _matmul(attrs: Attributes, given: GivenArrays) -> Array:
    a, b = terms(present(given[0])), terms(present(given[1]))
    rows, columns = a.ndim == 1, b.ndim == 1
    a = a[None, :] if rows else a
    b = b[:, None] if columns else b
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a = np.broadcast_to(a, (*batch, *a.shape[-2:]))
    b = np.broadcast_to(b, (*batch, *b.shape[-2:]))

    def element(place: tuple[int, ...]) -> ScalarTerm:
        *at, i, j = place
        return total(times(a[(*at, i, k)], b[(*at, k, j)]) for k in range(a.shape[-1]))

    found = filled((*batch, a.shape[-2], b.shape[-1]), element)
    if rows:
        found = found[..., 0, :]
    return found[..., 0] if columns else found


def _gemm(attrs: Attributes, given: GivenArrays) -> Array:
    a, b = terms(present(given[0])), terms(present(given[1]))
    a = a.T if attrs.get("transA") else a
    b = b.T if attrs.get("transB") else b
    found = multiplied(_matmul({}, [a, b]), scalar(attrs.get("alpha", 1.0)))
    if len(given) > 2 and given[2] is not None:
        found = plus(found, multiplied(terms(given[2]), scalar(attrs.get("beta", 1.0))))
    return found


def _axes(attrs: Attributes, given: GivenArrays, index: int = 1) -> tuple[int, ...]:
    x = present(given[0])
    if len(given) > index and given[index] is not None:
        axes = present(given[index])
        if axes.dtype == object:
            raise NotModelled("axes that are not known")
        found = tuple(sorted(int(a) % x.ndim for a in axes.ravel()))
        if found or attrs.get("noop_with_empty_axes"):
            return found
    elif attrs.get("noop_with_empty_axes"):
        return ()
    return tuple(range(x.ndim))


def _reduced(x: Array, axes: Sequence[int], keep: bool, of: Callable[[list[ScalarTerm]], ScalarTerm]) -> Array:
    rest = [d for d in range(x.ndim) if d not in axes]
    lined = x.transpose(*rest, *axes).reshape(*(x.shape[d] for d in rest), -1)
    found = filled(lined.shape[:-1], lambda place: of(list(lined[place])))
    return found.reshape([1 if d in axes else x.shape[d] for d in range(x.ndim)]) if keep else found


def _mean(parts: list[ScalarTerm]) -> ScalarTerm:
    if not parts:
        return apply("mean of nothing", ())
    return apply("Div", (total(parts), number(len(parts))))


def _extreme(name: str) -> Callable[[list[ScalarTerm]], ScalarTerm]:
    def of(parts: list[ScalarTerm]) -> ScalarTerm:
        if not parts:
            return apply(f"{name} of nothing", ())
        return parts[0] if len(parts) == 1 else apply(name, parts)

    return of


def _reduction(
    of: Callable[[list[ScalarTerm]], ScalarTerm], before: str = ""
) -> Callable[[Attributes, GivenArrays], Array]:
    def reduce(attrs: Attributes, given: GivenArrays) -> Array:
        x = terms(present(given[0]))
        x = multiplied(x, x) if before == "square" else each(before, x) if before else x
        return _reduced(x, _axes(attrs, given), bool(attrs.get("keepdims", 1)), of)

    return reduce


# ---- windows --------------------------------------------------------------------------------------------------------


def _conv(attrs: Attributes, given: GivenArrays) -> Array:
    x, w = terms(present(given[0])), terms(present(given[1]))
    n = x.ndim - 2
    strides, dilations = attrs.get("strides") or [1] * n, attrs.get("dilations") or [1] * n
    pads, group = attrs.get("pads") or [0] * (2 * n), attrs.get("group", 1)
    sizes = [
        (x.shape[2 + d] + pads[d] + pads[n + d] - dilations[d] * (w.shape[2 + d] - 1) - 1) // strides[d] + 1
        for d in range(n)
    ]
    channels = w.shape[0] // group

    def element(place: tuple[int, ...]) -> ScalarTerm:
        image, out, *at = place
        first = out // channels * w.shape[1]
        parts = []
        for channel in range(w.shape[1]):
            for k in product(*map(range, w.shape[2:])):
                spot = [at[d] * strides[d] - pads[d] + k[d] * dilations[d] for d in range(n)]
                if all(0 <= spot[d] < x.shape[2 + d] for d in range(n)):
                    parts.append(times(x[(image, first + channel, *spot)], w[(out, channel, *k)]))
        if len(given) > 2 and given[2] is not None:
            parts.append(terms(present(given[2]))[out])
        return total(parts)

    return filled((x.shape[0], w.shape[0], *sizes), element)


def _conv_transpose(attrs: Attributes, given: GivenArrays) -> Array:
    x, w = terms(present(given[0])), terms(present(given[1]))
    n = x.ndim - 2
    strides, dilations = attrs.get("strides") or [1] * n, attrs.get("dilations") or [1] * n
    pads, group = attrs.get("pads") or [0] * (2 * n), attrs.get("group", 1)
    more = attrs.get("output_padding") or [0] * n
    sizes = [
        strides[d] * (x.shape[2 + d] - 1) + more[d] + (w.shape[2 + d] - 1) * dilations[d] + 1 - pads[d] - pads[n + d]
        for d in range(n)
    ]
    outs, ins = w.shape[1], x.shape[1] // group
    parts: dict[tuple[int, ...], list[ScalarTerm]] = {}
    for image, channel in product(range(x.shape[0]), range(x.shape[1])):
        for spot in product(*map(range, x.shape[2:])):
            for out, k in product(range(outs), product(*map(range, w.shape[2:]))):
                at = tuple(spot[d] * strides[d] + k[d] * dilations[d] - pads[d] for d in range(n))
                if all(0 <= at[d] < sizes[d] for d in range(n)):
                    place = (image, channel // ins * outs + out, *at)
                    parts.setdefault(place, []).append(times(x[(image, channel, *spot)], w[(channel, out, *k)]))
    bias = terms(present(given[2])) if len(given) > 2 and given[2] is not None else None

    def element(place: tuple[int, ...]) -> ScalarTerm:
        return total([*parts.get(place, []), *([] if bias is None else [bias[place[1]]])])

    return filled((x.shape[0], outs * group, *sizes), element)


def _whole_pool(of: Callable[[list[ScalarTerm]], ScalarTerm]) -> Callable[[Attributes, GivenArrays], Array]:
    def pool(attrs: Attributes, given: GivenArrays) -> Array:
        x = terms(present(given[0]))
        return _reduced(x, range(2, x.ndim), True, of)

    return pool


def _pool(of: Callable[[list[ScalarTerm]], ScalarTerm], counts: bool) -> Callable[[Attributes, GivenArrays], Array]:
    def pool(attrs: Attributes, given: GivenArrays) -> Array:
        x = terms(present(given[0]))
        n, kernel = x.ndim - 2, attrs["kernel_shape"]
        strides, dilations = attrs.get("strides") or [1] * n, attrs.get("dilations") or [1] * n
        pads = attrs.get("pads") or [0] * (2 * n)
        if attrs.get("ceil_mode") or (counts and attrs.get("count_include_pad") and any(pads)):
            raise NotModelled("a pool that counts its border")
        sizes = [
            (x.shape[2 + d] + pads[d] + pads[n + d] - dilations[d] * (kernel[d] - 1) - 1) // strides[d] + 1
            for d in range(n)
        ]

        def element(place: tuple[int, ...]) -> ScalarTerm:
            image, channel, *at = place
            parts = []
            for k in product(*map(range, kernel)):
                spot = [at[d] * strides[d] - pads[d] + k[d] * dilations[d] for d in range(n)]
                if all(0 <= spot[d] < x.shape[2 + d] for d in range(n)):
                    parts.append(x[(image, channel, *spot)])
            return of(parts)

        return filled((*x.shape[:2], *sizes), element)

    return pool


# ---- normalization ---------------------------------------------------------------------------------------------------


def _along(vector: Array | None, x: Array, axis: int = 1) -> Array:
    return terms(present(vector)).reshape([-1 if d == axis else 1 for d in range(x.ndim)])


def _batch_normalization(attrs: Attributes, given: GivenArrays) -> Array:
    if attrs.get("training_mode"):
        raise NotModelled("a batch normalization that is trained")
    x = terms(present(given[0]))
    scale, bias, mean, variance = (_along(v, x) for v in given[1:5])
    root = each("Sqrt", plus(variance, scalar(attrs.get("epsilon", 1e-5))))
    return plus(over(multiplied(minus(x, mean), scale), root), bias)


def _normalized(x: Array, axes: Sequence[int], epsilon: Any, centre: bool = True) -> Array:
    if centre:
        x = minus(x, _reduced(x, axes, True, _mean))
    variance = _reduced(multiplied(x, x), axes, True, _mean)
    return over(x, each("Sqrt", plus(variance, scalar(epsilon))))


def _last_axes(attrs: Attributes, x: Array) -> range:
    return range(int(attrs.get("axis", -1)) % x.ndim, x.ndim)


def _layer(centre: bool) -> Callable[[Attributes, GivenArrays], Array]:
    def normalize(attrs: Attributes, given: GivenArrays) -> Array:
        x = terms(present(given[0]))
        found = multiplied(
            _normalized(x, _last_axes(attrs, x), attrs.get("epsilon", 1e-5), centre), terms(present(given[1]))
        )
        return plus(found, terms(given[2])) if len(given) > 2 and given[2] is not None else found

    return normalize


def _instance_normalization(attrs: Attributes, given: GivenArrays) -> Array:
    x = terms(present(given[0]))
    found = _normalized(x, range(2, x.ndim), attrs.get("epsilon", 1e-5))
    return plus(multiplied(found, _along(given[1], x)), _along(given[2], x))


def _group_normalization(attrs: Attributes, given: GivenArrays) -> Array:
    x = terms(present(given[0]))
    rows = x.reshape(x.shape[0], attrs["num_groups"], -1)
    found = _normalized(rows, (2,), attrs.get("epsilon", 1e-5)).reshape(x.shape)
    return plus(multiplied(found, _along(given[1], x)), _along(given[2], x))


def _softmax(attrs: Attributes, given: GivenArrays) -> Array:
    x = each("Exp", terms(present(given[0])))
    return over(x, _reduced(x, (int(attrs.get("axis", -1)) % x.ndim,), True, total))


def _attention(attrs: Attributes, given: GivenArrays) -> Array:
    q, k, v = (terms(present(a)) for a in given[:3])
    if attrs.get("qk_matmul_output_mode") or any(a is not None for a in given[4:]):
        raise NotModelled("Attention: not modelled with a cache or further outputs")
    if any(attrs.get(name, -1) not in (None, -1) for name in ("left_window_size", "right_window_size")):
        raise NotModelled("Attention: not modelled with a window")
    if attrs.get("softmax_precision") or q.ndim not in (3, 4):
        raise NotModelled("Attention: not modelled with a precision of its own")
    rows = q.ndim == 3
    if rows:
        heads = attrs["q_num_heads"], attrs["kv_num_heads"], attrs["kv_num_heads"]
        q, k, v = (_heads(x, n) for x, n in zip((q, k, v), heads, strict=True))
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], axis=1) for x in (k, v))
    scale = attrs.get("scale")
    if scale is None:
        scale = apply("Div", (number(1), apply("Sqrt", (number(q.shape[3]),))))
    scores = multiplied(_matmul({}, [q, k.transpose(0, 1, 3, 2)]), scalar(scale))
    bound = attrs.get("softcap")
    if isinstance(bound, ScalarTerm) or bound:
        scores = multiplied(each("Tanh", over(scores, scalar(bound))), scalar(bound))
    hidden = scalar(-inf)
    if len(given) > 3 and given[3] is not None:
        mask = present(given[3])
        if mask.dtype == bool:
            mask = np.where(mask, scalar(0), hidden)
        scores = plus(scores, terms(mask))
    if attrs.get("is_causal"):
        scores = np.where(np.tri(*scores.shape[2:], dtype=bool), scores, hidden)
    found = _matmul({}, [_softmax({}, [scores]), v])
    return found.transpose(0, 2, 1, 3).reshape(*found.shape[:1], found.shape[2], -1) if rows else found


def _heads(x: Array, count: int) -> Array:
    return x.reshape(*x.shape[:2], count, -1).transpose(0, 2, 1, 3)


_SELECTING = frozenset({"ReduceMax", "ReduceMin", "MaxPool", "GlobalMaxPool"})
_OPERATORS: dict[str, Callable[[Attributes, GivenArrays], Array]] = {
    "MatMul": _matmul,
    "Gemm": _gemm,
    "ReduceSum": _reduction(total),
    "ReduceMean": _reduction(_mean),
    "ReduceSumSquare": _reduction(total, "square"),
    "ReduceL1": _reduction(total, "Abs"),
    "ReduceMax": _reduction(_extreme("Max")),
    "ReduceMin": _reduction(_extreme("Min")),
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "GlobalAveragePool": _whole_pool(_mean),
    "GlobalMaxPool": _whole_pool(_extreme("Max")),
    "AveragePool": _pool(_mean, True),
    "MaxPool": _pool(_extreme("Max"), False),
    "BatchNormalization": _batch_normalization,
    "LayerNormalization": _layer(True),
    "RMSNormalization": _layer(False),
    "InstanceNormalization": _instance_normalization,
    "GroupNormalization": _group_normalization,
    "Softmax": _softmax,
    "Attention": _attention,
}
