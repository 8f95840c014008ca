"""Drawn examples are the same on every run, and no test fails because the machine is slow.

``make fuzz`` draws others. Garbage collections leave out what was imported and collected before the first test, which
saves a twelfth of the time of all tests.
"""

import gc
import zlib

import pytest
from hypothesis import settings

settings.register_profile("eqsat", derandomize=True, deadline=None)
settings.load_profile("eqsat")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--one-in", type=int, default=1, metavar="N", help="of the cases of each test, the first and about one in N"
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves cases out, the same ones on every run and by every worker. The first one keeps each test in use."""
    share: int = config.getoption("--one-in")
    if share < 1:
        raise pytest.UsageError(f"--one-in: a number of 1 or more is required, got {share}")
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    tests: set[str] = set()
    for item in items:
        test = item.nodeid.partition("[")[0]
        whole = test not in tests or item.get_closest_marker("every_case") is not None
        takes = whole or zlib.crc32(item.nodeid.encode()) % share == 0
        (kept if takes else left_out).append(item)
        tests.add(test)
    if left_out:
        items[:] = kept
        config.hook.pytest_deselected(items=left_out)


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)
