"""Copies of all element types in C, on every instruction set and with threads, against numpy."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import eqsat
from eqsat import op
from eqsat.codegen import sharing
from eqsat.codegen.isa import AVX2, AVX512, PORTABLE, SCALAR, Isa
from eqsat.codegen.kernel import Epilogue, Task, View
from eqsat.codegen.kernels.shared.copies import copied
from eqsat.codegen.program import IDENTITY
from eqsat.codegen.runtime import CModel
from eqsat.model.load import load
from tests.codegen.kernels import kernel_cases
from tests.codegen.kernels.kernel_cases import Memory, aligned, runnable

UNDEFINED = ("-fsanitize=undefined", "-fsanitize-undefined-trap-on-error")
TYPES = ("float32", "float16", "bfloat16", "float64", "int8", "uint8", "bool", "int16", "uint32", "int64")
SHAPES: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((33, 18), (1, 0)),
    ((16, 16), (1, 0)),
    ((100, 131), (1, 0)),
    ((7, 3), (1, 0)),
    ((2, 17, 35), (2, 0, 1)),
    ((2, 17, 35), (0, 2, 1)),
    ((3, 16, 4, 9), (0, 2, 3, 1)),
    ((2, 5, 6, 70), (0, 3, 1, 2)),
    ((2, 5, 6, 70), (2, 1, 3, 0)),
    ((20, 3, 64), (1, 0, 2)),
)


def model(dtype: str) -> tuple[ir.Model, dict[str, np.ndarray], list[np.ndarray]]:
    """Transpositions, and rows that are parts of wider ones; inputs, and what they give."""
    rng, results, inputs, expected = np.random.default_rng(7), [], {}, []
    kind = ir.DataType[{"bool": "BOOL", "float32": "FLOAT", "float64": "DOUBLE"}.get(dtype, dtype.upper())]
    for number, (shape, perm) in enumerate(SHAPES):
        name = f"x{number}"
        x = eqsat.input(name, shape, dtype)
        drawn = rng.integers(0, 2, shape) if dtype == "bool" else rng.uniform(0, 127, shape)
        array = drawn.astype(kind.numpy())
        inputs[name] = array
        results += [op.Transpose(x, perm=list(perm)), op.Concat(x, x, axis=len(shape) - 1)]
        expected += [array.transpose(perm), np.concatenate([array, array], -1)]
    return eqsat.graph(results), inputs, expected


@pytest.mark.slow
@pytest.mark.parametrize(
    "isas", [(AVX512, PORTABLE), (AVX2, PORTABLE), (PORTABLE,), (PORTABLE, SCALAR)], ids=lambda isas: isas[0].name
)
@pytest.mark.parametrize("dtype", TYPES)
def test_values(dtype: str, isas: tuple[Isa, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    if not set(isas) - {SCALAR} <= set(runnable()):
        pytest.skip("not on this machine")
    for name in ("WORTH", "ENOUGH"):
        monkeypatch.setattr(sharing, name, 0.0)
    monkeypatch.setattr(sharing, "LEAST", 1e-15)
    graph, inputs, expected = model(dtype)
    scalar = ("-DMODEL_SCALAR",) if SCALAR in isas else ()
    for threads in (1, 3):
        compiled = CModel(load(graph), isas=isas, threads=threads, flags=(*UNDEFINED, *scalar))
        for found, want in zip(compiled.run(inputs).values(), expected, strict=True):
            assert found.shape == want.shape
            assert found.dtype == want.dtype
            assert found.tobytes() == want.tobytes()


@pytest.mark.parametrize("dtype", [ir.DataType.INT8, ir.DataType.UINT16, ir.DataType.FLOAT, ir.DataType.DOUBLE])
def test_no_element_is_written_by_two_blocks(dtype: ir.DataType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_cases, "IN_PARTS", True)
    shapes = [(rows, columns) for rows in (3, 24, 65, 169) for columns in (7, 18, 64, 131)]
    rng, texts, helpers, cases = np.random.default_rng(5), [], {}, []
    for isa in runnable():
        for rows, columns in shapes:
            x, y = View.dense(dtype, (rows, columns), (1, 0)), View.dense(dtype, (rows, columns))
            task = Task(IDENTITY, {}, (x,), (y,), Epilogue(dtype))
            kernel = copied(x, y, isa)
            assert kernel is not None
            name = f"copy_{rows}_{columns}_{isa.name}"
            text, names = kernel_cases.function(name, task, kernel, isa)
            texts.append(text)
            helpers.update(dict.fromkeys(kernel.helpers))
            size = rows * columns * dtype.itemsize
            given = Memory(x, aligned(int(size), rng), 0)
            cases.append(
                (name, SimpleNamespace(memory={"x0": given, "y0": Memory(y, aligned(int(size)), 0)}), kernel, names)
            )
    library = kernel_cases.compiled(kernel_cases.INCLUDES + "\n".join([*helpers, *texts]), kernel_cases.QUICK)
    assert any(hasattr(library, f"{name}_part") for name, *_ in cases)
    for name, case, kernel, names in cases:
        found = kernel_cases.call(library, name, case, kernel, names)
        assert found.tobytes() == case.memory["x0"].array().tobytes()


def test_free_sizes() -> None:
    """There may be less than one square of elements."""
    text = """<ir_version: 10, opset_import: ["": 21]>
        g (float16[n, m] x, uint8[k, m, n] z) => (float16[m, n] y, uint8[k, n, m] w)
        { y = Transpose<perm=[1, 0]>(x) w = Transpose<perm=[0, 2, 1]>(z) }"""
    compiled = CModel(
        load(onnx.parser.parse_model(text)), dims={"n": (1, 50), "m": (1, 50), "k": (1, 3)}, flags=UNDEFINED
    )
    rng = np.random.default_rng(1)
    for n, m, k in ((1, 1, 1), (7, 50, 2), (16, 16, 3), (33, 9, 1), (50, 41, 2)):
        x = rng.standard_normal((n, m)).astype(np.float16)
        z = rng.integers(0, 256, (k, m, n), dtype=np.uint8)
        found = compiled.run({"x": x, "z": z})
        np.testing.assert_array_equal(found["y"], x.T)
        np.testing.assert_array_equal(found["w"], z.transpose(0, 2, 1))
