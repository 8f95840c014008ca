"""``make wheel-test``: build the wheel, install it into a fresh environment and use it from another folder.

A checkout finds its rules in ``rules/``, an installed package inside itself; only an installation shows whether the
wheel has everything. ``--short`` borrows the dependencies of the running environment instead of installing them.
``make pythons`` does it with all dependencies under each version of Python that this machine has.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent

USE = """
import sys
from pathlib import Path

import numpy as np

import eqsat
from eqsat.rules.location import rules_dir

here = Path(eqsat.__file__).parent
assert Path(sys.prefix) in here.parents, f"eqsat comes from {here}"
assert rules_dir() == here / "_rules", rules_dir()
x = eqsat.input("x", (4, 8))
y = eqsat.input("y", (4, 8))
model = eqsat.graph((x + y) * (x - y))
eqsat.save(model, "small.onnx")
result = eqsat.optimize("small.onnx", targets=["ccompiler"])
result.save("out.onnx")
arrays = {n: np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32) for n in "xy"}
(value,) = result.run(arrays).values()
np.testing.assert_allclose(value, (arrays["x"] + arrays["y"]) * (arrays["x"] - arrays["y"]), rtol=1e-4, atol=1e-5)
"""


def main() -> None:
    """Build, install, use."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="borrow the installed dependencies")
    parser.add_argument("--under", nargs="+", metavar="PYTHON", help="interpreters; those not here are left out")
    options = parser.parse_args()
    if options.under and options.short:
        parser.error("--under installs the dependencies of each interpreter: it excludes --short")
    pythons = found(options.under) if options.under else [sys.executable]
    with tempfile.TemporaryDirectory() as name:
        wheel = build(Path(name))
        check_content(wheel)
        for i, python in enumerate(pythons):
            folder = Path(name) / str(i)
            folder.mkdir()
            installed = install(wheel, folder, options.short, python)
            use(installed, folder)
            step(f"{wheel.name} is complete and works under Python {version(installed)}")


def found(names: list[str]) -> list[str]:
    """The interpreters that run here."""
    here: list[str] = []
    for name in names:
        try:
            version(name)
        except (OSError, subprocess.CalledProcessError):
            step(f"{name} is not here and is left out")
        else:
            here.append(name)
    return here or sys.exit("none of these interpreters is here: make pythons PYTHONS='PATH ...'")


def version(python: str | Path) -> str:
    """Of an interpreter, such as ``"3.12.1"``."""
    ask = "import platform; print(platform.python_version())"
    return subprocess.check_output([python, "-c", ask], encoding="utf-8", stderr=subprocess.DEVNULL).strip()


def build(folder: Path) -> Path:
    """The wheel, built from the checkout without touching it."""
    step("building")
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder / "dist", ROOT)
    (wheel,) = (folder / "dist").glob("eqsat-*.whl")
    return wheel


def check_content(wheel: Path) -> None:
    """Every data file of the checkout is in the wheel, and nothing that belongs to development."""
    names = zipfile.ZipFile(wheel).namelist()
    wanted = {p.relative_to(ROOT).as_posix() for p in (ROOT / "eqsat").rglob("*") if p.is_file()}
    wanted |= {"eqsat/_rules/" + p.relative_to(ROOT / "rules").as_posix() for p in (ROOT / "rules").rglob("*.*")}
    wanted = {n for n in wanted if "__pycache__" not in n and not Path(n).name.startswith(".")}
    missing = wanted - set(names)
    assert not missing, f"the wheel lacks {sorted(missing)}"
    strangers = [n for n in names if n.split("/")[0] != "eqsat" and ".dist-info/" not in n]
    assert not strangers, f"the wheel contains {strangers}"
    assert any(n.endswith("licenses/LICENSE") for n in names), "the wheel lacks the licence"
    description = zipfile.ZipFile(wheel).read(next(n for n in names if n.endswith(".dist-info/METADATA"))).decode()
    assert "# eqsat" in description, "the wheel lacks the README"
    relative = re.findall(r"(?:\]\(|src=\")(?![a-z]+:|#)[^)\"]*", description)
    assert not relative, f"on a package index these lead nowhere: {relative}"


def install(wheel: Path, folder: Path, short: bool, base: str = sys.executable) -> Path:
    """The interpreter of a fresh environment of ``base`` with the wheel in it."""
    step("installing, with the dependencies of this environment" if short else "installing, with all dependencies")
    environment = folder / "venv"
    run(base, "-m", "venv", environment)
    python = environment / "bin" / "python"
    if short:
        # A plain path: the .pth files in it, such as that of an editable eqsat, are not followed.
        here = sysconfig.get_path("purelib")
        site = subprocess.check_output(
            [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], encoding="utf-8"
        ).strip()
        (Path(site) / "borrowed.pth").write_text(here + "\n", "utf-8")
        run(python, "-m", "pip", "install", "-q", "--no-deps", "--disable-pip-version-check", wheel)
    else:
        run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", wheel)
    return python


def use(python: Path, folder: Path) -> None:
    """The library and the command line, from a folder that is not a checkout."""
    step("using")
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    run(python, "-c", USE, cwd=elsewhere)
    program = python.parent / "eqsat"
    for arguments in (
        ["--version"],
        ["targets", "list"],
        ["rules", "list"],
        ["optimize", "small.onnx", "-t", "ccompiler", "-o", "again.onnx", "--report", "report.html"],
        ["compare", "small.onnx", "again.onnx"],
    ):
        run(program, *arguments, cwd=elsewhere)


def run(*command: str | Path, cwd: Path | None = None) -> None:
    """Run a command without this checkout on its path; show what it printed if it fails."""
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run([str(c) for c in command], cwd=cwd, env=environment, encoding="utf-8", capture_output=True)
    if done.returncode:
        shown = " ".join(str(c) for c in command[:4])
        sys.exit(f"{shown} ... failed with {done.returncode}\n{done.stdout}{done.stderr}")


def step(what: str) -> None:
    """Say what happens now, at once also into a pipe."""
    print(f"wheel: {what}", flush=True)


if __name__ == "__main__":
    main()
