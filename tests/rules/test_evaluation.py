"""Evaluation of expressions: against Python where they mean the same, and what is unknown."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eqsat.rules.ast import Condition, Expr, Place
from eqsat.rules.element_types import DTYPES
from eqsat.rules.evaluation import NodeFacts, TensorFacts, Unknown, Uses, evaluate, holds, uses
from eqsat.schema.dtypes import dtype_name, limits
from eqsat.schema.types import OpKey, TensorType
from tests.rules.reading import expression, rule

FLOAT = ir.DataType.FLOAT


def tensor(
    *shape: int | str | None, dtype: ir.DataType = FLOAT, value: object = None, const: bool = False
) -> TensorFacts:
    array = None if value is None else np.asarray(value, dtype=dtype.numpy())
    return TensorFacts(TensorType(dtype, shape if array is None else array.shape), array, const or array is not None)


def value(array: object, dtype: ir.DataType = FLOAT) -> TensorFacts:
    return tensor(value=array, dtype=dtype)


ABSENT = TensorFacts(None, None, True, False)
ENV: dict[str, object] = {
    "x": tensor("N", 3, 4, 4),
    "w": tensor(8, 3, 3, 3, const=True),
    "b": ABSENT,
    "n": NodeFacts(
        OpKey("", "Conv"),
        (("auto_pad", "NOTSET"), ("dilations", (1, 1)), ("group", 1), ("pads", (0, 1, 0, 1)), ("strides", (2, 2))),
        tensor("N", 8, 2, 2),
    ),
}


def result(text: str, **env: object) -> object:
    given_ = {**ENV, **env}
    return evaluate(expression(text), given_)


# ---- against Python ------------------------------------------------------------------------------

NUMBERS = st.one_of(st.integers(-20, 20), st.sampled_from([0.5, 1.5, 2.0, -3.25]))


@st.composite
def numeric(draw: st.DrawFn, depth: int = 3) -> str:
    """The text of an expression over numbers that is also Python."""
    if depth == 0 or draw(st.booleans()):
        number = draw(NUMBERS)
        return f"({number})" if number < 0 else str(number)
    kind = draw(st.sampled_from(["binary", "negative", "call", "conditional", "list", "reduce"]))
    if kind == "binary":
        op = draw(st.sampled_from(["+", "-", "*", "/", "//", "%"]))
        return f"{draw(numeric(depth - 1))} {op} {draw(numeric(depth - 1))}"
    if kind == "negative":
        return f"-({draw(numeric(depth - 1))})"
    if kind == "call":
        return f"{draw(st.sampled_from(['abs', 'floor', 'ceil', 'round']))}({draw(numeric(depth - 1))})"
    if kind == "conditional":
        return f"({draw(numeric(depth - 1))} if {draw(logical(depth - 1))} else {draw(numeric(depth - 1))})"
    if kind == "list":
        return f"({draw(lists(depth - 1))})[{draw(st.integers(-3, 3))}]"
    return f"{draw(st.sampled_from(['sum', 'prod', 'min', 'max', 'len']))}({draw(lists(depth - 1))})"


@st.composite
def lists(draw: st.DrawFn, depth: int = 2) -> str:
    """The text of an expression that is a list of numbers."""
    if depth <= 0 or draw(st.booleans()):
        return f"[{', '.join(draw(st.lists(numeric(0), max_size=3)))}]"
    kind = draw(st.sampled_from(["range", "comprehension", "slice", "add", "repeat", "sorted"]))
    inner = draw(lists(depth - 1))
    match kind:
        case "range":
            return f"range({draw(st.integers(0, 5))}, {draw(st.integers(0, 6))})"
        case "comprehension":
            return f"[i * 2 for i in {inner} if i {draw(st.sampled_from(['<', '>=', '!=']))} {draw(numeric(0))}]"
        case "slice":
            return f"({inner})[{draw(st.sampled_from(['', '1', '-2']))}:{draw(st.sampled_from(['', '2', '-1']))}]"
        case "add":
            return f"{inner} + {draw(lists(depth - 1))}"
        case "repeat":
            return f"({inner}) * {draw(st.integers(-1, 3))}"
        case _:
            return f"sorted({inner})"


@st.composite
def logical(draw: st.DrawFn, depth: int = 2) -> str:
    """The text of an expression that is true or false."""
    if depth <= 0 or draw(st.booleans()):
        op = draw(st.sampled_from(["==", "!=", "<", "<=", ">", ">="]))
        return f"{draw(numeric(1))} {op} {draw(numeric(1))}"
    kind = draw(st.sampled_from(["and", "or", "not", "in", "chain", "equal", "all"]))
    match kind:
        case "and" | "or":
            return f"({draw(logical(depth - 1))}) {kind} ({draw(logical(depth - 1))})"
        case "not":
            return f"not ({draw(logical(depth - 1))})"
        case "in":
            return f"{draw(numeric(0))} {draw(st.sampled_from(['in', 'not in']))} ({draw(lists(depth))})"
        case "chain":
            return f"{draw(numeric(0))} < {draw(numeric(0))} <= {draw(numeric(0))}"
        case "equal":
            return f"({draw(lists(depth))}) == ({draw(lists(depth))})"
        case _:
            return f"{draw(st.sampled_from(['all', 'any']))}([i > 0 for i in {draw(lists(depth))}])"


PYTHON = {
    "floor": math.floor,
    "ceil": math.ceil,
    "prod": math.prod,
    "range": lambda *a: list(range(*a)),
}


def as_python(found: object) -> object:
    return [as_python(i) for i in found] if isinstance(found, tuple) else found


@pytest.mark.slow
@settings(max_examples=300)
@given(st.one_of(numeric(), lists(), logical()))
def test_as_python(text: str) -> None:
    try:
        expected = eval(text, dict(PYTHON))
    except (ArithmeticError, ValueError, IndexError):
        # What has no value may not matter: `1 / 0 == 1 or true` is true.
        if not any(word in text for word in (" or ", " and ", " in ", "all(", "any(")):
            with pytest.raises(Unknown):
                result(text)
        return
    found = as_python(result(text))
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2 ** 10", 1024),
        ("2 ** -1", 0.5),
        ("-2 ** 2", -4),
        ("7 // 2", 3),
        ("-7 // 2", -4),
        ("-7 % 3", 2),
        ("7 / 2", 3.5),
        ("1 - 2 - 3", -4),
        ("not true or true", True),
        ("true and not false", True),
        ('"abc"', "abc"),
        ('"a" in ["a", "b"]', True),
        ('"b" in "abc"', True),
        ("(1, 2) == [1, 2]", True),
        ("[]", ()),
        ("sqrt(16)", 4.0),
        ("log2(8)", 3.0),
        ("exp(0)", 1.0),
        ("log(1)", 0.0),
        ("max(1, 2, 3)", 3),
        ("min([4, 2])", 2),
        ("reversed([1, 2])", (2, 1)),
        ("index([5, 6], 6)", 1),
        ("[p[0] + p[1] for p in zip([1, 2], [3, 4])]", (4, 6)),
        ("range(3)", (0, 1, 2)),
        ("range(6, 0, -2)", (6, 4, 2)),
        ("1e3", 1000.0),
        ("-inf < 0", True),
        ("inf <= 1e300", False),
        ("0.0 == 1e-300", False),
        ("[1] == [true]", False),
        ("1.0 == 1", True),
        ("[1, 2][-1]", 2),
        ("[[1, 2], [3, 4]][1][0]", 3),
    ],
)
def test_values(text: str, expected: object) -> None:
    found = result(text)
    assert found == expected
    assert type(found) is type(expected)


# ---- facts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("w.shape", (8, 3, 3, 3)),
        ("w.rank", 4),
        ("w.size", 216),
        ("w.dtype", FLOAT),
        ("w.dtype == float32", True),
        ("w.dtype in (int8, uint8)", False),
        ("w.dtype in floats", True),
        ("x.rank", 4),
        ("x.shape[1]", 3),
        ("x.shape[2:]", (4, 4)),
        ("x.shape[-1] == w.shape[0] / 2", True),
        ("w.is_const", True),
        ("x.is_const", False),
        ("const(w)", True),
        ("const(w, x)", False),
        ("n.strides", (2, 2)),
        ("n.group", 1),
        ("n.auto_pad", "NOTSET"),
        ('n.auto_pad == "NOTSET"', True),
        ("n.shape[1]", 8),
        ("n.rank", 4),
        ("x.shape == x.shape", False),  # the anonymous case is below: N equals N
        ("n.shape[0] == x.shape[0]", True),
        ("x.is_present", True),
        ("b.is_present", False),
        ("b.is_const", True),
        ("const(w, b)", True),
        ("not b.is_present or b.rank == 1", True),
        ("b.rank == 1 or not b.is_present", True),
        ("b.rank if b.is_present else 7", 7),
        ("bits(int8)", 8),
        ("lowest(int8)", -128),
        ("highest(uint4)", 15),
        ("highest(w.dtype) > 1e38", True),
        ("lowest(3) == -128", True),  # the number that ONNX gives to int8, as in Cast's `to`
        ("element_type(3) == int8", True),
        ("broadcast([2, 1, 3], [4, 1])", (2, 4, 3)),
        ("broadcast([2], [1], [])", (2,)),
        ("len(broadcast(x.shape, [1]))", 4),
    ],
)
def test_facts(text: str, expected: object) -> None:
    if text == "x.shape == x.shape":
        expected = True
    assert result(text) == expected


def test_symbolic_dimensions() -> None:
    env = {"x": tensor("N", 3), "y": tensor("N", 4), "z": tensor("M", 3), "u": tensor(None, 3)}

    def known(text: str) -> object:
        try:
            return evaluate(expression(text, given="x + y + z + u"), env)
        except Unknown:
            return None

    assert known("x.shape[0] == y.shape[0]") is True
    assert known("x.shape == y.shape") is False, "3 is not 4, whatever N is"
    assert known("x.shape == z.shape") is None
    assert known("x.shape != z.shape") is None
    assert known("u.shape[0] == u.shape[0]") is None, "nothing is known of it, not even that it is one number"
    assert known("x.shape[0]") is None
    assert known("x.shape") is None
    assert known("x.shape[0] + 1") is None
    assert known("x.size") is None
    assert known("len(x.shape)") == 2
    assert known("x.shape[0] == 1 or x.rank == 2") is True
    assert known("x.rank == 2 or x.shape[0] == 1") is True
    assert known("x.shape[0] == 1 and x.rank == 3") is False
    assert known("x.rank == 3 and x.shape[0] == 1") is False
    assert known("x.shape[0] == 1 and x.rank == 2") is None
    assert known("not x.shape[0] == 1") is None
    assert known("x.shape[0] in [x.shape[0], 2]") is True
    assert known("x.shape[0] in [1, 2]") is None
    assert known("1 < x.rank < x.shape[0]") is None
    assert known("3 < x.rank < x.shape[0]") is False
    assert known("broadcast(x.shape, [1]) == x.shape") is True
    assert known("broadcast(x.shape, [1, 1]) == y.shape") is False
    assert known("broadcast(x.shape, [5, 1])") is None


def test_sizes_by_floats_that_are_whole() -> None:
    given_ = "x + y + s"
    env = {"x": TensorFacts(TensorType(FLOAT, ("N", 3))), "y": TensorFacts(TensorType(FLOAT, ("2*N", 3)))}
    for text in (
        "2.0 * x.shape[0] == y.shape[0]",
        "y.shape[0] / 2.0 == x.shape[0]",
        "x.shape[0] + 0.0 == x.shape[0]",
        "s.value * x.shape == y.shape",
        "x.shape * s.value == y.shape",
    ):
        assert evaluate(expression(text, given=given_), {**env, "s": value([2.0, 1.0])}) is True, text
    for text in ("0.5 * y.shape[0] == x.shape[0]", "x.shape[0] / 2.0 == 1", "s.value * x.shape == y.shape"):
        with pytest.raises(Unknown):
            evaluate(expression(text, given=given_), {**env, "s": value([1.5, 1.0])})


def test_unknown_types_and_values() -> None:
    env = {"x": TensorFacts(None), "y": TensorFacts(TensorType(FLOAT, None))}
    for text in ("x.rank", "x.dtype", "w.rank", "w.shape", "w.size", "x.value", "w.value"):
        with pytest.raises(Unknown):
            result(text, x=env["x"], w=env["y"])
    found = rule("x + y  =>  x\n    where y.dtype == float32, y.rank == 2")
    assert holds(found.where, env) is found.where[1]


def test_the_first_condition_that_fails() -> None:
    found = rule("x + y  =>  x\n    where x.rank == 2, y.rank == 2, x.shape == y.shape")
    assert holds(found.where, {"x": tensor(1, 2), "y": tensor(1, 2)}) is None
    assert holds(found.where, {"x": tensor(1, 2), "y": tensor(1)}) is found.where[1]
    assert holds(found.where, {"x": tensor("N", 2), "y": tensor("M", 2)}) is found.where[2]
    assert holds((), {}) is None


def test_names_that_are_missing_are_absent() -> None:
    assert evaluate(expression("b.is_present"), {}) is False
    assert evaluate(expression("const(b)"), {}) is True
    with pytest.raises(Unknown):
        evaluate(expression("b.rank"), {})


def test_attributes_that_a_node_lacks() -> None:
    read = rule("p: (MaxPool | GlobalMaxPool)(x)  =>  p\n    where not p.ceil_mode.is_present or p.ceil_mode == 0")
    has = NodeFacts(OpKey("", "MaxPool"), (("ceil_mode", 1),), None)
    lacks = NodeFacts(OpKey("", "GlobalMaxPool"), (), None)
    assert holds(read.where, {"p": has}) is read.where[0]
    assert holds(read.where, {"p": lacks}) is None


# ---- contents of constants -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "w", "expected"),
    [
        ("w.value == 2", value(2.0), True),
        ("w.value == 2", value([2, 2]), True),
        ("w.value == 2", value([2, 3]), False),
        ("w.value != 2", value([2, 3]), True),
        ("w.value == [2, 3]", value([2, 3]), True),
        ("w.value == [2, 3]", value([[2, 3]]), False),
        ("w.value == [[2, 3]]", value([[2, 3]]), True),
        ("w.value == []", value([]), True),
        ("w.value == 2", value([]), False),
        ("w.value < 3", value([1, 2]), True),
        ("w.value < 2", value([1, 2]), False),
        ("0 <= w.value <= 2", value([0, 1, 2]), True),
        ("w.value[1]", value([1, 2], ir.DataType.INT64), 2),
        ("w.value[0][1]", value([[1, 2]], ir.DataType.INT64), 2),
        ("[i + 1 for i in w.value]", value([1, 2], ir.DataType.INT64), (2, 3)),
        ("len(w.value)", value([[1, 2], [3, 4]]), 2),
        ("max(w.value)", value([[1, 2], [3, 4]]), 4.0),
        ("sum(w.value)", value([1, 2], ir.DataType.INT8), 3),
        ("min(w.value, 0)", value([1, 2], ir.DataType.INT8), 0),
        ("min(w.value)", value(3, ir.DataType.INT8), 3),
        ("min(w.value) == max(w.value)", value(0.5), True),
        ("sum(w.value) + prod(w.value)", value(3, ir.DataType.INT64), 6),
        ("max(w.value, 4)", value(3, ir.DataType.INT64), 4),
        ("3 in w.value", value([1, 3], ir.DataType.INT64), True),
        ("w.value == 0.1", value(0.1), True),
        ("w.value == 0.1", value([0.1, 0.1], ir.DataType.FLOAT16), True),
        ("w.value == 0.1", value(0.1, ir.DataType.BFLOAT16), True),
        ("w.value == 0.1", value(0.1, ir.DataType.DOUBLE), True),
        ("w.value == 0.5", value(0.5 + 1e-12, ir.DataType.DOUBLE), False),
        ("w.value == 0.1", value(0.1000001), False),
        ("w.value <= 0.1", value(0.1), True),
        ("w.value < 0.1", value(0.1), False),
        ("w.value >= 0.1", value(np.float32(0.1)), True),
        ("w.value == inf", value(np.inf), True),
        ("w.value == true", value(True, ir.DataType.BOOL), True),
        ('w.value == "a"', TensorFacts(TensorType(ir.DataType.STRING, ()), np.asarray("a", dtype=object), True), True),
    ],
)
def test_contents(text: str, w: TensorFacts, expected: object) -> None:
    assert result(text, w=w) == expected


def test_whole_numbers_do_not_overflow() -> None:
    assert result("w.value + 1", w=value(255, ir.DataType.UINT8)) == 256
    np.testing.assert_array_equal(result("w.value * 1000", w=value([100, 127], ir.DataType.INT8)), [100000, 127000])
    assert result("w.value + 1", w=value(2**63 - 1, ir.DataType.INT64)) == 2**63
    assert result("-w.value", w=value(-128, ir.DataType.INT8)) == 128
    big = result("w.value + 0", w=value([2**64 - 1], ir.DataType.UINT64))
    assert isinstance(big, np.ndarray)
    assert big.dtype == np.uint64


def test_floats_are_computed_in_double_precision() -> None:
    third = value(1 / 3)
    assert result("w.value * 3", w=third) == float(np.float32(1 / 3)) * 3
    found = result("w.value * w.value", w=value([0.1, 0.2]))
    expected = np.asarray([0.1, 0.2], dtype=np.float32).astype(np.float64) ** 2
    np.testing.assert_array_equal(found, expected)
    assert isinstance(found, np.ndarray)
    assert found.dtype == np.float64


@given(st.lists(st.integers(-128, 127), min_size=1, max_size=5), st.integers(-9, 9))
@settings(max_examples=40)
def test_arithmetic_on_arrays_is_elementwise(numbers: list[int], factor: int) -> None:
    w = value(numbers, ir.DataType.INT8)
    np.testing.assert_array_equal(result(f"w.value * {factor} + 1", w=w), [n * factor + 1 for n in numbers])
    np.testing.assert_array_equal(result("abs(w.value)", w=w), [abs(n) for n in numbers])
    np.testing.assert_array_equal(result("w.value - w.value", w=w), [0] * len(numbers))
    assert result("w.value == w.value", w=w) is True


def test_types_of_every_kind() -> None:
    for name in ("float8e4m3fn", "float8e5m2", "int4", "uint2", "bfloat16", "float4e2m1"):
        dtype = DTYPES[name]
        one = TensorFacts(TensorType(dtype, (1,)), np.ones(1, dtype=dtype.numpy()), True)
        assert result("w.value == 1", w=one) is True
        assert result("w.value[0] + 1", w=one) == 2


@pytest.mark.parametrize("name", sorted(n for n in DTYPES if n not in ("float", "double")))
def test_limits_are_those_of_the_type(name: str) -> None:
    dtype = DTYPES[name]
    assert dtype_name(dtype) == name
    if name in ("string", "complex64", "complex128"):
        with pytest.raises(Unknown):
            result(f"lowest({name})")
        return
    low, high = limits(dtype)
    if name == "bool":
        assert (low, high) == (0, 1)
    elif "int" in name:
        numpy_type = dtype.numpy()
        info = ml_dtypes.iinfo(numpy_type) if numpy_type.kind == "V" else np.iinfo(numpy_type)
        assert (low, high) == (info.min, info.max)
        assert isinstance(low, int)
    else:
        array = np.asarray([low, high]).astype(dtype.numpy()).astype(np.float64)
        np.testing.assert_array_equal(array, [low, high])
        assert np.isfinite(array).all()


# ---- what has no value -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "1 / 0", "1 // 0", "1 % 0", "0 ** -1", "(-8) ** 0.5", "sqrt(-1)", "log(0)", "[1][1]", "[1][-2]", "max([])",
        "index([1], 2)", "range(1, 5, 0)", "range(10 ** 12)", "[1] * 10 ** 12", "9 ** 9 ** 9",
        "(2 ** 4000) * (2 ** 4000)",
        "zip([1], [1, 2])", "exp(10000)", "element_type(99)", "broadcast([2], [3])", "w.value", "n.kernel_shape",
        "inf - inf", "floor(inf)", "w.value + 1",
    ],
)  # fmt: skip
def test_unknown(text: str) -> None:
    with pytest.raises(Unknown):
        result(text)


def test_conditions_that_are_neither_true_nor_false_do_not_hold() -> None:
    place = Place("", 1, 1)
    condition = Condition(expression("w.value"), None, place)
    assert holds((condition,), {"w": value([1.0])}) is condition


# ---- what is looked at -----------------------------------------------------------------------------


def used(text: str) -> Uses:
    return uses(expression(text))


def test_uses() -> None:
    assert used("x.rank == 2 and x.dtype == float32") == Uses(types=("x",))
    assert used("w.value == 2") == Uses(values=("w",))
    assert used("n.strides == [1, 1]") == Uses(attrs=("n",))
    assert used("n.shape[0] == w.size") == Uses(types=("n", "w"))
    assert used("const(w, b) and x.is_const") == Uses(consts=("b", "w", "x"))
    assert used("not b.is_present") == Uses(presence=("b",))
    assert used("n.group.is_present") == Uses(attrs=("n",))
    assert used("[i + x.rank for i in w.shape if i > b.rank]") == Uses(types=("b", "w", "x"))
    assert used("1 + 2") == Uses()
    assert used("x.shape[w.rank - 1]") == Uses(types=("w", "x"))


def test_uses_of_attributes_and_lists_of_tensors() -> None:
    def expr(text: str) -> Expr:
        return expression(text, given="Concat(xs..., axis=a)")

    assert uses(expr("a")) == Uses(names=("a",))
    assert uses(expr("len(xs)")) == Uses(names=("xs",))
    assert uses(expr("[x.shape[a] for x in xs]")) == Uses(types=("xs",), names=("a", "xs"))
    assert uses(expr("xs[0].dtype")) == Uses(types=("xs",))
    assert uses(expr("xs[a].rank")) == Uses(types=("xs",), names=("a",))
    assert uses(expr("all([x.is_const for x in xs])")) == Uses(names=("xs",), consts=("xs",))
    assert uses(expr("all([p[0].rank == p[1].rank for p in zip(xs, xs[1:])])")).types == ("xs",)
    env = {"xs": (tensor(1, 2), tensor(3, 2, const=True)), "a": 0}
    assert evaluate(expr("[x.shape[a] for x in xs]"), env) == (1, 3)
    assert evaluate(expr("xs[-1].is_const"), env) is True
    assert evaluate(expr("const(xs)"), env) is False
    assert evaluate(expr("sum([x.shape[0] for x in xs])"), env) == 4
    assert evaluate(expr("len(xs[1:])"), env) == 1
