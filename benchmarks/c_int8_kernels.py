"""How fast the integer kernels are: share of the machine's peak, and next to ONNX Runtime's operators, one thread.

    python -m benchmarks.c_int8_kernels [--only TEXT] [--isa avx512] [--repeat 9] [--json FILE]

Each row is one layer as a kernel of generated C on views as a program would have them (channels last, the padding
around the input), and as an ONNX Runtime session of the single operator, channels last as well (what its own optimizer
makes of a network). Both run in turn in one process on the same numbers; times are medians of CPU time. The peak is
that of a loop of nothing but the instruction set's product of bytes, measured in turn as well. ``share`` is of the
peak, ``ratio`` ONNX Runtime's time by ours; the last line weighs layers by how often they occur.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime

from benchmarks.output import write_json
from benchmarks.peer import session
from benchmarks.timing import in_turn
from eqsat.codegen import c_types
from eqsat.codegen.compiler import FLAGS, find_compiler, native_isas
from eqsat.codegen.isa import Isa, find
from eqsat.codegen.kernel import Epilogue, GeneratedKernel, Task, View
from eqsat.codegen.kernels import find as find_family
from eqsat.codegen.kernels.bytes.byte_names import finish
from eqsat.schema.types import OpKey

MS = "com.microsoft"
INCLUDES = "#include <float.h>\n#include <math.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <string.h>\n"
SLACK = 64


@dataclass(frozen=True)
class Layer:
    """A convolution of a network.

    Attributes:
        name: Of the network's part.
        count: How often it occurs.
        size: Height and width of the input.
        inputs: Channels.
        outputs: Channels.
        kernel: Height and width of the window.
        stride: Of the windows.
        group: Number of groups.
    """

    name: str
    count: int
    size: int
    inputs: int
    outputs: int
    kernel: int
    stride: int = 1
    group: int = 1

    @property
    def pad(self) -> int:
        return self.kernel // 2

    @property
    def out(self) -> int:
        return (self.size + 2 * self.pad - self.kernel) // self.stride + 1

    @property
    def operations(self) -> int:
        return 2 * self.out**2 * self.outputs * self.inputs // self.group * self.kernel**2


def _resnet50() -> list[Layer]:
    layers = [Layer("resnet50 first", 1, 224, 3, 64, 7, 2)]
    inputs = 64
    for size, width, blocks in ((56, 64, 3), (28, 128, 4), (14, 256, 6), (7, 512, 3)):
        before = size if width == 64 else 2 * size
        stride = before // size
        layers += [
            Layer(f"resnet50 {size} shortcut", 1, before, inputs, 4 * width, 1, stride),
            Layer(f"resnet50 {size} in", 1, before, inputs, width, 1, stride),
            Layer(f"resnet50 {size} reduce", blocks - 1, size, 4 * width, width, 1),
            Layer(f"resnet50 {size} window", blocks, size, width, width, 3),
            Layer(f"resnet50 {size} expand", blocks, size, width, 4 * width, 1),
        ]
        inputs = 4 * width
    return layers


LAYERS = [
    *_resnet50(),
    Layer("resnet50 classes", 1, 1, 2048, 1000, 1),
    Layer("mobilenet depthwise", 1, 112, 32, 32, 3, 1, 32),
    Layer("mobilenet depthwise", 1, 112, 96, 96, 3, 2, 96),
    Layer("mobilenet depthwise", 1, 56, 144, 144, 3, 1, 144),
    Layer("mobilenet depthwise", 1, 28, 192, 192, 3, 1, 192),
    Layer("mobilenet depthwise", 1, 14, 384, 384, 3, 1, 384),
    Layer("mobilenet depthwise", 1, 7, 960, 960, 3, 1, 960),
    Layer("mobilenet pointwise", 1, 56, 24, 144, 1),
    Layer("mobilenet pointwise", 1, 14, 384, 64, 1),
]


def aligned(size: int, rng: np.random.Generator) -> np.ndarray:
    """Random bytes at a multiple of 64."""
    raw = rng.integers(0, 255, size + 64).astype(np.uint8)
    return raw[-raw.ctypes.data % 64 :][:size]


class Library:
    """Kernels that are compiled together.

    Args:
        isa: Instruction set.
    """

    def __init__(self, isa: Isa) -> None:
        self.isa = isa
        self._helpers: dict[str, None] = {}
        self._functions: list[str] = []
        self._loaded: ctypes.CDLL | None = None
        self._held: list[np.ndarray] = []

    def add(self, name: str, body: str, parameters: Sequence[tuple[str, str]], helpers: Sequence[str]) -> None:
        """A function."""
        self._helpers.update(dict.fromkeys(helpers))
        target = f'__attribute__((target("{self.isa.target}"))) ' if self.isa.target else ""
        given = ", ".join(f"{c} *restrict {n}" for c, n in parameters)
        self._functions.append(f"{target}void {name}({given})\n{{\n{body}\n}}\n")

    def add_kernel(self, name: str, task: Task, rng: np.random.Generator) -> Callable[[], object]:
        """The kernel of a task on random data; returns what runs it."""
        family = find_family(task)
        assert family is not None
        kernel = family.generate(task, self.isa)
        parameters, arrays = [], []
        for letter, views in (("x", task.inputs), ("y", task.outputs)):
            for i, v in enumerate(views):
                if isinstance(v, View):
                    parameters.append((("const " if letter == "x" else "") + c_types.storage(v.dtype), f"{letter}{i}"))
                    arrays.append(self._memory(v, rng))
        for i, constant in enumerate(kernel.constants):
            parameters.append(("const " + c_types.c_type(c_types.as_stored(constant)), f"w{i}"))
            arrays.append((self._constant(constant, rng), 0))
        if kernel.scratch:
            parameters.append(("void", "scratch"))
            arrays.append((aligned(kernel.scratch, rng), 0))
        self.add(name, _without_unused(kernel, parameters), parameters, kernel.helpers)
        self._held += [a for a, _ in arrays]
        pointers = [ctypes.c_void_p(a.ctypes.data + offset) for a, offset in arrays]
        return lambda: getattr(self.library, name)(*pointers)

    @staticmethod
    def _memory(view: View, rng: np.random.Generator) -> tuple[np.ndarray, int]:
        extent = [n + sum(view.around(a)) for a, n in enumerate(view.shape)]
        offset = sum(view.around(a)[0] * s for a, s in enumerate(view.strides))
        return aligned(math.prod(extent) * c_types.size(view.dtype) + SLACK, rng), offset * c_types.size(view.dtype)

    @staticmethod
    def _constant(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        held = aligned(array.nbytes + SLACK, rng)
        held[: array.nbytes] = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)
        return held

    @property
    def library(self) -> ctypes.CDLL:
        """All functions, compiled when first asked for."""
        if self._loaded is None:
            folder = Path(tempfile.mkdtemp())
            text = INCLUDES + "\n".join([*self._helpers, *self._functions])
            (folder / "kernels.c").write_text(text, "utf-8")
            command = [*find_compiler(), *FLAGS, "-fPIC", "-shared", str(folder / "kernels.c"), "-lm"]
            subprocess.run([*command, "-o", str(folder / "kernels.so")], check=True)
            self._loaded = ctypes.CDLL(str(folder / "kernels.so"))
        return self._loaded


def _without_unused(kernel: GeneratedKernel, parameters: Sequence[tuple[str, str]]) -> str:
    return "".join(f"(void){n}; " for _, n in parameters) + "\n" + kernel.body


def peak(library: Library, name: str) -> tuple[Callable[[], object], int]:
    """A loop of products of bytes, and its operations."""
    count, rounds = (24, 20_000) if library.isa.registers >= 32 else (10, 20_000)
    sums = ", ".join(f"c{i} = SPLATI@({i})" for i in range(count))
    steps = "\n".join(f"c{i} = DOT4@(c{i}, a, b);" for i in range(count))
    # Sums must stay in the loop, and so must products of equal operands.
    kept = [*(f"c{i}" for i in range(count)), "a", "b"]
    barrier = "\n".join(f'__asm__ volatile("" : "+{"x" if library.isa.x86 else "m"}"({name}));' for name in kept)
    total = " + ".join(f"c{i}" for i in range(count))
    body, helpers = finish(
        f"vi@ {sums}; vi@ a = LDI@(x0), b = LDI@(x0 + 64);\n"
        f"for (int n = 0; n < {rounds}; n++) {{\n{steps}\n{barrier}\n}}\nSTI@((int32_t *)y0, {total});",
        library.isa,
    )
    body = body.replace('"+x"', '"+v"') if library.isa.vector_bytes == 64 else body
    library.add(name, body, [("const uint8_t", "x0"), ("uint8_t", "y0")], helpers)
    x, y = aligned(256, np.random.default_rng(0)), aligned(256, np.random.default_rng(0))
    library._held += [x, y]
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in (x, y)]
    return lambda: getattr(library.library, name)(*pointers), 2 * 4 * count * rounds * library.isa.lanes()


def layer_task(layer: Layer, weights: np.ndarray) -> Task:
    """The kernel's task, with views channels last."""
    n, s, c, p = layer.size, layer.stride, layer.inputs, layer.pad
    last = (0, 2, 3, 1)
    wide = n + 2 * p
    x = View(
        ir.DataType.UINT8,
        (1, c, n, n),
        (wide * wide * c, 1, wide * c, c),
        ((0, 0), (0, 0), (p, p), (p, p)),
        128,
        1,
        SLACK,
    )
    y = View.dense(ir.DataType.UINT8, (1, layer.outputs, layer.out, layer.out), last)
    f4 = np.float32
    scales = np.full(layer.outputs, 0.01, f4)
    zero = np.array(128, np.uint8)
    numbers = [
        np.asarray(f4(0.02)),
        zero,
        weights,
        scales,
        np.zeros(layer.outputs, np.int8),
        np.asarray(f4(0.05)),
        zero,
    ]
    attributes = dict(
        kernel_shape=(layer.kernel,) * 2,
        strides=(s, s),
        pads=(p,) * 4,
        dilations=(1, 1),
        group=layer.group,
        auto_pad="NOTSET",
    )
    bias = np.zeros(layer.outputs, np.int32)
    return Task(OpKey("", "QLinearConv"), attributes, (x, *numbers, bias), (y,), Epilogue(ir.DataType.UINT8))


