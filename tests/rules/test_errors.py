"""Mistakes: each gives one message that points at its place, says what is required, and helps."""

from __future__ import annotations

import pytest

from eqsat.errors import EqsatError, RuleError, TargetError
from eqsat.rules.reader import read_files, read_text
from tests.rules.reading import at

# A text with a mark where the error points, what the message says, and what the hint says.
SYNTAX = [
    ("rule a : exact\n    x + ‸=> x", "a term is required; got `=>`", ""),
    ("rule a : exact\n    Relu(x ‸y) => x", "got `y`", "operands are separated by commas"),
    ("rule a : exact\n    Relu(x ‸=> x", "`)`", ""),
    ("rule a ‸exact\n    Relu(x) => x", "`:` is required", ""),
    ("rule ‸: exact\n    Relu(x) => x", "a name is required", ""),
    ("rule a : exact\n    Relu(x) -‸> x", "a term is required; got `>`", "separated by `=>`"),
    (
        "rule a : exact\n    Relu(x)\n‸rule b : exact\n    Tanh(x) => x",
        "got `rule`",
        "a rule needs `=>` and a right side",
    ),
    ("rule a : exact\n    Relu(x)‸", "the end of the file", ""),
    ("rule a : exact\n    Relu(x‸", "the end of the file", "a bracket is not closed"),
    ("rule a : exact\n    Relu(x) => x where x.rank ‸= 2", "got `=`", "equality is `==`"),
    ("rule a : exact\n    Relu(x) => x where x.rank == 2 ‸& x.rank > 1", "the character `&`", "write `and`"),
    ("rule a : exact\n    Relu(x) => x where ‸!x.is_const", "the character `!`", "write `not`"),
    ("rule a : exact\n    Relu(x) => x‸;", "the character `;`", ""),
    ("rule a : exact\n    Relu(x) => ‸2x", "a number is required; got `2x`", "2 * x"),
    ('rule a : exact\n    Relu(x) => x where x.rank == ‸"a', 'ends with `"`', ""),
    ("rule a : exact\n    Relu(x) => x where x.rank == ‸'a'", "the character `'`", 'strings are written "..."'),
    ("rule a : exact\n    Relu(‸where) => x", "got `where`", "reserved word"),
    ("rule a : exact\n‸let k = 2\n    x + x => k * x", "got `let`", "indented less"),
    ("rule a : exact\n    x + c‸: Relu(y) => x", "got `:`", "parentheses"),
    (
        "‸double : exact\n    x + x => 2 * x",
        "`host`, `let`, `operator`, `rule` or `target` is required; got `double`",
        "",
    ),
    ("rule a : exact\n    Relu(x) => ‸§", "the character `§`", ""),
    ("rule a : within ‸two lsb\n    Relu(x) => x", "a number is required", ""),
    ("rule a : exact\n    Relu(x) => x where x.shape == [1, 2‸)", "`]`", ""),
    ("rule a : exact\n    Relu(x) => x\n    where x.rank == 2 because ‸weights", 'a string ("...")', ""),
    ("rule a : exact\n    Relu(x) => ‸1e999", "a 64-bit float", "`inf`"),
    ("rule a : exact\n    let f(x, ‸x) = x + x\n    f(x, y) => x", "a name of its own", ""),
]

