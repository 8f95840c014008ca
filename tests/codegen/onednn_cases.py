"""What the tests of oneDNN share: whether it is there, composites and plain operators as regions, and comparing."""

from __future__ import annotations

import os
from collections.abc import Mapping

import numpy as np
import onnx_ir as ir
import pytest

from eqsat.backends.onednn.library import INSTALL, require_onednn
from eqsat.codegen.compiler import find_compiler
from eqsat.codegen.isa import PORTABLE, SCALAR
from eqsat.codegen.runtime import CModel
from eqsat.errors import CodegenError
from eqsat.execute.executor import Executor
from tests.codegen.regions import Regions


def has_onednn() -> bool:
    """Whether programs can call oneDNN here."""
    try:
        require_onednn(find_compiler())
    except CodegenError:
        return False
    return True


REQUIRED = os.environ.get("EQSAT_REQUIRE_DNNL") == "1"
"""Set where oneDNN has to be there, as in continuous integration."""
needs_onednn = pytest.mark.skipif(not REQUIRED and not has_onednn(), reason=f"oneDNN is not installed: {INSTALL}")

FAST = ("-O0", "-DMODEL_SCALAR")
"""The portable form is not what is tested, and shall not take long to compile."""
RELATIVE = 1e-5
"""Largest difference of floats, relative to the result's largest magnitude."""
MOST_OFF = 0.05
"""How many integers may be off by one: those whose float lies between two, up to the rounding of the chain."""


def compiled(model: ir.Model) -> CModel:
    """The model with oneDNN."""
    return CModel(model, vendors=("dnnl",), isas=(PORTABLE, SCALAR), flags=FAST)


def assert_same(regions: Regions, *, refused: int = 0) -> CModel:
    """Run regions with oneDNN and with numpy, and compare.

    Args:
        regions: What to run.
        refused: How many kernels oneDNN has no primitives for.
    """
    model = regions.model()
    expected = Executor(model).run(regions.feed)
    made = compiled(model)
    coverage = made.emitted.coverage["dnnl"]
    assert len(coverage.refused) == refused, coverage.refused
    compare(expected, made.run(regions.feed))
    return made


def compare(expected: Mapping[str, np.ndarray], got: Mapping[str, np.ndarray]) -> int:
    """Floats to the tolerance, integers within one; returns how many of these are off."""
    off = 0
    assert list(expected) == list(got)
    for name, want in expected.items():
        found = got[name]
        assert found.dtype == want.dtype and found.shape == want.shape
        if want.dtype == np.float32:
            finite = np.isfinite(want)
            np.testing.assert_array_equal(np.isfinite(found), finite, err_msg=name)
            largest = float(np.abs(want[finite]).max()) if finite.any() else 0.0
            allowed = RELATIVE * max(largest, 1e-3)
            np.testing.assert_allclose(found[finite], want[finite], rtol=0, atol=allowed, err_msg=name)
        else:
            difference = np.abs(found.astype(np.int64) - want.astype(np.int64))
            assert difference.max() <= 1, (name, difference.max())
            assert (difference > 0).sum() <= max(MOST_OFF * difference.size, 2), (name, (difference > 0).sum())
            off += int((difference > 0).sum())
    return off
