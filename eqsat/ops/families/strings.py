"""Operators on strings whose reference implementation differs from the specification.

``onnx.reference`` strips accents in StringNormalizer and sets the locale of the whole process.
"""

from __future__ import annotations

import numpy as np

from eqsat.ops.checks import attributes
from eqsat.ops.need_by_parameters import need_string_concat
from eqsat.ops.registry import declare
from eqsat.ops.traits import PARAMETRIC
from eqsat.schema.types import Attributes

_CASES = {"NONE": lambda s: s, "LOWER": str.lower, "UPPER": str.upper}


def string_normalizer(attrs: Attributes, x: np.ndarray) -> np.ndarray:
    """Remove stop words, then change case; an empty result becomes one empty string."""
    if x.ndim not in (1, 2) or (x.ndim == 2 and x.shape[0] != 1):
        raise ValueError("the input has the shape [C] or [1, C]")
    change = _CASES[str(attrs.get("case_change_action", "NONE"))]
    compared = _CASES["NONE" if attrs.get("is_case_sensitive", 0) else "LOWER"]
    stops = {compared(word) for word in attrs.get("stopwords", ())}
    kept = [change(word) for word in x.reshape(-1).tolist() if compared(word) not in stops] or [""]
    result = np.empty(len(kept), object)
    result[:] = kept
    return result if x.ndim == 1 else result[np.newaxis]


# ---- declarations ----------------------------------------------------------------------------------
# fmt: off
declare("StringNormalizer", numpy=string_normalizer, shaped_by=(0,),
    checks=(attributes.words(case_change_action=("NONE", "LOWER", "UPPER")),))
declare("StringConcat", traits=PARAMETRIC, need=need_string_concat)
declare("StringSplit", shaped_by=(0,))
declare("TfIdfVectorizer", checks=(attributes.words(mode=("TF", "IDF", "TFIDF")),))
