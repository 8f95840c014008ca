"""Files of arrays, right and wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import eqsat
from eqsat import op
from eqsat.cli import main
from eqsat.execute.array_files import read_arrays

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_both_kinds(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    np.savez(tmp_path / "x.npz", a=X, b=X + 1)
    np.testing.assert_array_equal(read_arrays(tmp_path / "x.npy"), X)
    found = read_arrays(tmp_path / "x.npz")
    assert isinstance(found, dict) and list(found) == ["a", "b"]
    np.testing.assert_array_equal(found["b"], X + 1)


def objects(path: Path) -> None:
    np.save(path, np.array([object()]), allow_pickle=True)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("x.npy", b"hi", "2 bytes that are not such a file"),
        ("x.npy", b"not an array", "a file of another kind"),
        ("x.npz", b"PK not an archive", "a file of another kind"),
        ("x.npz", b"PK\x03\x04 cut off", "not a zip file"),
        ("x.npy", objects, "Object arrays cannot be loaded"),
    ],
)
def test_what_is_wrong_is_said(
    name: str, content, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    if callable(content):
        content(path)
    else:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=said) as caught:
        read_arrays(path)
    assert "unsafely" not in str(caught.value)
    eqsat.save(eqsat.graph(op.Relu(eqsat.input("x", X.shape))), tmp_path / "m.onnx")
    assert main(["run", str(tmp_path / "m.onnx"), "-i", f"x={path}"]) == 2
    assert said in capsys.readouterr().err


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="No such file"):
        read_arrays(tmp_path / "x.npy")
