"""Regions of targets without a library: functions of plain C by their names, with what they share as parameters."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import eqsat
from eqsat import op
from eqsat.codegen.generate import generate
from eqsat.codegen.isa import ALL, PORTABLE, SCALAR
from eqsat.codegen.runtime import CModel
from eqsat.execute.inputs import complete_inputs
from eqsat.partition.onnx_nodes import REGION


def founding_example() -> eqsat.Result:
    """``exp((x + y) * (x - y))``: the first of the examples that this project began with."""
    x, y = eqsat.input("x", (10,)), eqsat.input("y", (10,))
    return eqsat.optimize(eqsat.graph(op.Exp((x + y) * (x - y))), targets=["ccompiler"])


def signatures(source: str) -> list[str]:
    return re.findall(r"^static void (model_ccompiler_\w+\([^)]*\))", source, re.MULTILINE)


def test_the_founding_example_is_a_function_of_two_tensors() -> None:
    result = founding_example()
    source = generate(result.model, isas=(SCALAR,)).source
    (signature,) = signatures(source)
    assert re.fullmatch(r"model_ccompiler_0_scalar\(const float \*x, const float \*y, float \*\w+\)", signature)
    calls = re.findall(r"^    (model_ccompiler_0_scalar\(.*\));", source, re.MULTILINE)
    assert len(calls) == 1 and calls[0].startswith("model_ccompiler_0_scalar(x, y, ")
    inputs = complete_inputs(result.model)
    (want,) = result.run(inputs).values()
    (got,) = CModel(result.model).run(inputs).values()
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_the_partition_of_the_second_example() -> None:
    """Three regions with divisions of the host between them; what is shared is a parameter, what is inside is not."""
    w = [eqsat.input(f"w{i}", (10, 10)) for i in range(5)]
    x = eqsat.input("x", (10, 10))
    y = ((x * w[0]) / (x + w[1] - w[2]) + w[3]) / w[4]
    result = eqsat.optimize(eqsat.graph(y), targets=["ccompiler"], default_rules=False)
    emitted = generate(result.model)
    expected = [region for region in result.regions if region.target == "ccompiler"]
    for isa in ALL:
        found = [s for s in signatures(emitted.source) if f"_{isa.name}(" in s]
        assert len(found) == len(expected)
    for region, found in zip(expected, [s for s in signatures(emitted.source) if "_scalar(" in s], strict=True):
        assert len(found.split(",")) == len(region.inputs) + len(region.outputs)
    inputs = complete_inputs(result.model)
    (want,) = result.run(inputs).values()
    (got,) = CModel(result.model).run(inputs).values()
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("seed", range(12))
def test_random_chains(seed: int) -> None:
    """Regions of several inputs and outputs, operands that are the model's, and results that are."""
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(1, 5, rng.integers(1, 4)))
    known = [eqsat.input(f"x{i}", shape) for i in range(3)]
    for _ in range(int(rng.integers(4, 14))):
        a, b = (known[int(i)] for i in rng.integers(0, len(known), 2))
        choice = int(rng.integers(0, 5))
        known.append([a + b, a - b, a * b, op.Tanh(a), op.Softmax(a, axis=-1)][choice])
    outputs = [known[-1], *(known[int(i)] for i in rng.integers(3, len(known), 2))]
    result = eqsat.optimize(eqsat.graph(list(dict.fromkeys(outputs))), targets=["ccompiler"], default_rules=False)
    inputs = complete_inputs(result.model, seed=seed)
    want = result.run(inputs)
    for isas in (None, (PORTABLE, SCALAR)):
        got = CModel(result.model, isas=isas).run(inputs)
        for name, array in want.items():
            np.testing.assert_allclose(got[name], array, rtol=1e-5, atol=1e-5)


def test_regions_in_which_the_host_has_a_choice_are_part_of_it(tmp_path: Path) -> None:
    (tmp_path / "convs.target").write_text(
        "target convs\n"
        '    summary "convolutions"\n'
        "    peak float32 = 4e13\n"
        "    bandwidth = 8e11, launch = 1e-8, dispatch = 1e-8\n"
        "    link bandwidth = 4e11, latency = 1e-9\n"
        "    supports Conv, Relu\n"
        "        where x.dtype == float32\n",
        "utf-8",
    )
    rng = np.random.default_rng(0)
    x = eqsat.input("x", (1, 8, 12, 12))
    y = op.Relu(op.Conv(x, rng.standard_normal((16, 8, 3, 3)).astype(np.float32), pads=[1, 1, 1, 1]))
    result = eqsat.optimize(eqsat.graph(op.Erf(y)), targets=[tmp_path / "convs.target"])
    assert "convs" in {region.target for region in result.regions}
    chosen, left = generate(result.model), generate(result.model, select=False)
    assert "model_convs_0" not in chosen.source and "model_convs_0_avx512(" in left.source
    inputs = complete_inputs(result.model)
    (want,) = result.run(inputs).values()
    for select in (True, False):
        (got,) = CModel(result.model, select=select).run(inputs).values()
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_regions_of_equal_or_strange_names_are_functions_of_their_own() -> None:
    x = eqsat.input("x", (10,))
    result = eqsat.optimize(eqsat.graph(op.Tanh(x + x) * x), targets=["ccompiler"], default_rules=False)
    functions = [f for f in result.model.functions.values() if REGION in f.metadata_props]
    assert len(functions) == 2
    for name in ("a b", "*/ abort(); /*", "1"):
        for function in functions:
            function.metadata_props[REGION] = name
        inputs = complete_inputs(result.model)
        (want,) = result.run(inputs).values()
        (got,) = CModel(result.model).run(inputs).values()
        np.testing.assert_allclose(got, want, rtol=1e-5)