OPERATORS = [
    ("rule a : exact\n    Where(‸x == x, x, 0) => x", "a pattern is required; got a condition", "`Equal(x, y)`"),
    ("rule a : exact\n    Max(x, 0) => Where(‸x > 0, x, 0)", "got a tensor", "`Less(x, y)`"),
    (
        "rule a : exact\n    ReduceSum(x, a) => x / n\n    let n = prod([x.shape[‸i] for i in a.value])",
        "a number is required; got the contents of a tensor",
        "`flat(x.value)`",
    ),
    ("rule a : exact\n    ‸Requantise(x) => x", "there is no operator `Requantise`", "did you mean"),
    ("rule a : exact\n    ‸Convv(x, w) => x", "there is no operator `Convv`", "`Conv`"),
    ("rule a : exact\n    ‸relu(x) => x", "there is no operator `relu`", "`Relu`"),
    ("rule a : exact\n    ‸com.microsoft.Gelo(x) => x", "there is no operator", "com.microsoft.Gelu"),
    ("rule a : exact\n    ‸com.microsft.Gelu(x) => x", "there is no operator", "com.microsoft"),
    ("rule a : exact\n    ‸FusedConv(x, w) => x", "there is no operator", "com.microsoft.FusedConv"),
    ("rule a : exact\n    ‸Conv(x) => x", "`Conv(X, W, B?)` needs its operand `W`; got 1 operand", ""),
    ("rule a : exact\n    ‸Relu() => x", "needs its operand `X`; got no operands", ""),
    ("rule a : exact\n    ‸Relu(x, y) => x", "takes at most 1 operand; got 2", ""),
    ("rule a : exact\n    Relu(x) => ‸Add(x)", "needs its operand `B`", ""),
    ("rule a : exact\n    ‸Conv(w, B=x) => x", "needs its operand `W`", ""),
    ("rule a : exact\n    Transpose(x, ‸axes=p) => x", "has no attribute or operand `axes`", "perm"),
    ("rule a : exact\n    Relu(x) => Softmax(x, ‸axes=1)", "has no attribute or operand `axes`", "`axis`"),
    ("rule a : exact\n    Clip(x, min=lo, ‸min=hi) => x", "`min` must be given once", ""),
    ("rule a : exact\n    Clip(x, max=hi, ‸lo) => x", "by position must come before", ""),
    ("rule a : exact\n    Transpose(x, perm=‸2) => x", "a list of whole numbers is required", ""),
    ("rule a : exact\n    Softmax(x, axis=‸1.5) => x", "a whole number is required", ""),
    ("rule a : exact\n    Relu(x) => Transpose(x, perm=‸[1, 0.5])", "a list of whole numbers is required", ""),
    ('rule a : exact\n    Softmax(x, axis=‸"last") => x', 'got "last"', ""),
    ("rule a : exact\n    Gelu(x, approximate=‸1) => x", "a string is required", ""),
    ("rule a : exact\n    Relu(x) => Softmax(x, axis=‸[1])", "a whole number is required", ""),
    ("rule a : exact\n    Relu(x) => Softmax(x, axis=‸x.shape)", "got a list", ""),
    ("rule a : exact\n    Relu(x) => ‸Cast(x)", "needs its attribute `to`", ""),
    ("rule a : exact\n    Relu(x) => Constant(value=‸x.shape)", "cannot be written in a rule", ""),
    ("rule a : exact\n    Conv(‸xs..., w) => w", "any number of operands", ""),
    ("rule a : exact\n    Concat(‸xs..., y, axis=0) => y", "must be the last operand", ""),
    ("rule a : exact\n    Conv(‸x?, w) => w", "must be there", "optional"),
    ("rule a : exact\n    x + Relu(‸x?) => x", "must be there", ""),
    ("rule a : exact\n    TopK(x, k)[‸2] => x", "0 (Values), 1 (Indices)", ""),
    ("rule a : exact\n    ‸Relu => x", "operands are required after an operator", "Relu(...)"),
    ("rule a : exact\n    (op: Relu | ‸Tahn)(x) => op(x)", "there is no operator `Tahn`", "Tanh"),
    ("rule a : exact\n    (op: ‸Relu(x) | Tanh)(x) => x", "the name of an operator is required", ""),
    ("rule a : exact\n    ‸(Add | Relu)(x, y) => x", "takes at most 1 operand", ""),
    ("rule a : exact\n    maybe(Relu)(x) + ‸maybe(Relu, Tanh)(y) => x", "one operator is required in maybe(...)", ""),
]

