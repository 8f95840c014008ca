"""Calibration: numbers that are fitted, what is left alone, and files that can be used at once.

Times are made up: kernels take what a file with other numbers says, so that the right numbers are known.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from eqsat.codegen.calibration import measure_host as calibration
from eqsat.codegen.calibration.fit import fit
from eqsat.codegen.calibration.measure_host import PROBES, calibrated, spread
from eqsat.codegen.calibration.rates import settings
from eqsat.codegen.calibration.residual import Residual
from eqsat.codegen.emitted import KernelInfo
from eqsat.codegen.family_names import unknown_families
from eqsat.codegen.generate import generate
from eqsat.codegen.kernels.shared.families import entry_name
from eqsat.codegen.predict import Prediction, predict
from eqsat.errors import TargetError
from eqsat.model.builder import graph, input, op
from eqsat.rules.ast import Target
from eqsat.rules.reader import read_text
from eqsat.targets.find_targets import load_host, load_targets, read_target_file, targets_dir
from eqsat.targets.numbers import numerals, places, rewritten, written
from eqsat.targets.validate import problems

FILE = targets_dir() / "c.target"
TEXT = FILE.read_text("utf-8")
HOST = load_host("c")
Measured = list[tuple[KernelInfo, float]]


@pytest.fixture(scope="module")
def kernels() -> list[KernelInfo]:
    """What all probes consist of."""
    return [
        kernel
        for name, build in PROBES.items()
        for kernel in generate(build(), isas=(), winograd=name.startswith("Winograd")).kernels
    ]


def changed(text: str, factors: dict[str, float]) -> str:
    """The host's file with some of its numbers multiplied."""
    return rewritten(text, {n: n.value * factors.get(n.name, 1) for n in numerals(text, str(FILE), "c")})


def host_of(text: str) -> Target:
    return next(t for t in read_text(text, str(FILE)).targets if t.is_host)


def timed(kernels: list[KernelInfo], text: str, noise: float = 0.0) -> Measured:
    """Kernels with the times that a file predicts."""
    rng, host = np.random.default_rng(0), host_of(text)
    return [(k, predict(k, host) * math.exp(noise * rng.standard_normal())) for k in kernels]


# ---- probes --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_probes_have_every_family_that_has_an_entry(kernels: list[KernelInfo]):
    found = {entry_name(k.family) for k in kernels}
    asked = {name for entry in HOST.families for name in entry.names}
    loops = {"convolution_loops", "integer_convolution_loops", "integer_matrix_loops"}  # like matrix_loops
    assert asked - found <= loops | {"integer_softmax"}
    assert len(kernels) > 300


@pytest.mark.slow
def test_every_number_of_the_families_is_measured(kernels: list[KernelInfo]):
    """Each number stands in the expression of an entry that some probe belongs to."""
    numbers = [n for n in numerals(TEXT, str(FILE), "c") if n.is_let]
    used = frozenset[object]().union(*(places(entry.cost) for entry in HOST.families))
    assert len(numbers) > 20
    assert {n.name for n in numbers} == {n.name for n in numbers if n.place in used}
    assert {n.name for n in fit(HOST, numbers, timed(kernels, TEXT))} == {n.name for n in numbers}


# ---- fitting -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_numbers_are_found_again(kernels: list[KernelInfo]):
    """A machine whose products are three times as fast, whose memory is half as fast, and so on."""
    factors = {
        "dense_rate": 3.0, "far": 0.5, "start": 2.0, "byte_rate": 0.4, "pool_rate": 1.7, "across": 2.5, "row": 3.0,
        "function": 1.6, "exponential": 0.7, "loop_rate": 2.0, "depthwise_rate": 0.6, "near": 1.3,
    }  # fmt: skip
    truth = changed(TEXT, factors)
    found = calibrated(HOST, TEXT, timed(kernels, truth))
    assert found.before > 1.2
    assert found.after < 1.03
    values = {n.name: value / n.value for n, value in found.changes.items() if n.is_let}
    for name, factor in factors.items():
        assert values[name] == pytest.approx(factor, rel=0.15), name
    for name in values.keys() - factors.keys():
        assert values[name] == pytest.approx(1, rel=0.25), name  # some matter little beside others


