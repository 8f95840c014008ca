"""What a model with large external weights costs: peak memory beyond imports of ``optimize`` and ``save``, CPU seconds.

The file with the weights is sparse but for the first row of each, so that drawing them costs nothing. The result is
loaded again, and its weights are compared with those that were drawn.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
from onnx import TensorProto, helper

import eqsat
import eqsat.verify.verify
from eqsat.model.load import load

SIZE = 4096
"""Rows and columns of each matrix of float32."""
BYTES = SIZE * SIZE * 4


def write(folder: Path, layers: int) -> Path:
    """A chain of products and ``Relu``s."""
    tensors, nodes, last = [], [], "x"
    with (folder / "big.data").open("wb") as file:
        file.truncate(layers * BYTES)
        for i in range(layers):
            file.seek(i * BYTES)
            file.write(np.full(SIZE, 1 / (i + 1), np.float32).tobytes())
            tensor = TensorProto(
                name=f"w{i}",
                data_type=TensorProto.FLOAT,
                dims=[SIZE, SIZE],
                data_location=TensorProto.EXTERNAL,
            )
            for key, value in (("location", "big.data"), ("offset", i * BYTES), ("length", BYTES)):
                tensor.external_data.add(key=key, value=str(value))
            tensors.append(tensor)
            nodes.append(helper.make_node("MatMul", [last, f"w{i}"], [f"m{i}"]))
            nodes.append(helper.make_node("Relu", [f"m{i}"], [f"r{i}"]))
            last = f"r{i}"
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, SIZE]) for name in ("x", last))
    graph = helper.make_graph(nodes, "chain", [x], [y], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "big.onnx")
    return folder / "big.onnx"


def measured(folder: Path, layers: int) -> dict[str, float | bool]:
    """Optimizes and saves a model once in this process."""
    path = write(folder, layers)
    before, start = _peak(), time.process_time()
    result = eqsat.optimize(path, targets=["dnnl"], time_limit=120)
    optimized, seconds = _peak() - before, time.process_time() - start
    start = time.process_time()
    result.save(folder / "out.onnx", external_data=True)
    found: dict[str, float | bool] = {
        "weights": layers * BYTES,
        "peak of optimize": optimized,
        "peak": _peak() - before,
        "seconds of optimize": seconds,
        "seconds of save": time.process_time() - start,
    }
    again = load(folder / "out.onnx").graph.initializers
    found["equal"] = all(_is_right(again, i) for i in range(layers))
    return found


def _is_right(weights: Mapping[str, ir.Value], layer: int) -> bool:
    tensor = weights[f"w{layer}"].const_value
    assert tensor is not None
    array = tensor.numpy()
    return bool((array[0] == np.float32(1 / (layer + 1))).all() and not array[1:].any())


def _peak() -> int:
    """The most memory that this process has had, in bytes."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most << 10


def main() -> None:
    """Prints a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=12, help="matrices of 64 MB")
    parser.add_argument("--folder", type=Path, help="where to write the models; a temporary one by default")
    parser.add_argument("--json", help="file to write, or `-`")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        found = measured(Path(folder), options.layers)
    if options.json == "-":
        print(json.dumps(found))
        return
    for name, value in found.items():
        shown = f"{value:.2f}" if "seconds" in name else value if name == "equal" else f"{value / 2**20:,.0f} MB"
        print(f"{name:24}{shown}")
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
