"""A partitioned program against the flat one, in every runtime."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.inliner
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator

from eqsat.partition.plan import Plan
from eqsat.partition.regions import regions
from eqsat.partition.saved import inline
from eqsat.partition.write_plan import to_model
from tests.partition.plans import random_feeds, run_ort


def same(got, expected):
    assert len(got) == len(expected)
    for a, b in zip(got, expected, strict=True):
        if isinstance(a, list):
            same(a, b)
            continue
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def partition(plan: Plan, flat: onnx.ModelProto) -> tuple[ir.Model, onnx.ModelProto]:
    """The partitioned model after every check that does not depend on values."""
    original = ir.from_proto(flat)
    before = ir.to_proto(original).SerializeToString(deterministic=True)
    model = to_model(plan, regions(plan), original)
    proto = ir.to_proto(model)
    assert ir.to_proto(original).SerializeToString(deterministic=True) == before, "the original was changed"
    onnx.checker.check_model(proto, full_check=True)
    assert [v.name for v in proto.graph.input] == [v.name for v in flat.graph.input]
    assert [v.type for v in proto.graph.input] == [v.type for v in flat.graph.input]
    assert [v.name for v in proto.graph.output] == [v.name for v in flat.graph.output]
    again = ir.to_proto(ir.from_proto(proto))
    for written, read in zip(proto.functions, again.functions, strict=True):
        # onnx_ir does not read the types of a function's inputs back.
        del read.value_info[:]
        read.value_info.extend(written.value_info)
    assert again.SerializeToString(deterministic=True) == proto.SerializeToString(deterministic=True)
    return model, proto


def check(plan: Plan, flat: onnx.ModelProto, *, seed: int = 0, reference: bool = True) -> ir.Model:
    """Compares a partitioned program with the flat one in both runtimes, with and without ONNX Runtime's optimizer."""
    model, proto = partition(plan, flat)
    feeds = random_feeds(flat, seed)
    expected = run_ort(flat, feeds)
    same(run_ort(proto, feeds), expected)
    same(run_ort(proto, feeds, optimize=True), run_ort(flat, feeds, optimize=True))
    plain = ir.to_proto(inline(model))
    onnx.checker.check_model(plain, full_check=True)
    same(run_ort(plain, feeds), expected)
    same(run_ort(onnx.inliner.inline_local_functions(proto), feeds), expected)
    if reference:
        stated = ReferenceEvaluator(flat).run(None, feeds)
        same(ReferenceEvaluator(proto).run(None, feeds), stated)
        same(ReferenceEvaluator(plain).run(None, feeds), stated)
    return model


def parsed(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 13, opset_import: ["" : 26]>\n{text}')


def accelerate(*ops: str):
    """Puts the named operators on the first accelerator."""
    return lambda node: int(node.op_type in ops)
