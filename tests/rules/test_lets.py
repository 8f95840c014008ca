"""``let``: names of subterms, macros, scope."""

from __future__ import annotations

import pytest

from eqsat.rules.ast import Alternatives, Build, Match, Name
from eqsat.rules.expand import expand
from eqsat.rules.reader import read_text
from eqsat.rules.tree import without_places
from tests.rules.printing import shown
from tests.rules.reading import composite, pattern, rule, target


def same(a: object, b: object) -> bool:
    return without_places(a) == without_places(b)


def test_a_template() -> None:
    named = rule("x + x  =>  k * x\n    let k = Sqrt(x)")
    assert same(named.right, rule("x + x  =>  Sqrt(x) * x").right)


def test_an_expression() -> None:
    named = rule("Transpose(x, perm=p)  =>  Transpose(x, perm=q)\n    let q = [i for i in p]")
    assert same(named.right, rule("Transpose(x, perm=p)  =>  Transpose(x, perm=[i for i in p])").right)


def test_in_a_condition() -> None:
    named = rule("Relu(x)  =>  x\n    let n = x.rank\n    where n == 4, n > 2")
    assert [shown(c.expr) for c in named.where] == ["x.rank == 4", "x.rank > 2"]


def test_a_subterm_of_the_pattern_has_its_name() -> None:
    found = rule("let c = Conv(x, w)\n    Relu(c)  =>  Conv(x, w, **c)\n    where c.rank == 4, c.group == 1")
    assert isinstance(found.left[0], Match)
    assert found.left[0].args[0].bind == "c"


def test_used_twice_it_is_one_value() -> None:
    found = pattern("let s = x + y | x\n        s * Sigmoid(s)")
    assert isinstance(found, Match)
    assert found.args[0] is found.args[1].args[0]
    assert isinstance(found.args[0], Alternatives)
    assert len(expand((found,))) == 2


def test_the_same_macro_used_twice_is_two_terms() -> None:
    found = pattern("let half(t) = t + 1 | t\n        half(x) * half(y)")
    assert len(expand((found,))) == 4


def test_alternatives_have_one_name() -> None:
    found = composite("let xp = maybe(Pad)(x, widths, zero)\n        Conv(xp, w)\n        where xp.rank == 4")
    padded, plain = expand(found.patterns)
    assert padded.roots[0].args[0].bind == "xp"
    assert plain.aliases == {"xp": "x"}
    assert plain.absent == {"widths", "zero"}


def test_a_name_for_several_outputs_is_one_node() -> None:
    found = rule("let s = Split(x, _, axis=a)\n    Concat(s[0], s[1], axis=a)  =>  x")
    concat = found.left[0]
    assert isinstance(concat, Match)
    first, second = concat.args
    assert isinstance(first, Match)
    assert isinstance(second, Match)
    assert (first.output, second.output) == (0, 1)
    assert same(first.args, second.args)
    assert isinstance(first.args[1], Name), "an unnamed operand must be the same one for both outputs"
    assert same(first.attrs, second.attrs)


def test_macros_take_terms() -> None:
    found = rule("let twice(t) = t + t\n    Neg(twice(x * y))  =>  twice(x) * twice(y)")
    assert same(found, rule("Neg((x * y) + (x * y))  =>  (x + x) * (y + y)"))


def test_macros_of_conditions() -> None:
    found = rule("let small(t) = t.size < 10\n    x + y  =>  y + x\n    where small(x), small(y)")
    assert [shown(c.expr) for c in found.where] == ["x.size < 10", "y.size < 10"]


def test_macros_of_operators() -> None:
    found = target(
        "composite c : exact\n        let act(v) = (Relu | Tanh)(v) | Clip(v, lo, hi)\n        act(Conv(x, w))"
    )
    assert len(expand(found.composites[0].patterns)) == 3


def test_macros_use_macros() -> None:
    text = "let a(t) = Exp(t)\nlet b(t) = a(a(t))\nrule r : exact\n    b(x)  =>  x"
    assert same(read_text(text).rules[0].left, rule("Exp(Exp(x))  =>  x").left)


def test_parameters_hide_names_of_the_rule() -> None:
    found = rule("let f(x) = Exp(x)\n    x + f(y)  =>  x")
    assert same(found.left, rule("x + Exp(y)  =>  x").left)


