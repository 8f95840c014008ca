"""Where kernel families are registered and found."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace

from eqsat.codegen.isa import AVX512, SCALAR, Isa
from eqsat.codegen.kernel import Family, GeneratedKernel, Task, View
from eqsat.schema.size import Undecided
from eqsat.schema.size_questions import any_free, greatest, may_be_zero
from eqsat.schema.types import OpKey

_FAMILIES: dict[OpKey, list[Family]] = {}
_KNOWING: dict[tuple[OpKey, str], Family] = {}
"""Families for tasks whose sizes are all numbers, by operator and name."""
_Key = tuple[str, OpKey, tuple[int, ...]]
"""A family, the operator that it computes, and the shape of the result."""
_DECLINED: ContextVar[frozenset[_Key]] = ContextVar("_DECLINED", default=frozenset())
_ARRAY = re.compile(
    r"(?:^|[;{}]) *(?!return\b)(?:\w+[ *]+)+\w+((\[[^][]*\])*\[[^][]*\bdim_[^][]*\])+(\[[^][]*\])* *[;={]", re.MULTILINE
)
"""The declaration of an array whose length depends on sizes."""


class Declined(Exception):
    """A family cannot write a kernel for free sizes at the places that its operands got.

    Attributes:
        key: The family and task that were declined.
    """

    def __init__(self, key: _Key) -> None:
        super().__init__(key)
        self.key = key


@contextmanager
def without(declined: frozenset[_Key]) -> Iterator[None]:
    """Does not ask families for tasks that they declined."""
    token = _DECLINED.set(declined)
    try:
        yield
    finally:
        _DECLINED.reset(token)


def register(family: Family, *, is_kernel: bool = True) -> Family:
    """Add a family; families of higher rank are tried first, and among equals the earlier one.

    Args:
        family: The family.
        is_kernel: Whether it writes kernels, and so accepts free sizes only if it can write one for them.
    """
    _KNOWING.update({(operator, family.name): family for operator in family.operators})
    family = _for_free_sizes(family) if is_kernel else family
    for operator in family.operators:
        entries = _FAMILIES.setdefault(operator, [])
        if any(e.name == family.name for e in entries):
            raise ValueError(f"{operator} has two families {family.name!r}")
        entries.append(family)
        entries.sort(key=lambda e: -e.rank)
    return family


def _for_free_sizes(family: Family) -> Family:
    """A family that accepts a task with free sizes if it can write the kernel without knowing them."""

    def accepts(task: Task) -> bool:
        if not _has_free_sizes(task):
            return family.accepts(task)
        if _key(family, task) in _DECLINED.get():
            return False
        try:
            if not family.accepts(task) or (family.rank and _may_sum_nothing(task)):
                return False
            family.wants(task)
            for isa in (AVX512, SCALAR):
                _checked(family.generate(task, isa))
        except Undecided:
            return False
        return True

    def generate(task: Task, isa: Isa) -> GeneratedKernel:
        if not _has_free_sizes(task):
            return family.generate(task, isa)
        try:
            return _guarded(_checked(family.generate(task, isa)), task)
        except Undecided:
            raise Declined(_key(family, task)) from None

    return replace(family, accepts=accepts, generate=generate)


def undecided(task: Task) -> str:
    """What the families of an operator would have to know about free sizes; empty if free sizes are not the reason."""
    if not _has_free_sizes(task):
        return ""
    for family in families(task.operator)[::-1]:
        known = _KNOWING[task.operator, family.name]
        try:
            if known.accepts(task):
                _checked(known.generate(task, SCALAR))
        except Undecided as reason:
            return str(reason)
    return ""


def _has_free_sizes(task: Task) -> bool:
    views = (*task.inputs, *task.outputs, *task.epilogue.operands)
    return any(isinstance(v, View) and (any_free(v.shape) or any_free(v.strides)) for v in views)


def _key(family: Family, task: Task) -> _Key:
    return family.name, task.operator, next(v.shape for v in task.outputs if v is not None)


def _checked(kernel: GeneratedKernel) -> GeneratedKernel:
    """The kernel with signed loops, as sizes are, and working memory for the greatest sizes.

    Raises:
        Undecided: Sizes are where the program has none: in a helper, or as the length of an array.
    """
    if any(re.search(r"\bdim_", helper) for helper in kernel.helpers):
        raise Undecided("a helper depends on the sizes")
    if _ARRAY.search(kernel.body):
        raise Undecided("the length of an array depends on the sizes")
    body = kernel.body.replace("for (size_t ", "for (ptrdiff_t ") if "dim_" in kernel.body else kernel.body
    return replace(kernel, body=body, scratch=greatest(kernel.scratch))


def _guarded(kernel: GeneratedKernel, task: Task) -> GeneratedKernel:
    """The kernel, which does nothing where all results are empty: few templates know sizes of zero."""
    results = [[n for n in v.shape if may_be_zero(n)] for v in task.outputs if v is not None]
    if not all(results) or any(v is not None and 0 in v.shape for v in task.outputs):
        return kernel
    tests = [" || ".join(f"{n} == 0" for n in dict.fromkeys(sizes)) for sizes in results]
    test = tests[0] if len(set(tests)) == 1 else " && ".join(f"({t})" for t in dict.fromkeys(tests))
    return replace(kernel, body=f"if ({test}) return;\n{kernel.body}")


def _may_sum_nothing(task: Task) -> bool:
    """Whether an operand may be empty where a result is not: loops get that right, faster kernels need not."""
    empty = any(isinstance(x, View) and any(map(may_be_zero, x.shape)) for x in task.inputs)
    return empty and any(v is not None and not any(map(may_be_zero, v.shape)) for v in task.outputs)


def families(operator: OpKey) -> tuple[Family, ...]:
    """All families of an operator, the most specialised first."""
    return tuple(_FAMILIES.get(operator, ()))


def find(task: Task) -> Family | None:
    """The most specialised family that can do a task, or None."""
    return next((family for family in families(task.operator) if family.accepts(task)), None)


def entry_name(family: str) -> str:
    """Name of a family in a target file: ``direct_convolution``."""
    return "".join(c if c.isalnum() else "_" for c in family.lower())


def operators() -> list[OpKey]:
    """All operators that have a family."""
    return sorted(_FAMILIES)
