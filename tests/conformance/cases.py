"""The cases of ``onnx.backend.test`` and how one is run: model, data sets, and the comparison that ONNX itself uses."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import onnx_ir as ir
from onnx import TensorProto
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

from eqsat.execute.executor import Executor

KINDS = ("node", "simple", "real", "pytorch-converted", "pytorch-operator")

OUR_TYPES = frozenset(
    {
        TensorProto.FLOAT,
        TensorProto.INT8,
        TensorProto.UINT8,
        TensorProto.INT32,
        TensorProto.INT64,
        TensorProto.BOOL,
    }
)
"""Element types for which the executor promises to be complete."""

_RANDOM = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)

CONTROL_FLOW = frozenset({"If", "Loop", "Scan", "SequenceMap"})


@cache
def cases(kind: str) -> dict[str, TestCase]:
    """Cases of a kind by name, sorted."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some cases overflow on purpose when their data is made
        return {case.name: case for case in sorted(load_model_tests(kind=kind), key=lambda c: c.name)}


def model_of(case: TestCase) -> onnx.ModelProto:
    """The case's model; the models of kind ``real`` are the light ones in the onnx package."""
    if case.model is not None:
        return case.model
    if case.model_dir is None:
        return onnx.load(_light(case))
    return onnx.load(Path(case.model_dir) / "model.onnx")


def data_sets(case: TestCase, model: onnx.ModelProto) -> Iterator[tuple[list[Any], list[Any]]]:
    """Inputs and expected outputs."""
    if case.data_sets is not None:
        for inputs, outputs in case.data_sets:
            yield [_value(x) for x in inputs], [_value(x) for x in outputs]
    elif case.model_dir is None:
        stored = {x.name for x in model.graph.initializer}
        inputs = [Runner.generate_dummy_data(x) for x in model.graph.input if x.name not in stored]
        output = _light(case).with_name(_light(case).stem + "_output_0.pb")
        yield inputs, [onnx.numpy_helper.to_array(onnx.load_tensor(output))]
    else:
        for folder in sorted(Path(case.model_dir).glob("test_data_set_*")):
            yield _read(folder, "input", model.graph.input), _read(folder, "output", model.graph.output)


def run(case: TestCase) -> None:
    """Run a case.

    Raises:
        Exception: It does not load, does not run, or computes something else.
    """
    model = model_of(case)
    executor = Executor(ir.from_proto(model))
    for inputs, expected in data_sets(case, model):
        stored = {x.name for x in model.graph.initializer}
        names = [x.name for x in model.graph.input if x.name not in stored or len(inputs) == len(model.graph.input)]
        results = executor.run(dict(zip(names, inputs, strict=False)))
        compare(list(results.values())[: len(expected)], expected, case.rtol, case.atol)


def compare(results: list[Any], expected: list[Any], rtol: float, atol: float) -> None:
    """As ONNX's own runner compares; besides, empty optionals are equal to nothing else."""
    for result, wanted in zip(results, expected, strict=True):
        assert (result is None) == (wanted is None), f"{result!r} instead of {wanted!r}"
        assert isinstance(result, list) == isinstance(wanted, list), f"{result!r} instead of {wanted!r}"
        if isinstance(wanted, list):
            compare(result, wanted, rtol, atol)
        elif wanted is not None:
            Runner.assert_similar_outputs([wanted], [result], rtol, atol)


def is_ours(case: TestCase) -> bool:
    """Whether a node case has our element types only and no control flow."""
    graph = model_of(case).graph
    if any(node.op_type in CONTROL_FLOW for node in graph.node):
        return False
    values = [*graph.input, *graph.output]
    return all(v.type.HasField("tensor_type") and v.type.tensor_type.elem_type in OUR_TYPES for v in values)


def skip_reason(case: TestCase) -> str:
    """Why a case says nothing here, empty if it does."""
    graph = model_of(case).graph
    if any(node.op_type in _RANDOM for node in graph.node):
        return "random numbers have no expected value"
    if any(node.op_type == "ImageDecoder" for node in graph.node) and importlib.util.find_spec("PIL") is None:
        return "onnx.reference decodes images with Pillow, which is not installed"
    return ""


def _light(case: TestCase) -> Path:
    assert case.url is not None
    return Path(onnx.__file__).parent.parent / case.url


def _value(x: Any) -> Any:
    """Data of a node case as arrays."""
    if isinstance(x, TensorProto):
        return onnx.numpy_helper.to_array(x)
    if isinstance(x, onnx.SequenceProto):
        return onnx.numpy_helper.to_list(x)
    if isinstance(x, onnx.OptionalProto):
        return onnx.numpy_helper.to_optional(x)
    if isinstance(x, list | tuple):
        return [_value(v) for v in x]
    return x if x is None else np.asarray(x)


def _read(folder: Path, prefix: str, values: Any) -> list[Any]:
    """Stored values of a data set, in order."""
    return [
        _load(folder / f"{prefix}_{i}.pb", v) for i, v in enumerate(values) if (folder / f"{prefix}_{i}.pb").exists()
    ]


def _load(path: Path, value: onnx.ValueInfoProto) -> Any:
    kind = value.type.WhichOneof("value")
    proto = {"sequence_type": onnx.SequenceProto, "optional_type": onnx.OptionalProto}.get(kind or "", TensorProto)()
    proto.ParseFromString(path.read_bytes())
    return _value(proto)
