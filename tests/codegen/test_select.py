"""Kernels and layouts chosen by extraction: values through C, conversions counted, choices that follow the costs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from eqsat.api import optimize
from eqsat.cli import main
from eqsat.codegen.emitted import Emitted
from eqsat.codegen.expressions import is_elementwise
from eqsat.codegen.family_names import unknown_families
from eqsat.codegen.generate import generate
from eqsat.codegen.isa import AVX2
from eqsat.codegen.kernels.shared.families import entry_name, families
from eqsat.codegen.program import FINDING
from eqsat.codegen.runtime import CModel
from eqsat.codegen.select import choices
from eqsat.execute.executor import Executor
from eqsat.execute.inputs import complete_inputs
from eqsat.model.load import load
from eqsat.model.save import save
from eqsat.schema.types import OpKey
from eqsat.search import Search
from eqsat.targets.find_targets import load_host

MODELS: dict[str, tuple[str, str]] = {}
"""Name -> interface and body; constants are random, by the shapes in their names: ``w_8x4x3x3``."""


def model(name: str) -> ir.Model:
    """A network whose constants are drawn by their names: ``w_8x4x3x3`` float32, ``q_...`` int8, ``k_1_2`` int64."""
    interface, body = MODELS[name]
    rng = np.random.default_rng(len(name))
    words = sorted({w.strip("(),") for w in body.replace("(", " ").replace(",", " ").split()})
    constants = []
    for word in words:
        kind, _, rest = word.partition("_")
        if kind in ("w", "p", "q") and rest:
            shape = [int(n) for n in rest.split("_")[0].split("x")]
            values = rng.standard_normal(shape) / 2
            if kind == "p":
                values = np.abs(values) + 0.5
            if kind == "q":
                text, dtype = ", ".join(str(v) for v in rng.integers(-50, 50, shape).ravel()), "int8"
            else:
                text, dtype = ", ".join(f"{v:.4f}" for v in values.ravel()), "float"
            constants.append(f"{dtype}[{', '.join(map(str, shape))}] {word} = {{{text}}}")
        if kind == "k" and rest:
            numbers = rest.replace("m", "-").split("_")
            constants.append(f"int64[{len(numbers)}] {word} = {{{', '.join(numbers)}}}")
    scalars = (
        "float s = {0.05}, float t = {0.1}, uint8 z = {120}, uint8 y0 = {9}, int8 o = {0}, float[4] up = {1, 1, 2, 2}"
    )
    text = (
        f'<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]> g {interface} '
        f"<{', '.join([scalars, *constants])}> {{ {body} }}"
    )
    return load(text)


MODELS["residual"] = (
    "(float[1, 3, 12, 12] x) => (float[1, 10] y)",
    "a = Conv<pads = [1, 1, 1, 1]>(x, w_16x3x3x3, w_16) b = Relu(a) "
    "c = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(b) "
    "d = Conv<pads = [1, 1, 1, 1]>(c, w_16x16x3x3) e = Add(d, c) f = Relu(e) h = GlobalAveragePool(f) "
    "i = Flatten(h) y = Gemm(i, w_16x10, w_10)",
)
MODELS["normalized"] = (
    "(float[2, 4, 9, 7] x) => (float[2, 8, 9, 7] y, float[2, 8, 9, 7] f)",
    "a = Conv<pads = [1, 1, 1, 1]>(x, w_8x4x3x3) b = BatchNormalization(a, p_8, w_8_1, w_8_2, p_8_2) c = LeakyRelu(b) "
    "d = Conv<pads = [1, 1, 1, 1], group = 8>(c, w_8x1x3x3, w_8) e = Sum(d, c) f = Sigmoid(e) y = Mul(f, e)",
)
MODELS["inception"] = (
    "(float[1, 8, 10, 10] x) => (float[1, 24, 5, 5] y)",
    "a = Conv(x, w_8x8x1x1, w_8) b = Conv<pads = [1, 1, 1, 1]>(x, w_8x8x3x3) c = MaxPool<kernel_shape = [3, 3], "
    "pads = [1, 1, 1, 1]>(x) d = Concat<axis = 1>(a, b, c) e = Relu(d) l = LRN<size = 3>(e) "
    "y = AveragePool<kernel_shape = [2, 2], strides = [2, 2]>(l)",
)
MODELS["excited"] = (
    "(float[1, 16, 8, 8] x) => (float[1, 16] y)",
    "a = Conv<pads = [1, 1, 1, 1]>(x, w_16x16x3x3) m = GlobalAveragePool(a) n = Conv(m, w_4x16x1x1, w_4) o1 = Relu(n) "
    "p1 = Conv(o1, w_16x4x1x1, w_16) q1 = HardSigmoid(p1) r = Mul(a, q1) k = ReduceMean<keepdims = 0>(r, k_2_3) "
    "y = Tanh(k)",
)
MODELS["shuffled"] = (
    "(float[1, 12, 6, 6] x) => (float[1, 12, 6, 6] y)",
    "a = Conv<group = 3>(x, w_12x4x1x1) b = Reshape(a, k_1_3_4_6_6) c = Transpose<perm = [0, 2, 1, 3, 4]>(b) "
    "d = Reshape(c, k_1_12_6_6) y = Conv<pads = [1, 1, 1, 1], group = 12>(d, w_12x1x3x3)",
)
MODELS["split"] = (
    "(float[1, 12, 7, 5] x) => (float[1, 16, 14, 10] y)",
    "a = Conv(x, w_16x12x1x1) b, c = Split<axis = 1, num_outputs = 2>(a) d = Conv<pads = [1, 1, 1, 1]>(b, w_8x8x3x3) "
    "e = Concat<axis = 1>(c, d) f = Pad(e, k_0_0_1_1_0_0_1_1) h = Conv(f, w_16x16x3x3) "
    'y = Resize<mode = "nearest">(h, , up)',
)
MODELS["from_tensorflow"] = (
    "(float[1, 9, 9, 4] x) => (float[1, 9, 9, 8] y)",
    "t1 = Transpose<perm = [0, 3, 1, 2]>(x) a = Conv(t1, w_8x4x1x1) r = Relu(a) y = Transpose<perm = [0, 2, 3, 1]>(r)",
)
MODELS["one_dimension"] = (
    "(float[2, 4, 31] x) => (float[2, 8, 15] y)",
    "a = Conv<pads = [1, 1]>(x, w_8x4x3) b = Relu(a) y = MaxPool<kernel_shape = [2], strides = [2]>(b)",
)
MODELS["three_dimensions"] = (
    "(float[1, 4, 5, 6, 7] x) => (float[1, 8, 1, 1, 1] y)",
    "a = Conv<pads = [1, 1, 1, 1, 1, 1]>(x, w_8x4x3x3x3, w_8) b = Conv<group = 8>(a, w_8x1x1x3x3) c = Clip(b, s, t) "
    "y = GlobalMaxPool(c)",
)
MODELS["two_readers"] = (
    "(float[1, 8, 6, 6] x) => (float[1, 4] y, float[4, 4] v)",
    "a = Conv<pads = [1, 1, 1, 1]>(x, w_8x8x3x3) r = Relu(a) f = Reshape(r, k_1_288) y = MatMul(f, w_288x4) "
    "h = Reshape(r, k_4_72) v = MatMul(h, w_72x4)",
)
MODELS["scaled_input"] = (
    "(float[1, 3, 16, 16] x) => (float[1, 8, 16, 16] y)",
    "a = Sub(x, w_3x1x1) b = Div(a, p_3x1x1) y = Conv<pads = [1, 1, 1, 1]>(b, w_8x3x3x3)",
)
MODELS["quantized"] = (
    "(float[1, 3, 12, 12] x) => (float[1, 16, 6, 6] y)",
    "a = QuantizeLinear(x, s, z) b = QLinearConv<pads = [1, 1, 1, 1]>(a, s, z, q_16x3x3x3, s, o, t, y0) "
    "d = QLinearConv<pads = [1, 1, 1, 1], group = 16>(b, t, y0, q_16x1x3x3, s, o, t, z) "
    "e = com.microsoft.QLinearAdd(b, t, y0, d, t, z, t, y0) f = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(e) "
    "y = DequantizeLinear(f, t, y0)",
)
MODELS["joined_bytes"] = (
    "(uint8[1, 4, 6, 6] x) => (uint8[1, 8, 1, 1] y)",
    "a = QLinearConv(x, s, z, q_4x4x1x1, s, o, t, y0) "
    "b = QLinearConv<pads = [1, 1, 1, 1]>(x, s, z, q_4x4x3x3, s, o, s, z) "
    "c = com.microsoft.QLinearConcat<axis = 1>(t, y0, a, t, y0, b, s, z) "
    "d = QLinearConv(c, t, y0, q_8x8x1x1, s, o, t, z) y = com.microsoft.QLinearGlobalAveragePool(d, t, z, t, z)",
)


def emitted(name: str, **options: object) -> Emitted:
    return generate(model(name), isas=(), **options)


def copies(program: Emitted) -> int:
    return sum(k.what == "Copy" for k in program.kernels)


@pytest.mark.parametrize("select", [True, False], ids=["selected", "greedy"])
@pytest.mark.parametrize("name", MODELS)
def test_values(name: str, select: bool) -> None:
    network = model(name)
    inputs = complete_inputs(network)
    compiled = CModel(network, select=select)
    assert (compiled.emitted.selection is not None) == select
    results = compiled.run(inputs)
    for output, expected in Executor(network).run(inputs).items():
        if expected.dtype == np.float32:
            scale = float(np.abs(expected).max()) or 1.0
            np.testing.assert_allclose(results[output], expected, rtol=1e-5, atol=2e-6 * scale)
        else:
            np.testing.assert_array_equal(results[output], expected)


@pytest.mark.parametrize("name", MODELS)
def test_what_is_chosen_is_generated(name: str) -> None:
    """A family accepts what its entry's conditions admit: none falls back to another."""
    found = emitted(name)
    assert found.selection is not None
    assert found.selection.stop_reason == "optimal"
    assert found.selection.cost == pytest.approx(found.selection.bound, rel=1e-6)
    generated = Counter(entry_name(k.family) for k in found.kernels)
    layouts = {c.name: c.family for c in load_host("c").composites if choices([c])}
    for entry, count in found.selection.kernels.items():
        if entry in layouts:
            assert generated[layouts[entry]] == count, entry


