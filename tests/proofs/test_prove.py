"""Rules that are true are proven, those that are wrong never are."""

from __future__ import annotations

from pathlib import Path

import pytest

from eqsat.proofs.proved import prove_rules
from eqsat.proofs.prover import prove_bounded, prove_every_rank
from eqsat.rules.ast import Rule
from eqsat.rules.reader import read_file, read_text

INSTANCES = Path(__file__).parents[1] / "check"
WRONG = [r for name in ("wrong", "plausible_wrong") for r in read_file(INSTANCES / f"{name}.rules").rules]
RIGHT_BUT_FOR_TYPES = ("any_one_is_neutral", "concat_of_transposes", "relu_of_any_type", "contradiction")
"""Wrong only in that their two sides have different types where they do not apply, or that they never apply."""


def rule(text: str) -> Rule:
    return read_text(f"rule r : {text}").rules[0]


@pytest.mark.slow
@pytest.mark.parametrize("wrong", WRONG, ids=lambda r: r.name)
def test_a_wrong_rule_is_not_proven(wrong: Rule) -> None:
    if wrong.name not in RIGHT_BUT_FOR_TYPES:
        assert not prove_every_rank(wrong).proven


@pytest.mark.parametrize(
    "text",
    [
        "real\n x + 0  =>  x",
        "exact\n x - 0  =>  x\n where x.dtype in integers",
        "exact\n Neg(Neg(x))  =>  x",
        "exact\n x * 2  =>  x + x\n where x.dtype in floats",
        "exact\n Relu(Transpose(x, perm=p)) + y  =>  Transpose(Relu(x), perm=p) + y",
        "real\n (x + y) * (x + y)  =>  x * x + 2 * (x * y) + y * y\n where x.dtype in floats",
        "real\n Max(x, y) + Min(x, y)  =>  x + y\n where x.dtype in floats",
        "real\n Exp(x) / Exp(y)  =>  Exp(x - y)",
        "real\n Sigmoid(-x)  =>  1 - Sigmoid(x)",
        "real\n Tanh(Neg(x))  =>  Neg(Tanh(x))",
        "real\n Clip(x, 0, 6) / 6  =>  Clip(x / 6, 0, 1)\n where x.dtype in floats",
        "exact\n r: Squeeze(Unsqueeze(x, _), _)  =>  x\n where r.shape == x.shape",
        "exact\n Gather(Abs(x), i, axis=a)  =>  Abs(Gather(x, i, axis=a))",
        "exact\n Where(c, Neg(x), Neg(y))  =>  Neg(Where(c, x, y))\n where x.dtype in floats",
        "exact\n n: Relu(Concat(x, y, axis=a))  =>  Concat(Relu(x), Relu(y), axis=a)",
        "real\n Max(x, c)  =>  x\n where c.value < 0, x.dtype == float32, c.rank == 0, x.value > 1",
        "exact\n Max(x, -inf)  =>  x\n where x.dtype in floats",
        "exact\n Where(Not(p), x, y)  =>  Where(p, y, x)",  # of strings and complex numbers too
        "real\n r: Where(Equal(x, x), y, y)  =>  y\n where r.shape == y.shape, x.dtype == string, y.dtype == float32",
        "exact\n r: And(x, false)  =>  Expand(tensor(false, bool), r.shape)",
        "exact\n r: Equal(x, x)  =>  Expand(tensor(true, bool), r.shape)\nwhere x.dtype in integers or x.dtype == bool",
        "exact\n Abs(x) * Abs(x)  =>  x * x\n where x.dtype in integers",
        "exact\n Mod(Mod(x, y, fmod=1), y, fmod=1)  =>  Mod(x, y, fmod=1)\n where x.dtype in (int8, uint8)",
        "exact\n r: Where(true, x, _)  =>  x\n where r.shape == x.shape",
        "exact\n Pow(x, 1)  =>  x",
        "exact\n q: QuantizeLinear(x, s)  =>  QuantizeLinear(x, s, tensor(0, q.dtype), **q)\n where s.rank == 0",
        "exact\n BitwiseNot(BitwiseAnd(x, y))  =>  BitwiseOr(BitwiseNot(x), BitwiseNot(y))",
        'exact\n BitShift(x, 1, direction="LEFT")  =>  x * 2',
        "exact\n x * Sign(x)  =>  Abs(x)\n where x.dtype in integers",
        "exact\n Clip(x, 0, c)  =>  Relu(x)\n where x.dtype == int8, c.value == 127 or c.value > 127",
        "exact\n -x / y  =>  -(x / y)\n where x.dtype in floats",  # the circuits of wide quotients are too large
        "exact\n Abs(x * y)  =>  Abs(y) * Abs(x)\n where x.dtype in floats",
        "exact\n x / -y * z  =>  z * -(x / y)\n where x.dtype in floats",
        "exact\n Where(c, x + z, z + y)  =>  Where(c, x, y) + z\n where x.dtype in floats",
        "exact\n (x - y) / z  =>  (x + -y) / z\n where x.dtype in floats",
        "exact\n Where(c, x / z, y / z)  =>  Where(c, x, y) / z\n where x.dtype in integers",
        "real\n Sqrt(Sqrt(x))  =>  Pow(x, 0.25)\n where x.dtype in floats",
        "real\n Pow(x, -1.5)  =>  1 / (x * Sqrt(x))\n where x.dtype in floats",
        "real\n Log(Sqrt(x))  =>  Log(x) / 2\n where x.dtype in floats",
        "real\n Log(1 / x)  =>  -Log(x)\n where x.dtype in floats",
        "real\n Log(Pow(x, 3))  =>  Log(x) * 3\n where x.dtype in floats",
        "real\n Softplus(x) - Softplus(-x)  =>  x\n where x.dtype in floats",
        "real\n Log(Exp(x) + Exp(y))  =>  x + Log(1 + Exp(y - x))\n where x.dtype in floats",
    ],
)
def test_a_true_rule_is_proven(text: str) -> None:
    found = prove_every_rank(rule(text))
    assert found.proven, found.reason


