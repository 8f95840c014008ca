"""Saved models without their origins, for tests that compare files: a second optimization starts from another graph."""

from __future__ import annotations

from pathlib import Path

import onnx

from eqsat.explain.origin import ORIGINS


def without_origins(path: Path) -> onnx.ModelProto:
    model = onnx.load(path)
    kept = [entry for entry in model.metadata_props if entry.key != ORIGINS]
    del model.metadata_props[:]
    model.metadata_props.extend(kept)
    return model
