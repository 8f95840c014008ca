"""Saving: atomic, deterministic, big weights beside the model, and readable again."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import eqsat
from eqsat.errors import ModelError
from eqsat.model.load import load
from eqsat.model.save import save
from eqsat.model.write.onnx_text import to_text
from tests.model.running import random_inputs, run_ort

F = np.float32


def _model(size: int = 40) -> ir.Model:
    w = np.random.default_rng(0).standard_normal((size, size)).astype(F)
    x = eqsat.input("x", ("N", size))
    return eqsat.graph({"y": eqsat.op.Relu(x @ w, name="act")})


def _names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def _outputs(model: ir.Model | onnx.ModelProto) -> list[np.ndarray]:
    return run_ort(model, random_inputs(model))


@pytest.mark.parametrize("name", ["m.onnx", "m.textproto", "m.json"])
def test_every_format_round_trips(tmp_path: Path, name: str) -> None:
    model = _model()
    save(model, tmp_path / name)
    again = load(tmp_path / name)
    assert ir.to_proto(again).SerializeToString() == ir.to_proto(model).SerializeToString()
    assert _names(tmp_path) == [name]


def test_text_round_trips() -> None:
    model = _model(7)
    again = load(to_text(model))
    assert [n.op_type for n in again.graph] == ["MatMul", "Relu"]
    np.testing.assert_allclose(_outputs(again)[0], _outputs(model)[0], rtol=1e-5)


def test_text_stays_short() -> None:
    text = to_text(_model(100))
    assert len(text) < 1000
    assert [v.name for v in load(text).graph.inputs] == ["x", "constant"]
    assert len(to_text(_model(100), elide=None)) > 50_000


def test_the_same_bytes_each_time(tmp_path: Path) -> None:
    for name in ("a.onnx", "b.onnx"):
        save(_model(), tmp_path / name)
    save(load(tmp_path / "a.onnx"), tmp_path / "c.onnx")
    contents = {(tmp_path / name).read_bytes() for name in ("a.onnx", "b.onnx", "c.onnx")}
    assert len(contents) == 1


def test_the_model_is_not_changed(tmp_path: Path) -> None:
    model = _model()
    before = ir.to_proto(model).SerializeToString()
    save(model, tmp_path / "m.onnx", external_from=100)
    assert ir.to_proto(model).SerializeToString() == before


class TestExternalData:
    def test_round_trip(self, tmp_path: Path) -> None:
        model = _model()
        save(model, tmp_path / "m.onnx", external_from=1000)
        assert _names(tmp_path) == ["m.onnx", "m.onnx.data"]
        assert (tmp_path / "m.onnx.data").stat().st_size == 40 * 40 * 4
        assert (tmp_path / "m.onnx").stat().st_size < 1500
        proto = onnx.load(tmp_path / "m.onnx")
        onnx.checker.check_model(tmp_path / "m.onnx")
        np.testing.assert_array_equal(_outputs(proto)[0], _outputs(model)[0])
        tensor = load(tmp_path / "m.onnx").graph.initializers["constant"].const_value
        original = model.graph.initializers["constant"].const_value
        assert tensor is not None and original is not None
        np.testing.assert_array_equal(tensor.numpy(), original.numpy())

    def test_below_the_limit_all_is_one_file_again(self, tmp_path: Path) -> None:
        (tmp_path / "big").mkdir()
        save(_model(80), tmp_path / "big" / "m.onnx", external_from=1000)
        save(load(tmp_path / "big" / "m.onnx"), tmp_path / "m.onnx")
        assert _names(tmp_path) == ["big", "m.onnx"]
        np.testing.assert_array_equal(_outputs(onnx.load(tmp_path / "m.onnx"))[0], _outputs(_model(80))[0])

    def test_over_the_file_it_was_loaded_from(self, tmp_path: Path) -> None:
        """The weights of the loaded model are still in the file that is replaced."""
        path = tmp_path / "m.onnx"
        save(_model(80), path, external_from=1000)
        loaded = load(path)
        save(loaded, path, external_from=1000)
        np.testing.assert_array_equal(_outputs(onnx.load(path))[0], _outputs(_model(80))[0])


class TestErrors:
    def test_no_directory(self, tmp_path: Path) -> None:
        with pytest.raises(ModelError) as caught:
            save(_model(), tmp_path / "no" / "m.onnx")
        assert str(caught.value) == f"{tmp_path / 'no'}: a directory to write to is required; got no such directory"

    def test_a_file_as_directory(self, tmp_path: Path) -> None:
        (tmp_path / "f").write_text("x", "utf-8")
        with pytest.raises(ModelError, match="a directory to write to is required; got a file"):
            save(_model(), tmp_path / "f" / "m.onnx")

    def test_a_directory_as_file(self, tmp_path: Path) -> None:
        with pytest.raises(ModelError, match="a file to write to is required; got a directory"):
            save(_model(), tmp_path)

    def test_not_writable(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*args: object, **kwargs: object) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr("tempfile.mkdtemp", refuse)
        with pytest.raises(ModelError, match="a place that can be written to is required; got Permission denied"):
            save(_model(), tmp_path / "m.onnx")

    def test_a_failure_leaves_the_old_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "m.onnx"
        save(_model(), path)
        old = path.read_bytes()

        def fill_up(model: ir.Model, target: Path, **kwargs: object) -> None:
            Path(target).write_bytes(b"half")
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(ir, "save", fill_up)
        with pytest.raises(ModelError, match="No space left on device"):
            save(_model(50), path)
        assert path.read_bytes() == old
        assert _names(tmp_path) == ["m.onnx"]


@pytest.mark.skipif(os.name != "posix", reason="file modes")
def test_permissions_are_those_of_other_new_files(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("x", "utf-8")
    save(_model(), tmp_path / "m.onnx")
    assert stat.S_IMODE((tmp_path / "m.onnx").stat().st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)
    (tmp_path / "m.onnx").chmod(0o600)
    save(_model(), tmp_path / "m.onnx")
    assert stat.S_IMODE((tmp_path / "m.onnx").stat().st_mode) == 0o600