NAMES = [
    ("rule a : exact\n    x + y => x * ‸z", "`z` is not bound by the pattern", "bound here: x, y"),
    ("rule a : exact\n    alpha + y => ‸alpa * y", "`alpa` is not bound", "did you mean `alpha`"),
    ("rule a : exact\n    x + y => x where const(‸z)", "`z` is not bound", ""),
    ("rule a : exact\n    Relu(x) => Transpose(x, perm=‸p)", "`p` is not bound", ""),
    ("rule a : exact\n    Transpose(x, perm=[‸q]) => x", "`q` is not bound", ""),
    ("rule a : exact\n    x + y => x where ‸w.rank == 1", "`w` is not bound", ""),
    ("rule a : exact\n    Relu(x) => Conv(x, x, ‸**c)", "`c` is not bound", ""),
    ("rule a : exact\n    x + y => Conv(x, y, ‸**x)", "a node bound on the left is required after `**`", "x: Conv"),
    ("rule a : exact\n    Concat(xs..., axis=0) => ‸xs", "a list of tensors", "xs..."),
    ("rule a : exact\n    x + y => Concat(‸x..., axis=0)", "must be bound as `x...`", ""),
    ("rule a : exact\n    (op: Add | Sub)(x, y) => ‸op", "an operator", "op(...)"),
    (
        "rule a : exact\n    Transpose(p, perm=‸p) => p",
        "`p` must be one thing",
        "",
    ),
    ("rule a : exact\n    Transpose(x, perm=p) + ‸p => x", "an attribute at", ""),
    ("rule a : exact\n    Elu(x, alpha=p) + Transpose(y, perm=‸p) => x", "must have one kind of value", ""),
    ("rule a : exact\n    ‸float32 + x => x", "an element type", ""),
    ("rule a : exact\n    x + y => ‸_", "binds nothing", ""),
    ("rule a : exact\n    Relu(x) => x\n    let ‸k = Exp(x)", "`let k` must be used", ""),
    (
        "rule a : exact\n    Relu(x) => k + j\n    let k = Exp(x)\n    let ‸k = Log(x)\n    let j = k",
        "`let k` must be defined once",
        "",
    ),
    (
        "rule a : exact\n    Relu(x) => j\n    let j = ‸k\n    let k = Exp(x)",
        "must be defined before it is used",
        "move `let k`",
    ),
    ("rule a : exact\n    Relu(x) => ‸f(x, x)\n    let f(t) = Exp(t)", "the macro `f` takes 1 arguments", ""),
    ("rule a : exact\n    Relu(x) => f(‸t=x)\n    let f(t) = Exp(t)", "by position", ""),
    ("rule a : exact\n    Relu(x) => ‸k(x)\n    let k = Exp(x)", "a `let` without parameters", ""),
    ("rule a : exact\n    Relu(x) => x\n    let f(t) = t.rank\n    where ‸f == 2", "`f` is not bound", "macro"),
    (
        "rule a : exact\n    Relu(x) => x\nrule ‸a : exact\n    Tanh(x) => x",
        "each rule must have a name of its own",
        "",
    ),
    ("rule a : exact\n    Relu(‸c: x) => x", "a bare value", ""),
]

CONSTNESS = [
    ("rule a : exact\n    x + y => x where not ‸const(x)", "a condition of its own, on a name", "where const(x)"),
    ("rule a : exact\n    x + y => x where x.rank == 1 or ‸x.is_const", "must be a condition of its own", ""),
    ("rule a : exact\n    Sum(xs...) => 0 where const(‸xs[0])", "a condition of its own, on a name", ""),
    ("rule a : exact\n    Sum(xs...) => 0 where all([‸const(v) for v in xs])", "a condition of its own, on a name", ""),
    ("rule a : exact\n    x + y => Softmax(x, axis=1 if ‸const(y) else 0)", "a condition of its own in `where`", ""),
    ("rule a : exact\n    Softmax(x, axis=1 if ‸x.is_const else 0) => x", "a condition of its own in `where`", ""),
]

MACROS = [
    ("let f(t) = ‸Rleu(t)", "there is no operator `Rleu`", "Relu"),
    ("let f(t) = 2 * Softmax(t, ‸axes=1)", "has no attribute or operand `axes`", "axis"),
    ("let f(t) = [‸com.microsoft.Gelo(t)]", "there is no operator", "com.microsoft.Gelu"),
]

CLASSES = [
    ("rule a : ‸exactly\n    Relu(x) => x", "a numerics class is required", "did you mean `exact`"),
    ("rule a : ‸fast\n    Relu(x) => x", "exact, real, approximate or `within N lsb`", ""),
    ("rule a : ‸within 2 ulp\n    Relu(x) => x", "got `within 2 ulp`", ""),
    ("rule a : ‸within 0 lsb\n    Relu(x) => x", "a whole number from 1", ""),
    ("rule a : ‸within 0.5 lsb\n    Relu(x) => x", "a whole number from 1", ""),
]

