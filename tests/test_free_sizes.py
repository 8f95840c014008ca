"""Models optimized with sizes that stay free: right at every size, whatever program of the e-graph is chosen."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Literal

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import eqsat
from eqsat.cli import main
from eqsat.errors import EqsatError, ExecutionError, ModelError, QuantizationError
from eqsat.execute.inputs import complete_inputs
from eqsat.model.load import load
from eqsat.model.read.dims import free_sizes
from eqsat.model.read.given_sizes import split
from eqsat.schema.chosen_sizes import samples
from eqsat.schema.free_sizes import FreeSize
from tests.model.running import run_ort

HEAD = '<ir_version: 8, opset_import: ["": 17]> g '
MODELS = {
    "dense": """(float[N, 8] x, float[8, 4] w, float[4] b, float[4] c) => (float[N, 4] y) {
        a = MatMul(x, w) d = Add(a, b) e = Add(d, c) f = Relu(e) y = Relu(f) }""",
    "broadcast": """(float[N, 4] x, float[M, 4] z) => (float[K, 4] y) {
        a = Add(x, z) b = Add(z, x) c = Sub(a, b) d = Mul(c, a) y = Add(d, a) }""",
    "convolutions": """(float[N, 3, H, W] x, float[4, 3, 3, 3] w, float[4] s, float[4] t, float[4] m, float[4] v)
        => (float[N, 4, 1, 1] y) {
        a = Conv<pads=[1,1,1,1]>(x, w) n = Abs(v) o = Add(n, n) b = BatchNormalization(a, s, t, m, o) c = Relu(b)
        d = MaxPool<kernel_shape=[2,2], strides=[2,2], ceil_mode=1>(c) y = GlobalAveragePool(d) }""",
    "attention": """(float[B, S, 8] x, float[8, 8] q, float[8, 8] k, float[8, 8] v) => (float[B, S, 8] y)
        <int64 zero = {0}, int64 one = {1}, int64[1] at = {0}, int64[2] rest = {2, 4},
         int64[1] all = {-1}, float f = {0.5}> {
        shape = Shape(x) b0 = Gather(shape, zero) s0 = Gather(shape, one)
        b1 = Unsqueeze(b0, at) s1 = Unsqueeze(s0, at) split = Concat<axis=0>(b1, s1, rest)
        xq = MatMul(x, q) xk = MatMul(x, k) xv = MatMul(x, v)
        rq = Reshape(xq, split) rk = Reshape(xk, split) rv = Reshape(xv, split)
        tq = Transpose<perm=[0,2,1,3]>(rq) tk = Transpose<perm=[0,2,3,1]>(rk) tv = Transpose<perm=[0,2,1,3]>(rv)
        qk = MatMul(tq, tk) scaled = Mul(qk, f) p = Softmax<axis=-1>(scaled) o = MatMul(p, tv)
        t = Transpose<perm=[0,2,1,3]>(o) back = Concat<axis=0>(b1, s1, all) r = Reshape(t, back) y = Add(r, x) }""",
    "slices": """(float[N, 6] x) => (float[M, 6] y, float[K, 6] z)
        <int64[1] a0 = {0}, int64[1] far = {1000000000}, int64[1] one = {1}, int64[1] two = {2}> {
        s = Slice(x, a0, far, a0, one) t = Slice(s, a0, two, a0, one) u = Concat<axis=0>(t, s)
        y = Relu(u) w = Slice(x, a0, far, a0, two)
        v = Transpose<perm=[1,0]>(w) q = Transpose<perm=[1,0]>(v) z = Neg(q) }""",
    "expanded": """(float[1, N] x, int64[2] unused) => (float[M, N] y) <int64[1] three = {3}, int64[1] at = {0}> {
        s = Shape<start=1>(x) t = Concat<axis=0>(three, s) e = Expand(x, t) o = ConstantOfShape(t) f = Add(e, o)
        r = ReduceMean<axes=[0], keepdims=1>(f) y = Sub(f, r) }""",
    "reductions": """(float[N, C, 5] x) => (float[N, 5] y, float[N] z) <int64[1] axis = {1}> {
        a = ReduceSum<keepdims=1>(x, axis) b = Squeeze(a, axis) c = ReduceMax<axes=[1,2], keepdims=0>(x)
        d = ReduceMax<axes=[2], keepdims=0>(x) e = ReduceMax<axes=[1], keepdims=0>(d)
        z = Sub(c, e) y = Mul(b, b) }""",
}
SIZES = (1, 2, 7, 16, 33)


def _feeds(model: onnx.ModelProto, sizes: dict[str, int], seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    found = {}
    for value in model.graph.input:
        shape = [d.dim_value or sizes[d.dim_param] for d in value.type.tensor_type.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        found[value.name] = rng.standard_normal(shape).astype(dtype)
    return found


def _symbols(model: onnx.ModelProto) -> list[str]:
    return sorted({d.dim_param for v in model.graph.input for d in v.type.tensor_type.shape.dim if d.dim_param})


def _right_at_all_sizes(model: onnx.ModelProto, result: eqsat.Result, path: Path) -> None:
    result.save(path)
    saved = onnx.load(path)
    names = _symbols(model)
    # Each symbol has other sizes than the others, and once all are equal.
    assignments = [{name: SIZES[(i + k) % len(SIZES)] for i, name in enumerate(names)} for k in range(len(SIZES))]
    assignments.append(dict.fromkeys(names, 4))
    executed = 0
    for at, sizes in enumerate(assignments):
        feeds = _feeds(model, sizes, at)
        try:
            wanted = run_ort(model, feeds)
        except Exception:  # tensors of these sizes do not broadcast
            continue
        executed += 1
        for a, b in zip(wanted, run_ort(saved, feeds), strict=True):
            assert a.shape == b.shape
            assert np.allclose(a, b, rtol=1e-4, atol=1e-4), sizes
    assert executed


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("objective", ["best", "worst", "random"])
def test_every_program_is_right_at_every_size(name: str, objective: Literal["best", "worst", "random"], tmp_path: Path):
    model = onnx.parser.parse_model(HEAD + MODELS[name])
    for seed in range(3 if objective == "random" else 1):
        result = eqsat.optimize(model, objective=objective, seed=seed)
        _right_at_all_sizes(model, result, tmp_path / "out.onnx")


@pytest.mark.parametrize("name", MODELS)
def test_programs_on_accelerators_are_right_at_every_size(name: str, tmp_path: Path):
    model = onnx.parser.parse_model(HEAD + MODELS[name])
    result = eqsat.optimize(model, targets=["dnnl"], dims=dict.fromkeys(_symbols(model), (1, None, 64)))
    _right_at_all_sizes(model, result, tmp_path / "out.onnx")


def test_a_verified_result_says_at_which_sizes():
    result = eqsat.optimize(HEAD + MODELS["dense"], dims={"N": (1, 64)})
    verified = result.summary.verification
    assert verified is not None
    assert verified.agrees
    assert all(any(f"N = {n}" in sample for sample in verified.samples) for n in (1, 7, 32))
    assert any("costs are at N = 1" in note for note in result.summary.notes)


def test_costs_are_taken_at_the_typical_size():
    costs = [eqsat.optimize(HEAD + MODELS["dense"], dims={"N": (1, 4096, n)}).cost for n in (1, 64, 4096)]
    bound = [eqsat.optimize(HEAD + MODELS["dense"], dims={"N": n}).cost for n in (1, 64, 4096)]
    assert costs == pytest.approx(bound)


def test_what_is_assumed_of_a_size():
    model = load(HEAD + "(float[batch, seq] a, float[3, k] b) => (y) { y = MatMul(b, a) }")
    sizes = free_sizes(model, split({"seq": (2, 8)})[1])
    assert sizes == {
        "batch": FreeSize(1, None, 1),
        "seq": FreeSize(2, 8, 8),
        "k": FreeSize(1, None, 1, follows="batch", forced=True),
    }
    assert [s["seq"] for s in samples(sizes)] == [8, 8, 2, 8]


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        ({"N": (0, 4)}, "a range"),
        ({"N": (4, 2)}, "a range"),
        ({"N": (1, 4, 5)}, "within the range"),
        ({"N": (1,)}, "a range"),
        ({"N": "1..4"}, "size for the dimension"),
        ({"N": (True, 4)}, "a range"),
        ({"M": (1, 4)}, "symbolic dimension of the inputs"),
    ],
)
def test_ranges_that_are_none(dims: dict, message: str):
    with pytest.raises(ModelError, match=message):
        eqsat.optimize(HEAD + MODELS["dense"], dims=dims)


def test_all_sizes_that_are_missing_are_named_at_once():
    with pytest.raises(ExecutionError, match=r"(?s)`N`, `M`.*--dim N=1; `M` is N"):
        eqsat.compare(HEAD + MODELS["broadcast"], HEAD + MODELS["broadcast"])
    with pytest.raises(QuantizationError, match="at least one sample is required"):
        eqsat.quantize(HEAD + MODELS["convolutions"], [])


SETTINGS = f"""{HEAD} (float[N, S] x, int64 rate, bool on, int64 at, float[1, 1] table) => (float[N, S] y) {{
    c = Cast<to=1>(rate) d = Gather(table, at) e = Mul(x, c) y = Add(e, d) }}"""


@pytest.mark.parametrize("command", ["run", "compare"])
def test_the_hint_is_one_line_that_runs(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    model = onnx.parser.parse_model(SETTINGS)
    model.graph.input[2].name = "on/off 1"
    path = str(tmp_path / "m.onnx")
    onnx.save(model, path)
    paths = [path] * (2 if command == "compare" else 1)
    assert main([command, *paths]) == (2 if command == "compare" else 1)
    hint = next(line for line in capsys.readouterr().err.splitlines() if "hint:" in line)
    line = hint.split("on the command line ")[1].removesuffix(", or provide the inputs")
    options = shlex.split(line)
    assert options == ["--dim", "N=1", "--dim", "S=128", "--set", "rate=1", "--set", "on/off 1=1"]
    assert 'dims={"N": 1, "S": 128}, values={"rate": 1, "on/off 1": 1}' in hint
    assert main([command, *paths, *options]) == 0


def test_run_takes_values_of_inputs(tmp_path: Path):
    path, out = tmp_path / "m.onnx", tmp_path / "y.npz"
    onnx.save(onnx.parser.parse_model(SETTINGS), path)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.save(tmp_path / "x.npy", x)
    given = ["-i", f"x={tmp_path / 'x.npy'}", "--set", "rate=3", "--set", "table=[[0.5]]", "-o", str(out)]
    assert main(["run", str(path), *given]) == 0
    assert np.array_equal(np.load(out)["y"], 3 * x + 0.5)


def test_sizes_of_inputs_may_be_expressions():
    text = HEAD + "(float[past, 2] x, float[total, 2] z) => (float[total, 2] y) { y = Identity(z) }"
    model = load(text)
    model.graph.inputs[1].shape = ir.Shape(["past + 1", 2])
    arrays = complete_inputs(model, dims={"past": 3})
    assert [a.shape for a in arrays.values()] == [(3, 2), (4, 2)]
    with pytest.raises(ExecutionError, match="`past` without a number"):
        complete_inputs(model)


def test_the_command_line_takes_ranges(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "m.onnx"
    onnx.save(onnx.parser.parse_model(HEAD + MODELS["dense"]), path)
    assert main(["optimize", str(path), "--dim", "N=1..64@16", "-o", str(tmp_path / "out.onnx")]) == 0
    assert "costs are at N = 16" in " ".join(capsys.readouterr().out.split())
    shape = onnx.load(tmp_path / "out.onnx").graph.output[0].type.tensor_type.shape
    assert shape.dim[0].dim_param == "N"
    for text in ("N=4..2", "N=1..4@9", "N=x", "N=1..x", "N"):
        assert main(["optimize", str(path), "--dim", text]) != 0


def test_errors_are_ours():
    with pytest.raises(EqsatError):
        eqsat.optimize(HEAD + MODELS["dense"], dims={"N": None})  # pyright: ignore[reportArgumentType]
