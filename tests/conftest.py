"""Drawn examples are the same on every run, and no test fails because the machine is slow.

``make fuzz`` draws others. Garbage collections leave out what was imported and collected before the first test, which
saves a twelfth of the time of all tests.
"""

import gc

from hypothesis import settings

settings.register_profile("eqsat", derandomize=True, deadline=None)
settings.load_profile("eqsat")


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)
