"""Orders the kernels of a region for execution, in as few runs as their dependences allow."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

from eqsat.backends.backend import Backend

K = TypeVar("K")


def as_a_whole(backend: Backend, reasons: Mapping[K, str]) -> dict[K, str]:
    """Why each kernel is not taken, empty if it is; a backend that takes whole regions takes all of them or none."""
    if not backend.whole or not any(reasons.values()):
        return dict(reasons)
    return {kernel: reason or "its region is executed as a whole" for kernel, reason in reasons.items()}


def alternating(
    order: Sequence[K], waits: Mapping[K, Collection[K]], taken: Collection[K], *, joins: bool = True
) -> list[tuple[list[K], bool]]:
    """Kernels in an order that alternates as seldom as possible between those that are taken and the others.

    Args:
        order: All kernels, in an order of execution.
        waits: What each of them needs to have been executed.
        taken: Those that the backend executes.
        joins: Whether several of these are one run.

    Returns:
        Kernels that are executed one after the other, and whether the backend executes them.
    """
    runs: list[tuple[list[K], bool]] = []
    pending = list(order)
    done: set[K] = set()
    kind = any(k in taken and not waits[k] for k in pending)
    while pending:
        run: list[K] = []
        for k in pending:
            if (k in taken) == kind and done.issuperset(waits[k]):
                run.append(k)
                done.add(k)
        pending = [k for k in pending if k not in done]
        if run:
            runs += [(run, kind)] if joins or not kind else [([k], True) for k in run]
        kind = not kind
    return runs
