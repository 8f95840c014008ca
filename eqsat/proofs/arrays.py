"""Operators on arrays of terms, of known shapes and attributes.

What moves elements is computed by eqsat's own kernels, on numbers that stand for the elements. Sums and products are
written out: their terms hold over the reals, and modulo 2^n, but say nothing of how a kernel rounds.

Operators that add and multiply are stated here once more, and not where they are declared: a proof must not take its
meaning from the kernel that it speaks for. An operator that is missing here only keeps rules from being proven.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from math import sqrt
from typing import Any

import numpy as np

from eqsat.ops.evaluate import evaluate
from eqsat.ops.operators import has
from eqsat.ops.traits import Trait
from eqsat.proofs.scalar_terms import NotModelled, Term, apply, number
from eqsat.schema.attributes import make_attrs
from eqsat.schema.types import OpKey

Array = np.ndarray
"""Of terms, or of integers whose values are known."""
Given = Sequence[Array | None]
Attrs = Mapping[str, Any]
_MOVES = frozenset(
    {"Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Expand", "Tile", "Slice", "Concat", "Split"}
    | {"Gather", "GatherElements", "GatherND", "DepthToSpace", "SpaceToDepth", "Pad"}
)
_SAME = frozenset({"Identity", "CastHint", "StopFusion", "ChannelsLast", "ChannelsFirst"})


def computed(op: OpKey, attrs: Attrs, given: Given, outputs: int, *, rounds: bool) -> list[Array]:
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
        return [_present(given[0])]
    if name in _MOVES:
        return _moved(op, attrs, given, outputs)
    if has(op, Trait.ELEMENTWISE):
        return [_elementwise(op, attrs, given)]
    make = _OPERATORS.get(name)
    if make is None:
        raise NotModelled(f"{op}: not modelled at bounded sizes")
    if rounds and name not in _SELECTING:
        raise NotModelled(f"{op}: how it rounds is not modelled")
    return [make(attrs, given)]


def terms(array: Array) -> Array:
    """An array whose elements are terms."""
    if array.dtype == object:
        return array
    found = np.empty(array.shape, object)
    for place in np.ndindex(array.shape):
        found[place] = number(array[place].item())
    return found


def filled(shape: Iterable[int], make: Callable[[tuple[int, ...]], Term]) -> Array:
    """An array by place."""
    found = np.empty(tuple(shape), object)
    for place in np.ndindex(found.shape):
        found[place] = make(place)
    return found


def _present(array: Array | None) -> Array:
    if array is None:
        raise NotModelled("an operand that is absent")
    return array


def _is_false(array: Array | None) -> bool:
    return array is None or (array.dtype == bool and not array.any())


def _moved(op: OpKey, attrs: Attrs, given: Given, outputs: int) -> list[Array]:
    """By the operator's kernel, on the positions of the elements."""
    if op.name == "Pad" and given[0] is not None and not given[0].ndim:
        return [given[0]]
    known: list[Term] = []
    inputs: list[Array | None] = []
    # The shape, axes and the like are numbers; what is moved are terms, or numbers as well.
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


def _at(known: list[Term], numbers: Array) -> Array:
    return filled(numbers.shape, lambda place: known[int(numbers[place])])


def _elementwise(op: OpKey, attrs: Attrs, given: Given) -> Array:
    data: Any = tuple(sorted(attrs.items()))
    operands = [terms(a) for a in given if a is not None]
    if op.name == "Clip":
        present = [a is not None for a in given[1:]]
        data = (("present", (*present, *[False] * (2 - len(present)))),)
    shape = np.broadcast_shapes(*(a.shape for a in operands))
    wide = [np.broadcast_to(a, shape) for a in operands]
    return filled(shape, lambda place: apply(op.name, (a[place] for a in wide), data))


# ---- sums and products --------------------------------------------------------------------------------------------


def total(parts: Iterable[Term]) -> Term:
    """The sum of some terms."""
    found: Term | None = None
    for part in parts:
        found = part if found is None else apply("Add", (found, part))
    return number(0) if found is None else found


