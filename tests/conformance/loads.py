"""``make ort-loads``: what ONNX Runtime ran before :func:`eqsat.optimize` it runs afterwards, with equal values.

``python -m tests.conformance.loads [--kind node,operator]``. Kind ``node`` are the cases of ``onnx.backend.test``, kind
``operator`` small models: every operator whose inputs have one type, each element type, at several opsets. A case that
ONNX Runtime itself refuses, or computes at random, says nothing. A case that fails and is not in ``loads_known.txt``
fails the run, and so does one in the list that passes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, defs, helper

import eqsat
from eqsat.errors import EqsatError
from tests.conformance import cases
from tests.conformance.__main__ import run_all

KINDS = ("node", "operator")
KNOWN = Path(__file__).with_name("loads_known.txt")
OPSETS = (13, 16, 18, 20, 24, 26)
"""Of the small models: those at which ONNX Runtime runs other operators through their definitions."""
_SHAPE = (2, 3)
_SKIPPED = frozenset({"Multinomial", "Bernoulli", "Dropout", "RandomNormalLike", "RandomUniformLike", "EyeLike"})
_WIDE = {TensorProto.BFLOAT16: 2e-2, TensorProto.FLOAT16: 4e-3, TensorProto.FLOAT: 2e-5, TensorProto.DOUBLE: 1e-9}


def known() -> dict[str, str]:
    """Cases that may fail, and why: ``case: reason`` a line."""
    if not KNOWN.exists():
        return {}
    lines = [line for line in KNOWN.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    return {name: reason for name, _, reason in (line.partition(": ") for line in lines)}


def identifiers(kinds: list[str]) -> list[str]:
    """All cases of some kinds."""
    found = [f"node/{name}" for name in cases.cases("node")] if "node" in kinds else []
    return found + (operator_cases() if "operator" in kinds else [])


@cache
def operator_cases() -> list[str]:
    """``operator/Elu/float16/18`` for every operator whose inputs have one type."""
    found = []
    for opset in OPSETS:
        for name in sorted({s.name for s in defs.get_all_schemas() if not s.domain} - _SKIPPED):
            try:
                schema = defs.get_schema(name, opset)
            except defs.SchemaError:
                continue
            if schema.deprecated or not _is_simple(schema):
                continue
            found += [f"operator/{name}/{t}/{opset}" for t in _types(schema)]
    return found


def _required(schema: Any) -> list[Any]:
    return [p for p in schema.inputs if p.option != defs.OpSchema.FormalParameterOption.Optional]


def _is_simple(schema: Any) -> bool:
    inputs = _required(schema)
    one = (
        1 <= len(inputs) <= 2 and len({p.type_str for p in inputs}) == 1 and not inputs[0].type_str.startswith("tensor")
    )
    return one and len(schema.outputs) >= 1 and not any(a.required for a in schema.attributes.values())


def _types(schema: Any) -> list[str]:
    allowed = {
        t.removeprefix("tensor(").removesuffix(")") for t in _required(schema)[0].types if t.startswith("tensor")
    }
    names = ("float16", "bfloat16", "float", "double", "bool", "string")
    names += tuple(f"{u}int{n}" for u in ("", "u") for n in (8, 16, 32, 64))
    return [n for n in names if n in allowed]


def operator_model(name: str, kind: str, opset: int) -> onnx.ModelProto:
    """One operator on two by three elements."""
    schema: Any = defs.get_schema(name, opset)
    number = getattr(TensorProto, kind.upper())
    inputs = [helper.make_tensor_value_info(f"x{i}", number, _SHAPE) for i in range(len(_required(schema)))]
    node = helper.make_node(name, [i.name for i in inputs], ["y"])
    graph = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name="y")])
    version = 10 if opset < 25 else 13
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=version)
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True)
    onnx.checker.check_model(inferred)
    return inferred


def inputs_of(model: onnx.ModelProto) -> list[np.ndarray]:
    """Values of either sign, and beyond the bends of activations where the type has them."""
    rng = np.random.default_rng(0)
    found = []
    for value in model.graph.input:
        shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
        kind = value.type.tensor_type.elem_type
        if kind == TensorProto.STRING:
            found.append(np.array(["a", "b", "", "cd", "e", "1"], object).reshape(shape))
            continue
        dtype = np.dtype(ml_dtypes.bfloat16) if kind == TensorProto.BFLOAT16 else helper.tensor_dtype_to_np_dtype(kind)
        low = 0 if dtype.kind in "ub" else -4
        drawn = rng.uniform(low, 4, shape) if kind in _WIDE else rng.integers(low, 2 if dtype.kind == "b" else 5, shape)
        found.append(drawn.astype(dtype))
    return found


def _fed(x: np.ndarray, declared: onnx.ValueInfoProto) -> Any:
    value = onnxruntime.OrtValue
    number = declared.type.tensor_type.elem_type
    array = np.ascontiguousarray(x)
    if array.dtype.kind == "V" or array.dtype.name in ("bfloat16",):
        return value.ortvalue_from_numpy_with_onnx_type(array.view(np.uint16), number)
    return value.ortvalue_from_numpy(array)


def outcome(identifier: str) -> str:
    """``pass``, ``skip: why`` or ``fail: why``."""
    kind, _, name = identifier.partition("/")
    try:
        if kind == "node":
            case = cases.cases("node")[name]
            if reason := cases.skip_reason(case):
                return f"skip: {reason}"
            model = cases.model_of(case)
            inputs = next(iter(cases.data_sets(case, model)))[0]
        else:
            op, element, opset = name.split("/")
            model = operator_model(op, element, int(opset))
            inputs = inputs_of(model)
        wanted = run_ort(model.SerializeToString(), inputs)
    except Exception as error:
        return f"skip: ONNX Runtime or the checker refuses the model: {_short(error)}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = eqsat.optimize(model)
    except EqsatError as error:
        return f"skip: {_short(error)}"
    except Exception as error:
        return f"fail: optimize: {_short(error)}"
    try:
        written = saved(result)
        got = run_ort(written, inputs)
        for a, b, declared in zip(got, wanted, model.graph.output, strict=True):
            tolerance = _WIDE.get(declared.type.tensor_type.elem_type, 0.0)
            compare(a, b, tolerance)
    except Exception as error:
        return f"fail: {_short(error)}"
    return "pass"


def saved(result: eqsat.Result) -> bytes:
    """The bytes of the file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.onnx"
        result.save(path)
        return path.read_bytes()


