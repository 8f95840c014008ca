"""Reading files as a whole: the examples of the design, documentation, raw egglog, numerics, places."""

from __future__ import annotations

import pytest

from eqsat.rules.ast import Build, Match, Numerics, Place, RuleFile, TensorTerm
from eqsat.rules.expand import expand
from eqsat.rules.location import rules_dir
from eqsat.rules.reader import read_file, read_files, read_text
from eqsat.schema.types import OpKey
from tests.rules.printing import pattern_text
from tests.rules.reading import rule

DESIGN = """
rule double : exact                        # x + x is 2x to the bit
    x + x  =>  2 * x

rule difference_of_squares : real
    (x + y) * (x - y)  <=>  x * x - y * y

rule merge_transposes : exact
    Transpose(Transpose(x, perm=p), perm=q)  =>  Transpose(x, perm=[p[i] for i in q])

rule fold_batchnorm : real
    BatchNormalization(c: Conv(x, w, b?), gamma, beta, mean, var, epsilon=e)
        =>  Conv(x, w * per_channel(k, w), (b - mean) * k + beta, **c)
    let k = gamma / Sqrt(var + e)
    where const(w, gamma, beta, mean, var)

rule matmuls_share_input : real            # several roots: two outputs at once
    a = MatMul(x, u), b = MatMul(x, v)
        =>  (a, b) = Split(MatMul(x, Concat(u, v, axis=-1)), axis=-1, split=[u.shape[-1], v.shape[-1]])
    where const(u, v), u.rank == 2, v.rank == 2

target ethos_n                              # all numbers SI: MAC/s, byte/s, seconds
    summary "int8 NPU with 16-bit partial sums"
    peak int8 = 4e12, uint8 = 4e12
    bandwidth = 8e9, launch = 20e-6
    link bandwidth = 4e9, latency = 5e-6
    supports Add, Concat, MaxPool where x.dtype in (int8, uint8)
    composite qnn_conv2d : exact
        let xp  = Pad(x, widths, zx) | x                     # optional pad
        let acc = QLinearConv(xp, sx, zx, w, sw, zw, so, zo, b?, dilations=[1, 1])
        acc
        where const(w, b), const(sx, zx, sw, zw, so, zo)     because "the weights live on the device",
              x.dtype == w.dtype or w.dtype == int8
        cost launch + max(macs / peak, bytes / bandwidth)    # the default, may be any expression
        call "ethosn_conv2d({x}, {w}, {b}, {y}, {acc.strides[0]}, {acc.strides[1]})"
"""


def test_the_examples_of_the_design() -> None:
    found = read_text(DESIGN, "design.rules")
    assert [r.name for r in found.rules] == [
        "double",
        "difference_of_squares",
        "difference_of_squares.reverse",
        "merge_transposes",
        "fold_batchnorm",
        "matmuls_share_input",
    ]
    assert pattern_text(found.rules[0]) == "x + x => 2 * x"
    assert found.rules[0].doc == "x + x is 2x to the bit"
    fold = found.rules[4]
    assert len(expand(fold.left)) == 2
    share = found.rules[5]
    first, second = share.right
    assert isinstance(first, Build)
    assert isinstance(second, Build)
    assert (first.output, second.output) == (0, 1)
    assert isinstance(first.args[1], TensorTerm)
    npu = found.targets[0]
    assert npu.dispatch == npu.link_latency == 5e-6
    padded, plain = expand(npu.composites[0].patterns)[::2]
    assert padded.absent == set()
    assert plain.absent == {"widths"}, "zx stays, the convolution reads it as well"


def test_documentation_is_above_beside_and_below_the_header() -> None:
    text = (
        "# of nothing\n\n# one\n#   two\nrule a : exact # three\n    # four\n\n    # five\n    Relu(x)  =>  x\n"
        "    # six\nrule b : exact\n    # seven\n    Tanh(x)  =>  x\n"
        "rule c : exact  Exp(x)  # eight\n   # nine\n   =>  x\n"
    )
    found = read_text(text).rules
    assert [r.doc for r in found] == ["one\n  two\nthree\nfour", "six\nseven", "eight"]


