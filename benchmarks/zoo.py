"""Models as exporters wrote them, with free sizes: whether they load, what they cost, and whether they are right.

    python -m benchmarks.zoo FILE_OR_FOLDER ... [--target dnnl[,ethos_n]] [--c] [--time-limit 30] [--tolerance 1e-3]
        [--gap 1e-4] [--json FILE]

Files are `.onnx` or `.onnx.xz`. A graph whose weights were taken out gets new ones: a float tensor with the note
`random MEAN DEVIATION LEAST MOST` is drawn from that normal distribution. A file `NAME.json` beside the model may give
`dims`, typical sizes by symbol, and `feeds`, for an input a number or the range `lo`, `hi` of its integers. Each model
has a process of its own. Columns:

- ``load`` ... ``verify``: CPU seconds by stage; ``MB``: the greatest memory of the process beyond that of its imports.
- ``before``, ``after``: predicted milliseconds; ``gap`` to the proven bound.
- ``host``, ``regions``: operators left on the host, and regions of the target.
- ``sizes``: at how many of the sampled sizes ONNX Runtime runs the input.
- ``error``: the greatest difference from it at all of those, relative to the greatest magnitude of each output, of the
  saved file in ONNX Runtime; ``numpy``: of eqsat's executor; ``C``: of generated C at the typical sizes (``--c``).

A row is in order only if something was executed, nothing differs by more than the tolerance, the result does not cost
more than the input, and its gap is at most ``--gap``. What is not in order is said below the table, and by the exit
code 1.
"""

from __future__ import annotations

import argparse
import json
import lzma
import multiprocessing
import resource
import sys
import tempfile
import warnings
import zlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import numpy_helper

import eqsat
from benchmarks.executor import table
from benchmarks.output import write_json
from eqsat.errors import EqsatError
from eqsat.execute.inputs import complete_inputs
from eqsat.model.load import load
from eqsat.model.read.dims import free_sizes
from eqsat.model.read.given_sizes import split
from eqsat.schema.chosen_sizes import samples

Row = dict[str, Any]
TOLERANCE = 1e-3
"""How far a result may be from that of ONNX Runtime, relative to the greatest magnitude of the output."""
GAP = 1e-4
"""Up to this gap, a result counts as proven."""
_ROUNDING = 1e-9
STAGES = ("load", "encode", "saturate", "extract", "verify")


def files(places: Sequence[str]) -> list[Path]:
    """The models among files and in folders, by name."""
    found = [Path(p) for p in places]
    inner = [q for p in found if p.is_dir() for pattern in ("*.onnx", "*.onnx.xz") for q in p.glob(pattern)]
    return sorted({*inner, *(p for p in found if not p.is_dir())})


def name_of(path: Path) -> str:
    """The name of a model's file without its suffixes."""
    return path.name.removesuffix(".xz").removesuffix(".onnx")


def read(path: Path) -> onnx.ModelProto:
    """A model with weights."""
    data = lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
    model = onnx.load_from_string(data)
    for i, tensor in enumerate(_tensors(model.graph)):
        note = tensor.doc_string.split()
        if len(note) != 5 or note[0] != "random":
            continue
        mean, deviation, least, most = map(float, note[1:])
        rng = np.random.default_rng([i, zlib.crc32(path.name.encode())])
        drawn = rng.standard_normal(tuple(tensor.dims)) * deviation + mean
        # A head that starts at zero would hide errors.
        drawn = np.clip(drawn, least, most) if deviation or mean else drawn + 0.02 * rng.standard_normal(drawn.shape)
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
        tensor.CopyFrom(numpy_helper.from_array(drawn.astype(dtype), tensor.name))
    return model


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            if attribute.HasField("g"):
                yield from _tensors(attribute.g)


def notes_of(path: Path) -> dict[str, Any]:
    """What the file beside a model says of its inputs."""
    beside = path.with_name(f"{name_of(path)}.json")
    return json.loads(beside.read_text(encoding="utf-8")) if beside.is_file() else {}


def feeds(model: Any, sizes: Mapping[str, int], notes: Mapping[str, Any], seed: int) -> dict[str, np.ndarray]:
    """Inputs at given sizes."""
    found = complete_inputs(model, dims=sizes, seed=seed)
    for name, note in notes.get("feeds", {}).items():
        if name not in found:
            continue
        if isinstance(note, Mapping):
            drawn = np.random.default_rng(seed).integers(note.get("lo", 0), note.get("hi", 2), found[name].shape)
            found[name] = drawn.astype(found[name].dtype)
        else:
            found[name] = np.full_like(found[name], note)
    return found


def row_of(
    path: Path, target: str, time_limit: float, with_c: bool, tolerance: float = TOLERANCE, gap: float = GAP
) -> Row:
    """What becomes of one model; targets are separated by commas."""
    warnings.simplefilter("ignore")
    start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    row: Row = {"model": name_of(path)}
    notes = notes_of(path)
    try:
        proto = read(path)
        loaded = load(proto)
        known = free_sizes(loaded, {})
        dims = {name: (1, None, size) for name, size in notes.get("dims", {}).items() if name in known}
        result = eqsat.optimize(proto, targets=[t for t in target.split(",") if t], dims=dims, time_limit=time_limit)
    except (EqsatError, DecodeError, lzma.LZMAError, OSError) as error:
        return row | {"problem": " ".join(str(error).split())[:300]}
    summary = result.summary
    row |= {stage: round(summary.seconds.get(stage, 0.0), 2) for stage in STAGES}
    row |= {
        "before": 1e3 * summary.before.cost,
        "after": 1e3 * summary.after.cost,
        "gap": result.gap,
        "stop": result.stop_reason,
        "operators": summary.before.host_operators,
        "host": summary.after.host_operators,
        "regions": summary.after.regions,
    }
    errors, problems = _errors(proto, loaded, result, notes, free_sizes(loaded, split(dims)[1]), with_c)
    row |= errors
    for what, column in (("the saved file", "error"), ("eqsat's executor", "numpy"), ("generated C", "C")):
        if isinstance(error := errors.get(column, 0.0), str):
            problems.append(f"{what}: {error}")
        elif not error <= tolerance:
            problems.append(f"{what} differs by {error:.1e}")
    if summary.after.cost > summary.before.cost * (1 + _ROUNDING):
        problems.append("the result costs more than the input")
    if result.gap > gap:
        problems.append(f"the gap is {result.gap:.1e} ({result.stop_reason})")
    row |= {"problem": "; ".join(problems)} if problems else {}
    row["MB"] = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start) // 1024
    return row