@pytest.mark.parametrize(
    "text",
    [
        "exact\n x + 0  =>  x\n where x.dtype in floats",  # -0.0 + 0.0 is 0.0
        "exact\n x - 0  =>  x\n where x.dtype in floats",  # the constant may be -0.0
        "exact\n x - x  =>  0\n where x.dtype in floats",  # of infinities a NaN
        "exact\n x * y / y  =>  x\n where x.dtype in floats",
        "exact\n (x + y) + z  =>  x + (y + z)\n where x.dtype in floats",
        "exact\n x * 6  =>  x + x + x + x + x + x\n where x.dtype == float16",  # five are exact, six are not
        "exact\n Max(x, 0)  =>  Relu(x)\n where x.dtype in floats",  # which zero is open
        "exact\n -(x - y)  =>  y - x\n where x.dtype in floats",
        "real\n x  * 2 / 2  =>  x\n where x.dtype in integers",  # overflows
        "real\n x / y * y  =>  x",  # of integers it rounds
        "real\n Sqrt(x * x)  =>  x",
        "real\n Log(x * x)  =>  Log(x) * 2",  # the right side may be undefined
        "real\n x  + y - y =>  x * y / y\n where x.dtype in floats",
        "real\n Relu(x) + Relu(y)  =>  Relu(x + y)",
        "real\n Clip(x, a, b)  =>  Max(Min(x, b), a)\n where x.dtype in floats, a.rank == 0, b.rank == 0",
        "exact\n Transpose(x, perm=p) + Transpose(y, perm=p)  =>  Transpose(x + y, perm=p)",  # of different ranks
        "exact\n Transpose(Transpose(x, perm=p), perm=q)  =>  Transpose(x, perm=[q[i] for i in p])",
        "exact\n Relu(Concat(x, y, axis=a))  =>  Concat(Relu(y), Relu(x), axis=a)",
        "exact\n Softmax(Transpose(x, perm=p), axis=a)  =>  Transpose(Softmax(x, axis=a), perm=p)",
        "exact\n Gather(x, i, axis=0) + Gather(x, j, axis=0)  =>  Gather(x, i, axis=0) + Gather(x, i, axis=0)",
        "exact\n (f: Relu | Softmax)(Transpose(x, perm=p))  =>  Transpose(f(x), perm=p)",
        "exact\n r: Reshape(x, _) + y =>  Reshape(x + y, r.shape)\n where x.shape == y.shape",
        "exact\n n: LeakyRelu(Transpose(x, perm=p))  =>  Transpose(LeakyRelu(x), perm=p)",  # another alpha
        "exact\n q: QuantizeLinear(Max(x, y), s, z)"  # with a scale of int32
        "  =>  Max(QuantizeLinear(x, s, z, **q), QuantizeLinear(y, s, z, **q))\n"
        " where s.rank == 0, z.rank == 0, 1e-12 < s.value, x.dtype == float32, q.dtype in (int8, uint8)",
        "exact\n Identity(RandomNormalLike(x))  =>  RandomNormalLike(x)",
        "exact\n Max(x, inf)  =>  x\n where x.dtype in floats",
        "real\n x + inf - inf  =>  x\n where x.dtype in floats",
        "exact\n Where(p, x, y)  =>  Where(p, y, x)",
        "exact\n r: Equal(x, x)  =>  Expand(tensor(true, bool), r.shape)\n where x.dtype in floats or x.dtype == bool",
        "exact\n r: Equal(x, x)  =>  Expand(tensor(false, bool), r.shape)\n where x.dtype in integers",
        "exact\n Abs(x) * Abs(y)  =>  x * y\n where x.dtype in integers",
        "exact\n q: QuantizeLinear(x, s)  =>  QuantizeLinear(x, s, tensor(1, q.dtype), **q)\n where s.rank == 0",
        "exact\n BitwiseNot(BitwiseAnd(x, y))  =>  BitwiseAnd(BitwiseNot(x), BitwiseNot(y))",
        'exact\n BitShift(BitShift(x, y, direction="LEFT"), y, direction="RIGHT")  =>  x',
        "exact\n Clip(x, 0, c)  =>  Relu(x)\n where x.dtype == int8, c.value == 127 or c.value == 126",
        "exact\n Mod(Mod(x, y, fmod=f), y, fmod=0)  =>  Mod(x, y, fmod=f)\n where x.dtype == int8",
        "exact\n x * -y  =>  x * y\n where x.dtype in floats",
        "exact\n -(x + y)  =>  -x - y\n where x.dtype in floats",  # another zero
        "exact\n x / y  =>  y / x\n where x.dtype in floats",
        "exact\n -x / y  =>  -(x / y)\n where x.dtype == int8",  # the least number has no negative
        "exact\n x / y / z  =>  x / z / y\n where x.dtype == float64",  # beyond what the solver may do
        "exact\n 1 / Sqrt(x)  =>  Sqrt(1 / x)\n where x.dtype in floats",
        "real\n Pow(x * x, 0.25)  =>  Pow(x, 0.5)\n where x.dtype in floats",
        "real\n Log(x * y)  =>  Log(x) + Log(y)\n where x.dtype in floats",
        "real\n Pow(x, 0.3)  =>  Pow(x, 0.25)\n where x.dtype in floats",
    ],
)
def test_what_is_wrong_somewhere_is_not_proven(text: str) -> None:
    assert not prove_every_rank(rule(text)).proven


