"""Sources of models: files in any of ONNX's formats, bytes, text, protobuf and onnx_ir objects.

All of them become an :class:`UncheckedModel`: a protobuf without its weights, and the weights separately. Checks,
conversions and inlining (in C++, on serialised models) then never copy the weights, and there is no 2 GiB limit.
"""

from __future__ import annotations

import math
import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError
from onnx.serialization import registry

from eqsat import bounds
from eqsat.errors import ModelError
from eqsat.model.unused_names import unused
from eqsat.model.validate.extent import check_brackets, check_nesting
from eqsat.model.validate.tensor_data import check_content, check_external

ModelSource = str | os.PathLike[str] | bytes | onnx.ModelProto | ir.Model
"""A path, serialised bytes, ONNX text, a protobuf or an onnx_ir model; also what ``torch.onnx.export`` returns."""

HEAVY = 4096
"""Elements from which a tensor is set aside. Shapes, axes and scales stay, because the conversion reads them."""

_FOREIGN = (
    (0, b"PK\x03\x04", "it is a zip archive, perhaps a PyTorch file: export it with torch.onnx.export"),
    (4, b"TFL3", "it is a TensorFlow Lite file: convert it with tf2onnx"),
    (0, b"\x89HDF", "it is an HDF5 file, perhaps of Keras: convert it with tf2onnx"),
    (0, b"\x80\x02", "it is a Python pickle, perhaps a PyTorch file: export it with torch.onnx.export"),
    (4, b"ORTM", "it is ONNX Runtime's own format: use the ONNX file it was made from"),
)


_EXPORTS = {
    "torch": "export it first: eqsat.optimize(torch.onnx.export(module, (example_input,), dynamo=True))",
    "keras": 'export it first: model.export("model.onnx", format="onnx")',
    "tensorflow": "export it first: python -m tf2onnx.convert --saved-model FOLDER --output model.onnx",
    "sklearn": "export it first with skl2onnx",
}


@dataclass(slots=True)
class UncheckedModel:
    """A model that is read but not yet trusted.

    Attributes:
        proto: The model; the tensors in ``weights`` are inputs of its graph.
        weights: Tensors set aside, by name.
        place: For messages: the file, or nothing.
    """

    proto: onnx.ModelProto
    weights: dict[str, ir.TensorProtocol] = field(default_factory=dict)
    place: str = ""

    def at(self, what: str) -> str:
        """The place of a node or tensor in the file."""
        return f"{self.place}: {what}" if self.place else what


def read(source: ModelSource) -> UncheckedModel:
    """Reads a model from any source.

    Raises:
        ModelError: There is no such file, it is not an ONNX model, it is truncated, or data of it is missing.
    """
    if isinstance(source, ir.Model):
        return _from_ir(source)
    if isinstance(source, onnx.ModelProto):
        return _set_aside(source, "", None)
    if isinstance(source, (bytes, bytearray, memoryview)):
        return _set_aside(_parse(bytes(source), "the bytes"), "", None)
    if isinstance(source, str) and is_text(source):
        return _set_aside(_parse_text(source, "text"), "", None)
    if isinstance(source, (str, os.PathLike)):
        return _from_path(Path(source))
    if isinstance(exported := getattr(source, "model", None), ir.Model):  # the result of torch.onnx.export
        return _from_ir(exported)
    raise ModelError(
        "a path, bytes, ONNX text, onnx.ModelProto or onnx_ir.Model is required",
        actual=f"a module of {_framework(source)}" if _framework(source) else type(source).__name__,
        hint=_EXPORTS.get(_framework(source), ""),
    )


def _framework(source: object) -> str:
    """The framework of a network that has not been exported, or nothing."""
    packages = {base.__module__.partition(".")[0] for base in type(source).__mro__}
    return next((name for name in _EXPORTS if name in packages), "")


def is_text(source: str) -> bool:
    """Whether a source is ONNX text, and not a path."""
    return "\n" in source or "{" in source


