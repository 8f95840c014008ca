"""A model that was optimized for a range of sizes refuses others, in memory and from its file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import onnx
import onnx.parser
import pytest

import eqsat
from eqsat.errors import EqsatError
from eqsat.schema.metadata import RANGES

ROWS = """<ir_version: 10, opset_import: ["": 21]> g (float[N, 4] x) => (float[M, 4] y) {
    start = Constant<value_ints=[0]>() end = Constant<value_ints=[10]>()
    rows = Slice(x, start, end, start) y = Relu(rows) }"""
FEW, MANY = np.ones((7, 4), np.float32), np.ones((12, 4), np.float32)
REFUSAL = r"a size `N` within 1\.\.10 is required, because the model was optimized for it"


@pytest.fixture
def result() -> eqsat.Result:
    found = eqsat.optimize(ROWS, dims={"N": (1, 10)})
    assert [node.op_type for node in found.model.graph] == ["Relu"]  # The slice is gone: 12 rows would all come back.
    return found


@pytest.fixture
def saved(result: eqsat.Result, tmp_path: Path) -> Path:
    result.save(tmp_path / "out.onnx")
    return tmp_path / "out.onnx"


@pytest.mark.parametrize("backend", ["numpy", "c"])
def test_runs_are_refused_beyond_the_range(backend: Literal["numpy", "c"], result: eqsat.Result, saved: Path) -> None:
    for run in (result.run, lambda inputs, backend: eqsat.run(saved, inputs, backend=backend)):
        assert run({"x": FEW}, backend=backend)["y"].shape == (7, 4)
        with pytest.raises(EqsatError, match=REFUSAL):
            run({"x": MANY}, backend=backend)


@pytest.mark.parametrize(
    "use",
    [
        lambda file: eqsat.optimize(file, dims={"N": 12}),
        lambda file: eqsat.optimize(file, dims={"N": (1, 12)}),
        lambda file: eqsat.optimize(file, dims={"N": (1, None)}),
        lambda file: eqsat.compile(file, dims={"N": (5, 11)}),
        lambda file: eqsat.compile(file, dims={"N": 11}),
    ],
    ids=["number", "range", "no limit", "compiled range", "compiled number"],
)
def test_other_sizes_of_the_file_are_refused(use: Callable[[Path], object], saved: Path) -> None:
    with pytest.raises(EqsatError, match=REFUSAL):
        use(saved)


def test_the_range_is_known_where_none_is_given(saved: Path) -> None:
    assert eqsat.compile(saved).run({"x": FEW})["y"].shape == (7, 4)
    again = eqsat.optimize(saved)
    assert (again.sizes["N"].least, again.sizes["N"].most) == (1, 10)
    assert again.model.metadata_props[RANGES] == '{"N": [1, 10]}'


def test_a_narrower_range_takes_its_place(saved: Path) -> None:
    assert eqsat.optimize(saved, dims={"N": (2, 5)}).model.metadata_props[RANGES] == '{"N": [2, 5]}'
    assert eqsat.optimize(saved, dims={"N": 3}).run({"x": FEW[:3]})["y"].shape == (3, 4)


def test_sizes_below_the_range_are_refused(tmp_path: Path) -> None:
    eqsat.optimize(ROWS, dims={"N": (3, 10)}).save(tmp_path / "out.onnx")
    for use in (
        lambda: eqsat.optimize(tmp_path / "out.onnx", dims={"N": 2}),
        lambda: eqsat.run(tmp_path / "out.onnx", {"x": FEW[:2]}),
    ):
        with pytest.raises(EqsatError, match=r"within 3\.\.10 is required"):
            use()


def test_without_a_range_any_size_will_do() -> None:
    free = eqsat.optimize(ROWS)
    assert RANGES not in free.model.metadata_props
    assert free.run({"x": MANY})["y"].shape == (10, 4)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"N": 3}', '{"N": ["a", 2]}', '{"N": [1]}', '{"other": [1, 2]}', "7"])
def test_other_text_in_its_place_says_nothing(text: str, saved: Path) -> None:
    model = onnx.load(saved)
    (entry,) = (entry for entry in model.metadata_props if entry.key == RANGES)
    entry.value = text
    assert eqsat.run(model, {"x": MANY})["y"].shape == (12, 4)


def test_symbols_that_are_not_names(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(ROWS)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch size"
    eqsat.optimize(model, dims={"batch size": (1, 10)}).save(tmp_path / "out.onnx")
    assert eqsat.run(tmp_path / "out.onnx", {"x": FEW})["y"].shape == (7, 4)
    with pytest.raises(EqsatError, match=r"within 1\.\.10 is required"):
        eqsat.run(tmp_path / "out.onnx", {"x": MANY})