@pytest.mark.slow
def test_noise_and_outliers_do_not_decide(kernels: list[KernelInfo]):
    measured = timed(kernels, changed(TEXT, {"dense_rate": 2.0}), noise=0.2)
    measured[::25] = [(k, seconds * 20) for k, seconds in measured[::25]]
    found = {n.name: v / n.value for n, v in calibrated(HOST, TEXT, measured).changes.items()}
    assert found["dense_rate"] == pytest.approx(2, rel=0.1)
    assert found["byte_rate"] == pytest.approx(1, rel=0.15)


@pytest.mark.slow
def test_what_nothing_is_measured_of_stays(kernels: list[KernelInfo]):
    convolutions = [k for k in kernels if k.family == "direct convolution"]
    found = calibrated(HOST, TEXT, timed(convolutions, changed(TEXT, {"dense_rate": 2.0, "table_rate": 3.0})))
    names = {n.name for n in found.changes}
    assert "dense_rate" in names and "peak float32" in names
    assert names.isdisjoint({"table_rate", "loop_rate", "row", "peak int8", "peak int64"})


@pytest.mark.slow
def test_the_same_each_time(kernels: list[KernelInfo]):
    measured = timed(kernels[::3], changed(TEXT, {"far": 0.7}), noise=0.3)
    assert calibrated(HOST, TEXT, measured).text == calibrated(HOST, TEXT, measured).text


@pytest.mark.slow
def test_only_numbers_change(kernels: list[KernelInfo]):
    found = calibrated(HOST, TEXT, timed(kernels, TEXT, noise=0.3))
    back = rewritten(found.text, {})
    for old, new in zip(numerals(TEXT, str(FILE), "c"), numerals(found.text, str(FILE), "c"), strict=True):
        assert old.name == new.name
        assert new.text == (written(found.changes[old]) if old in found.changes else old.text)
    assert [_without_numbers(line) for line in back.split("\n")] == [
        _without_numbers(line) for line in TEXT.split("\n")
    ]


def _without_numbers(line: str) -> str:
    return "".join(c for c in line if not (c.isdigit() or c in ".e-"))


@pytest.mark.slow
def test_the_file_can_be_used(kernels: list[KernelInfo], tmp_path: Path):
    path = tmp_path / "mine.target"
    path.write_text(calibrated(HOST, TEXT, timed(kernels, TEXT, noise=0.5)).text, "utf-8")
    (mine,) = read_target_file(path)
    assert [*problems(mine), *unknown_families(mine)] == []
    assert [t.name for t in load_targets([str(path), "dnnl"])] == ["c", "dnnl"]
    x = input("x", (1, 16, 8, 8))
    model = graph(op.Relu(op.Conv(x, np.ones((16, 16, 1, 1), np.float32))))
    assert len(generate(model, isas=(), host=path).kernels) == len(generate(model, isas=()).kernels)


def test_a_host_of_ones_own(kernels: list[KernelInfo]):
    """Numbers of the whole file, expressions unlike the shipped ones; a setting that is an expression stays."""
    text = """# mine
let slow = 1e-8  # seconds
host mine
    peak float32 = 2 * 1e9
    bandwidth = 1e9, launch = 1e-3
    let rate = 1e9
    supports *
    family packed_matrix_product, direct_convolution
        cost slow + (macs / rate if macs > 1000 else sqrt(macs) / rate)
    family * cost slow
"""
    host = read_text(text, "mine.target").targets[0]
    dense = [k for k in kernels if k.family in ("packed matrix product", "direct convolution")]
    truth = text.replace("let rate = 1e9", "let rate = 4e10").replace("slow = 1e-8", "slow = 2e-7")
    measured = [(k, predict(k, read_text(truth, "mine.target").targets[0])) for k in dense]
    found = calibrated(host, text, measured)
    assert {n.name for n in found.changes} == {"slow", "launch", "rate"}
    values = {n.name: v for n, v in found.changes.items()}
    assert values["rate"] == pytest.approx(4e10, rel=0.03) and values["slow"] == pytest.approx(2e-7, rel=0.05)
    assert "peak float32 = 2 * 1e9" in found.text and "# seconds" in found.text
    assert found.after == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize(
    "cost",
    [
        "a + macs / b",
        "max(macs / b, bytes * a, 3 * a) - min(a, 1, y.size)",
        "a * 2 if macs > b / 1e6 else b",
        "sqrt(a) + log2(b) + abs(-a) + ceil(macs / b)",
        "(a ** 2 + 7 // 2 + bytes % 5) * sum([a, b, 1])",
        "a if x.rank == 4 and b < 3 else macs * a",
        "bytes",
    ],
)
def test_arrays_give_what_single_kernels_give(kernels: list[KernelInfo], cost: str):
    text = f"""host h
    peak float32 = 1
    bandwidth = 1, launch = 1
    let a = 3e-3
    let b = 7e9
    supports *
    family * cost {cost}
"""
    host = read_text(text, "h.target").targets[0]
    (entry,) = host.families
    numbers = {n.place: n.value for n in numerals(text, "h.target", "h") if n.is_let}
    predictions = [Prediction(k.task, k.family, host) for k in kernels[::7]]
    found = Residual(entry.cost, predictions, frozenset(numbers)).seconds(numbers)
    expected = [p.seconds() for p in predictions]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