def _errors(
    proto: onnx.ModelProto, loaded: Any, result: eqsat.Result, notes: Mapping[str, Any], known: Any, with_c: bool
) -> tuple[Row, list[str]]:
    """Differences from the original in ONNX Runtime, and what could not be executed."""
    worst, numpy_worst, done = 0.0, 0.0, 0
    problems: list[str] = []
    refused = ""
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder) / "out.onnx"
        result.save(saved)
        original, optimized = _session(proto.SerializeToString()), _session(saved.read_bytes())
        for seed, sizes in enumerate(samples(known)):
            given = feeds(loaded, sizes, notes, seed)
            try:
                wanted = original.run(None, given)
            except Exception as error:  # mostly sizes that the model does not have; those tried must not all be such
                refused = " ".join(str(error).split())[:200]
                continue
            done += 1
            try:
                worst = max(worst, error_of(wanted, optimized.run(None, given)))
                numpy_worst = max(numpy_worst, error_of(wanted, list(result.run(given).values())))
            except Exception as error:  # whatever ONNX Runtime raises is a finding
                problems.append(f"at {sizes}: {' '.join(str(error).split())[:200]}")
    if not done:
        problems.append(f"ONNX Runtime runs the input at none of the sizes: {refused}")
    found: Row = {"sizes": done, "error": worst, "numpy": numpy_worst}
    if with_c:
        found |= _c_error(proto, notes, {name: size.typical for name, size in known.items()})
    return found, problems


def _c_error(proto: onnx.ModelProto, notes: Mapping[str, Any], sizes: Mapping[str, int]) -> Row:
    """How far generated C is from ONNX Runtime at some sizes, or why there is no C."""
    try:
        loaded = load(proto, dims=sizes)
        given = feeds(loaded, {}, notes, 0)
        try:
            wanted = _session(proto.SerializeToString()).run(None, given)
        except Exception as error:  # whatever ONNX Runtime raises
            return {"C": f"ONNX Runtime does not run the input: {' '.join(str(error).split())[:120]}"}
        return {"C": error_of(wanted, list(eqsat.run(loaded, given, backend="c").values()))}
    except EqsatError as error:
        return {"C": " ".join(str(error).split())[:120]}


def _session(data: bytes) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def error_of(wanted: Sequence[Any], found: Sequence[Any]) -> float:
    """The greatest difference of arrays, relative to the greatest magnitude of each; infinite where shapes differ."""
    worst = 0.0
    for a, b in zip(wanted, found, strict=True):
        if not isinstance(a, np.ndarray) or a.dtype.kind not in "biuf":
            worst = max(worst, 0.0 if np.array_equal(np.asarray(a), np.asarray(b)) else np.inf)
        elif a.shape != b.shape:
            return np.inf
        elif a.size:
            x, y = a.astype(np.float64), np.asarray(b).astype(np.float64)
            same = (x == y) | (np.isnan(x) & np.isnan(y))
            scale = float(np.max(np.abs(x), initial=0.0, where=np.isfinite(x))) or 1.0
            with np.errstate(invalid="ignore"):
                apart = np.nan_to_num(np.abs(x - y), nan=np.inf, posinf=np.inf)  # A nan is as far as can be.
            worst = max(worst, float(np.max(np.where(same, 0.0, apart))) / scale)
    return worst


def main(arguments: list[str] | None = None) -> int:
    """Prints the table; the exit code is 1 if a model has a problem."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("places", nargs="+")
    parser.add_argument("--target", default="dnnl")
    parser.add_argument("--time-limit", type=float, default=30.0)
    parser.add_argument("--tolerance", type=float, default=TOLERANCE)
    parser.add_argument("--gap", type=float, default=GAP)
    parser.add_argument("--c", action="store_true")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    rows: list[Row] = []
    # Memory is measured by process.
    context = multiprocessing.get_context("spawn")
    for path in files(given.places):
        with ProcessPoolExecutor(1, context) as pool:
            try:
                rows.append(
                    pool.submit(
                        row_of, path, given.target, given.time_limit, given.c, given.tolerance, given.gap
                    ).result()
                )
            except BrokenProcessPool:
                rows.append({"model": name_of(path), "problem": "its process has ended, perhaps in ONNX Runtime"})
        print(f"{rows[-1]['model']}: {rows[-1].get('problem', 'ok')}", file=sys.stderr, flush=True)
    columns = ["model", *STAGES, "MB", "before", "after", "gap", "operators", "host", "regions", "sizes", "error"]
    columns += ["numpy", *(["C"] if given.c else [])]
    print(table([{column: row.get(column) for column in columns} for row in rows]))
    for row in rows:
        if "problem" in row:
            print(f"{row['model']}: {row['problem']}")
    if given.json is not None:
        write_json(given.json, rows)
    return int(any("problem" in row for row in rows))


if __name__ == "__main__":
    sys.exit(main())
