"""Opsets old and new, and model-local functions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import eqsat
from benchmarks.zoo import read
from eqsat.errors import ModelError
from eqsat.execute.executor import Executor
from eqsat.model.load import load
from eqsat.schema import opset
from tests.model.running import random_inputs, run_ort


def _same_values(text: str) -> onnx.ModelProto:
    original = onnx.parser.parse_model(text)
    feed = random_inputs(original)
    model = load(original)
    for a, b in zip(run_ort(model, feed), run_ort(original, feed), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    return original


@pytest.mark.parametrize("version", [7, 8, 9, 10, 11, 12, 13, 15, 17, 18, 20, 21, 22, 23, 24, 25, 26])
def test_softmax_and_friends_of_every_opset(version: int) -> None:
    """Softmax over several axes until 12; axes and pads as attributes until 12, 10."""
    squeeze = "u = Unsqueeze<axes=[0]>(s)" if version < 13 else "one = Constant<value_ints=[0]>() u = Unsqueeze(s, one)"
    _same_values(
        f"""<ir_version: 7, opset_import: ["": {version}]>
        g (float[2,3,4] x) => (float[1,2,3,4] u) {{
            s = Softmax<axis=1>(x)
            {squeeze}
        }}"""
    )


@pytest.mark.parametrize("version", [1, 7, 11, 12, 13])
@pytest.mark.parametrize("axis", ["", "<axis=0>", "<axis=2>"])
@pytest.mark.parametrize("operator", ["Softmax", "LogSoftmax", "Hardmax"])
def test_what_was_computed_on_matrices(operator: str, axis: str, version: int) -> None:
    then, other = (f"g_{n} () => (float[2,3,4] {n}) {{ {n} = {operator}{axis}(x) }}" for n in "ab")
    original = onnx.parser.parse_model(
        f"""<ir_version: 4, opset_import: ["": {version}]>
        g (float[2,3,4] x, bool c) => (float[2,3,4] y, float[2,3,4] z) {{
            y = {operator}{axis}(x)
            z = If(c) <then_branch = {then}, else_branch = {other}>
        }}"""
    )
    for condition in (True, False):
        feed = {"x": random_inputs(original)["x"], "c": np.array(condition)}
        for a, b in zip(run_ort(load(original), feed), run_ort(original, feed), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("scales", [(2.0, 2.0), (1.5, 2.6), (0.6, 0.6), (0.35, 1.0)])
def test_where_an_old_resize_samples(scales: tuple[float, float], mode: str) -> None:
    """It samples at multiples of its step; a newer one does in the middle of each."""
    if mode == "linear" and scales[0] < 1:
        pytest.skip("ONNX Runtime's own formula")
    given = ", ".join(map(str, (1.0, 1.0, *scales)))
    sizes = ",".join(str(int(n * s)) for n, s in zip((5, 7), scales, strict=True))
    for version, text in (
        (10, f's = Constant<value=float[4] {{{given}}}>() y = Resize<mode="{mode}">(x, s)'),
        (9, f's = Constant<value=float[4] {{{given}}}>() y = Upsample<mode="{mode}">(x, s)'),
        (8, f'y = Upsample<mode="{mode}", scales=[{given}]>(x)'),
    ):
        if version == 10 or min(scales) >= 1:
            head = f'<ir_version: 4, opset_import: ["": {version}]>'
            _same_values(f"{head} g (float[1,2,5,7] x) => (float[1,2,{sizes}] y) {{ {text} }}")


@pytest.mark.parametrize(
    ("body", "version"),
    [("r = Hardmax(v)", 12), ("s = Identity(v) r = Hardmax<axis=0>(s)", 11), ("r = Resize(v, s)", 10)],
)
def test_functions_of_an_older_opset_that_would_be_misread(body: str, version: int) -> None:
    scales = "s = Constant<value=float[2] {{2.0, 2.0}}>()" if "Resize" in body else ""
    text = f"""<ir_version: 9, opset_import: ["": {{}}, "local": 1]>
        g (float[2,3] x) => (float[a,b] y) {{{{ y = local.f(x) }}}}
        <domain: "local", opset_import: ["": {version}]> f (v) => (r) {{{{ {scales} {body} }}}}"""
    with pytest.raises(ModelError, match=rf"function local.f: .* got opset {version}, in a model of opset 18"):
        load(text.format(18))
    assert len(load(text.format(version)).graph)


def test_attributes_of_functions_have_defaults() -> None:
    """Also where one function calls another, in a body, and where a call gives the attribute."""
    leaky = onnx.helper.make_node("LeakyRelu", ["v"], ["r"])
    leaky.attribute.add(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    imports = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid("local", 1)]
    default = onnx.helper.make_attribute("slope", 0.5)
    inner = onnx.helper.make_function("local", "inner", ["v"], ["r"], [leaky], imports, attribute_protos=[default])
    call = onnx.helper.make_node("inner", ["v"], ["r"], domain="local")
    outer = onnx.helper.make_function("local", "outer", ["v"], ["r"], [call], imports)
    model = onnx.parser.parse_model(
        """<ir_version: 9, opset_import: ["": 18, "local": 1]>
        g (float[4] x, bool c) => (float[4] a, float[4] b, float[4] d, float[4] e) {
            a = local.inner(x)
            b = local.inner<slope = 0.125>(x)
            d = local.outer(x)
            e = If(c) <then_branch = t () => (float[4] p) { p = local.inner(x) },
                       else_branch = f () => (float[4] q) { q = Neg(x) }>
        }"""
    )
    model.functions.extend([inner, outer])
    x = np.array([-1, -2, 3, 4], np.float32)
    found = eqsat.run(model, {"x": x, "c": np.array(True)})
    for name, slope in (("a", 0.5), ("b", 0.125), ("d", 0.5), ("e", 0.5)):
        np.testing.assert_array_equal(found[name], np.where(x < 0, slope * x, x))


@pytest.mark.parametrize("version", [7, 9, 10])
@pytest.mark.parametrize("dtype", ["float16", "float", "double"])
def test_bounds_that_were_attributes_get_the_type_of_their_tensor(dtype: str, version: int) -> None:
    """In a subgraph, too."""
    then, other = (
        f"g_{n} () => ({dtype}[2,3] {n}) {{ {n} = Clip<max={bound}>(p) }}" for n, bound in (("a", 0.5), ("b", 2.0))
    )
    model = load(
        f"""<ir_version: 4, opset_import: ["": {version}]>
        g ({dtype}[2,1] x, bool c) => ({dtype}[2,3] y, {dtype}[2,3] z) {{
            p = Pad<pads=[0,1,0,1], value=-1.5>(x)
            y = Clip<min=-1.0, max=0.25>(p)
            z = If(c) <then_branch = {then}, else_branch = {other}>
        }}"""
    )
    x = np.array([[0.75], [-3]], {"float16": np.float16, "float": np.float32, "double": np.float64}[dtype])
    padded = np.pad(x, [(0, 0), (1, 1)], constant_values=-1.5)
    for condition, most in ((True, 0.5), (False, 2.0)):
        found = Executor(model).run({"x": x, "c": np.array(condition)})
        np.testing.assert_array_equal(found["y"], np.clip(padded, -1, 0.25))
        np.testing.assert_array_equal(found["z"], np.minimum(padded, most))


def test_upsample_becomes_resize() -> None:
    original = _same_values(
        """<ir_version: 4, opset_import: ["": 9]>
        g (float[1,1,2,3] x) => (float[1,1,4,9] y) <float[4] s = {1, 1, 2, 3}> { y = Upsample<mode="nearest">(x, s) }"""
    )
    assert [n.op_type for n in load(original).graph] == ["Resize"]


def test_names_and_metadata_survive() -> None:
    original = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 11], metadata_props: ["author": "me"]>
        g (float[2,3] x) => (float[2,3] y) { [act] h = Relu(x)  [soft] y = Softmax<axis=1>(h) }"""
    )
    original.graph.node[0].metadata_props.add(key="layer", value="one")
    original.graph.node[0].doc_string = "said"
    original.graph.metadata_props.add(key="of", value="graph")
    model = load(original)
    relu = model.graph[0]
    assert (relu.name, relu.outputs[0].name, relu.doc_string) == ("act", "h", "said")
    assert relu.metadata_props["layer"] == "one"
    assert model.metadata_props["author"] == "me"
    assert model.graph.metadata_props["of"] == "graph"


