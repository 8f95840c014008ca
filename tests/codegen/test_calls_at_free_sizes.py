"""The calls of target files where sizes are arguments of the program: what they receive, and which of them are made."""

from __future__ import annotations

import itertools
import random
import subprocess
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import eqsat
from eqsat import op
from eqsat.codegen.call_text import is_plain_call
from eqsat.codegen.compiler import find_compiler
from eqsat.codegen.folder import write_program
from eqsat.codegen.generate import generate
from eqsat.codegen.runtime import CModel
from eqsat.errors import CodegenError, TargetError
from eqsat.model.read.dims import symbols
from eqsat.partition.call_sizes import DimensionNames, is_size_hole, size_in
from eqsat.schema.free_sizes import FreeSize, within
from eqsat.schema.size import Size, Undecided
from eqsat.schema.types import TensorType

HEAD = """
target kiwi
    summary "an accelerator that is called"
    peak float32 = 4e13
    bandwidth = 8e11, launch = 1e-8, dispatch = 1e-8
    link bandwidth = 4e11, latency = 1e-9
"""
KERNELS = (
    HEAD
    + """
    supports Tanh
        call "kiwi_tanh({x}, {y}, {y.size})"
    supports Concat
        where node.axis == 0
        call "kiwi_join({inputs}, {concat_result}, {inputs[0].shape[0]}, "
             "{y.shape[0] - inputs[0].shape[0]}, {y.shape[1]})"
    composite sum_relu : exact
        s = x + z, d = Relu(s)
        call "kiwi_sum({x}, {z}, {s}, {d}, {x.shape}, {s.size // 2}, \\"rows\\", {x.size * 1000000})"
"""
)
REGIONS = HEAD + '    region call "{name}({inputs}, {sizes}, {outputs})"\n    supports Add, Mul, Relu\n'
LIBRARY = """
#include "net_kiwi.h"
#include <math.h>
#include <stdio.h>
void kiwi_tanh(const float *x, float *y, int n) {
    printf("tanh %d\\n", n);
    for (int i = 0; i < n; i++) y[i] = tanhf(x[i]);
}
void kiwi_join(const float *a, const float *b, float *y, int n, int m, int width) {
    printf("join %d %d %d\\n", n, m, width);
    for (int i = 0; i < n * width; i++) y[i] = a[i];
    for (int i = 0; i < m * width; i++) y[n * width + i] = b[i];
}
void kiwi_sum(
    const float *x, const float *z, float *s, float *d, int n, int width, int half, const char *what, int64_t big) {
    printf("%s %d %d %d %lld\\n", what, n, width, half, (long long)big);
    for (int i = 0; i < n * width; i++) { s[i] = x[i] + z[i]; d[i] = s[i] > 0 ? s[i] : 0; }
}
"""
REGION_LIBRARY = """
#include "net_kiwi.h"
#include <stdio.h>
void kiwi_0(const float *x, const float *z, int n, int m, float *y) {
    printf("region %d %d\\n", n, m);
    for (int i = 0; i < n * m; i++) y[i] = (x[i] > 0 ? x[i] : 0) * z[i] + x[i];
}
"""
DIMS = {"n": (1, 5000), "m": (1, 8)}


def weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def kernels(x: eqsat.Tensor, z: eqsat.Tensor, w: eqsat.Tensor) -> list[eqsat.Tensor]:
    s = x + z
    d = op.Relu(s)
    return [op.Concat(op.Tanh(d), w, axis=0), op.Exp(s)]


def model(n: int | str = "n", m: int | str = "m") -> ir.Model:
    return eqsat.graph(kernels(eqsat.input("x", (n, 6)), eqsat.input("z", (n, 6)), eqsat.input("w", (m, 6))))


def feed(n: int, m: int) -> dict[str, np.ndarray]:
    return {"x": weights(n, 6), "z": weights(n, 6) + 1, "w": weights(m, 6)}