def test_a_hash_in_a_string_is_no_comment() -> None:
    text = 'rule a : exact\n    Gelu(x, approximate="#")  =>  x  # but this is\n'
    assert rule(text).left[0].attrs[0].equals.value == "#"


@pytest.mark.parametrize(
    ("text", "numerics"),
    [
        ("exact", Numerics("exact")),
        ("real", Numerics("real")),
        ("approximate", Numerics("approximate")),
        ("within 3 lsb", Numerics("lsb", 3)),
    ],
)
def test_numerics(text: str, numerics: Numerics) -> None:
    found = rule(f"rule a : {text}\n    Relu(x)  =>  x")
    assert found.numerics == numerics
    assert str(found.numerics) == text


def test_places() -> None:
    found = read_text("rule a : exact\n    Relu(x +\n        y)  =>  x\n    where x.rank == 2", "f.rules").rules[0]
    assert found.place == Place("f.rules", 1, 6)
    root = found.left[0]
    assert isinstance(root, Match)
    assert root.place == Place("f.rules", 2, 5)
    assert root.args[0].place == Place("f.rules", 2, 10)
    assert root.args[0].args[1].place == Place("f.rules", 3, 9)
    assert found.where[0].place == Place("f.rules", 4, 11)
    assert str(found.place) == "f.rules:1:6"


def test_raw_egglog_is_taken_as_it_stands(tmp_path) -> None:
    path = tmp_path / "more.egg"
    path.write_text("(rule () ())\n", "utf-8")
    assert read_file(path) == RuleFile(str(path), egg="(rule () ())\n")


def test_an_empty_file_declares_nothing() -> None:
    assert read_text("") == RuleFile("<text>")
    assert read_text("  \n# nothing\n") == RuleFile("<text>")


def test_line_breaks_mean_nothing() -> None:
    one = read_text("rule a : exact Relu ( x ) => x where x . rank == 2 , x.size > 1").rules[0]
    assert len(one.where) == 2
    many = read_text(
        "rule\na\n:\nexact\nRelu\n(x\n)".replace("Relu\n(", "Relu(") + "\n=>\nx\nwhere\nx\n.\nrank\n==\n2"
    ).rules[0]
    assert len(many.where) == 1


def test_a_bracket_that_begins_a_line_does_not_continue_a_let() -> None:
    found = rule("let s = x\n    (s + y) * (s - y)  =>  s\n")
    assert found.left[0].ops == (OpKey("", "Mul"),)


@pytest.mark.slow
def test_the_shipped_rules_are_found_and_read_together() -> None:
    paths = sorted(rules_dir().glob("*.rules"))
    assert rules_dir() / "prelude.rules" in paths
    names = [r.name for f in read_files(paths) for r in f.rules]
    assert len(names) == len(set(names))


def test_the_prelude_may_be_read_by_itself() -> None:
    assert read_file(rules_dir() / "prelude.rules").rules == ()


@pytest.mark.parametrize(
    ("macro", "shape"),
    [("per_channel", "[8, 1, 1, 1]"), ("per_transposed_channel", "[1, 8, 1, 1]"), ("along_channels", "[8, 1, 1]")],
)
def test_macros_of_the_prelude(macro: str, shape: str) -> None:
    import numpy as np
    import onnx_ir as ir

    from eqsat.rules.evaluation import TensorFacts, evaluate
    from eqsat.schema.types import TensorType

    found = rule(f"x + k  =>  {macro}(k, x)").right[0]
    assert isinstance(found, Build)
    assert isinstance(found.args[1], TensorTerm)
    x = TensorFacts(TensorType(ir.DataType.FLOAT, (2, 8, 5, 5)))
    wanted = evaluate(found.args[1].value, {"x": x})
    assert str(list(np.zeros(8).reshape(wanted).shape)) == shape
