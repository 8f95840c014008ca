"""Limits on memory, time and work of a call: they are checked before memory is allocated or work done, in every stage.

A model can ask in a few bytes for more than any machine has: a constant of 10^12 elements, a loop without an end,
functions that call each other twice. Whoever is about to compute something says how large it will be, and gets one
message instead where that is too much. Work is counted, so that the same input ends at the same place on every machine;
the clock is the last guard.

The public functions open a meter with :func:`bounded`; everything below asks :func:`current` for it.
"""

from __future__ import annotations

import gc
import math
import os
import re
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, wraps
from inspect import signature
from numbers import Real
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from eqsat.errors import LimitError, OptimizationError

NODES = 500_000
"""Operators of a model at most once its functions are inlined: where they call each other, they multiply."""
STEPS = 5_000_000
"""Operators that one execution may compute, each round of a loop counted."""
OPERATIONS = 10**13
"""Multiply-accumulates that one call may execute where it has no time limit; operators that are slower count more."""
RATE = 4 * 10**10
"""Operations per second of a time limit: the speed of a fast core."""
FREE = 1 << 20
"""Elements and operations that are not checked: less than a millisecond."""
FOLD_ELEMENTS = 1 << 24
"""Elements of a constant that is computed from others, unless the model itself has larger ones."""
FOLD_OPERATIONS = 1 << 36
"""Operations that computing one constant may take."""
GRACE = 25.0
"""Seconds beyond a limit that is kept by taking the best found so far: to load a model and to write down the result."""
GUARD = 3.0
"""Seconds until the last guard, by second of a time limit: what is done in a limit is counted as work, of which a usual
machine does as much in a fraction of these seconds."""

HELD = 1 << 16
"""Bytes of an array from which on it is worth counting."""

