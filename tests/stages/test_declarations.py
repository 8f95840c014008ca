"""Declared operators through the whole: optimize, save, ONNX Runtime, C, quantize, compare, the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

import eqsat
from eqsat import op
from eqsat.backends import Code, Run, Writer
from eqsat.backends.backend import Prepared
from eqsat.cli import main
from eqsat.errors import CodegenError, RuleError
from eqsat.rules.reader import read_file
from eqsat.schema.declared_operators import DeclaredOperator, declared_here

OPERATOR = "operator acme.ScaledRelu(x: floats, alpha = 1.0) = Relu(x) * alpha\n"
TO_ACME = """
rule to_acme : exact
    Relu(x) * 2  =>  acme.ScaledRelu(x, alpha=2.0)
    where x.dtype in floats
"""
TARGET = """
target npu
    summary "an imaginary NPU"
    peak float32 = 4e12
    bandwidth = 2e11, launch = 1e-9, dispatch = 1e-9
    link bandwidth = 1e14, latency = 1e-9

    supports acme.ScaledRelu
        where x.rank == 2
        call "npu_scaled_relu({x}, {y}, {x.size}, {node.alpha})"

    composite dense : exact
        acme.ScaledRelu(MatMul(x, w), alpha=a)
        where const(w), a == 2.0
"""
RNG = np.random.default_rng(0)
W = RNG.standard_normal((8, 8)).astype(np.float32)
X = RNG.standard_normal((4, 8)).astype(np.float32)
EXPECTED = np.maximum(np.maximum(X @ W, 0) * 2 - 1, 0) * 2


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A rule file and a target file; only the rule file declares the operator that both name."""
    rules, target = tmp_path / "acme.rules", tmp_path / "npu.target"
    rules.write_text(OPERATOR + TO_ACME, "utf-8")
    target.write_text(TARGET, "utf-8")
    return rules, target


def model() -> ir.Model:
    x = eqsat.input("x", (4, 8))
    return eqsat.graph({"y": op.Relu(op.Relu(x @ W) * 2 - 1) * 2})


def called(result: eqsat.Result) -> list[str]:
    """Operators of the main graph and of the regions."""
    scopes = [result.model.graph, *(f for f in result.model.functions.values() if f.domain.startswith("eqsat."))]
    return [f"{node.domain}.{node.op_type}" for scope in scopes for node in scope]


def check(values: np.ndarray) -> None:
    np.testing.assert_allclose(values, EXPECTED, rtol=1e-5, atol=1e-6)


def with_onnxruntime(path: Path) -> np.ndarray:
    return onnxruntime.InferenceSession(path).run(None, {"x": X})[0]


def test_rules_make_declared_operators(files: tuple[Path, Path], tmp_path: Path) -> None:
    result = eqsat.optimize(model(), rules=[files[0]], default_rules=False)
    assert called(result).count("acme.ScaledRelu") == 2
    assert result.summary.verification.agrees
    check(result.run({"x": X})["y"])
    saved = tmp_path / "out.onnx"
    result.save(saved)
    check(with_onnxruntime(saved))
    check(eqsat.run(saved, {"x": X})["y"])
    check(eqsat.run(saved, {"x": X}, declarations=[files[0]])["y"])
    again = eqsat.optimize(saved, rules=[files[0]], default_rules=False)
    assert called(again).count("acme.ScaledRelu") == 2
    assert again.cost == pytest.approx(result.cost)
    assert "acme.ScaledRelu" not in called(eqsat.optimize(saved))


@pytest.mark.slow
def test_targets_support_declared_operators(files: tuple[Path, Path], tmp_path: Path) -> None:
    rules, target = files
    result = eqsat.optimize(model(), targets=[target], rules=[rules], default_rules=False)
    assert sorted(r.target for r in result.regions if r.target == "npu") == ["npu", "npu"]
    assert "acme.ScaledRelu" in called(result)
    assert "eqsat.npu.composite.dense" in called(result)
    check(result.run({"x": X})["y"])
    check(result.run({"x": X}, backend="c")["y"])
    saved, folder = tmp_path / "out.onnx", tmp_path / "c"
    result.save(saved)
    check(with_onnxruntime(saved))
    eqsat.write_c(saved, folder, declarations=[rules])
    assert "npu_scaled_relu(x0, y0, 32, 2.0);" in (folder / "model.c").read_text("utf-8")
    result.codegen(tmp_path / "own")
    assert "npu_scaled_relu(x0, y0, 32, 2.0);" in (tmp_path / "own" / "model.c").read_text("utf-8")


