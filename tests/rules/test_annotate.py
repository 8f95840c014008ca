"""The ``annotate`` clause of composites: reading, errors, layout."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from eqsat.errors import EqsatError
from eqsat.rules.ast import Composite
from eqsat.rules.format import format_file
from eqsat.rules.reader import read_text
from eqsat.schema.types import OpKey
from tests.rules.printing import format_composite

HEAD = (
    "target t\n    peak float32 = 1\n    bandwidth = 1, launch = 1\n    link bandwidth = 1, latency = 1\n"
    "\n    composite c : exact\n        Relu(x)\n"
)
HINT, STOP = OpKey("eqsat", "CastHint"), OpKey("eqsat", "StopFusion")


def composite(clause: str) -> Composite:
    return read_text(HEAD + f"        {clause}\n").targets[0].composites[0]


@pytest.mark.parametrize(
    ("clause", "expected"),
    [
        ("annotate StopFusion", ((STOP, ()),)),
        ("annotate StopFusion()", ((STOP, ()),)),
        ("annotate CastHint", ((HINT, (("dtype", ir.DataType.INT8),)),)),
        (
            "annotate CastHint(dtype=uint8), StopFusion",
            ((HINT, (("dtype", ir.DataType.UINT8),)), (STOP, ())),
        ),
        ("annotate eqsat.StopFusion, CastHint(dtype=2 + 1)", ((STOP, ()), (HINT, (("dtype", ir.DataType.INT8),)))),
        ("", ()),
    ],
)
def test_reading(clause: str, expected: tuple[object, ...]) -> None:
    assert composite(clause).annotations == expected


def test_among_other_clauses() -> None:
    found = composite('where x.rank == 2\n        annotate StopFusion\n        cost launch\n        call "f({x})"')
    assert found.annotations == ((STOP, ()),) and found.cost is not None and found.call == "f({x})"


@pytest.mark.parametrize(
    ("clause", "message"),
    [
        ("annotate ‸Relu", "an annotation is required: CastHint or StopFusion; got `Relu`"),
        ("annotate ‸StopFusin", "did you mean `StopFusion`"),
        ("annotate ‸3", "an annotation is required"),
        ("annotate StopFusion(‸x)", "attributes of `StopFusion` by name are required"),
        ("annotate CastHint(‸dtyp=int8)", "an attribute of `CastHint` is required; got `dtyp`"),
        ("annotate CastHint(dtype=int8, ‸dtype=int8)", "got `dtype` twice"),
        ("annotate CastHint(dtype=‸x.dtype)", "a fixed value is required for `dtype`"),
        ('annotate CastHint(dtype=‸"int8")', "a whole number is required as the attribute `dtype`"),
        ("annotate CastHint(dtype=‸int9)", "`int9` is not bound"),
        ("annotate StopFusion\n        annotate ‸StopFusion", "`annotate` must be given once"),
        ("annotate‸", "got the end"),
    ],
)
def test_errors(clause: str, message: str) -> None:
    text = HEAD + f"        {clause}\n"
    marked = text.split("‸")
    line, column = marked[0].count("\n") + 1, len(marked[0].rpartition("\n")[2]) + 1
    with pytest.raises(EqsatError) as error:
        read_text(text.replace("‸", ""), "t.target")
    assert message in str(error.value), str(error.value)
    if "the end" not in message:
        assert f"t.target:{line}:{column}" in str(error.value)


def test_layout() -> None:
    wide = HEAD + '        where x.rank==2 annotate   CastHint( dtype = int8 ) ,StopFusion   call "f"\n'
    clean = HEAD + '        where x.rank == 2\n        annotate CastHint(dtype=int8), StopFusion\n        call "f"\n'
    assert format_file(wide) == format_file(clean) == clean


def test_printing() -> None:
    found = composite("annotate StopFusion, CastHint(dtype=uint8)")
    text = format_composite(found)
    assert text.rstrip().endswith("annotate StopFusion, CastHint(dtype=uint8)")
