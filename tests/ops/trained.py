"""Random trained models of ``ai.onnx.ml``: ensembles of trees, linear models, support vector machines, encoders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

from eqsat.ops.ensemble import COMPARISONS
from eqsat.ops.families.maps import ML
from eqsat.schema.types import OpKey, TensorAttr
from tests.ops.oracle import protos

TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT")
FLOAT32 = np.dtype(np.float32)


class Trained(NamedTuple):
    """One operator: its attributes, its operands, how many results it has, the version that its domain needs."""

    operator: OpKey
    attributes: dict[str, Any]
    inputs: list[np.ndarray]
    outputs: int = 1
    version: int = 3


def attributes_here(case: Trained) -> dict[str, Any]:
    """The attributes as the executor has them."""
    return {
        name: TensorAttr(v, ir.DataType.from_numpy(v.dtype)) if isinstance(v, np.ndarray) else v
        for name, v in case.attributes.items()
    }


def model_of(case: Trained, *, free: bool = False) -> onnx.ModelProto:
    """A model of one operator; with a free number of rows on request."""
    operator, attributes, inputs, outputs, version = case
    node = helper.make_node(
        operator.name, [f"x{i}" for i in range(len(inputs))], [f"y{i}" for i in range(outputs)], domain=ML
    )
    given = {n: numpy_helper.from_array(v, n) if isinstance(v, np.ndarray) else v for n, v in attributes.items()}
    node.attribute.extend(protos(operator, given))
    graph = helper.make_graph(
        [node],
        "trained",
        [
            helper.make_tensor_value_info(
                f"x{i}",
                helper.np_dtype_to_tensor_dtype(x.dtype),
                ["rows", *x.shape[1:]] if free and not i else list(x.shape),
            )
            for i, x in enumerate(inputs)
        ],
        [helper.make_value_info(f"y{i}", onnx.TypeProto()) for i in range(outputs)],
    )
    imports = [helper.make_opsetid("", 21), helper.make_opsetid(ML, version)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def floats(values: Any) -> list[float]:
    """Numbers that float32 can hold."""
    return np.asarray(values, FLOAT32).astype(float).ravel().tolist()


def grown(
    rng: np.random.Generator, trees: int, depth: int, features: int, modes: Sequence[str], missing: bool
) -> tuple[dict[str, Any], list[tuple[int, int]]]:
    """Attributes of the nodes of random trees, and their leaves as pairs of tree and node."""
    rows: list[tuple[Any, ...]] = []
    leaves: list[tuple[int, int]] = []

    def grow(tree: int, nodes: list[tuple[Any, ...]], left: int) -> int:
        number = len(nodes)
        nodes.append(())
        if left == 0 or rng.random() < 0.15:
            leaves.append((tree, number))
            nodes[number] = (tree, number, 0, 0.0, "LEAF", 0, 0, 0)
            return number
        children = [grow(tree, nodes, left - 1) for _ in range(2)]
        # Of features that are small integers, some are equal to the threshold.
        value = float(rng.integers(-3, 4)) if rng.random() < 0.5 else floats(rng.normal())[0]
        mode, tracks = str(rng.choice(modes)), int(missing and rng.random() < 0.4)
        nodes[number] = (tree, number, int(rng.integers(features)), value, mode, *rng.permutation(children), tracks)
        return number

    for tree in range(trees):
        nodes: list[tuple[Any, ...]] = []
        grow(tree, nodes, depth)
        rows += nodes
    names = (
        "treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids",
        "missing_value_tracks_true",
    )  # fmt: skip
    columns = [[x.item() if isinstance(x, np.generic) else x for x in column] for column in zip(*rows, strict=True)]
    return {f"nodes_{name}": column for name, column in zip(names, columns, strict=True)}, leaves


def rows_of(rng: np.random.Generator, count: int, features: int, dtype: np.dtype, missing: bool) -> np.ndarray:
    """Features, some of them small integers, some missing."""
    x = np.where(
        rng.random((count, features)) < 0.5, rng.integers(-3, 4, (count, features)), rng.normal(size=(count, features))
    )
    x = x.astype(dtype)
    if missing and dtype.kind == "f":
        x[rng.random(x.shape) < 0.15] = np.nan
    return x


def forest(seed: int, dtype: Any = FLOAT32, *, says_all: bool = False) -> Trained:
    """A ``TreeEnsembleRegressor`` without a transformation; where it ``says_all``, each leaf names each target."""
    rng = np.random.default_rng(seed)
    features, targets, missing = int(rng.integers(1, 6)), int(rng.choice([1, 1, 2, 3, 20])), seed % 4 > 0
    modes = COMPARISONS if seed % 3 == 0 else COMPARISONS[seed % 2 : seed % 2 + 1]
    attributes, leaves = grown(rng, int(rng.integers(1, 6)), int(rng.integers(0, 5)), features, modes, missing)
    # Of one target ONNX Runtime reads one weight of a leaf.
    kind = 1 if says_all else 0 if targets == 1 else seed % 3
    entries = []
    for leaf in leaves:
        named = [[int(rng.integers(targets))], range(targets), rng.integers(0, targets, rng.integers(1, 4)).tolist()][
            kind
        ]
        entries += [(*leaf, k, float(rng.integers(2)) if seed % 2 else floats(rng.normal())[0]) for k in named]
    columns = [list(column) for column in zip(*entries, strict=True)]
    names = ("treeids", "nodeids", "ids", "weights")
    attributes |= {f"target_{name}": column for name, column in zip(names, columns, strict=True)}
    attributes |= {"n_targets": targets, "aggregate_function": ("SUM", "AVERAGE", "MIN", "MAX")[seed % 4]}
    if seed % 5 == 0 and (says_all or targets == 1):
        attributes["base_values"] = floats(rng.normal(size=targets))
    x = rows_of(rng, (1, 2, 7, 33, 70)[seed % 5], features, np.dtype(dtype), missing)
    return Trained(OpKey(ML, "TreeEnsembleRegressor"), attributes, [x])


def classifier_of_trees(seed: int, transform: str, classes: int, *, strings: bool = False) -> Trained:
    """Boosted trees of three and more classes with a tree for each, or of two classes with one score."""
    rng = np.random.default_rng(seed)
    features, missing = int(rng.integers(1, 6)), seed % 2 > 0
    attributes, leaves = grown(rng, max(3, classes * 2), int(rng.integers(1, 5)), features, COMPARISONS[:2], missing)
    only = seed % 2
    weights = rng.random(len(leaves)) * 0.2 if seed % 3 else rng.normal(size=len(leaves))
    attributes |= {
        "class_treeids": [tree for tree, _ in leaves],
        "class_nodeids": [node for _, node in leaves],
        "class_ids": [tree % classes if classes > 2 else only for tree, _ in leaves],
        "class_weights": floats(weights),
        "post_transform": transform,
    }
    labels = [3, 8, -2, 5, 0][:classes]
    attributes |= {"classlabels_strings": [f"c{k}" for k in labels]} if strings else {"classlabels_int64s": labels}
    if seed % 4 == 0:
        attributes["base_values"] = floats(rng.normal(size=classes if classes > 2 else 1))
    x = rows_of(rng, 9, features, FLOAT32, missing)
    return Trained(OpKey(ML, "TreeEnsembleClassifier"), attributes, [x], 2)


def ensemble_of_leaves_apart(seed: int, dtype: Any = FLOAT32, *, sets: bool = False) -> Trained:
    """A ``TreeEnsemble``, whose nodes may ask whether a feature is in a set of integers other than 0."""
    rng, kind = np.random.default_rng(seed), np.dtype(dtype)
    features, targets = int(rng.integers(1, 5)), int(rng.integers(1, 4))
    nodes: list[list[int]] = []
    members: list[float] = []
    splits, modes, leaves, weights, roots = [], [], [], [], []

    def grow(left: int) -> tuple[int, int]:
        if left == 0 or (left < 3 and rng.random() < 0.2):
            leaves.append(int(rng.integers(targets)))
            weights.append(rng.normal())
            return len(leaves) - 1, 1
        number = len(nodes)
        mode = 6 if sets and rng.random() < 0.3 else int(rng.integers(6))
        nodes.append([])
        modes.append(mode)
        splits.append(0.0 if mode == 6 else float(rng.integers(-3, 4)))
        if mode == 6:
            members.extend([*rng.choice([-3, -2, -1, 1, 2, 3], rng.integers(1, 5), replace=False).tolist(), np.nan])
        true, false = grow(left - 1), grow(left - 1)
        nodes[number] = [int(rng.integers(features)), *true, *false, int(rng.random() < 0.3)]
        return number, 0

    for _ in range(int(rng.integers(1, 5))):
        roots.append(len(nodes))
        grow(3)
    columns = [list(column) for column in zip(*nodes, strict=True)]
    names = ("featureids", "truenodeids", "trueleafs", "falsenodeids", "falseleafs", "missing_value_tracks_true")
    attributes: dict[str, Any] = {f"nodes_{name}": column for name, column in zip(names, columns, strict=True)}

    def tensor(name: str, values: Any, of: Any) -> None:
        attributes[name] = np.asarray(values, of)

    tensor("nodes_splits", splits, kind)
    tensor("nodes_modes", modes, np.uint8)
    tensor("leaf_weights", weights, kind)
    if members:
        tensor("membership_values", members, kind)
    attributes |= {
        "tree_roots": roots, "leaf_targetids": leaves, "n_targets": targets, "aggregate_function": seed % 4,
        "post_transform": 0,
    }  # fmt: skip
    x = rows_of(rng, 40, features, kind, seed % 2 > 0)
    return Trained(OpKey(ML, "TreeEnsemble"), attributes, [x], version=5)


def support_vectors(seed: int, kernel: str, classes: int, transform: str, dtype: Any = FLOAT32) -> Trained:
    """A regressor for no classes, else a classifier, with probabilities for every other seed."""
    rng, features = np.random.default_rng(seed), 4
    x = (rng.normal(size=(6, features)) * 2).astype(dtype)
    attributes: dict[str, Any] = {"kernel_type": kernel, "kernel_params": floats([0.3, 0.2, 3])}
    attributes["post_transform"] = transform
    if not classes:
        attributes |= {
            "support_vectors": floats(rng.normal(size=(7, features))), "coefficients": floats(rng.normal(size=7)),
            "rho": [0.25], "n_supports": 7, "one_class": seed % 2,
        }  # fmt: skip
        return Trained(OpKey(ML, "SVMRegressor"), attributes, [x])
    per_class, pairs = rng.integers(1, 4, classes), classes * (classes - 1) // 2
    total = int(per_class.sum())
    attributes |= {
        "support_vectors": floats(rng.normal(size=(total, features))),
        "coefficients": floats(rng.normal(size=(classes - 1, total))),
        "rho": floats(rng.normal(size=pairs)),
        "vectors_per_class": per_class.tolist(),
        "classlabels_ints": [5, 3, 9, -1, 7][:classes],
    }
    if seed % 2:
        attributes |= {"prob_a": floats(-rng.random(pairs) - 0.5), "prob_b": floats(rng.normal(size=pairs) * 0.2)}
    return Trained(OpKey(ML, "SVMClassifier"), attributes, [x], 2)


def linear_models() -> Iterator[Trained]:
    """Regressors of one and two targets, classifiers of one score and of several."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(5, 3)).astype(FLOAT32)
    coefficients = floats(rng.normal(size=9))
    for transform in TRANSFORMS:
        shared = {"post_transform": transform}
        one, two = {"coefficients": coefficients[:3]}, {"coefficients": coefficients[:6]}
        for attributes in ({**one, "intercepts": [0.5]}, one, {**two, "intercepts": [0.5, -0.25], "targets": 2}):
            yield Trained(OpKey(ML, "LinearRegressor"), {**attributes, **shared}, [x])
        several = [
            {**one, "intercepts": [0.5]},
            {**two, "intercepts": [0.5, -0.25], "classlabels_ints": [5, 7]},
            {"coefficients": coefficients, "intercepts": [0.5, -0.25, 0.0], "classlabels_ints": [0, 1, 2]},
        ]
        if transform != "PROBIT":
            several.append({**one, "intercepts": [0.5], "classlabels_ints": [5, 7]})
        for attributes in several:
            for dtype in (np.float32, np.float64, np.int64, np.int32):
                yield Trained(OpKey(ML, "LinearClassifier"), {**attributes, **shared}, [(4 * x).astype(dtype)], 2)