def test_arguments_are_read_where_they_are_written() -> None:
    text = "let outer(a) = inner(Neg(a))\nrule r : exact\n    Relu(a) => a"
    with pytest.raises(Exception, match="there is no operator `inner`"):
        read_text(text + "\nrule s : exact\n    outer(a) => a")
    text = "let inner(a) = Exp(a)\nlet outer(b) = inner(Neg(b))\nrule r : exact\n    outer(a) => a"
    assert same(read_text(text).rules[0].left, rule("Exp(Neg(a))  =>  a").left)


def test_other_names_of_a_macro_are_those_of_the_rule() -> None:
    found = rule("let biased(t) = Conv(t, w, b?)\n    biased(x)  =>  x * w + b")
    assert same(found, rule("Conv(x, w, b?)  =>  x * w + b"))


def test_a_variable_of_a_comprehension_hides_nothing() -> None:
    text = "let shifted(n) = [i + n for i in [1, 2]]\n    Transpose(x, perm=i)  =>  Transpose(x, perm=shifted(i[0]))"
    value = rule(text).right[0].attrs[0][1]
    assert shown(value) == "[i_1 + i[0] for i_1 in [1, 2]]"


def test_file_level_lets_hold_for_the_rest_of_the_file() -> None:
    text = "let f(t) = Exp(t)\nrule a : exact\n    f(x) => x\nlet g(t) = f(f(t))\nrule b : exact\n    g(x) => x\n"
    assert len(read_text(text).rules) == 2
    with pytest.raises(Exception, match="there is no operator `g`"):
        read_text("rule a : exact\n    g(x) => x\nlet g(t) = Exp(t)\n")


def test_a_let_belongs_to_what_is_indented_less() -> None:
    text = (
        "target t\n    peak float32 = 1\n    bandwidth = 1, launch = 1\n    link bandwidth = 1, latency = 1\n"
        "    composite a : exact\n        f(x)\n        let f(t) = Exp(t)\n"
        "    let g(t) = Log(t)\n"
        "    composite b : exact\n        g(x)\n"
        "let h(t) = Relu(t)\n"
        "rule r : exact\n    h(x) => x\n"
    )
    found = read_text(text)
    names = [c.patterns[0].ops[0].name for c in found.targets[0].composites]
    assert names == ["Exp", "Log"]
    assert len(found.rules) == 1


def test_a_rule_may_hide_a_name_of_its_file() -> None:
    text = "let k = 2\nrule a : exact\n    x + x => k * x\nrule b : exact\n    let k = 3\n    x + x => k * x"
    a, b = read_text(text).rules
    assert a.right[0].args[0].value == 2
    assert b.right[0].args[0].value == 3


def test_a_macro_may_have_the_name_of_a_variable() -> None:
    found = rule("let relu(t) = Relu(t)\n    relu(relu)  =>  relu")
    assert same(found, rule("Relu(relu)  =>  relu"))


def test_the_type_of_a_built_term_can_be_asked() -> None:
    found = rule("BatchNormalization(x, s, b, m, v, epsilon=e)  =>  x * per_channel(k, k)\n    let k = s / Sqrt(v + e)")
    reshape = found.right[0].args[1]
    assert isinstance(reshape, Build)
    assert isinstance(reshape.args[0], Build)
    assert reshape.args[0].name == "k"
    assert shown(reshape.args[1].value) == "[-1] + [1] * (k.rank - 1)"


def test_the_type_of_an_argument_can_be_asked() -> None:
    found = rule("x + y  =>  flat(x * y)\n    let flat(t) = Reshape(t, [t.size])")
    reshape = found.right[0]
    assert isinstance(reshape, Build)
    name = reshape.args[0].name
    assert name is not None
    assert shown(reshape.args[1].value) == f"[{name}.size]"


def test_the_type_of_an_argument_that_is_a_name_is_that_of_the_name() -> None:
    found = rule("x + y  =>  flat(x)\n    let flat(t) = Reshape(t, [t.size])")
    assert shown(found.right[0].args[1].value) == "[x.size]"


def test_pattern_lets_may_be_used_on_the_right() -> None:
    found = rule("let m = MatMul(x, w)\n    Relu(m + b)  =>  Max(m + b, 0)")
    assert isinstance(found.right[0].args[0].args[0], Name)


def test_lets_of_both_directions() -> None:
    text = "rule r : real\n    let f(t) = Exp(t)\n    f(x) * f(y)  <=>  f(x + y)"
    forward, backward = read_text(text).rules
    assert same(forward.left, (pattern("Exp(x) * Exp(y)"),))
    assert same(backward.left, (pattern("Exp(x + y)"),))