# ---- the host's own numbers ------------------------------------------------------------------------------------


def test_peaks_bandwidth_and_launch():
    def product(dtype: str, seconds: float) -> tuple[KernelInfo, float]:
        a, b = (input(name, (8, 8), dtype) for name in "ab")
        (kernel,) = generate(graph(op.MatMul(a, b)), isas=()).kernels
        return kernel, seconds

    def sweep(size: int, seconds: float) -> tuple[KernelInfo, float]:
        (kernel,) = generate(graph(op.Relu(input("x", (size,)))), isas=()).kernels
        return kernel, seconds

    measured = [product("float32", s * 1e-6) for s in (1, 2, 3, 4, 5, 100)]
    measured += [product("float64", 8e-6), sweep(4_000_000, 4e-3), sweep(2_000_000, 1e-3), sweep(3_000_000, 1e-3)]
    names = ["peak float32", "peak float64", "peak int8", "bandwidth", "launch"]
    found = settings(measured, names)
    assert found["peak float32"] == pytest.approx(8**3 / 3e-6)
    assert found["peak float64"] == pytest.approx(8**3 / 8e-6)
    assert found["bandwidth"] == pytest.approx(16e9)
    assert found["launch"] == pytest.approx(4e-6)
    assert "peak int8" not in found


def test_every_peak_has_a_product(kernels: list[KernelInfo]):
    """Also those of half precision, whose products are computed in float32."""
    names = [f"peak {dtype}" for dtype, _ in HOST.peak]
    found = settings([(kernel, 1e-3) for kernel in kernels], names)
    assert found.keys() == set(names)
    assert found["peak float16"] == found["peak bfloat16"] == found["peak float32"] != found["peak float64"]


# ---- what is measured ------------------------------------------------------------------------------------------


def test_accelerators_are_refused():
    with pytest.raises(TargetError, match=r"a host is required.*`dnnl`, an accelerator"):
        load_host("dnnl")
    with pytest.raises(TargetError, match="by name or the path"):
        load_host("nothing")


def test_one_probe_is_measured(monkeypatch: pytest.MonkeyPatch):
    """Times of a real run: each kernel has one, and it is a time."""
    monkeypatch.setitem(PROBES, "one", lambda: graph(op.Relu(input("x", (1000,)))))
    found = calibration.probe("one", 0.001)
    assert [k.family for k, _ in found] == ["elementwise vectors"]
    assert all(0 < seconds < 1 for _, seconds in found)
    assert spread(HOST, found) >= 1


@pytest.mark.heavy
def test_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The whole way, with real times: a file that is one, and predictions that are about right."""
    monkeypatch.setenv("EQSAT_CACHE", str(tmp_path / "cache"))
    seen: list[tuple[str, int, int]] = []
    found = calibration.calibrate(seconds=0.3, progress=lambda *event: seen.append(event))
    assert [name for name, _, _ in seen] == [*PROBES, "fitting"]
    path = tmp_path / "mine.target"
    path.write_text(found.text, "utf-8")
    (mine,) = read_target_file(path)
    assert [*problems(mine), *unknown_families(mine)] == []
    assert set(found.changes) == set(numerals(TEXT, str(FILE), "c"))
    assert found.after < 1.5 and found.after <= found.before + 1e-9


def test_types_of_products():
    from eqsat.codegen.calibration.other_probes import PRODUCTS

    assert {f"peak {d}" for d in (*PRODUCTS, "float32", "int8", "uint8")} == {f"peak {d}" for d, _ in HOST.peak}
    assert all(hasattr(ir.DataType, d.upper()) or d.startswith("float") for d in PRODUCTS)
