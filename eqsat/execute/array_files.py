"""Arrays from files that numpy writes; one place that knows what can be wrong with them."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from eqsat.errors import ExecutionError

_SIGNATURES = (b"\x93NUMPY", b"PK\x03\x04", b"PK\x05\x06")


def read_arrays(path: str | Path) -> np.ndarray | dict[str, np.ndarray]:
    """The array of a ``.npy`` file, or the arrays of a ``.npz`` file by name.

    Raises:
        ValueError: The file cannot be read or holds something else; the text says what was found.
    """
    try:
        with Path(path).open("rb") as file:
            start = file.read(max(map(len, _SIGNATURES)))
        if not start.startswith(_SIGNATURES):
            # numpy would take it for a pickle and suggest to load that, which would run its code.
            raise ValueError(f"{len(start)} bytes of no such file" if len(start) < 6 else "a file of another kind")
        content = np.load(path, allow_pickle=False)
        if isinstance(content, np.lib.npyio.NpzFile):
            with content:
                return {name: content[name] for name in content.files}
    except (OSError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(error.strerror or str(error) if isinstance(error, OSError) else str(error)) from error
    return content


def storable(values: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Values as arrays that a file can hold without pickles, by name.

    Strings become numpy's, elements of a sequence ``s`` are ``s[0]``, ``s[1]``, ...; what is absent is left out.

    Raises:
        ExecutionError: A string ends in NUL, which numpy's files cannot express.
    """
    arrays: dict[str, np.ndarray] = {}
    for name, value in values.items():
        if isinstance(value, list | tuple):
            arrays |= storable({f"{name}[{i}]": v for i, v in enumerate(value)})
        elif value is not None:
            array = np.asarray(value)
            arrays[name] = _text(name, array) if array.dtype.kind == "O" else array
    return arrays


def _text(name: str, array: np.ndarray) -> np.ndarray:
    text = array.astype(str)
    if not np.array_equal(text.astype(object), array):
        raise ExecutionError(
            "strings that do not end in NUL are required in a file", place=f"output {name!r}", actual="one that does"
        )
    return text