_P = ParamSpec("_P")
_R = TypeVar("_R")


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of one call.

    Attributes:
        memory: Bytes of tensors that are held at the same time.
        seconds: Wall-clock time, None without end.
        steps: Operators that one execution may compute.
        operations: Multiply-accumulates and the like; None for a limit that follows from the time.
    """

    memory: int
    seconds: float | None = None
    steps: int = STEPS
    operations: int | None = None


class Meter:
    """Counts the use of a call and raises if it exceeds the limits.

    Args:
        bounds: The limits.
        outer: The meter of the call around it: memory held there counts here as well.
    """

    def __init__(self, bounds: Bounds, outer: Meter | None = None) -> None:
        self.bounds = bounds
        self._outer = outer
        self._root: Meter = self if outer is None else outer._root
        end = math.inf if bounds.seconds is None else time.monotonic() + bounds.seconds
        self._deadline = end if outer is None else min(end, outer._deadline)
        self._limit = bounds.memory if outer is None else min(bounds.memory, outer._limit)
        self._held = 0
        self._steps = 0
        self._operations = 0

    @property
    def operations(self) -> int:
        """Operations that the call may execute."""
        if self.bounds.operations is not None:
            return self.bounds.operations
        seconds = self.bounds.seconds
        return OPERATIONS if seconds is None or not math.isfinite(seconds) else int(RATE * seconds)

    @property
    def steps(self) -> int:
        """Operators that were computed."""
        return self._steps

    @property
    def memory(self) -> int:
        """Bytes that may be held at the same time."""
        return self._limit

    @property
    def held(self) -> int:
        """Bytes of tensors that are held now."""
        return self._root._held

    def admit(self, size: int, operations: int = 0, place: str = "", what: str = "a result") -> None:
        """Asks for memory and work before an operator is computed.

        Raises:
            LimitError: It is more than there is left.
        """
        if size + self.held > self._limit:
            raise LimitError(
                f"{what} that fits into the memory limit of {show_bytes(self._limit)} is required",
                place=place,
                actual=show_bytes(size) + (f" beside {show_bytes(self.held)} in use" if self.held else ""),
                hint="set a larger limit with memory_limit, on the command line --memory-limit",
            )
        self._operations += operations
        if self._operations > self.operations:
            raise LimitError(
                f"at most {self.operations:.3g} operations are allowed within the time limit",
                place=place,
                actual=f"{self._operations:.3g}",
                hint="set a longer limit with time_limit, on the command line --time-limit",
            )

    def hold(self, array: Any) -> None:
        """Counts an array for as long as it lives; views and small ones are free."""
        if array.base is None and array.nbytes >= HELD:
            self._root._held += array.nbytes
            weakref.finalize(array, self._root._release, array.nbytes).atexit = False

    def _release(self, size: int) -> None:
        self._held -= size

    def step(self, count: int, place: str = "") -> None:
        """Counts operators that are about to be computed.

        Raises:
            LimitError: They are too many, or the time is over.
        """
        self._steps += count
        if self._steps > self.bounds.steps:
            raise LimitError(
                f"at most {self.bounds.steps:,} executed operators are allowed, counting each iteration of a loop",
                place=place,
                actual="more",
                hint="let the loop end sooner, or set a higher limit with steps, on the command line --steps",
            )
        if time.monotonic() > self._deadline:
            raise self._late(place)

    def check(self, place: str = "") -> None:
        """Looks at the clock.

        Raises:
            LimitError: The time is over.
        """
        if time.monotonic() > self._deadline:
            raise self._late(place)

    def _late(self, place: str) -> LimitError:
        meter: Meter | None = self
        seconds = math.inf
        while meter is not None:
            seconds = min(seconds, math.inf if meter.bounds.seconds is None else meter.bounds.seconds)
            meter = meter._outer
        return LimitError(
            "the work must end within the time limit",
            place=place,
            actual=f"more than {seconds:g} s",
            hint="set a longer limit with time_limit, on the command line --time-limit",
        )


_meter: ContextVar[Meter | None] = ContextVar("meter", default=None)


def current() -> Meter:
    """The meter of the public function that is being executed, a fresh one outside of all."""
    return _meter.get() or Meter(Bounds(default_memory()))


@contextmanager
def metered(
    *, memory: int | None = None, seconds: float | None = None, steps: int | None = None, operations: int | None = None
) -> Iterator[Meter]:
    """Opens a meter, inside of the one that is open; limits that are not given are those of the outer one.

    Steps and operations are counted anew; memory and time are also those of the meter around it.
    """
    outer = _meter.get()
    base = Bounds(default_memory()) if outer is None else outer.bounds
    given = Bounds(
        base.memory if memory is None else memory,
        base.seconds if seconds is None else seconds,
        base.steps if steps is None else steps,
        base.operations if operations is None else operations,
    )
    meter = Meter(given, outer)
    token = _meter.set(meter)
    try:
        yield meter
    finally:
        _meter.reset(token)


@contextmanager
def bounded(
    *, memory: int | str | None = None, seconds: float | None = None, steps: int | None = None, place: str = ""
) -> Iterator[Meter]:
    """A public function's meter: also turns the machine's own refusals into one message.

    Args:
        memory: Bytes, or a text such as ``"8GB"``; None for half of the machine's memory.
        seconds: Until the last guard ends it.
        steps: Operators that one execution may compute.
        place: For messages.

    Raises:
        LimitError: Memory or stack ran out all the same.
        OptimizationError: The limits are not limits.
    """
    size = None if memory is None else to_bytes(memory)
    if seconds is not None:
        check_seconds(seconds)
    if steps is not None and (isinstance(steps, bool) or not isinstance(steps, int) or steps < 1):
        raise OptimizationError("a positive number of steps is required", place="steps", actual=f"{steps!r}")
    with metered(memory=size, seconds=seconds, steps=steps) as meter:
        try:
            yield meter
        except MemoryError as error:
            raise out_of_memory(place) from error
        except RecursionError as error:
            raise too_deep(place) from error


def within_bounds(time: Callable[[float], float] = float) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Decorates a public function with the keywords ``memory_limit`` and, perhaps, ``time_limit`` and ``steps``.

    Args:
        time: The time of the last guard for a time limit.
    """

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        defaults = {name: p.default for name, p in signature(function).parameters.items()}

        @wraps(function)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            given: dict[str, Any] = {**defaults, **kwargs}
            seconds, steps = given.get("time_limit"), given.get("steps")
            if seconds is not None:
                check_seconds(seconds)
                seconds = time(seconds)
            with bounded(memory=given["memory_limit"], seconds=seconds, steps=steps):
                return function(*args, **kwargs)

        return call

    return decorate


