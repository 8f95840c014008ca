"""A post on one layer as importers of PyTorch and of TFLite spell it: one partition, one cost, the same bits.

The spellings are those of a post on a backend that took the one and not the other (antkillerfarm, "TVM in practice",
2021): float constants under a quantization, and a requantization to int32 with clip and cast after; or integers
throughout. A pattern matcher takes one of the two unless passes have rewritten the graph before. The post's last part
is tvmc's composite targets.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper

from eqsat.cli import main
from eqsat.execute.executor import Executor
from eqsat.model.load import load
from eqsat.result import Result
from eqsat.rules.ast import Rule
from eqsat.rules.selection import select_rules
from eqsat.search import Search
from tests.fuzz.check import ort_outputs

Spelling = Literal["pytorch", "tflite"]
Range = tuple[int, int]

CHANNELS, SIZE = 32, 112
INPUT = (np.float32(0.0186579), 114)
WEIGHT, PRODUCT, OUTPUT = np.float32(0.00288958), np.float32(5.39136e-05), np.float32(0.0150183)
RELU, RELU6 = (0, 255), (0, 200)


def _quantize(real: np.ndarray, scale: np.float32, dtype: type) -> np.ndarray:
    info = np.iinfo(dtype)
    return np.clip(np.rint(real / scale), info.min, info.max).astype(dtype)


class _Layer:
    def __init__(self) -> None:
        self.constants: dict[str, np.ndarray] = {}
        self.nodes: list[onnx.NodeProto] = []

    def constant(self, value: Any, dtype: type) -> str:
        name = f"k{len(self.constants)}"
        self.constants[name] = np.asarray(value, dtype)
        return name

    def add(self, op: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], domain=domain, **attributes))
        return name

    def model(self, output: str) -> onnx.ModelProto:
        self.nodes[-1].output[0] = "y" if self.nodes[-1].output[0] == output else output
        graph = helper.make_graph(
            self.nodes,
            "layer",
            [helper.make_tensor_value_info("x", 1, [1, 3, SIZE, SIZE])],
            [helper.make_tensor_value_info("y", 2, [1, CHANNELS, SIZE // 2, SIZE // 2])],
            [numpy_helper.from_array(v, k) for k, v in self.constants.items()],
        )
        imports = [helper.make_opsetid("", 21), helper.make_opsetid("eqsat", 1)]
        return helper.make_model(graph, opset_imports=imports, ir_version=10)


def layer(spelling: Spelling, clip: Range = RELU) -> onnx.ModelProto:
    """Quantize, pad, convolve, add a bias, requantize, clip."""
    n, rng = _Layer(), np.random.default_rng(0)
    weights = rng.integers(-127, 128, (CHANNELS, 3, 3, 3)).astype(np.float32) * WEIGHT
    biases = rng.integers(-2000, 9000, CHANNELS).astype(np.float32) * PRODUCT
    zero, none = n.constant(INPUT[1], np.uint8), n.constant(0, np.int8)
    product, output = n.constant(PRODUCT, np.float32), n.constant(OUTPUT, np.float32)
    q = n.add("QuantizeLinear", "x", n.constant(INPUT[0], np.float32), zero)
    padded = n.add("Pad", q, n.constant([0, 0, 1, 1, 0, 0, 1, 1], np.int64), zero)
    if spelling == "pytorch":
        w = n.add("QuantizeLinear", n.constant(weights, np.float32), n.constant(WEIGHT, np.float32), none)
        # QuantizeLinear gives no 32 bits.
        quotient = n.add("Div", n.constant(biases, np.float32), product)
        b = n.add("Cast", n.add("Round", quotient), to=onnx.TensorProto.INT32)
    else:
        w = n.constant(_quantize(weights, WEIGHT, np.int8), np.int8)
        b = n.constant(_quantize(biases, PRODUCT, np.int32), np.int32)
    c = n.add("ConvInteger", padded, w, zero, none, strides=[2, 2])
    a = n.add("Add", c, n.add("Reshape", b, n.constant([1, CHANNELS, 1, 1], np.int64)))
    wide = n.constant(0, np.int32)
    to = onnx.TensorProto.INT32 if spelling == "pytorch" else onnx.TensorProto.UINT8
    r = n.add("Requantize", a, product, wide, output, wide, domain="eqsat", axis=1, dtype=to)
    if spelling == "pytorch":
        clipped = n.add("Clip", r, n.constant(clip[0], np.int32), n.constant(clip[1], np.int32))
        return n.model(n.add("Cast", clipped, to=onnx.TensorProto.UINT8))
    if clip != RELU:
        r = n.add("Clip", r, n.constant(clip[0], np.uint8), n.constant(clip[1], np.uint8))
    return n.model(r)


def image() -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(1).normal(0, 1.2, (1, 3, SIZE, SIZE)).astype(np.float32)}


def partition(result: Result) -> list[tuple[str, tuple[str, ...]]]:
    return [(region.target, tuple(region.nodes)) for region in result.regions]


def rules(*names: str) -> list[Rule]:
    found = [rule for rule in select_rules((), "exact", default_rules=True).rules if rule.name in names]
    assert {rule.name for rule in found} == set(names)
    return found


def run(model: onnx.ModelProto, **options: Any) -> tuple[Result, np.ndarray]:
    """The result, after it has been seen to compute what the model computes, here and in ONNX Runtime."""
    feed = image()
    expected = Executor(load(model)).run(feed)["y"]
    np.testing.assert_array_equal(ort_outputs(model_inlined(model), feed)["y"], expected)
    if "rules" in options:
        options["default_rules"] = False
    result = Search.of(model, "ethos_n", **options).extract()
    np.testing.assert_array_equal(result.run(feed)["y"], expected)
    np.testing.assert_array_equal(ort_outputs(ir.to_proto(result.model).SerializeToString(), feed)["y"], expected)
    return result, expected


def model_inlined(model: onnx.ModelProto) -> bytes:
    """The model with a definition of what ONNX lacks."""
    return ir.to_proto(Search.of(model, default_rules=False).extract().model).SerializeToString()


OFFLOADED = [("cpu", ("QuantizeLinear",)), ("ethos_n", ("ethos_n.qnn_conv2d",))]


def test_both_spellings_become_one_program() -> None:
    (one, y), (other, z) = run(layer("pytorch")), run(layer("tflite"))
    assert partition(one) == partition(other) == OFFLOADED
    assert one.cost == other.cost
    np.testing.assert_array_equal(y, z)
    assert y.min() == 0 and y.max() == 255, "the clip has something to do"


def test_the_clip_of_a_relu6_survives() -> None:
    (one, y), (other, z) = run(layer("pytorch", RELU6)), run(layer("tflite", RELU6))
    assert partition(one) == partition(other) == [OFFLOADED[0], ("ethos_n", ("ethos_n.qnn_conv2d", "Clip"))]
    assert one.cost == other.cost
    np.testing.assert_array_equal(y, z)
    assert y.max() == 200


def test_constant_folding_alone() -> None:
    # Constant expressions are constants without a pass. The rest of the PyTorch spelling makes int32, clipped and cast
    # later: the device has no such result, and nothing is offloaded.
    result, _ = run(layer("pytorch"), rules=[])
    assert [target for target, _ in partition(result)] == ["cpu"]
    result, _ = run(layer("tflite"), rules=[])
    assert partition(result) == OFFLOADED


def test_clip_removal_alone() -> None:
    # Two sound rules instead of one pass. Weights under a quantization are constants all the same: they suffice.
    both = rules("cast_of_clipped_requantization", "vacuous_clip")
    result, _ = run(layer("pytorch"), rules=both)
    assert partition(result) == OFFLOADED
    # Neither does it alone: the first leaves a clip that says nothing, the second finds none that it can remove.
    result, _ = run(layer("pytorch"), rules=rules("vacuous_clip"))
    assert [target for target, _ in partition(result)] == ["cpu"]
    result, _ = run(layer("pytorch"), rules=rules("cast_of_clipped_requantization"))
    assert partition(result) == [OFFLOADED[0], ("ethos_n", ("ethos_n.qnn_conv2d", "Clip"))]


@pytest.mark.parametrize("value", [-300.0, -1.0, 17.0, 255.0, 280.0, 1000.0])
def test_a_cast_without_clip_is_kept(value: float) -> None:
    # The obvious rule, "no cast after a requantization", makes 255 of 280 where the cast says 24.
    text = """<ir_version: 10, opset_import: ["": 21, "eqsat": 1]>
    g (int32[4] x) => (uint8[4] y) <float one = {1}, int32 zero = {0}> {
        r = eqsat.Requantize<axis=0, dtype=6>(x, one, zero, one, zero)
        y = Cast<to=2>(r)
    }"""
    model = onnx.parser.parse_model(text)
    x = np.full(4, value).astype(np.int32)
    result = Search.of(model).extract()
    np.testing.assert_array_equal(result.run({"x": x})["y"], x.astype(np.uint8))


# ---- tvmc's composite targets ------------------------------------------------------------------------

COMPOSITE = "ethos_n, dnnl -launch=5e-6, cpu"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the layer in both spellings."""
    monkeypatch.chdir(tmp_path)
    for spelling in ("pytorch", "tflite"):
        onnx.save(layer(spelling), f"{spelling}.onnx")
    return tmp_path


