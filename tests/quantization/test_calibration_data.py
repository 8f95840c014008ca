"""Calibration data in every form that is taken, and what is said about those that are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from eqsat.errors import QuantizationError
from eqsat.model.load import load
from eqsat.quantization.calibration_data import CalibrationData, first_samples

TWO = """<ir_version: 10, opset_import: ["": 21]>
g (float[1, 3] image, int64[2] ids) => (float[1, 3] y) { k = Cast<to=1>(ids)  s = ReduceSum(k)  y = Add(image, s) }"""
ONE = '<ir_version: 10, opset_import: ["": 21]> g (float[%s, 3] x) => (float[%s, 3] y) { y = Relu(x) }'

IMAGES = np.arange(12, dtype=np.float32).reshape(4, 1, 3)
IDS = np.arange(8).reshape(4, 2)


def two() -> ir.Model:
    return load(TWO)


def one(batch: str | int = 1) -> ir.Model:
    return load(ONE % (batch, batch))


def check_two(source: Any) -> None:
    found = list(CalibrationData(source, two()))
    assert len(found) == 4
    for i, sample in enumerate(found):
        assert list(sample) == ["image", "ids"]
        np.testing.assert_array_equal(sample["image"], IMAGES[i])
        np.testing.assert_array_equal(sample["ids"], IDS[i])


def check_one(source: Any, batch: str | int = 1, size: int = 1) -> None:
    found = list(CalibrationData(source, one(batch)))
    assert [s["x"].shape for s in found] == [(size, 3)] * (4 // size)
    np.testing.assert_array_equal(np.concatenate([s["x"] for s in found]), IMAGES[:, 0])


def test_npz(tmp_path: Path):
    np.savez(tmp_path / "data.npz", image=IMAGES, ids=IDS)
    check_two(tmp_path / "data.npz")
    check_two(str(tmp_path / "data.npz"))


def test_folder_of_npz(tmp_path: Path):
    for i in range(4):
        np.savez(tmp_path / f"{i}.npz", image=IMAGES[i], ids=IDS[i])
    (tmp_path / "notes.txt").write_text("not data", "utf-8")
    check_two(tmp_path)
    check_two(sorted(tmp_path.glob("*.npz")))


def test_folder_with_a_file_for_each_input(tmp_path: Path):
    np.save(tmp_path / "image.npy", IMAGES)
    np.save(tmp_path / "ids.npy", IDS)
    check_two(tmp_path)


def test_folder_with_a_folder_for_each_input(tmp_path: Path):
    for name, arrays in (("image", IMAGES), ("ids", IDS)):
        (tmp_path / name).mkdir()
        for i, array in enumerate(arrays):
            np.save(tmp_path / name / f"{i}.npy", array)
    check_two(tmp_path)


def test_arrays():
    check_two({"image": IMAGES, "ids": IDS})
    check_two({"image": list(IMAGES), "ids": IDS})
    # Batches of the model's own rank, cut to its batch size.
    check_two({"image": IMAGES[:, 0], "ids": IDS})


def test_samples():
    check_two([{"image": a, "ids": b} for a, b in zip(IMAGES, IDS, strict=True)])
    check_two({"image": a, "ids": b} for a, b in zip(IMAGES, IDS, strict=True))


def test_one_input(tmp_path: Path):
    for i in range(4):
        np.save(tmp_path / f"photo{i}.npy", IMAGES[i])
    check_one(tmp_path)
    np.save(tmp_path / "all.npy", IMAGES)
    check_one(tmp_path / "all.npy")
    check_one({"x": IMAGES})


@pytest.mark.parametrize(("batch", "size"), [(1, 1), (2, 2), (4, 4), ("N", 1)])
def test_batches_are_cut(batch: str | int, size: int):
    check_one({"x": IMAGES[:, 0]}, batch, size)


def test_files_can_be_read_again_and_iterators_once():
    data = CalibrationData({"x": IMAGES}, one())
    assert len(list(data)) == len(list(data)) == 4
    once = CalibrationData(({"x": x} for x in IMAGES), one())
    assert len(list(once)) == 4
    with pytest.raises(QuantizationError, match="at least one sample is required; got none"):
        list(once)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"image": IMAGES}, "an array for input 'ids' is required; got 'image'"),
        ({"images": IMAGES, "ids": IDS}, "name of an input is required; got 'images'\n  hint: did you mean `image`"),
        ({"image": IMAGES, "ids": IDS[:3]}, "input 'ids': as many samples as for input 'image', 4, are .* got 3"),
        ({"image": IMAGES, "ids": IDS.astype(np.int32)}, "sample 0, input 'ids': an array of int64 is .*int32"),
        ({"image": IMAGES.astype(np.float64), "ids": IDS}, "float32 is required; got float64.*\n  hint: .*astype"),
        ({"image": IMAGES[..., :2], "ids": IDS}, r"sample 0, input 'image': float32\[1, 3\] is required; got .*1, 2"),
        ({"image": IMAGES[0, 0], "ids": IDS}, "an array of rank 2, or 3 with samples along the first axis"),
        ({"image": IMAGES * np.nan, "ids": IDS}, "finite numbers are required; got 3 NaN or infinite"),
        ({"image": IMAGES[:0], "ids": IDS[:0]}, "at least one sample is required"),
        ([{"image": IMAGES[0]}], "sample 0: an array for input 'ids' is required"),
        ([{"image": IMAGES[0], "ids": IDS[0]}, {"image": IMAGES, "ids": IDS[0]}], "sample 1, input 'image'"),
        ([IMAGES], "sample 0: a mapping from input name to array is required; got ndarray"),
        ([], "at least one sample is required"),
        (3, "an iterable of samples is required; got int"),
        ("nowhere.npz", "calibration data 'nowhere.npz': .*no such file"),
    ],
)
def test_unfit(source: Any, message: str):
    with pytest.raises(QuantizationError, match=message):
        list(CalibrationData(source, two()))


def test_batch_that_does_not_divide():
    with pytest.raises(QuantizationError, match=r"a multiple of the batch size 3 .* got float32"):
        list(CalibrationData({"x": IMAGES[:, 0]}, one(3)))


def test_unfit_files(tmp_path: Path):
    with pytest.raises(QuantizationError, match="a subfolder for each input, is required; got none of these"):
        CalibrationData(tmp_path, two())
    (tmp_path / "bad.npz").write_bytes(b"PK not a zip file")
    with pytest.raises(QuantizationError, match=r"bad.npz': a .npz or .npy file of plain arrays is required"):
        list(CalibrationData(tmp_path, two()))
    np.save(tmp_path / "image.npy", IMAGES)
    with pytest.raises(QuantizationError, match=r"files of one kind, .npz or .npy, are required; got .npy, .npz"):
        CalibrationData(tmp_path, two())
    (tmp_path / "bad.npz").unlink()
    with pytest.raises(QuantizationError, match="an array for input 'ids' is required; got 'image'"):
        CalibrationData(tmp_path, two())
    with pytest.raises(QuantizationError, match=r"a .npz file with an array for each input is required"):
        list(CalibrationData(tmp_path / "image.npy", two()))
    (tmp_path / "image.npy").write_bytes(b"not an array")
    with pytest.raises(QuantizationError, match="plain arrays is required; got a file of another kind"):
        list(CalibrationData(tmp_path / "image.npy", one()))
    np.save(tmp_path / "image.npy", np.array([object()]), allow_pickle=True)
    with pytest.raises(QuantizationError, match="plain arrays is required"):
        list(CalibrationData(tmp_path / "image.npy", one()))


def test_folders_must_correspond(tmp_path: Path):
    for name, arrays in (("image", IMAGES), ("ids", IDS[:3])):
        (tmp_path / name).mkdir()
        for i, array in enumerate(arrays):
            np.save(tmp_path / name / f"{i}.npy", array)
    with pytest.raises(QuantizationError, match=r"the same files for inputs 'image' and 'ids' .* got '3.npy'"):
        CalibrationData(tmp_path, two())


def test_a_limit_beyond_all_numbers_of_the_machine() -> None:
    model = load('<ir_version: 10, opset_import: ["": 21]> g (float[2] x) => (float[2] y) { y = Relu(x) }')
    samples = {"x": np.ones((3, 2), np.float32)}
    assert len(list(first_samples(samples, model, 10**30))) == 3
    assert len(list(first_samples(samples, model, None))) == 3
