"""OpenVINO as a peer of generated C: on the CPU, where it is installed (``pip install openvino``)."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping

import numpy as np
import onnx

from benchmarks.timing import Run


def run(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], threads: int) -> Run | None:
    """Runs a model in float32 arithmetic by a number of threads; None where OpenVINO is missing or refuses it."""
    if importlib.util.find_spec("openvino") is None:
        return None
    library = importlib.import_module("openvino")
    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        # Else it may compute in bfloat16 or float16.
        "INFERENCE_PRECISION_HINT": "f32",
    }
    try:
        compiled = library.Core().compile_model(_with_sizes(model, feeds), "CPU", settings)
        request = compiled.create_infer_request()
        request.infer(dict(feeds))
    except Exception:  # OpenVINO refuses models by exceptions of many types.
        return None
    return lambda: request.infer(dict(feeds), share_inputs=True)


def _with_sizes(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> object:
    """The model as OpenVINO reads it, its inputs as large as those given."""
    import io

    library = importlib.import_module("openvino")
    read = library.Core().read_model(io.BytesIO(model.SerializeToString()))
    read.reshape({name: list(array.shape) for name, array in feeds.items()})
    return read