@pytest.mark.usefixtures("here")
def test_a_composite_target_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    summaries = []
    for spelling in ("pytorch", "tflite"):
        out = f"{spelling}_out.onnx"
        assert main(["optimize", f"{spelling}.onnx", "--target", COMPOSITE, "-o", out, "--json"]) == 0
        summaries.append(json.loads(capsys.readouterr().out))
        onnx.checker.check_model(out, full_check=True)
        found = ort_outputs(Path(out).read_bytes(), image())["y"]
        np.testing.assert_array_equal(found, Executor(load(layer("tflite"))).run(image())["y"])
    one, other = (
        [(r["target"], [k["op"] for k in s["kernels"] if k["region"] == r["name"]]) for r in s["regions"]]
        for s in summaries
    )
    assert one == other and len(one) == 2 and one[0] == ("cpu", ["QuantizeLinear"])
    assert one[1][0] in ("ethos_n", "dnnl") and len(one[1][1]) == 1, "whichever is cheaper, in one kernel"
    assert all(s["targets"] == ["cpu", "ethos_n", "dnnl"] for s in summaries)
    assert summaries[0]["after"]["cost"] == summaries[1]["after"]["cost"]


@pytest.mark.usefixtures("here")
def test_an_option_of_a_part_changes_that_part_alone(capsys: pytest.CaptureFixture[str]) -> None:
    def cost(target: str) -> float:
        assert main(["optimize", "tflite.onnx", "--target", target, "--json"]) == 0
        return json.loads(capsys.readouterr().out)["after"]["cost"]

    plain = cost("ethos_n, ccompiler, cpu")
    assert cost("ethos_n -launch=30e-6, ccompiler, cpu") == pytest.approx(plain + 28e-6), "2 us in the file"
    assert cost("ethos_n, ccompiler, cpu -launch=2e-6") == pytest.approx(plain + 1e-6), "one kernel on the host"
    assert cost("ethos_n, ccompiler -launch=1e-3, cpu") == plain


