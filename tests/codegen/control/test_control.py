"""If, Loop and Scan as C, against the executor and ONNX Runtime; the fuzzer's random graphs contain them as well."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import onnxruntime as ort
import pytest

from eqsat.codegen.control.control_node import BRANCH, UNKNOWN_ROUNDS
from eqsat.codegen.generate import generate
from eqsat.codegen.predict import predict
from eqsat.codegen.profile import profile
from eqsat.codegen.runtime import CModel
from eqsat.errors import CodegenError
from eqsat.execute.executor import Executor
from eqsat.model.load import load
from eqsat.targets.find_targets import load_host
from tests.codegen import nodes
from tests.codegen.ways import WAYS, sanitized_ways

HEAD = '<ir_version: 10, opset_import: ["": 21]>\n'
X = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
W = np.random.default_rng(1).standard_normal((3, 3)).astype(np.float32) / 2
TRUE, FALSE = np.array(True), np.array(False)


@dataclass(frozen=True)
class Case:
    """A model, and the inputs of some runs."""

    text: str
    runs: tuple[Mapping[str, Any], ...]


def n(value: int) -> np.ndarray:
    return np.array(value, np.int64)


BOTH = ({"x": X, "c": TRUE}, {"x": X, "c": FALSE})
COUNTS = tuple({"x": X, "m": n(m)} for m in (0, 1, 2, 5, -3))
STATE = "int64 i, bool go, float[2,3] s"

CASES = {
    "if": Case(
        """g (float[2,3] x, bool c) => (float[2,3] y) {
            y = If (c) <then_branch = t () => (float[2,3] a) { a = Neg(x) },
                        else_branch = e () => (float[2,3] b) { b0 = Relu(x) b = Add(b0, x) }>
        }""",
        BOTH,
    ),
    "if of one element": Case(
        """g (float[2,3] x, bool[1] c) => (float[2,3] y, float[2,3] z) {
            y, z = If (c) <then_branch = t () => (float[2,3] a, float[2,3] a2) { a = Neg(x) a2 = Identity(x) },
                           else_branch = e () => (float[2,3] b, float[2,3] b2) { b = Exp(x) b2 = Identity(b) }>
        }""",
        tuple({"x": x["x"], "c": x["c"].reshape(1)} for x in BOTH),
    ),
    "branches of constants and outer values": Case(
        """g (float[2,3] x, bool c) => (float[2,3] y, float[2,3] z)
        <float[2,3] k = {1, 2, 3, 4, 5, 6}> {
            w = Sub(x, k)
            y, z = If (c) <then_branch = t () => (float[2,3] a, float[2,3] a2) { a = Identity(k) a2 = Identity(w) },
                           else_branch = e () => (float[2,3] b, float[2,3] b2)
                               <float[2,3] b = {6, 5, 4, 3, 2, 1}> { b2 = Mul(w, b) }>
        }""",
        BOTH,
    ),
    "a result without readers": Case(
        """g (float[2,3] x, bool c) => (float[2,3] y) {
            u, v = If (c) <then_branch = t () => (float[2,3] a, float[2,3] a2) { a = Neg(x) a2 = Exp(x) },
                           else_branch = e () => (float[2,3] b, float[2,3] b2) { b = Exp(x) b2 = Neg(x) }>
            y = Relu(v)
        }""",
        BOTH,
    ),
    "fixed rounds": Case(
        """g (float[2,3] x) => (float[2,3] y, float[4,2,3] rows)
        <int64 m = {4}, bool go = {1}, float[3,3] w = {1, 2, 3, 0, 1, 0, 2, 0, 0.5}> {
            y, rows = Loop (m, go, x) <body = b (int64 i, bool go_in, float[2,3] s)
                => (bool go_out, float[2,3] s_out, float[2,3] row) {
                go_out = Identity(go_in)
                p = MatMul(s, w) f = Cast<to: int = 1>(i) s_out = Add(p, f) row = Sub(s_out, x) }>
        }""",
        ({"x": X},),
    ),
    "rounds by data": Case(
        f"""g (float[2,3] x, int64 m) => (float[2,3] y, float[2,3] z) {{
            y, z = Loop (m, , x, x) <body = b ({STATE}, float[2,3] t)
                => (bool go_out, float[2,3] s_out, float[2,3] t_out) {{
                go_out = Identity(go) s_out = Sub(t, x) t_out = Sin(s) }}>
        }}""",
        COUNTS,
    ),
    "early exit": Case(
        f"""g (float[2,3] x, float limit, bool first) => (float[2,3] y, float[2,3] k)
        <int64 most = {{6}}> {{
            y, k = Loop (most, first, x, x) <body = b ({STATE}, float[2,3] same)
                => (bool go_out, float[2,3] s_out, float[2,3] same_out) {{
                s_out = Add(s, same) m = ReduceMax<keepdims: int = 0>(s_out) go_out = Less(m, limit)
                same_out = Identity(same) }}>
        }}""",
        tuple({"x": X, "limit": np.float32(v), "first": f} for v in (-9, 1.5, 99) for f in (TRUE, FALSE)),
    ),
    "no limit": Case(
        f"""g (float[2,3] x) => (float[2,3] y) <bool yes = {{1}}, float top = {{20}}> {{
            y = Loop (, yes, x) <body = b ({STATE}) => (bool go_out, float[2,3] s_out) {{
                a = Abs(s) s_out = Add(a, a) m = ReduceMax<keepdims: int = 0>(s_out) go_out = Less(m, top) }}>
        }}""",
        ({"x": X},),
    ),
    "a state without readers": Case(
        f"""g (float[2,3] x, int64 m) => (float[2,3] y) {{
            u, v = Loop (m, , x, x) <body = b ({STATE}, float[2,3] t)
                => (bool go_out, float[2,3] s_out, float[2,3] t_out) {{
                go_out = Identity(go) s_out = Sub(t, x) t_out = Sin(s) }}>
            y = Neg(v)
        }}""",
        COUNTS,
    ),
    "states change places": Case(
        f"""g (float[2,3] x) => (float[2,3] y, float[2,3] z) <int64 m = {{3}}> {{
            k = Exp(x)
            y, z = Loop (m, , x, k) <body = b ({STATE}, float[2,3] t)
                => (bool go_out, float[2,3] s_out, float[2,3] t_out) {{
                go_out = Identity(go) s_out = Identity(t) t_out = Identity(s) }}>
        }}""",
        ({"x": X},),
    ),
    "scan": Case(
        """g (float[2] s0, float[4,2] v, float[4,3] u) => (float[2] s, float[4,2] sums, float[4,3] twice) {
            s, sums, twice = Scan <num_scan_inputs: int = 2, body = b (float[2] s_in, float[2] a, float[3] c)
                => (float[2] s_out, float[2] row, float[3] d) {
                s_out = Add(s_in, a) row = Mul(s_out, a) d = Add(c, c) }> (s0, v, u)
        }""",
        (
            {
                "s0": np.ones(2, np.float32),
                "v": np.arange(8, dtype=np.float32).reshape(4, 2),
                "u": np.arange(12, dtype=np.float32).reshape(4, 3),
            },
        ),
    ),
    "scan along other axes, backwards": Case(
        """g (float[2,3] x, float[5,2,4] v) => (float[5,4] s, float[2,5,4] f, float[5,4,2] r) <float[5,4] z = {0}> {
            z0 = ReduceSum<keepdims: int = 0>(v, k)
            s, f, r = Scan <num_scan_inputs: int = 1, scan_input_axes: ints = [-2], scan_input_directions: ints = [1],
                scan_output_axes: ints = [0, -1], scan_output_directions: ints = [0, 1],
                body = b (float[5,4] s_in, float[5,4] a) => (float[5,4] s_out, float[5,4] p, float[5,4] q) {
                h = Mul(s_in, half) s_out = Add(h, a) p = Sub(s_out, a) q = Exp(s_in) }> (z0, v)
        }""".replace("<float[5,4] z = {0}>", "<int64[1] k = {1}, float half = {0.5}>"),
        ({"x": X, "v": np.sin(np.arange(40, dtype=np.float32)).reshape(5, 2, 4)},),
    ),
    "nested": Case(
        """g (float[2,3] x, bool c, int64 m) => (float[2,3] y, float[3,2,3] rows) <int64 three = {3}> {
            outer = Cos(x)
            y, rows = Loop (three, , x) <body = b (int64 i, bool go, float[2,3] s)
                => (bool go_out, float[2,3] s_out, float[2,3] row) {
                go_out = Identity(go)
                t = Loop (m, , s) <body = b2 (int64 j, bool go2, float[2,3] r) => (bool go3, float[2,3] r_out) {
                    go3 = Identity(go2) e = Add(r, outer) ji = Add(i, j) f = Cast<to: int = 1>(ji)
                    r_out = Add(e, f) }>
                s_out = If (c) <then_branch = t1 () => (float[2,3] a) { a = Sub(t, s) },
                                else_branch = e1 () => (float[2,3] a1) { a1 = Tanh(t) }>
                row = Mul(s_out, outer) }>
        }""",
        tuple({"x": X, "c": c, "m": n(m)} for c in (TRUE, FALSE) for m in (0, 1, 4)),
    ),
    "convolutions in a body": Case(
        """g (float[1,8,9,9] x, int64 m) => (float[1,8,9,9] y)
        {
            y = Loop (m, , x) <body = b (int64 i, bool go, float[1,8,9,9] s) => (bool go_out, float[1,8,9,9] s_out) {
                go_out = Identity(go)
                shape = Constant<value: tensor = int64[4] {8, 8, 3, 3}>() k = Constant<value: tensor = float {0.02}>()
                w = Expand(k, shape)
                a = Conv<pads: ints = [1, 1, 1, 1]>(s, w) r = Relu(a)
                c = Conv<pads: ints = [1, 1, 1, 1]>(r, w) p = MaxPool<kernel_shape: ints = [3, 3],
                    pads: ints = [1, 1, 1, 1]>(c) s_out = Add(p, x) }>
        }""",
        tuple({"x": np.sin(np.arange(8 * 81, dtype=np.float32)).reshape(1, 8, 9, 9), "m": n(m)} for m in (0, 1, 3, 4)),
    ),
    "bytes in a body": Case(
        """g (uint8[4,8] x, int64 m) => (uint8[4,8] y)
        <float s = {0.1}, uint8 z = {120}, float sw = {0.05}, uint8 zw = {128}> {
            y = Loop (m, , x) <body = b (int64 i, bool go, uint8[4,8] q) => (bool go_out, uint8[4,8] q_out) {
                go_out = Identity(go)
                shape = Constant<value: tensor = int64[2] {8, 8}>() k = Constant<value: tensor = uint8[8,1]
                    {130, 126, 140, 100, 128, 131, 150, 120}>()
                w = Expand(k, shape)
                q_out = QLinearMatMul(q, s, z, w, sw, zw, s, z) }>
        }""",
        tuple({"x": np.arange(100, 132, dtype=np.uint8).reshape(4, 8), "m": n(m)} for m in (0, 1, 2, 3)),
    ),
    "types": Case(
        """g (float16[3] h, int8[3] q, bool[3] b, double[3] d, int64 m)
            => (float16[3] h1, int8[3] q1, bool[3] b1, double[3] d1) {
            h1, q1, b1, d1 = Loop (m, , h, q, b, d) <body = l (int64 i, bool go, float16[3] h0, int8[3] q0, bool[3] b0,
                double[3] d0) => (bool go_out, float16[3] h2, int8[3] q2, bool[3] b2, double[3] d2) {
                go_out = Identity(go) h2 = Add(h0, h) q2 = Neg(q0) b2 = Not(b0) d2 = Mul(d0, d) }>
        }""",
        tuple(
            {
                "h": np.float16([1, -2, 0.5]),
                "q": np.int8([1, -7, 99]),
                "b": np.array([True, False, True]),
                "d": np.array([1.5, -2, 3]),
                "m": n(m),
            }
            for m in (0, 1, 2, 3)
        ),
    ),
    "empty tensors": Case(
        """g (float[0,3] x, float[0,2] v, int64 m) => (float[0,3] y, float[0,2] w) {
            y = Loop (m, , x) <body = b (int64 i, bool go, float[0,3] s) => (bool go_out, float[0,3] s_out) {
                go_out = Identity(go) s_out = Neg(s) }>
            w = Scan <num_scan_inputs: int = 1, body = b2 (float[2] a) => (float[2] c) { c = Exp(a) }> (v)
        }""",
        tuple({"x": np.zeros((0, 3), np.float32), "v": np.zeros((0, 2), np.float32), "m": n(m)} for m in (0, 2)),
    ),
}
CASES["constants as first values and slices"] = Case(
    """g (float[2] x, int64 m) => (float[2] y, float[2] z, float[3,2] rows)
    <float[2] first = {1, -2}, float[3,2] v = {1, 2, 3, 4, 5, 6}, bool yes = {1}> {
        y = Loop (m, yes, first) <body = b (int64 i, bool go, float[2] s) => (bool go_out, float[2] s_out) {
            go_out = Identity(go) s_out = Add(s, x) }>
        z, rows = Scan <num_scan_inputs: int = 1, body = b2 (float[2] t, float[2] a) => (float[2] t_out, float[2] r) {
            t_out = Mul(t, a) r = Add(t_out, x) }> (first, v)
    }""",
    tuple({"x": X[0, :2], "m": n(m)} for m in (0, 1, 4)),
)
for _rounds in (0, 1, 2):
    CASES[f"{_rounds} rounds"] = Case(
        """g (float[2,3] x) => (float[2,3] y, float[ROUNDS,2,3] rows) <int64 m = {ROUNDS}> {
            y, rows = Loop (m, , x) <body = b (int64 i, bool go, float[2,3] s)
                => (bool go_out, float[2,3] s_out, float[2,3] row) {
                go_out = Identity(go) s_out = Add(s, x) row = Neg(s) }>
        }""".replace("ROUNDS", str(_rounds)),
        ({"x": X},),
    )
CASES["rows of a declared size"] = Case(
    """g (float[2,3] x, int64 m) => (float[2,3] y, float[4,2,3] rows) {
        y, rows = Loop (m, , x) <body = b (int64 i, bool go, float[2,3] s)
            => (bool go_out, float[2,3] s_out, float[2,3] row) {
            go_out = Identity(go) s_out = Add(s, x) row = Neg(s) }>
    }""",
    ({"x": X, "m": n(4)},),
)


def prepared(name: str, isas: Any) -> list[nodes.Prepared]:
    """A program for each run of a case, all of the same text, with the executor's results."""
    model = load(HEAD + CASES[name].text)
    prefix = f"case{list(CASES).index(name)}"
    emitted = generate(model, name=prefix, isas=isas, embedded=False)
    ready = []
    for k, inputs in enumerate(CASES[name].runs):
        given = {x.name: np.asarray(inputs[x.name]) for x in emitted.inputs}
        expected = Executor(model).run(dict(inputs))
        ready.append(nodes.Prepared(f"{name} {k}", emitted, given, [expected[y.name] for y in emitted.outputs]))
    return ready


