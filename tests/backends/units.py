"""A backend for tests: matrix products, sums and rectifiers, in C with a context or without one, and from Python."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eqsat.backends import Backend, Code, Kernel, Run, Writer, context_functions
from eqsat.backends.backend import Prepared

TARGET = """
target {name}
    summary "units for tests"
    peak float32 = 4e13
    bandwidth = 8e11, launch = 1e-8, dispatch = 1e-8
    link bandwidth = 4e11, latency = 1e-9
    supports {operators}
        where x.dtype == float32  because "its units compute in float32"
    composite dense : exact
        let p = MatMul(x, w)
        let s = p + b | p
        Relu(s) | s
        where const(w, b), x.rank == 2, w.rank == 2, b.rank == 1
"""
_UNITS = """
static void PREFIX_dense(const float *x, const float *w, const float *b, float *y, int m, int k, int n, int relu) {
    for (int i = 0; i < m; i++) for (int j = 0; j < n; j++) {
        float s = b == NULL ? 0.0f : b[j];
        for (int q = 0; q < k; q++) s += x[i * k + q] * w[q * n + j];
        y[i * n + j] = relu && s < 0 ? 0.0f : s;
    }
}
static void PREFIX_add(const float *a, const float *b, float *y, int n) {
    for (int i = 0; i < n; i++) y[i] = a[i] + b[i];
}
static void PREFIX_relu(const float *a, float *y, int n) { for (int i = 0; i < n; i++) y[i] = a[i] > 0 ? a[i] : 0; }
"""


class Units(Backend):
    """Executes what :data:`TARGET` says.

    Args:
        target: Its name.
        stateful: Whether its C has a context, which counts the runs that it executes and is read by ``status``.
        refused: Operators that it does not take.
        declines: Whether its C leaves all runs to portable C.
        joins: Whether kernels run at once.
        scratch: Bytes that each run fills and checks.
        free_sizes: Whether its C receives sizes.
    """

    def __init__(
        self,
        target: str = "units",
        *,
        stateful: bool = True,
        refused: Sequence[str] = (),
        declines: bool = False,
        joins: bool = True,
        scratch: int = 0,
        free_sizes: bool = False,
    ) -> None:
        self.target = target
        self.stateful = stateful
        self.refused = refused
        self.declines = declines
        self.joins = joins
        self.scratch = scratch
        self.free_sizes = free_sizes
        self.seen: list[Kernel] = []
        self.runs: list[Run] = []

    def refuse(self, kernel: Kernel) -> str:
        self.seen.append(kernel)
        return f"no {kernel.operator}" if kernel.operator in self.refused else ""

    def prepare(self, run: Run) -> Prepared:
        self.runs.append(run)

        def execute(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
            known = dict(zip(run.inputs, arrays, strict=True))
            for kernel in run.kernels:
                given = [x if x is None or isinstance(x, np.ndarray) else known[x] for x in kernel.operands]
                (result,) = kernel.results
                assert result is not None
                known[result] = _compute(kernel, given)
            return [known[tensor] for tensor in run.outputs]

        return execute

    def emit(self, writer: Writer, runs: Sequence[Run]) -> Code:
        self.runs = list(runs)
        units = _UNITS.replace("PREFIX", writer.prefix)
        used = "".join(f"(void){writer.prefix}_{unit};\n" for unit in ("dense", "add", "relu"))
        calls = []
        for run in runs:
            lines = [_call(writer, run, kernel) for kernel in run.kernels]
            if self.scratch:
                lines.insert(0, f"for (int i = 0; i < {self.scratch}; i++) scratch[i] = (unsigned char)i;")
                lines.append(f"for (int i = 0; i < {self.scratch}; i++) y0[0] += scratch[i] != (unsigned char)i;")
            if self.stateful:
                lines.insert(0, "context->executed++;")
            calls.append("return 0;" if self.declines else used + "\n".join(lines))
        context = context_functions(writer, state="long executed;") if self.stateful else ""
        return Code(
            calls,
            functions=context + units,
            stateful=self.stateful,
            scratch=[self.scratch] * len(runs) if self.scratch else (),
        )


def _compute(kernel: Kernel, x: Sequence[np.ndarray | None]) -> np.ndarray:
    if kernel.operator == "Add":
        return np.asarray(x[0]) + np.asarray(x[1])
    if kernel.operator == "Relu":
        return np.maximum(np.asarray(x[0]), np.float32(0))
    y = np.asarray(x[0]) @ np.asarray(x[1])
    if len(x) > 2 and x[2] is not None:
        y = y + x[2]
    return np.maximum(y, np.float32(0)) if kernel.names[-1] == "Relu" else y


def _call(writer: Writer, run: Run, kernel: Kernel) -> str:
    result = kernel.results[0]
    assert result is not None
    p = [writer.pointer(run, x) for x in kernel.operands]
    y, unit = writer.pointer(run, result), writer.prefix

    def size(n: int) -> str:
        return f"(int){writer.size(n)}"

    if kernel.operator == "Add":
        return f"{unit}_add({p[0]}, {p[1]}, {y}, {size(result.elements)});"
    if kernel.operator == "Relu":
        return f"{unit}_relu({p[0]}, {y}, {size(result.elements)});"
    m, n = map(size, result.shape)
    w = kernel.operands[1]
    assert w is not None
    bias = p[2] if len(p) > 2 else "NULL"
    return f"{unit}_dense({p[0]}, {p[1]}, {bias}, {y}, {m}, {w.shape[0]}, {n}, {int(kernel.names[-1] == 'Relu')});"
