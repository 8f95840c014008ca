"""Saving: complete files or none, large weights in a second file, the same bytes each time."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import onnx
import onnx_ir as ir
from onnx.serialization import registry

from eqsat.arguments import checks_arguments
from eqsat.errors import ArgumentError, ModelError
from eqsat.files import cannot_write, is_stream, reason, require_folder, staged
from eqsat.model.kept_floats import with_floats_kept
from eqsat.model.map_types import has_maps, show_maps
from eqsat.model.symbols import write_symbols
from eqsat.model.write.concise import is_concise, make_concise
from eqsat.model.write.flat import flat as without_functions
from eqsat.model.write.in_place import with_sizes_hidden
from eqsat.model.write.older import with_source_opset
from eqsat.model.write.runnable import with_runnable
from eqsat.model.write.unmerged_pads import with_pads_unmerged
from eqsat.model.write.written_definitions import with_definitions
from eqsat.schema.attributes import tensor_of

SUFFIXES = (".onnx", ".onnxtxt", ".textproto", ".json")
"""Suffixes of the formats: binary, ONNX's text, protobuf's text and JSON."""
EXTERNAL_FROM = 1 << 30
"""Bytes of weights from which they go into a file of their own (a protobuf ends at 2 GiB)."""
MOST_INSIDE = (1 << 31) - 1
"""Bytes of a protobuf."""
SMALL = 1024
"""Bytes up to which a tensor stays in the model's own file: tools read shapes and axes there."""
ALIGNMENT = 4096
"""Alignment of the weights in their file, which is mapped into memory page by page."""


@checks_arguments
def save(
    model: ir.Model,
    path: str | os.PathLike[str],
    *,
    external_from: int = EXTERNAL_FROM,
    opset: int | None = None,
    external_data: bool | str | None = None,
    flat: bool = False,
) -> None:
    """Writes a model. A reader sees the old file or the new one, never a part. A device or a pipe gets it as one piece.

    Args:
        model: The model, not changed.
        path: The file to write. The suffix gives the format: ``.onnx``, ``.onnxtxt``, ``.textproto`` or ``.json``.
        external_from: From this many bytes on, weights are written to ``<path>.data`` beside the model.
        external_data: Whether the weights go into a file beside the model, whatever their size; its name, or True for
            ``<path>.data``. By default, ``external_from`` decides.
        opset: The newest opset to write. By default it is that of the model's input, or the oldest newer one that its
            operators need.
        flat: Whether functions are inlined, for tools that do not support them; :func:`load` restores them.

    Raises:
        ArgumentError: ``model`` is not an onnx_ir model.
        ModelError: No format has the suffix, the directory does not exist or cannot be written to, the model is not
            consistent, an operator needs a newer opset than allowed, or the weights do not fit into one file and must
            not go into a second one.
    """
    if not isinstance(model, ir.Model):
        hint = "results have a method for it: result.save(path)" if hasattr(model, "save") else ""
        raise ArgumentError("an onnx_ir.Model is required", place="model", actual=type(model).__name__, hint=hint)
    target = Path(path)
    place = str(target)
    check_place(target)
    data = _data_name(target, external_data)
    model = with_floats_kept(with_pads_unmerged(with_sizes_hidden(with_runnable(with_definitions(model)))))
    if not is_concise(model):
        model = model.clone()
        make_concise(model)
    model = with_source_opset(model, opset, flat=flat)
    write_symbols(model)
    if flat:
        model = without_functions(model)
    weights = _tensors(model)
    size = sum(t.nbytes for t in weights)
    apart = size >= external_from if external_data is None else external_data is not False
    if not apart and size > MOST_INSIDE:
        raise ModelError(
            f"weights of at most {MOST_INSIDE:,} bytes are required in one file",
            place=place,
            actual=f"{size:,}",
            hint="write them to a file beside the model: external_data=True",
        )
    if apart and isinstance(external_data, str):
        _check_not_read(weights, target.parent / data, place)
    if any(isinstance(t, ir.ExternalTensor) for t in weights) and not apart:
        model = _in_memory(model)
    try:
        # A reader of a link looks for the weights next to the link, not next to its target.
        with staged(target, follow=not apart) as part:
            if apart:
                ir.save(
                    model,
                    part,
                    external_data=data,
                    size_threshold_bytes=SMALL,
                    alignment=ALIGNMENT,
                    align_threshold=SMALL,
                )
            elif not has_maps(model):
                ir.save(model, part)
            if has_maps(model):
                proto = onnx.load(part, load_external_data=False) if apart else ir.to_proto(model)
                show_maps(proto)
                onnx.save(proto, part)
    except OSError as error:
        raise ModelError("a place that can be written to is required", place=place, actual=reason(error)) from error
    except ir.serde.SerdeError as error:
        cause = error.__cause__ or error
        found = " ".join(str(cause).split())
        raise ModelError("a consistent onnx_ir model is required", place=place, actual=found) from error