def run(folder: Path, *, flags: tuple[str, ...] = ("-DNET_USE_KIWI",), sources: tuple[str, ...] = ("kiwi.c",)) -> str:
    strict = [*find_compiler(), "-std=c11", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined"]
    files = ["net.c", "net_weights.c", "net_example.c", "main.c", *sources, "-lm", "-o", "check"]
    subprocess.run([*strict, *flags, *files], cwd=folder, check=True)
    done = subprocess.run(["./check"], cwd=folder, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0 and "FAILED" not in done.stdout, done.stdout + done.stderr
    return done.stdout


def placed(text: str, graph: ir.Model, folder: Path, *, saved: bool = False) -> ir.Model:
    (folder / "kiwi.target").write_text(text, "utf-8")
    dims = {name: size for name, size in DIMS.items() if name in symbols(graph)}
    result = eqsat.optimize(graph, targets=[folder / "kiwi.target"], dims=dims, default_rules=False)
    if not saved:
        return result.model
    result.save(folder / "model.onnx")
    return eqsat.load(folder / "model.onnx")


@pytest.mark.slow
@pytest.mark.parametrize("saved", [False, True])
def test_kernels_receive_their_sizes(saved: bool, tmp_path: Path) -> None:
    found = placed(KERNELS, model(), tmp_path, saved=saved)
    (tmp_path / "kiwi.c").write_text(LIBRARY, "utf-8")
    for n, m in ((3, 2), (1, 1), (4999, 8)):
        emitted = write_program(found, tmp_path, name="net", dims=DIMS, inputs=feed(n, m))
        assert emitted.coverage["kiwi"].called == emitted.coverage["kiwi"].total == 3
        lines = run(tmp_path).splitlines()
        assert lines[:3] == [f"rows {n} 6 {3 * n} {6000000 * n}", f"tanh {6 * n}", f"join {n} {m} 6"]
        assert "PASSED" in run(tmp_path, flags=(), sources=())
    header = (tmp_path / "net_kiwi.h").read_text("utf-8")
    assert "void kiwi_tanh(const float *, float *, int);" in header
    assert "int, int, int, const char *, int64_t);" in header


@pytest.mark.parametrize("dims", [{"n": 3, "m": (1, 8)}, {"n": (1, 9), "m": 2}, {"n": 3, "m": 2}])
def test_sizes_that_are_bound_later_are_numbers(dims: Mapping[str, int | tuple[int, int]], tmp_path: Path) -> None:
    found = placed(KERNELS, model(), tmp_path, saved=True)
    (tmp_path / "kiwi.c").write_text(LIBRARY.replace("int64_t", "int"), "utf-8")
    write_program(found, tmp_path, name="net", dims=dict(dims), inputs=feed(3, 2))
    assert run(tmp_path).splitlines()[:3] == ["rows 3 6 9 18000000", "tanh 18", "join 3 2 6"]


@pytest.mark.slow
@pytest.mark.parametrize("saved", [False, True])
def test_regions_receive_their_sizes(saved: bool, tmp_path: Path) -> None:
    x, z = eqsat.input("x", ("n", "m")), eqsat.input("z", ("n", "m"))
    found = placed(REGIONS, eqsat.graph(op.Exp(op.Relu(x) * z + x)), tmp_path, saved=saved)
    (tmp_path / "kiwi.c").write_text(REGION_LIBRARY, "utf-8")
    for n, m in ((3, 2), (30, 8)):
        write_program(found, tmp_path, name="net", dims=DIMS, inputs={"x": weights(n, m), "z": weights(n, m)})
        assert run(tmp_path).splitlines()[0] == f"region {n} {m}"
    bound = write_program(found, tmp_path, name="net", dims={"n": 4, "m": 5})
    assert bound.coverage["kiwi"].called == 3
    assert run(tmp_path).splitlines()[0] == "region 4 5"


def test_inside_of_a_loop(tmp_path: Path) -> None:
    x, w = eqsat.input("x", ("n", 6)), eqsat.input("w", ("m", 6))
    last = op.Loop(eqsat.input("rounds", (), np.int64), None, x, body=lambda i, go, s: (go, op.Exp(-op.Tanh(s + x))))
    found = placed(KERNELS, eqsat.graph(op.Concat(last, w, axis=0)), tmp_path)
    (tmp_path / "kiwi.c").write_text(LIBRARY, "utf-8")
    given = {"x": weights(7, 6), "w": weights(2, 6), "rounds": np.array(2, np.int64)}
    emitted = write_program(found, tmp_path, name="net", dims=DIMS, inputs=given)
    assert emitted.coverage["kiwi"].called == emitted.coverage["kiwi"].total == 2
    (tmp_path / "kiwi.c").write_text(LIBRARY.split("void kiwi_sum")[0], "utf-8")
    assert run(tmp_path).splitlines()[:3] == ["tanh 42", "tanh 42", "join 7 2 6"]


def test_sizes_that_data_decides(tmp_path: Path) -> None:
    x = eqsat.input("x", (12,))
    rows = op.Cast(op.Transpose(op.NonZero(op.Floor(x)), perm=[1, 0]), to=1)
    found = placed(KERNELS, eqsat.graph(op.Exp(op.Tanh(rows))), tmp_path)
    (tmp_path / "kiwi.c").write_text(LIBRARY.split("void kiwi_join")[0], "utf-8")
    given = {"x": np.array([1.5, 0.5, 0, 2, -1, 0.2, 0.3, 0, 0, 0, 0, 9], np.float32)}
    emitted = write_program(found, tmp_path, name="net", inputs=given)
    assert emitted.coverage["kiwi"].called == 1
    assert run(tmp_path).splitlines()[0] == "tanh 4"


# ---- calls that are not made -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ("kiwi_tanh({x}, {y})", "its call does not receive the size `n` and `m`"),
        ("kiwi_tanh({x}, {y}, {x.shape[1]})", "its call does not receive the size `n`"),
        ("kiwi_tanh_{x.shape[0]}({x}, {y}, {y.size})", "its call has an expression without a value where sizes"),
        ('kiwi_tanh({x}, {y}, \\"{y.size}\\", {y.size})', "its call has an expression without a value where sizes"),
        ("kiwi_tanh({x}, {y}, {1.0 / y.size}, {y.size})", "its call has an expression without a value where sizes"),
    ],
)
def test_reasons(call: str, reason: str, tmp_path: Path) -> None:
    text = HEAD + f'    supports Tanh\n        call "{call}"\n'
    graph = eqsat.graph(op.Exp(op.Tanh(eqsat.input("x", ("n", "m")))))
    found = placed(text, graph, tmp_path)
    coverage = generate(found, dims=DIMS).coverage["kiwi"]
    assert [r.startswith(reason) for _, _, r in coverage.refused] == [True], coverage.refused
    x = {"x": weights(3, 4)}
    np.testing.assert_allclose(
        *(next(iter(y.values())) for y in (CModel(found, dims=DIMS).run(x), eqsat.run(graph, x))), rtol=1e-5
    )


