"""Arrays in numpy's file formats, with all checks of such files in one place."""

from __future__ import annotations

import math
import re
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np

from eqsat import bounds
from eqsat.errors import ExecutionError
from eqsat.text import name_of

_SIGNATURES = (b"\x93NUMPY", b"PK\x03\x04", b"PK\x05\x06")

_PARENT = re.compile(r"(?<![^/\\])\.\.(?![^/\\])")


def read_arrays(path: str | Path) -> np.ndarray | dict[str, np.ndarray]:
    """The array of a ``.npy`` file, or the arrays of a ``.npz`` file by name.

    Raises:
        ValueError: The file cannot be read or has other contents; the text describes what was found.
    """
    try:
        with Path(path).open("rb") as file:
            start = file.read(max(map(len, _SIGNATURES)))
            if not start.startswith(_SIGNATURES):
                # numpy would treat it as a pickle and suggest loading it, which would run its code.
                raise ValueError(
                    f"{len(start)} bytes that are not such a file" if len(start) < 6 else "a file of another kind"
                )
            file.seek(0)
            if start.startswith(_SIGNATURES[0]):
                return _array(file, Path(path).stat().st_size)
            with zipfile.ZipFile(file) as archive:
                return {
                    entry.filename.removesuffix(".npy"): _member_array(archive, entry) for entry in archive.infolist()
                }
    except (OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(error.strerror or str(error) if isinstance(error, OSError) else str(error)) from error


def _member_array(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(entry) as part:
        return _array(part, entry.file_size)


def _array(file: IO[bytes], size: int) -> np.ndarray:
    """An array from a file of this many bytes; its header is checked before memory is allocated."""
    try:
        major, minor = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if (major, minor) == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(file)
    except ValueError:
        raise
    except Exception as error:  # a header is parsed as Python, which may end in anything
        raise ValueError("an invalid header") from error
    wanted = math.prod(shape) * dtype.itemsize
    if dtype.hasobject:
        raise ValueError("Object arrays cannot be loaded")
    if wanted > size or any(d < 0 for d in shape):
        raise ValueError(f"{size} bytes with a header of {math.prod(shape):.4g} elements")
    bounds.current().admit(wanted, 0, getattr(file, "name", None) or "array", "an array")
    file.seek(0)
    return np.lib.format.read_array(file, allow_pickle=False)


def write_arrays(file: BinaryIO, content: np.ndarray | Mapping[str, np.ndarray]) -> None:
    """Writes an array as a ``.npy`` file, or arrays by name as a ``.npz`` file.

    A name becomes that of a member of the archive. Unpacking must stay in its folder, so a part ``..`` of a name
    becomes ``__``; characters that cannot be printed are escaped, and long names are cut.

    Raises:
        ExecutionError: Two names become equal.
    """
    if isinstance(content, np.ndarray):
        np.lib.format.write_array(file, content, allow_pickle=False)
        return
    members = {name: f"{_member(name)}.npy" for name in content}
    for name, member in members.items():
        others = [n for n, m in members.items() if m == member and n != name]
        if others:
            raise ExecutionError(
                "output names that stay different in a file are required",
                place=f"output {name!r}",
                actual=f"also {others[0]!r}",
                hint="rename an output of the model; `eqsat.run` returns both",
            )
    # Not np.savez: an output called "file" would be one of its arguments.
    with zipfile.ZipFile(file, "w", allowZip64=True) as archive:
        for name, array in content.items():
            # A fixed time stamp, so that equal arrays give equal bytes.
            entry = zipfile.ZipInfo(members[name])
            entry.external_attr = 0o600 << 16
            with archive.open(entry, "w", force_zip64=True) as part:
                np.lib.format.write_array(part, np.asanyarray(array), allow_pickle=False)


def _member(name: str) -> str:
    return _PARENT.sub("__", name_of(name))


def storable(values: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Values as arrays that a file can hold without pickles, by name.

    Strings become numpy's, elements of a sequence ``s`` are ``s[0]``, ``s[1]``, ..., those of a map ``s['a']``; absent
    values are left out.

    Raises:
        ExecutionError: A string ends in NUL, which numpy's files cannot express.
    """
    arrays: dict[str, np.ndarray] = {}
    for name, value in values.items():
        if isinstance(value, list | tuple):
            arrays |= storable({f"{name}[{i}]": v for i, v in enumerate(value)})
        elif isinstance(value, dict):
            arrays |= storable({f"{name}[{key!r}]": v for key, v in value.items()})
        elif value is not None:
            array = np.asarray(value)
            arrays[name] = _text(name, array) if array.dtype.kind == "O" else array
    return arrays


def _text(name: str, array: np.ndarray) -> np.ndarray:
    text = array.astype(str)
    if not np.array_equal(text.astype(object), array):
        raise ExecutionError(
            "strings in a file must not end in NUL, which numpy's files do not keep",
            place=f"output {name!r}",
            actual="one that does",
            hint="`eqsat.run` returns them as they are",
        )
    return text
