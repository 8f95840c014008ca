"""Whole models: loading and saving changes no value, no name, and leaves no type open."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.backend.test
import onnx_ir as ir
import pytest

from benchmarks.models import LIGHT, light, light_path
from eqsat.model.inference.annotate import tensor_type
from eqsat.model.load import load
from eqsat.model.normalize import complete
from eqsat.model.save import save
from eqsat.schema import opset
from eqsat.schema.attributes import op_key, to_attrs
from tests.model.node_cases import as_array, cases
from tests.model.running import random_inputs, run_ort, run_reference

DATA = Path(onnx.backend.test.__file__).parent / "data"
SMALL = sorted(
    p for kind in ("simple", "pytorch-converted", "pytorch-operator") for p in (DATA / kind).glob("*/model.onnx")
)


def _require_normal(model: ir.Model) -> None:
    """Every value has its type, every node its normal form, and nothing is unused."""
    assert model.opset_imports[""] == opset.PINNED_OPSET
    assert model.ir_version == opset.IR_VERSION
    read = {v for node in ir.traversal.RecursiveGraphIterator(model.graph) for v in node.inputs}
    assert all(v in read or v.is_graph_output() for v in model.graph.initializers.values())
    assert not any(v.is_initializer() for v in model.graph.inputs)
    for node in model.graph:
        assert node.op_type != "Constant" or node.domain
        types = [None if v is None else tensor_type(v) for v in node.inputs]
        attrs = to_attrs(node)
        assert complete(op_key(node), attrs, types, len(node.outputs)) == attrs, node


@pytest.mark.parametrize("name", LIGHT)
def test_light_networks_as_they_are(name: str) -> None:
    path = light_path(name)
    original = onnx.load(path)
    model = load(path)
    _require_normal(model)
    for node in model.graph:
        for value in node.outputs:
            known = tensor_type(value)
            assert known is not None and known.is_static, value
    weights = {t.name for t in original.graph.initializer}
    assert [v.name for v in model.graph.inputs] == [i.name for i in original.graph.input if i.name not in weights]
    assert [v.name for v in model.graph.outputs] == [o.name for o in original.graph.output]
    # The upgrade replaces no tensor of these networks, and none may lose its name.
    before = {o for node in original.graph.node for o in node.output}
    after = {v.name for node in model.graph for v in node.outputs}
    spare = {
        o for node in original.graph.node if node.op_type in ("Dropout", "BatchNormalization") for o in node.output[1:]
    }
    assert before - after <= spare


@pytest.mark.slow
@pytest.mark.parametrize("name", ["shufflenet", "squeezenet", "resnet50"])
def test_light_networks_compute_the_same(name: str, tmp_path: Path) -> None:
    original = light(name)
    feed = random_inputs(original)
    model = load(original)
    _require_normal(model)
    path = tmp_path / "model.onnx"
    save(model, path)
    expected = run_ort(original, feed)
    for found in (run_ort(model, feed), run_ort(onnx.load(path), feed)):
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)
    again = tmp_path / "again.onnx"
    save(load(path), again)
    assert again.read_bytes() == path.read_bytes()


def _stored(folder: Path, count: int, what: str) -> list[np.ndarray]:
    files = [folder / f"{what}_{i}.pb" for i in range(count)]
    return [onnx.numpy_helper.to_array(onnx.TensorProto.FromString(f.read_bytes())) for f in files]


@pytest.mark.parametrize("path", SMALL, ids=lambda p: p.parent.name)
def test_exported_models_compute_what_is_stored(path: Path, tmp_path: Path) -> None:
    """Opsets 6 to 13, old forms of initializers, Sequence and control flow among them."""
    original = onnx.load(path)
    values = (*original.graph.input, *original.graph.output)
    foreign = any(node.op_type in ("Gradient", "StringNormalizer") for node in original.graph.node)
    if foreign or any(v.type.WhichOneof("value") != "tensor_type" for v in values):
        load(path)  # no runtime here has a kernel, the locale or the files for them
        return
    constants = {t.name for t in original.graph.initializer}
    names = [i.name for i in original.graph.input]
    folder = path.parent / "test_data_set_0"
    count = len(list(folder.glob("input_*.pb")))
    fed = names if count == len(names) else [n for n in names if n not in constants]
    given = dict(zip(fed, _stored(folder, count, "input"), strict=True))
    expected = _stored(folder, len(original.graph.output), "output")
    model = load(path)
    _require_normal(model)
    assert [v.name for v in model.graph.outputs] == [o.name for o in original.graph.output]
    save(model, tmp_path / "saved.onnx")
    feed = {v.name: given[v.name] for v in model.graph.inputs if v.name}
    found = run_ort(onnx.load(tmp_path / "saved.onnx"), feed)
    for a, b, value in zip(found, expected, model.graph.outputs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
        known = tensor_type(value)
        assert known is not None and known.dtype.numpy() == a.dtype
        assert known.shape is None or all(
            d == n for d, n in zip(known.shape, a.shape, strict=True) if isinstance(d, int)
        )


def test_node_cases_compute_the_same() -> None:
    """Every operator once: its first case, by ``onnx.reference`` before and after."""
    seen = set()
    compared = 0
    for case in cases():
        if case.op in seen or not case.is_tensors or case.op.domain not in ("", "ai.onnx.ml"):
            continue
        seen.add(case.op)
        if case.op.name in ("Bernoulli", "Dropout", "ImageDecoder", "RandomNormalLike", "RandomUniformLike"):
            continue  # random, or in need of an image library
        model = load(case.model)
        _require_normal(model)
        feed = {n: a for n, v in case.values.items() if (a := as_array(v)) is not None}
        expected = [as_array(case.expected[o.name]) for o in case.model.graph.output]
        if any(e is None for e in expected):
            continue
        kept = {v.name for v in model.graph.inputs}
        found = run_reference(model, {n: a for n, a in feed.items() if n in kept})
        for a, b in zip(found, expected, strict=True):
            assert b is not None
            if b.dtype.kind in "OUS":
                assert a.astype(str).tolist() == b.astype(str).tolist(), case.name
            else:
                np.testing.assert_allclose(
                    a.astype(np.float64) if a.dtype.kind not in "biufc" else a,
                    b.astype(np.float64) if b.dtype.kind not in "biufc" else b,
                    rtol=1e-3,
                    atol=1e-7,
                    err_msg=case.name,
                )
        compared += 1
    assert compared > 150
