"""The operators of one kernel become operations: memories for tensors, views, and chains of post-operations.

An elementwise operator joins the operation that computes its operand, if that has no other readers and is computed
last. The value of a chain is a float: integers in between are made by rounding and clipping, links of their own. Where
the last value is an integer, writing it rounds and clips.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.backends.onednn.description import (
    DTYPES,
    LIMITS,
    MOST_AXES,
    MOST_POSTS,
    VIEWS,
    Memory,
    NoPrimitive,
    Operation,
    Post,
)
from eqsat.backends.region import Dequantized, Operator, RegionOperand, Tensor
from eqsat.schema.registration import registering
from eqsat.schema.types import OpKey, Shape

LINEAR = "dnnl_eltwise_linear"
_WITHOUT_POSTS = (*VIEWS, "CONCAT", "SHUFFLE", "LRN", "LAYER_NORMALIZATION", "SOFTMAX")


@dataclass(frozen=True, slots=True)
class Quantized:
    """A float tensor that is known as integers, a scale and a zero point, and not computed unless asked for."""

    source: RegionOperand
    scale: np.ndarray
    zero: int


@dataclass(frozen=True, slots=True)
class ConcatenatedTensor:
    """A concatenation of these tensors."""

    parts: tuple[Quantized, ...]
    axis: int


@dataclass
class SharedData:
    """Data that the kernels of a program share.

    Attributes:
        memories: Of tensors.
        uses: How many read each tensor, the caller included.
        dequantized: Where float constants come from, by the array's identity.
    """

    memories: dict[Tensor, Memory]
    uses: dict[Tensor, int]
    dequantized: Mapping[int, Dequantized]


class Mapper:
    """Collects the operations of one kernel."""

    def __init__(self, context: SharedData) -> None:
        self.context = context
        self.operations: list[Operation] = []
        self.producers: dict[Memory, Operation] = {}
        self.quantized: dict[Tensor, Quantized] = {}
        self.joined: dict[Tensor, ConcatenatedTensor] = {}
        self.materialize: Callable[[Mapper, Tensor], None] | None = None

    # ---- memories --------------------------------------------------------------------------------------

    def memory(self, operand: RegionOperand) -> Memory:
        """The memory of a tensor or a constant; what was put off is computed."""
        if isinstance(operand, np.ndarray):
            return constant(operand)
        self.settle(operand)
        return self.place(operand)

    def settle(self, operand: RegionOperand) -> None:
        """Compute what was put off."""
        if isinstance(operand, Tensor) and (operand in self.quantized or operand in self.joined):
            assert self.materialize is not None
            self.materialize(self, operand)

    def place(self, tensor: Tensor) -> Memory:
        """The memory of a tensor, computed or not."""
        found = self.context.memories.get(tensor)
        if found is None:
            found = Memory(checked(tensor.dtype), _shape(tensor.shape), tensor)
            self.context.memories[tensor] = found
        return found

    def reads(self, tensor: Tensor) -> int:
        """How many read a tensor."""
        return self.context.uses.get(tensor, 0)

    def add(self, operation: Operation, before: Operation | None = None) -> Operation:
        """Append an operation, or put it before another one."""
        if before is None:
            self.operations.append(operation)
        else:
            self.operations.insert(self.operations.index(before), operation)
        self.producers[operation.dst] = operation
        return operation

    # ---- views -----------------------------------------------------------------------------------------

    def view(self, memory: Memory, shape: Shape, before: Operation | None = None) -> Memory:
        """The same elements in the same order with other dimensions."""
        shape = _shape(shape)
        if memory.shape == shape:
            return memory
        if memory.array is not None and not memory.strides:
            return Memory(memory.dtype, shape, array=memory.array)
        made = Memory(memory.dtype, shape)
        self.add(Operation("RESHAPE", made, memory), before)
        return made

    def permuted(self, memory: Memory, perm: Sequence[int]) -> Memory:
        """Axes in another order."""
        if tuple(perm) == tuple(range(len(memory.shape))):
            return memory
        shape = tuple(memory.shape[p] for p in perm)
        if memory.array is not None:
            strides = memory.strides or _dense(memory.shape)
            return Memory(memory.dtype, shape, array=memory.array, strides=tuple(strides[p] for p in perm))
        made = Memory(memory.dtype, shape)
        # oneDNN needs the destination of each axis, ONNX gives the origin.
        order = tuple(int(i) for i in np.argsort(np.asarray(perm)))
        self.add(Operation("PERMUTE", made, memory, numbers={"order": order}))
        return made

    def write(self, made: Memory, out: Tensor) -> None:
        """The view of a computed memory that is a tensor of the program."""
        target = self.place(out)
        producer = self.producers.get(made)
        if made.shape == target.shape and producer is not None and made.dtype == target.dtype:
            producer.dst = target
            del self.producers[made]
            self.producers[target] = producer
        else:
            self.add(Operation("RESHAPE", target, made))

    # ---- chains ----------------------------------------------------------------------------------------

    def chain(self, x: RegionOperand) -> Operation | None:
        """The operation that computes an operand, if links can be appended to it."""
        if not isinstance(x, Tensor) or x in self.quantized or x in self.joined or self.reads(x) != 1:
            return None
        memory = self.context.memories.get(x)
        found = None if memory is None else self.producers.get(memory)
        if found is None or found.kind in _WITHOUT_POSTS or len(found.posts) + 8 > MOST_POSTS:
            return None
        return found

    def emit(self, x: RegionOperand, links: Callable[[Mapper, Operation | None], list[Post]], out: Tensor) -> Operation:
        """Applies post-operations to an operand, as links of a chain or as an operation of their own.

        Args:
            x: The value that they apply to.
            links: Makes them, given the operation that views of operands must precede.
            out: The result.
        """
        self.settle(x)
        operation = self.chain(x)
        target = self.place(out)
        if operation is None:
            source = self.memory(x)
            first, *rest = merged(links(self, None)) or [Post(LINEAR, 1.0)]
            operation = Operation(
                "ELTWISE" if first.operand is None else "PRELU" if first.algorithm == "dnnl_prelu" else "BINARY",
                target, source, first.operand, algorithm="" if first.algorithm == "dnnl_prelu" else first.algorithm,
                numbers={"alpha": first.alpha, "beta": first.beta}, posts=rest,
            )  # fmt: skip
            if source.shape != target.shape:
                raise NoPrimitive("two operands that are both smaller than the result")
            self.add(operation)
        else:
            del self.producers[operation.dst]
            posts = list(operation.posts)
            if operation.limits is not None:
                posts += [Post("dnnl_eltwise_round"), Post("dnnl_eltwise_clip", *operation.limits)]
            operation.posts = merged([*posts, *links(self, operation)])
            operation.dst = target
            self.producers[target] = operation
        operation.limits = LIMITS.get(out.dtype)
        return operation

    def rides(self, r: RegionOperand, out: Tensor, operation: Operation | None) -> Memory:
        """The second operand of a link, with the rank of the result; it must exist before the link."""
        shape = (1,) * (len(out.shape) - len(r.shape)) + tuple(r.shape)
        memory = self.memory(r)
        if operation is not None and memory in self.producers:
            at = self.operations.index(self.producers[memory])
            if at > self.operations.index(operation):
                # It is computed later: the chain, which has no readers yet, waits.
                self.operations.remove(operation)
                self.operations.insert(self.operations.index(self.producers[memory]) + 1, operation)
        return self.view(memory, _shape(shape), operation)


def merged(posts: Sequence[Post]) -> list[Post]:
    """Merges consecutive linear functions, and removes those that do nothing."""
    found: list[Post] = []
    for post in posts:
        last = found[-1] if found else None
        if post.algorithm == LINEAR and last is not None and last.algorithm == LINEAR:
            found[-1] = Post(LINEAR, last.alpha * post.alpha, last.beta * post.alpha + post.beta)
        else:
            found.append(post)
    return [p for p in found if p.algorithm != LINEAR or (p.alpha, p.beta) != (1.0, 0.0)]


def distinct(posts: Sequence[Post], rank: int) -> list[Post]:
    """Each elementwise function once: of several with different parameters oneDNN 2 applies the first one for all.

    Linear functions and clips are spelled as binary operations with constants then.

    Raises:
        NoPrimitive: There is no other spelling.
    """
    found: list[Post] = []
    seen: dict[str, tuple[float, float]] = {}
    for post in posts:
        parameters = (post.alpha, post.beta)
        if post.operand is not None or seen.setdefault(post.algorithm, parameters) == parameters:
            found.append(post)
        elif post.algorithm == LINEAR:
            pairs = (("mul", post.alpha, 1.0), ("add", post.beta, 0.0))
            found += [Post(f"dnnl_binary_{n}", operand=scalar(v, rank)) for n, v, none in pairs if v != none]
        elif post.algorithm == "dnnl_eltwise_clip":
            found.append(Post("dnnl_binary_max", operand=scalar(post.alpha, rank)))
            found.append(Post("dnnl_binary_min", operand=scalar(post.beta, rank)))
        else:
            raise NoPrimitive("two functions of one kind in a chain")
    return found


def constant(array: np.ndarray, shape: Shape | None = None) -> Memory:
    """The memory of a constant."""
    dtype = checked(ir.DataType.from_numpy(array.dtype))
    return Memory(dtype, _shape(tuple(array.shape) if shape is None else shape), array=array)


def scalar(value: float, rank: int, dtype: ir.DataType = ir.DataType.FLOAT) -> Memory:
    """A number that is broadcast."""
    return constant(np.full((1,) * max(rank, 1), value, dtype.numpy()))


def checked(dtype: ir.DataType) -> ir.DataType:
    """An element type that oneDNN has.

    Raises:
        NoPrimitive: oneDNN does not have it.
    """
    if dtype not in DTYPES:
        raise NoPrimitive(f"tensors of type {dtype.name.lower()}")
    return dtype


def value(operand: RegionOperand | None) -> np.ndarray:
    """A parameter that has to be constant.

    Raises:
        NoPrimitive: It is computed at run time.
    """
    if not isinstance(operand, np.ndarray):
        raise NoPrimitive("parameters that are computed at run time")
    return operand


def number(operand: RegionOperand | None, default: float = 0.0) -> float:
    """A parameter of one element, or of equal elements.

    Raises:
        NoPrimitive: It has several, or is computed at run time.
    """
    if operand is None:
        return default
    array = value(operand)
    if array.size == 0 or not (array == array.ravel()[0]).all():
        raise NoPrimitive("several values where oneDNN takes one")
    return float(array.ravel()[0])


Mapping_ = Callable[[Mapper, Operator], None]
MAPPINGS: dict[OpKey, Mapping_] = {}
"""How an operator becomes operations."""


def mapping(*names: str, domain: str = "") -> Callable[[Mapping_], Mapping_]:
    """Register a function that maps operators."""
    return registering(MAPPINGS, names, domain, "is mapped twice")


def tensor(operand: RegionOperand | None) -> Tensor:
    """An operand that has to be a tensor.

    Raises:
        NoPrimitive: It is a constant.
    """
    if not isinstance(operand, Tensor):
        raise NoPrimitive("a constant operand")
    return operand


def triple(values: Sequence[int], less: int = 0) -> tuple[int, ...]:
    """Numbers of spatial axes, without ``less``."""
    return tuple(int(v) - less for v in values)


def _shape(shape: Sequence[int]) -> Shape:
    if 0 in shape:
        raise NoPrimitive("tensors without elements")
    if len(shape) > MOST_AXES:
        raise NoPrimitive(f"tensors of more than {MOST_AXES} dimensions")
    return tuple(int(n) for n in shape) or (1,)


def _dense(shape: Shape) -> Shape:
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))


def attribute(node: Operator, name: str, default: Any = None) -> Any:
    """An attribute of an operator."""
    return node.attributes.get(name, default)
