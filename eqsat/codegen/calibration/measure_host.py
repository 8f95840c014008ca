"""Measures the machine that this runs on, and writes what it finds into the text of a host's file.

The host's own numbers (peaks, bandwidth, launch) follow from single kernels. The numbers of the ``family`` entries,
which together give the cost of a kernel, are fitted to all kernels. Comments, conditions and expressions stay
unchanged.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx_ir as ir

from eqsat.codegen.calibration import float_probes, other_probes
from eqsat.codegen.calibration.fit import fit
from eqsat.codegen.calibration.rates import settings
from eqsat.codegen.compiler import find_compiler
from eqsat.codegen.emitted import KernelInfo
from eqsat.codegen.predict import predict, work
from eqsat.codegen.profile import measure
from eqsat.codegen.runtime import CModel
from eqsat.execute.inputs import complete_inputs
from eqsat.rules.ast import Target
from eqsat.rules.reader import read_text
from eqsat.targets.find_targets import GENERATED, load_host
from eqsat.targets.numbers import Numeral, numerals, rewritten
from eqsat.targets.validate import validate

MeasuredKernels = Sequence[tuple[KernelInfo, float]]
MeasuringProgress = Callable[[str, int, int], None]
"""Called with the thing being measured, the number of finished probes, and the number of all probes."""

_WINOGRAD = "Winograd's algorithm"
PROBES: dict[str, Callable[[], ir.Model]] = {
    "convolutions": float_probes.convolutions,
    "depthwise convolutions": float_probes.separable,
    "transposed convolutions": float_probes.transposed,
    "small convolutions": float_probes.small_convolutions,
    "attention": float_probes.transformer,
    "matrix products": float_probes.products,
    "small products": float_probes.small_products,
    "recurrent networks": float_probes.recurrent,
    "decoders": float_probes.decoders,
    "elementwise operators": float_probes.elementwise,
    "small elementwise operators": float_probes.small_elementwise,
    "first layers": other_probes.first_layers,
    "convolutions of computed weights": other_probes.computed_weights,
    "quantized convolutions": other_probes.quantized,
    "quantized products": other_probes.small_quantized,
    "loops": other_probes.loops,
    "integers and places": other_probes.integers_and_places,
    "products of other types": other_probes.other_products,
    _WINOGRAD: float_probes.tall_convolutions,
}
SECONDS, QUICK_SECONDS = 2.0, 0.2
"""CPU seconds for which each network is measured, about."""
_LEAST_RUNS, _MOST_RUNS = 7, 400
_SMALL = 8192
"""Size in bytes up to which a copy is not counted."""


@dataclass(frozen=True)
class MeasuredHost:
    """The result of measuring a machine.

    Attributes:
        target: The host as its file says.
        text: The file's text with the measured numbers.
        changes: Old and new value of each number that was measured, in the order of the file.
        measured: Kernels, of generated C or of a runtime, and their seconds.
        before: The factor within which half of the kernels were predicted with the old numbers.
        after: Likewise with the new ones.
    """

    target: Target
    text: str
    changes: Mapping[Numeral, float]
    measured: Sequence[tuple[object, float]]
    before: float
    after: float


def calibrate(
    host: str | Path = GENERATED, *, seconds: float = SECONDS, progress: MeasuringProgress | None = None
) -> MeasuredHost:
    """Measures this machine with generated C.

    Args:
        host: The host whose file is taken, by name or path.
        seconds: Of CPU time for each of the networks that are measured.
        progress: Is told how far this is.

    Raises:
        TargetError: There is no such host.
        CodegenError: There is no C compiler.
    """
    target, text = host_and_text(host)
    find_compiler()
    measured: list[tuple[KernelInfo, float]] = []
    for done, name in enumerate(PROBES):
        if progress is not None:
            progress(name, done, len(PROBES))
        measured += probe(name, seconds)
    if progress is not None:
        progress("fitting", len(PROBES), len(PROBES))
    return calibrated(target, text, measured)


def host_and_text(host: str | Path) -> tuple[Target, str]:
    """A host by its name or path, and the text of its file.

    Raises:
        TargetError: There is no such host.
    """
    target = load_host(host)
    return target, Path(target.place.file).read_bytes().decode("utf-8")


def probe(name: str, seconds: float) -> list[tuple[KernelInfo, float]]:
    """Kernels of one of the :data:`PROBES` and their seconds."""
    model = PROBES[name]()
    compiled = CModel(model, profile=True, winograd=name == _WINOGRAD)
    feeds = complete_inputs(model)
    compiled.run(feeds)
    start = time.process_time()
    compiled.run(feeds)
    once = max(time.process_time() - start, 1e-6)
    found = measure(compiled, feeds, repeat=int(np.clip(seconds / once, _LEAST_RUNS, _MOST_RUNS)))
    # Small results are handed over at the end of a run; that time belongs to memory that was not used for long.
    return [(k, taken) for k, taken in found if k.what != "Copy" or work(k.task).bytes > _SMALL]


def calibrated(target: Target, text: str, measured: MeasuredKernels) -> MeasuredHost:
    """The host's file with the numbers that follow from measured kernels.

    Args:
        target: The host as read.
        text: Of its file.
        measured: Kernels and their seconds.

    Raises:
        TargetError: The file with the new numbers is not valid.
    """
    numbers = numerals(text, target.place.file, target.name)
    own = settings(measured, [n.name for n in numbers if not n.is_let])
    found = {n: own[n.name] for n in numbers if not n.is_let and n.name in own}
    # Entries may use the host's own numbers as well, which are known by now.
    found |= fit(_with(target, found), numbers, measured)
    changes = {n: found[n] for n in numbers if n in found}
    new = rewritten(text, changes)
    after = read_again(target, new)
    return MeasuredHost(target, new, changes, measured, spread(target, measured), spread(after, measured))


def read_again(target: Target, text: str) -> Target:
    """The host of a file with new numbers.

    Raises:
        TargetError: It is not valid.
    """
    after = next(t for t in read_text(text, target.place.file).targets if t.is_host and t.name == target.name)
    validate(after)
    return after


def spread(target: Target, measured: MeasuredKernels) -> float:
    """The factor within which half of the kernels are predicted."""
    return float(np.exp(statistics.median(abs(np.log(predict(k, target) / seconds)) for k, seconds in measured)))


def _with(target: Target, found: Mapping[Numeral, float]) -> Target:
    """The target with other numbers of its own."""
    values = {n.name: value for n, value in found.items()}
    peak = tuple((dtype, values.get(f"peak {dtype}", rate)) for dtype, rate in target.peak)
    return replace(
        target,
        peak=peak,
        bandwidth=values.get("bandwidth", target.bandwidth),
        launch=values.get("launch", target.launch),
    )