def _from_path(path: Path) -> UncheckedModel:
    place = str(path)
    if path.is_dir():
        raise ModelError("a model file is required", place=place, actual="a directory", hint=_models_in(path))
    try:
        data = _content(path)
    except FileNotFoundError as error:
        raise ModelError("a model file is required", place=place, actual="no such file", hint=_similar(path)) from error
    except OSError as error:
        raise ModelError("a readable file is required", place=place, actual=error.strerror or str(error)) from error
    except ValueError as error:  # a path with a NUL
        raise ModelError("the path of a file is required", place=repr(place), actual=str(error)) from error
    kind = registry.get_format_from_file_extension(path.suffix.lower())
    if kind in (None, "protobuf"):
        proto = _parse(data, place)
    elif kind == "onnxtxt":
        proto = _parse_text(_decode(data, place), place)
    else:
        proto = onnx.ModelProto()
        try:
            proto = registry.get(kind).deserialize_proto(data, proto)
        except Exception as error:  # the formats' parsers have no common base of their errors
            raise ModelError(f"an ONNX model as {kind} is required", place=place, actual=_first_line(error)) from error
    return _set_aside(proto, place, path.resolve().parent)


def _content(path: Path) -> bytes:
    """The content of a file or a pipe, if it fits into the memory limit."""
    meter = bounds.current()
    with path.open("rb") as file:
        mode = os.fstat(file.fileno()).st_mode
        if stat.S_ISREG(mode):
            meter.admit(os.fstat(file.fileno()).st_size, 0, str(path), "a file")
            return file.read()
        if stat.S_ISFIFO(mode):
            data = file.read(meter.memory)
            if file.read(1):
                meter.admit(meter.memory + 1, 0, str(path), "a file")
            return data
    raise ModelError("a model file is required", place=str(path), actual="a device or the like")


def _models_in(folder: Path) -> str:
    """A hint that names the models of a directory."""
    try:
        found = sorted(p.name for p in folder.iterdir() if p.suffix == ".onnx")
    except OSError:
        return ""
    return f"it contains {', '.join(found[:3])}{', ...' if found[3:] else ''}" if found else ""


def _similar(path: Path) -> str:
    """A hint at files with a similar name; a suffix that many share makes no name similar."""
    from eqsat.schema.opset import did_you_mean

    try:
        beside = [p.name for p in path.parent.iterdir() if p.is_file()]
    except OSError:
        return f"there is no directory {str(path.parent)!r}"
    same = [name for name in beside if Path(name).suffix == path.suffix]
    stems = did_you_mean(path.stem, [Path(name).stem for name in same])
    alike = [name for name in same if f"`{Path(name).stem}`" in stems]
    return did_you_mean(path.name, alike) or did_you_mean(
        path.name, [name for name in beside if Path(name).stem == path.stem]
    )