def test_a_target_may_declare_what_a_rule_makes(tmp_path: Path) -> None:
    rules, target = tmp_path / "a.rules", tmp_path / "npu, own.target"
    rules.write_text(TO_ACME, "utf-8")
    target.write_text(OPERATOR + TARGET, "utf-8")
    result = eqsat.optimize(model(), targets=[target], rules=[rules], default_rules=False)
    check(result.run({"x": X})["y"])
    assert "acme.ScaledRelu" in called(result)
    owned = tmp_path / "owned.target"
    owned.write_text(OPERATOR + TARGET.replace("    peak", f'    rules "{rules.name}"\n    peak'), "utf-8")
    for given in (owned, f"{owned} -launch=2e-9", read_file(owned).targets[0]):
        assert "acme.ScaledRelu" in called(eqsat.optimize(model(), targets=[given], default_rules=False))


@pytest.mark.slow
def test_the_body_takes_part_in_rewriting(files: tuple[Path, Path]) -> None:
    with eqsat.declarations(files[0]):
        x = eqsat.input("x", (4, 8))
        source = eqsat.graph(op.Relu(eqsat.op("acme").ScaledRelu(x, alpha=1.0)))
        assert called(eqsat.optimize(source, default_rules=False)) == ["acme.ScaledRelu", ".Relu"]
    definition = [rule for rule in read_file(files[0]).rules if rule.name == "acme.ScaledRelu"]
    # Relu(Relu(x) * 1) is Relu(x), and that is the operator itself.
    assert len(called(eqsat.optimize(source, rules=definition))) == 1


def test_calls_do_not_influence_each_other(tmp_path: Path) -> None:
    other = OPERATOR.replace("Relu(x) * alpha", "Abs(x) + alpha")
    text = """<ir_version: 8, opset_import: ["": 17, "acme": 1]>
g (float[4, 8] x) => (float[4, 8] y) { y = acme.ScaledRelu<alpha = 2.0>(x) }
"""
    one, two = tmp_path / "one.rules", tmp_path / "two.rules"
    one.write_text(OPERATOR, "utf-8")
    two.write_text(other, "utf-8")
    for _ in range(2):
        for path, expected in ((one, np.maximum(X, 0) * 2), (two, np.abs(X) + 2)):
            result = eqsat.optimize(text, rules=[path], default_rules=False)
            np.testing.assert_allclose(result.run({"x": X})["y"], expected, rtol=1e-6)
            assert declared_here() == ()
    with pytest.raises(RuleError, match="one declaration") as caught:
        eqsat.optimize(text, rules=[one], default_rules=False, declarations=[two])
    assert "one.rules:1:10" in str(caught.value)
    assert "two.rules:1:10" in str(caught.value)
    assert eqsat.optimize(text, rules=[one], default_rules=False, declarations=[one]).summary.verification.agrees


def test_element_types_and_attributes_share_one_operator(files: tuple[Path, Path], tmp_path: Path) -> None:
    with eqsat.declarations(files[0]):
        scaled = eqsat.op("acme").ScaledRelu
        x, z = eqsat.input("x", (4, 8)), eqsat.input("z", (2,), "float64")
        source = eqsat.graph({"y": scaled(scaled(x, alpha=0.1), alpha=3.0), "w": scaled(z, alpha=0.1)})
    result = eqsat.optimize(source, rules=[files[0]], default_rules=False)
    saved = tmp_path / "out.onnx"
    result.save(saved)
    feeds = {"x": X, "z": np.array([1.0, -1.0])}
    y, w = onnxruntime.InferenceSession(saved).run(None, feeds)
    expected = np.maximum(np.maximum(X, 0) * np.float32(0.1), 0) * np.float32(3)
    np.testing.assert_allclose(y, expected, rtol=1e-6)
    np.testing.assert_allclose(w, [np.float32(0.1), 0.0], rtol=1e-12)
    assert onnx.load(saved).opset_import
    with eqsat.declarations(files[0]):
        assert [n.op_type for n in eqsat.load(saved).graph] == ["ScaledRelu"] * 3