# Where two elementwise results are the caller's, one conversion before both costs less than reading across twice. The
# mean of channel vectors is faster than loops, but nothing is computed with it. Resizing across the order of memory
# takes longer than a conversion.
@pytest.mark.parametrize("name", [name for name in MODELS if name not in ("normalized", "excited", "split")])
def test_no_more_conversions_than_without_a_search(name: str) -> None:
    chosen, greedy = emitted(name), emitted(name, select=False)
    assert copies(chosen) <= copies(greedy)
    assert len(chosen.kernels) <= len(greedy.kernels)


def test_a_resize_reads_and_writes_in_one_order() -> None:
    """The image is converted before it grows; node by node, the resize reads across."""
    chosen, greedy = emitted("split"), emitted("split", select=False)
    assert (copies(chosen), copies(greedy)) == (3, 2)
    orders = [
        [sorted(range(4), key=lambda a: -view.strides[a]) for view in (k.task.view(0), k.task.output)]
        for program in (chosen, greedy)
        for k in program.kernels
        if k.what == "Resize"
    ]
    assert [before == after for before, after in orders] == [True, False]


def test_one_conversion_serves_two_views() -> None:
    """Node by node, each reshape copies what it reads; one conversion makes both of them views."""
    greedy, chosen = emitted("two_readers", select=False), emitted("two_readers")
    assert len(greedy.kernels) == 6
    assert len(chosen.kernels) == 5


