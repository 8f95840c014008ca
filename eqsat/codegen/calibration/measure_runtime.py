"""Measures the kernels of ONNX Runtime on this machine, and writes the numbers of a runtime's host.

Each kernel is executed by itself, with one thread and ONNX Runtime's own optimizations: once and several times in one
run, the operands and results lying in memory that was bound beforehand. The difference is the time of the kernel
without that of the run. Kernels are measured in turn, so that what slows the machine slows all of them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx.helper import tensor_dtype_to_np_dtype

from eqsat.codegen.calibration.fit import fit_expressions
from eqsat.codegen.calibration.measure_host import PROBES, MeasuredHost, MeasuringProgress, host_and_text, read_again
from eqsat.codegen.calibration.runtime_kernels import RuntimeKernel, drawn, kernels_of
from eqsat.errors import CodegenError
from eqsat.model.load import GivenModel, load
from eqsat.model.read.dims import free_sizes
from eqsat.model.write.older import with_source_opset
from eqsat.model.write.runnable import with_runnable
from eqsat.rules.ast import Target
from eqsat.targets.kernel_cost import priced
from eqsat.targets.numbers import Numeral, numerals, rewritten, substituted

SKIPPED = ("Winograd's algorithm", "recurrent networks", "decoders")
"""Probes that say nothing of a runtime's entries."""
SMALL = "small elementwise operators"
"""Probes for the time that a kernel takes to start, needed if all kernels of the model are large."""
_AT_ONCE = 8
"""Kernels that are measured in turn."""
_COPIES = 4
_LEAST_RUNS = 5
_OF_C = 2.0
"""CPU seconds that calibration spends on a network of generated C; on a kernel here it spends a tenth of that."""
_LEAST_SECONDS = 2e-7
"""A smaller difference is noise of the clock."""

MeasuredNodes = Sequence[tuple[RuntimeKernel, float]]


def is_runtime(host: Target) -> bool:
    """Whether a host is ONNX Runtime: its composites are written as ONNX Runtime's operators."""
    return any(composite.written is not None for composite in host.composites)


def calibrate_runtime(
    host: str | Path, *, seconds: float = _OF_C, progress: MeasuringProgress | None = None, on: GivenModel | None = None
) -> MeasuredHost:
    """Measures this machine with ONNX Runtime.

    Args:
        host: The host whose file is taken, by name or path.
        seconds: Of CPU time, as for generated C; a tenth of it for each kernel.
        progress: Is told how far this is.
        on: A model whose kernels are measured, free sizes at typical values; by default small networks of all kinds.

    Raises:
        TargetError: There is no such host.
        CodegenError: ONNX Runtime is not installed.
    """
    target, text = host_and_text(host)
    _runtime()
    kernels: dict[bytes, RuntimeKernel] = {}
    names = [name for name in PROBES if name not in SKIPPED] if on is None else [SMALL]
    models = [*([] if on is None else [_sized(on)]), *(load(PROBES[name]()) for name in names)]
    for model in models:
        for kernel in kernels_of(model, target):
            kernels.setdefault(ir.to_proto(kernel.model).SerializeToString(), kernel)
    measured: list[tuple[RuntimeKernel, float]] = []
    every = list(kernels.values())
    for some in (every[i : i + _AT_ONCE] for i in range(0, len(every), _AT_ONCE)):
        if progress is not None:
            progress(some[0].name, len(measured), len(kernels))
        measured += measure_kernels(some, seconds / 10)
    if progress is not None:
        progress("fitting", len(kernels), len(kernels))
    return calibrated_runtime(target, text, measured)


def _sized(source: GivenModel) -> ir.Model:
    """A model whose free sizes are bound to typical values."""
    model = load(source)
    sizes = {name: size.typical for name, size in free_sizes(model, {}).items()}
    return load(source, dims=sizes) if sizes else model


def calibrated_runtime(target: Target, text: str, measured: MeasuredNodes) -> MeasuredHost:
    """The host's file with the numbers that follow from measured kernels.

    Args:
        target: The host as read.
        text: Of its file.
        measured: Kernels and their seconds.

    Raises:
        TargetError: The file with the new numbers is not valid.
    """
    numbers = numerals(text, target.place.file, target.name)
    changes = fit_expressions(numbers, [(kernel.cost, kernel, seconds) for kernel, seconds in measured])
    new = rewritten(text, changes)
    read_again(target, new)
    return MeasuredHost(target, new, changes, measured, _spread(measured, {}), _spread(measured, changes))