def test_subgraphs_are_upgraded_too() -> None:
    _same_values(
        """<ir_version: 7, opset_import: ["": 11]>
        g (bool c, float[2,3] x) => (float[2,3] y) {
            y = If(c) <
                then_branch = t () => (float[2,3] a) { u = Unsqueeze<axes=[0]>(x) a = Squeeze<axes=[0]>(u) },
                else_branch = e () => (float[2,3] b) { b = Softmax(x) }
            >
        }"""
    )


@pytest.mark.parametrize("operator", ["Softmax", "LogSoftmax", "Hardmax"])
def test_empty_tensors_in_subgraphs_keep_their_shape(operator: str) -> None:
    """What was computed on a matrix before opset 13; the other branch reshapes to a result of the same name."""
    text = f"""<ir_version: 7, opset_import: ["": 12]>
    g (bool c, float[3,2,0] x) => (float[N,M,K] y) <int64[3] s = {{0, 0, 0}}> {{
        y = If(c) <
            then_branch = t () => (float[3,2,0] a) {{ a = {operator}<axis=1>(x) }},
            else_branch = e () => (float[3,2,0] a) {{ a = Reshape(x, s) }}
        >
    }}"""
    original = onnx.parser.parse_model(text)
    model = load(original)
    for chosen in (True, False):
        feed = {"c": np.array(chosen), "x": np.zeros((3, 2, 0), np.float32)}
        (found,) = Executor(model).run(feed).values()
        assert found.shape == run_ort(original, feed)[0].shape == run_ort(model, feed)[0].shape == (3, 2, 0)
    (branch,) = [n.attributes for n in model.graph if n.op_type == "If"]
    assert "allowzero" not in next(n for n in branch["else_branch"].as_graph() if n.op_type == "Reshape").attributes


