"""How the C of these tests is compiled."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from eqsat.codegen import compiler
from tests.codegen.kernels.kernel_cases import QUICK


@pytest.fixture(autouse=True, scope="module")
def optimization() -> Iterator[None]:
    """As quickly as can be, since values are what counts; a module about what users get has a fixture of its own.

    What a compiler makes of a loop at ``-O3`` is its own affair, and takes it four times as long.
    """
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(compiler, "FLAGS", tuple(QUICK if flag == "-O3" else flag for flag in compiler.FLAGS))
        yield
