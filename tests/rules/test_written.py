"""The ``as`` clause of composites: reading, errors, layout, and what it writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import eqsat
from eqsat import op
from eqsat.errors import EqsatError, TargetError
from eqsat.rules.ast import Composite
from eqsat.rules.format import format_file
from eqsat.rules.reader import read_text
from tests.rules.printing import format_composite

HEAD = "host h\n    peak float32 = 1e9\n    bandwidth = 1e9, launch = 1e-6\n    supports *\n\n    composite c : real\n"
ONE = HEAD + "        Relu(n: Conv(x, w, b?))\n"
TWO = HEAD + "        s = x + y, d = LayerNormalization(s, scale, bias?)\n"
SKIP = "com.microsoft.SkipLayerNormalization"


def composite(text: str) -> Composite:
    return read_text(text + "\n").targets[0].composites[0]


def test_reading() -> None:
    found = composite(f'{ONE}        as com.microsoft.FusedConv(x, w, b, **n, activation="Relu")').written
    assert found is not None and found.outputs == (0,)
    assert str(found.operator.op) == "com.microsoft.FusedConv" and found.operator.spread == ("n",)
    found = composite(f"{TWO}        as (d, _, _, s) = {SKIP}(x, y, scale, bias, epsilon=d.epsilon)").written
    assert found is not None and found.outputs == (1, None, None, 0)


def test_as_is_a_name_elsewhere() -> None:
    found = composite(HEAD + "        let as = Relu(x)\n        Relu(as) | as\n        where as.rank == 2")
    assert found.written is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{ONE}        as ‸x", "one operator is required after `as`"),
        (f"{ONE}        as ‸Nothing(x)", "there is no operator `Nothing`"),
        (f"{ONE}        as Conv(x, w, ‸Neg(b))", "an operand of the composite is required as operand after `as`"),
        (f"{ONE}        as Conv(x, ‸3)", "an operand of the composite is required"),
        (f"{ONE}        as Conv(x, ‸n)", "an operand of the composite is required as operand after `as`; got `n`"),
        (f"{ONE}        as Add(x, ‸b)", "`Add` needs its operand `B`"),
        (
            f"{HEAD}        Relu(n: Conv(x, w)) | Gemm(x, w)\n        as ‸com.microsoft.FusedConv(x, w, **n)",
            "the attributes of `n` must be bound by every alternative",
        ),
        (f"{ONE}        as Relu(x, ‸alpha=2)", "has no attribute or operand `alpha`"),
        (f"{ONE}        as Relu(x)\n        as ‸Relu(x)", "`as` must be given once"),
        (f'{ONE}        call "f"\n        as ‸Relu(x)', "no `by`, no `call` and no `annotate`"),
        (f"{TWO}        as ‸{SKIP}(x, y, scale)", "the composite's results are required before the operator"),
        (f"{TWO}        as ‸(d, _) = {SKIP}(x, y, scale)", "each result of the composite is required once"),
        (f"{TWO}        as (d, ‸x) = {SKIP}(x, y, scale)", "a result of the composite, or `_`, is required"),
        (f"{TWO}        as ‸(d, s, d) = {SKIP}(x, y, scale)", "`d` twice"),
        (f"{TWO}        as ‸(d, _, _, s, _) = {SKIP}(x, y, scale)", "has 4 outputs; got 5 names"),
    ],
)
def test_errors(text: str, message: str) -> None:
    marked = text.split("‸")
    line, column = marked[0].count("\n") + 1, len(marked[0].rpartition("\n")[2]) + 1
    with pytest.raises(EqsatError) as error:
        read_text(text.replace("‸", "") + "\n", "t.target")
    assert message in str(error.value), str(error.value)
    assert f"t.target:{line}:{column}" in str(error.value)


def test_layout_and_printing() -> None:
    wide = f"{TWO}        where x.rank==3 as (d,_,_,s)={SKIP}( x,y,scale, bias ,epsilon = 1 )\n"
    clean = f"{TWO}        where x.rank == 3\n        as (d, _, _, s) = {SKIP}(x, y, scale, bias, epsilon=1)\n"
    assert format_file(wide.replace(" as ", "\n as ")) == format_file(clean) == clean
    found = composite(f'{ONE}        as com.microsoft.FusedConv(x, w, b, **n, activation="Relu")')
    assert 'as com.microsoft.FusedConv(x, w, b, **n, activation="Relu")' in format_composite(found)


def weights(*shape: int) -> np.ndarray:
    return np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)


def test_of_an_accelerator_within_its_region(tmp_path: object) -> None:
    (npu,) = read_text(
        "target npu\n    peak float32 = 1e12\n    bandwidth = 1e12, launch = 1e-9, dispatch = 0\n"
        "    link bandwidth = 1e12, latency = 1e-9\n    composite c : exact\n        Relu(n: Conv(x, w, b?))\n"
        '        as com.microsoft.FusedConv(x, w, b, **n, activation="Relu")\n'
    ).targets
    x = eqsat.input("x", (1, 3, 16, 16))
    model = eqsat.graph(op.Exp(op.Relu(op.Conv(x, weights(4, 3, 3, 3), strides=[2, 2]))))
    result = eqsat.optimize(model, [npu])
    assert [region.nodes for region in result.regions if region.target == "npu"] == [("com.microsoft.FusedConv",)]
    feed = {"x": weights(1, 3, 16, 16)}
    result.save(f"{tmp_path}/out.onnx")
    for found in (result.run(feed), eqsat.run(f"{tmp_path}/out.onnx", feed)):
        np.testing.assert_allclose(next(iter(found.values())), next(iter(eqsat.run(model, feed).values())), rtol=1e-4)


@pytest.mark.slow
def test_an_operator_of_a_users_domain(tmp_path: Path) -> None:
    (tmp_path / "own.target").write_text(
        "operator acme.Twice(x: floats) = x + x\n" + HEAD + "        x * 2\n        as acme.Twice(x)\n", "utf-8"
    )
    x = eqsat.input("x", (3, 4))
    result = eqsat.optimize(eqsat.graph(op.Exp(x * np.float32(2))), host=f"{tmp_path}/own.target")
    result.save(f"{tmp_path}/out.onnx")
    nodes = [node.op_type for node in onnx.load(f"{tmp_path}/out.onnx").graph.node]
    assert nodes == ["Twice", "Exp"]
    assert result.summary.verification is not None


@pytest.mark.slow
def test_results_that_nothing_reads_are_left_out() -> None:
    (host,) = read_text(
        f"{TWO}        where x.rank == 3, x.shape == y.shape, d.axis == 2, scale.rank == 1,\n"
        "              not bias.is_present or bias.rank == 1\n"
        f"        as (d, _, _, s) = {SKIP}(x, y, scale, bias, epsilon=d.epsilon)\n"
    ).targets
    x, y = eqsat.input("x", (1, 4, 8)), eqsat.input("y", (1, 4, 8))
    for read in (False, True):
        total = x + y
        normed = op.LayerNormalization(total, weights(8), weights(8))
        result = eqsat.optimize(eqsat.graph([normed, op.Exp(total)] if read else normed), host=host)
        (node,) = [n for n in result.model.graph if n.op_type == "SkipLayerNormalization"]
        assert [bool(v.name) for v in node.outputs] == ([True, False, False, True] if read else [True])


@pytest.mark.slow
def test_attributes_that_the_operator_refuses() -> None:
    (host,) = read_text(f"{ONE}        as com.microsoft.FusedConv(x, w, b, **n, group=x.value)\n", "t.target").targets
    x = eqsat.input("x", (1, 3, 8, 8))
    with pytest.raises(TargetError, match=r"attributes that `com.microsoft.FusedConv` accepts are required after `as`"):
        eqsat.optimize(eqsat.graph(op.Relu(op.Conv(x, weights(4, 3, 3, 3)))), host=host)