def test_per_channel_slope_of_old_prelu() -> None:
    """Opset 6: one slope a channel, whatever the rank."""
    text = """<ir_version: 3, opset_import: ["": 6]>
    g (float[2,3,4] x, float[3] s) => (float[2,3,4] y) <float[3] s = {1, 10, 100}> { y = PRelu(x, s) }"""
    x = -np.ones((2, 3, 4), np.float32)
    (y,) = run_ort(load(text), {"x": x})
    np.testing.assert_array_equal(y, x * np.array([1, 10, 100], np.float32)[:, None])


class TestNewer:
    @staticmethod
    def _model(op: str, version: int = 28) -> onnx.ModelProto:
        node = onnx.helper.make_node(op, ["x"], ["y"])
        infos = [onnx.helper.make_tensor_value_info(n, 1, [2, 4]) for n in "xy"]
        return onnx.helper.make_model(
            onnx.helper.make_graph([node], "g", infos[:1], infos[1:]),
            opset_imports=[onnx.helper.make_opsetid("", version)],
        )

    def test_unchanged_operators_are_taken(self) -> None:
        model = load(self._model("Relu"))
        assert model.opset_imports[""] == opset.PINNED_OPSET
        x = np.array([[1, -1, 2, -2]] * 2, np.float32)
        np.testing.assert_array_equal(run_ort(model, {"x": x})[0], np.maximum(x, 0))

    @pytest.mark.parametrize("version", [27, 28])
    def test_defaults_of_new_attributes_are_left_out(self, version: int) -> None:
        """In the graph and in bodies; the operators only accept more since."""
        blocks = 'SpaceToDepth<blocksize=2, mode="DCR">' if version == 28 else "SpaceToDepth<blocksize=2>"
        model = load(f"""<ir_version: 13, opset_import: ["": {version}]>
        g (bool c, float[1,1,4,4] x, float a, float b) => (float[1,4,2,2] y, float[N] r) <float d = {{0.5}}> {{
            y = If(c) <
                then_branch = t () => (float[1,4,2,2] p) {{ p = {blocks}(x) }},
                else_branch = e () => (float[1,4,2,2] q) {{ h = {blocks}(x)  q = Celu(h) }}
            >
            r = Range<stash_type=1>(a, b, d)
        }}""")
        x = -np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
        moved = x.reshape(1, 2, 2, 2, 2).transpose(0, 2, 4, 1, 3).reshape(1, 4, 2, 2)
        for chosen, expected in ((True, moved), (False, np.expm1(moved))):
            feed = {"c": np.array(chosen), "x": x, "a": np.array(1, np.float32), "b": np.array(3, np.float32)}
            found = Executor(model).run(feed)
            np.testing.assert_allclose(found["y"], expected, rtol=1e-6)
            np.testing.assert_array_equal(found["r"], [1, 1.5, 2, 2.5])

    @pytest.mark.parametrize(
        ("node", "actual"),
        [
            ('SpaceToDepth<blocksize=2, mode="CRD">(x)', "opset 28 with SpaceToDepth, which changed since"),
            ("SwiGLU(x, x)", "opset 28 with SwiGLU, which changed since"),
        ],
    )
    def test_what_only_newer_operators_say_is_named(self, node: str, actual: str) -> None:
        with pytest.raises(ModelError) as caught:
            load(
                f'<ir_version: 13, opset_import: ["": 28]> g (float[1,2,4,4] x) => (float[N,C,H,W] y) {{ y = {node} }}'
            )
        message = str(caught.value)
        assert actual in message
        assert f"export the model with opset {opset.PINNED_OPSET}" in message

    @pytest.mark.parametrize(
        ("node", "dtype", "said"),
        [("Mod<fmod=0>(x, x)", "float", "fmod must be 1 for floats"),
         ('BitShift<direction="LEFT">(x, x)', "int8", "unsupported type: tensor.int8.")],
    )  # fmt: skip
    def test_types_that_only_newer_operators_take_are_checked(self, node: str, dtype: str, said: str) -> None:
        with pytest.raises(ModelError, match=said):
            load(f'<ir_version: 13, opset_import: ["": 28]> g ({dtype}[3] x) => ({dtype}[3] y) {{ y = {node} }}')

    def test_unheard_of(self) -> None:
        latest = onnx.defs.onnx_opset_version()
        with pytest.raises(ModelError, match=f"an opset from 1 to {latest} is required; got {latest + 1}"):
            load(self._model("Relu", latest + 1))


