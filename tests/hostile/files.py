"""Files that are not what they are taken for: devices, pipes, arrays and archives that unfold."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.hostile.case import add, write
from tests.hostile.sizes import declared

RUN = ("run", "model.onnx", "-q")


def file(make: Callable[[Path], Sequence[str]]) -> Callable[[Path], Sequence[str]]:
    add(f"files-{make.__name__}", make, refused=True)
    return make


@file
def zeros_as_model(folder: Path) -> Sequence[str]:
    return ["run", "/dev/zero"]


@file
def random_as_model(folder: Path) -> Sequence[str]:
    return ["run", "/dev/urandom"]


@file
def folder_as_model(folder: Path) -> Sequence[str]:
    return ["run", "."]


@file
def sparse_file_of_1_tb(folder: Path) -> Sequence[str]:
    with (folder / "model.onnx").open("wb") as content:
        content.truncate(1 << 40)
    return RUN


@file
def empty_model(folder: Path) -> Sequence[str]:
    (folder / "model.onnx").touch()
    return RUN


@file
def link_to_itself(folder: Path) -> Sequence[str]:
    (folder / "model.onnx").symlink_to("model.onnx")
    return RUN


def _npy(shape: str, data: bytes = bytes(8)) -> bytes:
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data


def _array(name: str, content: bytes, suffix: str = "npy") -> None:
    def build(folder: Path) -> Sequence[str]:
        write(folder, declared("N"))
        (folder / f"x.{suffix}").write_bytes(content)
        return [*RUN, "-i", f"x.{suffix}"]

    add(f"files-{name}", build, refused=True)


_array("npy_of_2_to_40", _npy(f"({1 << 40},)"))
_array("npy_that_overflows", _npy(f"({1 << 62}, 4)"))
_array("npy_of_negative_size", _npy("(-2,)"))
_array("npy_of_rank_100", _npy("(" + "1," * 100 + ")"))
_array("npy_of_brackets", _npy("(" * 40 + ")" * 40))
_array("npy_of_code", _npy("__import__('os').abort()"))
_array("npy_without_data", _npy("(2,)", b""))
_array("npy_of_objects", _npy("(2,)").replace(b"<f4", b"|O "))
_array("pickle_as_npy", b"\x80\x04cos\nabort\n(tR.")
_array("text_as_npy", b"1, 2, 3")


@file
def zip_bomb(folder: Path) -> Sequence[str]:
    write(folder, declared("N"))
    with (
        zipfile.ZipFile(folder / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("x.npy", "w", force_zip64=True) as entry,
    ):
        entry.write(_npy(f"({5 << 28},)", b""))
        block = bytes(1 << 24)
        for _ in range(64):
            entry.write(block)
    return [*RUN, "-i", "x.npz"]
