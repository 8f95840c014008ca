"""Why an operator is in no composite although a pattern with it is there."""

from __future__ import annotations

import onnx
import pytest

import eqsat
from eqsat.rules.ast import Target
from eqsat.rules.reader import read_text


def target(*composites: str) -> Target:
    text = "\n    ".join(composites)
    return read_text(
        f"""target npu
    peak float32 = 1e15
    bandwidth = 1e15, launch = 1e-12
    link bandwidth = 1e15, latency = 1e-12
    {text}
"""
    ).targets[0]


def reasons(npu: Target, body: str, inputs: str = "float[2,4] x, float[2,4] y") -> dict[str, str]:
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> g ({inputs}) => (float[2,4] z) {{ {body} }}'
    )
    found = eqsat.optimize(model, targets=[npu], default_rules=False)
    return {row.op: row.refusals[0].reason for row in found.summary.host_operators}


def test_the_condition_that_fails() -> None:
    npu = target("composite add_relu : exact\n        Relu(x + y)\n        where x.rank == 2, x.rank == 3")
    assert set(reasons(npu, "s = Add(x, y) z = Relu(s)").values()) == {
        f"npu runs {op} within add_relu only where x.rank == 3: x.rank is 2" for op in ("Add", "Relu")
    }


def test_what_is_not_constant() -> None:
    """Saturation joins on constness; the reason must be found without it."""
    npu = target('composite scale : exact\n        x * s\n        where const(s) because "it is in the kernel"')
    assert reasons(npu, "z = Mul(x, y)") == {
        "Mul": "npu runs Mul within scale only where const(s) (it is in the kernel): s.is_const is false"
    }


def test_what_is_not_known() -> None:
    npu = target("composite shift : exact\n        x + s\n        where s.value == 1")
    assert reasons(npu, "z = Add(x, y)") == {
        "Add": "npu runs Add within shift only where s.value == 1: s.value is not known"
    }


def test_the_pattern_that_gets_furthest() -> None:
    first = "composite first : exact\n        Relu(x)\n        where x.rank == 3, x.rank == 2"
    second = "composite second : exact\n        Relu(x)\n        where x.rank == 2, x.shape[0] == 5"
    (reason,) = reasons(target(first, second), "z = Relu(x)").values()
    assert reason == "npu runs Relu within second only where x.shape[0] == 5: x.shape is [2, 4]"


@pytest.mark.parametrize("pattern", ["Relu(x * 3)", "Softmax(x, axis=0)", "Tanh(x)"])
def test_a_pattern_that_is_not_there(pattern: str) -> None:
    npu = target(f"composite other : exact\n        {pattern}\n        where x.rank == 9")
    body = "two = Constant<value_float = 2.0>() m = Mul(x, two) r = Relu(m) z = Softmax<axis = 1>(r)"
    assert not any("only where" in reason for reason in reasons(npu, body).values())