def _times(a: Term, b: Term) -> Term:
    return apply("Mul", (a, b))


def _plus(a: Array, b: Array) -> Array:
    return _elementwise(OpKey("", "Add"), {}, [a, b])


def _by(a: Array, b: Array) -> Array:
    return _elementwise(OpKey("", "Mul"), {}, [a, b])


def _minus(a: Array, b: Array) -> Array:
    return _elementwise(OpKey("", "Sub"), {}, [a, b])


def _over(a: Array, b: Array) -> Array:
    return _elementwise(OpKey("", "Div"), {}, [a, b])


def _each(name: str, a: Array) -> Array:
    return _elementwise(OpKey("", name), {}, [a])


def _term(value: Any) -> Array:
    """A number of an attribute."""
    found = np.empty((), object)
    found[()] = value if isinstance(value, Term) else number(value)
    return found


def _matmul(attrs: Attrs, given: Given) -> Array:
    a, b = terms(_present(given[0])), terms(_present(given[1]))
    rows, columns = a.ndim == 1, b.ndim == 1
    a = a[None, :] if rows else a
    b = b[:, None] if columns else b
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a = np.broadcast_to(a, (*batch, *a.shape[-2:]))
    b = np.broadcast_to(b, (*batch, *b.shape[-2:]))

    def element(place: tuple[int, ...]) -> Term:
        *at, i, j = place
        return total(_times(a[(*at, i, k)], b[(*at, k, j)]) for k in range(a.shape[-1]))

    found = filled((*batch, a.shape[-2], b.shape[-1]), element)
    if rows:
        found = found[..., 0, :]
    return found[..., 0] if columns else found


def _gemm(attrs: Attrs, given: Given) -> Array:
    a, b = terms(_present(given[0])), terms(_present(given[1]))
    a = a.T if attrs.get("transA") else a
    b = b.T if attrs.get("transB") else b
    found = _by(_matmul({}, [a, b]), _term(attrs.get("alpha", 1.0)))
    if len(given) > 2 and given[2] is not None:
        found = _plus(found, _by(terms(given[2]), _term(attrs.get("beta", 1.0))))
    return found


def _axes(attrs: Attrs, given: Given, index: int = 1) -> tuple[int, ...]:
    x = _present(given[0])
    if len(given) > index and given[index] is not None:
        axes = _present(given[index])
        if axes.dtype == object:
            raise NotModelled("axes that are not known")
        found = tuple(sorted(int(a) % x.ndim for a in axes.ravel()))
        if found or attrs.get("noop_with_empty_axes"):
            return found
    elif attrs.get("noop_with_empty_axes"):
        return ()
    return tuple(range(x.ndim))


def _reduced(x: Array, axes: Sequence[int], keep: bool, of: Callable[[list[Term]], Term]) -> Array:
    rest = [d for d in range(x.ndim) if d not in axes]
    lined = x.transpose(*rest, *axes).reshape(*(x.shape[d] for d in rest), -1)
    found = filled(lined.shape[:-1], lambda place: of(list(lined[place])))
    return found.reshape([1 if d in axes else x.shape[d] for d in range(x.ndim)]) if keep else found


def _mean(parts: list[Term]) -> Term:
    if not parts:
        return apply("mean of nothing", ())
    return apply("Div", (total(parts), number(len(parts))))


def _extreme(name: str) -> Callable[[list[Term]], Term]:
    def of(parts: list[Term]) -> Term:
        if not parts:
            return apply(f"{name} of nothing", ())
        return parts[0] if len(parts) == 1 else apply(name, parts)

    return of


def _reduction(of: Callable[[list[Term]], Term], before: str = "") -> Callable[[Attrs, Given], Array]:
    def reduce(attrs: Attrs, given: Given) -> Array:
        x = terms(_present(given[0]))
        x = _by(x, x) if before == "square" else _each(before, x) if before else x
        return _reduced(x, _axes(attrs, given), bool(attrs.get("keepdims", 1)), of)

    return reduce


