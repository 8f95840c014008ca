"""Named sets contain what their descriptions say, by executing and by ONNX's schemas."""

from __future__ import annotations

import numpy as np
import pytest

from eqsat.errors import EqsatError
from eqsat.ops.evaluate import evaluate
from eqsat.ops.operators import declared, has
from eqsat.ops.properties import is_commutative, is_deterministic
from eqsat.ops.sets import operator_sets
from eqsat.ops.traits import Trait
from eqsat.schema.attributes import default_attrs
from eqsat.schema.opset import input_arity, input_dtypes, is_variadic, schema
from eqsat.schema.types import OpKey

SETS = operator_sets()
X = np.random.default_rng(0).uniform(0.1, 0.9, (2, 3, 4))
SPECIAL = {"Cast": (("to", 1),), "BitShift": (("direction", "LEFT"),), "Mod": (("fmod", 1),)}


def names(of: str) -> set[str]:
    return {op.name for op in SETS[of].operators}


def operands(op: OpKey, count: int) -> list[np.ndarray]:
    """Arrays of types that the operator takes, all different."""
    found = []
    for i in range(count):
        allowed = {d.numpy() for d in input_dtypes(op, i)}
        kind = next(np.dtype(k) for k in ("float32", "bool", "uint8") if np.dtype(k) in allowed)
        values = np.roll(X, i) * (16 if kind.kind == "u" else 1)
        found.append(values > 0.5 if kind.kind == "b" else values.astype(kind))
    return found


def test_each_set_is_sorted_and_described() -> None:
    for name, found in SETS.items():
        assert found.name == name and found.doc and found.operators
        assert list(found.operators) == sorted(found.operators)
        domain = name.rpartition(".")[0]
        assert all(op.domain == domain and not schema(op).deprecated for op in found.operators)


def test_what_is_in_and_what_is_not() -> None:
    assert {"Relu", "Exp", "Not"} <= names("unary") < names("elementwise")
    assert not names("elementwise") & (names("reductions") | names("random") | {"Softmax", "Conv", "CumSum"})
    assert (
        names("reductions") == {n for n in names("reductions") if n.startswith("Reduce")}
        and len(names("reductions")) == 10
    )
    assert {"Transpose", "Concat", "Gather"} <= names("movement") and "Cast" not in names("movement")
    assert "Upsample" not in set().union(*map(names, SETS)), "no longer an operator at the pinned opset"


@pytest.mark.parametrize("name", sorted(names("unary")))
def test_unary_operators_have_one_operand(name: str) -> None:
    assert input_arity(OpKey("", name)) == (1, 1)


@pytest.mark.parametrize(
    "op", [op for name in ("elementwise", "com.microsoft.elementwise") for op in SETS[name].operators], ids=str
)
def test_elements_depend_on_their_place_alone(op: OpKey) -> None:
    """Reordering all operands reorders the result, and other elements do not change one."""
    name = op.name
    attrs = tuple(sorted((dict(default_attrs(op)) | dict(SPECIAL.get(name, ()))).items()))
    count = 3 if name in ("Where", "Clip") else 2 if is_variadic(op) else input_arity(op)[0]
    inputs = operands(op, count)
    if name == "Clip":
        inputs[1:] = [np.float32(0.3), np.float32(0.6)]
    (whole,) = evaluate(op, attrs, inputs)
    order = np.random.default_rng(1).permutation(X.size)

    def moved(x: np.ndarray) -> np.ndarray:
        return x.reshape(-1)[order].reshape(x.shape) if x.shape else x

    (again,) = evaluate(op, attrs, [moved(x) for x in inputs])
    assert whole is not None and again is not None and whole.shape == X.shape
    np.testing.assert_array_equal(again, moved(whole))
    (one,) = evaluate(op, attrs, [x[:1, 1:2, 2:3] if x.shape else x for x in inputs])
    assert one is not None
    np.testing.assert_array_equal(one, whole[:1, 1:2, 2:3])


def test_sets_agree_with_the_properties() -> None:
    for entry in declared():
        in_onnx = not entry.op.domain and entry.op.name in {op.name for s in SETS.values() for op in s.operators}
        if in_onnx:
            assert is_commutative(entry.op) == (entry.op.name in names("commutative"))
            assert has(entry.op, Trait.RANDOM) == (entry.op.name in names("random"))
    assert not any(is_deterministic(OpKey("", n)) for n in names("random"))


def test_movement_does_no_arithmetic() -> None:
    """What moves elements gives elements of its input, where it can be evaluated with defaults."""
    seen = 0
    for name in sorted(names("movement")):
        op = OpKey("", name)
        try:
            (result,) = evaluate(op, default_attrs(op), [X.astype(np.float32)])
        except EqsatError:
            continue
        if isinstance(result, np.ndarray) and result.dtype == np.float32:
            seen += 1
            assert np.isin(result[result != 0], X.astype(np.float32)).all(), name
    assert seen >= 4