def test_quantization_knows_declared_operators(files: tuple[Path, Path]) -> None:
    with eqsat.declarations(files[0]):
        x = eqsat.input("x", (4, 8))
        source = eqsat.graph(eqsat.op("acme").ScaledRelu(x @ W, alpha=2.0))
    samples = [{"x": RNG.standard_normal((4, 8)).astype(np.float32)} for _ in range(3)]
    result = eqsat.quantize(source, samples, rules=[files[0]], default_rules=False, budget="20dB")
    assert min(result.actual.values()) >= 20
    (y,) = result.run({"x": X}).values()
    assert np.abs(y - np.maximum(X @ W, 0) * 2).max() < 0.5


@pytest.mark.slow
def test_python_functions(tmp_path: Path) -> None:
    path = tmp_path / "ops.py"
    path.write_text(
        "import eqsat, numpy as np\n"
        'sinc = eqsat.operator("acme.Sinc(x: floats, k = 1.0)", '
        "reference=lambda x, k: np.sinc(x * k).astype(x.dtype))\n"
        'both = eqsat.operator("acme.Both(x, y)", reference=lambda x, y: (x + y, x.sum(0)),\n'
        "    types=lambda x, y: (x, eqsat.TensorType(x.dtype, x.shape[1:])), results=2)\n",
        "utf-8",
    )
    with eqsat.declarations(path):
        x = eqsat.input("x", (4, 8))
        total, column = eqsat.op("acme").Both(eqsat.op("acme").Sinc(x, k=2), op.Identity(op.Relu(x)))
        source = eqsat.graph({"y": total, "z": column})
    sinc = np.sinc(X * 2).astype(np.float32)
    for result in (
        eqsat.optimize(source, declarations=[path]),
        eqsat.quantize(source, [{"x": X}], declarations=[path]),
    ):
        found = result.run({"x": X})
        np.testing.assert_allclose(found["y"], sinc + np.maximum(X, 0), atol=0.1)
        np.testing.assert_allclose(found["z"], sinc.sum(0), atol=0.2)
        with pytest.raises(CodegenError, match=r"acme\.Sinc, which a Python function computes"):
            result.run({"x": X}, backend="c")
    saved = tmp_path / "out.onnx"
    eqsat.optimize(source, declarations=[path]).save(saved)
    assert eqsat.compare(source, saved, {"x": X}, declarations=[path]).agrees
    rules = tmp_path / "sinc.rules"
    rules.write_text("rule even : exact\n    acme.Sinc(-x, k=k)  =>  acme.Sinc(x, k=k)\n", "utf-8")
    with eqsat.declarations(path):
        mirrored = eqsat.graph({"y": eqsat.op("acme").Sinc(-x)})
    result = eqsat.optimize(mirrored, rules=[rules], default_rules=False, declarations=[path])
    assert called(result) == ["acme.Sinc"]
    assert result.summary.verification.agrees