def layer_session(layer: Layer, weights: np.ndarray, rng: np.random.Generator) -> Callable[[], object]:
    """The same by ONNX Runtime."""
    helper, tensor = onnx.helper, onnx.numpy_helper.from_array
    f4 = np.float32
    constants = [
        ("xs", np.asarray(f4(0.02))),
        ("xz", np.array(128, np.uint8)),
        ("w", weights),
        ("ws", np.full(layer.outputs, 0.01, f4)),
        ("wz", np.zeros(layer.outputs, np.int8)),
        ("ys", np.asarray(f4(0.05))),
        ("yz", np.array(128, np.uint8)),
        ("b", np.zeros(layer.outputs, np.int32)),
    ]
    names = [n for n, _ in constants]
    node = helper.make_node(
        "QLinearConv",
        ["x", *names],
        ["y"],
        domain=MS,
        channels_last=1,
        strides=[layer.stride] * 2,
        pads=[layer.pad] * 4,
        group=layer.group,
    )
    kind = onnx.TensorProto.UINT8
    x_shape, y_shape = (1, layer.size, layer.size, layer.inputs), (1, layer.out, layer.out, layer.outputs)
    graph = helper.make_graph(
        [node],
        "layer",
        [helper.make_tensor_value_info("x", kind, x_shape)],
        [helper.make_tensor_value_info("y", kind, y_shape)],
        [tensor(a, n) for n, a in constants],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MS, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    running = session(model)
    binding = running.io_binding()
    x = rng.integers(0, 255, x_shape).astype(np.uint8)
    binding.bind_cpu_input("x", x)
    binding.bind_ortvalue_output("y", onnxruntime.OrtValue.ortvalue_from_shape_and_type(y_shape, np.uint8, "cpu"))
    return lambda: running.run_with_iobinding(binding)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="layers whose name contains this")
    parser.add_argument("--isa", default="", help="instruction set; the best of this machine by default")
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    isa = find([options.isa])[0] if options.isa else native_isas()[0]
    if options.isa:
        isa = next(i for i in find([options.isa]) if i.name == options.isa)
    layers = [layer for layer in LAYERS if options.only in layer.name]
    library = Library(isa)
    top, operations = peak(library, "peak")
    runs = []
    for i, layer in enumerate(layers):
        rng = np.random.default_rng(i)
        shape = (layer.outputs, layer.inputs // layer.group, layer.kernel, layer.kernel)
        weights = rng.integers(-127, 127, shape).astype(np.int8)
        runs.append((library.add_kernel(f"k{i}", layer_task(layer, weights), rng), layer_session(layer, weights, rng)))
    rows = []
    print(f"{'layer':32} {'us':>9} {'GOP/s':>8} {'peak':>8} {'share':>6} {'onnxruntime us':>15} {'ratio':>6}")
    for layer, (own, other) in zip(layers, runs, strict=True):
        best, ours, theirs = map(statistics.median, in_turn([top, own, other], options.repeat, least=4e-3))
        speed, limit = layer.operations / ours / 1e9, operations / best / 1e9
        name = f"{layer.name} {layer.inputs}-{layer.outputs}"
        rows.append(
            dict(layer=name, count=layer.count, us=ours * 1e6, gops=speed, peak=limit, onnxruntime_us=theirs * 1e6)
        )
        print(
            f"{name:32} {ours * 1e6:9.1f} {speed:8.1f} {limit:8.1f} {speed / limit:6.2f} {theirs * 1e6:15.1f} "
            f"{theirs / ours:6.2f}"
        )
    for part in sorted({layer.name.split()[0] for layer in layers}):
        chosen = [(r, layer) for r, layer in zip(rows, layers, strict=True) if layer.name.split()[0] == part]
        spent = sum(r["us"] * layer.count for r, layer in chosen)
        ideal = sum(layer.operations * layer.count / r["peak"] / 1e3 for r, layer in chosen)
        peer = sum(r["onnxruntime_us"] * layer.count for r, layer in chosen)
        print(f"{part}, weighed by time: share of peak {ideal / spent:.2f}, ONNX Runtime {peer / spent:.2f} x")
    if options.json:
        write_json(options.json, {"isa": isa.name, "layers": rows})


if __name__ == "__main__":
    main()