class TestFunctions:
    FOREIGN = """<ir_version: 8, opset_import: ["": 17, "my": 1]>
    g (float[2,3] x) => (float[2,3] y) { h = my.twice<factor = 2.0>(x)  y = my.nested(h) }
    <domain: "my", opset_import: ["": 17]>
    twice <factor> (a) => (b) { f = Constant<value_float: float = @factor>() b = Mul(a, f) }
    <domain: "my", opset_import: ["": 17, "my": 1]>
    nested (a) => (b) { c = my.twice<factor = 3.0>(a) b = Softmax<axis = -1>(c) }"""

    def test_foreign_ones_are_inlined(self) -> None:
        _same_values(self.FOREIGN)
        model = load(self.FOREIGN)
        assert not model.functions
        assert [n.op_type for n in model.graph] == ["Mul", "Mul", "Softmax"]
        assert set(model.opset_imports) == {""}

    def test_of_an_older_opset(self) -> None:
        """ONNX Runtime takes such a body for one of the model's opset; by the specification its own import counts."""
        text = """<ir_version: 8, opset_import: ["": 17, "my": 1]>
        g (float[2,3,4] x) => (float[2,3,4] y) { y = my.f(x) }
        <domain: "my", opset_import: ["": 11]>
        f (a) => (b) { b = Softmax<axis = 1>(a) }"""
        feed = random_inputs(onnx.parser.parse_model(text))
        (y,) = run_ort(load(text), feed)
        powers = np.exp(feed["x"].astype(np.float64))
        np.testing.assert_allclose(y, powers / powers.sum(axis=(1, 2), keepdims=True), rtol=1e-6)

    def test_of_an_older_opset_where_its_operators_mean_the_same(self) -> None:
        """ONNX's converter gives up on a constant of which it does not know the type."""
        # KNNImputer(n_neighbors=3) of scikit-learn 1.9, fitted to 60 drawn samples and exported by skl2onnx 1.20.
        source = read(Path(__file__).parents[2] / "data" / "knn_imputer.onnx.xz")
        x = np.random.default_rng(1).standard_normal((7, 5)).astype(np.float32)
        x[2, 1] = x[4, 1] = np.nan
        session = onnxruntime.InferenceSession(source.SerializeToString(), providers=["CPUExecutionProvider"])
        (wanted,) = session.run(None, {"X": x})
        (found,) = eqsat.run(source, {"X": x}).values()
        np.testing.assert_allclose(found, wanted, rtol=1e-6)

    OWN = """<ir_version: 10, opset_import: ["": 22, "eqsat.dnnl": 1, "eqsat.dnnl.composite": 1]>
    g (float[1,3,4,4] x) => (float[1,2,4,4] y) <float[2,3,1,1] w = {1,2,3,4,5,6}> {
        h = Abs(x)
        y = eqsat.dnnl.region_0(h, w)
    }
    <domain: "eqsat.dnnl", opset_import: ["": 22, "eqsat.dnnl.composite": 1]>
    region_0 (a, w) => (b) { b = eqsat.dnnl.composite.conv_relu<group = 1>(a, w) }
    <domain: "eqsat.dnnl.composite", opset_import: ["": 22]>
    conv_relu <group> (a, w) => (b) { c = Conv<group: int = @group>(a, w) b = Relu(c) }"""

    def test_our_own_are_kept_and_typed(self) -> None:
        _same_values(self.OWN)
        model = load(self.OWN)
        assert sorted(f.name for f in model.functions.values()) == ["conv_relu", "region_0"]
        assert [n.op_type for n in model.graph] == ["Abs", "region_0"]
        shape = model.graph[1].outputs[0].shape
        assert shape is not None and shape.numpy() == (1, 2, 4, 4)
        assert all(f.opset_imports[""] == opset.PINNED_OPSET for f in model.functions.values())

    def test_known_by_their_metadata(self) -> None:
        original = onnx.parser.parse_model(self.FOREIGN.replace('"": 17', '"": 26'))
        for function in original.functions:
            function.metadata_props.add(key="eqsat.target", value="npu")
        model = load(original)
        assert sorted(f.name for f in model.functions.values()) == ["nested", "twice"]
        feed = random_inputs(original)
        np.testing.assert_allclose(run_ort(model, feed)[0], run_ort(original, feed)[0], rtol=1e-6)

    def test_a_contradiction_inside_is_found(self) -> None:
        text = self.OWN.replace("float[2,3,1,1] w = {1,2,3,4,5,6}", "float[2,2,1,1] w = {1,2,3,4}")
        with pytest.raises(ModelError, match="the input has 3 channels, the weight takes 2"):
            load(text)