class Npu(eqsat.Backend):
    """Computes declared operators itself, and notes what it is asked for."""

    target = "npu"
    library = "the NPU"

    def __init__(self) -> None:
        self.seen: list[tuple[str, object, tuple[str, ...]]] = []

    def prepare(self, run: Run) -> Prepared:
        (kernel,) = run.kernels
        self.seen.append((kernel.operator, kernel.attributes.get("alpha"), tuple(kernel.names)))

        def execute(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
            alpha = kernel.attributes.get("alpha", 1.0)
            (x,) = [a for a in arrays if a.shape == X.shape]
            return [np.maximum(x, 0) * np.float32(alpha)]

        return execute


def test_backends_see_declared_operators(files: tuple[Path, Path], tmp_path: Path) -> None:
    rules, target = files
    with eqsat.declarations(rules):
        scaled = eqsat.op("acme").ScaledRelu
        x = eqsat.input("x", (4, 8))
        source = eqsat.graph({"y": scaled(op.Sin(scaled(x, alpha=3.0)), alpha=0.5)})
    result = eqsat.optimize(source, targets=[target], rules=[rules], default_rules=False)
    saved = tmp_path / "out.onnx"
    result.save(saved)
    expected = np.maximum(np.sin(np.maximum(X, 0) * 3), 0) / 2
    for run in (result.run, lambda feeds, backends: eqsat.run(saved, feeds, backends=backends, declarations=[rules])):
        npu = Npu()
        np.testing.assert_allclose(run({"x": X}, backends=[npu])["y"], expected, rtol=1e-5)
        assert [seen[0] for seen in npu.seen] == ["acme.ScaledRelu"] * 2
        assert [seen[1:] for seen in npu.seen] == [(3.0, ("acme.ScaledRelu",)), (0.5, ("acme.ScaledRelu",))]


class Emitting(eqsat.Backend):
    """Computes declared operators in C, and notes what it is asked for."""

    target = "npu"

    def __init__(self) -> None:
        self.seen: list[tuple[str, object]] = []

    def emit(self, writer: Writer, runs: Sequence[Run]) -> Code:
        calls = []
        for run in runs:
            (kernel,), (x,), (y,) = run.kernels, run.inputs, run.outputs
            alpha = kernel.attributes["alpha"]
            self.seen.append((kernel.operator, alpha))
            a, b = writer.pointer(run, x), writer.pointer(run, y)
            calls.append(f"for (int i = 0; i < {y.elements}; i++) {b}[i] = {a}[i] > 0 ? {a}[i] * {alpha}f : 0.0f;")
        return Code(calls)


@pytest.mark.slow
@pytest.mark.parametrize("host", [None, "c"])
def test_backends_in_c_see_declared_operators(files: tuple[Path, Path], host: str | None, tmp_path: Path) -> None:
    rules, target = files
    with eqsat.declarations(rules):
        scaled = eqsat.op("acme").ScaledRelu
        source = eqsat.graph({"y": scaled(op.Sin(scaled(eqsat.input("x", (4, 8)), alpha=3.0)), alpha=0.5)})
    result = eqsat.optimize(source, targets=[target], rules=[rules], default_rules=False, host=host)
    npu = Emitting()
    expected = np.maximum(np.sin(np.maximum(X, 0) * 3), 0) / 2
    np.testing.assert_allclose(result.run({"x": X}, "c", backends=[npu])["y"], expected, rtol=1e-5, atol=1e-6)
    assert npu.seen == [("acme.ScaledRelu", 3.0), ("acme.ScaledRelu", 0.5)]
    saved, again = tmp_path / "out.onnx", Emitting()
    result.save(saved)
    eqsat.write_c(saved, tmp_path / "c", backends=[again], declarations=[rules])
    assert again.seen == npu.seen


def test_a_python_function_on_what_cannot_become_c_is_named_as_well(tmp_path: Path) -> None:
    path = tmp_path / "ops.py"
    path.write_text('import eqsat\nhalf = eqsat.operator("acme.Half(x: floats)", reference=lambda x: x / 2)\n', "utf-8")
    text = """<ir_version: 10, opset_import: ["": 21, "acme": 1]>
        g (float[2] x, bool c) => (float[2] y) {
            z = If (c) <then_branch = t () => (float[2] p) { p = Relu (x) },
                        else_branch = e () => (float[2] q) { q = Sin (x) }>
            y = acme.Half (z)
        }"""
    with pytest.raises(CodegenError, match=r"acme\.Half, which a Python function computes"):
        eqsat.write_c(text, tmp_path / "c", declarations=[path])


@pytest.mark.slow
@pytest.mark.parametrize("call", ['call "npu_scaled_relu({x}, {y}, {x.size}, {node.alpha})"', ""])
@pytest.mark.parametrize("host", [None, "c"])
def test_the_advice_for_python_functions_leads_to_c(call: str, host: str | None, tmp_path: Path) -> None:
    """A Python function becomes C where a backend or a call executes it; with a body, as the hint says, anywhere."""
    target = tmp_path / "npu.target"
    (written,) = [line.strip() for line in TARGET.splitlines() if line.strip().startswith("call ")]
    target.write_text(
        TARGET[: TARGET.index("    composite")].replace("where x.rank == 2", "").replace(written, call), "utf-8"
    )
    with_function = eqsat.operator(
        "acme.ScaledRelu(x: floats, alpha = 1.0)",
        reference=lambda x, alpha: (np.maximum(x, 0) * alpha).astype(x.dtype),
    )
    with_body = eqsat.operator(OPERATOR.removeprefix("operator ").strip())
    expected = np.maximum(np.sin(X), 0) * np.float32(3)

    def optimized(operator: DeclaredOperator) -> eqsat.Result:
        with eqsat.declarations(operator):
            source = eqsat.graph({"y": eqsat.op("acme").ScaledRelu(op.Sin(eqsat.input("x", (4, 8))), alpha=3.0)})
        return eqsat.optimize(source, targets=[target], declarations=[operator], default_rules=False, host=host)

    refused, plain = optimized(with_function), optimized(with_body)
    np.testing.assert_allclose(refused.run({"x": X})["y"], expected, rtol=1e-5)
    # A call names functions that are not there in this process.
    computes = "the functions that the file of target 'npu' names compute" if call else "a Python function computes"
    with pytest.raises(CodegenError, match=rf"acme\.ScaledRelu, which {computes}") as caught:
        refused.run({"x": X}, "c")
    assert call or "declare the operator with a body" in str(caught.value)
    for result, backends in ((plain, []), (plain, [Emitting()]), (refused, [Emitting()])):
        y = result.run({"x": X}, "c", backends=backends)["y"]
        np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)
    emitted = eqsat.write_c(plain.model, tmp_path / "c", declarations=[with_body])
    assert ("npu_scaled_relu(" in emitted.files.get("model_npu.h", "")) == bool(call)


