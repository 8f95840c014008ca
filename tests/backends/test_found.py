"""Where backends are found: names, entry points, files, objects; and that none of the shipped ones is needed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib import import_module
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from click.testing import CliRunner

import eqsat
from eqsat import op
from eqsat.backends import find_backends
from eqsat.cli import cli
from eqsat.errors import BackendError
from tests.backends.units import TARGET, Units

ROOT = Path(__file__).parent.parent.parent
HOME = ROOT / "eqsat/backends"
SHIPPED = sorted(import_module(f"eqsat.backends.{p.parent.name}").BACKEND.target for p in HOME.glob("*/__init__.py"))
FILE = "from tests.backends.units import Units\n\nBACKEND = Units()\n"


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("units.target").write_text(TARGET.format(name="units", operators="Add, Relu"), "utf-8")
    Path("mine.py").write_text(FILE, "utf-8")
    x, y = eqsat.input("x", (4, 4)), eqsat.input("y", (4, 4))
    eqsat.optimize(eqsat.graph(op.Relu(x + y) + x), targets=["units.target"]).save("placed.onnx")
    return Path("placed.onnx")


def arrays() -> dict[str, np.ndarray]:
    return {"x": np.full((4, 4), -2, np.float32), "y": np.full((4, 4), 5, np.float32)}


def test_a_shipped_backend_is_found_by_name() -> None:
    assert find_backends.names() == SHIPPED
    for name in SHIPPED:
        assert find_backends.named(name).target == name


def test_an_installed_backend_is_found_by_name(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = (
        EntryPoint("units", "tests.backends.units:Units", find_backends.GROUP),
        EntryPoint("broken", "tests.backends.units:Nothing", find_backends.GROUP),
    )
    monkeypatch.setattr(find_backends, "entry_points", lambda group: points if group == find_backends.GROUP else ())
    names = sorted(["broken", "units", *SHIPPED])
    assert find_backends.names() == names
    for means in ("numpy", "c"):
        (y,) = eqsat.run(model, arrays(), backend=means, vendors=["units"]).values()
        np.testing.assert_array_equal(y, np.ones((4, 4), np.float32))
    # Written for whoever has it, without being asked for; what the model does not need is not loaded.
    assert [served.target for served in eqsat.write_c(model, "out").served] == ["units"]
    assert eqsat.write_c(model, "none", vendors=[]).served == []
    with pytest.raises(BackendError, match=r"eqsat.backends: broken = .*an entry point that can be loaded"):
        eqsat.run(model, arrays(), vendors=["broken"])
    with pytest.raises(BackendError, match=rf"one of {', '.join(names)} is required as the vendor; got 'kiwi'"):
        eqsat.run(model, arrays(), vendors=["kiwi"])


def test_a_file_on_the_command_line(model: Path) -> None:
    runner = CliRunner()
    for options in (["--backend", "mine.py"], ["--backend", "c", "--backend", "mine.py"]):
        done = runner.invoke(cli, ["run", str(model), *options, "--json"])
        assert done.exit_code == 0, done.output
    done = runner.invoke(cli, ["codegen", str(model), "-o", "out", "--backend", "mine.py"])
    assert done.exit_code == 0 and "units     3 of 3 kernels call units" in done.output, done.output
    assert Path("out/model_units.c").exists()
    assert "net" not in Path("out/model_units.h").read_text("utf-8").split()


def test_wrong_values_of_the_option_are_refused(model: Path) -> None:
    runner = CliRunner()
    for options, message in (
        (["--backend", "onnx"], "numpy or c or a .py file is required"),
        (["--backend", "c", "--backend", "numpy"], "exclude each other"),
    ):
        done = runner.invoke(cli, ["run", str(model), *options])
        assert done.exit_code == 2 and message in done.output, done.output


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\n", "one subclass of eqsat.Backend, or a backend called BACKEND, is required; got none"),
        ("BACKEND = 3\n", "an eqsat.Backend is required; got 3"),
        ("1 / 0\n", "can be executed is required; got ZeroDivisionError"),
        ("def f(:\n", "can be executed is required; got SyntaxError"),
        ("from eqsat import Backend\nclass B(Backend):\n    pass\n", "that names its target is required; got B"),
        (
            "from eqsat import Backend\nclass A(Backend):\n    target = 'a'\nclass B(Backend):\n    target = 'b'\n",
            "is required; got A, B",
        ),
    ],
)
def test_files_without_a_backend(model: Path, text: str, message: str) -> None:
    Path("bad.py").write_text(text, "utf-8")
    with pytest.raises(BackendError) as caught:
        eqsat.run(model, arrays(), backends=["bad.py"])
    assert str(caught.value).startswith("bad.py: ") and message in str(caught.value)


def test_files_that_are_not_there_and_what_is_no_backend(model: Path) -> None:
    with pytest.raises(BackendError, match=r"none.py: a Python file with a backend is required; got no such file"):
        eqsat.run(model, arrays(), backends=["none.py"])
    with pytest.raises(BackendError, match="one backend for each target is required; got several for 'units'"):
        eqsat.run(model, arrays(), backends=[Units(), "mine.py"])
    with pytest.raises(BackendError, match=r"an eqsat\.Backend is required"):
        eqsat.run(model, arrays(), backends=[cast(Any, object())])


SCRIPT = """
import importlib, pkgutil
import numpy as np
import eqsat
from eqsat import op
from eqsat.backends import find_backends
from eqsat.codegen.runtime import CModel

for module in pkgutil.walk_packages(eqsat.__path__, "eqsat."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
assert find_backends.names() == [], find_backends.names()
rng = np.random.default_rng(0)
x = eqsat.input("x", (1, 8, 6, 6))
y = op.Relu(op.Conv(x, rng.standard_normal((8, 8, 3, 3)).astype(np.float32), pads=[1, 1, 1, 1]))
target = "dnnl -launch=1e-9 -dispatch=1e-9 -link.latency=1e-9 -link.bandwidth=1e15"
result = eqsat.optimize(eqsat.graph(op.Erf(y)), targets=[target])
assert [region.target for region in result.regions] == ["dnnl", "cpu"]
inputs = {"x": rng.standard_normal((1, 8, 6, 6)).astype(np.float32)}
(want,) = result.run(inputs).values()
(got,) = result.run(inputs, backend="c").values()
np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
result.codegen("out")
print("all of it runs")
"""


@pytest.mark.slow
def test_everything_else_runs_without_the_shipped_backends(tmp_path: Path) -> None:
    """Deleting a backend's folder breaks nothing but its own tests."""
    hidden = shutil.ignore_patterns("__pycache__", *(p.name for p in (ROOT / "eqsat/backends").iterdir() if p.is_dir()))
    shutil.copytree(ROOT / "eqsat", tmp_path / "eqsat", ignore=hidden)
    shutil.copytree(ROOT / "rules", tmp_path / "rules")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.stdout == "all of it runs\n", done.stderr


def test_nothing_else_names_a_shipped_backend() -> None:
    files = [p for ending in ("*.py", "*.jinja") for p in (ROOT / "eqsat").rglob(ending)]
    others = [p for p in files if ROOT / "eqsat/backends/onednn" not in p.parents]
    found = {p.relative_to(ROOT).as_posix() for p in others if "onednn" in p.read_text("utf-8").lower()}
    # Examples in docstrings and help.
    assert found <= {"eqsat/api.py", "eqsat/codegen/public.py", "eqsat/result.py", "eqsat/cli/run.py"}
