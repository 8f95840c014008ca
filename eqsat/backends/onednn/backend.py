"""Decides which kernels oneDNN executes, and writes the C that makes and executes their primitives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eqsat.backends.backend import Backend, Loaded, Primitive
from eqsat.backends.c_templates import environment
from eqsat.backends.code import Code, Writer
from eqsat.backends.onednn import convolution, library, movement, normalization, pooling, products
from eqsat.backends.onednn.description import NoPrimitive, Operation, Subregion
from eqsat.backends.onednn.mapper import MAPPINGS, Mapper, SharedData, distinct
from eqsat.backends.onednn.operation_tables import OperationTables
from eqsat.backends.onednn.post_operations import map_step, materialize
from eqsat.backends.region import Kernel, Region, Run

FAMILIES = (convolution, movement, normalization, pooling, products)
"""Modules that register mappings when they are imported."""
_CMAKE = "find_package(dnnl REQUIRED) # Debian and Ubuntu: apt-get install libdnnl-dev"


class OneDnn(Backend):
    """Regions of the target ``dnnl`` as primitives of oneDNN."""

    target = "dnnl"
    library = "oneDNN"

    def require(self, compiler: Sequence[str]) -> None:
        library.require_onednn(compiler)

    def refusals(self, region: Region) -> Mapping[Kernel, str]:
        context, refused = _context(region), {}
        for kernel in region.kernels:
            known = dict(context.memories)
            try:
                _operations(context, kernel)
            except NoPrimitive as reason:
                context.memories = known
                refused[kernel] = str(reason)
        return refused

    def emit(self, writer: Writer, runs: Sequence[Run]) -> Code:
        tables = OperationTables(writer.offset)
        for run in runs:
            context = _context(run.region)
            operations = [operation for kernel in run.kernels for operation in _operations(context, kernel)]
            inputs = [context.memories.get(tensor) for tensor in run.inputs]
            tables.region(Subregion(run.name, operations, inputs, [context.memories[t] for t in run.outputs]))
        values = {
            "name": writer.name,
            "upper": writer.name.upper(),
            "tensors": tables.tensors,
            "list": tables.list,
            "posts": tables.posts,
            "operations": tables.operations,
            "regions": tables.regions,
        }
        templates = environment("eqsat.backends.onednn", "templates")
        functions, header, check = (
            templates.get_template(f"{name}.c.jinja").render(**values) for name in ("tables", "header", "check")
        )
        return Code(
            [_call(writer, run) for run in runs],
            functions=functions,
            header=header,
            check=check,
            stateful=True,
            libraries=library.LIBRARIES,
            cmake=f"{_CMAKE}\ntarget_link_libraries({writer.name} PUBLIC DNNL::dnnl)",
            declarations=_DECLARATIONS.format(writer.prefix),
        )

    def unavailable(self, loaded: Loaded) -> Mapping[str, str]:
        function = getattr(loaded.library, f"{loaded.prefix}_refused")
        found = (function(loaded.context, k) for k in range(loaded.runs))
        reason = "not implemented by this version of oneDNN on this machine"
        return {loaded.text(name): reason for name in found if name != loaded.ffi.NULL}

    def primitives(self, loaded: Loaded) -> list[Primitive]:
        ask = getattr(loaded.library, f"{loaded.prefix}_primitive")
        kernel, implementation = loaded.ffi.new("const char **"), loaded.ffi.new("const char **")
        found: list[Primitive] = []
        while ask(loaded.context, len(found), kernel, implementation):
            name = loaded.text(kernel[0])
            found.append(Primitive("" if name == "reorder" else name, loaded.text(implementation[0])))
        return found


_DECLARATIONS = """
const char *{0}_refused(const {0} *context, int region);
int {0}_primitive(const {0} *context, int k, const char **kernel, const char **implementation);
"""


def _call(writer: Writer, run: Run) -> str:
    read = ", ".join(f"x{i}" for i in range(len(run.inputs)))
    written = ", ".join(f"y{i}" for i in range(len(run.outputs)))
    return (
        f"const void *const inputs[] = {{{read or 'NULL'}}};\n"
        f"void *const outputs[] = {{{written}}};\n"
        f"if (!execute(context, {run.number}, inputs, outputs)) return 0;"
    )


def _context(region: Region) -> SharedData:
    return SharedData({}, dict(region.uses), region.dequantized)


def _operations(context: SharedData, kernel: Kernel) -> list[Operation]:
    """The operations of a kernel.

    Raises:
        NoPrimitive: There are no operations for it.
    """
    mapper = Mapper(context)
    mapper.materialize = materialize
    operators = kernel.operators
    if not movement.shuffle(mapper, operators):
        for operator in operators:
            MAPPINGS.get(operator.operator, map_step)(mapper, operator)
        for tensor in (t for operator in operators for t in operator.writes()):
            inside = sum(list(o.reads()).count(tensor) for o in operators)
            outside = inside < context.uses.get(tensor, 0)
            if outside and (tensor in mapper.quantized or tensor in mapper.joined):
                materialize(mapper, tensor)
    for operation in mapper.operations:
        operation.name = kernel.name
        operation.posts = distinct(operation.posts, len(operation.dst.shape))
    return mapper.operations
