"""A cache of eqsat's own that is empty, so that times are those of a first run."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def fresh_cache() -> Iterator[None]:
    """Nothing that was kept before is found in the block, and nothing is left of what is kept there."""
    before = os.environ.get("EQSAT_CACHE")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["EQSAT_CACHE"] = folder
        try:
            yield
        finally:
            if before is None:
                del os.environ["EQSAT_CACHE"]
            else:
                os.environ["EQSAT_CACHE"] = before
