"""Calibration data: turns files, folders, arrays or iterators into a sequence of checked samples.

The same rules hold everywhere: an array of one rank more than the input has samples along its first axis. One of the
input's own rank is a batch along its first axis: it is cut into pieces of the model's batch size (1 where that is
symbolic). The files of a folder are read in the order of their names.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.errors import EqsatError, QuantizationError
from eqsat.execute.array_files import read_arrays
from eqsat.execute.feeds import Feed, Symbols
from eqsat.ops.evaluate import describe
from eqsat.schema import opset

CalibrationSample = dict[str, Any]
"""One run's worth of inputs: array by input name."""

DataSource = str | os.PathLike[str] | Mapping[str, Any] | Iterable[Any]
"""A ``.npz`` or ``.npy`` file, a folder of them, a list of such files, arrays by input name, or samples."""


class CalibrationData:
    """Samples for a model, checked one by one when they are read.

    Args:
        source: One of

            - a ``.npz`` file with an array for each input; for a model with one input a ``.npy`` file as well;
            - a folder, or a list of files: ``.npz`` files with an array for each input; ``.npy`` files named after
              the inputs; ``.npy`` files of any name where there is only one input; or a subfolder for each input,
              whose files correspond by name;
            - a mapping from input name to array, or to a list of arrays;
            - an iterable of mappings from input name to array, each of exactly the declared shape. An iterator can
              be gone through once.
        model: The model for which they are.

    Raises:
        QuantizationError: There is nothing to read, or inputs are missing. Errors in a sample are raised when it is
            read.
    """

    def __init__(self, source: DataSource, model: ir.Model) -> None:
        initializers = model.graph.initializers
        self._values = {v.name or "": v for v in model.graph.inputs if v.name not in initializers}
        self._feeds = {name: Feed(v, has_default=False) for name, v in self._values.items()}
        self.place = "calibration data"
        self._are_samples = False
        if isinstance(source, str | os.PathLike):
            path = Path(source)
            self.place = f"calibration data {str(path)!r}"
            if path.is_dir():
                self._parts: Iterable[Any] = self._from_folder(path)
            else:
                self._parts = [_File(self._existing(path), None)]
        elif isinstance(source, Mapping):
            self._parts = [source]
        elif isinstance(source, list | tuple) and source and all(isinstance(s, str | os.PathLike) for s in source):
            self._parts = self._from_files([self._existing(Path(s)) for s in source])
        elif isinstance(source, Iterable):
            self._parts = source
            self._are_samples = True
        else:
            raise QuantizationError(
                "a file, a folder, arrays by input name or an iterable of samples is required",
                place=self.place,
                actual=type(source).__name__,
            )

    def __iter__(self) -> Iterator[CalibrationSample]:
        count = 0
        for part in self._parts:
            if self._are_samples:
                samples: Iterable[CalibrationSample] = [self._mapping(part, f"{self.place}, sample {count}")]
            else:
                samples = self._split(part)
            for sample in samples:
                yield self._checked(sample, f"{self.place}, sample {count}")
                count += 1
        if not count:
            raise QuantizationError("at least one sample is required", place=self.place, actual="none")

    # ---- files -----------------------------------------------------------------------------------

    def _existing(self, path: Path) -> Path:
        if not path.is_file():
            raise QuantizationError(
                "a .npz or .npy file or a folder of them is required", place=f"calibration data {str(path)!r}",
                actual="no such file or folder",
            )  # fmt: skip
        return path

    def _from_folder(self, folder: Path) -> Iterable[Any]:
        files = sorted(p for p in folder.iterdir() if p.suffix.lower() in (".npy", ".npz") and p.is_file())
        folders = {name: folder / name for name in self._values if (folder / name).is_dir()}
        if files:
            return self._from_files(files)
        if not folders:
            raise QuantizationError(
                "a folder with .npz or .npy files, or with a subfolder for each input, is required",
                place=self.place,
                actual="none of these",
                hint=f"the inputs are {', '.join(self._values)}",
            )
        self._all_there(folders, self.place)
        names = {n: sorted(q.name for q in p.glob("*.npy")) for n, p in folders.items()}
        first = next(iter(names))
        for name, found in names.items():
            if found != names[first]:
                odd = min(set(found) ^ set(names[first]))
                raise QuantizationError(
                    f"the same files for inputs {first!r} and {name!r} are required",
                    place=self.place,
                    actual=f"{odd!r} for one of them only",
                    hint="a sample is one file of the same name in the folder of each input",
                )
        return [{n: _File(p / file, n) for n, p in folders.items()} for file in names[first]]

    def _from_files(self, files: Sequence[Path]) -> Iterable[Any]:
        kinds = {p.suffix.lower() for p in files}
        if kinds == {".npy"}:
            stems = {p.stem: p for p in files}
            if set(stems) & set(self._values) or len(self._values) > 1:
                self._all_there(stems, self.place)
                return [{name: _File(p, name) for name, p in stems.items()}]
        elif kinds != {".npz"}:
            raise QuantizationError(
                "files of one kind, .npz or .npy, are required",
                place=self.place,
                actual=", ".join(sorted(kinds)),
                hint="give a list of the files that are samples",
            )
        return [_File(p, None) for p in files]

    # ---- samples ---------------------------------------------------------------------------------

    def _split(self, part: Any) -> Iterator[CalibrationSample]:
        """The samples in arrays by input name."""
        arrays, place = part, self.place
        if isinstance(part, _File):
            place = f"calibration data {str(part.path)!r}"
            arrays = part.load()
            if not isinstance(arrays, Mapping):
                if len(self._values) != 1:
                    raise QuantizationError(
                        "a .npz file with an array for each input is required",
                        place=place,
                        actual="one array without a name",
                        hint=f"the inputs are {', '.join(self._values)}",
                    )
                arrays = {next(iter(self._values)): arrays}
        self._all_there(arrays, place)
        pieces = {}
        for name in self._values:
            given = arrays[name]
            given = given.load() if isinstance(given, _File) else given
            parts = given if isinstance(given, list | tuple) else [given]
            where = f"{place}, input {name!r}"
            pieces[name] = [piece for part in parts for piece in self._pieces(np.asarray(part), name, where)]
        first = next(iter(pieces), "")
        for name, found in pieces.items():
            if len(found) != len(pieces[first]):
                raise QuantizationError(
                    f"as many samples as for input {first!r}, {len(pieces[first])}, are required",
                    place=f"{place}, input {name!r}",
                    actual=str(len(found)),
                )
        for i in range(len(pieces[first]) if pieces else 0):
            yield {name: found[i] for name, found in pieces.items()}

    def _pieces(self, array: np.ndarray, name: str, place: str) -> list[np.ndarray]:
        shape = self._values[name].shape
        if shape is None or array.ndim == len(shape) + 1:
            return list(array) if array.ndim else [array]
        if array.ndim != len(shape):
            raise QuantizationError(
                f"an array of rank {len(shape)}, or {len(shape) + 1} with samples along the first axis, is required",
                place=place,
                actual=describe(array),
            )
        if not array.ndim:
            return [array]
        first = shape[0]
        size = first if isinstance(first, int) else 1
        if not size or array.shape[0] % size:
            raise QuantizationError(
                f"a multiple of the batch size {size} along the first axis is required",
                place=place,
                actual=describe(array),
                hint=f"leave out the last {array.shape[0] % size}" if size and array.shape[0] > size else "",
            )
        return [array[i : i + size] for i in range(0, array.shape[0], size)]

    def _mapping(self, sample: Any, place: str) -> CalibrationSample:
        if not isinstance(sample, Mapping):
            raise QuantizationError(
                "a mapping from input name to array is required", place=place, actual=type(sample).__name__
            )
        self._all_there(sample, place)
        return dict(sample)

    def _all_there(self, names: Iterable[str], place: str) -> None:
        given = list(names)
        unknown = next((n for n in given if n not in self._values), None)
        missing = next((n for n in self._values if n not in given), None)
        if unknown is not None:
            raise QuantizationError(
                "the name of an input is required",
                place=place,
                actual=repr(unknown),
                hint=opset.did_you_mean(unknown, self._values) or f"the inputs are {', '.join(self._values) or 'none'}",
            )
        if missing is not None:
            actual = ", ".join(map(repr, given)) or "nothing"
            raise QuantizationError(f"an array for input {missing!r} is required", place=place, actual=actual)

    def _checked(self, sample: CalibrationSample, place: str) -> CalibrationSample:
        symbols: Symbols = {}
        checked = {}
        for name, feed in self._feeds.items():
            try:
                checked[name] = feed.checked(sample[name], symbols)
            except EqsatError as error:
                raise QuantizationError(
                    error.requirement, place=f"{place}, {error.place}", actual=error.actual, hint=error.hint
                ) from error
            array = checked[name]
            if isinstance(array, np.ndarray) and array.dtype.kind == "f" and not np.isfinite(array).all():
                raise QuantizationError(
                    "finite numbers are required",
                    place=f"{place}, input {name!r}",
                    actual=f"{np.count_nonzero(~np.isfinite(array))} NaN or infinite elements",
                    hint="leave this sample out",
                )
        return checked


def first_samples(
    data: DataSource | CalibrationData, model: ir.Model, limit: int | None
) -> Iterator[CalibrationSample]:
    """The first ``limit`` samples, all for None.

    Raises:
        QuantizationError: The limit leaves none, or see :class:`CalibrationData`.
    """
    if limit is not None and limit < 1:
        raise QuantizationError("a limit of at least one sample is required", actual=str(limit))
    found = data if isinstance(data, CalibrationData) else CalibrationData(data, model)
    return iter(found) if limit is None else islice(found, min(limit, sys.maxsize))


class _File:
    """A file of arrays, read only when needed."""

    def __init__(self, path: Path, name: str | None) -> None:
        self.path = path
        self.name = name

    def load(self) -> Any:
        place = f"calibration data {str(self.path)!r}"
        try:
            return read_arrays(self.path)
        except ValueError as error:
            raise QuantizationError(
                "a .npz or .npy file of plain arrays is required",
                place=place,
                actual=str(error),
                hint="write it with numpy.save or numpy.savez, from arrays of numbers",
            ) from error
