"""What a model does not need is not imported, and what waits works once it is needed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

MODEL = """
MODEL = '''<ir_version: 8, opset_import: ["": 17]>
g (float[SIZE, 4] x) => (float[SIZE, 4] y) {
    r = Relu(x)
    y = Relu(r)
}'''
"""

WAITING = ("sympy", "lark", "jinja2", "onnx.reference", "eqsat.rules.reading", "eqsat.codegen.kernel", "eqsat.backends")


def printed(program: str) -> list[str]:
    """What a fresh process prints, line by line."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize(("size", "symbols"), [("2", False), ("N", True)])
def test_sympy_is_imported_for_open_sizes_only(size: str, symbols: bool) -> None:
    program = f"""{MODEL}
import sys
import eqsat
result = eqsat.optimize(MODEL.replace("SIZE", "{size}"), targets=["dnnl"])
print("sympy" in sys.modules, "onnx_shape_inference" in sys.modules)
print(*(node.op_type for node in result.model.graph))
"""
    assert printed(program) == [f"{symbols} {symbols}", "Relu"]


def test_arithmetic_of_sizes_works_once_it_is_needed() -> None:
    program = """
import sys
import eqsat.api
import onnx_ir
print("sympy" in sys.modules)
size = (onnx_ir.SymbolicDim("N") + 2) * 3
import sympy
print(sys.modules["sympy"] is sympy, sympy.expand(size._expr) == 3 * sympy.Symbol("N", integer=True, positive=True) + 6)
print(onnx_ir.SymbolicDim(sympy.Symbol("M")).value, onnx_ir.SymbolicDim("floor(K / 2)").evaluate({"K": 7}))
try:
    onnx_ir.SymbolicDim(1.5)
except TypeError as error:
    print("sympy.Expr" in str(error))
"""
    assert printed(program) == ["False", "True True", "M 3", "True"]


def test_the_import_leaves_nothing_behind() -> None:
    program = """
import builtins, gc, inspect, sys
finders, original = list(sys.meta_path), builtins.__import__
import eqsat
eqsat.optimize
import onnx_ir
print(sys.meta_path == finders, builtins.__import__ is original, gc.isenabled())
print("def simplify" in inspect.getsource(onnx_ir.SymbolicDim.simplify), onnx_ir._core.__spec__.name)
"""
    assert printed(program) == ["True True True", "True onnx_ir._core"]


def test_a_collector_that_is_off_stays_off() -> None:
    assert printed("import gc; gc.disable()\nimport eqsat; eqsat.optimize\nprint(gc.isenabled())") == ["False"]


@pytest.mark.slow
@pytest.mark.parametrize("first", ["import sympy", "import onnx_ir"])
def test_libraries_that_are_there_already_stay_as_they_are(first: str) -> None:
    program = f"""
{first}
import sys
finders = list(sys.meta_path)
import eqsat
eqsat.load
import onnx_ir
print(onnx_ir._core.sympy is sys.modules["sympy"], sys.meta_path == finders)
print((onnx_ir.SymbolicDim("N") + 1).evaluate({{"N": 3}}))
"""
    assert printed(program) == ["True True", "4"]


@pytest.mark.slow
def test_a_second_process_imports_neither_the_parser_nor_code_generation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EQSAT_CACHE", str(tmp_path))
    program = f"""{MODEL}
import sys
from eqsat import api
result = api.optimize(MODEL.replace("SIZE", "2"), targets=["dnnl"])
waiting = {WAITING}
print(*[name for name in waiting if name in sys.modules])
print(result.cost, *(node.op_type for node in result.model.graph))
"""
    first, second = printed(program), printed(program)
    assert "eqsat.rules.reading" in first[0] and "sympy" not in first[0]
    assert second == ["", first[1]]


@pytest.mark.slow
def test_what_waits_works_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules of one's own, an operator of which only the reference knows the values, and generated C."""
    monkeypatch.setenv("EQSAT_CACHE", str(tmp_path))
    own = tmp_path / "own.rules"
    own.write_text("rule once : exact\n    Relu(Relu(x)) => Relu(x)\n", "utf-8")
    program = f"""{MODEL}
import sys
import numpy as np
import onnx_ir
import eqsat
text = MODEL.replace("SIZE", "2")
eqsat.optimize(text, targets=["dnnl"])
result = eqsat.optimize(text, rules=[{str(own)!r}], default_rules=False)
print(*(node.op_type for node in result.model.graph))
x = np.array([[-1, 0, 1, 2]] * 2, np.float32)
print(eqsat.run(result.model, {{"x": x}})["y"].tolist())
print("onnx.reference" in sys.modules)
window = '<ir_version: 8, opset_import: ["": 17]> g (int64 n) => (float[N] y) {{ y = HannWindow(n) }}'
found = eqsat.run(window, {{"n": np.array(4, np.int64)}})["y"]
print(np.round(found, 3).tolist(), "onnx.reference" in sys.modules)
"""
    assert printed(program) == [
        "Relu",
        "[[0.0, 0.0, 1.0, 2.0], [0.0, 0.0, 1.0, 2.0]]",
        "False",
        "[0.0, 0.5, 1.0, 0.5] True",
    ]
