"""What backends return that is no answer, and what they say that nobody would hear otherwise."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat import op
from eqsat.backends import Backend, Code, Run
from eqsat.backends.backend import Prepared
from eqsat.backends.coverage import Coverage
from eqsat.cli import main
from eqsat.codegen.run_model import Means
from eqsat.codegen.runtime import CModel
from eqsat.errors import BackendError, BackendWarning
from tests.backends.units import TARGET, Units


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> eqsat.Result:
    path = tmp_path_factory.mktemp("target") / "units.target"
    path.write_text(TARGET.format(name="units", operators="Add, Relu"), "utf-8")
    x, y = eqsat.input("x", (4, 4)), eqsat.input("y", (4, 4))
    return eqsat.optimize(eqsat.graph(op.Relu(x + y) + x), targets=[path])


def arrays() -> dict[str, np.ndarray]:
    return {"x": np.full((4, 4), -2, np.float32), "y": np.full((4, 4), 5, np.float32)}


WRONG_FROM_PYTHON: list[tuple[dict[str, Any], str]] = [
    ({"refuse": lambda self, kernel: 5}, r"refusals: a text as the reason is required; got int: 5"),
    ({"refuse": lambda self, kernel: ["no"]}, r"refusals: a text as the reason is required; got list"),
    ({"refusals": lambda self, region: None}, r"refusals: a dictionary of reasons by kernel is required; got NoneType"),
    ({"refusals": lambda self, region: {"Add": "no"}}, r"refusals: kernels of the region as the keys .*got str: 'Add'"),
    ({"prepare": lambda self, run: 7}, r"prepare: a function of arrays, or None is required; got int: 7"),
    ({"prepare": lambda self, run: lambda a: None}, r"prepare returned: a list of float32\[4, 4\] .*got NoneType"),
    ({"prepare": lambda self, run: lambda a: a[0]}, r"prepare returned: a list of float32\[4, 4\] .*got ndarray"),
    ({"prepare": lambda self, run: lambda a: []}, r"prepare returned: float32\[4, 4\] .*got nothing"),
    ({"prepare": lambda self, run: lambda a: [1.0]}, r"prepare returned: float32\[4, 4\] .*got float"),
    ({"prepare": lambda self, run: lambda a: 1 / 0}, r"prepare \(.*line \d+\): .*ZeroDivisionError"),
    ({"target": 5}, r"a text as Answers.target is required; got 5"),
    ({"library": None}, r"a text as Answers.library is required; got None"),
    ({"whole": "yes"}, r"True or False as Answers.whole is required; got 'yes'"),
    ({"free_sizes": 1}, r"True or False as Answers.free_sizes is required; got 1"),
]


@pytest.mark.parametrize(("methods", "message"), WRONG_FROM_PYTHON)
def test_wrong_answers_from_python(result: eqsat.Result, methods: dict[str, Any], message: str) -> None:
    backend = type("Answers", (Units,), {})()
    for name, value in methods.items():
        setattr(type(backend) if callable(value) else backend, name, value)
    with pytest.raises(BackendError, match=message):
        result.run(arrays(), backends=[backend])


def coded(*args: Any, **fields: Any) -> Any:
    return {"emit": lambda self, writer, runs: Code(*args, **fields)}


WRONG_IN_C: list[tuple[dict[str, Any], str]] = [
    ({"emit": lambda self, writer, runs: "x"}, r"emit: eqsat.backends.Code is required; got str: 'x'"),
    ({"emit": lambda self, writer, runs: None}, r"emit: eqsat.backends.Code is required; got NoneType: None"),
    (coded(None), r"a list of texts as Code.calls is required; got NoneType: None"),
    (coded(";"), r"a list of texts as Code.calls is required; got str: ';'"),
    (coded([5]), r"a list of texts as Code.calls is required; got list: \[5\]"),
    (coded([]), r"one call for each run is required .*got 0 calls and 0 sizes for 1 runs"),
    (coded([";"], scratch=[1.5]), r"a list of numbers of bytes as Code.scratch is required; got list: \[1.5\]"),
    (coded([";"], scratch=[-1]), r"a list of numbers of bytes as Code.scratch is required; got list: \[-1\]"),
    (coded([";"], header=None), r"a text as Code.header is required; got NoneType"),
    (coded([";"], functions=["f"]), r"a text as Code.functions is required; got list"),
    (coded([";"], flags="-O2"), r"a tuple of texts as Code.flags is required; got str: '-O2'"),
    (coded([";"], libraries=(None,)), r"a tuple of texts as Code.libraries is required; got tuple"),
    ({"unavailable": lambda self, loaded: None}, r"unavailable: a dictionary of reasons .*got NoneType"),
    ({"unavailable": lambda self, loaded: {"add": 1}}, r"unavailable: a dictionary of reasons .*got dict"),
]


@pytest.mark.parametrize(("methods", "message"), WRONG_IN_C)
def test_wrong_answers_in_c(result: eqsat.Result, methods: dict[str, Any], message: str) -> None:
    backend = type("Answers", (Units,), methods)()
    with pytest.raises(BackendError, match=message):
        CModel(result.model, backends=[backend])


def test_wrong_primitives(result: eqsat.Result) -> None:
    backend = type("Answers", (Units,), {"primitives": lambda self, loaded: ["p"]})()
    with pytest.raises(BackendError, match=r"a list of eqsat.backends.Primitive is required; got list: \['p'\]"):
        CModel(result.model, backends=[backend]).primitives()


def test_no_reason_is_no_refusal(result: eqsat.Result) -> None:
    backend = type("Answers", (Units,), {"refuse": lambda self, kernel: None})()
    for means in ("numpy", "c"):
        coverage: dict[str, Coverage] = {}
        result.run(arrays(), means, backends=[backend], coverage=coverage)
        assert coverage["units"].called == coverage["units"].total == 3


def test_a_failure_names_the_line_of_the_backend(result: eqsat.Result, tmp_path: Path) -> None:
    text = """import eqsat