EXPRESSIONS = [
    ("rule a : exact\n    x + y => x where ‸x == 2", "got a tensor", ".value"),
    ("rule a : exact\n    x + y => x where ‸x.rank", "true or false is required; got a number", "compare it"),
    ("rule a : exact\n    x + y => x where ‸x.shap == [1]", "a tensor has no `shap`", "`shape`"),
    ("rule a : exact\n    x + y => x where ‸x.strides == [1]", "a tensor has no `strides`", ""),
    ("rule a : exact\n    c: Conv(x, w) => x where ‸c.stride == [1]", "`Conv` has no attribute `stride`", "`strides`"),
    ("rule a : exact\n    x + y => x where ‸konst(x)", "there is no operator `konst`", "`const`"),
    ("rule a : exact\n    x + y => x where ‸len(x.shape, y.shape) == 2", "`len` takes 1 arguments; got 2", ""),
    ("rule a : exact\n    x + y => x where len(‸x.rank) == 2", "a list", ""),
    ('rule a : exact\n    x + y => x where x.dtype == ‸"int8"', "an element type is required to compare with", ""),
    ("rule a : exact\n    x + y => x where x.shape == ‸2", "a list is required to compare with", ""),
    ('rule a : exact\n    x + y => x where x.rank < ‸"a"', "got a string", ""),
    ("rule a : exact\n    x + y => x where x.rank in ‸4", "a list", ""),
    ("rule a : exact\n    x + y => x where not ‸x.rank", "true or false is required", ""),
    ("rule a : exact\n    x + y => x where x.rank == 1 and ‸2", "true or false is required", ""),
    ("rule a : exact\n    x + y => x where x.shape ‸+ 1 == [2]", "operands that fit", ""),
    ("rule a : exact\n    x + y => x where x.rank ‸@ 2 == 2", "a product of tensors", ""),
    ("rule a : exact\n    x + y => x where ‸Relu(x) == 2", "an operator applied to tensors", "functions"),
    ("rule a : exact\n    x + y => x where const(‸2)", "a tensor", ""),
    ("rule a : exact\n    x + y => x where (‸a: x) == 2", "a named pattern", ""),
    ("rule a : exact\n    x + y => x where ‸x.rank[0] == 2", "a list", ""),
    ("rule a : exact\n    x + y => x where [i for i in x.shape if ‸i] == []", "true or false is required", ""),
    (
        "rule a : exact\n    x + y => x where k.rank == 2\n    let k = ‸Exp(x)",
        "a condition can only ask",
        "",
    ),
    ("rule a : exact\n    Transpose(x, perm=p) => x where ‸p.shape == [1]", "a tensor or a node", ""),
]

