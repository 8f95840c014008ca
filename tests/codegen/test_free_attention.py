"""Attention operators of ``com.microsoft`` in C at free batch, sequence and cache, beside the executor."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from eqsat.codegen.generate import generate
from eqsat.codegen.runtime import CModel
from eqsat.errors import CodegenError
from eqsat.execute.executor import Executor
from eqsat.model.load import load
from eqsat.model.symbols import symbols
from tests.codegen.ways import WAYS

HEAD = '<ir_version: 10, opset_import: ["": 23, "com.microsoft": 1]>\n'
STRICT = ("-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-fsanitize=undefined",
          "-fsanitize-undefined-trap-on-error")  # fmt: skip
DIMS = {"b": (1, 3), "s": (4, 16, 8), "t": (4, 24, 8)}
POINTS = ({"b": 1, "s": 4, "t": 4}, {"b": 2, "s": 7, "t": 9}, {"b": 3, "s": 16, "t": 24})
NEW = "float[b,s,32] q, float[b,s,16] k, float[b,s,16] v"
CACHE = "float[b,2,t,8] pk, float[b,2,t,8] pv, int32[b] lengths, int32[1] total"
TURN = "float[64,3] cosines, float[64,3] sines"
RESULTS = "float[b,s,32] y, float[b,2,u,8] ok, float[b,2,u,8] ov"
GROUPED = "y, ok, ov = com.microsoft.GroupQueryAttention<num_heads=4, kv_num_heads=2{}>({})"
PAST = "q, k, v, pk, pv, lengths, total"

CASES = {
    "heads in groups": f"({NEW}, {CACHE}) => ({RESULTS}) {{ {GROUPED.format('', PAST)} }}",
    "turned": f"({NEW}, {CACHE}, {TURN}) => ({RESULTS}) "
    f"{{ {GROUPED.format(', do_rotary=1', PAST + ', cosines, sines')} }}",
    "turned at given positions": f"({NEW}, {CACHE}, {TURN}, int64[b,s] positions) => ({RESULTS}) "
    f"{{ {GROUPED.format(', do_rotary=1, rotary_interleaved=1', PAST + ', cosines, sines, positions')} }}",
    "side by side": f"(float[b,s,64] q, {CACHE}) => ({RESULTS}) "
    f"{{ {GROUPED.format('', 'q, , , pk, pv, lengths, total')} }}",
    "a window, a cap and a smooth softmax": f"({NEW}, {CACHE}) => ({RESULTS}) "
    f"{{ {GROUPED.format(', local_window_size=3, softcap=5.0, smooth_softmax=1', PAST)} }}",
    "a sink and added scores": f"({NEW}, {CACHE}, float[1,1,s,t] bias, float[4] sink) => ({RESULTS}) "
    f"{{ {GROUPED.format('', PAST + ', , , , bias, sink')} }}",
    "half precision": f"({NEW}, {CACHE}) => ({RESULTS}) {{ {GROUPED.format('', PAST)} }}".replace("float", "float16"),
    "queries, keys and values in one": "(float[b,s,2,3,8] q) => (float[b,s,16] y) "
    "{ y = com.microsoft.MultiHeadAttention<num_heads=2>(q) }",
    "keys and values in one": "(float[b,s,16] q, float[b,t,2,2,8] k, float[48] c) => (float[b,s,16] y) "
    "{ y = com.microsoft.MultiHeadAttention<num_heads=2>(q, k, , c) }",
    "a projection, causal": "(float[b,s,16] x, float[16,48] w, float[48] c) => (float[b,s,16] y) "
    "{ y = com.microsoft.Attention<num_heads=2, unidirectional=1>(x, w, c) }",
}


def feeds(model: onnx.ModelProto, sizes: dict[str, int]) -> dict[str, np.ndarray]:
    """Inputs at some sizes; the cache ends with the new tokens."""
    rng = np.random.default_rng(sizes["s"])
    found = {}
    for value in model.graph.input:
        kind = value.type.tensor_type
        shape = [d.dim_value or sizes[d.dim_param] for d in kind.shape.dim]
        drawn = rng.standard_normal(shape)
        drawn = {"lengths": np.full(shape, sizes["t"] - 1), "total": np.full(shape, sizes["t"])}.get(value.name, drawn)
        if value.name == "positions":
            drawn = rng.integers(0, 60, shape)
        found[value.name] = drawn.astype(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_values_at_all_sizes(name: str) -> None:
    proto = onnx.parser.parse_model(f"{HEAD} g {CASES[name]}")
    loaded = load(proto)
    dims = {symbol: DIMS[symbol] for symbol in symbols(loaded) if symbol in DIMS}
    if "Group" in CASES[name]:
        dims["y"] = (1, 30)
    compiled = CModel(loaded, dims=dims, isas=WAYS["quick"].isas, flags=STRICT)
    half = "float16" in CASES[name]
    for sizes in POINTS:
        inputs = feeds(proto, sizes)
        wanted = Executor(loaded).run(inputs)
        for key, found in compiled.run(inputs).items():
            expected = np.asarray(wanted[key])
            assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
            np.testing.assert_allclose(found, expected, 1e-2 if half else 1e-4, 5e-3 if half else 2e-5)


def test_a_cache_of_any_length_has_a_bound() -> None:
    with pytest.raises(CodegenError, match=r"nothing bounds \(give a bound with --dim y=\.\.N\)"):
        generate(load(onnx.parser.parse_model(f"{HEAD} g {CASES['heads in groups']}")), dims=DIMS)


def test_packed_operands_are_those_that_stand_alone() -> None:
    """ONNX Runtime runs the packed forms on other devices only, so the plain form is the oracle."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, 5, 2, 8)).astype(np.float32) for _ in range(3))
    flat = {name: x.reshape(2, 5, 16) for name, x in (("q", q), ("k", k), ("v", v))}
    forms = {
        "float[2,5,16] q, float[2,5,16] k, float[2,5,16] v": ("q, k, v", flat),
        "float[2,5,16] q, float[2,5,2,2,8] k": ("q, k", {"q": flat["q"], "k": np.stack([k, v], 3)}),
        "float[2,5,2,3,8] q": ("q", {"q": np.stack([q, k, v], 3)}),
    }
    found = []
    for given, (operands, inputs) in forms.items():
        node = f"com.microsoft.MultiHeadAttention<num_heads=2>({operands})"
        model = load(f"{HEAD} g ({given}) => (float[2,5,16] y) {{ y = {node} }}")
        found.append(np.asarray(Executor(model).run(inputs)["y"]))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6)
    np.testing.assert_allclose(found[2], found[0], rtol=1e-6)
