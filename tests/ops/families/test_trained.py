"""Trained models in numpy against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import numpy_helper

from eqsat.errors import ModelError
from eqsat.model.load import load
from eqsat.ops.families.maps import ML
from eqsat.schema.types import OpKey
from tests.ops import trained
from tests.ops.oracle import run_ours, run_reference, same
from tests.ops.trained import Trained, model_of


def runtime(case: Trained) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model_of(case).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return list(session.run(None, {f"x{i}": x for i, x in enumerate(case.inputs)}))


def agree(case: Trained, rtol: float = 0.0, atol: float = 0.0) -> None:
    found = run_ours(case.operator, trained.attributes_here(case), case.inputs, case.outputs, case.version)
    for ours, theirs in zip(found, runtime(case), strict=True):
        if case.attributes.get("post_transform") == "SOFTMAX_ZERO":
            # Of scores that are all zero, which ONNX Runtime divides by their sum.
            theirs = np.where(np.isnan(theirs), np.float32(0.5), theirs) if theirs.dtype == np.float32 else theirs
        if theirs.dtype == object:
            assert ours.tolist() == theirs.tolist()
        else:
            same(ours, theirs, rtol, atol, f"{case.operator} {case.attributes.get('post_transform')}")


def all_agree(cases: Iterable[Trained], rtol: float = 0.0, atol: float = 0.0) -> None:
    for case in cases:
        agree(case, rtol, atol)


# ---- trees -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_of_trees(dtype: type) -> None:
    all_agree((trained.forest(seed, dtype) for seed in range(40)), 1e-6, 1e-6)
    all_agree((trained.forest(seed, dtype, says_all=True) for seed in range(0, 40, 5)), 1e-6, 1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_leaves_that_are_listed_apart(dtype: type) -> None:
    all_agree((trained.ensemble_of_leaves_apart(seed, dtype) for seed in range(24)), 1e-6, 1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nodes_that_ask_for_members_of_sets(dtype: type) -> None:
    """ONNX Runtime takes a set for bits of a number."""
    for seed in range(1, 24, 4):  # Sums, in which nothing is left open.
        case = trained.ensemble_of_leaves_apart(seed, dtype, sets=True)
        tensors = {n: numpy_helper.from_array(v, n) for n, v in case.attributes.items() if isinstance(v, np.ndarray)}
        theirs = run_reference(case.operator, {**case.attributes, **tensors}, case.inputs, version=5)
        same(run_ours(case.operator, trained.attributes_here(case), case.inputs)[0], theirs[0], 1e-6, 1e-6)


@pytest.mark.parametrize("transform", trained.TRANSFORMS)
def test_transformed_sums(transform: str) -> None:
    for seed in range(1, 20):
        case = trained.forest(seed, says_all=True)
        agree(case._replace(attributes={**case.attributes, "post_transform": transform}), 1e-5, 1e-6)


@pytest.mark.parametrize("transform", trained.TRANSFORMS)
@pytest.mark.parametrize("classes", [2, 3, 5])
def test_classes_of_trees(classes: int, transform: str) -> None:
    for seed in range(12):
        if classes == 2 and (transform == "PROBIT" or (seed % 2 and seed % 4 == 0)):
            continue  # ONNX Runtime reads memory that it has not written.
        agree(trained.classifier_of_trees(seed, transform, classes, strings=seed % 3 == 1), 1e-5, 1e-6)


def test_trees_of_one_class_say_whether_its_score_is_above_zero() -> None:
    for seed in range(4):
        case = trained.classifier_of_trees(seed, "NONE", 2)
        attributes = {
            **case.attributes,
            "classlabels_int64s": [7],
            "class_ids": [0] * len(case.attributes["class_ids"]),
        }
        agree(case._replace(attributes=attributes), 1e-6, 1e-6)


def test_many_rows_are_evaluated_in_parts() -> None:
    case = trained.forest(7)
    x = np.tile(case.inputs[0], (3000, 1)) + np.arange(3000 * len(case.inputs[0]), dtype=np.float32)[:, None] % 3
    agree(case._replace(inputs=[x]), 1e-6, 1e-6)


# ---- what does not fit -------------------------------------------------------------------------------


def _stump(**changed: Any) -> Trained:
    attributes = {
        "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [1, 0, 0],
        "nodes_values": [0.5, 0.0, 0.0], "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0], "target_treeids": [0, 0],
        "target_nodeids": [1, 2], "target_ids": [0, 0], "target_weights": [1.0, 2.0], "n_targets": 1,
    }  # fmt: skip
    x = np.zeros((3, 2), np.float32)
    return Trained(OpKey(ML, "TreeEnsembleRegressor"), {**attributes, **changed}, [x])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"nodes_values": [0.5]}, "nodes_values has 1 elements, not 3"),
        ({"nodes_modes": ["BRANCH_LE", "LEAF", "LEAF"]}, "nodes_modes has 'BRANCH_LE', not one of LEAF, BRANCH_LEQ"),
        ({"nodes_truenodeids": [9, 0, 0]}, "nodes_truenodeids of node 0 of tree 0 is 9, which is no node"),
        ({"nodes_falsenodeids": [0, 0, 0]}, "a node leads back to itself"),
        ({"nodes_nodeids": [0, 1, 1]}, "two nodes have the same number in the same tree"),
        ({"nodes_featureids": [2, 0, 0]}, "X has 2 features, and the trees compare feature 2"),
        ({"target_ids": [0, 1]}, "a leaf has target 1, and targets are counted from 0 to 0"),
        ({"target_nodeids": [1, 5]}, "target_nodeids names node 5 of tree 0, which does not exist"),
        ({"base_values": [1.0, 2.0]}, "base_values has 2 elements, not 1"),
        ({"target_ids": [0]}, "target_treeids has 2 elements, not 1"),
        ({"n_targets": 0}, "n_targets is 0"),
    ],
)
def test_trees_that_are_none_are_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError) as found:
        load(model_of(_stump(**changed)))
    assert message in str(found.value)


def test_the_stump_itself_is_accepted() -> None:
    load(model_of(_stump()))
    agree(_stump())


# ---- the others --------------------------------------------------------------------------------------


def test_linear_models() -> None:
    all_agree(trained.linear_models(), 1e-5, 1e-6)


def test_prepared_features() -> None:
    all_agree(trained.prepared_features(), 1e-6)


@pytest.mark.parametrize("kernel", ["LINEAR", "POLY", "RBF", "SIGMOID"])
@pytest.mark.parametrize("classes", [0, 2, 3, 5])
def test_support_vectors(classes: int, kernel: str) -> None:
    for seed in range(4):
        for transform in ("NONE", "LOGISTIC", *(("SOFTMAX", "SOFTMAX_ZERO", "PROBIT") if classes > 2 else ())):
            dtype = (np.float32, np.float32, np.float64, np.int64)[seed] if classes else np.float32
            agree(trained.support_vectors(seed, kernel, classes, transform, dtype), 3e-5, 3e-5)


def test_support_vectors_far_from_the_origin_keep_their_distances() -> None:
    case = trained.support_vectors(0, "RBF", 0, "NONE")
    moved = [v + 1024 for v in case.attributes["support_vectors"]]
    agree(case._replace(attributes={**case.attributes, "support_vectors": moved}, inputs=[case.inputs[0] + 1024]), 2e-4)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"coefficients": [1.0]}, "coefficients has 1 elements, not 1 for each of 7 vectors"),
        ({"rho": [1.0, 2.0]}, "rho has 2 elements, not 1"),
        ({"kernel_type": "COSINE"}, "kernel_type is 'COSINE', not one of LINEAR, POLY, RBF, SIGMOID"),
        ({"support_vectors": [1.0] * 21}, "X has 4 features, and the support vectors 3"),
    ],
)
def test_support_vectors_that_do_not_fit_are_refused(changed: dict[str, Any], message: str) -> None:
    case = trained.support_vectors(0, "RBF", 0, "NONE")
    with pytest.raises(ModelError) as found:
        load(model_of(case._replace(attributes={**case.attributes, **changed})))
    assert message in str(found.value)
