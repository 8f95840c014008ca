"""Files at the opset of their input: the same values, accepted by ONNX's checker, and read back as what they were."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import eqsat
from eqsat.cli.shared_options import OPSETS
from eqsat.errors import ModelError
from eqsat.model.load import load
from eqsat.model.save import save
from eqsat.model.write.older import OLDEST, source_versions
from eqsat.schema import opset
from eqsat.schema.attributes import op_key, to_attrs
from eqsat.schema.types import GraphAttr, OpaqueAttr, OpKey, TensorAttr
from eqsat.schema.versions import SOURCE_OPSET, added_attributes, means_same, means_same_since
from tests.model.node_cases import Case, as_array, cases
from tests.model.running import random_inputs, run_ort

PARTS = 8
TARGET = """
target my
    peak float32 = 1e15
    bandwidth = 1e15, launch = 1e-15, dispatch = 1e-15
    link bandwidth = 1e15, latency = 1e-15
    supports Split, ReduceMax
"""
F = np.float32


def _version(path: Path) -> int:
    return next(e.version for e in onnx.load(path).opset_import if not e.domain)


def _run(path: Path, feed: dict[str, np.ndarray]) -> list[np.ndarray] | None:
    try:
        return run_ort(onnx.load(path), feed)
    except Exception:  # what ONNX Runtime has no kernel for; that the older file runs as well is what is tested
        return None


def _nodes(model: ir.Model) -> list[tuple[OpKey, list[tuple[str, object]]]]:
    opaque = GraphAttr | OpaqueAttr | TensorAttr
    return [(op_key(n), [pair for pair in to_attrs(n) if not isinstance(pair[1], opaque)]) for n in model.graph]


def _check(case: Case, folder: Path) -> str:
    """What is wrong with the oldest spelling of a case, empty if nothing is."""
    try:
        model = load(case.model)
    except ModelError:
        return ""
    feed = {name: as_array(value) for name, value in case.values.items()}
    given = {name: array for name, array in feed.items() if array is not None}
    if len(given) < len(feed):
        return ""
    save(model, folder / "new.onnx")
    model.metadata_props[SOURCE_OPSET] = f"{OLDEST},3"
    old = folder / "old.onnx"
    save(model, old)
    onnx.checker.check_model(onnx.load(old), full_check=True)
    wanted = _run(folder / "new.onnx", given)
    if wanted is not None:
        found = _run(old, given)
        if found is None:
            return f"{case.name} does not run at opset {_version(old)}"
        for a, b in zip(wanted, found, strict=True):
            same = (
                np.allclose(a, b, rtol=1e-5, atol=1e-6, equal_nan=True) if a.dtype.kind == "f" else np.array_equal(a, b)
            )
            if a.dtype != b.dtype or a.shape != b.shape or not same:
                return f"{case.name} differs at opset {_version(old)}"
    again = load(old)
    if len(again.graph) == len(model.graph) and case.op.name != "CastLike" and _nodes(again) != _nodes(model):
        return f"{case.name} is read back as {_nodes(again)}"
    return ""


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_the_oldest_spelling_computes_the_same(part: int, tmp_path: Path):
    wrong = [message for case in cases()[part::PARTS] if (message := _check(case, tmp_path))]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("version", [9, 11, 13, 17, 21])
def test_a_file_keeps_the_opset_of_its_input(version: int, tmp_path: Path):
    text = f"""<ir_version: 7, opset_import: ["": {version}]>
    g (float[2, 3] x) => (float[2, 3] y) {{ a = Relu(x) b = Softmax<axis=1>(a) y = Add(a, b) }}"""
    eqsat.optimize(onnx.parser.parse_model(text)).save(tmp_path / "out.onnx")
    found = onnx.load(tmp_path / "out.onnx")
    assert _version(tmp_path / "out.onnx") == version
    assert found.ir_version <= max(7, onnx.helper.find_min_ir_version_for(list(found.opset_import)))
    assert all(not entry.key.startswith(SOURCE_OPSET) for entry in found.metadata_props)


def test_a_newer_operator_raises_the_opset_just_enough(tmp_path: Path):
    text = """<ir_version: 7, opset_import: ["": 11]>
    g (float[2, 3, 4] x) => (float[2, 3, 4] y) { y = Softmax<axis=1>(x) }"""
    result = eqsat.optimize(onnx.parser.parse_model(text))
    result.save(tmp_path / "out.onnx")
    feed = random_inputs(result.model)
    assert _version(tmp_path / "out.onnx") <= 13
    assert np.allclose(
        run_ort(onnx.load(tmp_path / "out.onnx"), feed)[0], run_ort(onnx.parser.parse_model(text), feed)[0]
    )


@pytest.mark.parametrize("operator", ["Gelu", "LayerNormalization", "Mish", "HardSwish"])
def test_newer_operators_are_replaced_by_their_definitions(operator: str, tmp_path: Path):
    x = eqsat.input("x", (2, 8))
    scale = [np.linspace(0.5, 2, 8, dtype=F)] if operator == "LayerNormalization" else []
    model = eqsat.graph({"y": getattr(eqsat.op, operator)(x, *scale)})
    feed = random_inputs(model)
    save(model, tmp_path / "new.onnx")
    save(model, tmp_path / "old.onnx", opset=13)
    assert _version(tmp_path / "old.onnx") <= 13
    assert operator not in {n.op_type for n in onnx.load(tmp_path / "old.onnx").graph.node}
    wanted, found = (run_ort(onnx.load(tmp_path / name), feed)[0] for name in ("new.onnx", "old.onnx"))
    assert np.allclose(wanted, found, rtol=1e-5, atol=1e-6)


def test_an_operator_without_definition_is_named(tmp_path: Path):
    model = eqsat.graph({"y": eqsat.op.GridSample(eqsat.input("x", (1, 1, 4, 4)), eqsat.input("g", (1, 2, 2, 2)))})
    with pytest.raises(ModelError, match=r"(?s)opset 13 or older.*GridSample.*--opset 16"):
        save(model, tmp_path / "out.onnx", opset=13)
    assert not (tmp_path / "out.onnx").exists()


@pytest.mark.parametrize("bound", [6, 27, -1])
def test_opsets_that_cannot_be_written_are_refused(bound: int, tmp_path: Path):
    model = eqsat.graph({"y": eqsat.op.Relu(eqsat.input("x", (2,)))})
    with pytest.raises(ModelError, match="from 7 to 26"):
        save(model, tmp_path / "out.onnx", opset=bound)


@pytest.mark.parametrize("version", [13, 17, 18])
def test_regions_survive_at_an_older_opset(version: int, tmp_path: Path):
    axes = "ReduceMean<axes=[1], keepdims=1>(b)" if version < 18 else "ReduceMean<keepdims=1>(b, axes)"
    text = f"""<ir_version: 8, opset_import: ["": {version}]>
    g (float[1, 64, 56, 56] x, float[64, 64, 3, 3] w) => (float[1, 64, 56, 56] y)
    <int64[1] axes = {{1}}> {{
        a = Conv<pads=[1,1,1,1]>(x, w) b = Relu(a) c = {axes} d = Conv<pads=[1,1,1,1]>(b, w) y = Add(d, c)
    }}"""
    result = eqsat.optimize(onnx.parser.parse_model(text), targets=["dnnl"])
    assert result.summary.after.regions
    path = tmp_path / "out.onnx"
    result.save(path)
    assert _version(path) == version
    assert {f.opset_import[0].version for f in onnx.load(path).functions if not f.opset_import[0].domain} == {version}
    again = load(path)
    assert set(again.functions) == set(result.model.functions)
    feed = random_inputs(result.model)
    wanted = run_ort(onnx.parser.parse_model(text), feed)[0]
    assert np.allclose(run_ort(onnx.load(path), feed)[0], wanted, rtol=1e-4, atol=1e-3)
    assert np.allclose(eqsat.run(path, feed)["y"], wanted, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("version", [11, 13, 18])
@pytest.mark.parametrize("sizes", [None, (3, 5)])
def test_functions_are_read_back_as_they_were(version: int, sizes: tuple[int, ...] | None, tmp_path: Path):
    target = tmp_path / "my.target"
    target.write_text(TARGET, encoding="utf-8")
    how = f"Split<axis=1, split=[{sizes[0]}, {sizes[1]}]>(x)" if sizes else "Split<axis=1>(x)"
    if version >= 13:
        how = (
            "Split<axis=1>(x, sizes)"
            if sizes
            else "Split<axis=1" + (", num_outputs=2" if version > 17 else "") + ">(x)"
        )
    text = f"""<ir_version: 8, opset_import: ["": {version}]>
    g (float[2, 8, 4] x) => (float[2, 1, 4] y, float[2, 1, 4] z)
    <int64[2] sizes = {{{sizes[0] if sizes else 4}, {sizes[1] if sizes else 4}}}> {{
        a, b = {how} y = ReduceMax<axes=[1]>(a) z = ReduceMax<axes=[1]>(b) }}"""
    if version >= 18:
        text = text.replace("<axes=[1]>(a)", "(a, one)").replace("<axes=[1]>(b)", "(b, one)")
        text = text.replace("<int64[2] sizes", "<int64[1] one = {1}, int64[2] sizes")
    model = onnx.parser.parse_model(text)
    result = eqsat.optimize(model, targets=[target])
    assert result.summary.after.regions == 1
    result.save(tmp_path / "out.onnx")
    assert _version(tmp_path / "out.onnx") == version
    assert set(load(tmp_path / "out.onnx").functions) == set(result.model.functions)
    feed = random_inputs(result.model)
    for wanted, found in zip(run_ort(model, feed), run_ort(onnx.load(tmp_path / "out.onnx"), feed), strict=True):
        assert np.array_equal(wanted, found)


def test_an_optimized_file_keeps_its_opset_when_it_is_optimized_again(tmp_path: Path):
    (tmp_path / "my.target").write_text(
        f"{TARGET}    composite one : exact\n        Sigmoid(Relu(x))\n", encoding="utf-8"
    )
    text = """<ir_version: 8, opset_import: ["": 13]>
    g (float[4, 3] x) => (float[4, 3] y) { s = Relu(x) y = Sigmoid(s) }"""
    first = eqsat.optimize(onnx.parser.parse_model(text), targets=[tmp_path / "my.target"])
    assert first.summary.after.composites == 1
    first.save(tmp_path / "a.onnx")
    eqsat.optimize(tmp_path / "a.onnx", targets=[tmp_path / "my.target"]).save(tmp_path / "b.onnx")
    assert [_version(tmp_path / name) for name in ("a.onnx", "b.onnx")] == [13, 13]


def test_versions_are_read_with_care():
    model = eqsat.graph({"y": eqsat.op.Relu(eqsat.input("x", (2,)))})
    for text in ("999999999999,1", "-3,2", "a,b", "17", ""):
        model.metadata_props[SOURCE_OPSET] = text
        assert source_versions(model)[0] <= opset.PINNED_OPSET


def test_what_the_standard_says_of_versions():
    assert means_same_since(OpKey("", "Conv")) == 1
    assert means_same_since(OpKey("", "Softmax")) == 13
    assert means_same_since(OpKey("", "Split")) == 18
    assert means_same_since(OpKey("", "GroupNormalization")) == 21
    assert OPSETS == (OLDEST, opset.PINNED_OPSET)
    assert means_same(OpKey("", "Range"), 28) and not means_same(OpKey("", "SwiGLU"), 28)
    assert list(added_attributes(OpKey("", "Range"), 28)) == ["stash_type"]
    assert not added_attributes(OpKey("", "Range"), opset.PINNED_OPSET)


@pytest.mark.parametrize(("ir_version", "version"), [(3, 7), (8, 15), (10, 21)])
def test_a_model_without_operators_of_the_standard_stays_as_old_as_it_is(
    ir_version: int, version: int, tmp_path: Path
) -> None:
    """It imports no opset of the standard; its IR version says which runtimes load it."""
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Binarizer", ["x"], ["y"], domain="ai.onnx.ml", threshold=0.5)],
        "g",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2])],
    )
    imports = [onnx.helper.make_opsetid("ai.onnx.ml", 1)]
    eqsat.optimize(onnx.helper.make_model(graph, opset_imports=imports, ir_version=ir_version)).save(
        tmp_path / "m.onnx"
    )
    assert _version(tmp_path / "m.onnx") == version
    assert onnx.load(tmp_path / "m.onnx").ir_version == max(4, ir_version)


def test_the_long_name_of_the_standard_has_its_opset(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 13]> g (float[2] x) => (float[2] y) { y = Abs(x) }'
    )
    model.opset_import[0].domain = "ai.onnx"
    eqsat.optimize(model).save(tmp_path / "m.onnx")
    assert _version(tmp_path / "m.onnx") == 13


def test_an_attribute_for_empty_axes_needs_no_newer_opset_where_there_are_axes(tmp_path: Path) -> None:
    """JAX exports it with every sum."""
    axes = "Constant<value = int64[1] {1}>()"
    body = f"a = {axes} y = ReduceSum<keepdims = 0, noop_with_empty_axes = 1>(x, a)"
    text = f'<ir_version: 8, opset_import: ["": 15]> g (float[2,3] x) => (float[2] y) {{ {body} }}'
    eqsat.optimize(text, opset=11).save(tmp_path / "m.onnx")
    assert _version(tmp_path / "m.onnx") == 11
    x = np.arange(6, dtype=F).reshape(2, 3)
    np.testing.assert_array_equal(run_ort(onnx.load(tmp_path / "m.onnx"), {"x": x})[0], [3, 12])


def _sampling(version: int, attributes: str) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    text = f"""<ir_version: 7, opset_import: ["": {version}]>
      g (float[1,2,4,5] x, float[1,3,3,2] at) => (float[1,2,3,3] y) {{
      y = GridSample<{attributes}>(x, at) }}"""
    at = rng.uniform(-1.5, 1.5, (1, 3, 3, 2)).astype(F)
    return onnx.parser.parse_model(text), {"x": rng.standard_normal((1, 2, 4, 5)).astype(F), "at": at}


def _pooling(version: int, attributes: str) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    text = f"""<ir_version: 5, opset_import: ["": {version}]>
      g (float[1,2,6,6] x, float[3,4] at, int64[3] of) => (float[3,2,2,3] y) {{
      y = RoiAlign<output_height=2, output_width=3, spatial_scale=0.5, sampling_ratio=2{attributes}>(x, at, of) }}"""
    at = np.sort(rng.uniform(0, 12, (3, 4))).astype(F)
    return onnx.parser.parse_model(text), {
        "x": rng.standard_normal((1, 2, 6, 6)).astype(F),
        "at": at,
        "of": np.zeros(3, np.int64),
    }


@pytest.mark.parametrize(
    ("made", "oldest"),
    [
        *((_sampling(v, f'mode="{m}"'), 16) for v, m in ((16, "bilinear"), (18, "nearest"), (16, "bicubic"))),
        *((_sampling(20, f'mode="{m}", padding_mode="border"'), 16) for m in ("linear", "nearest", "cubic")),
        (_sampling(20, "align_corners=1"), 16),
        (_sampling(16, 'padding_mode="reflection"'), 16),
        (_pooling(10, ""), 10),
        (_pooling(12, ', mode="max"'), 10),
        (_pooling(16, ', coordinate_transformation_mode="output_half_pixel"'), 10),
        (_pooling(16, ""), 16),
    ],
)
def test_operators_whose_attributes_were_called_otherwise(
    made: tuple[onnx.ModelProto, dict[str, np.ndarray]], oldest: int, tmp_path: Path
) -> None:
    """At the opset of the input, and at the oldest one at which the same can be said."""
    model, feed = made
    wanted = run_ort(model, feed)[0]
    given = model.opset_import[0].version
    for bound, version in ((None, given), (oldest, oldest)):
        save(load(model), tmp_path / "m.onnx", opset=bound)
        assert _version(tmp_path / "m.onnx") == version
        onnx.checker.check_model(onnx.load(tmp_path / "m.onnx"), full_check=True)
        np.testing.assert_array_equal(run_ort(onnx.load(tmp_path / "m.onnx"), feed)[0], wanted)
    if oldest > 10:
        with pytest.raises(ModelError, match=f"needs opset {oldest} "):
            save(load(model), tmp_path / "m.onnx", opset=oldest - 1)


@pytest.mark.parametrize(
    ("attributes", "version"),
    [
        ("kernel_shape=[3,3], strides=[2,2]", 12),
        ("kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]", 12),
        ("kernel_shape=[2,2], strides=[2,2], pads=[1,1,1,1]", 22),
        ("kernel_shape=[2,2], strides=[2,2], dilations=[2,2], pads=[1,1,1,1]", 12),
        ("kernel_shape=[1,1], strides=[2,2]", 22),
    ],
)
def test_pools_that_round_up_at_free_sizes(attributes: str, version: int, tmp_path: Path) -> None:
    """Where no window can begin in the padding, an older opset means the same for all sizes."""
    text = f"""<ir_version: 7, opset_import: ["": 12]> g (float[1,2,h,w] x) => (float[1,2,p,q] y) {{
      y = MaxPool<ceil_mode=1, {attributes}>(x) }}"""
    save(load(text), tmp_path / "m.onnx")
    assert _version(tmp_path / "m.onnx") == version
    for size in range(3, 9):
        feed = {"x": np.random.default_rng(size).standard_normal((1, 2, size, size + 1)).astype(F)}
        found, wanted = run_ort(onnx.load(tmp_path / "m.onnx"), feed), run_ort(onnx.parser.parse_model(text), feed)
        np.testing.assert_array_equal(found[0], wanted[0])