SIDES = [
    ("rule a : exact\n    ‸x => x + 0", "an operator is required as the root", "bare variable"),
    ("rule a : exact\n    ‸2 => 3", "an operator is required as the root", ""),
    ("rule a : exact\n    Relu(x) | ‸x => x", "an operator is required as the root", "each alternative"),
    ("rule a : exact\n    maybe(Relu)(‸x) => x", "an operator is required as the root", ""),
    ("rule a : exact\n    Relu(‸x.rank == 2) => x", "a condition", "where"),
    ("rule a : exact\n    Relu(x ‸** 2) => x", "`**`", "Pow(x, y)"),
    ("rule a : exact\n    Relu(x) => x ‸% 2", "`%`", "Mod(x, y)"),
    ("rule a : exact\n    Relu(‸tensor(1)) => x", "builds a constant", ""),
    ("rule a : exact\n    Conv(x, w, ‸**c) => x", "gives attributes to an operator that is built", ""),
    ("rule a : exact\n    Relu(x) => ‸Relu(x) | Tanh(x)", "`|`, which chooses between patterns", ""),
    ("rule a : exact\n    Relu(x) => ‸c: Tanh(x)", "which binds in patterns", "let"),
    ("rule a : exact\n    Relu(x) => ‸maybe(Tanh)(x)", "a choice of operators", ""),
    ("rule a : exact\n    Relu(x) => ‸(Tanh | Sin)(x)", "a choice of operators", ""),
    ('rule a : exact\n    Relu(x) => x + ‸"a"', "a number", ""),
    ("rule a : exact\n    Relu(x) => x + ‸int8", "got an element type", ""),
    ("rule a : exact\n    ‸MatMul(x, u), b = MatMul(x, v) => b = u", "each of several roots must have a name", ""),
    ("rule a : exact\n    a = MatMul(x, u), ‸a = MatMul(x, v) => a = u", "a name of its own", ""),
    ("rule a : exact\n    a = MatMul(x, u), b = MatMul(x, v) => ‸u", "give each root by its name: a, b", ""),
    ("rule a : exact\n    a = MatMul(x, u), b = MatMul(x, v) => a = ‸u", "nothing for `b`", ""),
    ("rule a : exact\n    a = MatMul(x, u), b = MatMul(x, v) => a = u, ‸c = v", "`c` is not a root", ""),
    ("rule a : exact\n    a = MatMul(x, u), b = MatMul(x, v) => (a, b) = ‸x", "several outputs", ""),
    (
        "rule a : exact\n    a = MatMul(x, u), b = MatMul(x, v) => (a, ‸b) = Relu(x)",
        "an output of `Relu` is required: 0 (Y); got 1",
        "",
    ),
    ("rule a : exact\n    a = Relu(x) => ‸2 = x", "the name of a root", ""),
    ("rule a : real\n    Relu(x) + y <=> ‸x", "(reading `<=>` from right to left)", ""),
    (
        "rule a : real\n    Relu(x) + ‸y <=> Relu(x)",
        "`y` is not bound by the pattern (reading `<=>` from right to left)",
        "",
    ),
    ("rule a : real\n    Relu(c: Conv(x, w)) <=> Conv(x, w, ‸**c)", "from right to left", ""),
    (
        "rule a : exact\n    Conv(x, w, b?) => ‸b",
        "a value whenever the left side matches is required; got nothing where `b` is absent",
        "",
    ),
    (
        "rule a : exact\n    Conv(x, w, b?) => Relu(‸b)",
        "`Relu` needs its operand `X`; got nothing where `b` is absent",
        "",
    ),
    ("rule a : exact\n    Conv(x, w, b?) => x / ‸b", "`Div` needs its operand `B`", ""),
    ("rule a : exact\n    Conv(x, w, b?) => Concat(x, ‸b, axis=0)", "`Concat` needs", ""),
    ("rule a : exact\n    Conv(x, w) | Relu(x) => ‸x * w", "nothing where `w` is absent", ""),
    ("rule a : exact\n    (c: Conv(x, w) | x) + y => ‸Conv(x, x, **c)", "the attributes of `c`", ""),
    ("rule a : exact\n    (op: Exp | Log)(x) + z | Sqrt(x) + z => ‸op(x)", "the operator `op`", ""),
    ("rule a : exact\n    StringConcat(x, y) => Relu(‸x)", "must be a tensor of", ""),
    ("rule a : exact\n    Relu(‸StringConcat(x, y)) => x", "a tensor of strings", ""),
    ("rule a : exact\n    Relu(x) => ‸Equal(x, x)", "the right side must be", ""),
]

