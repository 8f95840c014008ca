"""The executor on whole models: what it accepts, what it returns, how it treats memory."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import onnxruntime
import pytest

from eqsat.errors import ExecutionError
from eqsat.execute.executor import Executor

RNG = np.random.default_rng(0)


def parse(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(text)


def executor(text: str) -> Executor:
    return Executor(ir.from_proto(parse(text)))


def graph(body: str, *, version: int = 21, ir_version: int = 10) -> str:
    return f'<ir_version: {ir_version}, opset_import: ["": {version}]> {body}'


def against_ort(text: str, feeds: dict[str, np.ndarray], rtol: float = 0.0, atol: float = 0.0) -> dict[str, Any]:
    model = parse(text)
    onnx.checker.check_model(model)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    theirs = session.run(None, feeds)
    ours = Executor(ir.from_proto(model)).run(feeds)
    for (name, a), b in zip(ours.items(), theirs, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape, name
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol, err_msg=name)
    return ours


def f(*shape: int) -> np.ndarray:
    return RNG.uniform(-2, 2, shape).astype(np.float32)


ADD = graph("g (float[2,3] x, float[3] y) => (float[2,3] z) { z = Add(x, y) }")


def test_a_model():
    against_ort(ADD, {"x": f(2, 3), "y": f(3)})
    run = executor(ADD)
    assert run.input_names == ("x", "y") and run.output_names == ("z",)


# ---- inputs --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        ({"x": f(2, 3)}, r"input 'y': a value is required; got nothing\n  hint: it is float32\[3\]"),
        ({"x": f(2, 3), "y": f(3), "w": f(3)}, "input 'w': the name of an input is required"),
        ({"x": f(2, 3), "Y": f(3)}, "did you mean `y`"),
        ({"x": f(2, 3).astype(np.float64), "y": f(3)}, r"float32 is required; got float64\[2, 3\]\n  hint: .*astype"),
        ({"x": f(3, 3), "y": f(3)}, r"input 'x': float32\[2, 3\] is required; got float32\[3, 3\]"),
        ({"x": f(2, 3, 1), "y": f(3)}, r"float32\[2, 3\] is required; got float32\[2, 3, 1\]"),
        ({"x": None, "y": f(3)}, "got absent"),
        ({"x": [f(3), f(3)], "y": f(3)}, "got sequence of 2"),
    ],
)
def test_unfit_inputs(feeds: dict[str, Any], message: str):
    with pytest.raises(ExecutionError, match=message):
        executor(ADD).run(feeds)


def test_symbolic_dimensions_agree():
    run = executor(graph("g (float[N,3] x, float[N,?] y) => (float[N,M] z) { z = Concat<axis=1>(x, y) }"))
    assert run.run({"x": f(4, 3), "y": f(4, 2)})["z"].shape == (4, 5)
    assert run.run({"x": f(7, 3), "y": f(7, 1)})["z"].shape == (7, 4)
    with pytest.raises(ExecutionError, match="dimension 0 must be N, which is 4 in input 'x'"):
        run.run({"x": f(4, 3), "y": f(5, 2)})


def test_numbers_and_lists_become_arrays():
    run = executor(graph("g (int64 a, int64[3] b) => (int64[3] c) { c = Add(a, b) }"))
    assert run.run({"a": 2, "b": [1, 2, 3]})["c"].tolist() == [3, 4, 5]


INITIALIZED = graph(
    "g (float[2] x, float[2] w = {1, 2}) => (float[2] y) <float[2] b = {10, 20}> { t = Mul(x, w)  y = Add(t, b) }",
    ir_version=3,
)


def test_initializers_that_are_inputs_may_be_overridden():
    run = executor(INITIALIZED)
    assert run.input_names == ("x",)
    x = np.array([1, 1], np.float32)
    assert run.run({"x": x})["y"].tolist() == [11, 22]
    assert run.run({"x": x, "w": np.array([5, 6], np.float32)})["y"].tolist() == [15, 26]
    assert run.run({"x": x})["y"].tolist() == [11, 22]
    with pytest.raises(ExecutionError, match="'w'"):
        run.run({"x": x, "w": np.zeros(3, np.float32)})


# ---- outputs -------------------------------------------------------------------------------------

BRANCHES = graph("""g (float[3] x) => (float[3] a, float[3] b) {
    t = Exp(x)
    a = Neg(t)
    s = Sqrt(x)
    b = Log(s)
}""")


def test_outputs_by_name_in_any_order():
    run = executor(BRANCHES)
    x = np.array([1, 4, 9], np.float32)
    assert list(run.run({"x": x})) == ["a", "b"]
    assert list(run.run({"x": x}, ["b", "t"])) == ["b", "t"]
    np.testing.assert_allclose(run.run({"x": x}, ["s"])["s"], [1, 2, 3])
    assert run.run({"x": x}, []) == {}
    np.testing.assert_array_equal(run.run({"x": x}, ["x"])["x"], x)
    with pytest.raises(ExecutionError, match="outputs: the name of a tensor of the model is required; got 'c'"):
        run.run({"x": x}, ["c"])


def test_only_what_is_needed_is_computed():
    text = graph("g (float[3] x, int64[1] s) => (float[3] a, float[3] b) { a = Neg(x)  b = Reshape(x, s) }")
    run = executor(text)
    feeds = {"x": f(3), "s": np.array([5])}
    assert list(run.run(feeds, ["a"])) == ["a"]
    with pytest.raises(ExecutionError, match=r"node 'b' \(Reshape\)"):
        run.run(feeds)


def test_results_belong_to_the_caller():
    text = graph("""g (float[2,3] x)
        => (float[2,3] same, float[6] flat, float[2] k, float[2] again, float[2,3] y, float[2,3] z)
        <float[2] c = {1, 2}> {
        same = Identity(x)
        shape = Constant<value_ints=[6]>()
        flat = Reshape(x, shape)
        k = Identity(c)
        again = Identity(c)
        y = Neg(x)
        z = Identity(y)
    }""")
    run = executor(text)
    x = f(2, 3)
    kept = x.copy()
    first = run.run({"x": x})
    copies = {name: value.copy() for name, value in first.items()}
    for value in first.values():
        value.fill(77)
    np.testing.assert_array_equal(x, kept)
    for name, value in run.run({"x": x}).items():
        np.testing.assert_array_equal(value, copies[name])
    results = list(run.run({"x": x}).values())
    for i, a in enumerate(results):
        assert not any(np.shares_memory(a, b) for b in results[i + 1 :])


# ---- memory and constants ------------------------------------------------------------------------


def test_tensors_are_freed_after_their_last_use():
    steps = 12
    size = 1 << 18
    lines = [f"t{i + 1} = Exp(t{i})" for i in range(steps)]
    text = graph(f"g (float[{size}] t0) => (float[{size}] t{steps}) {{ {' '.join(lines)} }}")
    run = executor(text)
    feeds = {"t0": np.full(size, -1, np.float32)}
    run.run(feeds)
    tracemalloc.start()
    run.run(feeds)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 * 4 * size


def test_constant_expressions_are_computed_once(monkeypatch: pytest.MonkeyPatch):
    text = graph("""g (float[2] x) => (float[2] y) {
        one = Constant<value_floats=[1.0, 2.0]>()
        two = Add(one, one)
        three = Exp(two)
        y = Mul(x, three)
    }""")
    run = executor(text)
    first = run.run({"x": f(2)})
    (program,) = run._programs.values()
    assert len(program.steps) == 1
    assert sum(value is not None for value in program.initial) == 1
    assert first["y"].shape == (2,)


def test_wrong_constant_expressions_fail_where_they_are_needed():
    text = graph("""g (float[2] x) => (float[2] y, float[3] z) {
        one = Constant<value_floats=[1.0, 2.0]>()
        shape = Constant<value_ints=[3]>()
        z = Reshape(one, shape)
        y = Neg(x)
    }""")
    run = executor(text)
    assert run.run({"x": f(2)}, ["y"])["y"].shape == (2,)
    with pytest.raises(ExecutionError, match=r"node 'z' \(Reshape\)"):
        run.run({"x": f(2)})


def test_random_numbers_are_drawn_in_each_run():
    run = executor(graph("g () => (float[50] y) { y = RandomUniform<shape=[50], seed=3.0>() }"))
    a, b = run.run({})["y"], run.run({})["y"]
    assert a.shape == (50,) and np.all((a >= 0) & (a <= 1))
    run = executor(
        graph("g () => (float[50] y, float[50] z) { y = RandomUniform<shape=[50]>() z = RandomUniform<shape=[50]>() }")
    )
    a = run.run({})
    assert not np.array_equal(a["y"], a["z"])
    assert not np.array_equal(a["y"], run.run({})["y"])
    assert b.shape == (50,)


# ---- types and versions --------------------------------------------------------------------------


@pytest.mark.parametrize("version", [7, 9, 11, 13, 18, 21, 23])
def test_a_model_of_each_age(version: int):
    reduce = "r = ReduceMean<axes=[2,3], keepdims=1>(c)" if version < 18 else "r = ReduceMean<keepdims=1>(c, axes)"
    clip = "c = Clip<min=0.0, max=6.0>(b)" if version < 11 else "c = Clip(b, low, high)"
    squeeze = "s = Squeeze<axes=[2,3]>(r)" if version < 13 else "s = Squeeze(r, axes)"
    text = graph(
        f"""g (float[1,3,6,6] x) => (float[1,4] y)
        <float[4,3,3,3] w = {{{", ".join(str(v) for v in f(108).tolist())}}}, float[4] scale = {{1, 2, 0.5, 1}},
         float[4] bias = {{0, 1, 0, -1}}, float[4] mean = {{0, 0, 1, 1}}, float[4] var = {{1, 1, 2, 2}},
         int64[2] axes = {{2, 3}}, float low = {{0}}, float high = {{6}}> {{
            a = Conv<pads=[1,1,1,1]>(x, w)
            b = BatchNormalization(a, scale, bias, mean, var)
            {clip}
            {reduce}
            {squeeze}
            y = Softmax(s)
        }}""",
        version=version,
        ir_version=8,
    )
    against_ort(text, {"x": f(1, 3, 6, 6)}, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.int4, ml_dtypes.uint4, np.float16]
)
def test_unusual_element_types(dtype: Any):
    weights = np.array([[1, 2, 3], [4, 5, 6]]).astype(dtype)
    code = int(ir.DataType.from_numpy(weights.dtype))
    node = onnx.helper.make_node("Cast", ["w"], ["y"], to=onnx.TensorProto.FLOAT)
    keep = onnx.helper.make_node("Identity", ["x"], ["z"])
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            [node, keep],
            "g",
            [onnx.helper.make_tensor_value_info("x", code, [2, 3])],
            [onnx.helper.make_tensor_value_info("y", 1, [2, 3]), onnx.helper.make_tensor_value_info("z", code, [2, 3])],
            [onnx.numpy_helper.from_array(weights, "w")],
        ),
        opset_imports=[onnx.helper.make_opsetid("", 23)],
    )
    results = Executor(ir.from_proto(model)).run({"x": weights})
    assert results["y"].tolist() == [[1, 2, 3], [4, 5, 6]]
    assert results["z"].dtype == weights.dtype


def test_strings():
    text = graph("""g (string[2] x) => (string[2,2] y, bool[2] same) {
        c = Constant<value_strings=["a", "b"]>()
        axes = Constant<value_ints=[0]>()
        p = Unsqueeze(x, axes)  q = Unsqueeze(c, axes)
        y = Concat<axis=0>(p, q)
        same = Equal(x, c)
    }""")
    run = executor(text)
    for given in (["a", "z"], np.array(["a", "z"]), np.array(["a", "z"], object)):
        results = run.run({"x": given})
        assert results["y"].tolist() == [["a", "z"], ["a", "b"]]
        assert results["same"].tolist() == [True, False]
    with pytest.raises(ExecutionError, match="strings are required"):
        run.run({"x": f(2)})


def test_sequences_and_optionals():
    text = graph("""g (seq(float[N]) xs, optional(float[2]) o)
        => (seq(float[N]) ys, int64 n, float[2] first, bool there) {
        one = Constant<value_int=1>()
        head = SequenceAt(xs, one)
        ys = SequenceInsert(xs, head)
        n = SequenceLength(ys)
        first = Neg(head)
        there = OptionalHasElement(o)
    }""")
    run = executor(text)
    xs = [f(2), f(2), f(2)]
    results = run.run({"xs": xs, "o": None})
    assert results["n"] == 4 and len(results["ys"]) == 4 and not results["there"]
    np.testing.assert_array_equal(results["ys"][3], xs[1])
    assert run.run({"xs": xs, "o": f(2)})["there"]
    assert not run.run({"xs": xs})["there"]
    with pytest.raises(ExecutionError, match="a sequence is required"):
        run.run({"xs": f(2), "o": None})


# ---- what is wrong with a model ------------------------------------------------------------------


def test_values_must_be_defined():
    model = ir.from_proto(parse(graph("g (float[2] x) => (float[2] y) { t = Neg(x)  y = Exp(t) }")))
    first, second = list(model.graph)
    model.graph.remove(first)
    with pytest.raises(ExecutionError, match="computed before its use; got 't'"):
        Executor(model).run({"x": f(2)})
    model.graph.insert_after(second, first)
    with pytest.raises(ExecutionError, match="computed before its use; got 't'"):
        Executor(model).run({"x": f(2)})


def test_unknown_domains_and_operators():
    text = (
        '<ir_version: 10, opset_import: ["": 21, "vendor": 1]> g (float[2] x) => (float[2] y) { y = vendor.Thing(x) }'
    )
    with pytest.raises(ExecutionError, match=r"node 'y' \(vendor.Thing\).*got .vendor.Thing."):
        executor(text).run({"x": f(2)})
    model = ir.from_proto(parse(text))
    del model.opset_imports["vendor"]
    with pytest.raises(ExecutionError, match="an opset import for domain 'vendor' is required"):
        Executor(model).run({"x": f(2)})


def test_light_models_agree_with_onnx_runtime_on_seeded_weights():
    """All tensors before the Softmax: its inputs are large and equal up to rounding, so that it shows only that."""
    folder = Path(onnx.__file__).parent / "backend/test/data/light"
    model = onnx.load(folder / "light_squeezenet.onnx")
    stored = {x.name for x in model.graph.initializer}
    (given,) = (x.name for x in model.graph.input if x.name not in stored)
    names = [node.output[0] for node in model.graph.node if node.op_type != "Softmax"]
    del model.graph.output[:]
    model.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in names)
    x = f(1, 3, 224, 224)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    ours = Executor(ir.from_proto(model)).run({given: x})
    for name, wanted in zip(names, session.run(names, {given: x}), strict=True):
        np.testing.assert_allclose(ours[name], wanted, rtol=0, atol=1e-5 * np.abs(wanted).max(), err_msg=name)
