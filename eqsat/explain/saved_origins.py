"""The origins in a saved model."""

from __future__ import annotations

import onnx_ir as ir

from eqsat.errors import ModelError
from eqsat.explain.origin import ORIGINS, Origins, unpack


def read_origins(model: ir.Model, place: str = "") -> Origins:
    """The origins of a model's nodes, by the names of their first results.

    Raises:
        ModelError: eqsat did not write the model, or the metadata are damaged.
    """
    text = model.metadata_props.get(ORIGINS)
    if text is None:
        raise ModelError(
            "a model that eqsat optimized is required",
            place=place or model.graph.name or "",
            actual=f"no metadata `{ORIGINS}`",
            hint="write one with `eqsat optimize MODEL -o OUT.onnx`, and explain OUT.onnx",
        )
    return unpack(text)
