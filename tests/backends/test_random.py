"""Random graphs with regions of a backend that refuses some kernels: from Python, in C, and in portable C."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat import op
from eqsat.codegen.runtime import CModel
from eqsat.execute.inputs import complete_inputs
from tests.backends.test_backends import agree, reference
from tests.backends.units import TARGET, Units

SHAPES = [(4, 4), (1, 4), (4, 4)]
QUICK = ("-O0",)
"""How the C is compiled: what counts here is who executes what."""


def _step(rng: np.random.Generator, a: Any, b: Any, shape: tuple[int | str, ...]) -> Any:
    """One or two operators: of the backend, of the target alone, of the host, or such that nothing is left of in C."""
    weights, bias = ((rng.standard_normal(n) / 2).astype(np.float32) for n in ((4, 4), (4,)))
    made = [
        lambda: a + b, lambda: op.Relu(a), lambda: a * b, lambda: op.Softmax(a, axis=1), lambda: op.Tanh(a),
        lambda: op.MatMul(a, weights), lambda: op.Relu(op.MatMul(a, weights) + bias),
        lambda: op.Reshape(op.Relu(op.Reshape(a, np.array([-1]))), np.array([-1, shape[1]])),
        lambda: op.Transpose(op.Transpose(a, perm=[1, 0]), perm=[1, 0]),
    ]  # fmt: skip
    return made[int(rng.integers(0, len(made)))]()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [*range(12), *(pytest.param(s, marks=pytest.mark.heavy) for s in range(12, 20))])
def test_random_graphs(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    (tmp_path / "units.target").write_text(TARGET.format(name="units", operators="Add, Relu, Mul, Softmax"), "utf-8")
    shape = SHAPES[seed % len(SHAPES)]
    known = [eqsat.input(f"x{i}", shape) for i in range(2)]

    for _ in range(int(rng.integers(4, 16))):
        a, b = (known[int(i)] for i in rng.integers(max(0, len(known) - 5), len(known), 2))
        known.append(_step(rng, a, b, shape))
    outputs = list(dict.fromkeys([known[-1], *(known[int(i)] for i in rng.integers(2, len(known), 2))]))
    numerics = [{}, {"default_rules": False}][seed % 2]
    result = eqsat.optimize(eqsat.graph(outputs), targets=[tmp_path / "units.target"], **numerics)
    inputs = complete_inputs(result.model, seed=seed)
    want = reference(result.model, inputs)
    variant = {"joins": bool(seed % 3), "stateful": bool(seed % 2), "scratch": [0, 24][seed % 2]}
    refused = ["Mul", "Softmax", *(["Relu"] if seed % 5 == 0 else [])]
    agree(result.run(inputs, backends=[Units(refused=refused)]), want)
    agree(CModel(result.model, flags=QUICK).run(inputs), want)
    backend = Units(refused=refused, **variant)
    agree(CModel(result.model, backends=[backend], flags=QUICK).run(inputs), want)
    agree(CModel(result.model, backends=[Units(refused=refused, declines=True)], flags=QUICK).run(inputs), want)
    agree(CModel(result.model, backends=[backend], select=False, flags=QUICK).run(inputs), want)


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(s, marks=pytest.mark.heavy) for s in range(6, 20))])
def test_random_graphs_at_free_sizes(seed: int, tmp_path: Path) -> None:
    """The same with a size that the program receives, and every third one in the body of a loop."""
    rng = np.random.default_rng(100 + seed)
    (tmp_path / "units.target").write_text(TARGET.format(name="units", operators="Add, Relu, Mul, Softmax"), "utf-8")
    shape, dims = ("n", 4), {"n": (1, 9)}

    def steps(known: list[Any]) -> list[Any]:
        for _ in range(int(rng.integers(4, 14))):
            a, b = (known[int(i)] for i in rng.integers(max(0, len(known) - 5), len(known), 2))
            known.append(_step(rng, a, b, shape))
        return known

    x, z = (eqsat.input(name, shape) for name in ("x", "z"))
    if seed % 3 == 2:
        rounds = np.array(2, np.int64)
        last = op.Loop(rounds, None, x, body=lambda i, go, s: (go, steps([s, z])[-1]))
        known = steps([last, z])
    else:
        known = steps([x, z])
    outputs = list(dict.fromkeys([known[-1], known[int(rng.integers(2, len(known)))]]))
    result = eqsat.optimize(eqsat.graph(outputs), targets=[tmp_path / "units.target"], dims=dims, default_rules=False)
    refused = ["Mul", "Softmax", *(["Relu"] if seed % 5 == 0 else [])]
    variant = {"joins": bool(seed % 4), "stateful": bool(seed % 2), "scratch": [24, 0][seed % 2]}
    served = [Units(refused=refused, free_sizes=True, **variant)]
    programs = [
        CModel(result.model, backends=served, dims=dims, flags=QUICK),
        CModel(result.model, backends=[Units(refused=refused)], dims=dims, flags=QUICK),
    ]
    coverage = programs[0].emitted.coverage["units"]
    assert coverage.total and all(reason == f"no {operator}" for _, operator, reason in coverage.refused)
    for n in (1, 2, 9):
        inputs = {name: rng.standard_normal((n, 4)).astype(np.float32) for name in ("x", "z")}
        inputs = {name: inputs[name] for name in (v.name for v in result.model.graph.inputs) if name in inputs}
        want = reference(result.model, inputs)
        agree(result.run(inputs, backends=[Units(refused=refused)]), want)
        for program in programs:
            agree(program.run(inputs), want)
