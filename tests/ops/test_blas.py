"""Threads of matrix products: one during a run, all for large products, and afterwards as many as before."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController

import eqsat
from eqsat.ops import blas
from eqsat.ops.blas import all_threads, one_thread

CONTROLLER = ThreadpoolController().select(user_api="blas")
PRODUCT = """<ir_version: 8, opset_import: ["": 17]>
g (float[SIZE, SIZE] x, float[SIZE, SIZE] y) => (float[SIZE, SIZE] z) { z = MatMul(x, y) }"""


def threads() -> int:
    return CONTROLLER.lib_controllers[0].num_threads


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    if not CONTROLLER.lib_controllers:
        pytest.skip("the matrix products of this NumPy have no threads")
    with CONTROLLER.limit(limits=2):
        if threads() != 2:
            pytest.skip("this machine has one core")
        release()
        yield


def release() -> None:
    """Lets other threads of Python change the number."""
    clear = getattr(CONTROLLER.lib_controllers[0], "clear_controlling_thread", None)
    if clear is not None:
        clear()


def test_a_run_uses_one_thread_and_a_large_product_all() -> None:
    with one_thread():
        assert threads() == 1
        with all_threads():
            assert threads() == 2
        assert threads() == 1
        with one_thread():
            assert threads() == 1
        assert threads() == 1
    assert threads() == 2


def test_a_run_that_fails_restores_them() -> None:
    with pytest.raises(ValueError, match="no"), one_thread(), all_threads():
        raise ValueError("no")
    assert threads() == 2


def test_outside_of_runs_the_number_is_that_of_the_caller() -> None:
    with one_thread():
        pass
    with CONTROLLER.limit(limits=1):
        with all_threads():
            assert threads() == 1
        assert threads() == 1


def test_runs_at_the_same_time_restore_them() -> None:
    first, second, third = threading.Event(), threading.Event(), threading.Event()
    seen: list[int] = []

    def run() -> None:
        with one_thread():
            first.set()
            second.wait()
            seen.append(threads())
        third.set()

    other = threading.Thread(target=run)
    other.start()
    first.wait()
    with one_thread():
        assert threads() == 1
        second.set()
        third.wait()
    other.join()
    assert seen == [1]
    assert threads() == 2
    with one_thread():
        assert threads() == 1


@pytest.mark.parametrize(("size", "expected"), [(8, 1), (64, 1), (512, 2)])
def test_operators_are_computed_with_as_many_as_pay(size: int, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def watching(*args: np.ndarray, **kwargs: object) -> np.ndarray:
        seen.append(threads())
        return product(*args, **kwargs)

    product = np.matmul
    monkeypatch.setattr(np, "matmul", watching)
    x = np.eye(size, dtype=np.float32)
    assert (size**3 >= blas.LARGE) == (expected == 2)
    found = eqsat.run(PRODUCT.replace("SIZE", str(size)), {"x": x, "y": x})["z"]
    np.testing.assert_array_equal(found, x)
    assert seen and set(seen) == {expected}
    assert threads() == 2