def test_the_strongest_verdict() -> None:
    found = prove_rules(
        [
            rule("exact\n Abs(Neg(x))  =>  Abs(x)"),
            rule("real\n Relu(x) - Relu(y)  =>  Relu(x - y)"),
            rule("exact\n Relu(Softmax(x, axis=a))  =>  Softmax(x, axis=a)"),
        ]
    )
    assert [p.trust for p in found] == ["proven", "refuted", "executed"]
    assert found[0].words == "proven for all ranks and sizes"
    assert "first [" in found[1].detail
    assert found[2].words == "executed 40 times"
    assert found[2].why_not


def test_a_proof_does_not_depend_on_those_before_it() -> None:
    rules = [
        rule(
            "exact\n Mod(Mod(x, y, fmod=1), y, fmod=1)  =>  Mod(x, y, fmod=1)\n where x.dtype in (int8, uint8, int16)"
        ),
        rule("real\n Clip(x, 0, 6) / 6  =>  Clip(x / 6, 0, 1)\n where x.dtype in floats"),
        rule("exact\n x * 6  =>  x + x + x + x + x + x\n where x.dtype == float16"),
        rule("exact\n Clip(Clip(x, low, high), low, high)  =>  Clip(x, low, high)\n where x.dtype in integers"),
    ]
    forwards = [prove_every_rank(each) for each in rules]
    backwards = [prove_every_rank(each) for each in reversed(rules)]
    assert forwards == backwards[::-1]


def test_integers_of_any_class_are_to_the_bit() -> None:
    assert prove_every_rank(rule("real\n x * c + y * c  =>  (x + y) * c\n where x.dtype in integers")).proven
    assert not prove_every_rank(rule("real\n (x + y) / c  =>  x / c + y / c\n where x.dtype in integers")).proven


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "exact\n Transpose(Transpose(x, perm=p), perm=q)  =>  Transpose(x, perm=[p[i] for i in q])",
        "real\n MatMul(Neg(x), y)  =>  Neg(MatMul(x, y))\n where x.rank == 2, y.rank == 2, x.dtype in floats",
        "real\n Softmax(x + c, axis=a)  =>  Softmax(x, axis=a)\n where c.rank == 0",
        "real\n ReduceSum(x * c, axes, keepdims=k)  =>  ReduceSum(x, axes, keepdims=k) * c\n"
        " where c.rank == 0, x.dtype in floats",
    ],
)
def test_a_rule_is_proven_within_bounds(text: str) -> None:
    found = prove_bounded(rule(text))
    assert found.bounds is not None, found.reason
    assert found.tried