def close(name: str, found: np.ndarray, wanted: Any) -> None:
    wanted = np.asarray(wanted)
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape), name
    if wanted.dtype.kind == "f":
        np.testing.assert_allclose(found, wanted, rtol=1e-3 if wanted.dtype.itemsize == 2 else 2e-5, atol=1e-5)
    else:
        np.testing.assert_array_equal(found, wanted, err_msg=name)


def check(how: str) -> None:
    """All cases in one library, warnings being errors."""
    way = WAYS[how]
    ready = {name: prepared(name, way.isas) for name in CASES}
    library = nodes.compiled([runs[0] for runs in ready.values()], way)
    every = [run for runs in ready.values() for run in runs]
    results = nodes.results(library, every, way)
    for run in every:
        found = results[run.name]
        assert isinstance(found, list), found
        for y, array, wanted in zip(run.emitted.outputs, found, run.expected, strict=True):
            close(f"{run.name}: {y.name}", array, wanted)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["native", "quick"])
def test_values(how: str):
    check(how)


@pytest.mark.heavy
@pytest.mark.parametrize("how", sanitized_ways())
def test_sanitizers_find_nothing(how: str):
    check(how)


@pytest.mark.parametrize("name", [name for name in CASES if name != "empty tensors"])  # which ONNX Runtime refuses
def test_the_executor_agrees_with_onnx_runtime(name: str):
    case = CASES[name]
    model = load(HEAD + case.text)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(ir.to_proto(model).SerializeToString(), options)
    for inputs in case.runs:
        expected = session.run(None, {key: np.asarray(value) for key, value in inputs.items()})
        found = Executor(model).run(dict(inputs))
        for y, wanted in zip(model.graph.outputs, expected, strict=True):
            close(f"{name}: {y.name}", np.asarray(found[y.name or ""]), wanted)