def test_transposes_of_channels_move_nothing() -> None:
    found = emitted("from_tensorflow")
    assert found.selection is not None
    assert found.selection.kernels == {"channels_last_seen": 1, "direct_convolution": 1, "seen_channels_last": 1}
    assert found.selection.conversions == 0
    assert copies(found) == 1  # The result is the caller's, its rows have no gaps.


def test_the_shipped_host_names_families_that_exist() -> None:
    """Those of operators and composites alike; what has none is a view, and gives its cost."""
    host = load_host("c")
    assert list(unknown_families(host)) == []
    assert {c.name for c in host.composites if not c.family} == {
        "channels_last_seen",
        "seen_channels_last",
        "channel_shuffle",
    }


def test_plain_operators_have_a_family_that_computes_them() -> None:
    for entry in load_host("c").supports:
        for op in entry.ops if entry.family else ():
            assert entry.family.startswith("elementwise") == is_elementwise(op), op
            # Those of Einsum that are products are computed, and priced, as products; results of as many elements as
            # data says are found by operators of the program's own.
            found = (*families(op), *families(OpKey(FINDING, op.name)))
            names = {entry_name(f.name) for f in found} | ({"packed_matrix_product"} if op.name == "Einsum" else set())
            assert is_elementwise(op) or entry.family in names, op


