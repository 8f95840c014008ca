"""The node cases of ``onnx.backend.test`` as C: many are compiled to one library and called in another process.

What decides shapes (a Reshape's shape, a reduction's axes) is an input of these one-operator models; as C is generated
for known shapes, such inputs become constants with the values of the case's first data set.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import onnx_ir as ir

from eqsat.codegen.compiler import FLAGS, find_compiler
from eqsat.codegen.emitted import Emitted
from eqsat.codegen.generate import generate
from eqsat.codegen.isa import Isa
from eqsat.errors import EqsatError
from eqsat.model.load import load
from eqsat.ops.properties import value_inputs
from eqsat.schema import opset
from eqsat.schema.types import OpKey
from tests.codegen import calling
from tests.codegen.calling import Call
from tests.codegen.ways import Way
from tests.conformance import cases

WARNINGS = ("-Wall", "-Wextra", "-Werror")
DECIDING = {"CumProd": (1,), "CumSum": (1,), "Dropout": (1, 2), "MaxUnpool": (2,)}
"""Inputs that decide what is computed but not the shape of the result."""


@dataclass
class Prepared:
    """A case as C text.

    Attributes:
        name: Of the case.
        emitted: The program.
        inputs: Arrays by name.
        expected: Outputs in order, as many as the case checks.
    """

    name: str
    emitted: Emitted
    inputs: dict[str, np.ndarray]
    expected: list[Any]


class Uncompiled(AssertionError):
    """The compiler refuses some programs of a library.

    Attributes:
        prefixes: Of the programs.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message[:4000])
        self.prefixes = set(re.findall(r"^(\w+)\.c:\d+:\d+: error", message, re.MULTILINE))


class Refused(Exception):
    """The case is not for C code, and says why."""


def pinned(graph: onnx.GraphProto) -> set[str]:
    """Inputs of a graph whose values must be known when its C is written."""
    found = set()
    for node in graph.node:
        op = OpKey(opset.canonical_domain(node.domain), node.op_type)
        for index in (*value_inputs(op), *DECIDING.get(node.op_type, ())):
            if index < len(node.input):
                found.add(node.input[index])
    return found & {value.name for value in graph.input}


def prepare(name: str, prefix: str, isas: Sequence[Isa]) -> Prepared:
    """Write a case as C.

    Raises:
        Refused: It has types that C lacks, or eqsat refuses it; the message is eqsat's.
    """
    case = cases.cases("node")[name]
    original = cases.model_of(case)
    if original.graph.ByteSize() and cases.skip_reason(case):
        raise Refused(cases.skip_reason(case))
    inputs, expected = next(iter(cases.data_sets(case, original)))
    if any(not isinstance(x, np.ndarray) or x.dtype.kind in "OUSc" for x in (*inputs, *expected)):
        raise Refused("strings, sequences, optionals or complex numbers")
    model = onnx.ModelProto()
    model.CopyFrom(original)
    given = dict(zip([value.name for value in model.graph.input], inputs, strict=False))
    for known in sorted(pinned(model.graph)):
        model.graph.initializer.append(onnx.numpy_helper.from_array(given.pop(known), known))
    kept = [value for value in model.graph.input if value.name in given]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    logging.disable(logging.WARNING)
    try:
        emitted = generate(load(model), name=prefix, isas=isas, embedded=False)
    except EqsatError as error:
        raise Refused(" ".join(str(error).split())[:300]) from error
    finally:
        logging.disable(logging.NOTSET)
    return Prepared(name, emitted, given, list(expected))


def compiled(prepared: Sequence[Prepared], way: Way) -> Path:
    """One library with all programs, warnings being errors.

    Raises:
        Uncompiled: The compiler refuses some of them.
    """
    texts = {f"{p.emitted.name}{end}": text for p in prepared for end, text in (
        (".h", p.emitted.header), (".c", p.emitted.source))}  # fmt: skip
    flags = way.all_flags(p.emitted.name for p in prepared)
    command = [*find_compiler(), *FLAGS, "-O1", *WARNINGS, *flags, "-fPIC", "-shared"]
    key = hashlib.sha256(repr((command, sorted(texts.items()))).encode()).hexdigest()[:32]
    library = Path(tempfile.gettempdir()) / f"eqsat-nodes-{os.getuid()}" / f"{key}.so"
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=library.parent) as work:
            for file, text in texts.items():
                (Path(work) / file).write_text(text, encoding="utf-8")
            sources = sorted(file for file in texts if file.endswith(".c"))
            included = _precompiled(command, Path(work)) if way.sanitize and any(isa.x86 for isa in way.isas) else []
            done = subprocess.run(
                [*command, *included, *sources, "-o", "built", "-lm"],
                cwd=work, capture_output=True, encoding="utf-8", check=False,
            )  # fmt: skip
            if done.returncode:
                raise Uncompiled(done.stderr)
            (Path(work) / "built").replace(library)
    return library


def _precompiled(command: list[str], folder: Path) -> list[str]:
    """Flags that include the intrinsics already parsed, which is most of the time that a small program takes.

    Not for other ways than those under sanitizers: it would hide that a program does not include what it needs.
    """
    (folder / "intrinsics.h").write_text("#include <immintrin.h>\n", encoding="utf-8")
    header = [*command[: command.index("-shared")], "-x", "c-header", "intrinsics.h", "-o", "intrinsics.h.gch"]
    subprocess.run(header, cwd=folder, capture_output=True, check=True)
    return ["-include", "intrinsics.h"]


def as_call(prepared: Prepared) -> Call:
    """What the entry function is called with."""
    emitted = prepared.emitted
    held = [(np.asarray(prepared.inputs[x.name]), x.size) for x in emitted.inputs]
    return Call(
        prepared.name,
        f"{emitted.name}_run",
        [x if x.dtype.itemsize == size else x.astype(np.uint8) for x, size in held],
        [(y.shape, ir.DataType[y.dtype.upper()].numpy()) for y in emitted.outputs],
        emitted.arena,
        np.array(emitted.weights),
    )


def results(library: Path, prepared: Sequence[Prepared], way: Way) -> dict[str, list[np.ndarray] | str]:
    """Outputs by case, or how the program ended."""
    return calling.apart(library, [as_call(p) for p in prepared], way.environment())


def check(prepared: Prepared, found: list[np.ndarray]) -> None:
    """Compare with what ONNX expects, by the case's own tolerances.

    Raises:
        AssertionError: It differs.
    """
    case = cases.cases("node")[prepared.name]
    cases.compare(found[: len(prepared.expected)], prepared.expected, case.rtol, case.atol)