TARGET = (
    "target t\n    peak float32 = 1e12\n    bandwidth = 1e9, launch = 1e-6\n    link bandwidth = 1e9, latency = 1e-6\n"
)
TARGETS = [
    ("target ‸t\n    bandwidth = 1, launch = 1", "`t` must give its peak", "peak float32"),
    ("target ‸t\n    peak int8 = 1\n    launch = 1", "must give its bandwidth", ""),
    ("target ‸t\n    peak int8 = 1\n    bandwidth = 1, launch = 1", "must give its link bandwidth", ""),
    ("host h\n    peak int8 = 1\n    bandwidth = 1, launch = 1\n    ‸link bandwidth = 1", "a host has no link", ""),
    (TARGET + "    ‸bandwith = 2", "a target has no setting `bandwith`", "`bandwidth`"),
    (TARGET + "    ‸latency = 2", "no setting `latency`", "link"),
    (TARGET + "    link ‸launch = 2", "no setting `link launch`", ""),
    (TARGET + "    ‸peek int8 = 2", "`peak` or `link` is required", "`peak`"),
    (TARGET + "    peak ‸int9 = 2", "an element type is required", "`int8`"),
    (TARGET + "    peak ‸float = 2", "`float32` must be given once", ""),
    (TARGET + "    dispatch = ‸-2", "a number not below 0", ""),
    (TARGET + "    peak int8 = ‸0", "a number above 0", ""),
    (TARGET + "    dispatch = ‸x", "`x` is not bound", ""),
    (TARGET + "    ‸dispatch = 1 / 0", "a number is required", ""),
    (TARGET + '    ‸sumary "x"', "`summary`, `rules` or `prepare` is required before a text", ""),
    (TARGET + '    summary "x"\n    ‸summary "y"', "given once", ""),
    (TARGET + "    supports Relu, ‸Rleu", "there is no operator `Rleu`", "Relu"),
    (TARGET + "    supports Relu, ‸Relu", "listed once", ""),
    (TARGET + "    supports Conv where ‸w.rank == 4", "`w` is not bound", ""),
    (TARGET + "    supports Conv, Relu where ‸W.rank == 4", "`W` is not bound", ""),
    (TARGET + "    supports Conv where ‸node.kernel == [1]", "has no attribute `kernel`", "kernel_shape"),
    (TARGET + "    supports Conv cost ‸x.shape", "a number is required", ""),
    (TARGET + "    supports Conv cost launch cost ‸launch", "`cost` must be given once", ""),
    (TARGET + "    supports Conv where ‸macs > 3", "`macs` is not bound", ""),
    (TARGET + "    composite a : exact\n        Relu(x)\n    composite ‸a : exact\n        Tanh(x)", "`a` twice", ""),
    (TARGET + "    composite a : exact\n        ‸x", "root of a pattern", ""),
    (TARGET + "    composite a : ‸exct\n        Relu(x)", "a numerics class", ""),
    (TARGET + "    composite a : exact\n        Relu(x)\n        cost macs / ‸peek", "`peek` is not bound", "`peak`"),
    (TARGET + '    composite a : exact\n        Relu(x)\n        call "f({‸z})"', "`z` is not bound", ""),
    (TARGET + '    composite a : exact\n        Relu(x)\n        call "f(‸{x)"', "a `}` is required", ""),
    (TARGET + '    composite a : exact\n        Relu(x)\n        call "f(x‸})"', "a `{` is required", ""),
    (TARGET + '    composite a : exact\n        Relu(x)\n        call "f({‸})"', "an expression is required", ""),
    (TARGET + '    composite a : exact\n        Relu(x)\n        call "f({‸x +})"', "an expression is required", ""),
    (TARGET + '    composite a : exact\n        Relu(x)\n        call "f"\n        call ‸"g"', "given once", ""),
    (TARGET + "    composite a : exact\n        let ‸k = Exp(y)\n        Relu(x)", "must be used", ""),
]


def test_a_hint_lists_only_names_that_were_written() -> None:
    with pytest.raises(RuleError) as caught:
        read_text("rule a : exact\n    Max(ReduceSum(Transpose(x, perm=p), [i]), 0) => x", "my.rules")
    assert caught.value.hint == "bound here: x, p"


def check(text: str, message: str, hint: str, kind: type[EqsatError], name: str) -> None:
    text, line, column = at(text)
    with pytest.raises(kind) as caught:
        read_text(text, name)
    error = caught.value
    assert type(error) is kind
    assert error.place == f"{name}:{line}:{column}", str(error)
    shown, caret = error.excerpt.split("\n")
    assert shown == text.split("\n")[line - 1].rstrip()
    assert caret == " " * (column - 1) + "^"
    assert message in str(error), str(error)
    assert hint in error.hint, str(error)
    assert error.requirement[:1].islower() or error.requirement[:1] in '`"('
    assert not error.requirement.endswith(".")


@pytest.mark.parametrize(
    ("text", "message", "hint"), [*SYNTAX, *OPERATORS, *NAMES, *CLASSES, *EXPRESSIONS, *CONSTNESS, *MACROS, *SIDES]
)
def test_a_mistake_in_a_rule(text: str, message: str, hint: str) -> None:
    check(text, message, hint, RuleError, "my.rules")


@pytest.mark.parametrize(("text", "message", "hint"), TARGETS)
def test_a_mistake_in_a_target(text: str, message: str, hint: str) -> None:
    check(text, message, hint, TargetError, "my.target")


def test_an_error_is_of_the_declaration_it_is_in() -> None:
    with pytest.raises(TargetError):
        read_text(TARGET + "    supports Rleu", "mixed.rules")
    with pytest.raises(RuleError):
        read_text("rule r : exact\n    Rleu(x) => x\n" + TARGET, "mixed.target")


