"""Shapes of results in sizes: random operators against the shapes that ONNX Runtime computes, at several sizes.

An operand is a constant, an array of sizes, an array that is known in part, or unknown. ONNX Runtime sees numbers in
all of them; what inference says must be right for each.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import helper
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument, RuntimeException

from eqsat.errors import ModelError
from eqsat.model.inference.infer import infer_types
from eqsat.schema.attributes import make_attrs
from eqsat.schema.dimension import dimension
from eqsat.schema.free_sizes import FreeSize, within
from eqsat.schema.size import Size, value_at
from eqsat.schema.types import OpKey, TensorType

FREE = {"n": FreeSize(1, 8, 0), "m": FreeSize(0, 8, 0), "k": FreeSize(2, 8, 0)}
SIZES = ({"n": 1, "m": 1, "k": 2}, {"n": 2, "m": 0, "k": 7}, {"n": 5, "m": 5, "k": 5}, {"n": 8, "m": 1, "k": 3})
DIMS = ("n", "m", "k", "n + 1", "2*k", "n*k", 1, 2, 3)
SEEDS, DRAWN = 12, 40
CONTRADICTIONS = (Fail, InvalidArgument, RuntimeException)


@dataclass
class Drawn:
    """A node.

    Attributes:
        op: Of ONNX.
        dims: Those of the first operands, which are floats.
        parameters: The elements of the other operands, None for an absent one.
        hidden: Positions (operand, element) that inference does not see; an element of None hides all.
        attributes: Of the node.
        outputs: Number of its results.
    """

    op: str
    dims: list[list[Any]]
    parameters: list[list[Any] | None] = field(default_factory=list)
    hidden: set[tuple[int, int | None]] = field(default_factory=set)
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1


def draw(seed: int) -> Drawn:
    rng = random.Random(seed)

    def some(rank: int) -> list[Any]:
        return [rng.choice(DIMS) for _ in range(rank)]

    rank = rng.randint(1, 3)
    x = some(rank)
    axis = rng.randrange(-rank, rank)
    match rng.randrange(10):
        case 0:
            other = [n if i != axis % rank else rng.choice(DIMS) for i, n in enumerate(x)]
            made = Drawn("Concat", [x, other], attributes={"axis": axis})
        case 1:
            shape = _reshaped(rng, x)
            # The standard does not allow a literal zero beside -1.
            allowzero = 0 if -1 in shape else rng.randrange(2)
            made = Drawn("Reshape", [x], [shape], attributes={"allowzero": allowzero})
        case 2:
            wanted = [rng.choice((n, 1, rng.choice(DIMS))) for n in x]
            made = Drawn("Expand", [x], [[*some(rng.randrange(2)), *wanted]])
        case 3:
            made = Drawn("Tile", [x], [[rng.choice((*DIMS, 0)) for _ in x]])
        case 4 | 5 | 6:
            axes = rng.sample(range(rank), rng.randint(1, rank))
            axes = [a - rank if rng.random() < 0.5 else a for a in axes]
            ends = (*DIMS, 0, -1, -2, 2**31 - 1, 2**63 - 1, -(2**31), -(2**63))
            starts, stops = ([rng.choice(ends) for _ in axes] for _ in range(2))
            if rng.random() < 0.3:
                made = Drawn("Slice", [x], [starts, stops])
                made.parameters.append(None if len(axes) < rank or rng.random() < 0.5 else axes)
            else:
                made = Drawn("Slice", [x], [starts, stops, axes])
            if rng.random() < 0.5:
                steps = [rng.choice((1, 2, 3, -1, -2)) for _ in axes]
                # ONNX Runtime takes these ends for "to the first element", against the standard.
                made.parameters[1] = [
                    rng.choice(DIMS) if step < 0 and n in (2**31 - 1, 2**63 - 1) else n
                    for n, step in zip(stops, steps, strict=True)
                ]
                made.parameters.append(steps)
        case 7:
            axes = rng.sample(range(rank), rng.randint(1, rank))
            made = Drawn("Pad", [x], [[rng.choice((*DIMS, 0, -1)) for _ in range(2 * len(axes))], None, axes])
        case 8:
            parts = some(rng.randint(1, 3))
            x[axis] = "+".join(map(str, parts))
            made = Drawn("Split", [x], [parts], attributes={"axis": axis}, outputs=len(parts))
        case _:
            made = Drawn("ConstantOfShape", [], [some(rng.randrange(4))])
    for number, given in enumerate(made.parameters):
        if given and rng.random() < 0.2:
            made.hidden.add((number, rng.choice((None, rng.randrange(len(given))))))
    return made


def _reshaped(rng: random.Random, x: Sequence[Any]) -> list[Any]:
    wanted = [rng.choice((n, 0)) if i < 2 else n for i, n in enumerate(x)]
    if rng.random() < 0.6:
        at = rng.randrange(len(wanted))
        wanted[at : at + rng.randint(1, 2)] = [-1]
    return wanted


def number(given: Any, sizes: dict[str, int]) -> int:
    return given if isinstance(given, int) else value_at(size(given), sizes)


def size(given: Any) -> int:
    found = dimension(given) if isinstance(given, str) else given
    assert found is not None
    return found


def inferred(made: Drawn) -> tuple[TensorType | None, ...]:
    """The types of the results."""
    types: list[TensorType | None] = [
        TensorType(ir.DataType.FLOAT, tuple(n if isinstance(n, int) else str(n) for n in dims)) for dims in made.dims
    ]
    values: list[np.ndarray | None] = [None] * len(types)
    for position, given in enumerate(made.parameters):
        types.append(None if given is None else TensorType(ir.DataType.INT64, (len(given),)))
        if given is None or (position, None) in made.hidden:
            values.append(None)
            continue
        read = [None if (position, i) in made.hidden else size(n) for i, n in enumerate(given)]
        array = np.empty(len(read), object)
        array[:] = read
        is_constant = all(n is not None and not isinstance(n, Size) for n in read)
        values.append(array.astype(np.int64) if is_constant else array)
    key = OpKey("", made.op)
    return infer_types(key, make_attrs(key, made.attributes), types, values, made.outputs)


def computed(made: Drawn, sizes: dict[str, int]) -> list[tuple[int, ...]] | None:
    """The shapes of the results; None if the operator does not allow the operands."""
    feed: dict[str, np.ndarray] = {}
    for i, dims in enumerate(made.dims):
        feed[f"x{i}"] = np.zeros([number(n, sizes) for n in dims], np.float32)
    names = [*feed]
    for i, given in enumerate(made.parameters):
        names.append("" if given is None else f"p{i}")
        if given is not None:
            feed[f"p{i}"] = np.array([number(n, sizes) for n in given], np.int64)
    results = [f"y{i}" for i in range(made.outputs)]
    node = helper.make_node(made.op, names, results, **made.attributes)
    inputs = [
        helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), [None] * v.ndim)
        for k, v in feed.items()
    ]
    outputs = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in results]
    model = helper.make_model(
        helper.make_graph([node], "g", inputs, outputs), opset_imports=[helper.make_opsetid("", 21)], ir_version=10
    )
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return [np.asarray(y).shape for y in session.run(None, feed)]
    except CONTRADICTIONS:
        return None


@pytest.mark.parametrize("seed", range(SEEDS))
def test_shapes_are_right_for_all_sizes(seed: int) -> None:
    compared, known = Counter[str](), Counter[str]()
    for n in range(DRAWN):
        made = draw(seed * DRAWN + n)
        with within(FREE):
            try:
                types = inferred(made)
            except ModelError:
                assert all(computed(made, sizes) is None for sizes in SIZES), made
                continue
            for sizes in SIZES:
                shapes = computed(made, sizes)
                if shapes is None or (any(0 in s for s in shapes) and made.op == "Reshape"):
                    continue  # Of no elements any other size may be the one that is left.
                for kind, shape in zip(types, shapes, strict=True):
                    assert kind is not None and kind.shape is not None and len(kind.shape) == len(shape), made
                    compared[made.op] += len(shape)
                    for dim, n_found in zip(kind.shape, shape, strict=True):
                        if dim is None or (isinstance(dim, str) and dimension(dim) is None):
                            continue
                        known[made.op] += 1
                        assert number(dim, sizes) == n_found, (made, sizes, kind, shape)
    assert sum(known.values()) > 0.5 * sum(compared.values()) > 50, (known, compared)