def _decode(data: bytes, place: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ModelError("ONNX text in UTF-8 is required", place=place, actual=str(error)) from error


def _parse(data: bytes, place: str) -> onnx.ModelProto:
    if not data:
        raise ModelError(
            "an ONNX model is required",
            place=place,
            actual="an empty file",
            hint="export or download the model again; the last time was interrupted",
        )
    try:
        proto = onnx.ModelProto.FromString(data)
    except DecodeError as error:
        known = next((hint for at, magic, hint in _FOREIGN if data[at : at + len(magic)] == magic), "")
        raise ModelError(
            "a complete ONNX model is required",
            place=place,
            actual=f"{len(data)} bytes that are truncated or not an ONNX model",
            hint=known,
        ) from error
    if not proto.HasField("graph"):
        raise ModelError(
            "an ONNX model with a graph is required",
            place=place,
            actual=f"{len(data)} bytes without one",
            hint="files of tensors (.pb) and of external data have none: give the .onnx file",
        )
    return proto


def _parse_text(text: str, place: str) -> onnx.ModelProto:
    check_brackets(text, place)
    try:
        return onnx.parser.parse_model(text)
    except onnx.parser.ParseError as error:
        raw = error.args[0] if error.args else ""
        message = raw.decode(errors="replace") if isinstance(raw, bytes) else str(raw)
        where = re.search(r"line: (\d+) column: (\d+)", message)
        lines = [line.strip() for line in message.splitlines() if line.strip() and "ParseError at" not in line]
        context = next((line.partition(":")[2].strip() for line in lines if line.startswith("Error context")), "")
        what = " ".join(line for line in lines if not line.startswith("Error context"))
        raise ModelError(
            "a model in ONNX's text format is required",
            place=f"{place}:{where[1]}:{where[2]}" if where else place,
            actual=f"`{context}`" if context else "text that is not complete",
            hint=what,
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


# ---- setting the weights aside -------------------------------------------------------------------


def _from_ir(model: ir.Model) -> UncheckedModel:
    try:
        light = model.clone()
    except Exception as error:  # a graph that is broken in itself
        raise ModelError("a consistent onnx_ir model is required", actual=_first_line(error)) from error
    _name_values(light.graph)
    weights: dict[str, ir.TensorProtocol] = {}
    graph = light.graph
    for name, value in list(graph.initializers.items()):
        tensor = value.const_value
        if tensor is None:
            raise ModelError("an initializer with a value is required", place=f"tensor {name!r}", actual="none")
        if tensor.size <= HEAVY:
            continue
        weights[name] = tensor
        graph.initializers.pop(name)
        value.const_value = None
        value.type = ir.TensorType(tensor.dtype)
        value.shape = ir.Shape(tensor.shape.numpy())
        if value not in graph.inputs:
            graph.inputs.append(value)
    try:
        return UncheckedModel(ir.to_proto(light), weights)
    except Exception as error:
        raise ModelError("a consistent onnx_ir model is required", actual=_first_line(error)) from error


def _name_values(graph: ir.Graph) -> None:
    """Names results without a name, as serialising requires."""
    nodes = list(ir.traversal.RecursiveGraphIterator(graph))
    named = [*graph.inputs, *(v for node in nodes for v in (*node.inputs, *node.outputs) if v is not None)]
    taken = {v.name for v in named if v.name is not None}
    for node in nodes:
        for value in node.outputs:
            if value.name is None:
                value.name = unused(node.op_type.lower(), taken)


def _set_aside(model: onnx.ModelProto, place: str, folder: Path | None) -> UncheckedModel:
    """A copy of the model without its large tensors; small external ones become part of it."""
    check_nesting(model, place)
    light = onnx.ModelProto()
    for descriptor, value in model.ListFields():
        if descriptor.name != "graph":
            _copy_field(light, descriptor.name, value)
    source = UncheckedModel(light, place=place)
    for descriptor, value in model.graph.ListFields():
        if descriptor.name not in ("initializer", "node"):
            _copy_field(light.graph, descriptor.name, value)
    inputs = {i.name for i in light.graph.input}
    seen: set[str] = set()

    def keep(tensor: onnx.TensorProto, name: str) -> bool:
        if name in seen:
            raise ModelError("every initializer needs a unique name", place=source.at(f"tensor {name!r}"))
        seen.add(name)
        external = tensor.data_location == onnx.TensorProto.EXTERNAL
        place = source.at(f"tensor {name!r}")
        if external:
            check_external(tensor, place, folder)
        else:
            check_content(tensor, place)
        size = math.prod(tensor.dims)
        if size <= HEAVY and not external:
            return True
        loaded = ir.serde.deserialize_tensor(tensor, str(folder or Path.cwd()))
        if size <= HEAVY:
            small = ir.to_proto(ir.Tensor(loaded.numpy(), dtype=loaded.dtype, name=name))
            light.graph.initializer.append(small)
            return False
        loaded.name = name
        source.weights[name] = loaded
        if name not in inputs:
            light.graph.input.append(onnx.helper.make_tensor_value_info(name, tensor.data_type, tensor.dims))
        return False

    for tensor in model.graph.initializer:
        if keep(tensor, tensor.name):
            light.graph.initializer.append(tensor)
    for node in model.graph.node:
        constant = _big_constant(node)
        if constant is None or keep(constant, node.output[0]):
            light.graph.node.append(node)
    return source


def _copy_field(target: onnx.ModelProto | onnx.GraphProto, name: str, value: object) -> None:
    current = getattr(target, name)
    if hasattr(current, "MergeFrom"):
        current.MergeFrom(value)
    else:
        setattr(target, name, value)


def _big_constant(node: onnx.NodeProto) -> onnx.TensorProto | None:
    if node.op_type != "Constant" or node.domain not in ("", "ai.onnx") or len(node.attribute) != 1:
        return None
    attribute = node.attribute[0]
    is_big = attribute.name == "value" and attribute.HasField("t") and math.prod(attribute.t.dims) > HEAVY
    return attribute.t if is_big and len(node.output) == 1 and node.output[0] else None