@pytest.mark.slow
def test_a_composite_target_in_a_variable(here: Path) -> None:
    """Blanks and commas reach the program through a shell, as the post explains: both pairs of quotes are needed."""
    root = str(Path(__file__).parents[2])
    command = (
        f'export TARGET="{COMPOSITE}"; {sys.executable} -m eqsat optimize tflite.onnx --target "$TARGET" -o o.onnx'
    )
    environment = os.environ | {"PYTHONPATH": root}
    done = subprocess.run(["bash", "-c", command], cwd=here, env=environment, capture_output=True, encoding="utf-8")
    assert (done.returncode, done.stderr) == (0, "")
    assert "layer for ethos_n + dnnl + cpu" in done.stdout
    onnx.checker.check_model(here / "o.onnx")
    unquoted = subprocess.run(
        ["bash", "-c", command.replace('"$TARGET"', "$TARGET")],
        cwd=here,
        env=environment,
        capture_output=True,
        encoding="utf-8",
    )
    assert unquoted.returncode != 0 and "Traceback" not in unquoted.stderr


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("etos_n, cpu", "got `etos_n`\n  hint: did you mean `ethos_n`?"),
        (
            "bnns, llvm -device=arm_cpu -mtriple=aarch64-linux-gnu",
            "got `bnns`\n  hint: shipped targets: c, ccompiler, cpu",
        ),
        (
            "dnnl -lunch=5e-6, cpu",
            "dnnl: one of the target's numbers is required; got `-lunch`\n  hint: did you mean `launch`",
        ),
        ("dnnl -mtriple=x86", "hint: its numbers: bandwidth, launch, dispatch, link.bandwidth, link.latency, peak"),
        ("dnnl -launch=fast", "dnnl -launch: a number is required, as in `-launch=5e-6`; got `fast`"),
        ("dnnl -launch=", "dnnl -launch: a number is required"),
        ("dnnl -launch=5e-6s", "got `5e-6s`"),
        ("dnnl -launch=-5e-6", "dnnl -launch: launch must be a number of seconds, 0 or more; got -5e-06"),
        ("dnnl -launch=inf", "dnnl -launch: launch must be a number of seconds"),
        ("dnnl -launch=nan", "dnnl -launch: a number is required"),
        ("dnnl -bandwidth=0, cpu", "dnnl -bandwidth: bandwidth must be more than 0 byte/s; got 0"),
        ("dnnl -peak.float32=0", "dnnl -peak.float32: peak float32 must be more than 0 MAC/s; got 0"),
        ("dnnl -peak.int4=1e9", "got `-peak.int4`"),
        ("dnnl launch=5e-6", "got `dnnl launch=5e-6`\n  hint: did you mean `dnnl`?"),
        ("ethos_n,, cpu", "target names separated by single commas are required"),
        ("ethos_n, cpu, ethos_n", "each target must be named once; got `ethos_n` twice"),
        ("-launch=1, cpu", "a target before its options is required"),
        ("my/npu.target -launch=1", "my/npu.target: a target file is required; got no such file"),
    ],
)
def test_wrong_targets_are_said_in_one_message(target: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["optimize", "tflite.onnx", "--target", target]) == 1
    out, err = capsys.readouterr()
    assert message in err.replace("error: ", "", 1) and out == ""
    assert "Traceback" not in err and err.count("error:") == 1
