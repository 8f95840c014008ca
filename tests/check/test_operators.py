"""An instance is found of a rule of any operator, with and without its optional operands."""

from __future__ import annotations

import onnx
import pytest

from eqsat.check.rule import check_rule
from eqsat.rules.reader import read_text
from eqsat.schema.opset import MICROSOFT, find_schema
from eqsat.schema.types import OpKey

NO_TENSORS = {"ConcatFromSequence", "SequenceAt", "SequenceLength", "OptionalHasElement", "OptionalGetElement"}
BODIES = {"If", "Loop", "Scan"}
TEXT = {"RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit", "TfIdfVectorizer", "ImageDecoder"}
RANDOM = {"Bernoulli", "Multinomial", "RandomNormalLike", "RandomUniformLike"}
CONSTANT = {"BlackmanWindow", "HammingWindow", "HannWindow", "ConstantOfShape", "Range", "MelWeightMatrix"}
"""The size of the result is known of constants alone, and those are no rule's business."""
SIZED_BY_DATA = {"NonMaxSuppression", "NonZero", "Unique"}
FOLDED = {"Shape", "Size"}
WITHOUT_KERNEL = {"MaxRoiPool"}
BY_OTHER_OPERANDS = {"Resize", "STFT"}
"""Those that are optional by their schema and not by their text; see OTHERS."""
NEITHER = NO_TENSORS | BODIES | TEXT | RANDOM | CONSTANT | SIZED_BY_DATA | FOLDED | WITHOUT_KERNEL | BY_OTHER_OPERANDS
EXCLUSIVE = {"Attention", "DFT", "MaxUnpool"}
"""Optional operands that are not given together, or that need another first operand."""
OTHERS = (
    "Resize(a, r?, s)",
    "STFT(a, b, c, d)",
    "Attention(a, b, c, m)",
    "Attention(a, b, c, m?, p, q)",
    "com.microsoft.FusedConv(a, b, c?, d)",
    "com.microsoft.MultiHeadAttention(a, b, c, d)",
    "com.microsoft.QLinearAdd(a, b, c, d, e, f, g, h)",
    "com.microsoft.QLinearSoftmax(a, b, c, d, e)",
)
MICROSOFTS = (
    *("Attention", "BiasGelu", "DynamicQuantizeMatMul", "ExpandDims", "FastGelu", "FusedConv", "FusedGemm"),
    *("FusedMatMul", "GatherND", "Gelu", "MatMulIntegerToFloat", "Pad", "QGemm", "QLinearConv", "QuantizeLinear"),
    *("QLinearGlobalAveragePool", "QuickGelu", "RotaryEmbedding", "SkipLayerNormalization", "Trilu"),
    *("SkipSimplifiedLayerNormalization", "TransposeMatMul"),
)


def calls() -> list[str]:
    found = []
    names = {s.name for s in onnx.defs.get_all_schemas() if not s.domain and not s.deprecated}
    for op in [*(OpKey("", name) for name in sorted(names)), *(OpKey(MICROSOFT, name) for name in MICROSOFTS)]:
        schema = find_schema(op)
        if schema is None or (op.name in NEITHER and not op.domain) or not schema.inputs or not tensors(schema):
            continue
        kinds = [str(formal.option).rpartition(".")[2] for formal in schema.inputs]
        for optional in (False, True) if "Optional" in kinds and op.name not in EXCLUSIVE else (False,):
            args = [f"a{i}" for i, kind in enumerate(kinds) if kind == "Single" or (optional and kind == "Optional")]
            args += ["v", "w"] if "Variadic" in kinds else []
            if args and not (op.domain and optional and op.name == "Attention"):
                found.append(f"{op}({', '.join(args)})")
    return [*found, *OTHERS]


def tensors(schema: object) -> bool:
    return all(any(t.startswith("tensor(") for t in f.types) for f in (*schema.inputs, *schema.outputs))  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.slow
@pytest.mark.parametrize("call", calls())
def test_an_instance_is_found(call: str) -> None:
    left = f"n: {call}"
    right = call.replace("?", "")[:-1] + ", **n)"
    rule = read_text(f"rule r : exact\n    {left}  =>  Where(tensor(true, bool), {right}, {right})\n").rules[0]
    outcome = check_rule(rule, instances=2, pointed=True, attempts=400)
    assert outcome.holds, outcome
