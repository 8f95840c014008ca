"""What the language means, seen from the e-graph: rules read from text, saturated, extracted at random and executed.

Each case rewrites a small model; every program that the e-graph then holds for the output must compute the same.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest

from eqsat.rules.reader import read_text
from eqsat.search import Search
from eqsat.stages.options import Objective
from tests.egraph.helpers import model, operators, read

CONV = "float[1,2,5,5] x, float[3,2,3,3] w, float[3] b"

# name: (rules, nodes, inputs, outputs, operators that must be among the ways to compute the output)
CASES: dict[str, tuple[str, str, str, str, set[str]]] = {
    "negation of an absent bias is absent": (
        "rule r : real\n    Neg(y: Conv(x, w, b?))  =>  Conv(x, Neg(w), Neg(b), **y)",
        "c = Conv(x, w)\nout = Neg(c)",
        "float[1,2,5,5] x, float[3,2,3,3] w",
        "float[1,3,3,3] out",
        {"Neg", "Conv"},
    ),
    "negation of a present bias": (
        "rule r : real\n    Neg(y: Conv(x, w, b?))  =>  Conv(x, Neg(w), Neg(b), **y)",
        "c = Conv<strides = [2, 2]>(x, w, b)\nout = Neg(c)",
        CONV,
        "float[1,3,2,2] out",
        {"Neg", "Conv"},
    ),
    "absent bias minus something": (
        "rule r : real\n    (c: Conv(x, w, b?)) - m  =>  Conv(x, w, b - Reshape(m, [m.size]), **c)\n"
        "    where m.size == w.shape[0]",
        "c = Conv(x, w)\nout = Sub(c, m)",
        "float[1,2,5,5] x, float[3,2,3,3] w, float[1,3,1,1] m",
        "float[1,3,3,3] out",
        {"Sub", "Conv"},
    ),
    "one value used twice": (
        "rule r : real\n    let s = x + y | x\n    s * Sigmoid(s)  =>  Swish(s)",
        "s = Add(x, y)\nt = Sigmoid(s)\nout = Mul(s, t)",
        "float[4] x, float[4] y",
        "float[4] out",
        {"Mul", "Swish"},
    ),
    "outputs of one node": (
        "rule r : exact\n    let s = Split(x, sizes)\n    Concat(s[0], s[1], axis=0)  =>  x\n    where s.rank == 2",
        "n = Constant<value_ints = [1, 3]>()\nu, v = Split(x, n)\nt = Concat<axis = 0>(u, v)\nout = Relu(t)",
        "float[4,2] x",
        "float[4,2] out",
        {"Relu"},
    ),
    "an operand given as a value": (
        "rule r : real\n    ReduceMean(x, [2, 3], keepdims=1)  =>  GlobalAveragePool(x)\n    where x.rank == 4",
        "n = Constant<value_ints = [2, 3]>()\nout = ReduceMean<keepdims = 1>(x, n)",
        "float[1,2,4,4] x",
        "float[1,2,1,1] out",
        {"ReduceMean", "GlobalAveragePool"},
    ),
    "a macro of the prelude": (
        "rule r : real\n    (c: Conv(x, w)) * k  =>  Conv(x, w * per_channel(Reshape(k, [-1]), w), **c)\n"
        "    where k.shape == [1, w.shape[0], 1, 1]",
        "c = Conv(x, w)\nout = Mul(c, k)",
        "float[1,2,5,5] x, float[3,2,3,3] w, float[1,3,1,1] k",
        "float[1,3,3,3] out",
        {"Mul", "Conv"},
    ),
    "the type of what is built": (
        "rule r : real\n    x * k  =>  x * Expand(s, [x.shape[0]] + [1] * (s.rank - 1))\n"
        "    let s = Reshape(k, [1, k.size])\n"
        "    where k.rank == 1, x.rank == 2, k.size == x.shape[1]",
        "out = Mul(x, k)",
        "float[3,4] x, float[4] k",
        "float[3,4] out",
        {"Mul"},
    ),
    "both directions": (
        "rule r : real\n    (x + y) * (x - y)  <=>  x * x - y * y",
        "a = Mul(x, x)\nb = Mul(y, y)\nout = Sub(a, b)",
        "float[4] x, float[4] y",
        "float[4] out",
        {"Mul", "Sub"},
    ),
    "operators by name": (
        "rule r : exact\n    (f: Relu | Tanh)(Transpose(x, perm=p))  =>  Transpose(f(x), perm=p)",
        "t = Transpose<perm = [1, 0]>(x)\nout = Tanh(t)",
        "float[3,4] x",
        "float[4,3] out",
        {"Tanh", "Transpose"},
    ),
    "remaining operands": (
        "rule r : exact\n    Concat(Concat(xs..., axis=a), y, axis=a)  =>  Concat(x0, y, axis=a)\n"
        "    let x0 = Concat(xs..., axis=a)",
        "t = Concat<axis = 0>(x, x, y)\nout = Concat<axis = 0>(t, y)",
        "float[3] x, float[4] y",
        "float[14] out",
        {"Concat"},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_it_fires_and_all_programs_are_equal(name: str) -> None:
    rules, nodes, inputs, outputs, wanted = CASES[name]
    graph = model(nodes, inputs, outputs)
    found = operators(read(graph, rules), graph)
    assert wanted <= found
    rng = np.random.default_rng(0)
    feeds = {v.name: rng.standard_normal([int(d) for d in v.shape]).astype(np.float32) for v in graph.graph.inputs}
    session = ort.InferenceSession(ir.to_proto(graph).SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, feeds)
    search = Search.of(graph, rules=read_text(rules).rules, default_rules=False)
    programs: list[tuple[Objective, int]] = [("best", 0), ("worst", 0), *(("random", s) for s in range(3))]
    for objective, seed in programs:
        result = search.extract(objective, seed)
        np.testing.assert_allclose(result.run(feeds)["out"], expected, rtol=1e-5, atol=1e-5)
