"""How fast single C kernels are: each convolution and matrix product of a model, next to ONNX Runtime.

    python -m benchmarks.c_kernels [--models resnet50 FILE.onnx ...] [--isa avx512] [--operators Conv MatMul Gemm]
                                   [--winograd] [--repeat 9] [--compiler gcc] [--json FILE]

Every distinct node (operator, attributes, shapes) becomes a kernel on views as the planner would give them, and a
session of ONNX Runtime with that node alone, one thread each. All run in turn in one process; the figures are medians
of CPU time. The peak is what independent fused multiply-adds in registers reach in the same run. The last lines weigh
each node by how often the model has it; depthwise convolutions, bounded by memory, are counted apart. With --winograd
convolutions are computed so where it is estimated to pay, and may then exceed the peak.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

from benchmarks.models import LIGHT, light
from benchmarks.output import write_json
from benchmarks.peer import session
from benchmarks.timing import in_turn
from eqsat.codegen import isa as instruction_sets
from eqsat.codegen.isa import Isa
from eqsat.codegen.isa_names import finish
from eqsat.codegen.kernel import Epilogue, GeneratedKernel, Task, View, Want
from eqsat.codegen.kernels import find
from eqsat.codegen.kernels.vectors.winograd import ASKED, pays
from eqsat.schema.types import OpKey

_INCLUDES = "".join(f"#include <{name}.h>\n" for name in ("math", "stddef", "stdint", "string"))
_FLAGS = ("-std=c11", "-O2", "-ffp-contract=fast", "-fPIC", "-shared")
_PEAK = """
    vf@ {declared};
    for (int i = 0; i < n; i++) {{ {steps} {fence} }}
    ST@(y, {total});
