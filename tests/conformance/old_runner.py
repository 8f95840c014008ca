"""Runs models in the environment of an older ONNX Runtime, which has nothing but that and numpy; see ``old.py``.

For each line of standard input, a JSON object with ``model``, ``feed`` (an ``.npz``) and ``out``, one line is printed:
nothing, or why the model does not load or run.
"""

import json
import sys

import numpy as np
import onnxruntime


def run(model: str, feed: str, out: str) -> str:
    """Writes the outputs as arrays ``0``, ``1``, ...; returns why there are none."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        with np.load(feed) as arrays:
            given = {value.name: arrays[value.name] for value in session.get_inputs()}
        results = session.run(None, given)
    except Exception as error:  # those of ONNX Runtime have no common base
        return " ".join(str(error).split())[:300] or type(error).__name__
    if not all(isinstance(x, np.ndarray) and x.dtype.kind in "biufU" for x in results):
        return "an output that is not an array of numbers"
    arrays: dict = {str(i): x for i, x in enumerate(results)}
    np.savez(out, **arrays)
    return ""


if __name__ == "__main__":
    print(onnxruntime.__version__, flush=True)
    for line in sys.stdin:
        print(run(**json.loads(line)), flush=True)