def test_operators_that_a_newer_version_of_their_domain_removed() -> None:
    """TreeEnsembleRegressor is gone from ai.onnx.ml 5; a model of version 3 still has it."""
    node = onnx.helper.make_node(
        "TreeEnsembleRegressor",
        ["x"],
        ["y"],
        domain="ai.onnx.ml",
        n_targets=1,
        nodes_falsenodeids=[2, 0, 0],
        nodes_featureids=[0, 0, 0],
        nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"],
        nodes_nodeids=[0, 1, 2],
        nodes_treeids=[0, 0, 0],
        nodes_truenodeids=[1, 0, 0],
        nodes_values=[0.5, 0.0, 0.0],
        target_ids=[0, 0],
        target_nodeids=[1, 2],
        target_treeids=[0, 0],
        target_weights=[1.0, 2.0],
    )
    infos = [onnx.helper.make_tensor_value_info("x", 1, [3, 2]), onnx.helper.make_tensor_value_info("y", 1, [3, 1])]
    imports = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("ai.onnx.ml", 3)]
    graph = onnx.helper.make_graph([node], "g", infos[:1], infos[1:])
    model = load(onnx.helper.make_model(graph, opset_imports=imports, ir_version=8))
    assert model.opset_imports == {"": opset.PINNED_OPSET, "ai.onnx.ml": 3}
    (y,) = run_ort(model, {"x": np.array([[0, 9], [0.5, 9], [1, 9]], np.float32)})
    np.testing.assert_array_equal(y, [[1], [1], [2]])


def test_more_than_two_gibibytes(tmp_path: Path) -> None:
    """Weights are set aside before the C++ side sees the model; a sparse file stands for them."""
    size = 3 << 28
    with (tmp_path / "w.bin").open("wb") as file:
        file.truncate(4 * size)
    tensor = onnx.TensorProto(name="w", data_type=onnx.TensorProto.FLOAT, dims=[size])
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="w.bin")
    nodes = [
        onnx.helper.make_node("Add", ["x", "w"], ["h"]),
        onnx.helper.make_node("Squeeze", ["h"], ["y"], axes=[-2]),
    ]
    infos = [onnx.helper.make_tensor_value_info("x", 1, [1, 1]), onnx.helper.make_tensor_value_info("y", 1, [size])]
    graph = onnx.helper.make_graph(nodes, "g", infos[:1], infos[1:], [tensor])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 11)], ir_version=8)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    loaded = load(tmp_path / "m.onnx")
    assert [n.op_type for n in loaded.graph] == ["Add", "Squeeze"]
    held = loaded.graph.initializers["w"].const_value
    assert held is not None and held.nbytes == 3 << 30
    shape = loaded.graph.outputs[0].shape
    assert shape is not None and shape.numpy() == (size,)


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge"])
@pytest.mark.parametrize("version", [7, 10])
def test_a_pad_whose_value_says_nothing(mode: str, version: int) -> None:
    text = f"""<ir_version: 5, opset_import: ["": {version}]> g (float[2,4,3] x) => (float[2,5,5] y) {{
        y = Pad <mode: string = "{mode}", value: float = 2.0, pads: ints = [0, 0, 1, 0, 1, 1]> (x) }}"""
    x = np.arange(24, dtype=np.float32).reshape(2, 4, 3)
    options = {"constant_values": 2.0} if mode == "constant" else {}
    (y,) = Executor(load(text)).run({"x": x}).values()
    np.testing.assert_array_equal(y, np.pad(x, ((0, 0), (0, 1), (1, 1)), mode=mode, **options))
