"""``make first-hour``: what a new user does in the first hour, in a clean environment, from the wheel.

The wheel is built and installed with its dependencies (``--short`` borrows those of this environment). In an empty
folder, with nothing of the checkout on the path, the commands of the README run on a model of the user's own, and all
examples of the tutorial pages, as `tests/test_docs.py` runs them, but with the installed program.
"""

from __future__ import annotations

import argparse
import os
import shlex
import tempfile
import time
from pathlib import Path

from tests.test_docs import Block, blocks
from tests.wheel import ROOT, build, install, run, step

PAGES = (
    "README.md",
    "docs/how-it-thinks.md",
    "docs/install.md",
    "docs/optimize.md",
    "docs/report.md",
    "docs/explain.md",
    "docs/prove.md",
    "docs/quantize.md",
    "docs/targets.md",
    "docs/int8-accelerator.md",
    "docs/write-a-rule.md",
    "docs/write-a-backend.md",
    "docs/codegen.md",
    "docs/partitioned-model.md",
)

# What the README's commands name. A convolution, as users' models have; samples; a rule.
FILES = """
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

rng = np.random.default_rng(0)
w = numpy_helper.from_array(rng.standard_normal((8, 3, 3, 3)).astype(np.float32), "w")
nodes = [
    helper.make_node("Conv", ["x", "w"], ["c"], "conv_0", pads=[1, 1, 1, 1]),
    helper.make_node("Relu", ["c"], ["conv_1"]),
    helper.make_node("Relu", ["conv_1"], ["y"]),
]
shape = ["x", "y"], [(1, 3, 16, 16), (1, 8, 16, 16)]
x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in zip(*shape))
graph = helper.make_graph(nodes, "mine", [x], [y], [w])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
save(model, "model.onnx")
del model.graph.node[2]
model.graph.node[1].output[0] = "y"
save(model, "simplified.onnx")
np.save("image.npy", rng.standard_normal((1, 3, 16, 16)).astype(np.float32))
np.savez("samples.npz", x=rng.standard_normal((4, 3, 16, 16)).astype(np.float32))
Path("my.rules").write_text("rule my_rule : exact\\n    Relu(Relu(x))  =>  Relu(x)\\n")
"""
# Measures the machine for minutes.
LONG = ("eqsat targets calibrate",)


def main() -> None:
    """Build, install, follow the pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="borrow the installed dependencies, and only the README")
    short = parser.parse_args().short
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel = build(folder)
        python = install(wheel, folder, short)
        run(python, "-c", FILES, cwd=new(folder / "mine"))
        follow_readme(python, folder / "mine", prove=short)
        if not short:
            # The page on rules proves some, that on quantization compares; both say what to install.
            run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", f"{wheel}[prove]", "onnxruntime")
        for page in PAGES[:1] if short else PAGES:
            follow_page(python, ROOT / page, new(folder / Path(page).stem))
    step(f"the first hour passes, in {(time.monotonic() - begin) / 60:.1f} minutes")


def new(folder: Path) -> Path:
    """An empty folder."""
    folder.mkdir()
    return folder


def follow_readme(python: Path, folder: Path, prove: bool) -> None:
    """The README's list of commands, in order; the solver for `rules prove` is an extra."""
    for block in blocks(ROOT / "README.md", (ROOT / "README.md").read_text("utf-8")):
        for line in block.text.splitlines() if block.info[:1] == ("sh",) else ():
            command = shlex.split(line, comments=True)
            if command[:1] != ["eqsat"] or line.startswith(LONG) or (command[1:3] == ["rules", "prove"] and not prove):
                continue
            step(" ".join(command))
            run(python.parent / "eqsat", *command[1:], cwd=folder)


def follow_page(python: Path, page: Path, folder: Path) -> None:
    """The programs and commands of a page, by the harness of the documentation's tests in the installed environment."""
    step(page.relative_to(ROOT).as_posix())
    found: list[Block] = blocks(page, page.read_text("utf-8"))
    lines: list[str] = []
    for block in found:
        if not block.info or "skip" in block.info or "onednn" in block.info:
            continue
        name = next((word[5:] for word in block.info if word.startswith("file=")), None)
        if name is not None:
            lines.append(f"open({name!r}, 'w').write({block.text!r})")
        elif block.info[0] == "python" and block.text.lstrip().startswith(">>>"):
            lines.append(f"session({block.text!r})")
        elif block.info[0] == "python":
            lines.append(f"exec(compile({block.text!r}, {f'{page.name}:{block.line}'!r}, 'exec'), names)")
        elif block.info[0] == "console":
            lines += (f"shell({command!r}, {code})" for command, code in commands(block))
    (folder / "page.py").write_text(HELPERS + "\n".join(lines) + "\n", "utf-8")
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    run("env", f"PATH={path}", python, "page.py", cwd=folder)


HELPERS = """
import doctest
import subprocess

names = {"__name__": "__main__"}


def shell(command, code):
    done = subprocess.run(["bash", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8")
    assert done.returncode == code, f"$ {command}: exit code {done.returncode}\\n{done.stdout}"


def session(text):
    test = doctest.DocTestParser().get_doctest(text, names, "page", None, 0)
    doctest.DebugRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE).run(test, clear_globs=False)
    names.update(test.globs)


"""


def commands(block: Block) -> list[tuple[str, int]]:
    """The commands of a console block and the exit code of each."""
    found: list[tuple[str, int]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], 0))
        elif line.startswith("$? "):
            found[-1] = (found[-1][0], int(line[3:]))
    return found


if __name__ == "__main__":
    main()
