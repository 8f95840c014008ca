"""Many small models compiled as one for an instruction set, against the numpy executor and ONNX Runtime.

All cases of a family are one program, so that the compiler runs once for each instruction set.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from eqsat.codegen.isa import PORTABLE, SCALAR, Isa
from eqsat.codegen.runtime import CModel
from eqsat.execute.executor import Executor
from eqsat.model.load import load
from tests.codegen.kernels.kernel_cases import runnable
from tests.model.running import run_ort

Built = tuple[onnx.ModelProto, dict[str, np.ndarray]]
"""A model and its inputs."""


@dataclass(frozen=True)
class Joined:
    """All cases as one model.

    Attributes:
        model: Its inputs and outputs have the number of their case before their names.
        feeds: The inputs of all cases.
        expected: For each of its outputs the case, and what the executor and ONNX Runtime say.
    """

    model: ir.Model
    feeds: dict[str, np.ndarray]
    expected: dict[str, tuple[str, list[np.ndarray]]]

    def compiled(self, isa: Isa) -> CModel:
        """The program for one instruction set; the test is skipped where the machine lacks it."""
        if isa not in runnable():
            pytest.skip(f"no {isa.name} here")
        isas, flags = ((PORTABLE, SCALAR), ("-DMODEL_SCALAR",)) if isa is SCALAR else ((isa,), ())
        return CModel(self.model, isas=isas, flags=flags)

    def check(self, compiled: CModel, absolute: Callable[[float], float]) -> None:
        """Compares the outputs of a program with what is right.

        Args:
            compiled: The program.
            absolute: How far elements may be off, beside 2e-5 of their own size, by the greatest magnitude of a result.
        """
        results = compiled.run(self.feeds)
        assert results.keys() == self.expected.keys()
        for name, found in results.items():
            case, expected = self.expected[name]
            for other in expected:
                atol = absolute(float(np.abs(other).max()))
                np.testing.assert_allclose(found, other, rtol=2e-5, atol=atol, err_msg=f"{case}: {name}")


def joined(cases: Mapping[str, Built], ours_alone: Container[str] = ()) -> Joined:
    """All cases as one model, of the newest of their opsets; ONNX Runtime refuses those that are ``ours_alone``."""
    models = [model for model, _ in cases.values()]
    opsets: dict[str, int] = {}
    for each in (opset for model in models for opset in model.opset_import):
        opsets[each.domain] = max(each.version, opsets.get(each.domain, 0))
    whole = onnx.helper.make_model(
        onnx.helper.make_graph([], "all", [], []),
        opset_imports=[onnx.helper.make_opsetid(domain, version) for domain, version in opsets.items()],
        ir_version=max(model.ir_version for model in models),
    )
    feeds: dict[str, np.ndarray] = {}
    expected: dict[str, tuple[str, list[np.ndarray]]] = {}
    for number, (case, (model, given)) in enumerate(cases.items()):
        outputs = [f"k{number}_{value.name}" for value in model.graph.output]
        every = [[np.asarray(array) for array in Executor(load(model)).run(given).values()]]
        if case not in ours_alone:
            every.append(run_ort(model, given))
        expected |= {name: (case, list(arrays)) for name, *arrays in zip(outputs, *every, strict=True)}
        feeds |= {f"k{number}_{name}": array for name, array in given.items()}
        model = onnx.compose.add_prefix(model, f"k{number}_")
        for part in ("node", "input", "output", "initializer"):
            getattr(whole.graph, part).extend(getattr(model.graph, part))
    return Joined(load(whole), feeds, expected)
