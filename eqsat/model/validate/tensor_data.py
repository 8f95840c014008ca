"""Checks that a serialised tensor has the data that its type requires, in the file or in another one."""

from __future__ import annotations

import math
from pathlib import Path

import onnx
import onnx_ir as ir

from eqsat.errors import ModelError
from eqsat.model.validate.extent import check_shape

MOST_CHARACTERS = 1000
"""Characters of the path of an external file."""


def check_content(tensor: onnx.TensorProto, place: str) -> None:
    """Checks that the tensor has as much data as its type requires."""
    dtype = check_type(tensor, place)
    size = math.prod(tensor.dims)
    what = f"{dtype.name.lower()}{list(tensor.dims)}"
    if tensor.HasField("raw_data"):
        wanted = math.ceil(size * dtype.bitwidth / 8) if dtype != ir.DataType.STRING else -1
        if len(tensor.raw_data) != wanted:
            requirement = f"{wanted} bytes of data for {what} are required"
            raise ModelError(requirement, place=place, actual=f"{len(tensor.raw_data)} bytes")
        return
    counts = [
        len(tensor.float_data) // (2 if dtype == ir.DataType.COMPLEX64 else 1),
        len(tensor.double_data) // (2 if dtype == ir.DataType.COMPLEX128 else 1),
        len(tensor.int32_data),
        len(tensor.int64_data),
        len(tensor.uint64_data),
        len(tensor.string_data),
    ]
    packed = dtype != ir.DataType.STRING and dtype.bitwidth < 8
    wanted = math.ceil(size * dtype.bitwidth / 8) if packed else size
    if max(counts) != wanted and max(counts) != size:
        raise ModelError(f"{wanted} elements of data for {what} are required", place=place, actual=f"{max(counts)}")


def check_strings(tensor: onnx.TensorProto, place: str) -> None:
    """Checks that the tensor's strings, if it has any, are UTF-8, as the specification requires.

    Raises:
        ModelError: A string is not UTF-8.
    """
    for content in tensor.string_data:
        try:
            content.decode()
        except UnicodeDecodeError:
            raise ModelError("strings in UTF-8 are required", place=place, actual=repr(content[:40])) from None


def check_type(tensor: onnx.TensorProto, place: str) -> ir.DataType:
    """Checks that the tensor has an element type, and a shape that an array can have."""
    try:
        dtype = ir.DataType(tensor.data_type)
    except ValueError:
        raise ModelError(
            "a tensor of an element type that ONNX knows is required", place=place, actual=f"number {tensor.data_type}"
        ) from None
    if dtype == ir.DataType.UNDEFINED:
        raise ModelError("a tensor with an element type is required", place=place, actual="none")
    check_shape(tensor.dims, 8 if dtype == ir.DataType.STRING else dtype.bitwidth / 8, place)
    return dtype


def check_external(tensor: onnx.TensorProto, place: str, folder: Path | None) -> None:
    """Checks that the file with the tensor's data exists and is long enough."""
    where = {entry.key: entry.value for entry in tensor.external_data}
    location = where.get("location", "")
    if not location:
        raise ModelError("external data with a location is required", place=place, actual="none")
    if not location.isprintable() or len(location) > MOST_CHARACTERS:
        raise ModelError(
            f"a location of at most {MOST_CHARACTERS} printable characters is required",
            place=place,
            actual=repr(location[:80]) + (f" and {len(location) - 80} more" if len(location) > 80 else ""),
        )
    base = folder or Path.cwd()
    path = (base / location).resolve()
    if Path(location).is_absolute() or not path.is_relative_to(base.resolve()):
        raise ModelError(
            "external data beside the model is required",
            place=place,
            actual=f"location {location!r}",
            hint="move the data to the directory of the model, and save the model with their new location",
        )
    hint = "" if folder is not None else "load the model by its path, so that the directory of its data is known"
    if not path.is_file():
        raise ModelError(
            "the file with the external data is required",
            place=place,
            actual=f"no file {location!r} in {str(base)!r}" if folder is not None else f"no file {location!r}",
            hint=hint or "copy it beside the model: a model with external data is more than one file",
        )
    dtype = check_type(tensor, place)
    if dtype == ir.DataType.STRING:
        raise ModelError("strings in the model's own file are required", place=place, actual="external data")
    size = math.ceil(math.prod(tensor.dims) * dtype.bitwidth / 8)
    try:
        offset, length = int(where.get("offset", 0)), int(where.get("length", size))
    except ValueError:
        raise ModelError("numbers as offset and length of external data are required", place=place) from None
    if length != size:
        requirement = f"{size} bytes of external data for {dtype.name.lower()}{list(tensor.dims)} are required"
        raise ModelError(requirement, place=place, actual=f"length {length}")
    if offset < 0 or path.stat().st_size < offset + size:
        raise ModelError(
            f"{offset + size} bytes in the external data file {location!r} are required",
            place=place,
            actual=f"{path.stat().st_size} bytes",
            hint="the file is truncated or belongs to another model",
        )