"""


@dataclass
class Node:
    """A distinct node.

    Attributes:
        proto: The first node of its kind.
        arrays: Its inputs: weights as the model has them, others random.
        constant: Which inputs are weights.
        output: Shape of the result.
        count: How many nodes of the model are like it.
    """

    proto: onnx.NodeProto
    arrays: list[np.ndarray]
    constant: list[bool]
    output: tuple[int, ...]
    count: int = 1

    @property
    def attributes(self) -> dict[str, Any]:
        found = {}
        for attribute in self.proto.attribute:
            value = helper.get_attribute_value(attribute)
            found[attribute.name] = tuple(value) if isinstance(value, list) else value
        return {k: v.decode() if isinstance(v, bytes) else v for k, v in found.items()}

    @property
    def flops(self) -> int:
        """Two for each product."""
        w = self.arrays[1].shape
        if self.proto.op_type == "Conv":
            return 2 * int(np.prod(self.output)) * int(np.prod(w[1:]))
        k = w[-1] if self.attributes.get("transB") else w[-2]
        return 2 * int(np.prod(self.output)) * k

    @property
    def is_depthwise(self) -> bool:
        return self.proto.op_type == "Conv" and self.arrays[1].shape[1] == 1 < self.attributes.get("group", 1)

    def __str__(self) -> str:
        a, b = ("x".join(map(str, x.shape)) for x in self.arrays[:2])
        shown = {k: v for k, v in self.attributes.items() if k in ("strides", "group") and v not in (1, (1, 1))}
        return f"{self.proto.op_type} {a} * {b} {' '.join(f'{k}={v}' for k, v in shown.items())}".rstrip()


def nodes(model: onnx.ModelProto, operators: Sequence[str], rng: np.random.Generator) -> list[Node]:
    """Distinct nodes of a model with known shapes."""
    graph = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    weights = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    shapes = {
        v.name: tuple(d.dim_value for d in v.type.tensor_type.shape.dim)
        for v in [*graph.value_info, *graph.input, *graph.output]
    }
    found: dict[str, Node] = {}
    for node in graph.node:
        if node.op_type not in operators or not all(i in weights or all(shapes.get(i, (0,))) for i in node.input):
            continue
        arrays = [weights[i] if i in weights else rng.standard_normal(shapes[i], dtype=np.float32) for i in node.input]
        constant = [i in weights for i in node.input]
        attributes = sorted(a.SerializeToString() for a in node.attribute)
        key = repr((node.op_type, [a.shape for a in arrays], constant, attributes))
        if key in found:
            found[key].count += 1
        else:
            found[key] = Node(node, arrays, constant, shapes[node.output[0]])
    return list(found.values())


class Placed:
    """Memory of a tensor as a kernel would like it."""

    def __init__(self, shape: Sequence[int], want: Want) -> None:
        order = want.order or tuple(range(len(shape)))
        halo = want.halo or ((0, 0),) * len(shape)
        strides, step = [0] * len(shape), 1
        for axis in reversed(order):
            strides[axis] = step
            step *= shape[axis] + sum(halo[axis])
        self.view = View(ir.DataType.FLOAT, tuple(shape), tuple(strides), halo)
        self.buffer = aligned(step)
        self.offset = sum(b * s for (b, _), s in zip(halo, strides, strict=True))

    def array(self) -> np.ndarray:
        strides = tuple(4 * s for s in self.view.strides)
        return np.lib.stride_tricks.as_strided(self.buffer[self.offset :], self.view.shape, strides)

    @property
    def pointer(self) -> int:
        return self.buffer.ctypes.data + 4 * self.offset


def aligned(count: int) -> np.ndarray:
    """Zeros at a multiple of 64 bytes."""
    raw = np.zeros(count + 16, np.float32)
    start = -raw.ctypes.data % 64 // 4
    return raw[start : start + count]


class CKernel:
    """A node as a C function."""

    def __init__(self, name: str, node: Node, isa: Isa, *, winograd: bool = False) -> None:
        key = OpKey(node.proto.domain, node.proto.op_type)

        def task(inputs: list[View | np.ndarray | None], output: View) -> Task:
            made = Task(key, node.attributes, tuple(inputs), (output,), Epilogue(ir.DataType.FLOAT))
            asked = winograd and node.proto.op_type == "Conv" and pays(made)
            return replace(made, attributes={**made.attributes, ASKED: 1}) if asked else made

        def views(wants: Callable[[int], Want]) -> list[Placed | None]:
            return [
                None if c else Placed(x.shape, wants(i))
                for i, (x, c) in enumerate(zip(node.arrays, node.constant, strict=True))
            ]

        def made(places: list[Placed | None], y: Placed) -> Task:
            inputs = [p.view if p else x for p, x in zip(places, node.arrays, strict=True)]
            return task([*inputs, *[None] * (3 - len(inputs))], y.view)

        family = find(made(views(lambda i: Want()), Placed(node.output, Want())))
        if family is None:
            raise LookupError(f"no kernel family takes {node}")
        wants = family.wants(made(views(lambda i: Want()), Placed(node.output, Want())))
        places, self.y = views(wants.input), Placed(node.output, wants.output(0))
        for place, x in zip(places, node.arrays, strict=True):
            if place is not None:
                place.array()[...] = x
        self.name, self.family, self.isa = name, family.name, isa
        self.places = {f"x{i}": p for i, p in enumerate(places) if p is not None} | {"y0": self.y}
        self.kernel: GeneratedKernel = family.generate(made(places, self.y), isa)
        self.constants = [aligned(c.size) for c in self.kernel.constants]
        for held, c in zip(self.constants, self.kernel.constants, strict=True):
            held[:] = c.ravel()
        self.scratch = aligned(self.kernel.scratch // 4 + 1)

    def text(self) -> str:
        """The C function."""
        names = [f"{'' if n == 'y0' else 'const '}float *restrict {n}" for n in self.places]
        names += [f"const float *restrict w{i}" for i in range(len(self.constants))]
        names += ["void *restrict scratch"] if self.kernel.scratch else []
        target = f'__attribute__((target("{self.isa.target}"))) ' if self.isa.target else ""
        return f"{target}void {self.name}({', '.join(names)})\n{{\n{self.kernel.body}\n}}\n"

    def bind(self, library: ctypes.CDLL) -> Callable[[], object]:
        """The function on its data."""
        pointers = [p.pointer for p in self.places.values()] + [c.ctypes.data for c in self.constants]
        pointers += [self.scratch.ctypes.data] if self.kernel.scratch else []
        function, arguments = getattr(library, self.name), [ctypes.c_void_p(p) for p in pointers]
        return lambda: function(*arguments)


def peak_text(isa: Isa) -> tuple[str, tuple[str, ...], int]:
    """A function of nothing but independent fused multiply-adds, what it needs, and its operations a round."""
    count = 24 if isa.registers >= 32 else 12
    declared = ", ".join(f"a{i} = SPLAT@({i}.0f)" for i in range(count)) + ", k = LD@(x)"
    steps = " ".join(f"a{i} = FMA@(a{i}, k, k);" for i in range(count))
    fence = '__asm__ volatile("" ::: "memory");'
    total = " + ".join(f"a{i}" for i in range(count))
    body, needed = finish(_PEAK.format(declared=declared, steps=steps, fence=fence, total=total), isa)
    target = f'__attribute__((target("{isa.target}"))) ' if isa.target else ""
    return f"{target}void peak(const float *x, float *y, int n)\n{{{body}}}\n", needed, 2 * count * isa.lanes()


def compiled(text: str, compiler: str) -> ctypes.CDLL:
    """A library from C text."""
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "kernels.c", Path(folder) / "kernels.so"
        source.write_text(text, "utf-8")
        subprocess.run([compiler, *_FLAGS, str(source), "-o", str(library), "-lm"], check=True)
        return ctypes.CDLL(str(library))


def ort_run(node: Node) -> tuple[Callable[[], object], np.ndarray]:
    """The node alone in ONNX Runtime, and its result."""
    inputs = [f"i{k}" for k in range(len(node.arrays))]
    proto = onnx.NodeProto()
    proto.CopyFrom(node.proto)
    del proto.input[:], proto.output[:]
    proto.input.extend(inputs)
    proto.output.append("y")
    graph = helper.make_graph(
        [proto],
        "node",
        [
            helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, x.shape)
            for n, x, c in zip(inputs, node.arrays, node.constant, strict=True)
            if not c
        ],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, node.output)],
        [numpy_helper.from_array(x, n) for n, x, c in zip(inputs, node.arrays, node.constant, strict=True) if c],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    running = session(model)
    feeds = {n: x for n, x, c in zip(inputs, node.arrays, node.constant, strict=True) if not c}
    return lambda: running.run(None, feeds), np.asarray(running.run(None, feeds)[0])


def measure(name: str, model: onnx.ModelProto, isa: Isa, options: argparse.Namespace) -> list[dict[str, Any]]:
    """One row for each distinct node."""
    found = nodes(model, options.operators, np.random.default_rng(0))
    kernels = [CKernel(f"k{i}", node, isa, winograd=options.winograd) for i, node in enumerate(found)]
    peak, needed, work = peak_text(isa)
    helpers = dict.fromkeys([*needed, *(h for k in kernels for h in k.kernel.helpers)])
    start = time.perf_counter()
    library = compiled(_INCLUDES + "\n".join([*helpers, peak, *(k.text() for k in kernels)]), options.compiler)
    print(f"{name}: {len(found)} distinct nodes, compiled for {isa.name} in {time.perf_counter() - start:.1f} s")
    x, y, rounds = aligned(16), aligned(16), 20000
    pointers = ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data)
    rows = []
    for node, kernel in zip(found, kernels, strict=True):
        run, (ort, expected) = kernel.bind(library), ort_run(node)
        run()
        scale = max(float(np.abs(expected).max()), 1e-30)
        error = float(np.abs(kernel.y.array() - expected).max()) / scale
        samples = in_turn([lambda: library.peak(*pointers, rounds), run, ort], options.repeat, least=2e-3)
        top, c, o = map(statistics.median, samples)
        rows.append(
            dict(
                model=name,
                node=str(node),
                family=kernel.family,
                count=node.count,
                depthwise=node.is_depthwise,
                gflop=node.flops * 1e-9,
                peak=work * rounds / top * 1e-9,
                seconds=c,
                ort_seconds=o,
                error=error,
            )
        )
    return rows


def report(rows: Sequence[dict[str, Any]]) -> None:
    """The table and its sums."""
    print(f"{'node':64} {'times':>5} {'GFLOP/s':>8} {'% peak':>7} {'ORT':>7} {'ORT / C':>8} {'error':>8}")
    for r in rows:
        speed, ort = r["gflop"] / r["seconds"], r["gflop"] / r["ort_seconds"]
        print(
            f"{r['node']:64} {r['count']:5} {speed:8.1f} {100 * speed / r['peak']:7.1f} {ort:7.1f} "
            f"{r['ort_seconds'] / r['seconds']:8.2f} {r['error']:8.1e}"
        )
    for title, chosen in (("dense", False), ("depthwise", True)):
        kept = [r for r in rows if r["depthwise"] == chosen]
        if kept:
            work = sum(r["gflop"] * r["count"] for r in kept)
            c, o = (sum(r[k] * r["count"] for r in kept) for k in ("seconds", "ort_seconds"))
            top = sum(r["peak"] * r["gflop"] * r["count"] for r in kept) / work
            print(
                f"{title}: {work:.3f} GFLOP in {1e3 * c:.3f} ms, {work / c:.1f} GFLOP/s, "
                f"{100 * work / c / top:.1f} % of {top:.1f}; ONNX Runtime {1e3 * o:.3f} ms, {o / c:.2f} x"
            )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints; 1 if a result is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--models", nargs="+", default=["resnet50"], metavar="NAME|FILE")
    parser.add_argument("--isa", default="avx512", choices=[i.name for i in instruction_sets.ALL])
    parser.add_argument("--operators", nargs="+", default=["Conv", "MatMul", "Gemm"])
    parser.add_argument("--winograd", action="store_true")
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--compiler", default="gcc")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    isa = next(i for i in instruction_sets.ALL if i.name == options.isa)
    rows = []
    for name in options.models:
        model = light(name) if name in LIGHT else onnx.load(name)
        found = measure(Path(name).stem, model, isa, options)
        report(found)
        rows += found
    if options.json is not None:
        write_json(options.json, rows)
    wrong = [r for r in rows if not r["error"] < 1e-4]
    for r in wrong:
        print(f"wrong: {r['node']} differs from ONNX Runtime by {r['error']:.1e}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