# ---- windows --------------------------------------------------------------------------------------------------------


def _conv(attrs: Attrs, given: Given) -> Array:
    x, w = terms(_present(given[0])), terms(_present(given[1]))
    n = x.ndim - 2
    strides, dilations = attrs.get("strides") or [1] * n, attrs.get("dilations") or [1] * n
    pads, group = attrs.get("pads") or [0] * (2 * n), attrs.get("group", 1)
    sizes = [
        (x.shape[2 + d] + pads[d] + pads[n + d] - dilations[d] * (w.shape[2 + d] - 1) - 1) // strides[d] + 1
        for d in range(n)
    ]
    channels = w.shape[0] // group

    def element(place: tuple[int, ...]) -> Term:
        image, out, *at = place
        first = out // channels * w.shape[1]
        parts = []
        for channel in range(w.shape[1]):
            for k in product(*map(range, w.shape[2:])):
                spot = [at[d] * strides[d] - pads[d] + k[d] * dilations[d] for d in range(n)]
                if all(0 <= spot[d] < x.shape[2 + d] for d in range(n)):
                    parts.append(_times(x[(image, first + channel, *spot)], w[(out, channel, *k)]))
        if len(given) > 2 and given[2] is not None:
            parts.append(terms(_present(given[2]))[out])
        return total(parts)

    return filled((x.shape[0], w.shape[0], *sizes), element)


