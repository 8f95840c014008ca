"""Masks that hide all keys of a query: the optimized file computes what the input does, in ONNX Runtime as well.

Exporters hide keys by the lowest number of the type, by -inf, or by a large number, choose it or multiply by it, and
add several masks. A row of which nothing is left (padding on the left, an empty sequence of a batch) tells them apart.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import eqsat

RNG = np.random.default_rng(0)
LOWEST = float(np.finfo(np.float32).min)
HEADS, FEATURES = 4, 16
WIDTH = HEADS * FEATURES
DIMS = {"B": (1, 4, 2), "S": (1, 512, 128)}

CHOICE = "mask = Where(m, zero, lowest)"
MASKS = {
    "the lowest number": (CHOICE, "bool[B, 1, S, S] m"),
    "-inf": ("mask = Where(m, zero, infinite)", "bool[B, 1, S, S] m"),
    "padding": ("four = Unsqueeze(m, last) mask = Where(four, zero, lowest)", "bool[B, S] m"),
    "a product": (
        "f = Cast<to = 1>(m) four = Unsqueeze(f, last) hidden = Sub(one, four) mask = Mul(hidden, lowest)",
        "int64[B, S] m",
    ),
    "a moderate product": (
        "f = Cast<to = 1>(m) four = Unsqueeze(f, last) hidden = Sub(one, four) mask = Mul(hidden, moderate)",
        "int64[B, S] m",
    ),
    "a sum that overflows": (
        "four = Unsqueeze(n, last) a = Where(four, zero, lowest) b = Where(m, zero, lowest) mask = Add(a, b)",
        "bool[B, 1, S, S] m, bool[B, S] n",
    ),
    "an input": ("mask = Identity(m)", "float[B, 1, S, S] m"),
    "a bias beside": ("a = Where(m, zero, lowest) mask = Add(a, bias)", "bool[B, 1, S, S] m, float[1, 4, S, S] bias"),
    "a constant bias beside": ("a = Where(m, zero, lowest) mask = Add(a, slopes)", "bool[B, 1, S, S] m"),
    "a bias before": (
        "biased = Add(scores, bias) mask = Where(m, zero, lowest) scored = Add(biased, mask)",
        "bool[B, 1, S, S] m, float[1, 4, S, S] bias",
    ),
    "a constant bias before": (
        "biased = Add(scores, slopes) mask = Where(m, zero, lowest) scored = Add(biased, mask)",
        "bool[B, 1, S, S] m",
    ),
    "a choice of -inf": ("scored = Where(m, scores, infinite)", "bool[B, 1, S, S] m"),
    "a choice of what is hidden": ("h = Not(m) scored = Where(h, infinite, scores)", "bool[B, 1, S, S] m"),
    "a choice of the lowest number": ("scored = Where(m, scores, lowest)", "bool[B, 1, S, S] m"),
    "a choice of the lowest number that hides": ("h = Not(m) scored = Where(h, lowest, scores)", "bool[B, 1, S, S] m"),
    "a choice of biased scores": (
        "biased = Add(scores, slopes) h = Not(m) scored = Where(h, lowest, biased)",
        "bool[B, 1, S, S] m",
    ),
    "a choice beside padding": (
        "chosen = Where(m, scores, lowest) four = Unsqueeze(n, last) pad = Where(four, zero, lowest)"
        " scored = Add(chosen, pad)",
        "bool[B, 1, S, S] m, bool[B, S] n",
    ),
    "at least the lowest": ("l = Log(m) mask = Max(l, lowest)", "float[B, 1, S, S] m"),
    "a logarithm": ("mask = Log(m)", "float[B, 1, S, S] m"),
}
GUARDS = {
    "none": "w = MatMul(p, v)",
    "of the softmax": "none = IsNaN(p) some = Where(none, zero, p) w = MatMul(some, v)",
    "of the product": "o = MatMul(p, v) none = IsNaN(o) w = Where(none, zero, o)",
}
NUMBERS = {"zero": 0.0, "one": 1.0, "lowest": LOWEST, "infinite": -np.inf, "moderate": -1e4}
LISTS = {"last": [1, 2], "heads": [0, 0, HEADS, FEATURES], "rows": [0, 0, WIDTH]}


def block(mask: str, guard: str) -> onnx.ModelProto:
    """The attention of a layer, as exporters write it."""
    written, declared = MASKS[mask]
    written += "" if "scored" in written else " scored = Add(scores, mask)"
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 17]>
        layer (float[B, S, {WIDTH}] x, {declared}) => (float[B, S, {WIDTH}] y) {{
        q0 = MatMul(x, wq)  q1 = Reshape(q0, heads)  q = Transpose<perm = [0, 2, 1, 3]>(q1)
        k0 = MatMul(x, wk)  k1 = Reshape(k0, heads)  k = Transpose<perm = [0, 2, 3, 1]>(k1)
        v0 = MatMul(x, wv)  v1 = Reshape(v0, heads)  v = Transpose<perm = [0, 2, 1, 3]>(v1)
        products = MatMul(q, k)  c = Constant<value_float = 0.25>()  scores = Mul(products, c)
        {written}
        p = Softmax<axis = 3>(scored)
        {GUARDS[guard]}
        u = Transpose<perm = [0, 2, 1, 3]>(w)  y = Reshape(u, rows) }}""")
    constants: dict[str, np.ndarray] = {n: np.asarray(v, np.float32) for n, v in NUMBERS.items()}
    constants |= {n: np.asarray(v, np.int64) for n, v in LISTS.items()}
    constants |= {n: (RNG.standard_normal((WIDTH, WIDTH)) / 8).astype(np.float32) for n in ("wq", "wk", "wv")}
    constants["slopes"] = np.asarray([-0.5, 0.25, -0.125, 1.5], np.float32).reshape(1, HEADS, 1, 1)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(v, n) for n, v in constants.items())
    return model