# ---- choices follow the costs of the host's file --------------------------------------------------------------

HOST = """
host tiny
    summary "a host for tests"
    peak float32 = 1e9
    bandwidth = 1e9, launch = 1e-6
    rules "kernels/layout.rules"
    supports ChannelsLast, ChannelsFirst
        cost {conversion}
    supports Conv
        by convolution_loops
        cost {loops}
    supports *

    composite direct : exact
        ChannelsLast(Conv(ChannelsFirst(x), w, b?))
        by direct_convolution
        where const(w, b), x.rank == 4, x.dtype == float32
        cost {direct}

    composite winograd : approximate
        ChannelsLast(Conv(ChannelsFirst(x), w, b?))
        by winograd_convolution
        where const(w, b), x.rank == 4, x.dtype == float32, w.shape[2:] == [3, 3]
        cost {winograd}
"""


def host(path: Path, conversion: str = "1e-6", direct: str = "1e-6", winograd: str = "1", loops: str = "1e-3") -> Path:
    path = path / "tiny.target"
    path.write_text(HOST.format(conversion=conversion, direct=direct, winograd=winograd, loops=loops), "utf-8")
    return path


MODELS["vendor"] = (
    "(float[1, 8, 16, 16] x) => (float[1, 8, 16, 16] y)",
    "a = Conv(x, w_8x8x1x1) b = Relu(a) c = Conv<pads = [1, 1, 1, 1]>(b, w_8x8x3x3) d = Relu(c) "
    "y = Conv<pads = [2, 2, 2, 2]>(d, w_8x8x5x5)",
)
MODELS["plain"] = (
    "(float[1, 8, 8, 8] x) => (float[1, 8, 8, 8] y)",
    "a = Conv<pads = [1, 1, 1, 1]>(x, w_8x8x3x3) y = Conv<pads = [1, 1, 1, 1]>(a, w_8x8x3x3_2)",
)


def chosen_families(path: Path, winograd: bool = False) -> list[str]:
    """Families of the plain network's kernels, compiled and compared."""
    network = model("plain")
    inputs = complete_inputs(network)
    compiled = CModel(network, host=path, winograd=winograd)
    (expected,) = Executor(network).run(inputs).values()
    (result,) = compiled.run(inputs).values()
    np.testing.assert_allclose(result, expected, rtol=1e-3 if winograd else 1e-5, atol=1e-4 * np.abs(expected).max())
    return [k.family for k in compiled.emitted.kernels if k.what == "Conv"]


def test_the_cheaper_family_is_taken(tmp_path: Path) -> None:
    assert chosen_families(host(tmp_path)) == ["direct convolution"] * 2
    assert chosen_families(host(tmp_path, loops="1e-9")) == ["convolution loops"] * 2


def test_conversions_count(tmp_path: Path) -> None:
    """Two conversions are dearer than what the vectors save."""
    assert chosen_families(host(tmp_path, conversion="1e-2")) == ["convolution loops"] * 2
    assert chosen_families(host(tmp_path, conversion="9e-4")) == ["direct convolution"] * 2


def test_winograd_competes_where_it_is_admitted(tmp_path: Path) -> None:
    cheap = host(tmp_path, winograd="1e-7")
    assert chosen_families(cheap) == ["direct convolution"] * 2
    assert chosen_families(cheap, winograd=True) == ["Winograd convolution"] * 2
    assert chosen_families(host(tmp_path, winograd="2e-6"), winograd=True) == ["direct convolution"] * 2


def test_a_family_that_does_not_accept_is_replaced(tmp_path: Path) -> None:
    """Conditions that are too wide give a program that is right all the same."""
    path = host(tmp_path)
    path.write_text(path.read_text("utf-8").replace("direct_convolution", "depthwise_convolution"), "utf-8")
    assert chosen_families(path) == ["direct convolution"] * 2


