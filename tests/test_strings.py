"""Strings: opaque values that stay on the host, through every stage; ONNX Runtime says what they are."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import eqsat
from eqsat.cli import main
from eqsat.errors import CodegenError, EqsatError, ExecutionError, ModelError
from eqsat.execute.array_files import storable
from eqsat.search import Search
from eqsat.stages.options import Objective

_BODIES = {
    "constant": 'g () => (string[2] y) { y = Constant<value_strings=["a","b"]>() }',
    "scalar": 'g () => (string y) { y = Constant<value_string="a">() }',
    "folded": """g () => (string[2] y, bool[2] same) {
        a = Constant<value_strings=["a","ä€"]>() y = StringConcat(a,a)
        b = Constant<value_strings=["aa","b"]>() same = Equal(y, b) }""",
    "equal": 'g (string[2] x) => (bool[2] y) { c = Constant<value_strings=["a","b"]>() y = Equal(x,c) }',
    "identity": "g (string[2] x) => (string[2] y) { a = Identity(x) y = Identity(a) }",
    "concat": """g (string[2] x) => (string[4] y) {
        c = Constant<value_strings=["a","b"]>() d = Identity(c) y = Concat<axis=0>(x,d) }""",
    "gather": "g (string[2] x, int64[3] i) => (string[3] y) { y = Gather<axis=0>(x,i) }",
    "gather elements": "g (string[3] x, int64[1] i) => (string[1] y) { y = GatherElements(x,i) }",
    "scatter": "g (string[3] x, int64[1] i, string[1] u) => (string[3] y) { y = ScatterElements(x,i,u) }",
    "reshape": """g (string[2,3] x) => (string[6] y) {
        s = Constant<value_ints=[-1]>() a = Reshape(x,s) t = Constant<value_ints=[6]>() y = Reshape(a,t) }""",
    "transpose": """g (string[2,3] x) => (string[2,3] y) {
        a = Transpose<perm=[1,0]>(x) y = Transpose<perm=[1,0]>(a) }""",
    "slice": """g (string[4] x) => (string[2] y) {
        s = Constant<value_ints=[0]>() e = Constant<value_ints=[2]>() y = Slice(x,s,e) }""",
    "split": "g (string[4] x) => (string[2] y, string[2] z) { y,z = Split<num_outputs=2>(x) }",
    "expand": "g (string[1] x) => (string[4] y) { s = Constant<value_ints=[4]>() y = Expand(x,s) }",
    "tile": "g (string[2] x) => (string[4] y) { s = Constant<value_ints=[2]>() y = Tile(x,s) }",
    "flatten": "g (string[2,2] x) => (string[2,2] y) { y = Flatten(x) }",
    "where": "g (bool[2] c, string[2] x, string[2] z) => (string[2] y) { y = Where(c,x,z) }",
    "compress": "g (string[2] x, bool[2] c) => (string[?] y) { y = Compress(x,c) }",
    "unique": "g (string[4] x) => (string[?] y) { y = Unique(x) }",
    "one hot": """g (int64[2] x) => (string[2,3] y) {
        d = Constant<value_int=3>() v = Constant<value_strings=["off","on"]>() y = OneHot(x,d,v) }""",
    "shape": "g (string[2] x) => (int64[1] y) { y = Shape(x) }",
    "to text": "g (int64[2] x) => (string[2] y) { y = Cast<to=8>(x) }",
    "to number": "g (string[2] x) => (float[2] y) { a = Identity(x) y = Cast<to=1>(a) }",
    "joined": "g (string[2] x, string[1] z) => (string[2] y) { y = StringConcat(x,z) }",
    "parts": 'g (string[2] x) => (string[2,?] y, int64[2] n) { y,n = StringSplit<delimiter=" ">(x) }',
    "pattern": 'g (string[2] x) => (bool[2] y) { y = RegexFullMatch<pattern="[a-z]+">(x) }',
    "frequencies": """g (string[4] x) => (float[2] y) {
        y = TfIdfVectorizer<max_gram_length=1, max_skip_count=0, min_gram_length=1, mode="TF", ngram_counts=[0],
                            ngram_indexes=[0,1], pool_strings=["a","b"]>(x) }""",
    "encoded": """g (string[2] x) => (int64[2] y) {
        y = ai.onnx.ml.LabelEncoder<keys_strings=["a","b"], values_int64s=[3,4], default_int64=-1>(x) }""",
    "decoded": """g (int64[2] x) => (string[2] y) {
        y = ai.onnx.ml.LabelEncoder<values_strings=["a","b"], keys_int64s=[0,4], default_string="z">(x) }""",
    "branches": """g (bool c, string[2] x) => (string[2] y) {
        y = If(c)<then_branch=t () => (string[2] a) { a = Identity(x) },
                  else_branch=e () => (string[2] b) { b = StringConcat(x,x) }> }""",
    "loop": """g (string[2] x) => (string[2] y) {
        n = Constant<value_int=2>() t = Constant<value=bool {1}>()
        y = Loop(n,t,x)<body=b (int64 i, bool c, string[2] a) => (bool d, string[2] b2) {
            d = Identity(c) b2 = StringConcat(a,x) }> }""",
    "sequence": """g (string[2] x, string[2] z) => (string[4] y) {
        s = SequenceConstruct(x,z) y = ConcatFromSequence<axis=0>(s) }""",
    "sequence out": "g (string[2] x, string[2] z) => (seq(string[2]) s) { s = SequenceConstruct(x,z) }",
    "optional": "g (string[2] x) => (string[2] y) { o = Optional(x) y = OptionalGetElement(o) }",
    "beside numbers": """g (float[4] x, string[2] s) => (float[4] y, string[2] t) {
        a = Add(x,x) y = Mul(a,x) t = StringConcat(s,s) }""",
}


def _model(body: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21, "ai.onnx.ml": 3]>\n{body}')


def _feeds(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    words = ["a", "b c", "é", ""] if "Cast" not in {n.op_type for n in model.graph.node} else ["1", "-2"]
    feeds = {}
    for value in model.graph.input:
        shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
        count = int(np.prod(shape))
        made = {
            TensorProto.STRING: np.array([words[i % len(words)] for i in range(count)], object),
            TensorProto.INT64: np.arange(count) % 2,
            TensorProto.BOOL: np.arange(count) % 2 == 1,
            TensorProto.FLOAT: np.arange(count, dtype=np.float32),
        }
        feeds[value.name] = made[value.type.tensor_type.elem_type].reshape(shape)
    return feeds


def _run(model: bytes, feeds: dict[str, np.ndarray]) -> list:
    return list(onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, feeds))


def _assert_equal(got: list, wanted: list) -> None:
    for a, b in zip(got, wanted, strict=True):
        if isinstance(b, list):
            _assert_equal(a, b)
        else:
            np.testing.assert_array_equal(a, b)


@pytest.mark.slow
@pytest.mark.parametrize("name", _BODIES)
def test_every_stage(name: str, tmp_path: Path) -> None:
    model = _model(_BODIES[name])
    feeds = _feeds(model)
    wanted = _run(model.SerializeToString(), feeds)
    _assert_equal(list(eqsat.run(model, feeds).values()), wanted)
    search = Search.of(model)
    objectives: tuple[Objective, ...] = ("best", "random", "worst")
    for objective in objectives:
        result = search.extract(objective)
        _assert_equal(list(result.run(feeds).values()), wanted)
        saved = tmp_path / f"{objective}.onnx"
        result.save(saved)
        _assert_equal(_run(saved.read_bytes(), feeds), wanted)
        assert eqsat.compare(model, saved).agrees
        for suffix in ("html", "json", "svg", "txt"):
            result.report(tmp_path / f"{objective}.{suffix}")


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in _BODIES if n != "shape"])
def test_no_accelerator_takes_strings_and_c_refuses_them(name: str, tmp_path: Path) -> None:
    model = _model(_BODIES[name])
    result = eqsat.optimize(model, ["dnnl", "ethos_n"])
    _assert_equal(list(result.run(_feeds(model)).values()), _run(model.SerializeToString(), _feeds(model)))
    if "sequence" not in name:
        with pytest.raises(CodegenError, match="string"):
            result.codegen(tmp_path / "c")
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize(
    ("attributes", "left"),
    (
        ('<case_change_action="UPPER", stopwords=["b"]>', ["A", "É"]),
        ('<case_change_action="LOWER", stopwords=["b"], is_case_sensitive=1>', ["a", "b", "é"]),
        ('<stopwords=["a", "B", "é"]>', [""]),
        ("", ["a", "B", "é"]),
    ),
)
def test_case_and_stop_words(attributes: str, left: list[str]) -> None:
    # By the specification: ONNX Runtime needs an installed locale for this operator.
    model = _model(f"g (string[3] x) => (string[?] y) {{ y = StringNormalizer {attributes}(x) }}")
    feeds = {"x": np.array(["a", "B", "é"], object)}
    for got in (eqsat.run(model, feeds), eqsat.optimize(model).run(feeds)):
        assert got["y"].tolist() == left


def test_strings_are_given_in_any_of_their_forms() -> None:
    model = _model(_BODIES["identity"])
    for given in (["a", "é"], np.array(["a", "é"]), np.array([b"a", "é".encode()], object), np.array(["a", "é"], "U9")):
        assert eqsat.run(model, {"x": given})["y"].tolist() == ["a", "é"]
    for wrong in (np.array([b"\xff", b"a"]), np.array([1, "a"], object), np.array([1, 2])):
        with pytest.raises(ExecutionError, match="strings"):
            eqsat.run(model, {"x": wrong})


def test_strings_that_are_not_utf8_are_refused() -> None:
    tensor = helper.make_tensor("c", TensorProto.STRING, [1], [b"\xff\xfe"])
    output = [helper.make_tensor_value_info("y", TensorProto.STRING, [1])]
    imports = [helper.make_opsetid("", 21)]
    initializer = helper.make_graph([helper.make_node("Identity", ["c"], ["y"])], "g", [], output, [tensor])
    constant = helper.make_graph([helper.make_node("Constant", [], ["y"], value=tensor)], "g", [], output)
    for graph in (initializer, constant):
        model = helper.make_model(graph, opset_imports=imports, ir_version=10)
        with pytest.raises(ModelError, match="UTF-8"):
            eqsat.load(model)


def test_external_strings_are_refused(tmp_path: Path) -> None:
    tensor = TensorProto(name="c", data_type=TensorProto.STRING, dims=[1], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="data")
    (tmp_path / "data").write_bytes(b"a")
    output = [helper.make_tensor_value_info("y", TensorProto.STRING, [1])]
    graph = helper.make_graph([helper.make_node("Identity", ["c"], ["y"])], "g", [], output, [tensor])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(EqsatError, match="strings in the model's own file"):
        eqsat.load(tmp_path / "m.onnx")


@pytest.mark.parametrize("name", ("joined", "sequence out"))
def test_command_line(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, out, given = tmp_path / "m.onnx", tmp_path / "o.npz", tmp_path / "x.npy"
    onnx.save(_model(_BODIES[name]), model)
    np.save(given, np.array(["a", "é"]))
    assert main(["run", str(model), "-i", f"x={given}", "-o", str(out)]) == 0
    assert "string[2]" in capsys.readouterr().out
    stored = np.load(out)
    first = stored["y" if name == "joined" else "s[0]"]
    assert first[0].startswith("a")
    assert main(["run", str(model), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["y" if name == "joined" else "s"] in (
        {"dtype": "string", "shape": [2]},
        {"sequence": [{"dtype": "string", "shape": [2]}] * 2},
    )


def test_a_string_that_a_file_would_cut_is_refused() -> None:
    assert storable({"y": np.array(["a\0b"], object)})["y"].tolist() == ["a\0b"]
    with pytest.raises(ExecutionError, match="NUL"):
        storable({"y": np.array(["a\0"], object)})
