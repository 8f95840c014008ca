"""The formatter: one layout, comments kept, nothing else changed; and rules printed from what was read."""

from __future__ import annotations

import pytest

from eqsat.errors import RuleError, TargetError
from eqsat.rules.describe import describe, format_composite, format_rule
from eqsat.rules.expand import without_places
from eqsat.rules.format import format_file
from eqsat.rules.location import rules_dir
from eqsat.rules.reader import read_text
from tests.rules.reading import composite, rule

SHIPPED = sorted(rules_dir().rglob("*.rules")) + sorted(rules_dir().rglob("*.target"))

CASES = {
    "spaces": ("rule a:exact x+x=>2*x", "rule a : exact\n    x + x  =>  2 * x\n"),
    "within": ("rule a : within   2\nlsb Relu(x)=>x", "rule a : within 2 lsb\n    Relu(x)  =>  x\n"),
    "arrow on a line of its own": (
        "rule a : exact\n  Relu(x)\n    =>   x",
        "rule a : exact\n    Relu(x)\n        =>  x\n",
    ),
    "both directions": ("rule a : real\n  x+y <=> y+x", "rule a : real\n    x + y  <=>  y + x\n"),
    "roots": (
        "rule a:exact a=MatMul(x,u),b=MatMul(x,v)=>(a,b)=Split(x,num_outputs=2)",
        "rule a : exact\n    a = MatMul(x, u), b = MatMul(x, v)  =>  (a, b) = Split(x, num_outputs=2)\n",
    ),
    "order and places of clauses": (
        "rule a : exact\n    Relu(x) => k\n let k=Exp(x)\n where x.rank==2,\n x.size>1 let j(t)=t where j(x).rank==1",
        "rule a : exact\n    Relu(x)  =>  k\n    let k = Exp(x)\n    where x.rank == 2,\n          x.size > 1\n"
        "    let j(t) = t\n    where j(x).rank == 1\n",
    ),
    "parentheses that are written stay": (
        "rule a : exact\n    ((x*y))*z => x*(y*z)",
        "rule a : exact\n    (x * y) * z  =>  x * (y * z)\n",
    ),
    "expressions": (
        "rule a : exact\n Transpose(x,perm=p)=>Transpose(x,perm=[p[ i ]for i in p if not i in[1,2]])"
        " where-x.rank**2<3<=-(x.size+1), x.shape[ :1]==x.shape[x.rank-1 :], (1,)==( ) ,true,"
        " x.rank if x.is_const else 3 in(1,2)",
        "rule a : exact\n    Transpose(x, perm=p)  =>  Transpose(x, perm=[p[i] for i in p if not i in [1, 2]])\n"
        "    where -x.rank ** 2 < 3 <= -(x.size + 1), x.shape[:1] == x.shape[x.rank - 1 :], (1,) == (), true,\n"
        "          x.rank if x.is_const else 3 in (1, 2)\n",
    ),
    "patterns": (
        "rule a : exact\n c :Conv( x ,w,b ? ,strides= [1,1])|(op : Add|Sub)( x , _ )|maybe ( Relu )(Sum(xs ...))=>0",
        "rule a : exact\n    c: Conv(x, w, b?, strides=[1, 1]) | (op: Add | Sub)(x, _) | maybe(Relu)(Sum(xs...))  =>  0\n",
    ),
    "numbers and strings as written": (
        'rule a : exact\n Relu(x) => x\n where x.size<1_000, x.size<4e12, "a\\"b"=="c"',
        'rule a : exact\n    Relu(x)  =>  x\n    where x.size < 1_000, x.size < 4e12, "a\\"b" == "c"\n',
    ),
    "reasons below each other": (
        'rule a : exact\n Relu(x) => x\n where x.rank==2 because "flat", x.dtype==float32 because "float",\n x.size>1',
        'rule a : exact\n    Relu(x)  =>  x\n    where x.rank == 2         because "flat",\n'
        '          x.dtype == float32  because "float",\n          x.size > 1\n',
    ),
    "blank lines": (
        "\n\n# head\n\n\nlet a=2\nlet b=3\n\n\nlet c=4\nrule r : exact\n\n  Relu(x)\n\n   => x\nrule s : exact\n Tanh(x) => x\n\n\n",
        "# head\n\nlet a = 2\nlet b = 3\n\nlet c = 4\n\nrule r : exact\n    Relu(x)\n        =>  x\n\n"
        "rule s : exact\n    Tanh(x)  =>  x\n",
    ),
    "comments": (
        "#first\n\n#  about a\nrule a : exact#behind\n#below\n  # more\n Relu(x) # left\n => x#right\n"
        "  # before where\n where x.rank==2,# one\n # two\n x.size>1 # three\n\n# last\n",
        "# first\n\n#  about a\nrule a : exact  # behind\n    # below\n    # more\n    Relu(x)  # left\n        =>  x  # right\n"
        "    # before where\n    where x.rank == 2,  # one\n          # two\n          x.size > 1  # three\n\n# last\n",
    ),
    "comments inside a clause move below it": (
        "rule a : exact\n Conv(x, # the image\n   w) => x",
        "rule a : exact\n    Conv(x, w)\n    # the image\n        =>  x\n",
    ),
    "targets": (
        'target t#one\n  summary "s"\n  peak int8=1e9,uint8=1e9\n  bandwidth=1,launch=2,dispatch=3\n  link bandwidth=1,latency=2\n\n'
        '  # plain\n  supports Relu,Tanh where x.rank==2 because "r" cost launch\n  supports *\n  let f(t)=Exp(t)\n'
        '  composite c:exact # doc\n   let g=f(x)\n   g+y where x.rank==2 cost launch+macs/peak call "a" \n "b"\nlet h=1\nhost u\n peak int8=1\n bandwidth=1,launch=1',
        'target t  # one\n    summary "s"\n    peak int8 = 1e9, uint8 = 1e9\n    bandwidth = 1, launch = 2, dispatch = 3\n'
        "    link bandwidth = 1, latency = 2\n\n    # plain\n    supports Relu, Tanh\n        where x.rank == 2  because \"r\"\n"
        "        cost launch\n    supports *\n    let f(t) = Exp(t)\n\n    composite c : exact  # doc\n        let g = f(x)\n"
        '        g + y\n        where x.rank == 2\n        cost launch + macs / peak\n        call "a"\n             "b"\n\n'
        "let h = 1\n\nhost u\n    peak int8 = 1\n    bandwidth = 1, launch = 1\n",
    ),
    "long operands": (
        f"rule a : exact\n {'Add(' * 3}x,y),Conv({'x' * 40}, {'w' * 40})),Conv({'x' * 40}, {'w' * 40})) => x",
        "rule a : exact\n    Add(\n"
        f"        Add(Add(x, y), Conv({'x' * 40}, {'w' * 40})),\n        Conv({'x' * 40}, {'w' * 40})\n    )\n        =>  x\n",
    ),
    "long sums": (
        f"rule a : exact\n {' + '.join(['name' * 8] * 6)} => 0",
        f"rule a : exact\n    {' + '.join(['name' * 8] * 3)}\n    + {' + '.join(['name' * 8] * 3)}\n        =>  0\n",
    ),
    "long choices of operators": (
        f"rule a : exact\n ({' | '.join(['Sigmoid'] * 15)})(x) => x",
        f"rule a : exact\n    ({' | '.join(['Sigmoid'] * 11)}\n     | {' | '.join(['Sigmoid'] * 4)})(x)\n        =>  x\n",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_layout(name: str) -> None:
    text, expected = CASES[name]
    found = format_file(text)
    assert found == expected
    assert format_file(found) == found


@pytest.mark.parametrize("name", CASES)
def test_what_is_said_stays(name: str) -> None:
    text, expected = CASES[name]
    try:
        before = read_text(text)
    except RuleError:
        pytest.skip("a case of layout alone")
    assert without_places(read_text(expected)) == without_places(before)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.name)
def test_shipped_files_say_the_same_when_formatted(path) -> None:
    text = path.read_text(encoding="utf-8")
    formatted = format_file(text, str(path))
    assert format_file(formatted, str(path)) == formatted
    assert without_places(read_text(formatted, str(path))) == without_places(read_text(text, str(path)))
    # Every comment is still there, and none is new.
    assert _comments(formatted) == _comments(text)


def _comments(text: str) -> list[str]:
    from eqsat.rules.source import Source

    return sorted(c.text.strip() for c in Source("", text).comments)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.name)
