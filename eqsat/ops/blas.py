"""The threads of NumPy's matrix products while a model runs: one, or all of them for a large product.

The threads of a product wait for each other. A product that takes a tenth of a millisecond gains nothing from a second
thread, and where other processes use the cores, it waits for the slowest one: then two threads take ten times as long
as one, and far more CPU time, since OpenBLAS waits in a busy loop.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

LARGE = 1 << 26
"""Multiplications of an operator from which on it uses all threads: a millisecond of one core."""


class _Threads:
    """The threads of NumPy's BLAS, which all threads of Python share: the first run decides, and the others follow."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner: int | None = None
        self._depth = 0
        self._library: Any = None
        self._given = 1

    def enter(self) -> None:
        with self._lock:
            if self._owner is None:
                self._owner = threading.get_ident()
                self._library = self._library or _library()
                self._given = self._library.num_threads if self._library else 1
                self._set(1)
            if self._is_mine():
                self._depth += 1

    def leave(self) -> None:
        with self._lock:
            if not self._is_mine():
                return
            self._depth -= 1
            if not self._depth:
                self._set(self._given)
                self._owner = None
                # By default only one thread of Python may ever change the number.
                release = getattr(self._library, "clear_controlling_thread", None)
                if release is not None:
                    release()

    def widen(self) -> None:
        """All threads, as long as a run lasts; outside of runs their number is not ours."""
        if self._is_mine():
            self._set(self._given)

    def narrow(self) -> None:
        """One thread again, as long as a run lasts."""
        if self._is_mine():
            self._set(1)

    def _is_mine(self) -> bool:
        return self._owner == threading.get_ident()

    def _set(self, count: int) -> None:
        if self._given > 1:
            self._library.set_num_threads(count)


def _library() -> Any:
    """NumPy's BLAS; None if its number of threads cannot be set."""
    from threadpoolctl import ThreadpoolController

    found = ThreadpoolController().select(user_api="blas").lib_controllers
    return next((one for one in found if "numpy" in (one.filepath or "")), found[0] if found else None)


_THREADS = _Threads()


@contextmanager
def one_thread() -> Iterator[None]:
    """Limits products to one thread, except those of :func:`all_threads`; restores the number of threads afterwards."""
    _THREADS.enter()
    try:
        yield
    finally:
        _THREADS.leave()


@contextmanager
def all_threads() -> Iterator[None]:
    """A large product, inside of :func:`one_thread`."""
    _THREADS.widen()
    try:
        yield
    finally:
        _THREADS.narrow()