def check_place(target: Path) -> None:
    """Checks that a model can be written to a path, before the work that makes the model.

    The suffix decides the format; a device, a pipe or a stream needs none.

    Raises:
        ModelError: No format has that suffix, or the folder does not exist or cannot be written to.
    """
    place = str(target)
    require_folder(target.parent, ModelError)
    if target.is_dir():
        raise ModelError(
            "a file to write to is required",
            place=place,
            actual="a directory",
            hint=f"for example {str(target / 'model.onnx')!r}",
        )
    if is_stream(target):
        return
    if registry.get_format_from_file_extension(target.suffix.lower()) is None:
        raise ModelError(
            f"a file name that ends with one of {', '.join(SUFFIXES)} is required",
            place=place,
            actual=f"`{target.suffix}`" if target.suffix else "no suffix",
        )
    obstacle = cannot_write(Path(os.path.realpath(target)).parent)
    if obstacle:
        raise ModelError(
            "a place that can be written to is required",
            place=place,
            actual=obstacle,
            hint="give another folder, or change the permissions of this one",
        )


def _data_name(target: Path, external_data: bool | str | None) -> str:
    """The name of the file with the weights: without folders, since both files are in one folder.

    Raises:
        ModelError: It is the path of a folder or of a file elsewhere, or that of the model.
    """
    if external_data is None or isinstance(external_data, bool):
        return f"{target.name}.data"
    name = external_data
    if name in ("", ".", "..", target.name) or not name.isprintable() or any(sign in name for sign in "/\\:"):
        raise ModelError(
            "the name of a file beside the model is required for external data",
            place=str(target),
            actual=repr(name),
            hint=f"for example {target.name + '.data'!r}; a model finds its weights only in its own folder",
        )
    return name


def _check_not_read(weights: Sequence[ir.TensorProtocol], data: Path, place: str) -> None:
    """Checks that the weights do not come from a file that another model has: it would be left without its own.

    Raises:
        ModelError: They do.
    """
    sources = {Path(t.path) for t in weights if isinstance(t, ir.ExternalTensor)}
    is_own = data.name == f"{Path(place).name}.data"
    if not is_own and data.exists() and any(data.samefile(source) for source in sources if source.exists()):
        raise ModelError(
            "another file for the weights is required",
            place=place,
            actual=f"{data.name!r}, from which the model's weights were read",
            hint="the model that was loaded would lose them",
        )


def _tensors(model: ir.Model) -> list[ir.TensorProtocol]:
    graphs = [model.graph, *(g for g in model.graph.subgraphs())]
    values = [v for g in graphs for v in g.initializers.values()]
    return [v.const_value for v in values if v.const_value is not None]


def _in_memory(model: ir.Model) -> ir.Model:
    """A copy that contains its weights: external ones refer to a file next to the original model."""
    copy = model.clone()
    for graph in [copy.graph, *copy.graph.subgraphs()]:
        for value in graph.initializers.values():
            tensor = value.const_value
            if isinstance(tensor, ir.ExternalTensor):
                value.const_value = tensor_of(tensor.numpy(), tensor.dtype, tensor.name)
    return copy
