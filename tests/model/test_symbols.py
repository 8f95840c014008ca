"""Symbolic dimensions: identifiers in memory, the author's names in files, and both for the caller."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import eqsat
from eqsat.execute.inputs import complete_inputs
from eqsat.model.load import load
from eqsat.model.save import save
from eqsat.model.symbols import WRITTEN_SYMBOLS, symbols


def _model(first: str, second: str, result: str = "") -> onnx.ModelProto:
    """``y = Exp(x)`` and ``u = Sqrt(z)``, each with a symbol of its own."""
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[N,4] x, float[M,4] z) => (float[N,4] y, float[M,4] u) {
        y = Exp(x) u = Sqrt(z) }"""
    model = onnx.parser.parse_model(text)
    for i, symbol in enumerate((first, second)):
        for value in (model.graph.input[i], model.graph.output[i]):
            value.type.tensor_type.shape.dim[0].dim_param = symbol
    if result:
        model.graph.output[1].type.tensor_type.shape.dim[0].dim_param = result
    return model


def _written(path: Path) -> list[str]:
    graph = onnx.load(path).graph
    return [v.type.tensor_type.shape.dim[0].dim_param for v in (*graph.input, *graph.output)]


PAIRS = [
    ("batch-size", "num-boxes"),
    ("a.0", "a_0"),
    ("a.0", "a:0"),
    ("batch size", "batch_size"),
    ("0", "dim_0"),
    ("N", "M"),
]


@pytest.mark.parametrize("pair", PAIRS)
def test_files_have_the_names_of_the_author(tmp_path: Path, pair: tuple[str, str]) -> None:
    save(load(_model(*pair)), tmp_path / "m.onnx")
    assert _written(tmp_path / "m.onnx") == [*pair, *pair]
    assert WRITTEN_SYMBOLS not in [p.key for p in onnx.load(tmp_path / "m.onnx").metadata_props]


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("pair", PAIRS)
def test_placed_files_have_them_and_are_read_as_placed(tmp_path: Path, pair: tuple[str, str], flat: bool) -> None:
    result = eqsat.optimize(_model(*pair), "dnnl -launch=0 -dispatch=0 -link.latency=0")
    result.save(tmp_path / "m.onnx", flat=flat)
    assert _written(tmp_path / "m.onnx") == [*pair, *pair]
    read = load(tmp_path / "m.onnx")
    assert read.functions.keys() == result.model.functions.keys() != set()
    # The types inside of functions are those of the model.
    infos = [v for f in onnx.load(tmp_path / "m.onnx").functions for v in f.value_info]
    assert {d.dim_param for v in infos for d in v.type.tensor_type.shape.dim if d.dim_param} <= set(pair)


@pytest.mark.parametrize("pair", PAIRS)
def test_either_name_binds_the_right_dimension(pair: tuple[str, str]) -> None:
    model = _model(*pair)
    for names in (pair, symbols(load(model))):
        for i, name in enumerate(names):
            bound = load(model, dims={name: 7}).graph.inputs
            sizes = [v.shape[0] for v in bound if v.shape is not None]
            assert sizes[i] == 7 and not isinstance(sizes[1 - i], int)


@pytest.mark.parametrize("pair", PAIRS)
def test_random_inputs_have_the_sizes_by_either_name(pair: tuple[str, str]) -> None:
    model = _model(*pair)
    for names in (pair, symbols(load(model))):
        drawn = complete_inputs(load(model), dims={names[0]: 2, names[1]: 5})
        assert drawn["x"].shape == (2, 4) and drawn["z"].shape == (5, 4)


def test_differences_of_symbols_are_no_names() -> None:
    model = _model("batch-size", "batch")
    assert set(symbols(load(model))) == {"batch", "size"}
    (first, second) = (v.shape for v in load(model, dims={"batch": 5, "size": 2}).graph.inputs)
    assert first is not None and second is not None and (first[0], second[0]) == (3, 5)


def test_ranges_by_the_names_of_the_file_in_c() -> None:
    compiled = eqsat.compile(_model("a.0", "a_0"), dims={"a.0": (1, 4), "a_0": (1, 8)})
    x, z = np.ones((2, 4), np.float32), np.ones((8, 4), np.float32)
    y, u = compiled(x, z)
    assert np.shape(y) == (2, 4) and np.shape(u) == (8, 4)


def test_expressions_have_the_names_where_they_can(tmp_path: Path) -> None:
    for symbol, expected in (("D.1", "2*D.1"), ("my size", "")):
        text = '<ir_version: 8, opset_import: ["": 17]> g (float[N] x) => (float[K] y) { y = Concat<axis=0>(x, x) }'
        model = onnx.parser.parse_model(text)
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = symbol
        model.graph.output[0].type.tensor_type.shape.ClearField("dim")
        model.graph.output[0].type.tensor_type.shape.dim.add()
        save(load(model), tmp_path / "m.onnx")
        assert _written(tmp_path / "m.onnx") == [symbol, expected]
        again = load(tmp_path / "m.onnx").graph.outputs[0].shape
        assert again is not None and str(again[0]) in ("2*D_1", "2*my_size")


@pytest.mark.parametrize("text", ["{", "[]", '{"N": 3}', '{"N": "a.0", "x y": "z.0"}'])
def test_metadata_that_others_wrote_do_no_harm(tmp_path: Path, text: str) -> None:
    model = _model("N", "b.1")
    onnx.helper.set_model_props(model, {WRITTEN_SYMBOLS: text})
    save(load(model), tmp_path / "m.onnx")
    assert _written(tmp_path / "m.onnx")[1::2] == ["b.1", "b.1"]