def test_shipped_rules_print_as_they_were_read(path) -> None:
    found = read_text(path.read_text(encoding="utf-8"), str(path))
    for each in found.rules:
        printed = format_rule(each)
        assert without_places(rule(printed)) == without_places(each), printed
        description = describe(each)
        assert "\n" not in description.pattern
        assert (description.name, description.doc) == (each.name, each.doc)
    for target in found.targets:
        for each in target.composites:
            printed = format_composite(each)
            again = composite(printed.strip().removeprefix(f"composite {each.name} : {each.numerics}"))
            assert without_places(again.pattern) == without_places(each.pattern), printed
            assert without_places(again.where) == without_places(each.where), printed
            assert without_places(again.cost) == without_places(each.cost)


def test_a_rule_printed() -> None:
    found = rule(
        "rule fold : real\n    # One line.\n    # Another.\n"
        "    BatchNormalization(c: Conv(x, w, b?), gamma, beta, mean, var, epsilon=e)\n"
        "        =>  Conv(x, w * per_channel(k, w), (b - mean) * k + beta, **c)\n"
        "    let k = gamma / Sqrt(var + e)\n    where const(w, gamma)"
    )
    assert format_rule(found) == (
        "rule fold : real\n    # One line.\n    # Another.\n"
        "    BatchNormalization(c: Conv(x, w, b?), gamma, beta, mean, var, epsilon=e)\n"
        "        =>  Conv(\n"
        "                x,\n"
        "                w * Reshape(gamma / Sqrt(var + e), [-1] + [1] * (w.rank - 1)),\n"
        "                (b - mean) * (gamma / Sqrt(var + e)) + beta,\n"
        "                **c\n"
        "            )\n"
        "    where const(w, gamma)\n"
    )
    assert without_places(rule(format_rule(found))) == without_places(found)
    assert describe(found).pattern == (
        "BatchNormalization(c: Conv(x, w, b?), gamma, beta, mean, var, epsilon=e) => "
        "Conv(x, w * Reshape(gamma / Sqrt(var + e), [-1] + [1] * (w.rank - 1)), "
        "(b - mean) * (gamma / Sqrt(var + e)) + beta, **c)"
    )
    assert describe(found).conditions == ("const(w, gamma)",)
    assert describe(found).numerics == "real"


def test_a_let_whose_type_is_asked_is_printed_as_one() -> None:
    found = rule("Relu(x)  =>  Reshape(k, k.shape)\n    let k = Exp(x)")
    assert format_rule(found) == "rule r : exact\n    Relu(x)  =>  Reshape(k, k.shape)\n    let k = Exp(x)\n"


def test_a_shared_part_of_a_pattern_is_printed_as_a_let() -> None:
    found = rule("let s = x + y | x\n    s * Sigmoid(s)  =>  x\n    where s.rank == 2")
    assert format_rule(found) == (
        "rule r : exact\n    let s = x + y | x\n    s * Sigmoid(s)  =>  x\n    where s.rank == 2\n"
    )


def test_syntax_errors_are_those_of_the_reader() -> None:
    with pytest.raises(RuleError, match="a term is required"):
        format_file("rule a : exact\n    x + => x")
    with pytest.raises(TargetError, match=r"a\.target:1:1"):
        format_file("§", "a.target")
