"""Inferred types against what the operators' own conformance cases compute (``onnx.backend.test``)."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from eqsat.errors import ModelError
from eqsat.model.inference.infer import infer_types
from eqsat.model.normalize import complete
from eqsat.schema.types import OpKey, TensorType
from tests.model.node_cases import Case, as_array, cases
from tests.model.running import run_ort

# Their shapes depend on the data: only some dimensions can be known.
DATA_DEPENDENT = {
    "Compress",
    "ImageDecoder",
    "NonMaxSuppression",
    "NonZero",
    "StringNormalizer",
    "StringSplit",
    "Unique",
}


def _tensor_cases() -> list[Case]:
    return [c for c in cases() if c.is_tensors]


def _agrees(found: TensorType | None, array: np.ndarray) -> bool:
    if found is None or found.shape is None or len(found.shape) != array.ndim:
        return False
    return all(d == n for d, n in zip(found.shape, array.shape, strict=True) if isinstance(d, int))


@pytest.mark.slow
def test_every_output_has_the_type_it_has() -> None:
    checked = 0
    wrong = []
    for case in _tensor_cases():
        found = infer_types(case.op, case.attrs, case.operand_types(), case.operand_values(), len(case.outputs))
        for name, known in zip(case.outputs, found, strict=True):
            array = as_array(case.expected.get(name))
            declared = case.types.get(name)
            if not name or array is None or declared is None:
                continue
            checked += 1
            static = known is not None and known.is_static
            if not _agrees(known, array) or not (static or case.op.name in DATA_DEPENDENT):
                wrong.append(f"{case.name}: {known}, computed {array.shape}")
            elif known is not None and known.dtype != declared.dtype:
                wrong.append(f"{case.name}: {known}, declared {declared}")
    assert not wrong, "\n".join(wrong)
    assert checked > 1100


@pytest.mark.slow
def test_rank_alone_gives_no_wrong_dimension() -> None:
    """With all dimensions unknown, what is inferred must still agree with what is computed."""
    wrong = []
    for case in _tensor_cases():
        if case.op.name == "StringNormalizer":  # ONNX demands to know the dimensions
            continue
        types = [
            None if t is None or t.shape is None else TensorType(t.dtype, (None,) * len(t.shape))
            for t in case.operand_types()
        ]
        try:
            found = infer_types(case.op, case.attrs, types, (), len(case.outputs))
        except ModelError as error:
            wrong.append(f"{case.name}: {error}")
            continue
        for name, known in zip(case.outputs, found, strict=True):
            array = as_array(case.expected.get(name))
            if array is None or known is None or known.shape is None:
                continue
            if not _agrees(known, array):
                wrong.append(f"{case.name}: {known}, computed {array.shape}")
    assert not wrong, "\n".join(wrong)


def test_normal_form_is_stable_and_keeps_types() -> None:
    for case in _tensor_cases():
        types, values = case.operand_types(), case.operand_values()
        normal = complete(case.op, case.attrs, types, len(case.outputs))
        assert complete(case.op, normal, types, len(case.outputs)) == normal, case.name
        before = infer_types(case.op, case.attrs, types, values, len(case.outputs))
        after = infer_types(case.op, normal, types, values, len(case.outputs))
        assert before == after, case.name


@pytest.mark.parametrize("name", ["test_add", "test_conv_with_strides_padding", "test_reshape_one_dim"])
def test_symbols_pass_through(name: str) -> None:
    case = next(c for c in cases() if c.name == name)
    types = case.operand_types()
    first = types[0]
    assert first is not None and first.shape is not None
    symbolic = [TensorType(first.dtype, ("N", *first.shape[1:])) if t == first else t for t in types]
    if name == "test_reshape_one_dim":
        found = infer_types(case.op, case.attrs, symbolic, [None, np.array([0, -1])])
    else:
        found = infer_types(case.op, case.attrs, symbolic, case.operand_values())
    assert found[0] is not None and found[0].shape is not None and found[0].shape[0] == "N"


@pytest.mark.parametrize("parts", [7, 12, 30, 49])
def test_resize_rounds_a_scaled_size_as_it_is_executed(parts: int) -> None:
    """ONNX's own rule multiplies in float64, in which the nearest float32 to 7/12 makes 6 of 12."""
    scale = np.array([k / parts for k in range(1, 2 * parts)], np.float32)
    body = "".join(f"y{i} = Resize<mode='nearest'>(x, , s{i})\n" for i in range(len(scale))).replace("'", '"')
    made = ", ".join(f"float[n{i}] y{i}" for i in range(len(scale)))
    given = ", ".join(f"float[1] s{i} = {{{s!r}}}" for i, s in enumerate(map(float, scale)))
    model = onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["": 19]> g (float[{parts}] x) => ({made}) <{given}> {{ {body} }}'
    )
    executed = [y.size for y in run_ort(model, {"x": np.ones(parts, np.float32)})]
    x, s = TensorType(ir.DataType.FLOAT, (parts,)), TensorType(ir.DataType.FLOAT, (1,))
    for size, factor in zip(executed, scale, strict=True):
        (found,) = infer_types(OpKey("", "Resize"), (), [x, None, s], [None, None, factor.reshape(1)])
        assert found == TensorType(ir.DataType.FLOAT, (size,)), factor