# ---- rows of a declared size -------------------------------------------------------------------------------


@pytest.mark.parametrize("rounds", [0, 1, 3, 4, 5, 9])
def test_rows_beyond_or_short_of_the_declared_size(rounds: int):
    """Rows without a round are zero, rounds beyond make no row; the last state is that of all rounds."""
    model = load(HEAD + CASES["rows of a declared size"].text)
    found = CModel(model).run({"x": X, "m": n(rounds)})
    np.testing.assert_allclose(found["y"], X * (rounds + 1), rtol=1e-6)
    made = [-X * (k + 1) if k < rounds else 0 * X for k in range(4)]
    np.testing.assert_allclose(found["rows"], made, rtol=1e-6)


# ---- what is refused ---------------------------------------------------------------------------------------

REFUSED = {
    "a result of If of unknown rank, float[2, 3] or float[6]": """g (float[2,3] x, bool c) => (float[] y)
    <int64[1] k = {6}> {
        y = If (c) <then_branch = t () => (float[] a) { a = Neg(x) },
                    else_branch = e () => (float[] b) { b = Reshape(x, k) }>
    }""",
    "a carried value of Loop that changes from float[2, 3] to float[1, 2, 3]": """g (float[2,3] x) => (float[] y)
    <int64 m = {2}, int64[1] z = {0}> {
        y = Loop (m, , x) <body = b (int64 i, bool go, float[] s) => (bool go_out, float[] s_out) {
            go_out = Identity(go) s_out = Unsqueeze(s, z) }>
    }""",
    "a size that data decides and nothing bounds (give a bound with --dim y=..N): 'y'": """g (float[2,3] x, int64 m)
        => (float[a,b,c] y) <bool yes = {1}> {
        y = Loop (m, yes) <body = b (int64 i, bool go) => (bool go_out, float[] row) {
            go_out = Identity(go) f = Cast<to: int = 1>(i) row = Add(x, f) }>
    }""",
    "a Loop that never ends": """g (float[2,3] x) => (float[2,3] y) {
        y = Loop ( , , x) <body = b (int64 i, bool go, float[] s) => (bool go_out, float[] s_out) {
            go_out = Identity(go) s_out = Neg(s) }>
    }""",
    "no kernel for RandomNormalLike of (float[2, 3])": """g (float[2,3] x, bool c) => (float[2,3] y) {
        y = If (c) <then_branch = t () => (float[] a) { a = RandomNormalLike(x) },
                    else_branch = e () => (float[] b) { b = Neg(x) }>
    }""",
    "a result of SequenceEmpty that is not a tensor of known type": """g (float[4] x, int64 m) => (float[a] y) {
        e = SequenceEmpty <dtype = 1> ()
        s = Loop (m, , e) <body = b (int64 i, bool go, seq(float[4]) q) => (bool go_out, seq(float[4]) more) {
            go_out = Identity(go) more = SequenceInsert(q, x) }>
        y = ConcatFromSequence <axis = 0> (s)
    }""",
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_is_refused_is_said(reason: str):
    with pytest.raises(CodegenError) as caught:
        generate(load(HEAD + REFUSED[reason]))
    assert reason in str(caught.value)


# ---- what is known of a program ----------------------------------------------------------------------------


def test_how_often_kernels_are_called():
    emitted = generate(load(HEAD + CASES["nested"].text))
    times = {kernel.what: kernel.times for kernel in emitted.kernels}
    assert times.pop("Cos") == 1
    assert times.pop("Mul") == 3
    assert times.pop("Sub") == times.pop("Tanh") == 3 * BRANCH
    assert set(times.values()) == {3 * UNKNOWN_ROUNDS}


def test_costs_count_calls():
    """Ten rounds cost ten times one, in the prediction of a kernel and in that of the chosen ones."""
    host = load_host("c")
    text = """g (float[1,32,28,28] x) => (float[1,32,28,28] y) <int64 m = {ROUNDS}> {
        y = Loop (m, , x) <body = b (int64 i, bool go, float[] s) => (bool go_out, float[] s_out)
            <float[1] k = {0.1}> {
            go_out = Identity(go) shape = Constant<value_ints: ints = [32, 32, 3, 3]>() w = Expand(k, shape)
            s_out = Conv<pads: ints = [1, 1, 1, 1]>(s, w) }>
    }"""
    one, ten = (generate(load(HEAD + text.replace("ROUNDS", str(rounds)))) for rounds in (1, 10))
    totals = [sum(predict(k, host) for k in e.kernels if k.times != 1 or e is one) for e in (one, ten)]
    assert totals[1] == pytest.approx(10 * totals[0])
    assert one.selection is not None and ten.selection is not None
    assert ten.selection.kernels == one.selection.kernels == {"direct_convolution": 1}
    assert ten.selection.cost == pytest.approx(10 * one.selection.cost)
    assert ten.selection.bound <= ten.selection.cost


def test_weights_are_stored_once_and_packed_outside_of_rounds():
    """The same convolution inside and outside of a loop reads the same packed weights."""
    rng = np.random.default_rng(0)
    w = rng.standard_normal((32, 32, 3, 3)).astype(np.float32)
    text = """g (float[1,32,28,28] x, int64 m) => (float[1,32,28,28] y) {
        a = Conv<pads: ints = [1, 1, 1, 1]>(x, w)
        y = Loop (m, , a) <body = b (int64 i, bool go, float[] s) => (bool go_out, float[] s_out) {
            go_out = Identity(go) s_out = Conv<pads: ints = [1, 1, 1, 1]>(s, w) }>
    }"""
    model = load(HEAD + text.replace("int64 m)", "int64 m, float[32,32,3,3] w)"), values={"w": w})
    emitted = generate(model)
    assert w.nbytes <= len(emitted.weights) < 2 * w.nbytes


def test_profiles_measure_kernels_of_bodies():
    kernels = profile(load(HEAD + CASES["nested"].text), CASES["nested"].runs[2], repeat=2)
    assert [kernel.what for kernel, _ in kernels].count("Cos") == 1
    assert all(seconds > 0 for _, seconds in kernels)


def test_names_of_a_body_become_no_code():
    hostile = ["arena", "weights", "trip", "x0", "y0", "model_loop", "*/ #error", "int"]
    text = onnx.parser.parse_model(
        HEAD
        + """g (float[2,3] x, int64 m) => (float[2,3] y) {
            a = Exp(x) b = Neg(x)
            y = Loop (m, , a) <body = l (int64 i, bool go, float[2,3] s) => (bool k, float[2,3] t) {
                k = Identity(go) c = Add(s, b) d = Cast<to: int = 1>(i) t = Sub(c, d) }>
        }"""
    )
    renamed = dict(zip(("a", "b", "s", "t", "i", "l", "c", "d"), hostile, strict=True))
    for graph in (text.graph, text.graph.node[2].attribute[0].g):
        graph.name = renamed.get(graph.name, graph.name)
        for value in (*graph.input, *graph.output):
            value.name = renamed.get(value.name, value.name)
        for node in graph.node:
            node.name = '"; */ int main'
            node.input[:] = [renamed.get(x, x) for x in node.input]
            node.output[:] = [renamed.get(x, x) for x in node.output]
    model = load(text)
    found = CModel(model).run({"x": X, "m": n(3)})
    np.testing.assert_allclose(found["y"], np.exp(X) - 3 * X - 3, rtol=1e-5, atol=1e-5)