def feeds(mask: str, batch: int, length: int) -> dict[str, np.ndarray]:
    """Causal, with padding on the left; the second sequence is padding only."""
    causal = np.tril(np.ones((length, length), bool))
    kept = np.ones((batch, length), bool)
    kept[0, : length // 2] = False
    kept[1:2] = False
    whole = causal[None, None] & kept[:, None, None, :]
    found: dict[str, np.ndarray] = {"x": RNG.standard_normal((batch, length, WIDTH)).astype(np.float32)}
    match mask:
        case "an input":
            found["m"] = np.where(whole, np.float32(0), RNG.choice([LOWEST, -np.inf, -1e4], whole.shape))
        case "a logarithm" | "at least the lowest":
            found["m"] = whole
        case "padding" | "a product" | "a moderate product":
            found["m"] = kept
        case "a sum that overflows" | "a choice beside padding":
            found |= {"m": np.broadcast_to(causal, whole.shape), "n": kept}
        case _:
            found["m"] = whole
    if mask in ("a bias beside", "a bias before"):
        found["bias"] = RNG.standard_normal((1, HEADS, length, length)).astype(np.float32)
    numpy_types = {"bool": bool, "int64": np.int64, "float": np.float32}
    first = MASKS[mask][1].partition("[")[0]
    return {n: np.ascontiguousarray(v, numpy_types[first] if n == "m" else v.dtype) for n, v in found.items()}


def run(model: bytes, feed: dict[str, np.ndarray]) -> np.ndarray:
    """The first output, in ONNX Runtime."""
    return np.asarray(session(model).run(None, feed)[0])


def session(model: bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def check(mask: str, guard: str, host: str, folder: Path) -> list[str]:
    """Optimizes, compares, and returns the kinds of the result's nodes."""
    model = block(mask, guard)
    result = eqsat.optimize(model, host=host, dims=DIMS, verify=False)
    result.save(folder / "out.onnx")
    before, after = model.SerializeToString(), (folder / "out.onnx").read_bytes()
    # Beside -1e4, scores are rounded to multiples of 2^-10; each implementation sums them up in an order of its own.
    atol = 2e-3 if mask in ("a moderate product", "an input") else 1e-5
    for batch, length in ((2, 6), (3, 33)):
        feed = feeds(mask, batch, length)
        wanted = run(before, feed)
        np.testing.assert_allclose(run(after, feed), wanted, rtol=1e-4, atol=atol)
        np.testing.assert_allclose(result.run(feed)["y"], wanted, rtol=1e-4, atol=atol)
    return [node.op_type for node in result.model.graph]


@pytest.mark.slow
@pytest.mark.parametrize("host", ["cpu", "ort"])
@pytest.mark.parametrize("mask", MASKS)
def test_rows_without_a_key(mask: str, host: str, tmp_path: Path) -> None:
    check(mask, "none", host, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("host", ["cpu", "ort"])
@pytest.mark.parametrize("guard", ["of the softmax", "of the product"])
@pytest.mark.parametrize("mask", MASKS)
def test_guarded_rows_without_a_key(mask: str, guard: str, host: str, tmp_path: Path) -> None:
    check(mask, guard, host, tmp_path)


@pytest.mark.parametrize("host, operator", [("cpu", "Attention"), ("ort", "MultiHeadAttention")])
def test_a_choice_of_the_lowest_number_is_fused_as_it_stands(host: str, operator: str, tmp_path: Path) -> None:
    for guard in ("none", "of the softmax"):
        kinds = check("the lowest number", guard, host, tmp_path)
        assert operator in kinds
        # The number is replaced in the choice, so that nothing is computed for it.
        assert kinds.count("Where") == 1
        assert "Equal" not in kinds


@pytest.mark.parametrize("guard", ["of the softmax", "of the product"])
def test_an_infinite_number_is_replaced_in_the_choice(guard: str, tmp_path: Path) -> None:
    kinds = check("-inf", guard, "cpu", tmp_path)
    assert "Attention" in kinds
    assert "Equal" not in kinds


@pytest.mark.parametrize("guard", ["of the softmax", "of the product"])
def test_exact_programs_keep_a_guard_against_any_nan(guard: str) -> None:
    """Masks are not the only origin of NaN, and programs of class `real` say nothing about the others."""
    model = block("-inf", guard)
    result = eqsat.optimize(model, dims=DIMS, numerics="exact")
    feed = feeds("-inf", 2, 6)
    feed["x"][0, 1] = np.nan
    wanted = run(model.SerializeToString(), feed)
    np.testing.assert_allclose(result.run(feed)["y"], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("guard", GUARDS)
@pytest.mark.parametrize("queries, keys", [(0, 4), (3, 0)])
def test_attention_of_nothing(queries: int, keys: int, guard: str, tmp_path: Path) -> None:
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 17]>
        g (float[1, 2, {queries}, 8] q, float[1, 2, 8, {keys}] k, float[1, 2, {keys}, 8] v, bool[1, 1, 1, {keys}] m)
        => (float[1, 2, {queries}, 8] w) {{
        s = MatMul(q, k)  mask = Where(m, zero, infinite)  a = Add(s, mask)  p = Softmax<axis = 3>(a)
        {GUARDS[guard]} }}""")
    constants = {n: np.asarray(NUMBERS[n], np.float32) for n in ("zero", "infinite")}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(v, n) for n, v in constants.items())
    result = eqsat.optimize(model)
    result.save(tmp_path / "out.onnx")
    shapes = {"q": (1, 2, queries, 8), "k": (1, 2, 8, keys), "v": (1, 2, keys, 8)}
    feed = {n: RNG.standard_normal(s).astype(np.float32) for n, s in shapes.items()} | {
        "m": np.ones((1, 1, 1, keys), bool)
    }
    wanted = run(model.SerializeToString(), feed)
    for found in (run((tmp_path / "out.onnx").read_bytes(), feed), result.run(feed)["w"]):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("mask", ["a constant bias before", *(mask for mask in MASKS if mask.startswith("a choice"))])
@pytest.mark.parametrize("guard", GUARDS)
def test_biases_and_choices_are_fused(mask: str, guard: str, tmp_path: Path) -> None:
    assert "Attention" in check(mask, guard, "cpu", tmp_path)


@pytest.mark.parametrize("length", [16, 80])
@pytest.mark.parametrize(
    "written",
    [
        "scored = Add(s, mask)",
        "scored = Where(kept, s, infinite)",
        "hidden = Not(kept) scored = Where(hidden, infinite, s)",
    ],
)
@pytest.mark.parametrize("is_empty", [False, True])
def test_constant_masks_of_any_size_are_fused(written: str, length: int, is_empty: bool, tmp_path: Path) -> None:
    """Causal masks of decoders that were exported with a fixed length, also with a row that hides all keys."""
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 17]>
        g (float[1, 2, {length}, 8] q, float[1, 2, 8, {length}] k, float[1, 2, {length}, 8] v)
        => (float[1, 2, {length}, 8] y) {{
        s = MatMul(q, k)  {written}  p = Softmax<axis = 3>(scored)  y = MatMul(p, v) }}""")
    kept = np.tril(np.ones((1, 1, length, length), bool))
    kept[..., 3, :] &= not is_empty
    constants = {"kept": kept, "mask": np.where(kept, 0, -np.inf), "infinite": np.asarray(-np.inf)}
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(v if v.dtype == bool else v.astype(np.float32), n) for n, v in constants.items()
    )
    result = eqsat.optimize(model)
    assert [node.op_type for node in result.model.graph if node.op_type not in ("Transpose", "Constant")] == [
        "Attention"
    ]
    result.save(tmp_path / "out.onnx")
    shapes = {"q": (1, 2, length, 8), "k": (1, 2, 8, length), "v": (1, 2, length, 8)}
    feed = {n: RNG.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    wanted = run(model.SerializeToString(), feed)
    assert np.isnan(wanted).any() == is_empty
    saved = run((tmp_path / "out.onnx").read_bytes(), feed)
    for found in (saved, result.run(feed)["y"], result.run(feed, backend="c")["y"]):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("hidden", ["lowest", "-inf"])
def test_constant_masks(dtype: type[np.floating], hidden: str, tmp_path: Path) -> None:
    kind = "float16" if dtype is np.float16 else "float"
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 17]>
        g ({kind}[1, 2, 40, 8] q, {kind}[1, 2, 8, 40] k, {kind}[1, 2, 40, 8] v) => ({kind}[1, 2, 40, 8] y) {{
        s = MatMul(q, k)  a = Add(s, m)  p = Softmax<axis = 3>(a)  y = MatMul(p, v) }}""")
    mask = np.zeros((1, 1, 40, 40), dtype)
    mask[..., 0, :] = mask[..., 1, 1:] = np.finfo(dtype).min if hidden == "lowest" else -np.inf
    model.graph.initializer.append(onnx.numpy_helper.from_array(mask, "m"))
    result = eqsat.optimize(model)
    result.save(tmp_path / "out.onnx")
    feed = {n: RNG.standard_normal(s).astype(dtype) for n, s in (("q", (1, 2, 40, 8)), ("v", (1, 2, 40, 8)))}
    feed["k"] = RNG.standard_normal((1, 2, 8, 40)).astype(dtype)
    wanted = run(model.SerializeToString(), feed)
    tolerance = 0.01 if dtype is np.float16 else 1e-5
    for found in (run((tmp_path / "out.onnx").read_bytes(), feed), result.run(feed)["y"]):
        # In float16, a score may or may not count beside the lowest number, as the kernel computes in float16 or not.
        rows = slice(1, None) if dtype is np.float16 and hidden == "lowest" else slice(None)
        np.testing.assert_allclose(found[:, :, rows], wanted[:, :, rows], rtol=tolerance, atol=tolerance)
