"""The benchmark of single C kernels runs, finds every distinct node, and notices wrong results."""

from __future__ import annotations

import json

import numpy as np
import onnx
from onnx import helper, numpy_helper

from benchmarks import c_kernels
from benchmarks.c_kernels import nodes
from eqsat.codegen.isa import PORTABLE


def small_model() -> onnx.ModelProto:
    """Two equal convolutions, a depthwise one, and a matrix product."""
    rng = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)

    body = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["c", "w", "b"], ["d"], pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["d", "v"], ["e"], pads=[1, 1, 1, 1], group=8),
        helper.make_node("MatMul", ["e", "m"], ["y"]),
    ]
    graph = helper.make_graph(
        body,
        "g",
        [helper.make_tensor_value_info("x", 1, [1, 8, 6, 6])],
        [helper.make_tensor_value_info("y", 1, [1, 8, 6, 5])],
        [weight("w", 8, 8, 3, 3), weight("b", 8), weight("v", 8, 1, 3, 3), weight("m", 6, 5)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_nodes():
    found = nodes(small_model(), ["Conv", "MatMul"], np.random.default_rng(1))
    assert [(n.proto.op_type, n.count, n.is_depthwise) for n in found] == [
        ("Conv", 2, False),
        ("Conv", 1, True),
        ("MatMul", 1, False),
    ]
    assert [n.flops for n in found] == [2 * 8 * 36 * 72, 2 * 8 * 36 * 9, 2 * 48 * 5 * 6]


def test_runs(tmp_path, capsys):
    onnx.save(small_model(), tmp_path / "small.onnx")
    arguments = ["--models", str(tmp_path / "small.onnx"), "--isa", PORTABLE.name, "--repeat", "1"]
    assert c_kernels.main([*arguments, "--json", str(tmp_path / "rows.json")]) == 0
    rows = json.loads((tmp_path / "rows.json").read_text("utf-8"))
    assert [r["family"] for r in rows] == ["direct convolution", "depthwise convolution", "packed matrix product"]
    assert all(r["seconds"] > 0 and r["ort_seconds"] > 0 and r["peak"] > 0 for r in rows)
    assert "depthwise: " in capsys.readouterr().out


def test_wrong_results_are_noticed(tmp_path, monkeypatch, capsys):
    onnx.save(small_model(), tmp_path / "small.onnx")
    right = c_kernels.ort_run

    def shifted(node):
        run, expected = right(node)
        return run, expected + 0.1 * np.abs(expected).max()

    monkeypatch.setattr(c_kernels, "ort_run", shifted)
    assert c_kernels.main(["--models", str(tmp_path / "small.onnx"), "--isa", PORTABLE.name, "--repeat", "1"]) == 1
    assert "wrong: Conv" in capsys.readouterr().err
