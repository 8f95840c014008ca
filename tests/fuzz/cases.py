"""Cases as files: a model, its data beside it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

from tests.fuzz.generator import Case


def write(case: Case, path: Path) -> Path:
    """Stores a case as ``name.onnx`` and ``name.npz``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(case.model, path)
    held = {}
    for name, array in case.feeds.items():
        kind = "strings" if array.dtype == object else array.dtype.name
        raw = array.astype(str) if array.dtype == object else array.view(np.uint16) if kind == "bfloat16" else array
        held[f"{kind}:{name}"] = raw
    held["seed"] = np.array(case.seed)
    with path.with_suffix(".npz").open("wb") as file:
        np.savez(file, **held)
    return path


def read(path: Path) -> Case:
    """A stored case."""
    import ml_dtypes

    feeds = {}
    seed = 0
    with np.load(path.with_suffix(".npz")) as stored:
        for key in stored.files:
            if key == "seed":
                seed = int(stored[key])
                continue
            kind, name = key.split(":", 1)
            array = stored[key]
            feeds[name] = (
                array.astype(object)
                if kind == "strings"
                else array.view(ml_dtypes.bfloat16)
                if kind == "bfloat16"
                else array
            )
    return Case(onnx.load(path), feeds, seed)