def test_a_region_that_does_not_receive_its_sizes(tmp_path: Path) -> None:
    x, z = eqsat.input("x", ("n", "m")), eqsat.input("z", ("n", "m"))
    found = placed(REGIONS.replace(", {sizes}", ""), eqsat.graph(op.Exp(op.Relu(x) * z + x)), tmp_path)
    coverage = generate(found, dims=DIMS).coverage["kiwi"]
    assert coverage.called == 0 and coverage.total == 3
    assert {r for _, _, r in coverage.refused} == {"its sizes are not fixed, and its call does not receive them"}
    assert generate(found, dims={"n": 3, "m": 4}).coverage["kiwi"].called == 3


def test_a_mistake_is_one_at_free_sizes_as_well(tmp_path: Path) -> None:
    text = HEAD + '    supports Tanh\n        call "kiwi_tanh({x}, {y}, {y.shape[7]})"\n'
    for shape in ((3, 4), ("n", "m")):
        with pytest.raises(TargetError, match=r"the expressions of a call must have values; got kiwi\.Tanh"):
            placed(text, eqsat.graph(op.Exp(op.Tanh(eqsat.input("x", shape)))), tmp_path)


# ---- which texts are trusted -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hole", "plain"),
    [
        ("256*d0_1", True), ("floor((d0_0 - 1)/2)", True), ("Max(d0_0, r1_2)", True), ("{?}", False),
        ("n", False), ("system(0)", False), ("d0_0; exit(1)", False), ("d0_0) + f(1", False),
        ("d0_0) + (d0_1", True), ("d0_0**9999999", False), ("__import__", False), ('"x"', False),
        ("d0_0" * 200, False), ("d0_0 #", False), ("sizeof d0_0", False),
        ("", False), ("d0_0}{", False), ("d0_0\n", False), ("9" * 399, True),
    ],
)  # fmt: skip
def test_holes(hole: str, plain: bool) -> None:
    assert is_size_hole(f"{{={hole}}}") == plain == is_plain_call(f"kiwi_f({{0}}, {{={hole}}})", "kiwi")