@pytest.mark.parametrize(
    "text",
    [
        "exact\n Transpose(Transpose(x, perm=p), perm=q)  =>  Transpose(x, perm=[q[i] for i in p])",
        "real\n MatMul(x, y)  =>  MatMul(y, x)\n where x.rank == 2, y.rank == 2, x.dtype in floats",
        "real\n Softmax(x + c, axis=a)  =>  Softmax(x, axis=a)\n where c.rank == 1",
        "real\n ReduceSum(x * c, axes, keepdims=k)  =>  ReduceSum(x, axes, keepdims=k) * c\n where x.dtype in floats",
        "real\n ReduceMean(x, axes, keepdims=k) => ReduceSum(x, axes, keepdims=k)\n where x.dtype in floats",
        "real\n Gemm(x, w, alpha=a)  =>  Gemm(x, w * 2, alpha=a / 2)",  # of integers it rounds
        "exact\n MatMul(x, Neg(y))  =>  MatMul(Neg(x), y)\n where x.dtype in floats, x.rank == 2, y.rank == 2",
        "exact\n r: Pad(x, widths, value?)  =>  x\n where r.shape == x.shape",  # cut off before, added after
        "exact\n r: Slice(x, s, e, axes?, steps?)  =>  x\n where r.shape == x.shape",  # reversed
    ],
)
def test_a_wrong_rule_is_not_proven_within_bounds(text: str) -> None:
    assert prove_bounded(rule(text)).bounds is None


HEADS = "where q.rank == 4, k.rank == 4, v.rank == 4, q.shape[1] == k.shape[1], q.dtype == float32"
SCORES = "(q @ Transpose(k, perm=[0, 1, 3, 2])) * s"
TRIANGLE = "tensor([[0 if i >= j else -inf for j in range(k.shape[2])] for i in range(q.shape[2])], float32)"


@pytest.mark.parametrize(
    "text",
    [
        "ReduceL2(x, axes, keepdims=k)  =>  Sqrt(ReduceSumSquare(x, axes, keepdims=k))\n where x.dtype in floats",
        "LogSoftmax(x, axis=a)  =>  Log(Softmax(x, axis=a))",
        "ReduceLogSumExp(x, axes, keepdims=k)  =>  Log(ReduceSum(Exp(x), axes, keepdims=k))\n where x.dtype == float32",
        f"Attention(q, k, v, is_causal=0, softcap=0.0, scale=s)  =>  Softmax({SCORES}, axis=-1) @ v\n {HEADS}",
        f"Attention(q, k, v, is_causal=1, softcap=0.0, scale=s)\n"
        f"  =>  Softmax({SCORES} + {TRIANGLE}, axis=-1) @ v\n {HEADS}",
        "Attention(q, k, v, is_causal=1)  =>  Attention(q, k, v)\n"
        " where q.dtype == float32, q.rank == 4, q.shape[2] == 1, k.shape[2] == 1",
    ],
)
def test_what_an_operator_is_defined_with_proves_a_rule(text: str) -> None:
    found = prove_bounded(rule(f"real\n {text}"))
    assert found.bounds is not None, found.reason


@pytest.mark.parametrize(
    "text",
    [
        "ReduceL2(x, axes, keepdims=k)  =>  ReduceSumSquare(x, axes, keepdims=k)\n where x.dtype in floats",
        "LogSoftmax(x, axis=a)  =>  Softmax(Log(x), axis=a)",
        f"Attention(q, k, v, is_causal=1, softcap=0.0, scale=s)  =>  Softmax({SCORES}, axis=-1) @ v\n {HEADS}",
        f"Attention(q, k, v, is_causal=0, scale=s)  =>  Softmax({SCORES}, axis=-1) @ v\n {HEADS}",  # softcap
        "Attention(q, k, v, is_causal=1)  =>  Attention(q, k, v)\n"
        " where q.dtype == float32, q.rank == 4, q.shape[2] == 1, k.shape[2] == 2",
    ],
)
def test_a_definition_does_not_prove_what_is_wrong(text: str) -> None:
    assert prove_bounded(rule(f"real\n {text}")).bounds is None


def test_what_is_not_modelled_is_named() -> None:
    found = prove_every_rank(rule("real\n x * x  =>  Gelu(x)\n where x.dtype == float32"))
    assert found.reason == "Gelu: not modelled over the reals (float)"


def test_tables_keep_the_type_of_what_they_replace() -> None:
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    import eqsat

    constants = {"s": np.float32(0.0371), "z": np.int8(3), "t": np.float32(0.00771)}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["d"], output_dtype=TensorProto.FLOAT16),
        helper.make_node("Tanh", ["d"], ["e"]),
        helper.make_node("QuantizeLinear", ["e", "t", "z"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.INT8, [256]) for n in ("x", "y")]
    tensors = [numpy_helper.from_array(v, n) for n, v in constants.items()]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=10)
    x = np.arange(-128, 128).astype(np.int8)
    np.testing.assert_array_equal(eqsat.optimize(model).run({"x": x})["y"], eqsat.run(model, {"x": x})["y"])
