"""If, Loop and Scan in C whose operands have free sizes, whose rounds data counts, or whose bodies read sizes."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import eqsat
from eqsat.codegen.generate import generate
from eqsat.codegen.runtime import CModel
from eqsat.errors import CodegenError, ExecutionError
from eqsat.model.load import load
from eqsat.model.symbols import symbols
from tests.codegen.ways import SANITIZERS, WAYS

HEAD = '<ir_version: 10, opset_import: ["": 21]>\n'
SIZES = {"b": (1, 2, 5), "s": (1, 4, 7, 12)}
UNDEFINED = ("-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-fsanitize=undefined",
             "-fsanitize-undefined-trap-on-error")  # fmt: skip

CASES = {
    "a branch": """g (float[b,s] x, bool c) => (float[b,s] y) {
        y = If (c) <then_branch = t () => (float[b,s] p) { p = Neg(x) },
                    else_branch = e () => (float[b,s] q) { h = Relu(x) q = Add(h, x) }>
    }""",
    "branches that read sizes": """g (float[b,s] x, bool c) => (int64[2] y, float[b,s] z) {
        n = Shape(x)  one = Constant<value_ints = [1]>()  less = Sub(n, one)
        y, z = If (c) <
            then_branch = t () => (int64[2] p, float[b,s] p2) { p = Identity(less)  k = Cast<to=1>(less)
                r = ReduceSum<keepdims=0>(k)  p2 = Mul(x, r) },
            else_branch = e () => (int64[2] q, float[b,s] q2) { q = Add(n, n)  f = Constant<value_float=2.0>()
                e0 = Expand(f, n)  q2 = Sub(x, e0) }>
    }""",
    "fixed rounds": """g (float[b,s] x) => (float[b,s] y, float[r,b,s] rows) <int64 m = {4}> {
        y, rows = Loop (m, , x) <body = l (int64 i, bool go, float[b,s] h)
            => (bool on, float[b,s] next, float[b,s] row) {
            on = Identity(go)  f = Cast<to=1>(i)  a = Add(h, f)  next = Sin(a)  row = Sub(next, x) }>
    }""",
    "a round for each row": """g (float[b,s] x) => (float[b] y, float[r,b] rows) {
        axes = Constant<value_ints = [0]>()  one = Constant<value_int = 1>()
        n0 = Shape<start=1, end=2>(x)  n = Squeeze(n0, axes)
        first0 = Constant<value_float=0.0>()  d = Shape<start=0, end=1>(x)  first = Expand(first0, d)
        y, rows = Loop (n, , first) <body = l (int64 i, bool go, float[b] h) => (bool on, float[b] next, float[b] row) {
            on = Identity(go)  c = Gather<axis=1>(x, i)  a = Add(h, c)  next = Tanh(a)  row = Neg(a) }>
    }""",
    "one round less": """g (float[b,s] x) => (float[b,s] y, float[r,s] rows) {
        axes = Constant<value_ints = [0]>()  one = Constant<value_int = 1>()
        n0 = Shape<start=0, end=1>(x)  n1 = Squeeze(n0, axes)  n = Sub(n1, one)
        y, rows = Loop (n, , x) <body = l (int64 i, bool go, float[b,s] h)
            => (bool on, float[b,s] next, float[s] row) {
            on = Identity(go)  next = Exp(h0)  h0 = Sin(h)  row = Gather<axis=0>(h, i) }>
    }""".replace("next = Exp(h0)  h0 = Sin(h)", "h0 = Sin(h)  next = Exp(h0)"),
    "rounds by data": """g (float[b,s] x, int64 m) => (float[b,s] y) {
        y = Loop (m, , x) <body = l (int64 i, bool go, float[b,s] h) => (bool on, float[b,s] next) {
            on = Identity(go)  a = Add(h, x)  next = Sin(a) }>
    }""",
    "rows until a condition": """g (float[b,s] x, float top) => (float[b,s] y, float[r,b] rows) <int64 m = {6}> {
        z = Constant<value_ints = [1]>()
        y, rows = Loop (m, , x) <body = l (int64 i, bool go, float[b,s] h)
            => (bool on, float[b,s] next, float[b] row) {
            one = Constant<value_float = 1.0>()  next = Add(h, one)  most = ReduceMax<keepdims=0>(next)
            on = Less(most, top)  row = ReduceSum<keepdims=0>(next, z) }>
    }""",
    "what follows counted rows": """g (float[b,s] x, float top) => (float[r2,b] y, int64[2] n) {
        z = Constant<value_ints = [1]>()  yes = Constant<value = bool {1}>()  m = Constant<value_int = 9>()
        h0, rows = Loop (m, yes, x) <body = l (int64 i, bool go, float[b,s] h)
            => (bool on, float[b,s] next, float[b] row) {
            one = Constant<value_float = 1.0>()  next = Add(h, one)  most = ReduceMax<keepdims=0>(next)
            on = Less(most, top)  row = ReduceSum<keepdims=0>(next, z) }>
        w = Sigmoid(rows)  twice = Concat<axis=0>(w, rows)  t = Constant<value_ints=[0]>()  y = Sub(twice, top)
        n = Shape(twice)
    }""",
    "scan": """g (float[s,b] x, float[b] first) => (float[b] y, float[s,b] sums) {
        y, sums = Scan <num_scan_inputs = 1, body = l (float[b] h, float[b] a) => (float[b] next, float[b] row) {
            t = Add(h, a)  next = Tanh(t)  row = Mul(next, a) }> (first, x)
    }""",
    "scan along another axis, backwards": """g (float[b,s,3] x, float[b,3] first) => (float[b,3] y, float[b,3,s] z) {
        y, z = Scan <num_scan_inputs = 1, scan_input_axes = [1], scan_input_directions = [1],
            scan_output_axes = [2], scan_output_directions = [1],
            body = l (float[b,3] h, float[b,3] a) => (float[b,3] next, float[b,3] row) {
            t = Add(h, a)  next = Tanh(t)  row = Mul(next, a) }> (first, x)
    }""",
    "two loops, one inside": """g (float[b,s] x) => (float[b,s] y, float[r,q,b] rows) <int64 two = {2}> {
        axes = Constant<value_ints = [0]>()  n0 = Shape<start=1, end=2>(x)  n = Squeeze(n0, axes)
        y, rows = Loop (two, , x) <body = o (int64 i, bool go, float[b,s] h)
            => (bool on, float[b,s] next, float[q,b] outer) {
            on = Identity(go)
            next, outer = Loop (n, , h) <body = l (int64 j, bool go2, float[b,s] h2)
                => (bool on2, float[b,s] next2, float[b] row) {
                on2 = Identity(go2)  c = Gather<axis=1>(x, j)  k = Unsqueeze(c, one)  t = Add(h2, k)
                one = Constant<value_ints = [1]>()  next2 = Sin(t)  row = Neg(c) }> }>
    }""".replace("k = Unsqueeze(c, one)  t = Add(h2, k)\n                one = Constant<value_ints = [1]>()",
                 "one = Constant<value_ints = [1]>()\n                k = Unsqueeze(c, one)  t = Add(h2, k)"),
    "a loop in a branch": """g (float[b,s] x, bool c) => (float[b,s] y) {
        axes = Constant<value_ints = [0]>()  n0 = Shape<start=0, end=1>(x)  n = Squeeze(n0, axes)
        y = If (c) <then_branch = t () => (float[b,s] p) {
                p = Loop (n, , x) <body = l (int64 i, bool go, float[b,s] h) => (bool on, float[b,s] next) {
                    on = Identity(go)  f = Cast<to=1>(n)  a = Add(h, f)  next = Sin(a) }> },
            else_branch = e () => (float[b,s] q) { q = Neg(x) }>
    }""",
    "a constant state beside a size": """g (float[b,s] x) => (int64 y, int64 z, float[b,s] w) {
        axes = Constant<value_ints = [0]>()  n0 = Shape<start=1, end=2>(x)  n = Squeeze(n0, axes)
        m = Constant<value_int = 3>()  none = Constant<value_int = 0>()
        y, z, w = Loop (m, , n, none, x) <body = l (int64 i, bool go, int64 p, int64 q, float[b,s] h)
            => (bool on, int64 p2, int64 q2, float[b,s] h2) {
            on = Identity(go)  p2 = Add(p, i)  q2 = Sub(q, n)  f = Cast<to=1>(p)  h2 = Add(h, f) }>
    }""",
}  # fmt: skip


def feeds(model: onnx.ModelProto, sizes: Mapping[str, int]) -> list[dict[str, np.ndarray]]:
    """Inputs at some sizes, for each value of those that decide what is executed."""
    rng = np.random.default_rng(sum(sizes.values()))
    given: dict[str, list[np.ndarray]] = {}
    for value in model.graph.input:
        kind = value.type.tensor_type
        shape = [d.dim_value or sizes[d.dim_param] for d in kind.shape.dim]
        if kind.elem_type == onnx.TensorProto.BOOL:
            given[value.name] = [np.array(True), np.array(False)]
        elif kind.elem_type == onnx.TensorProto.INT64:
            given[value.name] = [np.array(n) for n in (0, 1, 2, 5, -1)]
        elif not shape:
            given[value.name] = [np.array(n, np.float32) for n in (-9.0, 2.5, 4.0, 99.0)]
        else:
            given[value.name] = [rng.standard_normal(shape).astype(np.float32)]
    return [dict(zip(given, map(np.asarray, chosen), strict=True)) for chosen in itertools.product(*given.values())]


def compare(text: str, isas: tuple | None = None) -> None:
    """Beside ONNX Runtime at all sizes, under the sanitizer for undefined behaviour."""
    proto = onnx.parser.parse_model(HEAD + text)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    loaded = load(proto)
    used = {name: SIZES[name] for name in symbols(loaded) if name in SIZES}
    compiled = CModel(loaded, dims={n: (v[0], v[-1], v[1]) for n, v in used.items()}, isas=isas, flags=UNDEFINED)
    for values in itertools.product(*used.values()):
        sizes = dict(zip(used, values, strict=True))
        for inputs in feeds(proto, sizes):
            found = compiled.run(inputs)
            expected = map(np.asarray, session.run(None, inputs))
            for wanted, (name, got) in zip(expected, found.items(), strict=True):
                assert (len(got.shape), got.dtype) == (len(wanted.shape), wanted.dtype), (name, sizes)
                # Of rows without a round, ONNX Runtime takes each free size to be 0.
                assert got.shape == wanted.shape or got.size == wanted.size == 0, (name, sizes)
                if not got.size:
                    continue
                np.testing.assert_allclose(got, wanted, 1e-4, 1e-5, err_msg=f"{name} at {sizes}")


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_values_at_all_sizes(name: str) -> None:
    compare(CASES[name], WAYS["quick"].isas)


COUNTED = """g (float[b,s] x, int64 m) => (float[r,b,s] y, int64[3] n) {
    yes = Constant<value = bool {1}>()
    rows = Loop (m, yes) <body = l (int64 i, bool go) => (bool on, float[b,s] row) {
        on = Identity(go)  f = Cast<to=1>(i)  row = Sub(x, f) }>
    y = Abs(rows)  n = Shape(y)
}"""


def test_a_number_of_rounds_that_only_data_knows_has_a_bound() -> None:
    loaded = load(onnx.parser.parse_model(HEAD + COUNTED))
    dims = {"b": (1, 4), "s": (1, 9)}
    with pytest.raises(CodegenError, match=r"nothing bounds \(give a bound with --dim rows=\.\.N\)"):
        generate(loaded, dims=dims)
    compiled = CModel(loaded, dims={**dims, "rows": (1, 5)}, flags=UNDEFINED)
    x = np.random.default_rng(0).standard_normal((3, 7)).astype(np.float32)
    for rounds in (-2, 0, 1, 5):
        found = compiled.run({"x": x, "m": np.array(rounds)})
        wanted = [np.abs(x - k) for k in range(rounds)]
        np.testing.assert_allclose(found["y"], np.reshape(wanted, (max(rounds, 0), 3, 7)), rtol=1e-6)
        np.testing.assert_array_equal(found["n"], [max(rounds, 0), 3, 7])
    with pytest.raises(ExecutionError):
        compiled.run({"x": x, "m": np.array(6)})


def test_an_early_end_leaves_the_number_of_rows_open() -> None:
    """The limit is a constant, and rounds end before it."""
    model = load(onnx.parser.parse_model(HEAD + CASES["what follows counted rows"]))
    shape = model.graph[0].outputs[1].shape
    assert shape is not None and not isinstance(shape[0], int)


@pytest.mark.heavy
@pytest.mark.parametrize("macro", ["", "-DMODEL_SCALAR"])
@pytest.mark.parametrize("name", CASES)
def test_sanitizers_find_nothing(name: str, macro: str, tmp_path: Path) -> None:
    """The program that checks itself, at sizes that leave remainders and at the greatest ones."""
    proto = onnx.parser.parse_model(HEAD + CASES[name])
    loaded = load(proto)
    used = {symbol: (1, SIZES[symbol][-1]) for symbol in symbols(loaded) if symbol in SIZES}
    for sizes in ({"b": 1, "s": 1}, {"b": 3, "s": 7}, {"b": 5, "s": 12}):
        for inputs in feeds(proto, sizes)[:3]:
            eqsat.write_c(loaded, tmp_path, dims=used, inputs=inputs)
            command = ["cc", "-std=c11", "-O1", macro, *SANITIZERS, *map(str, tmp_path.glob("*.c")), "-lm"]
            subprocess.run([*filter(None, command), "-o", str(tmp_path / "check")], check=True)
            done = subprocess.run([tmp_path / "check"], capture_output=True, encoding="utf-8", check=False)
            assert done.returncode == 0, done.stdout + done.stderr
