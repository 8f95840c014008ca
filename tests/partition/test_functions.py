"""Partitioned models run: in ONNX Runtime and in onnx.reference they give what the flat program gives, to the bit."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from eqsat.partition.functions import to_model
from eqsat.partition.regions import regions
from eqsat.partition.saved import inline
from tests.partition.plans import random_feeds, random_plan, run_ort


def same(got, expected):
    assert len(got) == len(expected)
    for a, b in zip(got, expected, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("seed", range(60))
def test_random_plans_run(seed):
    plan, flat = random_plan(seed)
    onnx.checker.check_model(flat, full_check=True)
    feeds = random_feeds(flat, seed)
    expected = run_ort(flat, feeds)

    model = to_model(plan, regions(plan), ir.from_proto(flat))
    proto = ir.to_proto(model)
    onnx.checker.check_model(proto, full_check=True)
    same(run_ort(proto, feeds), expected)
    plain = ir.to_proto(inline(model))
    onnx.checker.check_model(plain, full_check=True)
    assert not plain.functions
    same(run_ort(plain, feeds), expected)
    same(ReferenceEvaluator(plain).run(None, feeds), ReferenceEvaluator(flat).run(None, feeds))
