"""Programs that call oneDNN: whole networks, threads, two models in one program, sanitizers, and what is said."""

from __future__ import annotations

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import eqsat
from benchmarks.models import SHARED
from eqsat import op
from eqsat.backends.onednn import BACKEND, library, post_operations
from eqsat.backends.onednn.description import Post
from eqsat.backends.onednn.library import require_onednn
from eqsat.codegen.compiler import find_compiler
from eqsat.codegen.folder import write_program
from eqsat.codegen.generate import generate
from eqsat.codegen.runtime import CModel
from eqsat.errors import CodegenError, ExecutionError
from eqsat.execute.inputs import complete_inputs
from tests.codegen.onednn_cases import REQUIRED, compare, compiled, needs_onednn

CLOSE = "dnnl -launch=1e-9 -dispatch=1e-9 -link.latency=1e-9 -link.bandwidth=1e15"
"""A target that is worth calling for models of any size."""


def small(seed: int = 0, channels: int = 8) -> eqsat.Result:
    """Two regions with a host's operator between, of several inputs and outputs."""
    rng = np.random.default_rng(seed)

    def weights(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32) / 4

    x, r = eqsat.input("x", (1, 3, 12, 11)), eqsat.input("r", (1, channels, 12, 11))
    a = op.Relu(op.Conv(x, weights(channels, 3, 3, 3), weights(channels), pads=[1, 1, 1, 1]))
    b = op.Relu(op.Conv(a, weights(channels, channels, 3, 3), pads=[1, 1, 1, 1]) + r)
    c = op.Erf(b)
    d = op.Conv(c, weights(5, channels, 1, 1), weights(5))
    return eqsat.optimize(eqsat.graph([d, b]), targets=[CLOSE])


@needs_onednn
def test_two_regions_with_several_inputs_and_outputs() -> None:
    result = small()
    assert [region.target for region in result.regions] == ["dnnl", "cpu", "dnnl"]
    inputs = complete_inputs(result.model)
    expected = result.run(inputs)
    model = compiled(result.model)
    assert model.emitted.runs == 2
    for got in (model.run(inputs), result.run(inputs, backend="c", vendors=["dnnl"])):
        for name, array in expected.items():
            np.testing.assert_allclose(got[name], array, rtol=0, atol=1e-5)
    # Reorders stand at the borders alone: two inputs and two outputs of the first region, one each of the second.
    assert sum(p.is_reorder for p in model.primitives()) <= 6


@needs_onednn
def test_kernels_between_regions_are_chosen() -> None:
    rng = np.random.default_rng(1)
    x = eqsat.input("x", (1, 16, 28, 28))
    a = op.Relu(op.Conv(x, rng.standard_normal((32, 16, 3, 3)).astype(np.float32) / 8, pads=[1, 1, 1, 1]))
    b = op.Hardmax(a, axis=1) * a
    c = op.Conv(b, rng.standard_normal((8, 32, 3, 3)).astype(np.float32) / 8, pads=[1, 1, 1, 1])
    result = eqsat.optimize(eqsat.graph(op.CumSum(c, np.array(2, np.int64))), targets=["dnnl"])
    inputs = complete_inputs(result.model)
    model = compiled(result.model)
    assert model.emitted.coverage["dnnl"].called == 1
    assert model.emitted.selection is not None and model.emitted.selection.kernels == {"direct_convolution": 1}
    for name, array in result.run(inputs).items():
        np.testing.assert_allclose(model.run(inputs)[name], array, rtol=0, atol=1e-6 * float(np.abs(array).max()))


@needs_onednn
def test_threads_share_primitives_and_weights() -> None:
    result = small()
    model = compiled(result.model)
    inputs = [complete_inputs(result.model, seed=seed) for seed in range(8)]
    expected = [result.run(given) for given in inputs]

    def many(k: int) -> list[dict[str, np.ndarray]]:
        return [model.run(inputs[k]) for _ in range(20)]

    with ThreadPoolExecutor(8) as pool:
        for want, found in zip(expected, pool.map(many, range(8)), strict=True):
            for got in found:
                for name, array in want.items():
                    np.testing.assert_allclose(got[name], array, rtol=0, atol=1e-5)
                    np.testing.assert_array_equal(got[name], found[0][name])


def build(folder: Path, *sources: str, flags: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = [*find_compiler(), "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", *flags]
    subprocess.run([*command, *sources, "-o", "check", "-ldnnl", "-lm"], cwd=folder, check=True)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "ASAN_OPTIONS": "detect_leaks=1"}
    return subprocess.run(["./check"], cwd=folder, capture_output=True, encoding="utf-8", check=False, env=environment)


FILES = ("model.c", "model_weights.c", "model_dnnl.c", "model_example.c", "main.c")


