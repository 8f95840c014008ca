"""Stored tensors that do not hold what they say, or say where to find what is not theirs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from onnx import ModelProto, TensorProto, helper

from tests.hostile.case import COMMANDS, add, hostile, write


def with_weight(tensor: TensorProto, sparse: bool = False) -> ModelProto:
    tensor.name = tensor.name or "w"
    values = [helper.make_tensor_value_info("x", 1, [1]), helper.make_tensor_value_info("y", 1, None)]
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", values[:1], values[1:])
    graph.initializer.append(tensor)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _stored(name: str, dims: Sequence[int], data: bytes = bytes(16), dtype: int = TensorProto.FLOAT) -> None:
    def make() -> ModelProto:
        return with_weight(TensorProto(name="w", dims=dims, data_type=dtype, raw_data=data))

    make.__name__ = name
    hostile("optimize", "run", refused=True)(make)


_stored("little_data_of_2_to_40", [1 << 40])
_stored("dims_that_overflow", [1 << 62, 4])
_stored("dims_that_overflow_to_4", [1 << 62, 1 << 2, 1 << 2, 1])
_stored("negative_dims", [-4, -1])
_stored("weight_of_rank_100", [1] * 99 + [4])
_stored("weight_of_no_type", [4], dtype=0)
_stored("weight_of_unknown_type", [4], dtype=99)
_stored("strings_as_bytes", [4], dtype=TensorProto.STRING)


@hostile(refused=True)
def sparse_of_2_to_40() -> ModelProto:
    model = with_weight(TensorProto(name="unused", dims=[1], data_type=1, raw_data=bytes(4)))
    values = helper.make_tensor("w", 1, [1], [1.0])
    indices = helper.make_tensor("i", 7, [1], [0])
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [1 << 40]))
    return model


@hostile(refused=True)
def sparse_constant_of_2_to_40() -> ModelProto:
    model = with_weight(TensorProto(name="unused", dims=[1], data_type=1, raw_data=bytes(4)))
    sparse = helper.make_sparse_tensor(
        helper.make_tensor("v", 1, [1], [1.0]), helper.make_tensor("i", 7, [1], [0]), [1 << 40]
    )
    model.graph.node.insert(0, helper.make_node("Constant", [], ["w"], sparse_value=sparse))
    return model


def _external(name: str, location: str, where: str = "initializer", **entries: str) -> None:
    """A weight of 5000 floats in another file."""

    def make() -> ModelProto:
        tensor = TensorProto(name="w", dims=[5000], data_type=1, data_location=TensorProto.EXTERNAL)
        for key, value in {"location": location, **entries}.items():
            tensor.external_data.add(key=key, value=value)
        model = with_weight(tensor)
        if where == "constant":
            del model.graph.initializer[:]
            tensor.dims[0] = 4
            model.graph.node.insert(0, helper.make_node("Constant", [], ["w"], value=tensor))
        return model

    def build(folder: Path) -> Sequence[str]:
        (folder / "data.bin").write_bytes(bytes(20_000))
        (folder / "link.bin").symlink_to("/etc/passwd")
        (folder / "folder").mkdir()
        path = write(folder, make())
        return [part.format(model=path, out=folder / "out.onnx", folder="") for part in COMMANDS["optimize"]]

    add(f"optimize-external_{name}", build, refused=True)


_external("above", "../../../../../../etc/passwd")
_external("absolute", "/etc/passwd")
_external("link", "link.bin")
_external("nul", "data\0.bin")
_external("folder", "folder")
_external("itself", "model.onnx")
_external("device", "/dev/zero")
_external("empty", "")
_external("long", "a" * 10_000)
_external("offset_behind_the_end", "data.bin", offset="1000000000000")
_external("negative_offset", "data.bin", offset="-8")
_external("offset_of_many_digits", "data.bin", offset="9" * 6000)
_external("length_of_another", "data.bin", length="8")
_external("negative_length", "data.bin", length="-20000")
_external("offset_that_is_no_number", "data.bin", offset="0x10")
_external("constant_above", "../../../etc/passwd", "constant")
_external("constant_link", "link.bin", "constant")
