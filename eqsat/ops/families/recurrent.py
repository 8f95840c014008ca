"""Recurrent networks: RNN, GRU and LSTM in both directions, with peepholes, clipping and per-sample lengths.

The products with the inputs are one matrix product for all steps; only those with the state are sequential.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from eqsat.ops import counters as count
from eqsat.ops import equal_axes, normal
from eqsat.ops.checks import attributes, layers
from eqsat.ops.families.activations import sigmoid
from eqsat.ops.families.integer import exact_matmul
from eqsat.ops.families.quantization import dynamic_quantize_linear
from eqsat.ops.need_by_shapes import need_recurrent, need_transposed_recurrent
from eqsat.ops.numpy_kernel import in_single
from eqsat.ops.registry import declare
from eqsat.ops.sampling.recurrent import recurrent
from eqsat.schema.opset import MICROSOFT
from eqsat.schema.types import Attributes, AttrValue, TensorType

_Function = Callable[[np.ndarray], np.ndarray]
_Step = Callable[[np.ndarray, tuple[np.ndarray, ...]], tuple[np.ndarray, ...]]
_Product = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, slots=True)
class Activation:
    """An activation with its parameters, which are 0 if it has none.

    Attributes:
        name: Its name; case does not matter.
        alpha: First parameter.
        beta: Second parameter.
    """

    name: str
    alpha: float
    beta: float

    @property
    def key(self) -> str:
        return self.name.lower()


_ALPHA = {"leakyrelu": 0.01, "thresholdedrelu": 1.0, "scaledtanh": 1.0, "hardsigmoid": 0.2, "elu": 1.0, "affine": 1.0}
_BETA = {"scaledtanh": 1.0, "hardsigmoid": 0.5, "affine": 0.0}
"""Defaults of the functions that take parameters."""


_FUNCTIONS: dict[str, Callable[[np.ndarray, np.float32, np.float32], np.ndarray]] = {
    "relu": lambda x, p, q: np.maximum(x, 0),
    "tanh": lambda x, p, q: np.tanh(x),
    "sigmoid": lambda x, p, q: sigmoid(x),
    "affine": lambda x, p, q: p * x + q,
    "leakyrelu": lambda x, p, q: np.where(x < 0, p * x, x),
    "thresholdedrelu": lambda x, p, q: np.where(x > p, x, 0),
    "scaledtanh": lambda x, p, q: p * np.tanh(q * x),
    "hardsigmoid": lambda x, p, q: np.clip(p * x + q, 0, 1),
    "elu": lambda x, p, q: np.where(x < 0, p * np.expm1(np.minimum(x, 0)), x),
    "softsign": lambda x, p, q: x / (1 + np.abs(x)),
    "softplus": lambda x, p, q: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))),
}
ACTIVATIONS = frozenset(_FUNCTIONS)
"""The keys of all activations."""
WITHOUT_PARAMETERS = ACTIVATIONS - _ALPHA.keys()
_GATED = ("Sigmoid", "Tanh", "Tanh")
DEFAULTS = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": _GATED, "DynamicQuantizeLSTM": _GATED}
"""The activations of one direction where a network of a kind names none."""


def _function(activation: Activation) -> _Function:
    if activation.key not in _FUNCTIONS:
        raise ValueError(f"unknown activation {activation.name!r}")
    function, p, q = _FUNCTIONS[activation.key], np.float32(activation.alpha), np.float32(activation.beta)
    return lambda x: function(x, p, q)


def activations(attrs: Attributes, kind: str, directions: int) -> list[list[Activation]]:
    """Activations of a kind of network by direction; lists of parameters have entries for functions that take them."""
    default = DEFAULTS[kind]
    names = list(attrs.get("activations") or default * directions)
    alphas, betas = iter(attrs.get("activation_alpha", ())), iter(attrs.get("activation_beta", ()))
    made = []
    for name in names:
        key = name.lower()
        alpha = next(alphas, _ALPHA[key]) if key in _ALPHA else 0.0
        made.append(Activation(name, alpha, next(betas, _BETA[key]) if key in _BETA else 0.0))
    count = len(default)
    return [made[i * count : (i + 1) * count] for i in range(directions)]


def _activations(attrs: Attributes, kind: str, directions: int) -> list[list[_Function]]:
    return [[_function(a) for a in found] for found in activations(attrs, kind, directions)]


def _unroll(
    attrs: Attributes,
    x: np.ndarray,
    lengths: np.ndarray | None,
    initial: tuple[np.ndarray, ...],
    step: Callable[[int], tuple[_Product, np.ndarray, _Step]],
) -> tuple[np.ndarray, ...]:
    """Executes the steps over time.

    Args:
        attrs: ``direction`` and ``layout``.
        x: Input, (time, batch, features) after the layout is undone.
        lengths: Steps of each sample, or None for all.
        initial: State tensors (directions, batch, hidden).
        step: For a direction: the product of the input with weights, their bias, and one step on the projected input.

    Returns:
        Y (time, directions, batch, hidden) and the last states (directions, batch, hidden), in ``layout``.
    """
    time, batch, _ = x.shape
    directions = initial[0].shape[0]
    reverse = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[attrs.get("direction", "forward")]
    y = np.zeros((time, directions, batch, initial[0].shape[2]), x.dtype)
    final = [state.copy() for state in initial]
    for d in range(directions):
        product, bias, advance = step(d)
        projected = product(_reversed(x, lengths) if reverse[d] else x) + bias
        state = tuple(s[d] for s in initial)
        for t, active in _steps(time, lengths):
            moved = advance(projected[t], state)
            if active is not None:
                moved = tuple(np.where(active[:, None], new, old) for new, old in zip(moved, state, strict=True))
                y[t, d] = np.where(active[:, None], moved[0], 0)
            else:
                y[t, d] = moved[0]
            state = moved
        if reverse[d]:
            y[:, d] = _reversed(y[:, d], lengths)
        for kept, last in zip(final, state, strict=True):
            kept[d] = last
    if attrs.get("layout", 0):
        return (y.transpose(2, 0, 1, 3), *(s.transpose(1, 0, 2) for s in final))
    return (y, *final)


def _reversed(x: np.ndarray, lengths: np.ndarray | None) -> np.ndarray:
    """(time, batch, ...) with the steps of each sample in the opposite order; what comes after its last one stays."""
    if lengths is None:
        return x[::-1]
    place = np.arange(x.shape[0])[:, None]
    mirrored = np.where(place < lengths, lengths - 1 - place, place)
    return np.take_along_axis(x, mirrored.reshape(*mirrored.shape, *(1,) * (x.ndim - 2)), 0)


def _steps(time: int, lengths: np.ndarray | None) -> Iterator[tuple[int, np.ndarray | None]]:
    """Each time step with the samples that are active (None for all)."""
    ragged = lengths is not None and bool((lengths != time).any())
    for t in range(time):
        yield t, (lengths > t) if ragged and lengths is not None else None


def _prepare(
    attrs: Attributes, x: np.ndarray, r: np.ndarray, states: tuple[np.ndarray | None, ...]
) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
    """Input and states with time and directions first, absent states as zeros."""
    batch_first = bool(attrs.get("layout", 0))
    if batch_first:
        x = x.transpose(1, 0, 2)
    shape = (r.shape[0], x.shape[1], r.shape[2])
    ready = []
    for state in states:
        if state is None:
            ready.append(np.zeros(shape, x.dtype))
        else:
            ready.append(state.transpose(1, 0, 2) if batch_first else state)
    return x, tuple(ready)


def _clipped(attrs: Attributes, x: np.ndarray) -> np.ndarray:
    limit = attrs.get("clip")
    return np.clip(x, -limit, limit) if limit else x


@in_single
def rnn(
    attrs: Attributes,
    x: np.ndarray,
    w: np.ndarray,
    r: np.ndarray,
    b: np.ndarray | None = None,
    lengths: np.ndarray | None = None,
    h0: np.ndarray | None = None,
) -> tuple[np.ndarray, ...]:
    """``h = f(x W' + h R' + b)``."""
    x, initial = _prepare(attrs, x, r, (h0,))
    hidden = r.shape[2]
    functions = _activations(attrs, "RNN", r.shape[0])

    def step(d: int) -> tuple[_Product, np.ndarray, _Step]:
        bias = np.zeros(hidden, x.dtype) if b is None else b[d, :hidden] + b[d, hidden:]
        recurrent = r[d].T

        def advance(xt: np.ndarray, state: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
            return (functions[d][0](_clipped(attrs, xt + state[0] @ recurrent)),)

        return _by(w[d].T), bias, advance

    return _unroll(attrs, x, lengths, initial, step)


@in_single
def gru(
    attrs: Attributes,
    x: np.ndarray,
    w: np.ndarray,
    r: np.ndarray,
    b: np.ndarray | None = None,
    lengths: np.ndarray | None = None,
    h0: np.ndarray | None = None,
) -> tuple[np.ndarray, ...]:
    """Gates z, r, h (Cho et al., 2014); ``linear_before_reset`` resets the product and not the state."""
    x, initial = _prepare(attrs, x, r, (h0,))
    n = r.shape[2]
    functions = _activations(attrs, "GRU", r.shape[0])
    after = bool(attrs.get("linear_before_reset", 0))

    def step(d: int) -> tuple[_Product, np.ndarray, _Step]:
        wb = np.zeros(3 * n, x.dtype) if b is None else b[d, : 3 * n]
        rb = np.zeros(3 * n, x.dtype) if b is None else b[d, 3 * n :]
        gates, candidate = r[d, : 2 * n].T, r[d, 2 * n :].T
        f, g = functions[d]

        def advance(xt: np.ndarray, state: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
            (h,) = state
            zr = f(_clipped(attrs, xt[:, : 2 * n] + h @ gates + rb[: 2 * n]))
            z, reset = zr[:, :n], zr[:, n:]
            inner = reset * (h @ candidate + rb[2 * n :]) if after else (reset * h) @ candidate + rb[2 * n :]
            return ((1 - z) * g(_clipped(attrs, xt[:, 2 * n :] + inner)) + z * h,)

        return _by(w[d].T), wb, advance

    return _unroll(attrs, x, lengths, initial, step)


@in_single
def lstm(
    attrs: Attributes,
    x: np.ndarray,
    w: np.ndarray,
    r: np.ndarray,
    b: np.ndarray | None = None,
    lengths: np.ndarray | None = None,
    h0: np.ndarray | None = None,
    c0: np.ndarray | None = None,
    p: np.ndarray | None = None,
) -> tuple[np.ndarray, ...]:
    """Gates i, o, f, c (Hochreiter and Schmidhuber, 1997) with peepholes (Gers and Schmidhuber, 2000)."""
    x, initial = _prepare(attrs, x, r, (h0, c0))
    return _lstm(attrs, x, initial, b, lengths, p, lambda d: (_by(w[d].T), _by(r[d].T)))


def _lstm(
    attrs: Attributes,
    x: np.ndarray,
    initial: tuple[np.ndarray, ...],
    b: np.ndarray | None,
    lengths: np.ndarray | None,
    p: np.ndarray | None,
    products: Callable[[int], tuple[_Product, _Product]],
) -> tuple[np.ndarray, ...]:
    """An LSTM whose products with inputs and with states are functions of a direction."""
    directions, _, n = initial[0].shape
    functions = _activations(attrs, "LSTM", directions)
    coupled = bool(attrs.get("input_forget", 0))

    def step(d: int) -> tuple[_Product, np.ndarray, _Step]:
        bias = np.zeros(4 * n, x.dtype) if b is None else b[d, : 4 * n] + b[d, 4 * n :]
        of_input, of_state = products(d)
        f, g, output = functions[d]
        peep = np.zeros(3 * n, x.dtype) if p is None else p[d]

        def advance(xt: np.ndarray, state: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
            h, c = state
            gates = xt + of_state(h)
            enter = f(_clipped(attrs, gates[:, :n] + peep[:n] * c))
            forget = 1 - enter if coupled else f(_clipped(attrs, gates[:, 2 * n : 3 * n] + peep[2 * n :] * c))
            cell = forget * c + enter * g(_clipped(attrs, gates[:, 3 * n :]))
            leave = f(_clipped(attrs, gates[:, n : 2 * n] + peep[n : 2 * n] * cell))
            return leave * output(cell), cell

        return of_input, bias, advance

    return _unroll(attrs, x, lengths, initial, step)


def _by(weights: np.ndarray) -> _Product:
    return lambda x: x @ weights


def dynamic_quantize_lstm(
    attrs: Attributes,
    x: np.ndarray,
    w: np.ndarray,
    r: np.ndarray,
    b: np.ndarray | None,
    lengths: np.ndarray | None,
    h0: np.ndarray | None,
    c0: np.ndarray | None,
    p: np.ndarray | None,
    w_scale: np.ndarray,
    w_zero: np.ndarray,
    r_scale: np.ndarray,
    r_zero: np.ndarray,
) -> tuple[np.ndarray, ...]:
    """LSTM with transposed 8-bit weights. Inputs are quantized as a whole by their range, states in each step."""
    shape = (r.shape[0], x.shape[1], r.shape[1])
    initial = tuple(np.zeros(shape, x.dtype) if state is None else state for state in (h0, c0))
    longest = x.shape[0] if lengths is None else int(lengths.max(initial=0))

    def of_input(d: int, rows: np.ndarray) -> np.ndarray:
        y = np.zeros((*rows.shape[:2], w.shape[2]), np.float32)
        y[:longest] = _quantized_product(rows[:longest], w[d], w_scale[d], w_zero[d])
        return y

    return _lstm(
        attrs,
        x,
        initial,
        b,
        lengths,
        p,
        lambda d: (partial(of_input, d), lambda h: _quantized_product(h, r[d], r_scale[d], r_zero[d])),
    )


def _quantized_product(x: np.ndarray, w: np.ndarray, scale: np.ndarray, zero: np.ndarray) -> np.ndarray:
    """The product with 8-bit weights of operands that are quantized by their range."""
    levels, x_scale, x_zero = dynamic_quantize_linear({}, np.asarray(x, np.float32))
    return exact_matmul(levels, x_zero, w, zero).astype(np.float32) * (x_scale * scale)


def _lstm_types(attrs: Mapping[str, AttrValue], inputs: Sequence[TensorType | None]) -> tuple[TensorType | None, ...]:
    """Types of the results of an LSTM whose recurrent weights are (directions, hidden, 4 hidden)."""
    x, r = inputs[0], inputs[2]
    if x is None or r is None or x.shape is None or r.shape is None or len(x.shape) != 3 or len(r.shape) != 3:
        return (None,) * 3
    steps, batch, _ = x.shape
    directions, hidden, _ = r.shape
    state = TensorType(x.dtype, (directions, batch, hidden))
    return TensorType(x.dtype, (steps, directions, batch, hidden)), state, state


# ---- declarations ----------------------------------------------------------------------------------
# fmt: off
declare("RNN", numpy=rnn, macs=count.recurrent(1), need=need_recurrent(1), sampling=recurrent,
    checks=(attributes.direction, layers.recurrent(1)), normal_form=(normal.hidden_size,),
    together=equal_axes.recurrent)
declare("GRU", numpy=gru, macs=count.recurrent(3), need=need_recurrent(3), sampling=recurrent,
    checks=(attributes.direction, layers.recurrent(3)), normal_form=(normal.hidden_size,),
    together=equal_axes.recurrent)
declare("LSTM", numpy=lstm, macs=count.recurrent(4), need=need_recurrent(4), sampling=recurrent,
    checks=(attributes.direction, layers.recurrent(4)), normal_form=(normal.hidden_size,),
    together=equal_axes.recurrent)
declare("DynamicQuantizeLSTM", domain=MICROSOFT, numpy=dynamic_quantize_lstm, types=_lstm_types,
    macs=count.transposed_recurrent, need=need_transposed_recurrent, together=equal_axes.transposed_recurrent)