def check_seconds(seconds: float) -> None:
    """A time limit is a finite number above zero.

    Raises:
        OptimizationError: It is not.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, Real) or not 0 < seconds < math.inf:
        raise OptimizationError(
            "a positive, finite number of seconds is required", place="time_limit", actual=f"{seconds!r}"
        )


def out_of_memory(place: str = "") -> LimitError:
    """The message for memory that the machine refused."""
    return LimitError(
        "the memory of this process does not suffice",
        place=place,
        actual=f"a limit of {show_bytes(current().memory)} for tensors",
        hint="use a smaller model or batch; --memory-limit makes eqsat use less at once",
    )


def too_deep(place: str = "") -> LimitError:
    """The message for a stack that ran out."""
    return LimitError("a less deeply nested model is required", place=place, actual="a stack overflow")


# ---- sizes ---------------------------------------------------------------------------------------

_SIZE = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*([kKMGT]?)(i?)[bB]?\s*")
_UNITS = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4}


def to_bytes(size: int | str) -> int:
    """A number of bytes, given as such or as text: ``"500MB"``, ``"8 GiB"``, ``"1.5G"``.

    Raises:
        OptimizationError: It is not a size above zero.
    """
    number = 0.0
    if isinstance(size, str):
        match = _SIZE.fullmatch(size)
        if match is not None:
            number = float(match[1]) * (1024 if match[3] else 1000) ** _UNITS[match[2]]
    elif not isinstance(size, bool) and isinstance(size, (int, float)):
        number = float(size)
    if not (math.isfinite(number) and number >= 1):
        raise OptimizationError(
            "a size in bytes above zero is required",
            place="memory_limit",
            actual=repr(size),
            hint="for example 2000000000, 500MB or 8GB",
        )
    return int(number)


def show_bytes(size: int) -> str:
    """A size for messages."""
    number, unit = float(size), 0
    while number >= 1000 and unit < 6:
        number, unit = number / 1000, unit + 1
    return f"{number:.3g} {('bytes', 'kB', 'MB', 'GB', 'TB', 'PB', 'EB')[unit]}"


@cache
def default_memory() -> int:
    """Half of the memory that this process may use: of the machine, its container, and the limits of the process."""
    known = [_physical(), *_of_container(), *_of_process()]
    return max(min(known) // 2, 1 << 20)


def _physical() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not on this system
        return 8 << 30


def _of_container() -> Iterator[int]:
    """Limits of the control groups that this process is in, and of those around them; both versions of them."""
    roots = [Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes")]
    try:
        for line in Path("/proc/self/cgroup").read_text("utf-8").splitlines():
            _, controllers, group = line.split(":", 2)
            parts = [p for p in group.split("/") if p]
            v2 = not controllers
            if not v2 and "memory" not in controllers.split(","):
                continue
            base, name = ("/sys/fs/cgroup", "memory.max") if v2 else ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            roots += [Path(base, *parts[:k], name) for k in range(1, len(parts) + 1)]
    except (OSError, ValueError):
        pass
    for path in roots:
        try:
            yield max(int(path.read_text("ascii")), 1)
        except (OSError, ValueError):  # no such group, or "max"
            continue


def _of_process() -> Iterator[int]:
    try:
        import resource
    except ImportError:  # not on this system
        return
    for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
        soft, _ = resource.getrlimit(kind)
        if soft != resource.RLIM_INFINITY:
            yield soft


@contextmanager
def without_collection() -> Iterator[None]:
    """Keeps the cycle collector from scanning all objects repeatedly while many are made and none is freed."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
