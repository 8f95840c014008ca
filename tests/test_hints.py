"""Errors whose message says what to do, where what was required does not say it already."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat import op
from eqsat.errors import BackendError, EqsatError, ModelError

_TEXT = '<ir_version: 10, opset_import: ["": 21]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
_WIDE = '<ir_version: 10, opset_import: ["": 21]> g (float[2] x, float[2] z) => (float[2] y) { y = Add(x, z) }'


def _number() -> None:
    outputs: dict[str, Any] = {"y": op.Relu(eqsat.input("x", (2,))), "z": 1.0}
    eqsat.graph(outputs)


def _unlisted() -> None:
    x, y = eqsat.input("x", (2,)), eqsat.input("y", (2,))
    eqsat.graph(x + y, inputs=[x])


def _twice() -> None:
    eqsat.graph(eqsat.input("x", (2,)) + eqsat.input("x", (2,)))


def _out() -> None:
    with eqsat.compile(_TEXT) as net:
        net(np.ones(2, np.float32), out=np.ones(3, np.float32))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda: eqsat.graph(np.ones(2)), r"`op.Identity\(array\)` makes one of an array"),
        (_number, "the operators of `eqsat.op` make them"),
        (_unlisted, r"add it to inputs=\[...\]"),
        (_twice, "call eqsat.input once for each name"),
        (lambda: eqsat.save(eqsat.load(_TEXT), "."), "for example 'model.onnx'"),
        (lambda: eqsat.prove(_TEXT, _WIDE), r"`--set NAME=VALUE`, `values=\{...\}`, makes an input a constant"),
        (lambda: eqsat.optimize(_TEXT, targets="dnnl,,cpu"), "write `dnnl,cpu`"),
        (lambda: eqsat.optimize(_TEXT, targets=["dnnl", "dnnl"]), "leave one of them out"),
        (lambda: eqsat.optimize(_TEXT, targets="-launch=1e-6"), "for example `dnnl -launch=1e-6`"),
        (lambda: eqsat.optimize(_TEXT).report("page.pdf"), "for example 'page.html'"),
        (lambda: eqsat.write_c(_TEXT, "out", name="my-net 2"), "for example 'my_net_2'"),
        (lambda: eqsat.write_c(_TEXT, "out", name="int"), "for example 'net_int'"),
        (lambda: eqsat.write_c(_TEXT, "out", name="7"), "for example 'net_7'"),
        (_out, r"make it with np.empty\(\(2,\), 'float32'\)"),
        (lambda: eqsat.operator("acme.A(x) = Relu(x)", reference=np.abs), "leave out `= ...` or reference="),
        (lambda: eqsat.operator("acme.A(x) = Relu(x)\noperator acme.B(x) = Relu(x)"), "for example eqsat.operator"),
        (lambda: eqsat.quantize(_TEXT, {"x": np.ones((2, 3, 4), np.float32)}), None),
        (
            lambda: eqsat.quantize(_TEXT.replace("[2]", "[2, 3]"), {"x": np.ones((5, 3), np.float32)}),
            "leave out the last 1",
        ),
    ],
)
def test_hints(call: Callable[[], object], hint: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(EqsatError) as caught:
        call()
    assert (hint is None) == (caught.value.hint == "")
    if hint is not None:
        assert caught.match(f"\n  hint: .*{hint}")


def test_reports_without_a_name_are_refused() -> None:
    with pytest.raises(EqsatError, match=r"a report that ends in .* is required; got no suffix$"):
        eqsat.optimize(_TEXT).report("")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("", "write `BACKEND = MyBackend()`"),
        ("class A(Backend):\n    target = 'dnnl'\nclass B(A):\n    pass\n", "write `BACKEND = A()`"),
        ("class A(Backend):\n    pass\n", 'write `target = "NAME"` in its class'),
        ("BACKEND = 1\n", "derive its class from eqsat.Backend"),
    ],
)
def test_hints_of_backends(text: str, hint: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(f"from eqsat.backends import Backend\n{text}", "utf-8")
    with pytest.raises(BackendError) as caught:
        eqsat.run(_TEXT, {"x": np.ones(2, np.float32)}, backends=[path])
    assert hint in caught.value.hint


def test_failing_backends_name_their_traceback(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from eqsat.backends import Backend\n"
        "class A(Backend):\n    target = 'ccompiler'\n    def prepare(self, run):\n        return 1 / 0\n",
        "utf-8",
    )
    x, y = eqsat.input("x", (100, 100)), eqsat.input("y", (100, 100))
    result = eqsat.optimize(eqsat.graph((x + y) * (x - y)), ["ccompiler"])
    ones = np.ones((100, 100), np.float32)
    with pytest.raises(BackendError, match=r"`error\.__cause__` has its traceback") as caught:
        result.run({"x": ones, "y": ones}, backends=[path])
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_inputs_of_models_are_not_overwritten_by_a_hint() -> None:
    # `model.onnx`, the likely input, is no name to propose for the result.
    with pytest.raises(ModelError) as caught:
        eqsat.save(eqsat.load(_TEXT), "model.txt")
    assert caught.value.hint == ""