def test_the_command_line_takes_a_host(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(model("plain"), tmp_path / "plain.onnx")
    command = ["codegen", str(tmp_path / "plain.onnx"), "-o", str(tmp_path / "out")]
    assert main(command) == 0
    assert "2 direct_convolution; 2 conversions of layout; " in capsys.readouterr().out
    assert main([*command, "--host", str(host(tmp_path, loops="1e-9"))]) == 0
    assert "no choice of kernels; 0 conversions of layout; " in capsys.readouterr().out
    assert main([*command, "--no-select"]) == 0
    assert "chosen" not in capsys.readouterr().out
    assert main([*command, "--host", "nowhere"]) == 1
    assert main([*command, "--host", "dnnl"]) == 1
    assert "a host is required" in capsys.readouterr().err


# ---- no choice, the same choice ---------------------------------------------------------------------------------


def test_nothing_to_choose(tmp_path: Path) -> None:
    """A host without rules, and a model without any operator that has kernels in several layouts."""
    text = '<ir_version: 10, opset_import: ["" : 21]> g (float[4, 4] x) => (float[4, 4] y) { y = MatMul(x, x) }'
    path = host(tmp_path)
    path.write_text(path.read_text("utf-8").replace('    rules "kernels/layout.rules"\n', ""), "utf-8")
    assert generate(load(text), isas=(), host=path).selection is None
    assert generate(load(text), isas=()).selection is not None


# ---- a model that was optimized for the host --------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in MODELS if name not in ("vendor", "plain")])
def test_a_plan_is_written_as_it_is(name: str, tmp_path: Path) -> None:
    """The text is that of a search while C is generated, which is the same search; through a file as well."""
    network = model(name)
    planned = optimize(network, host="c", default_rules=False)
    planned.save(tmp_path / "planned.onnx")
    found = generate(load(tmp_path / "planned.onnx"), isas=())
    searched = generate(network, isas=())
    assert found.selection is not None and searched.selection is not None
    assert found.selection.stop_reason == "given"
    assert (found.selection.kernels, found.selection.conversions) == (
        searched.selection.kernels,
        searched.selection.conversions,
    )
    assert found.selection.cost == pytest.approx(planned.cost)
    assert Counter(k.family for k in found.kernels) == Counter(k.family for k in searched.kernels)


def test_a_text_that_is_no_cost_stops_nothing() -> None:
    """What a model from a file says of costs is reported and decides nothing."""
    planned = optimize(model("residual"), host="c", default_rules=False).model
    expected = generate(planned, isas=())
    for node, text in zip(planned.graph, ("abc", "nan", "-1", "1e999", ""), strict=False):
        node.metadata_props["eqsat.cost"] = text
    found = generate(planned, isas=())
    assert found.source == expected.source
    assert found.selection is not None and expected.selection is not None
    assert 0 <= found.selection.cost < expected.selection.cost


@pytest.mark.slow
def test_values_of_a_plan_with_all_rules() -> None:
    for name in ("normalized", "scaled_input", "quantized"):
        network = model(name)
        inputs = complete_inputs(network)
        compiled = CModel(optimize(network, host="c").model)
        results = compiled.run(inputs)
        for output, expected in Executor(network).run(inputs).items():
            scale = float(np.abs(expected).max()) or 1.0
            np.testing.assert_allclose(results[output], expected, rtol=1e-5, atol=5e-6 * scale)


def test_the_report_counts_operators_without_layouts() -> None:
    """A layout says where a result lies; the addition of what a convolution reads is a tap of its window."""
    summary = optimize(model("residual"), host="c").summary
    assert summary.after.operators == summary.before.operators - 1
    assert all("ChannelsLast" not in kernel.operators for kernel in summary.kernels)
    assert any(kernel.op == "eqsat.ChannelsLast" for kernel in summary.kernels)


def test_a_plan_for_another_host_is_searched() -> None:
    found = generate(optimize(model("residual")).model, isas=())
    assert found.selection is not None and found.selection.stop_reason == "optimal"


@pytest.mark.parametrize("name", ["residual", "inception", "excited"])
def test_a_free_size_is_priced_at_its_typical_value(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fixed = generate(model(name), isas=()).selection
    interface, body = MODELS[name]
    monkeypatch.setitem(MODELS, name, (interface.replace("[1,", "[n,"), body))
    one, eight = (generate(model(name), isas=(), dims={"n": (1, 16, n)}).selection for n in (1, 8))
    assert fixed is not None and one is not None and eight is not None
    assert one.cost == pytest.approx(fixed.cost, rel=1e-6) and one.kernels == fixed.kernels
    assert 4 * one.cost < eight.cost < 9 * one.cost


def test_unknown_operators_are_still_reported() -> None:
    """What has no C is listed as without a search."""
    text = (
        '<ir_version: 10, opset_import: ["" : 21]> g (float[1, 2, 4, 4] x) => (float[1, 2, 4, 4] y) '
        "<float[2, 2, 1, 1] w = {1, 2, 3, 4}> { a = Conv(x, w) y = RandomNormalLike(a) }"
    )
    with pytest.raises(Exception, match="RandomNormalLike"):
        generate(load(text), isas=())


@pytest.mark.slow
def test_the_same_text_each_time(tmp_path: Path) -> None:
    paths = [tmp_path / f"{name}.onnx" for name in ("inception", "quantized")]
    for path in paths:
        save(model(path.stem), path)
    script = (
        "import sys\nfrom eqsat.codegen.generate import generate\nfrom eqsat.codegen.isa import AVX2\n"
        "from eqsat.model.load import load\n"
        "for path in sys.argv[1:]: sys.stdout.write(generate(load(path), isas=(AVX2,)).source)\n"
    )
    texts = []
    for seed in ("1", "2"):
        run = subprocess.run(
            [sys.executable, "-c", script, *map(str, paths)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            encoding="utf-8",
            check=True,
        )
        texts.append(run.stdout)
    assert texts[0] == texts[1]
    assert "".join(generate(load(path), isas=(AVX2,)).source for path in paths) == texts[0]


# ---- beside a vendor's calls ------------------------------------------------------------------------------------

KIWI = """
target kiwi
    summary "an accelerator with one kernel"
    peak float32 = 4e13
    bandwidth = 8e11, launch = 1e-9, dispatch = 1e-9
    link bandwidth = 4e13, latency = 1e-9
    composite conv : exact
        Conv(x, w, b?)
        where const(w, b), w.shape[2:] == [3, 3]
        call "kiwi_conv({x}, {w}, {y})"
"""


def test_regions_that_nobody_has_are_searched_with_the_rest(tmp_path: Path) -> None:
    """Placed beside the host, but nobody executes the region: the plan says nothing about its kernels."""
    (tmp_path / "kiwi.target").write_text(KIWI.replace('        call "kiwi_conv({x}, {w}, {y})"\n', ""), "utf-8")
    planned = optimize(model("vendor"), targets=[tmp_path / "kiwi.target"], host="c")
    assert [region.target for region in planned.regions] == ["c", "kiwi", "c"]
    found = generate(planned.model, isas=())
    assert found.selection is not None and found.selection.stop_reason == "optimal"
    assert found.selection.kernels == {"direct_convolution": 2, "pointwise_convolution": 1, "elementwise_vectors": 1}


def test_a_vendors_kernels_stay(tmp_path: Path) -> None:
    """The vendor's convolution reads and writes rows; so does one of the host's, and the other has its own layout."""
    (tmp_path / "kiwi.target").write_text(KIWI, "utf-8")
    network = model("vendor")
    partitioned = optimize(network, targets=[tmp_path / "kiwi.target"]).model
    inputs = complete_inputs(network)
    compiled = CModel(partitioned)
    (expected,) = Executor(network).run(inputs).values()
    (result,) = compiled.run(inputs).values()
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5 * float(np.abs(expected).max()))
    assert compiled.emitted.selection is not None
    kernels = compiled.emitted.selection.kernels
    assert (kernels["direct_convolution"], kernels["pointwise_convolution"]) == (1, 1)
    assert "kiwi_conv(" in compiled.emitted.source


def test_an_accelerator_keeps_out_of_the_hosts_layout() -> None:
    """It reads and writes tensors as ONNX has them; what lies with its channels innermost has no cost there."""
    formulation = Search.of(model("residual"), "dnnl", host="c").formulation
    nodes = [
        (formulation.snapshot.nodes[n], cost)
        for n, cost in zip(formulation.node, formulation.problem.cost[:, 1], strict=True)
    ]
    inner = {node.eclass for node, _ in nodes if node.op.name == "ChannelsLast"}
    assert inner
    assert all(np.isinf(cost) for node, cost in nodes if node.eclass in inner)
    assert any(np.isfinite(cost) for _, cost in nodes)
