"""``eqsat quantize`` with data that does not fit, numbers that are none, and models without anything to quantize."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.hostile.case import add, write

Files = Callable[[Path], None]

_SHAPE = (1, 4)


def _model(body: str, inputs: str = "float[1,4] x", outputs: str = "float[1,4] y", weights: str = "") -> bytes:
    text = f'<ir_version: 10, opset_import: ["": 21]> g ({inputs}) => ({outputs}) {weights} {{ {body} }}'
    return onnx.parser.parse_model(text).SerializeToString()


def _dense(weight: float = 0.5) -> onnx.ModelProto:
    weights = helper.make_tensor("w", TensorProto.FLOAT, (4, 4), [weight] * 16)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Relu", ["m"], ["y"])]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, _SHAPE) for n in "xy")
    return helper.make_model(
        helper.make_graph(nodes, "g", [x], [y], [weights]), opset_imports=[helper.make_opsetid("", 21)], ir_version=10
    )


def _good(folder: Path) -> None:
    np.savez(folder / "data.npz", x=np.random.default_rng(0).normal(size=(8, *_SHAPE)).astype(np.float32))


def _case(
    name: str,
    *arguments: str,
    data: Files = _good,
    model: bytes | onnx.ModelProto | None = None,
    refused: bool = True,
    calibration: str = "data.npz",
) -> None:
    def build(folder: Path) -> Sequence[str]:
        write(folder, _dense() if model is None else model)
        data(folder)
        return ["quantize", "model.onnx", "-c", calibration, "-o", "q.onnx", "--report", "r.json", "-q", *arguments]

    add(f"quantize-{name}", build, refused)


def _saved(**arrays: np.ndarray) -> Files:
    return lambda folder: np.savez(folder / "data.npz", allow_pickle=True, **arrays)


def _bytes(content: bytes) -> Files:
    return lambda folder: (folder / "data.npz").write_bytes(content) and None


def _ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def _member(content: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("x.npy", content)
    return file.getvalue()


def _with(value: float) -> np.ndarray:
    found = _ones(8, *_SHAPE)
    found[5, 0, 2] = value
    return found


# ---- data ----------------------------------------------------------------------------------------

_case("data_of_another_shape", data=_saved(x=_ones(8, 1, 5)))
_case("data_of_another_rank", data=_saved(x=_ones(8, 1, 4, 1, 1)))
_case("data_of_rank_0", data=_saved(x=_ones()))
_case("data_of_doubles", data=_saved(x=_ones(8, *_SHAPE).astype(np.float64)))
_case("data_of_integers", data=_saved(x=_ones(8, *_SHAPE).astype(np.int64)))
_case("data_of_complex_numbers", data=_saved(x=_ones(8, *_SHAPE).astype(np.complex64)))
_case("data_of_text", data=_saved(x=np.full((8, *_SHAPE), "text")))
_case("data_of_objects", data=_saved(x=np.full((8, *_SHAPE), None, object)))
_case("data_with_nan", data=_saved(x=_with(np.nan)))
_case("data_with_infinity", data=_saved(x=_with(-np.inf)))
_case("data_near_the_limit", data=_saved(x=_with(3e38)), refused=False)
_case("data_of_zeros", data=_saved(x=0 * _ones(8, *_SHAPE)), refused=False)
_case("data_of_subnormals", data=_saved(x=1e-45 * _ones(8, *_SHAPE)), refused=False)
_case("data_without_samples", data=_saved(x=_ones(0, *_SHAPE)))
_case("data_without_the_input", data=_saved(z=_ones(8, *_SHAPE)))
_case("data_with_another_input", data=_saved(x=_ones(8, *_SHAPE), z=_ones(8, *_SHAPE)))
_case("data_without_arrays", data=_saved())
_case("data_is_empty", data=_bytes(b""))
_case("data_is_text", data=_bytes(b"1, 2, 3"))
_case("data_is_a_pickle", data=_bytes(b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00]\x94(K\x01K\x02e."))
_case("data_is_cut", data=_bytes(b"PK\x03\x04" + bytes(40)))
_case("data_with_a_member_that_is_none", data=_bytes(_member(b"no array")))
_case(
    "data_with_a_header_of_2_to_40",
    data=_bytes(
        _member(b"\x93NUMPY\x01\x00\x46\x00{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776,), }\n")
    ),
)
_case("data_is_missing", calibration="nothing.npz")
_case("data_is_an_empty_folder", data=lambda folder: (folder / "data").mkdir(), calibration="data")
_case("data_is_a_device", calibration="/dev/zero")
_case("data_is_the_model", calibration="model.onnx")

# ---- arguments -----------------------------------------------------------------------------------

for _name, _value in (
    *(("nan", "nan"), ("infinite", "inf"), ("negative_infinite", "-inf"), ("negative", "-10dB"), ("text", "much")),
    *(("empty", ""), ("of_no_output", "z=30"), ("empty_of_output", "y="), ("digits", "9" * 5000)),
):
    _case(f"budget_{_name}", f"--budget={_value}")
_case("budget_that_floats_meet", "--budget=1e9dB", refused=False)
_case("budget_twice", "--budget=y=10", "--budget=y=20")
_case("budget_of_both_kinds", "--budget=10", "--budget=y=20")
_case("percentile_nan", "--method=percentile", "--percentile=nan")
_case("percentile_of_50", "--method=percentile", "--percentile=50")
_case("percentile_negative", "--method=percentile", "--percentile=-1")
_case("samples_zero", "--samples=0")
_case("samples_negative", "--samples=-3")
_case("noise_samples_zero", "--noise-samples=0")
_case("check_samples_zero", "--check-samples=0")
_case("many_samples", f"--samples={10**30}", f"--check-samples={10**30}", f"--noise-samples={10**30}", refused=False)
_case("skip_of_no_node", "--skip=nothing")
_case("operator_that_is_none", "--operators=Nothing")
_case("operators_empty", "--operators=,", refused=False)
_case("report_of_another_kind", "--report=r.exe")
_case("output_is_a_folder", "-o", "/tmp")
_case("time_limit_nan", "--time-limit=nan")
_case("time_limit_tiny", "--time-limit=1e-9", refused=False)
_case("memory_limit_of_a_byte", "--memory-limit=1")

# ---- models --------------------------------------------------------------------------------------

_QDQ = """q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) m = MatMul(d, w) y = Relu(m)"""
_WEIGHTS = "<float[4,4] w = {1,2,3,4,1,2,3,4,1,2,3,4,1,2,3,4}>"
_SCALES = "<float s = {0.1}, uint8 z = {128}, float[4,4] w = {1,2,3,4,1,2,3,4,1,2,3,4,1,2,3,4}>"

_case("nothing_to_quantize", model=_model("y = Sin(x)"), refused=False)
_case("only_an_identity", model=_model("y = Identity(x)"), refused=False)
_case("fully_integral_of_a_table", "--fully-integral", model=_model("y = Sin(x)"), refused=False)
_case("quantized_already", model=_model(_QDQ, weights=_SCALES), refused=False)
_case("quantized_already_and_integral", "--fully-integral", model=_model(_QDQ, weights=_SCALES), refused=False)
_case("output_is_constant", model=_model("y = Identity(w)", weights="<float[1,4] w = {1,2,3,4}>"), refused=False)
_case("output_is_the_input", model=_model("", outputs="float[1,4] x"), refused=False)
_case("weights_of_zeros", model=_dense(0.0), refused=False)
_case("weights_near_the_limit", model=_dense(3e38), refused=False)
_case("weights_of_subnormals", model=_dense(1e-45), refused=False)
_case("weights_with_nan", model=_dense(float("nan")), refused=False)
_case("weights_with_infinity", model=_dense(float("inf")), refused=False)
_case("values_leave_the_range", model=_model("a = Exp(x) b = Exp(a) c = Exp(b) d = Exp(c) y = MatMul(d, w)",
    weights=_WEIGHTS), data=_saved(x=9 * _ones(8, *_SHAPE)), refused=False)  # fmt: skip
_case("integers", model=_model("y = Add(x, x)", "int64[1,4] x", "int64[1,4] y"), refused=True)
_case(
    "integer_network",
    model=_model("y = Add(x, x)", "int64[1,4] x", "int64[1,4] y"),
    data=_saved(x=np.ones((8, *_SHAPE), np.int64)),
    refused=False,
)
_case("strings", model=_model("y = Identity(x)", "string[1,4] x", "string[1,4] y"))
_case("a_sequence", model=_model("y = SequenceLength(x)", "seq(float[1,4]) x", "int64 y"))
_case("half_of_it", model=_model("y = Relu(x)", "float16[1,4] x", "float16[1,4] y"))
_case("no_inputs", model=_model("y = Relu(w)", "", weights="<float[1,4] w = {1,2,3,4}>"), data=_saved(), refused=False)
_case(
    "an_empty_dimension",
    model=_model("y = Relu(x)", "float[0,4] x", "float[0,4] y"),
    data=_saved(x=_ones(2, 0, 4)),
    refused=False,
)
_case("a_symbol_without_a_size", model=_model("y = Relu(x)", "float[N,4] x", "float[N,4] y"))