def prepared_features() -> Iterator[Trained]:
    """Scalers, normalizers, imputers and encoders; of types and ranks that ONNX Runtime has kernels for."""
    table = np.array([[1, -3, 2], [0, 0, 0], [-1, -2, -4], [0.5, 0.25, 8], [0, -1, -2]], FLOAT32)
    missing = np.where(table == 0.25, np.nan, table).astype(FLOAT32)
    for dtype in (np.float32, np.float64, np.int64, np.int32):
        x = table.astype(dtype)
        for given in (x, x[0]):
            for norm in ("MAX", "L1", "L2"):
                yield Trained(OpKey(ML, "Normalizer"), {"norm": norm}, [given])
            yield Trained(OpKey(ML, "Scaler"), {"offset": [1.0, 2.0, 3.0], "scale": [2.0, 3.0, 0.5]}, [given])
            yield Trained(OpKey(ML, "Scaler"), {"offset": [1.5], "scale": [0.25]}, [given])
            yield Trained(OpKey(ML, "ArrayFeatureExtractor"), {}, [given, np.array([[2, 0, 2]])])
            if dtype != np.int32:
                yield Trained(OpKey(ML, "OneHotEncoder"), {"cats_int64s": [1, 2, -3, 0]}, [given])
        yield Trained(OpKey(ML, "ArrayFeatureExtractor"), {}, [x.reshape(1, 5, 3), np.array([[1], [0]])])
        yield Trained(OpKey(ML, "FeatureVectorizer"), {"inputdimensions": [2, 4, 3]}, [x, x, x])
    for value, x in ((0.0, table), (float("nan"), missing)):
        for values in ([7.0], [7.0, 8.0, 9.0]):
            yield Trained(OpKey(ML, "Imputer"), {"imputed_value_floats": values, "replaced_value_float": value}, [x])
    whole = table.astype(np.int64)
    yield Trained(OpKey(ML, "Imputer"), {"imputed_value_int64s": [7, 8, 9], "replaced_value_int64": -1}, [whole])
    for threshold in (0.0, 0.5):
        yield Trained(OpKey(ML, "Binarizer"), {"threshold": threshold}, [table.reshape(1, 5, 3)])
    numbers = {"keys_int64s": [3, -1, 0, 2], "values_floats": [0.5, 0.25, 8.0, 1.0], "default_float": -2.0}
    yield Trained(OpKey(ML, "LabelEncoder"), numbers, [whole])
    yield Trained(OpKey(ML, "LabelEncoder"), {"keys_int64s": [1, -4], "values_int64s": [9, 6]}, [whole])
    by_nan = {"keys_floats": [2.0, 0.5, 0.0, float("nan")], "values_int64s": [7, 8, 9, 10], "default_int64": -5}
    yield Trained(OpKey(ML, "LabelEncoder"), by_nan, [missing], version=4)
    tensors = {"keys_tensor": np.array([-3.0, 0.0, 2.0]), "values_tensor": np.array([0.5, 0.1, 7.0])}
    tensors["default_tensor"] = np.array([0.3])
    yield Trained(OpKey(ML, "LabelEncoder"), tensors, [table.astype(np.float64)], version=4)
    yield Trained(OpKey(ML, "LabelEncoder"), {"keys_floats": [8.0, -3.0], "values_floats": [7.0, 9.0]}, [missing])
