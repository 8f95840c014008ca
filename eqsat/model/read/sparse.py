"""Makes sparse constants dense before anything else reads the model: no operator computes with sparse ones.

ONNX Runtime does the same. A sparse tensor lists the elements that are not zero and where they are, either by their
position in row-major order or by their coordinates.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import numpy_helper

from eqsat import bounds
from eqsat.errors import ModelError
from eqsat.model.read.sources import UncheckedModel
from eqsat.model.validate.tensor_data import check_content, check_type


def make_dense(source: UncheckedModel) -> None:
    """Replaces sparse initializers and the values of sparse Constants, in place.

    Raises:
        ModelError: A sparse tensor is not valid.
        LimitError: A dense one needs more memory than there is.
    """
    scopes: list[onnx.GraphProto | onnx.FunctionProto] = [source.proto.graph, *source.proto.functions]
    while scopes:
        scope = scopes.pop()
        if isinstance(scope, onnx.GraphProto) and scope.sparse_initializer:
            for sparse in scope.sparse_initializer:
                scope.initializer.append(_dense(sparse, sparse.values.name, source))
            del scope.sparse_initializer[:]
        for node in scope.node:
            for attribute in node.attribute:
                scopes.extend(_bodies(attribute))
                if attribute.name == "sparse_value" and node.op_type == "Constant" and node.domain in ("", "ai.onnx"):
                    value = _dense(attribute.sparse_tensor, next(iter(node.output), ""), source)
                    attribute.CopyFrom(onnx.helper.make_attribute("value", value))


def _bodies(attribute: onnx.AttributeProto) -> Iterator[onnx.GraphProto]:
    if attribute.HasField("g"):
        yield attribute.g
    yield from attribute.graphs


def _dense(sparse: onnx.SparseTensorProto, name: str, source: UncheckedModel) -> onnx.TensorProto:
    place = source.at(f"tensor {name!r}")
    for part in (sparse.values, sparse.indices):
        if part.data_location == onnx.TensorProto.EXTERNAL:
            raise ModelError(
                "a sparse tensor in the model's own file is required", place=place, actual="data in another file",
                hint="store it as a dense one",
            )  # fmt: skip
        check_type(part, place)
        check_content(part, place)
    shape = onnx.TensorProto(dims=sparse.dims, data_type=sparse.values.data_type)
    dtype = check_type(shape, place)
    count = int(np.prod(np.array(sparse.dims, object)))
    bounds.current().admit(max(1, dtype.bitwidth // 8) * count, 0, place, "a dense form of the sparse tensor")
    try:
        onnx.checker.check_sparse_tensor(sparse)
    except onnx.checker.ValidationError as error:
        raise ModelError("a valid sparse tensor is required", place=place, actual=str(error).strip()) from error
    values = numpy_helper.to_array(sparse.values)
    dense = np.zeros(tuple(sparse.dims), values.dtype) if values.dtype != object else np.full(sparse.dims, b"", object)
    at = numpy_helper.to_array(sparse.indices)
    if at.ndim == 2:
        dense[tuple(at.T)] = values
    else:
        dense.reshape(-1)[at] = values
    made = numpy_helper.from_array(dense, name)
    made.data_type = sparse.values.data_type
    return made