def run_ort(model: bytes, inputs: list[Any]) -> list[Any]:
    """Outputs by ONNX Runtime with its own optimizations, which are what users have."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]
    if any(isinstance(x, list) or x is None for x in inputs):
        return session.run(None, dict(zip(names, inputs, strict=False)))
    declared = {v.name: v for v in onnx.load_from_string(model).graph.input}
    feeds = {n: _fed(x, declared[n]) for n, x in zip(names, inputs, strict=False)}
    return [v.numpy() if v.is_tensor() else v for v in session.run_with_ort_values(None, feeds)]


def compare(a: Any, b: Any, tolerance: float) -> None:
    """Arrays of one type and shape that differ by the tolerance at most, relative or absolute."""
    if isinstance(b, np.ndarray):
        assert a.dtype == b.dtype and a.shape == b.shape, f"{a.dtype}{a.shape} instead of {b.dtype}{b.shape}"
        if a.dtype.kind in "OUS" or not tolerance:
            np.testing.assert_array_equal(a, b)
        else:
            np.testing.assert_allclose(
                np.asarray(a, np.float64), np.asarray(b, np.float64), rtol=tolerance, atol=tolerance
            )


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:220]}"


def main(arguments: list[str]) -> int:
    """Run, compare with the list of known failures; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.loads", description=__doc__)
    parser.add_argument("--kind", default=",".join(KINDS), help="kinds of cases, separated by commas")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        for line in sys.stdin:
            print(outcome(line.strip()), flush=True)
        return 0
    kinds = options.kind.split(",")
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown:
        parser.error(f"no kind {unknown[0]!r}; there are {', '.join(KINDS)}")
    results = run_all(identifiers(kinds), "tests.conformance.loads")
    allowed = known()
    failing = {i: r for i, r in results.items() if r.startswith("fail") and i not in allowed}
    passing = [i for i in allowed if results.get(i) == "pass"]
    for identifier, reason in failing.items():
        print(f"{identifier}: {reason}")
    for identifier in passing:
        print(f"{identifier}: passes, but is in {KNOWN.name}")
    print(
        ", ".join(f"{n} {what}" for what, n in sorted(Counter(r.partition(":")[0] for r in results.values()).items()))
    )
    return 1 if failing or passing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
