"""Arrays from files that numpy writes; one place that knows what can be wrong with them."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

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