class Broken(eqsat.Backend):
    target = "units"

    def prepare(self, run):
        return helper(run)

def helper(run):
    return run.nothing
"""
    (tmp_path / "broken.py").write_text(text, "utf-8")
    with pytest.raises(BackendError, match=r"Broken.prepare \(.*broken\.py, line 10\): .*AttributeError"):
        result.run(arrays(), backends=[tmp_path / "broken.py"])


@dataclass
class Shifted(Units):
    """Without a hash, because it is compared by its fields, and equal to one that computes something else."""

    by: float = field(default=0.0, compare=False)

    def __post_init__(self) -> None:
        Units.__init__(self)

    def prepare(self, run: Run) -> Prepared:
        execute = super().prepare(run)
        return lambda arrays: [a + np.float32(self.by) for a in execute(arrays)]


@pytest.mark.parametrize("means", ["numpy", "c"])
def test_backends_are_told_apart_by_identity(result: eqsat.Result, means: Means) -> None:
    found = []
    for by in (0.0, 1.0, 0.0):
        backend = Shifted(by)
        assert backend == Shifted(7.0)
        found.append(result.run(arrays(), means, backends=[backend])["output"])
    np.testing.assert_array_equal(found[0], found[2])
    assert means == "c" or not np.array_equal(found[0], found[1])


# ---- backends that execute nothing -----------------------------------------------------------------------


class Elsewhere(Units):
    def __init__(self) -> None:
        super().__init__("unit")


@pytest.mark.parametrize("means", ["numpy", "c"])
def test_a_target_without_regions_is_told_of(result: eqsat.Result, means: Any) -> None:
    coverage: dict[str, Coverage] = {}
    said = "the model has no region of `unit`; its regions are of `units`; did you mean `units`?"
    with pytest.warns(BackendWarning, match=f"Elsewhere has nothing to execute: {said}".replace("?", r"\?")) as warned:
        result.run(arrays(), means, backends=[Elsewhere()], coverage=coverage)
    assert [w.filename for w in warned] == [__file__]
    assert coverage["unit"] == Coverage(0, (), "unit", said)
    plain = eqsat.graph(op.Relu(eqsat.input("x", (4,))))
    with pytest.warns(BackendWarning, match="the model has no region of `unit` or others"):
        eqsat.run(plain, {"x": np.ones(4, np.float32)}, backend=means, backends=[Elsewhere()])


def test_nothing_is_said_of_a_backend_with_regions(result: eqsat.Result, recwarn: pytest.WarningsRecorder) -> None:
    for means in ("numpy", "c"):
        coverage: dict[str, Coverage] = {}
        result.run(arrays(), means, backends=[Units()], coverage=coverage)
        assert coverage == {"units": Coverage(3, (), "units")}
    assert not [w for w in recwarn if issubclass(w.category, BackendWarning)]


class OnlyPython(Backend):
    target = "units"
    library = "arrays"

    def prepare(self, run: Any) -> Any:
        return Units().prepare(run)


class OnlyC(Backend):
    target = "units"

    def emit(self, writer: Any, runs: Any) -> Code:
        return Units().emit(writer, runs)


def test_a_backend_that_lacks_the_means_says_so(result: eqsat.Result) -> None:
    cases: tuple[tuple[Means, Backend, str], ...] = (
        ("c", OnlyPython(), "the backend writes no C (it does not override emit)"),
        ("numpy", OnlyC(), "the backend executes nothing from Python (it does not override prepare)"),
    )
    for means, backend, reason in cases:
        coverage: dict[str, Coverage] = {}
        result.run(arrays(), means, backends=[backend], coverage=coverage)
        assert coverage["units"].called == 0 and {r for _, _, r in coverage["units"].refused} == {reason}


def test_the_command_line_shows_what_is_executed(
    result: eqsat.Result, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result.save("placed.onnx")
    head = "from tests.backends.units import Units\nfrom tests.backends.test_answers import Elsewhere\n"
    Path("some.py").write_text(f'{head}BACKEND = Units(refused=["Relu"])\n', "utf-8")
    Path("other.py").write_text(f"{head}BACKEND = Elsewhere()\n", "utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for command, where in (
            (["run", "placed.onnx"], "with numpy"),
            (["run", "placed.onnx", "--backend", "c"], "in portable C"),
            (["codegen", "placed.onnx", "-o", "out"], "in portable C"),
        ):
            assert main([*command, "--backend", "some.py"]) == 0
            shown = capsys.readouterr()
            text = shown.out + shown.err
            assert "units     2 of 3 kernels call units" in text and f"(Relu) runs {where}: no Relu" in text
            assert main([*command, "--backend", "other.py"]) == 0
            shown = capsys.readouterr()
            assert "unit      the model has no region of `unit`" in shown.out + shown.err
        assert main(["run", "placed.onnx", "--backend", "some.py", "-q"]) == 0
        assert capsys.readouterr() == ("", "")
        assert main(["run", "placed.onnx", "--backend", "some.py", "--json"]) == 0
        shown = capsys.readouterr().out
        assert '"libraries"' in shown and '"reason": "no Relu"' in shown and '"outputs"' in shown
