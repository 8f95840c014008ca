"""Options become values: dimensions, arrays."""

from __future__ import annotations

import pickle
from pathlib import Path

import click
import numpy as np
import pytest

from eqsat.cli.shared_options import dims_option, read_inputs

A = np.arange(6, dtype=np.float32).reshape(2, 3)
B = np.array([True, False])


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", A)
    np.savez("both.npz", a=A, b=B)
    Path("text.npy").write_text("hello", "utf-8")
    Path("object.npy").write_bytes(pickle.dumps(print))


def dims(*texts: str) -> dict[str, int]:
    """What ``--dim TEXT ...`` becomes."""

    @click.command()
    @dims_option
    def command(dims: dict[str, int]) -> dict[str, int]:
        return dims

    return command.main([part for text in texts for part in ("--dim", text)], standalone_mode=False)


def test_dims() -> None:
    assert dims() == {}
    assert dims("N=1", "sequence length=128", "a=b=2") == {"N": 1, "sequence length": 128, "a=b": 2}
    assert dims("N=3", "N=3") == {"N": 3}
    for wrong in ("N", "=1", "N=", "N=-1", "N=1.5"):
        with pytest.raises(click.BadParameter, match="NAME=SIZE"):
            dims(wrong)


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("given", "names", "expected"),
    [
        (("a.npy",), ["x"], {"x": A}),
        (("x=a.npy",), ["x", "y"], {"x": A}),
        (("x=y=a.npy",), ["x=y"], {"x=y": A}),
        (("both.npz",), ["a", "b"], {"a": A, "b": B}),
        ((), ["a"], {}),
    ],
)
def test_arrays(given: tuple[str, ...], names: list[str], expected: dict[str, np.ndarray]) -> None:
    arrays = read_inputs(given, names)
    assert list(arrays) == list(expected)
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, expected[name])


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("given", "names", "message"),
    [
        (("a.npy",), ["x", "y"], "say which input this is"),
        (("z=a.npy",), ["x"], "no input 'z'; it has x"),
        (("x=missing.npy",), ["x"], "'missing.npy' is not a file"),
        (("both.npz",), ["a"], "no input 'b'"),
        (("x=both.npz",), ["x"], "names its arrays itself"),
        (("x=a.npy", "x=a.npy"), ["x"], "given twice"),
        (("text.npy",), ["x"], "not a .npy or .npz file"),
        (("object.npy",), ["x"], "not a .npy or .npz file"),
    ],
)
def test_wrong_arrays_are_wrong_usage(given: tuple[str, ...], names: list[str], message: str) -> None:
    with pytest.raises(click.BadParameter, match=message):
        read_inputs(given, names)