def _spread(measured: MeasuredNodes, changes: dict[Numeral, float]) -> float:
    """The factor within which half of the kernels are predicted."""
    values = {number.place: value for number, value in changes.items()}
    off = [
        abs(np.log(max(priced(substituted(k.cost, values), k.env, k.name), 1e-12) / seconds)) for k, seconds in measured
    ]
    return float(np.exp(statistics.median(off))) if off else 1.0


# ---- measuring -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Run:
    """A session with its operands and results bound."""

    session: Any
    binding: Any

    def seconds(self) -> float:
        start = time.thread_time()
        self.session.run_with_iobinding(self.binding)
        return time.thread_time() - start


def measure_kernels(kernels: Sequence[RuntimeKernel], seconds: float) -> list[tuple[RuntimeKernel, float]]:
    """Kernels and their seconds, without those that ONNX Runtime does not load.

    Args:
        kernels: Measured in turn.
        seconds: Of CPU time for each, about.
    """
    pairs = [(kernel, pair) for kernel in kernels if (pair := _pair(kernel)) is not None]
    taken: list[list[float]] = [[] for _ in pairs]
    for _, (one, several) in pairs:
        one.seconds()
        several.seconds()
    end = time.thread_time() + seconds * len(pairs)
    runs = 0
    while runs < _LEAST_RUNS or time.thread_time() < end:
        for (_, (one, several)), found in zip(pairs, taken, strict=True):
            first = one.seconds()
            found.append((several.seconds() - first) / _COPIES)
        runs += 1
    medians = [statistics.median(found) for found in taken]
    return [(kernel, m) for (kernel, _), m in zip(pairs, medians, strict=True) if m > _LEAST_SECONDS]


def _pair(kernel: RuntimeKernel) -> tuple[_Run, _Run] | None:
    """The model with the kernel once, and with as many copies as are measured; None if ONNX Runtime cannot load it."""
    proto = ir.to_proto(with_source_opset(with_runnable(kernel.model)))
    try:
        return _session(proto, kernel, 1), _session(proto, kernel, 1 + _COPIES)
    except Exception:  # ONNX Runtime may raise anything, and its own exceptions have no common base
        return None


def _session(proto: onnx.ModelProto, kernel: RuntimeKernel, copies: int) -> _Run:
    runtime = _runtime()
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    repeated = _repeated(proto, copies)
    session = runtime.InferenceSession(repeated.SerializeToString(), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for name, array in drawn(kernel.model).items():
        for i in range(copies):
            binding.bind_ortvalue_input(f"{i}{name}", runtime.OrtValue.ortvalue_from_numpy(array.copy()))
    for value in repeated.graph.output:
        shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
        dtype = tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        binding.bind_ortvalue_output(value.name, runtime.OrtValue.ortvalue_from_shape_and_type(shape, dtype))
    return _Run(session, binding)


def _repeated(proto: onnx.ModelProto, copies: int) -> onnx.ModelProto:
    """A model that computes the same several times, from operands of its own each time."""
    found = onnx.ModelProto()
    found.CopyFrom(proto)
    for part in ("node", "input", "output", "initializer", "value_info"):
        del getattr(found.graph, part)[:]
    for i in range(copies):
        for node in proto.graph.node:
            made = found.graph.node.add()
            made.CopyFrom(node)
            made.name = f"{i}{node.name}"
            made.input[:] = [f"{i}{name}" if name else "" for name in node.input]
            made.output[:] = [f"{i}{name}" if name else "" for name in node.output]
        for part in ("input", "output", "initializer"):
            for value in getattr(proto.graph, part):
                made = getattr(found.graph, part).add()
                made.CopyFrom(value)
                made.name = f"{i}{value.name}"
    return found


def _runtime() -> Any:
    try:
        import onnxruntime
    except ImportError:
        raise CodegenError("ONNX Runtime is required to measure its kernels", hint="pip install onnxruntime") from None
    return onnxruntime
