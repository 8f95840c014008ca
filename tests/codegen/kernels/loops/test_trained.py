"""Trained models in C: kernels against the numpy executor, and whole models against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx
import pytest
from onnx import helper

import eqsat
from eqsat.codegen.kernels.loops.tree_tables import TooMany, tables
from eqsat.ops.ensemble import Ensemble, ensemble
from eqsat.ops.families.maps import ML
from eqsat.ops.schemas import defaults
from tests.codegen.kernels.loops import harness
from tests.codegen.kernels.loops.judge import same
from tests.ops import trained
from tests.ops.families.test_trained import runtime
from tests.ops.oracle import canonical, run_ours
from tests.ops.trained import Trained, model_of

STRICT = ("-Wall", "-Wextra", "-Werror")


def check_kernels(cases: Iterable[Trained], units: float = 0) -> None:
    """Every other case has gaps between elements and axes in another order."""
    made, wanted = [], []
    for number, case in enumerate(cases):
        results = run_ours(case.operator, trained.attributes_here(case), case.inputs, case.outputs)
        found = harness.case(
            f"case{number}",
            case.operator,
            {**defaults(case.operator), **canonical(case.attributes)},
            case.inputs,
            [(y.shape, y.dtype) for y in results],
            rng=np.random.default_rng(number) if number % 2 else None,
        )
        assert found is not None
        made.append(found)
        wanted.append(results)
    for number, (found, results) in enumerate(zip(harness.run(made, STRICT), wanted, strict=True)):
        for ours, theirs in zip(found, results, strict=True):
            assert ours is not None
            same(ours, theirs, f"case{number}", units)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int32])
def test_sums_of_trees_are_equal_to_the_bit(dtype: type) -> None:
    check_kernels(trained.forest(seed, dtype, says_all=seed % 7 == 0) for seed in range(60))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_leaves_that_are_listed_apart(dtype: type) -> None:
    cases = (trained.ensemble_of_leaves_apart(seed, dtype, sets=seed % 2 > 0) for seed in range(40))
    check_kernels(cases, 1 if dtype == np.float16 else 0)


@pytest.mark.parametrize("kernel", ["LINEAR", "POLY", "RBF", "SIGMOID"])
def test_support_vectors(kernel: str) -> None:
    check_kernels(
        (
            trained.support_vectors(seed, kernel, classes, "NONE", dtype)
            for classes in (0, 2, 3, 5)
            for seed in range(3)
            for dtype in (np.float32, np.float64, np.int64)
        ),
        256,
    )


def test_labels_are_found() -> None:
    check_kernels(case for case in trained.prepared_features() if case.operator.name == "LabelEncoder")


def _nodes(count: int, true: list[int], false: list[int]) -> Ensemble:
    zeros = np.zeros(count, np.int64)
    return Ensemble(
        zeros, zeros.astype(np.float32), zeros.astype(np.uint8), zeros > 0, np.array(true), np.array(false),
        np.array([0]), np.arange(3), np.zeros(2, np.int64), np.array([1, 2], np.float32), 1,
    )  # fmt: skip


def test_nodes_that_several_lead_to_stand_once_or_are_repeated() -> None:
    made = tables(_nodes(3, [2, 2, -1], [1, -2, -2]))
    # 0, its false child 1, its leaf, then 2, which both jump to, and the leaves of 2.
    assert made.jump.tolist() == [3, 2, 0, 2, 0, 0]
    count = 40
    doubling = _nodes(count, [*range(1, count), -1], [*range(2, count), -2, -2])
    with pytest.raises(TooMany):
        tables(doubling)


def test_tables_are_small() -> None:
    case = trained.forest(1)
    made = tables(ensemble(case.attributes, np.float32))
    assert {made.root.dtype, made.jump.dtype, made.feature.dtype} == {np.dtype(np.uint8)}


def _joined(cases: list[Trained], *, free: bool) -> onnx.ModelProto:
    """A model with an operator for each case."""
    nodes, inputs, outputs = [], [], []
    for number, case in enumerate(cases):
        graph = onnx.compose.add_prefix_graph(model_of(case, free=free).graph, f"c{number}_")
        nodes += graph.node
        inputs += graph.input
        outputs += graph.output
    made = helper.make_graph(nodes, "joined", inputs, outputs)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid(ML, 4)]
    return helper.make_model(made, opset_imports=imports, ir_version=10)


def _whole_models() -> list[Trained]:
    classes = [
        trained.classifier_of_trees(seed, transform, n)
        for seed in (1, 2, 4)
        for n in (2, 3)
        for transform in trained.TRANSFORMS
        if n > 2 or transform != "PROBIT"
    ]
    machines = [trained.support_vectors(1, "RBF", 3, transform) for transform in ("LOGISTIC", "SOFTMAX")]
    return [*classes, *machines, *trained.linear_models(), *trained.prepared_features()]


@pytest.mark.slow
def test_whole_models_in_c_agree_with_onnx_runtime() -> None:
    cases = _whole_models()
    compiled = eqsat.compile(_joined(cases, free=False))
    found = iter(_results(compiled, [x for case in cases for x in case.inputs]))
    for case in cases:
        for theirs in runtime(case):
            _near(next(found), theirs, case)


@pytest.mark.slow
def test_the_number_of_rows_may_be_free() -> None:
    cases = [case for case in _whole_models() if len(case.inputs) == 1 and case.inputs[0].ndim == 2]
    compiled = eqsat.compile(_joined(cases, free=True), dims={"rows": (1, 64)})
    for rows in (1, 2, 37):
        given = [np.resize(case.inputs[0], (rows, case.inputs[0].shape[1])) for case in cases]
        found = iter(_results(compiled, given))
        for case, x in zip(cases, given, strict=True):
            for theirs in runtime(case._replace(inputs=[x])):
                _near(next(found), theirs, case)


def _results(compiled: eqsat.Compiled, given: list[np.ndarray]) -> list[np.ndarray]:
    found = compiled(*given)
    return list(found.values()) if isinstance(found, dict) else list(found)


def _near(ours: np.ndarray, theirs: np.ndarray, case: Trained) -> None:
    if case.attributes.get("post_transform") == "SOFTMAX_ZERO" and theirs.dtype == np.float32:
        theirs = np.where(np.isnan(theirs), np.float32(0.5), theirs)
    assert ours.dtype == theirs.dtype
    np.testing.assert_allclose(ours, theirs, rtol=3e-5, atol=3e-6, err_msg=str(case.operator))
