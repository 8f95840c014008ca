"""Models that say which integers they should become, and what annotations do to a quantization."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest

import eqsat
from eqsat import op
from eqsat.model.expression import Tensor
from eqsat.model.load import load
from eqsat.partition.saved import inline
from eqsat.quantization.hints import hinted_types
from eqsat.rules.reader import read_text
from tests.fuzz.check import ort_outputs
from tests.quantization.runtime import needs_exact_products

Mark = Callable[[Tensor], Tensor]


def hint(dtype: str) -> Mark:
    return lambda x: op.StopFusion(op.CastHint(x, dtype=dtype))


def network(first: Mark, second: Mark = lambda x: x) -> ir.Model:
    rng = np.random.default_rng(0)

    def weights(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) / 12).astype(np.float32)

    x = eqsat.input("x", (1, 16, 48, 48))
    y = first(op.Relu(op.Conv(x, weights(16, 16, 3, 3), weights(16), pads=[1, 1, 1, 1])))
    z = second(op.Conv(y, weights(16, 16, 3, 3), pads=[1, 1, 1, 1]))
    return eqsat.graph(op.GlobalAveragePool(z + y))


def samples() -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(1).standard_normal((4, 1, 16, 48, 48)).astype(np.float32)}


def integers(result: eqsat.Result) -> set[str]:
    """Names of the types with 8 bits that the program computes with, constants left out."""
    plain = load(inline(result.model))
    values = (v for n in plain.graph for v in n.outputs)
    return {v.dtype.name.lower() for v in values if v.dtype is not None and v.dtype.bitwidth == 8}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("option", ["int8", "uint8"])
def test_a_hint_decides_for_what_is_connected(dtype: str, option: str) -> None:
    model = network(hint(dtype))
    result = eqsat.quantize(model, samples(), activation=option)
    assert integers(result) == {dtype} and result.share.floating == 0
    assert integers(eqsat.quantize(network(lambda x: x), samples(), activation=option)) == {option}


@needs_exact_products
def test_the_result_is_as_good_as_without() -> None:
    plain, hinted = network(lambda x: x), network(hint("uint8"), op.StopFusion)
    a, b = (eqsat.quantize(m, samples(), "cpu") for m in (plain, hinted))
    assert b.share.operators == a.share.operators == 1
    assert b.actual["output"] == pytest.approx(a.actual["output"], abs=3)
    arrays = {"x": samples()["x"][0]}
    (found,) = ort_outputs(ir.to_proto(b.model).SerializeToString(), arrays).values()
    np.testing.assert_array_equal(found, b.run(arrays)["output"])


def test_annotations_stay_between_the_integers() -> None:
    result = eqsat.quantize(network(hint("int8")), samples())
    marks = [n for n in inline(result.model, operators=False).graph if n.op_type == "StopFusion"]
    assert len(marks) == 1
    value = marks[0].inputs[0]
    assert value is not None and load(result.model).graph is not None
    kinds = {v.name: v.dtype for n in load(inline(result.model, operators=False)).graph for v in n.outputs}
    assert kinds[marks[0].outputs[0].name] == ir.DataType.INT8


def types(model: ir.Model) -> dict[str, str]:
    return hinted_types(list(model.graph), lambda v: v.dtype == ir.DataType.FLOAT)


def test_hints_that_contradict_each_other_decide_nothing() -> None:
    assert types(network(hint("int8"), hint("uint8"))) == {}
    assert integers(eqsat.quantize(network(hint("int8"), hint("uint8")), samples())) == {"uint8"}


def test_other_types_are_no_wish_that_can_be_followed() -> None:
    for dtype in ("int16", "float16", "int32"):
        assert types(network(hint(dtype))) == {}
    found = types(network(hint("int8"), hint("int32")))
    assert set(found.values()) == {"int8"} and "x" in found


def test_parts_that_are_not_connected_have_their_own() -> None:
    x, y = eqsat.input("x", (4, 4)), eqsat.input("y", (4, 4))
    model = eqsat.graph(
        {"a": op.Relu(op.CastHint(x, dtype="int8") + x), "b": op.Relu(op.CastHint(y, dtype="uint8") + y)}
    )
    found = types(model)
    assert (found["x"], found["a"], found["y"], found["b"]) == ("int8", "int8", "uint8", "uint8")


def test_a_rule_that_places_hints() -> None:
    (rule,) = read_text("rule r : exact\n    c: Conv(x, w, b?)  =>  CastHint(Conv(x, w, b, **c), dtype=int8)").rules
    result = eqsat.quantize(network(lambda x: x), samples(), rules=[rule])
    assert integers(result) == {"int8"} and result.share.floating == 0


def test_partition_functions_annotate_integer_composites() -> None:
    """TVM registers partition functions for its quantization."""

    def realize(call, *operands):
        return op.StopFusion(call(*operands))

    result = eqsat.quantize(
        network(lambda x: x), samples(), "ethos_n", partition_functions={"ethos_n.qnn_conv2d": realize}
    )
    bodies = [
        list(f) for f in result.model.functions.values() if f.metadata_props.get("eqsat.composite") == "qnn_conv2d"
    ]
    assert bodies and all(nodes[-1].op_type == "StopFusion" for nodes in bodies)
    arrays = {"x": samples()["x"][0]}
    (found,) = ort_outputs(ir.to_proto(result.model).SerializeToString(), arrays).values()
    (own,) = result.run(arrays).values()
    np.testing.assert_allclose(found, own, atol=float(np.abs(own).max()) / 100)
