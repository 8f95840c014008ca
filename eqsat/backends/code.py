"""The code that a backend writes: statements for each run, and the declarations they need.

Around it eqsat writes the files of the program. For the target ``npu`` of a program ``net`` these are ``net_npu.h``,
and ``net_npu.c`` where there is something to define; both are compiled where ``NET_USE_NPU`` is defined. Each run
becomes one function ``net_npu_0``, whose body the backend gives. Of these parameters it has those that the body uses::

    context                     what init made, of type net_npu *
    x0, x1, ..., y0, y1, ...    inputs and outputs of the run
    inner                       memory for the tensors between its kernels, see Writer.pointer
    scratch                     Code.scratch bytes, aligned
    dim_n, ...                  free sizes, of type ptrdiff_t, see Writer.size
    weights                     the constants of the program, see Writer.constant
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eqsat.backends.region import RegionOperand, Run


@dataclass(frozen=True)
class Code:
    """The C of a backend's runs.

    Attributes:
        calls: Statements of each run. With a context they may ``return 0`` to leave the run to portable C.
        functions: Definitions and ``#include`` lines before them, for ``net_npu.c``.
        header: Declarations for ``net_npu.h``.
        stateful: Whether there is a context: ``functions`` define ``struct net_npu`` and the functions
            ``net_npu_init``, ``_share``, ``_free`` and ``_status``. :func:`context_functions` writes these.
        scratch: Bytes of working memory of each run; no memory if empty.
        flags: Further flags of the compiler.
        libraries: Further arguments of the linker: ``("-lnpu",)``.
        cmake: Commands for ``CMakeLists.txt`` that stand for ``libraries`` there.
        check: Statements of the checking program after ``net_npu_init``; the context is ``net_npu_context``.
        declarations: Of functions that :meth:`Backend.unavailable` and :meth:`Backend.primitives` call.
    """

    calls: Sequence[str]
    functions: str = ""
    header: str = ""
    stateful: bool = False
    scratch: Sequence[int] = ()
    flags: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    cmake: str = ""
    check: str = ""
    declarations: str = ""


class Writer(ABC):
    """The names to which the text of a backend may refer.

    Attributes:
        name: Prefix of the program: ``net``.
        prefix: Prefix of the backend's names: ``net_npu``.
        model: Name of the model, as text for comments.
    """

    name: str
    prefix: str
    model: str

    @abstractmethod
    def offset(self, array: np.ndarray) -> int:
        """Position of a constant in the weights, in bytes; each is stored once, at a multiple of 64."""

    @abstractmethod
    def constant(self, array: np.ndarray) -> str:
        """A constant as an expression of C: a pointer into ``weights``."""

    @abstractmethod
    def pointer(self, run: Run, operand: RegionOperand | None) -> str:
        """An operand or a result of a run's kernels as an expression of C.

        Inputs and outputs are the parameters of the function, constants lie in the weights, tensors between kernels in
        ``inner``, which eqsat makes as large as necessary; an absent operand is ``NULL``.
        """

    @abstractmethod
    def c_type(self, operand: RegionOperand) -> str:
        """Type of an element in C."""

    @abstractmethod
    def size(self, size: int) -> str:
        """A number or an expression of dimensions, such as ``x.shape[0] * 4``, as an expression of C.

        It is of the type ``ptrdiff_t`` where a dimension is free, see :attr:`Backend.free_sizes`; the function of the
        run receives the sizes that its statements name.
        """

    @abstractmethod
    def greatest(self, size: int) -> int:
        """The greatest value of such an expression, for :attr:`Code.scratch` and the like."""


def context_functions(writer: Writer, *, state: str = "", init: str = "", free: str = "") -> str:
    """The definition of a context and of its functions, for :attr:`Code.functions`.

    Args:
        writer: As given to the backend.
        state: Members of the struct.
        init: Statements with ``context`` and ``weights`` that fill them in; ``return`` with a number fails.
        free: Statements with ``context`` that release what they hold, also if init failed.
    """
    p, upper = writer.prefix, writer.name.upper()
    return f"""
#include <stdlib.h>

struct {p} {{
    const unsigned char *weights;
    int status;
{_indented(state)}}};

static int {p}_fill({p} *context, const unsigned char *weights) {{
    (void)context;
    (void)weights;
{_indented(init)}    return {upper}_OK;
}}

int {p}_init({p} **context, const void *weights) {{
    if (context == NULL || weights == NULL) return {upper}_NULL_ARGUMENT;
    {p} *made = calloc(1, sizeof *made);
    if (made == NULL) return {p.upper()}_OUT_OF_MEMORY;
    made->weights = weights;
    const int status = {p}_fill(made, weights);
    if (status != {upper}_OK) {{
        {p}_free(made);
        return status;
    }}
    *context = made;
    return {upper}_OK;
}}

int {p}_share({p} **context, const {p} *other) {{
    return {p}_init(context, other == NULL ? NULL : other->weights);
}}

void {p}_free({p} *context) {{
    if (context == NULL) return;
{_indented(free)}    free(context);
}}

int {p}_status({p} *context) {{
    const int status = context->status;
    context->status = {upper}_OK;
    return status;
}}
"""


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" if line else "\n" for line in text.strip("\n").splitlines())
