"""Plain loops against the numpy executor: its own test cases, random views, epilogues, sanitizers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from eqsat.codegen.expressions import is_elementwise
from eqsat.codegen.expressions.c_functions import needed
from eqsat.codegen.kernel import Step
from eqsat.codegen.kernels import families
from eqsat.ops.evaluate import evaluate
from eqsat.ops.operators import declared
from eqsat.ops.properties import value_inputs
from eqsat.ops.schemas import defaults
from eqsat.schema.types import OpKey
from tests.codegen.kernels.loops import harness, recorded
from tests.codegen.kernels.loops.harness import Case
from tests.codegen.kernels.loops.judge import numpy_result, same
from tests.codegen.nodes import DECIDING
from tests.ops.oracle import canonical

SHORT = 45
"""Cases of each file that run by default."""
NOT_IN_C = frozenset(
    {
        "CastMap", "ConcatFromSequence", "DictVectorizer", "NonZero", "Optional", "OptionalGetElement",
        "OptionalHasElement", "SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert",
        "SequenceLength", "SplitToSequence", "StringNormalizer", "Upsample", "ZipMap",
    }
)  # fmt: skip
"""Sequences, maps, optionals, strings, a result whose size depends on data, and what the pinned opset has not got."""
ONLY_EXECUTED = frozenset({"GroupQueryAttention", "MatMulInteger16", "Unique"})
"""Operators of com.microsoft without a definition by others."""
BY_DEFINITION = frozenset({"AffineGrid"})
"""What is other operators before kernels are chosen; ``test_windows_and_matrices.py`` has its cases."""
WITHOUT_KERNEL = NOT_IN_C | ONLY_EXECUTED | BY_DEFINITION


def recorded_cases(module: str, limit: int | None) -> list[tuple[Case, recorded.Record]]:
    """Cases of ``tests/ops`` that C is for; every other one with gaps and axes in another order."""
    records = [r for r in recorded.records(module) if r.operator.name not in WITHOUT_KERNEL and _in_c(r)]
    if limit is not None:
        records = records[:: max(1, len(records) // limit)]
    found = []
    for number, r in enumerate(records):
        deciding = (*value_inputs(r.operator), *DECIDING.get(r.operator.name, ()))
        constant = [i for i in deciding if i < len(r.inputs) and r.inputs[i] is not None]
        made = harness.case(
            f"case{number}",
            r.operator,
            r.attributes,
            r.inputs,
            [None if y is None else (y.shape, y.dtype) for y in r.results],
            constant=constant,
            rng=np.random.default_rng(number) if number % 2 else None,
        )
        if made is not None:
            found.append((made, r))
    return found


def _in_c(record: recorded.Record) -> bool:
    arrays = [x for x in (*record.inputs, *record.results) if x is not None]
    return all(isinstance(x, np.ndarray) and x.dtype.kind not in "OUSc" for x in arrays)


def check_recorded(module: str, limit: int | None) -> int:
    cases = recorded_cases(module, limit)
    for (case, record), results in zip(cases, harness.run([c for c, _ in cases]), strict=True):
        shapes = [None if x is None else (str(x.dtype), x.shape) for x in record.inputs]
        message = f"{record.operator} {dict(record.attributes)} of {shapes} ({case.name})"
        for found, wanted in zip(results, record.results, strict=True):
            if wanted is not None:
                assert found is not None, message
                same(found, wanted, message)
    return len(cases)


@pytest.mark.slow
@pytest.mark.parametrize("module", recorded.MODULES)
def test_the_executors_own_cases(module: str):
    assert check_recorded(module, SHORT) >= SHORT


@pytest.mark.heavy
@pytest.mark.parametrize("module", recorded.MODULES)
def test_all_of_the_executors_own_cases(module: str):
    assert check_recorded(module, None) > 80


def test_every_operator_of_the_executor_has_loops():
    missing = {f.op.name for f in declared() if f.kernels and not families(f.op) and not is_elementwise(f.op)}
    assert missing <= NOT_IN_C | ONLY_EXECUTED
    assert missing >= ONLY_EXECUTED


# ---- epilogues ---------------------------------------------------------------------------------------

_F32 = np.float32


def _anchors(rng: np.random.Generator) -> list[tuple[OpKey, dict[str, Any], list[np.ndarray | None], list[int]]]:
    """One small task of each family that elementwise operators may follow."""

    def real(*shape: int) -> np.ndarray:
        return rng.normal(size=shape).astype(_F32)

    def made(name: str, inputs: list[Any], constant: Sequence[int] = (), domain: str = "", **attributes: Any) -> Any:
        op = OpKey(domain, name)
        return op, {**defaults(op), **canonical(attributes)}, inputs, list(constant)

    index = rng.integers(-3, 3, (2, 4))
    return [
        made("Conv", [real(2, 4, 6, 5), real(6, 2, 3, 3), real(6)], group=2, pads=[1, 0, 1, 2], strides=[2, 1]),
        made("ConvTranspose", [real(1, 4, 3, 4), real(4, 3, 3, 2)], strides=[2, 2]),
        made("MatMul", [real(2, 3, 4), real(4, 70)]),
        made("Gemm", [real(3, 4), real(5, 4), real(5)], transB=1, alpha=0.5, beta=2.0),
        made("Einsum", [real(2, 3, 4), real(4, 5)], equation="bij,jk->bki"),
        made("MaxPool", [real(2, 3, 6, 7)], kernel_shape=[3, 2], strides=[2, 1]),
        made("AveragePool", [real(2, 3, 6, 7)], kernel_shape=[3, 2], pads=[1, 1, 1, 0]),
        made("GlobalAveragePool", [real(2, 3, 6, 7)]),
        made("LayerNormalization", [real(3, 5, 8), real(8), real(8)]),
        made("InstanceNormalization", [real(2, 3, 5), real(3), real(3)]),
        made("Softmax", [real(3, 4, 5)], axis=1),
        made("ReduceMean", [real(3, 4, 5), np.array([1])], [1]),
        made("ReduceMax", [real(3, 4, 5), np.array([0, 2])], [1], keepdims=0),
        made("CumSum", [real(3, 4), np.array(1)], [1], reverse=1),
        made("Transpose", [real(3, 4, 5)], perm=[2, 0, 1]),
        made("Concat", [real(3, 4), real(3, 2)], axis=1),
        made("Pad", [real(3, 4), np.array([1, 2, 0, 1])], [1], mode="reflect"),
        made("Slice", [real(5, 6), np.array([4, 1]), np.array([0, 6]), None, np.array([-2, 2])], [1, 2, 4]),
        made("Gather", [real(5, 3), index], axis=1),
        made("GatherElements", [real(3, 4), index], axis=0),
        made("Resize", [real(1, 2, 4, 5), None, np.array([1, 1, 2, 1.5], _F32)], [2], mode="linear"),
        made("DepthToSpace", [real(1, 8, 2, 3)], blocksize=2),
        made("SpaceToDepth", [real(1, 2, 4, 6)], blocksize=2),
        made("Tile", [real(2, 3), np.array([2, 2])], [1]),
        made("Expand", [real(3, 1), np.array([2, 3, 4])], [1]),
        made("LRN", [real(1, 5, 3, 3)], size=3),
        made("BatchNormalization", [real(2, 3, 4), real(3), real(3), real(3), np.abs(real(3))]),
        made("Trilu", [real(4, 5)]),
    ]


@pytest.mark.parametrize("seed", [0, 1])
def test_steps_behind_every_family(seed: int):
    rng = np.random.default_rng(seed)
    cases, wanted = [], []
    for number, (op, attributes, inputs, constant) in enumerate(_anchors(rng)):
        (y,) = numpy_result(op, attributes, inputs)
        factor = rng.normal(size=y.shape[-1:]).astype(_F32)
        residual = rng.normal(size=y.shape).astype(_F32)
        steps = [
            Step(OpKey("", "Mul"), {}, (0, 1), ir.DataType.FLOAT),
            Step(OpKey("", "Add"), {}, (3, 2), ir.DataType.FLOAT),
            Step(OpKey("", "Relu"), {}, (4,), ir.DataType.FLOAT),
            Step(OpKey("", "Cast"), {"to": int(ir.DataType.DOUBLE)}, (5,), ir.DataType.DOUBLE),
        ]
        made = harness.case(
            f"case{number}",
            op,
            attributes,
            inputs,
            [(y.shape, np.float64)],
            constant=constant,
            steps=steps,
            operands=[factor, residual],
            constant_operands=[0] if seed else [],
            dtype=_F32,
            rng=rng,
        )
        assert made is not None, op
        cases.append(made)
        wanted.append((op, np.maximum(y * factor + residual, 0).astype(np.float64), y))
    for (op, result, y), (found,) in zip(wanted, harness.run(cases), strict=True):
        assert found is not None
        bound = 8 * np.finfo(_F32).eps * (np.abs(y).max() * 4 + 4)
        np.testing.assert_allclose(found, result, rtol=0, atol=bound, err_msg=str(op))


@pytest.mark.parametrize("constant", [False, True])
def test_parameters_of_an_axis_as_long_as_the_last(constant: bool):
    """A vector for the channels must not be taken for one along the last axis, whose length it also has."""
    rng = np.random.default_rng(0)
    x = rng.integers(-100, 100, (2, 4, 3, 4)).astype(np.int32)
    scale = rng.uniform(0.1, 0.5, 4).astype(_F32)
    single = [np.array(v) for v in (np.int32(3), _F32(0.7), np.int8(5))]
    zeros = rng.integers(-5, 5, 4).astype(np.int8)
    real = rng.normal(size=x.shape).astype(_F32)
    requantized = evaluate(OpKey("eqsat", "Requantize"), (), [x, scale, *single])[0]
    draws: list[tuple[OpKey, dict[str, Any], list[Any], Any]] = [
        (OpKey("eqsat", "Requantize"), {"axis": 1, "dtype": int(ir.DataType.INT8)}, [x, scale, *single], requantized)
    ]
    for domain in ("", "com.microsoft"):
        for name, operand in (("QuantizeLinear", real), ("DequantizeLinear", requantized)):
            op = OpKey(domain, name)
            attributes = {**defaults(op), "axis": 1}
            result = numpy_result(op, attributes, [operand, scale, zeros])[0]
            draws.append((op, attributes, [operand, scale, zeros], result))
    cases = [
        harness.case(
            f"case{k}", op, attributes, inputs, [(y.shape, y.dtype)], constant=range(1, len(inputs)) if constant else ()
        )
        for k, (op, attributes, inputs, y) in enumerate(draws)
    ]
    for (op, _, _, y), (found,) in zip(draws, harness.run([c for c in cases if c is not None]), strict=True):
        np.testing.assert_array_equal(found, y, str(op))


# ---- indices that lie outside --------------------------------------------------------------------------


def test_indices_outside_touch_nothing():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4, 5)).astype(_F32)
    wild = np.array([[7, -9, 2**40, 1], [-(2**40), 0, 4, -5]])
    cases = [
        harness.case("gather", OpKey("", "Gather"), {"axis": 0}, [x, wild], [((2, 4, 5), _F32)]),
        harness.case("elements", OpKey("", "GatherElements"), {"axis": 0}, [x, wild], [((2, 4), _F32)]),
        harness.case("tuples", OpKey("", "GatherND"), {"batch_dims": 0}, [x, wild[:, :2]], [((2,), _F32)]),
        harness.case(
            "scatter",
            OpKey("", "ScatterElements"),
            {"axis": 0, "reduction": "none"},
            [x, wild, np.ones((2, 4), _F32)],
            [(x.shape, _F32)],
        ),
        harness.case(
            "scatter_nd",
            OpKey("", "ScatterND"),
            {"reduction": "add"},
            [x, wild[:, :2], np.ones(2, _F32)],
            [(x.shape, _F32)],
        ),
    ]
    gathered, elements, tuples, scattered, added = harness.run([c for c in cases if c is not None])
    border = np.clip(np.where(wild < 0, wild + 4, wild), 0, 3)
    np.testing.assert_array_equal(gathered[0], x[border])
    np.testing.assert_array_equal(elements[0], x[border, np.arange(4)])
    assert tuples[0] is not None and np.isin(tuples[0], x).all()
    inside = x.copy()
    inside[1, 3] = inside[0, 1] = 1
    np.testing.assert_array_equal(scattered[0], inside)
    np.testing.assert_array_equal(added[0], x)


def test_results_without_elements():
    x = np.zeros((0, 3), _F32)
    cases = [
        harness.case("empty", OpKey("", "Neg"), {}, [x], [((0, 3), _F32)]),
        harness.case("sum", OpKey("", "ReduceSum"), {"keepdims": 1}, [x], [((1, 1), _F32)]),
        harness.case("join", OpKey("", "Concat"), {"axis": 0}, [x, np.ones((2, 3), _F32)], [((2, 3), _F32)]),
        harness.case("product", OpKey("", "MatMul"), {}, [x.T.copy(), x], [((3, 3), _F32)]),
    ]
    empty, total, joined, product = harness.run([c for c in cases if c is not None])
    assert empty[0] is not None and empty[0].shape == (0, 3)
    np.testing.assert_array_equal(total[0], [[0]])
    np.testing.assert_array_equal(joined[0], np.ones((2, 3)))
    np.testing.assert_array_equal(product[0], np.zeros((3, 3)))


def test_helpers_come_with_what_they_call():
    found = needed("y0[0] = softplus_float(x0[0]);")
    assert [text.split("(")[0].split()[-1] for text in found] == ["maximum_float", "softplus_float"]
    assert needed("y0[0] = x0[0];") == ()


# ---- sanitizers ------------------------------------------------------------------------------------------


@pytest.mark.heavy
def test_sanitizers_find_nothing():
    """The tests of loops in a process whose libraries check addresses and undefined behaviour."""
    from tests.codegen.ways import sanitized

    files = [str(Path(__file__).with_name(name)) for name in ("test_loops.py", "test_values.py")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "not heavy", "-p", "no:cacheprovider", *files],
        env={**os.environ, **sanitized(), "EQSAT_TEST_SANITIZE": "1"},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    assert "runtime error" not in done.stderr and "AddressSanitizer" not in done.stderr
