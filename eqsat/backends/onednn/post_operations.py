"""Elementwise operators as post-operations."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from eqsat.backends.onednn.description import LIMITS, Memory, NoPrimitive, Operation, Post
from eqsat.backends.onednn.mapper import LINEAR, ConcatenatedTensor, Mapper, Quantized, number, scalar, value
from eqsat.backends.region import Operator, RegionOperand, Tensor
from eqsat.schema.dtypes import BYTES
from eqsat.schema.types import Attributes


def _eltwise(name: str, alpha: float = 0.0, beta: float = 0.0) -> Post:
    return Post(f"dnnl_eltwise_{name}", alpha, beta)


_UNARY: dict[str, Callable[[Attributes], list[Post]]] = {
    "Relu": lambda a: [_eltwise("relu")],
    "LeakyRelu": lambda a: [_eltwise("relu", a["alpha"])],
    "Elu": lambda a: [_eltwise("elu", a["alpha"])],
    "Sigmoid": lambda a: [_eltwise("logistic")],
    "Tanh": lambda a: [_eltwise("tanh")],
    "Abs": lambda a: [_eltwise("abs")],
    "Sqrt": lambda a: [_eltwise("sqrt")],
    "Exp": lambda a: [_eltwise("exp")],
    "Log": lambda a: [_eltwise("log")],
    "HardSigmoid": lambda a: [_eltwise("linear", a["alpha"], a["beta"]), _eltwise("clip", 0.0, 1.0)],
    "HardSwish": lambda a: [_eltwise("hardswish", 1 / 6, 0.5)],
    "Mish": lambda a: [_eltwise("mish")],
    "Gelu": lambda a: [_eltwise("gelu_tanh" if a.get("approximate") == "tanh" else "gelu_erf")],
    "Swish": lambda a: [_eltwise("swish", a["alpha"])],
    "Softplus": lambda a: [_eltwise("soft_relu", 1.0)],
    "Round": lambda a: [_eltwise("round")],
    "Neg": lambda a: [_eltwise("linear", -1.0)],
    "Reciprocal": lambda a: [_eltwise("pow", 1.0, -1.0)],
    "Identity": lambda a: [],
}
_BINARY = {"Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div", "Max": "max", "Min": "min"}


def map_step(m: Mapper, operator: Operator) -> None:
    """An elementwise operator."""
    name, domain = operator.operator.name, operator.operator.domain
    inputs = list(operator.inputs)
    if name == "Identity":
        m.emit(_present(inputs[0]), lambda _m, _o: [], operator.output)
    else:
        _step(m, name, domain, operator.attributes, inputs, operator.output)


def _present(x: RegionOperand | None) -> RegionOperand:
    if x is None:
        raise NoPrimitive("an absent operand")
    return x


def _step(m: Mapper, name: str, domain: str, a: Attributes, x: list[RegionOperand | None], out: Tensor) -> None:
    first = _present(x[0])
    if name == "DequantizeLinear":
        dequantize(m, first, x[1:], out)
    elif name == "QuantizeLinear":
        quantize(m, first, x[1:], out)
    elif name in ("QLinearAdd", "QLinearMul"):
        _quantized_binary(m, name, x, out)
    elif name.startswith("QLinear") and (function := name.removeprefix("QLinear")) in _UNARY:
        _through_floats(m, first, x[1:], _UNARY[function](a), out)
    elif name == "Cast":
        if out.dtype != ir.DataType.FLOAT and (out.dtype != ir.DataType.INT32 or first.dtype == ir.DataType.FLOAT):
            raise NoPrimitive(f"a cast to {out.dtype.name.lower()}")
        m.emit(first, lambda _m, _o: [], out)
    elif name == "Clip":
        limits = LIMITS.get(out.dtype, (-np.inf, np.inf))
        low = number(x[1] if len(x) > 1 else None, limits[0])
        high = number(x[2] if len(x) > 2 else None, limits[1])
        if low > high:
            raise NoPrimitive("a clip whose lower bound exceeds the upper one")
        m.emit(first, lambda _m, _o: [_eltwise("clip", low, high)], out)
    elif name == "Pow":
        exponent = number(x[1])
        m.emit(first, lambda _m, _o: [_eltwise("pow", 1.0, exponent)], out)
    elif name == "PRelu":
        slope = _present(x[1])
        m.emit(first, lambda m, o: [Post("dnnl_prelu", operand=m.rides(slope, out, o))], out)
    elif name == "Sum" or (name in ("Add", "Mul", "Max", "Min") and len(x) != 2):
        _variadic(m, {"Sum": "add"}.get(name, name.lower()), [_present(v) for v in x], out)
    elif name in _BINARY and out.dtype in (ir.DataType.FLOAT, ir.DataType.INT32):
        _binary(m, _BINARY[name], first, _present(x[1]), out)
    elif name in _UNARY and domain in ("", "com.microsoft"):
        if out.dtype != ir.DataType.FLOAT and name != "Relu":
            raise NoPrimitive(f"{name} of integers")
        m.emit(first, lambda _m, _o: _UNARY[name](a), out)
    else:
        raise NoPrimitive(f"oneDNN has no {name}")


# ---- binary operators ----------------------------------------------------------------------------------


def _variadic(m: Mapper, algorithm: str, x: list[RegionOperand], out: Tensor) -> None:
    rest = x[1:]
    m.emit(x[0], lambda m, o: [Post(f"dnnl_binary_{algorithm}", operand=m.rides(r, out, o)) for r in rest], out)


def _binary(m: Mapper, algorithm: str, a: RegionOperand, b: RegionOperand, out: Tensor) -> None:
    """The operand that is computed last carries the operation; the other one is read."""
    swapped = _position(m, b) > _position(m, a) or (tuple(a.shape) != out.shape and tuple(b.shape) == out.shape)
    if swapped and tuple(b.shape) == out.shape:
        if algorithm in ("add", "mul", "max", "min"):
            a, b = b, a
        elif algorithm == "sub" and m.chain(b) is not None:
            negative = a
            m.emit(b, lambda m, o: [Post(LINEAR, -1.0), *_second(m, "add", negative, out, o)], out)
            return
        elif tuple(a.shape) != out.shape:
            # The dividend or minuend is smaller than the result.
            smaller = a
            if algorithm == "sub":
                m.emit(b, lambda m, o: [Post(LINEAR, -1.0), *_second(m, "add", smaller, out, o)], out)
            else:
                m.emit(b, lambda m, o: [_eltwise("pow", 1.0, -1.0), *_second(m, "mul", smaller, out, o)], out)
            return
    other = b
    m.emit(a, lambda m, o: _second(m, algorithm, other, out, o), out)


def _position(m: Mapper, x: RegionOperand) -> int:
    found = m.chain(x)
    return -1 if found is None else m.operations.index(found)


def _second(m: Mapper, algorithm: str, r: RegionOperand, out: Tensor, operation: Operation | None) -> list[Post]:
    """A binary operation with an operand, which may be known as integers."""
    known = m.quantized.get(r) if isinstance(r, Tensor) else None
    if known is not None and algorithm in ("add", "sub") and known.scale.size == 1 and operation is not None:
        scale = float(known.scale.ravel()[0])
        sign = 1.0 if algorithm == "add" else -1.0
        return [
            Post(LINEAR, 1 / scale),
            Post(f"dnnl_binary_{algorithm}", operand=m.rides(known.source, out, operation)),
            Post(LINEAR, scale, -sign * known.zero * scale),
        ]
    if known is not None and operation is not None:
        # A chain waits for its operands.
        m.memory(r)
    if isinstance(r, np.ndarray) and r.dtype == np.int32:
        r = r.astype(np.float32)
    if isinstance(r, np.ndarray) and r.size == 1 and algorithm in ("add", "sub", "mul"):
        c = float(r.ravel()[0])
        return [Post(LINEAR, c) if algorithm == "mul" else Post(LINEAR, 1.0, c if algorithm == "add" else -c)]
    return [Post(f"dnnl_binary_{algorithm}", operand=m.rides(r, out, operation))]


# ---- quantization --------------------------------------------------------------------------------------


def scaled(m: Mapper, scale: np.ndarray, rank: int) -> Post:
    """A product with a scale, or with one an index of an axis."""
    if scale.size == 1:
        return Post(LINEAR, float(scale.ravel()[0]))
    shape = (1,) * (rank - scale.ndim) + scale.shape
    return Post("dnnl_binary_mul", operand=Memory(ir.DataType.FLOAT, shape, array=scale.astype(np.float32)))


def dequantize(m: Mapper, x: RegionOperand, parameters: list[RegionOperand | None], out: Tensor) -> None:
    """``(x - zero) * scale``: put off where integers may be enough, links where x is computed here."""
    scale, zero = value(parameters[0]), number(parameters[1] if len(parameters) > 1 else None)
    if m.chain(x) is None and isinstance(x, Tensor) and x.dtype in BYTES:
        m.quantized[out] = Quantized(x, scale, int(zero))
        return
    m.emit(x, lambda m, o: [Post(LINEAR, 1.0, -zero), scaled(m, scale, len(out.shape))], out)


def quantize(m: Mapper, x: RegionOperand, parameters: list[RegionOperand | None], out: Tensor) -> None:
    """``round(x / scale) + zero`` within the limits of the type."""
    scale, zero = value(parameters[0]), number(parameters[1] if len(parameters) > 1 else None)
    if out.dtype not in BYTES:
        raise NoPrimitive(f"quantization to {out.dtype.name.lower()}")
    if isinstance(x, Tensor) and x in m.joined and m.reads(x) == 1 and scale.size == 1:
        _join(m, m.joined.pop(x), float(scale.ravel()[0]), int(zero), out)
        return
    m.settle(x)
    standalone = m.chain(x) is None

    def links(m: Mapper, _o: Operation | None) -> list[Post]:
        rank = len(out.shape)
        if scale.size > 1 or standalone:
            shape = (1,) * (rank - scale.ndim) + scale.shape
            divisor = Memory(ir.DataType.FLOAT, shape or (1,), array=scale.astype(np.float32))
            return [Post("dnnl_binary_div", operand=divisor), Post(LINEAR, 1.0, zero)]
        return [Post(LINEAR, 1 / float(scale.ravel()[0]), zero)]

    m.emit(x, links, out)


def materialize(m: Mapper, x: Tensor) -> None:
    """Compute a float tensor that was put off."""
    joined = m.joined.pop(x, None)
    if joined is not None:
        parts = []
        for k, part in enumerate(joined.parts):
            made = Tensor(f"{x.name}_{k}", x.dtype, tuple(part.source.shape))
            m.quantized[made] = part
            parts.append(m.memory(made))
        m.add(Operation("CONCAT", m.place(x), sources=parts, numbers={"axis": joined.axis}))
        return
    known = m.quantized.pop(x)

    def links(m: Mapper, _o: Operation | None) -> list[Post]:
        # A binary operation comes first: these read integers.
        rank = max(len(x.shape), 1)
        source = known.source if isinstance(known.source, Tensor) else x
        return [Post("dnnl_binary_sub", operand=scalar(known.zero, rank, source.dtype)), scaled(m, known.scale, rank)]

    m.emit(known.source, links, x)


def _join(m: Mapper, joined: ConcatenatedTensor, scale: float, zero: int, out: Tensor) -> None:
    """A concatenation of integers, each converted to the parameters of the result unless it has them."""
    parts = []
    for k, part in enumerate(joined.parts):
        same = part.scale.size == 1 and float(part.scale.ravel()[0]) == scale and part.zero == zero
        if same and isinstance(part.source, Tensor) and part.source.dtype == out.dtype:
            parts.append(m.memory(part.source))
            continue
        made = Tensor(f"{out.name}_{k}", ir.DataType.FLOAT, tuple(part.source.shape))
        converted = Tensor(f"{out.name}_{k}_converted", out.dtype, made.shape)
        m.context.uses[made] = 1
        m.quantized[made] = part
        m.memory(made)
        quantize(m, made, [np.asarray(scale, np.float32), np.asarray(zero, out.dtype.numpy())], converted)
        parts.append(m.place(converted))
    m.add(Operation("CONCAT", m.place(out), sources=parts, numbers={"axis": joined.axis}))


def _through_floats(
    m: Mapper, x: RegionOperand, parameters: list[RegionOperand | None], middle: list[Post], out: Tensor
) -> None:
    """A function of a quantized tensor, quantized again."""
    scale, zero = number(parameters[0]), number(parameters[1])
    to_scale, to_zero = number(parameters[2]), number(parameters[3])

    def links(m: Mapper, o: Operation | None) -> list[Post]:
        off = scalar(zero, len(out.shape), out.dtype)
        before = [Post(LINEAR, 1.0, -zero)] if o else [Post("dnnl_binary_sub", operand=off)]
        return [*before, Post(LINEAR, scale), *middle, Post(LINEAR, 1 / to_scale, to_zero)]

    m.emit(x, links, out)


def _quantized_binary(m: Mapper, name: str, x: list[RegionOperand | None], out: Tensor) -> None:
    """QLinearAdd and QLinearMul: one operand carries the chain, the other one is read directly."""
    a, b = _present(x[0]), _present(x[3])
    pa, pb = (number(x[1]), number(x[2])), (number(x[4]), number(x[5]))
    scale, zero = number(x[6]), number(x[7] if len(x) > 7 else None)
    full_a, full_b = tuple(a.shape) == out.shape, tuple(b.shape) == out.shape
    if (_position(m, b) > _position(m, a) and full_b) or not full_a:
        a, b, pa, pb = b, a, pb, pa
    if name == "QLinearMul" and pb[1] != 0:
        if pa[1] != 0 or tuple(b.shape) != out.shape or m.chain(a) is not None:
            raise NoPrimitive("a product of two operands with zero points")
        a, b, pa, pb = b, a, pb, pa
    (sa, za), (sb, zb) = pa, pb
    rank = len(out.shape)

    def links(m: Mapper, o: Operation | None) -> list[Post]:
        # Without a chain before it, the first link must be a binary operation, which can read integers.
        second = m.rides(b, out, o)
        if name == "QLinearMul":
            off = [Post(LINEAR, 1.0, -za)] if o else [Post("dnnl_binary_sub", operand=scalar(za, rank))] if za else []
            return [*off, Post("dnnl_binary_mul", operand=second), Post(LINEAR, sa * sb / scale, zero)]
        ratio = [Post(LINEAR, sa / sb)] if o else [Post("dnnl_binary_mul", operand=scalar(sa / sb, rank))]
        shift = zero - za * sa / scale - zb * sb / scale
        return [*ratio, Post("dnnl_binary_add", operand=second), Post(LINEAR, sb / scale, shift)]

    m.emit(a, links, out)