def _conv_transpose(attrs: Attrs, given: Given) -> Array:
    x, w = terms(_present(given[0])), terms(_present(given[1]))
    n = x.ndim - 2
    strides, dilations = attrs.get("strides") or [1] * n, attrs.get("dilations") or [1] * n
    pads, group = attrs.get("pads") or [0] * (2 * n), attrs.get("group", 1)
    more = attrs.get("output_padding") or [0] * n
    sizes = [
        strides[d] * (x.shape[2 + d] - 1) + more[d] + (w.shape[2 + d] - 1) * dilations[d] + 1 - pads[d] - pads[n + d]
        for d in range(n)
    ]
    outs, ins = w.shape[1], x.shape[1] // group
    parts: dict[tuple[int, ...], list[Term]] = {}
    for image, channel in product(range(x.shape[0]), range(x.shape[1])):
        for spot in product(*map(range, x.shape[2:])):
            for out, k in product(range(outs), product(*map(range, w.shape[2:]))):
                at = tuple(spot[d] * strides[d] + k[d] * dilations[d] - pads[d] for d in range(n))
                if all(0 <= at[d] < sizes[d] for d in range(n)):
                    place = (image, channel // ins * outs + out, *at)
                    parts.setdefault(place, []).append(_times(x[(image, channel, *spot)], w[(channel, out, *k)]))
    bias = terms(_present(given[2])) if len(given) > 2 and given[2] is not None else None

    def element(place: tuple[int, ...]) -> Term:
        return total([*parts.get(place, []), *([] if bias is None else [bias[place[1]]])])

    return filled((x.shape[0], outs * group, *sizes), element)


def _whole_pool(of: Callable[[list[Term]], Term]) -> Callable[[Attrs, Given], Array]:
    def pool(attrs: Attrs, given: Given) -> Array:
        x = terms(_present(given[0]))
        return _reduced(x, range(2, x.ndim), True, of)

    return pool


def _pool(of: Callable[[list[Term]], Term], counts: bool) -> Callable[[Attrs, Given], Array]:
    def pool(attrs: Attrs, given: Given) -> Array:
        x = terms(_present(given[0]))
        n, kernel = x.ndim - 2, attrs["kernel_shape"]
        strides, dilations = attrs.get("strides") or [1] * n, attrs.get("dilations") or [1] * n
        pads = attrs.get("pads") or [0] * (2 * n)
        if attrs.get("ceil_mode") or (counts and attrs.get("count_include_pad") and any(pads)):
            raise NotModelled("a pool that counts its border")
        sizes = [
            (x.shape[2 + d] + pads[d] + pads[n + d] - dilations[d] * (kernel[d] - 1) - 1) // strides[d] + 1
            for d in range(n)
        ]

        def element(place: tuple[int, ...]) -> Term:
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
    return terms(_present(vector)).reshape([-1 if d == axis else 1 for d in range(x.ndim)])


def _batch_normalization(attrs: Attrs, given: Given) -> Array:
    if attrs.get("training_mode"):
        raise NotModelled("a batch normalization that is trained")
    x = terms(_present(given[0]))
    scale, bias, mean, variance = (_along(v, x) for v in given[1:5])
    root = _each("Sqrt", _plus(variance, _term(attrs.get("epsilon", 1e-5))))
    return _plus(_over(_by(_minus(x, mean), scale), root), bias)


def _normalized(x: Array, axes: Sequence[int], epsilon: Any, centre: bool = True) -> Array:
    if centre:
        x = _minus(x, _reduced(x, axes, True, _mean))
    variance = _reduced(_by(x, x), axes, True, _mean)
    return _over(x, _each("Sqrt", _plus(variance, _term(epsilon))))


def _last_axes(attrs: Attrs, x: Array) -> range:
    return range(int(attrs.get("axis", -1)) % x.ndim, x.ndim)


def _layer(centre: bool) -> Callable[[Attrs, Given], Array]:
    def normalize(attrs: Attrs, given: Given) -> Array:
        x = terms(_present(given[0]))
        found = _by(_normalized(x, _last_axes(attrs, x), attrs.get("epsilon", 1e-5), centre), terms(_present(given[1])))
        return _plus(found, terms(given[2])) if len(given) > 2 and given[2] is not None else found

    return normalize


def _instance_normalization(attrs: Attrs, given: Given) -> Array:
    x = terms(_present(given[0]))
    found = _normalized(x, range(2, x.ndim), attrs.get("epsilon", 1e-5))
    return _plus(_by(found, _along(given[1], x)), _along(given[2], x))


def _group_normalization(attrs: Attrs, given: Given) -> Array:
    x = terms(_present(given[0]))
    rows = x.reshape(x.shape[0], attrs["num_groups"], -1)
    found = _normalized(rows, (2,), attrs.get("epsilon", 1e-5)).reshape(x.shape)
    return _plus(_by(found, _along(given[1], x)), _along(given[2], x))


def _softmax(attrs: Attrs, given: Given) -> Array:
    x = _each("Exp", terms(_present(given[0])))
    return _over(x, _reduced(x, (int(attrs.get("axis", -1)) % x.ndim,), True, total))


def _attention(attrs: Attrs, given: Given) -> Array:
    q, k, v = (terms(_present(a)) for a in given[:3])
    plain = ("is_causal", "softcap", "qk_matmul_output_mode")
    if q.ndim != 4 or any(attrs.get(name) for name in plain) or any(a is not None for a in given[4:]):
        raise NotModelled("Attention: modelled for four dimensions without further outputs only")
    if q.shape[1] != k.shape[1] or attrs.get("softmax_precision"):
        raise NotModelled("Attention: modelled for equal numbers of heads only")
    scale = attrs.get("scale")
    if scale is None:
        root = sqrt(q.shape[3])
        if root != int(root):
            raise NotModelled("Attention: a root that is not a whole number")
        scale = 1 / root
    scores = _by(_matmul({}, [q, k.transpose(0, 1, 3, 2)]), _term(scale))
    if len(given) > 3 and given[3] is not None:
        scores = _plus(scores, terms(given[3]))
    return _matmul({}, [_softmax({}, [scores]), v])


_SELECTING = frozenset({"ReduceMax", "ReduceMin", "MaxPool", "GlobalMaxPool"})
_OPERATORS: dict[str, Callable[[Attrs, Given], Array]] = {
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