@pytest.mark.parametrize("hole", ["d9_9", "d0_0) + (r0_1", "(" * 300, "r0_5", "d0_0 d0_0", "1//0", "d0_0/0"])
def test_what_a_hole_says_becomes_no_c(hole: str, tmp_path: Path) -> None:
    """The text of a file is read as a size; what is none refuses the kernel, and its words are not in the program."""
    with pytest.raises(Undecided):
        size_in(hole, [(3, 4)], [(3, 4)])
    text = HEAD + '    supports Tanh\n        call "kiwi_tanh({x}, {y}, {y.size})"\n'
    placed(text, eqsat.graph(op.Exp(op.Tanh(eqsat.input("x", ("n", "m"))))), tmp_path, saved=True)
    proto = onnx.load(tmp_path / "model.onnx")
    for node in (n for f in proto.functions for n in f.node):
        for entry in node.metadata_props:
            if entry.key == "eqsat.call":
                assert entry.value == "kiwi_tanh({0}, {result}, {=d0_0*d0_1})"
                entry.value = f"kiwi_tanh({{0}}, {{result}}, {{={hole}}})"
    emitted = generate(eqsat.load(proto), dims=DIMS)
    assert "kiwi_tanh" not in emitted.source and emitted.coverage["kiwi"].called == 0


def test_another_text_is_refused(tmp_path: Path) -> None:
    text = HEAD + '    supports Tanh\n        call "kiwi_tanh({x}, {y}, {y.size})"\n'
    placed(text, eqsat.graph(op.Exp(op.Tanh(eqsat.input("x", ("n", "m"))))), tmp_path, saved=True)
    proto = onnx.load(tmp_path / "model.onnx")
    for node in (n for f in proto.functions for n in f.node):
        for entry in node.metadata_props:
            entry.value = "kiwi_tanh({0}, {=system(1)})" if entry.key == "eqsat.call" else entry.value
    with pytest.raises(CodegenError, match="one function of its target"):
        generate(eqsat.load(proto), dims=DIMS)


# ---- dimensions of a call --------------------------------------------------------------------------------

TEXTS = ["n", "m", "2*n", "n + 1", "3*m + 2", "n*m", "floor(n/2)", "Max(n, m)", "4", None]


def number(text: str | None, sizes: Mapping[str, int]) -> int:
    if text is None:
        return 5
    return eval(text, {"floor": np.floor, "Max": max}, dict(sizes)) if text.count("(") == 0 else int(
        eval(text.replace("/", "//"), {"floor": lambda v: v, "Max": max}, dict(sizes))
    )  # fmt: skip


def test_sizes_are_expressed_in_the_dimensions_of_the_call() -> None:
    """Each dimension of a value follows from those of operands and results, or is left out, but never wrong."""
    rng = random.Random(3)
    expressed = 0
    with within({"n": FreeSize(1, 50, 8), "m": FreeSize(1, 50, 8)}):
        for _ in range(300):
            given = [[rng.choice(TEXTS) for _ in range(rng.randint(1, 3))] for _ in range(rng.randint(1, 3))]
            results = [[rng.choice(TEXTS) for _ in range(rng.randint(1, 2))]]
            kinds = [[TensorType(ir.DataType.FLOAT, _dims(s)) for s in shapes] for shapes in (given, results)]
            names = DimensionNames(*kinds)
            asked = rng.choice([t for t in TEXTS if t is not None])
            kind = names.type(TensorType(ir.DataType.FLOAT, _dims([asked])))
            assert kind is not None and kind.shape is not None
            (dim,) = kind.shape
            hole = str(dim) if isinstance(dim, int) else dim
            if hole is None or not is_size_hole(f"{{={hole}}}"):
                continue
            expressed += 1
            for n, m in itertools.product((1, 2, 7), (1, 5)):
                sizes = {"n": n, "m": m}
                shapes = [[tuple(number(t, sizes) for t in s) for s in shapes] for shapes in (given, results)]
                assert size_in(hole, *shapes) == number(asked, sizes), (given, results, asked, hole)
    assert expressed > 150


def _dims(texts: list[str | None]) -> tuple[int | str | None, ...]:
    return tuple(int(t) if t is not None and t.isdigit() else t for t in texts)


def test_a_size_that_does_not_follow_has_no_hole() -> None:
    with within({"n": FreeSize(1, 9, 4)}):
        names = DimensionNames([TensorType(ir.DataType.FLOAT, (4,))], [TensorType(ir.DataType.FLOAT, (None,))])
        kind = names.type(TensorType(ir.DataType.FLOAT, ("n",)))
        assert kind is not None and kind.shape == ("n",)
        assert names.holes() == ["{=r0_0}"]
    free = size_in("2*d0_0 + r0_0", [(_symbol("n"),)], [(3,)])
    assert isinstance(free, Size) and str(free) == "(2 * dim_n + 3)"


def _symbol(name: str) -> int:
    from eqsat.schema.size import symbol

    return symbol(name, FreeSize(1, 9, 4))
