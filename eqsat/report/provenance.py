"""Provenance of a result: files with hashes, versions, the command line.

A date would make the same work differ from day to day. It is that of ``SOURCE_DATE_EPOCH``, and left out without it.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Literal

import onnx
import onnx_ir as ir

from eqsat.model.load import GivenModel
from eqsat.model.read.sources import is_text
from eqsat.rules.listing import short_place
from eqsat.stages.load import LoadedInput
from eqsat.version import __version__

PACKAGES = ("egglog", "highspy", "numpy", "onnx", "onnx-ir", "onnxruntime")
MOST_HASHED = 1 << 30
"""Bytes of a file that are hashed: larger ones take seconds."""

SourceKind = Literal["model", "weights", "rules", "target"]


@dataclass(frozen=True, slots=True)
class MadeFrom:
    """A file, or a model in memory.

    Attributes:
        name: Without its folder; of a shipped file its path in the package.
        bytes: Its size; None where it is not known.
        sha256: In hexadecimal digits; empty for models in memory, streams and files of more than one gigabyte.
    """

    kind: SourceKind
    name: str
    bytes: int | None
    sha256: str


@dataclass(frozen=True, slots=True)
class Provenance:
    """The provenance of a result.

    Attributes:
        files: The model and its weights, then rules and targets.
        versions: Of eqsat, Python and the packages that decide the result, by name.
        command: The command line; empty for a call from Python.
        date: In ISO 8601; empty unless ``SOURCE_DATE_EPOCH`` is set.
    """

    files: tuple[MadeFrom, ...]
    versions: dict[str, str]
    command: str = ""
    date: str = ""


def provenance(source: GivenModel, model: ir.Model, loaded: LoadedInput | None) -> Provenance:
    """The provenance of a result.

    Args:
        source: The source that the caller gave.
        model: The model loaded from it.
        loaded: The rules and the targets; None if there were none.
    """
    files = [_source(source), *_weights(model)]
    if loaded is not None:
        files += _definitions("rules", [rule.place.file for rule in loaded.every_rule])
        files += _definitions("target", [target.place.file for target in loaded.targets])
    return Provenance(tuple(files), _versions(), date=_date())


def _source(source: GivenModel) -> MadeFrom:
    if isinstance(source, bytes):
        return MadeFrom("model", "bytes", len(source), hashlib.sha256(source).hexdigest())
    if isinstance(source, str) and is_text(source):
        text = source.encode("utf-8", "surrogatepass")
        return MadeFrom("model", "ONNX text", len(text), hashlib.sha256(text).hexdigest())
    if isinstance(source, str | os.PathLike):
        return _file("model", Path(source))
    graph = source.graph if isinstance(source, onnx.ModelProto | ir.Model) else None
    return MadeFrom("model", (graph.name if graph is not None else "") or "model in memory", None, "")


def _weights(model: ir.Model) -> Iterable[MadeFrom]:
    tensors = (value.const_value for value in model.graph.initializers.values())
    paths = {Path(tensor.path) for tensor in tensors if isinstance(tensor, ir.ExternalTensor)}
    return [_file("weights", path) for path in sorted(paths)]


def _definitions(kind: SourceKind, files: Iterable[str]) -> Iterable[MadeFrom]:
    for file in sorted(dict.fromkeys(files)):
        if Path(file).is_file():
            name = short_place(f"{file}:1:1").rsplit(":", 1)[0]
            yield _file(kind, Path(file), name if not Path(name).is_absolute() else Path(name).name)


def _file(kind: SourceKind, path: Path, name: str = "") -> MadeFrom:
    # Something else than a regular file, such as a pipe, cannot be read again.
    if not path.is_file():
        return MadeFrom(kind, name or path.name, None, "")
    size = path.stat().st_size
    if size > MOST_HASHED:
        return MadeFrom(kind, name or path.name, size, "")
    with path.open("rb") as file:
        return MadeFrom(kind, name or path.name, size, hashlib.file_digest(file, "sha256").hexdigest())


@cache
def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _versions() -> dict[str, str]:
    found = {"eqsat": __version__, "Python": platform.python_version()}
    installed = {package: _version(package) for package in PACKAGES}
    return found | {package: version for package, version in installed.items() if version is not None}


def _date() -> str:
    text = os.environ.get("SOURCE_DATE_EPOCH", "")
    if not (text.isascii() and text.isdigit()):
        return ""
    try:
        return datetime.fromtimestamp(int(text), UTC).isoformat(timespec="seconds")
    except (OverflowError, OSError, ValueError):
        return ""
