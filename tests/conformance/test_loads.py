"""A selection of ``make ort-loads``: operators that ONNX Runtime has no kernel for, in all types."""

from __future__ import annotations

import onnx
import pytest

import eqsat
from eqsat.model.load import load
from tests.conformance import loads

OPERATORS = (
    *("LeakyRelu", "PRelu", "Relu", "Elu", "Swish", "Mish", "HardSwish", "Gelu", "Softplus", "Selu", "ThresholdedRelu"),
    *("CastLike", "Clip", "Celu", "GlobalLpPool"),
)
WITHOUT_KERNEL = (
    "LeakyRelu/double/18",
    "PRelu/int64/18",
    "Relu/int64/18",
    "Swish/float16/24",
    "Selu/double/18",
    "ReduceLogSumExp/uint32/18",
)
NODES = (
    *("affine_grid_2d_expanded", "affine_grid_3d_align_corners_expanded", "center_crop_pad_crop_and_pad"),
    *("castlike_FLOAT_to_DOUBLE", "castlike_FLOAT_to_STRING", "group_normalization_example", "swish", "mish"),
    *("hardswish", "nllloss_NC", "sce_mean", "sequence_map_add_2_sequences", "gelu_tanh_1", "swish_expanded"),
)


@pytest.mark.parametrize("operator", OPERATORS)
def test_an_operator_runs_as_before(operator: str) -> None:
    chosen = [i for i in loads.operator_cases() if i.startswith(f"operator/{operator}/")]
    newest = [i for i in chosen if i.rpartition("/")[2] in ("18", "24")]
    assert [(i, r) for i in newest if (r := loads.outcome(i)).startswith("fail")] == []


@pytest.mark.parametrize("name", WITHOUT_KERNEL)
def test_without_a_kernel_the_definition_is_written(name: str) -> None:
    assert loads.outcome(f"operator/{name}") == "pass"
    operator, element, opset = name.split("/")
    result = eqsat.optimize(loads.operator_model(operator, element, int(opset)))
    assert [n.op_type for n in result.model.graph] == [operator]
    assert operator not in {n.op_type for n in onnx.load_from_string(loads.saved(result)).graph.node}


@pytest.mark.parametrize("name", NODES)
def test_a_case_runs_as_before(name: str) -> None:
    assert not loads.outcome(f"node/test_{name}").startswith("fail")


def test_what_composites_hold_is_written_so_that_it_runs() -> None:
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 24]>
    g (float[256,512] x, float[512,512] w) => (float[256,512] y) {
        c = MatMul(x, w) d = Swish<alpha=0.5>(c) e = MatMul(d, w) y = Swish(e) }""")
    result = eqsat.optimize(model, ["dnnl"])
    assert result.summary.after.composites == 2
    inputs = [a * 0.1 for a in loads.inputs_of(model)]
    (wanted,), (got,) = loads.run_ort(model.SerializeToString(), inputs), loads.run_ort(loads.saved(result), inputs)
    loads.compare(got, wanted, 1e-5)


def test_a_branch_of_unknown_shape_leaves_the_shape_open() -> None:
    text = """<ir_version: 10, opset_import: ["": 20]> g (float[2,1,3] x, bool c, int64[n] k) => (y) {
        y = If(c)<then_branch = t () => (p) { p = Squeeze(x, k) },
                  else_branch = e () => (float[2,1,3] q) { q = Identity(x) }> }"""
    assert load(text).graph.outputs[0].shape is None


def test_the_list_of_known_failures_names_cases() -> None:
    assert set(loads.known()) <= set(loads.identifiers(list(loads.KINDS)))
