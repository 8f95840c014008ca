"""A few cases of ``make ort-old``, in the ONNX Runtime that is installed."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.conformance import old


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> old.OldRuntime:
    return old.OldRuntime(sys.executable, tmp_path_factory.mktemp("old"))


@pytest.mark.parametrize(
    "name", ["test_gelu_tanh_1_expanded", "test_ai_onnx_ml_binarizer", "test_reduce_sum_keepdims_example"]
)
def test_a_case_passes(name: str, runtime: old.OldRuntime, tmp_path: Path) -> None:
    ((_, model, feed),) = old.node_cases(name)
    assert old.outcome(model, feed, runtime, tmp_path) == "pass"


def test_what_the_runtime_refuses_says_nothing_and_a_difference_fails(
    runtime: old.OldRuntime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = '<ir_version: 8, opset_import: ["": 13%s]> g (float[2] x) => (float[2] y) { y = %s(x) }'
    feed = {"x": np.array([-1, 2], np.float32)}
    unknown = onnx.parser.parse_model(text % (', "my": 1', "my.Unknown"))
    assert old.outcome(unknown, feed, runtime, tmp_path).startswith("skip: the older runtime refuses the input")
    model = onnx.parser.parse_model(text % ("", "Abs"))
    other = onnx.parser.parse_model(text % ("", "Neg"))

    class Wrong:
        def save(self, path: Path, flat: bool) -> None:
            onnx.save(other, path)

    monkeypatch.setattr(old.eqsat, "optimize", lambda *args, **options: Wrong())
    assert old.outcome(model, feed, runtime, tmp_path).startswith("fail: ")