@pytest.mark.slow
@needs_onednn
def test_the_folder_under_sanitizers(tmp_path: Path) -> None:
    write_program(small().model, tmp_path, isas=[])
    sanitizers = ("-DMODEL_USE_DNNL", "-DMODEL_SCALAR", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover")
    done = build(tmp_path, *FILES, flags=sanitizers)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("PASSED") == 2


@pytest.mark.slow
@needs_onednn
def test_the_folder_with_cmake(tmp_path: Path) -> None:
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not installed")
    write_program(small().model, tmp_path, isas=[], name="net")
    options = ["-DNET_USE_DNNL=ON", "-DNET_WERROR=ON", "-DNET_SCALAR=ON"]
    subprocess.run(["cmake", "-B", "build", ".", *options], cwd=tmp_path, check=True, capture_output=True)
    subprocess.run(["cmake", "--build", "build"], cwd=tmp_path, check=True, capture_output=True)
    done = subprocess.run(["build/net_check"], cwd=tmp_path, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0 and done.stdout.count("PASSED") == 2


@pytest.mark.slow
@needs_onednn
def test_two_models_in_one_program(tmp_path: Path) -> None:
    for name, seed in (("first", 1), ("second", 2)):
        write_program(small(seed, channels=4 * seed).model, tmp_path, isas=[], name=name)
        text = (tmp_path / "main.c").read_text("utf-8")
        (tmp_path / f"main_{name}.c").write_text(text.replace("int main(", f"int main_{name}("), "utf-8")
    (tmp_path / "both.c").write_text(
        "int main_first(int, char **);\nint main_second(int, char **);\n"
        "int main(int n, char **a) { return main_first(n, a) + main_second(n, a); }\n",
        "utf-8",
    )
    parts = [f"{n}{e}" for n in ("first", "second") for e in (".c", "_weights.c", "_dnnl.c", "_example.c")]
    flags = ("-DFIRST_USE_DNNL", "-DSECOND_USE_DNNL", "-DFIRST_SCALAR", "-DSECOND_SCALAR")
    done = build(tmp_path, *parts, "main_first.c", "main_second.c", "both.c", flags=flags)
    assert done.returncode == 0 and done.stdout.count("PASSED") == 4


@needs_onednn
def test_a_region_that_is_refused_when_primitives_are_made_runs_in_portable_c(tmp_path: Path) -> None:
    write_program(small().model, tmp_path, isas=[])
    source = tmp_path / "model_dnnl.c"
    text = source.read_text("utf-8")
    assert "dnnl_eltwise_relu" in text
    source.write_text(text.replace("dnnl_eltwise_relu", "dnnl_alg_kind_undef"), "utf-8")
    done = build(tmp_path, *FILES, flags=("-DMODEL_USE_DNNL", "-DMODEL_SCALAR"))
    assert done.stdout.startswith("region 0: oneDNN has no primitive for ")
    assert done.returncode == 0 and done.stdout.count("PASSED") == 2


@needs_onednn
def test_from_python_the_refused_kernel_alone_is_taken_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(post_operations._UNARY, "Tanh", lambda a: [Post("dnnl_alg_kind_undef")])
    x = eqsat.input("x", (2, 16, 8, 8))
    y = op.Sigmoid(op.MaxPool(op.Tanh(op.MaxPool(x, kernel_shape=[3, 3])), kernel_shape=[2, 2]))
    result = eqsat.optimize(eqsat.graph(y), targets=[CLOSE])
    inputs = complete_inputs(result.model)
    model = compiled(result.model)
    ((_, operator, reason),) = model.emitted.coverage["dnnl"].refused
    assert "machine" in reason and operator
    assert model.emitted.runs >= 1 and model.primitives()
    compare(result.run(inputs), model.run(inputs))


def test_without_the_option_the_portable_form_runs(tmp_path: Path) -> None:
    write_program(small().model, tmp_path, isas=[])
    command = [*find_compiler(), "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror"]
    sources = [name for name in FILES if name != "model_dnnl.c"]
    subprocess.run([*command, *sources, "-o", "check", "-lm"], cwd=tmp_path, check=True)
    done = subprocess.run(["./check"], cwd=tmp_path, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0 and done.stdout.count("PASSED") == 2


def test_text_is_the_same_each_time() -> None:
    first, second = (generate(small().model, backends={"dnnl": BACKEND}) for _ in range(2))
    assert first.files and first.files == second.files
    assert (first.source, first.weights.tobytes()) == (second.source, second.weights.tobytes())


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small().model
    with pytest.raises(CodegenError, match="one of dnnl is required as the vendor"):
        CModel(model, vendors=["kiwi"])
    with pytest.raises(ExecutionError, match="backend `c` is required"):
        eqsat.run(model, complete_inputs(model), vendors=["dnnl"])
    monkeypatch.setattr(library, "_PROBE", "#include <oneapi/dnnl/no_such_header.h>\n")
    library._probe.cache_clear()
    with pytest.raises(CodegenError, match="apt-get install libdnnl-dev") as caught:
        CModel(model, vendors=["dnnl"])
    assert "no_such_header.h" in str(caught.value)
    library._probe.cache_clear()


def test_it_is_there_where_it_has_to_be() -> None:
    if REQUIRED:
        assert require_onednn(find_compiler())


NETWORKS = [
    "tiny_resnet8", "tiny_resnet8.qop_u8s8", "tiny_dscnn", "tiny_mbv1_025", "tiny_ae", "tiny_ae.qdq_s8s8",
    "tiny_dscnn.qop_u8s8", pytest.param("tiny_mbv1_025.qop_u8s8", marks=pytest.mark.heavy),
    pytest.param("mbv2", marks=pytest.mark.heavy),
    pytest.param("mbv2.qop_u8s8", marks=pytest.mark.heavy), pytest.param("bert4x256", marks=pytest.mark.heavy),
    pytest.param("bert4x256.qdq_u8s8", marks=pytest.mark.heavy),
]  # fmt: skip


@pytest.mark.slow
@needs_onednn
@pytest.mark.parametrize("name", NETWORKS)
def test_networks_agree_with_numpy(name: str) -> None:
    path = SHARED / f"{name}.onnx"
    if not path.exists():
        pytest.skip("the model is not there")
    result = eqsat.optimize(path, targets=[CLOSE])
    inputs = complete_inputs(result.model)
    expected = result.run(inputs)
    model = compiled(result.model)
    assert model.emitted.coverage["dnnl"].called > 4 and not model.emitted.coverage["dnnl"].refused
    for key, want in expected.items():
        got = model.run(inputs)[key]
        # A chain of integers off by one here and there; floats to their rounding.
        allowed = 0.06 if "." in name else 1e-5
        np.testing.assert_allclose(got, want, rtol=0, atol=allowed * float(np.abs(want).max()))
