"""The interface of a backend: its methods, in the order in which they are called."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.backends.code import Code, Writer
from eqsat.backends.region import Kernel, Region, Run
from eqsat.errors import BackendError
from eqsat.schema.size import Undecided

Prepared = Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]]
"""Executes a run: arrays of its inputs in, arrays of its outputs out."""


@dataclass(frozen=True, slots=True)
class Primitive:
    """A step that a library executes in a run of the program.

    Attributes:
        kernel: Name of its kernel in the model; empty for a conversion between layouts.
        implementation: The library's name for it, such as ``brgconv:avx512_core``.
    """

    kernel: str
    implementation: str

    @property
    def is_reorder(self) -> bool:
        return not self.kernel


@dataclass(frozen=True, slots=True)
class Loaded:
    """A compiled program in this process, for a backend.

    Attributes:
        ffi: cffi's object with the declarations of :attr:`Code.declarations`.
        library: Functions by name; those of the backend begin with ``prefix``.
        prefix: Such as ``model_npu``.
        context: Context of the backend, initialized.
        runs: Number of the backend's runs in the program.
    """

    ffi: Any
    library: Any
    prefix: str
    context: Any
    runs: int

    def text(self, pointer: Any) -> str:
        """A string of C."""
        return self.ffi.string(pointer).decode("utf-8", "replace")


class Backend:
    """Executes the regions of one target: from Python, in generated C, or both.

    A subclass overrides the methods that it supports. Kernels that it refuses run with numpy or in portable C.

    Attributes:
        target: Name of the target whose regions it executes.
        library: Name of the library that executes them, for reports; the target's name by default.
        joins: Whether neighbouring kernels that it takes form one run; otherwise each kernel is a run.
        whole: Whether it takes a region as a whole or not at all.
        free_sizes: Whether its C supports sizes that the program receives as arguments. Dimensions are then
            expressions, see :attr:`Tensor.shape`. Other backends get no region with such sizes in C. From Python all
            sizes are numbers.
    """

    target: str = ""
    library: str = ""
    joins: bool = True
    whole: bool = False
    free_sizes: bool = False

    def refuse(self, kernel: Kernel) -> str:
        """The reason why the backend does not take a kernel; empty if it does.

        If this compares free sizes and the answer depends on them, the kernel is refused for that reason.
        """
        return ""

    def refusals(self, region: Region) -> Mapping[Kernel, str]:
        """Kernels of a region that it does not take, and why; override this if that depends on more than the kernel."""
        return {kernel: reason for kernel in region.kernels if (reason := self._reason(kernel))}

    def _reason(self, kernel: Kernel) -> str:
        try:
            return self.refuse(kernel)
        except Undecided as undecided:
            return str(undecided)

    # ---- Python ----------------------------------------------------------------------------------------

    def prepare(self, run: Run) -> Prepared | None:
        """The function that executes a run from Python; None leaves the run to numpy.

        This is called when arrays of some shapes reach the run for the first time. The function is kept for the same
        shapes.
        """
        return None

    @property
    def prepares(self) -> bool:
        """Whether it can execute regions from Python."""
        return type(self).prepare is not Backend.prepare

    # ---- C ---------------------------------------------------------------------------------------------

    def emit(self, writer: Writer, runs: Sequence[Run]) -> Code:
        """The C of all runs of a program. A backend that does not override this runs from Python only.

        Raises:
            BackendError: C is required, and the backend does not override this.
        """
        raise BackendError(
            "a backend that writes C is required",
            place=f"backend of {self.target!r}, {type(self).__name__}.emit",
            actual="a backend that does not override emit",
            hint="override emit to return eqsat.backends.Code without calling super().emit, or run it from Python",
        )

    @property
    def emits(self) -> bool:
        """Whether it can write C."""
        return type(self).emit is not Backend.emit

    def require(self, compiler: Sequence[str]) -> None:
        """Called before a program is compiled in this process.

        Args:
            compiler: Command of the C compiler.

        Raises:
            EqsatError: A library that the program is linked with is missing.
        """

    def unavailable(self, loaded: Loaded) -> Mapping[str, str]:
        """Kernels, by name, that the library cannot execute on this machine, and why."""
        return {}

    def primitives(self, loaded: Loaded) -> list[Primitive]:
        """The primitives that the library executes in a run of the program, in order, if it reports them."""
        return []