@pytest.mark.slow
def test_the_command_line(files: tuple[Path, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    rules, target = map(str, files)
    source, out = str(tmp_path / "in.onnx"), str(tmp_path / "out.onnx")
    eqsat.save(model(), source)

    def run(*arguments: str) -> str:
        assert main([*arguments]) == 0, capfd.readouterr().err
        return capfd.readouterr().out

    run("optimize", source, "-r", rules, "-t", target, "-o", out, "--report", str(tmp_path / "out.html"))
    assert "PASSED" in run("compare", source, out, "--declarations", rules)
    run("run", out, "--declarations", rules)
    run("codegen", out, "-o", str(tmp_path / "c"), "--declarations", rules)
    assert "npu_scaled_relu(" in (tmp_path / "c" / "model.c").read_text("utf-8")
    assert "acme.ScaledRelu" in run("rules", "list", rules)
    assert "operator acme.ScaledRelu" in run("rules", "show", "acme.ScaledRelu", "-r", rules)
    run("rules", "format", rules)
    assert "OK" in run("targets", "check", target, "--declarations", rules)
    assert main(["targets", "check", target]) == 1
    assert "declared first" in capfd.readouterr().err


def test_the_same_input_gives_the_same_file(files: tuple[Path, Path], tmp_path: Path) -> None:
    contents = []
    for i in range(2):
        path = tmp_path / f"{i}.onnx"
        eqsat.optimize(model(), targets=[files[1]], rules=[files[0]], default_rules=False).save(path)
        contents.append(path.read_bytes())
    assert contents[0] == contents[1]


def test_a_backend_executes_regions_of_a_saved_model(tmp_path: Path) -> None:
    target, saved = tmp_path / "npu.target", tmp_path / "out.onnx"
    supports = TARGET.partition("    supports")[0] + "    supports Relu\n"
    target.write_text(supports, "utf-8")
    source = eqsat.graph({"y": op.Relu(op.Sin(eqsat.input("x", (4, 8))))})
    eqsat.optimize(source, targets=[target]).save(saved)
    npu = Npu()
    np.testing.assert_allclose(eqsat.run(saved, {"x": X}, backends=[npu])["y"], np.maximum(np.sin(X), 0), rtol=1e-6)
    assert npu.seen == [("Relu", None, ("Relu",))]


def test_operators_may_have_several_attributes(tmp_path: Path) -> None:
    rules = tmp_path / "two.rules"
    rules.write_text("operator acme.T(x: floats, a = 1.0, b = 2.0, n = [1, 2]) = Relu(x) * a + b\n", "utf-8")
    text = '<ir_version: 8, opset_import: ["": 17, "acme": 1]> g (float[2] x) => (float[2] y) { y = acme.T<a=3.0>(x) }'
    result = eqsat.optimize(text, rules=[rules], default_rules=False)
    np.testing.assert_array_equal(result.run({"x": np.array([-1, 2], np.float32)})["y"], [2, 8])