def test_inside_a_macro_it_says_where_the_macro_is_used() -> None:
    text = "let f(t) = Reshape(t, [t.rnk])\nrule r : exact\n    Relu(x)  =>  f(x)"
    with pytest.raises(RuleError) as caught:
        read_text(text, "my.rules")
    assert caught.value.place == "my.rules:1:24"
    assert "in `f`, used at my.rules:3:18" in caught.value.requirement


def test_an_error_in_the_prelude_shows_the_prelude() -> None:
    with pytest.raises(RuleError) as caught:
        read_text("rule r : exact\n    Elu(x, alpha=a)  =>  per_channel(x, a)", "my.rules")
    assert "prelude.rules" in caught.value.place
    assert "per_channel" in caught.value.excerpt
    assert "used at my.rules:2:26" in caught.value.requirement


def test_tabs_keep_the_caret_below_its_character() -> None:
    with pytest.raises(RuleError) as caught:
        read_text("rule r : exact\n\tRelu(x)\t=> y")
    assert caught.value.excerpt.split("\n")[1] == "\t       \t   ^"


def test_windows_line_ends_and_byte_order_marks_are_no_mistake() -> None:
    found = read_text("\ufeffrule r : exact\r\n    # doc\r\n    Relu(x)  =>  x\r\n")
    assert found.rules[0].doc == "doc"


def test_files(tmp_path) -> None:
    with pytest.raises(RuleError, match="no such file"):
        read_files([tmp_path / "a.rules"])
    with pytest.raises(TargetError, match="no such file"):
        read_files([tmp_path / "a.target"])
    with pytest.raises(RuleError, match="directory"):
        read_files([tmp_path])
    (tmp_path / "b.rules").write_bytes(b"rule \xff")
    with pytest.raises(RuleError, match=r"b\.rules:1:6: text in UTF-8 is required; got the byte 0xFF"):
        read_files([tmp_path / "b.rules"])


def test_names_over_several_files(tmp_path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.rules").write_text("rule r : exact\n    Relu(x)  =>  x\n", "utf-8")
    with pytest.raises(RuleError, match=r"b.rules:1:6.*each rule must have a name of its own.*a.rules:1:6"):
        read_files([tmp_path / "a.rules", tmp_path / "b.rules"])
    assert len(read_files([tmp_path / "a.rules"])) == 1


@pytest.mark.parametrize(
    "term",
    [
        "Relu(" * 500 + "x" + ")" * 500,
        "-" * 5000 + "x",
        " + ".join(["x"] * 500),
        "a: " * 500 + "Relu(x)",
        "(" * 5000 + "Relu(x) + " + "y)" + ")" * 4999 + " * " * 1 + "[" * 3000 + "]" * 3000,
    ],
    ids=["calls", "signs", "sum", "names", "lists"],
)
def test_nesting_is_limited(term: str) -> None:
    with pytest.raises(RuleError, match="at most 60 levels deep"):
        read_text(f"rule r : exact\n    {term}  =>  x")


def test_brackets_alone_are_no_nesting() -> None:
    assert len(read_text(f"rule r : exact\n    Relu({'(' * 5000}x{')' * 5000})  =>  x").rules) == 1


def test_expansion_is_limited() -> None:
    lets = "".join(f"    let a{i} = a{i - 1} * a{i - 1}\n" for i in range(1, 40))
    with pytest.raises(RuleError, match="at most 2000 operators"):
        read_text(f"rule r : exact\n    Relu(x)  =>  a39\n    let a0 = Exp(x)\n{lets}")
    macros = "".join(f"let a{i}(t) = a{i - 1}(t) * a{i - 1}(t)\n" for i in range(1, 40))
    with pytest.raises(RuleError, match=r"moderate size|at most 2000 operators"):
        read_text(f"let a0(t) = Exp(t)\n{macros}rule r : exact\n    Relu(x)  =>  a39(x)")
    with pytest.raises(RuleError, match=r"moderate size|at most 2000 operators"):
        read_text(f"let a0(t) = Exp(t)\n{macros}rule r : exact\n    a39(x)  =>  x")


def test_alternatives_are_limited() -> None:
    term = " + ".join(f"(Exp(x{i}) | Log(x{i}))" for i in range(14))
    with pytest.raises(RuleError, match="at most 1024 plain ones"):
        read_text(f"rule r : exact\n    {term}  =>  x0")
