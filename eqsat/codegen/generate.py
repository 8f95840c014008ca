"""The pipeline of code generation: a model becomes the text of a C program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Unpack

import onnx_ir as ir

from eqsat.arguments import with_options
from eqsat.backends.backend import Backend
from eqsat.backends.coverage import Coverage
from eqsat.backends.find_backends import without_regions
from eqsat.codegen.assign import Unavailable
from eqsat.codegen.c_names import check_prefix
from eqsat.codegen.emit import emit
from eqsat.codegen.emitted import Emitted
from eqsat.codegen.found_sizes import SizeLimits
from eqsat.codegen.generation_options import Generation, ProgramOptions
from eqsat.codegen.isa import ALL, Isa
from eqsat.codegen.kernels.shared.families import Declined, without
from eqsat.codegen.planned import Choices, choose, plan_program
from eqsat.codegen.sharing import Sharing
from eqsat.errors import CodegenError
from eqsat.execute.settle import settled
from eqsat.model.inference.allowed_sizes import allowed_sizes
from eqsat.model.load import load
from eqsat.model.read.dims import following_option, free_sizes
from eqsat.model.read.given_sizes import GivenSize, split
from eqsat.model.symbols import by_known_names, symbols
from eqsat.partition.saved import without_parts
from eqsat.schema.free_sizes import FreeSize
from eqsat.schema.symbol import Symbol
from eqsat.simplify.passes import simplified
from eqsat.targets.find_targets import GENERATED, load_host

MOST_THREADS = 1024


@with_options(Generation, ProgramOptions)
def generate(
    model: ir.Model,
    *,
    name: str = "model",
    isas: Sequence[Isa] = ALL,
    embedded: bool = True,
    backends: Mapping[str, Backend] | None = None,
    unavailable: Unavailable | None = None,
    **given: Unpack[Generation],
) -> Emitted:
    """Writes a model as C.

    Args:
        model: As loaded, partitioned or not; it is not changed.
        name: Prefix of all names that the program defines.
        isas: Instruction sets to write kernels for.
        embedded: Whether the weights are part of the program, or loaded by it.
        backends: The backends that execute regions, by target; see :func:`eqsat.backends.find_backends.chosen`.
        unavailable: Kernels that a backend is known to lack on this machine.
        given: See :class:`~eqsat.codegen.generation_options.ProgramOptions`.

    Raises:
        CodegenError: The model has operators, types or sizes that cannot become C; all are listed.
        TargetError: There is no such host.
        BackendError: A backend fails.
    """
    options = ProgramOptions(**given)
    check_prefix(name)
    check_threads(options.threads)
    model, backends = without_parts(model), backends or {}
    known, ranges = _known(model, options.dims)
    sizes, limits = _sizes(known, ranges)
    choices = Choices(
        load_host(GENERATED if options.host is None else options.host),
        options.select,
        "approximate" if options.winograd else options.numerics,
        backends,
        unavailable or {},
        sizes,
        limits,
    )
    greatest = {Symbol(symbol, size).c_name: size.most or 0 for symbol, size in sizes.items()}
    sharing = Sharing(options.threads, choices.host, greatest) if options.threads > 1 else None
    chosen, declined = choose(known, choices), frozenset()
    while True:
        try:
            with without(declined):
                planned = plan_program(chosen, choices)
                emitted = emit(planned.program, planned.layout, name, tuple(isas), embedded=embedded, sharing=sharing)
            break
        except Declined as refusal:
            # With the operands where they lie, the family needs to know sizes: the next one takes the task.
            declined |= {refusal.key}
    free_sizes(known, {name: ranges[name] for name in limits.most.keys() - limits.used})  # Refuses other names.
    emitted.coverage = {**planned.coverage, **_without_regions(model, backends)}
    emitted.selection = planned.selection
    return emitted


def _known(model: ir.Model, dims: Mapping[str, GivenSize] | None) -> tuple[ir.Model, dict[str, FreeSize]]:
    """The model at the sizes that are bound, with simpler control flow, and the ranges of the others."""
    bound, ranges = split(dims)
    known = simplified(settled(load(model, dims=bound) if bound else model))
    return _in_terms_of_others(known, by_known_names(ranges, known))


def _sizes(model: ir.Model, ranges: Mapping[str, FreeSize]) -> tuple[dict[str, FreeSize], SizeLimits]:
    """The sizes that the program receives, and the bounds of those that data decides."""
    said = {name: size.most for name, size in ranges.items() if name not in symbols(model) and size.most}
    sizes = received_sizes(model, {name: size for name, size in ranges.items() if name not in said})
    return sizes, SizeLimits(said, allowed_sizes(model, sizes))


def _without_regions(model: ir.Model, backends: Mapping[str, Backend]) -> dict[str, Coverage]:
    """Messages about backends that have nothing to execute, by target."""
    notes = {target: (backend, without_regions(model, backend)) for target, backend in sorted(backends.items())}
    return {t: Coverage(0, (), backend.library or t, note) for t, (backend, note) in notes.items() if note}


def _in_terms_of_others(model: ir.Model, ranges: dict[str, FreeSize]) -> tuple[ir.Model, dict[str, FreeSize]]:
    """The model without sizes that can be nothing but what other sizes make them: the program does not receive them."""
    given = {name: size for name, size in ranges.items() if name in symbols(model)}
    forced = {name: size.follows for name, size in free_sizes(model, given).items() if size.follows and size.forced}
    if not forced:
        return model, ranges
    return load(model, dims=forced), {name: size for name, size in ranges.items() if name not in forced}


def check_threads(threads: object) -> None:
    """Raises an error unless the program can have this number of threads.

    Raises:
        CodegenError: It cannot.
    """
    if isinstance(threads, bool) or not isinstance(threads, int) or not 1 <= threads <= MOST_THREADS:
        raise CodegenError(
            f"a whole number from 1 to {MOST_THREADS} is required", place="threads", actual=repr(threads)
        )


def received_sizes(model: ir.Model, ranges: Mapping[str, FreeSize]) -> dict[str, FreeSize]:
    """The sizes that a program receives.

    Raises:
        CodegenError: One has no upper bound, without which there is no size of the arena.
    """
    found = free_sizes(model, ranges)
    missing = [name for name, size in found.items() if size.most is None]
    if missing:
        options = " ".join(_option(name, found[name]) for name in missing)
        raise CodegenError(
            "a size, or a range with an upper bound, is required for each symbolic dimension",
            place=f"model {model.graph.name or 'model'!r}",
            actual=f"{', '.join(f'`{name}`' for name in missing)} without one",
            hint=f"give it, such as {options}",
        )
    return found


def _option(name: str, size: FreeSize) -> str:
    """How to pass a size, ready to copy: an expression if it follows from others, otherwise a range."""
    following = following_option(name, size.follows) if size.follows else ""
    return following or f"--dim {name}={size.least}..{4 * size.typical}@{size.typical}"
