"""Constants that ask for more than all memory, in a few bytes each."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from tests.hostile.case import hostile
from tests.hostile.sizes import HEAD, T62

MUCH = 10**12


def _constant(name: str, constants: str, body: str, head: str = HEAD) -> None:
    """A model that adds a constant ``c`` to its input."""

    def make() -> str:
        return f"{head}g (float[1] x) => (y) <{constants}> {{ {body} y = Add(c, x) }}"

    make.__name__ = name
    hostile("optimize", "run")(make)


_constant("range_of_10_to_12", f"int64 a = {{0}}, int64 b = {{{MUCH}}}, int64 d = {{1}}",
          "r = Range(a, b, d) c = Cast<to = 1>(r)")  # fmt: skip
_constant("range_of_floats", "float a = {0}, float b = {1e30}, float d = {1e-30}", "c = Range(a, b, d)")
_constant("range_without_step", "float a = {0}, float b = {1}, float d = {0}", "c = Range(a, b, d)")
_constant("constant_of_shape_10_to_12", f"int64[1] s = {{{MUCH}}}", "c = ConstantOfShape(s)")
_constant("constant_of_shape_10_to_9", "int64[1] s = {1000000000}", "c = ConstantOfShape(s)")
_constant("constant_of_negative_shape", "int64[1] s = {-5}", "c = ConstantOfShape(s)")
_constant("constant_of_overflowing_shape", f"int64[3] s = {{{T62}, 8, 2}}", "c = ConstantOfShape(s)")
_constant("expand_to_10_to_12", f"float[1] w = {{1}}, int64[1] s = {{{MUCH}}}", "c = Expand(w, s)")
_constant("expand_in_many_axes", "float[1] w = {1}, int64[8] s = {99, 99, 99, 99, 99, 99, 99, 99}", "c = Expand(w, s)")
_constant("expand_to_overflow", f"float[1] w = {{1}}, int64[2] s = {{{T62}, {T62}}}", "c = Expand(w, s)")
_constant("tile_10_to_12", f"float[1] w = {{1}}, int64[1] r = {{{MUCH}}}", "c = Tile(w, r)")
_constant("tile_negative", "float[1] w = {1}, int64[1] r = {-3}", "c = Tile(w, r)")
_constant("pad_10_to_12", f"float[1] w = {{1}}, int64[2] p = {{{MUCH}, 1}}", "c = Pad(w, p)")
_constant("pad_reflected", f"float[2] w = {{1, 2}}, int64[2] p = {{{MUCH}, 1}}", 'c = Pad<mode = "reflect">(w, p)')
_constant("resize_10_to_12", "float[1] w = {1}, float[1] s = {1e12}", "c = Resize(w, , s)")
_constant("resize_to_infinity", "float[1] w = {1}, float[1] s = {1e38}", "c = Resize(w, , s)")
_constant("resize_to_sizes", f"float[1] w = {{1}}, int64[1] s = {{{MUCH}}}", "c = Resize(w, , , s)")
_constant("one_hot_10_to_12", f"int64[1] i = {{1}}, int64 d = {{{MUCH}}}, float[2] v = {{0, 1}}", "c = OneHot(i, d, v)")
_constant("hann_window", f"int64 n = {{{MUCH}}}", "c = HannWindow(n)")
_constant("mel_weights", f"int64 n = {{{MUCH}}}, int64 r = {{8000}}, float l = {{0}}, float h = {{4000}}",
          "c = MelWeightMatrix(n, n, r, l, h)")  # fmt: skip
_constant("fourier_of_10_to_12", f"float[1,4,1] w = {{1, 2, 3, 4}}, int64 n = {{{MUCH}}}", "c = DFT<axis = 1>(w, n)")
_constant("crop_to_10_to_12", f"float[1] w = {{1}}, int64[1] s = {{{MUCH}}}", "c = CenterCropPad(w, s)",
          HEAD.replace("17", "18"))  # fmt: skip
_constant("affine_grid", f"float[1,2,3] w = {{1, 2, 3, 4, 5, 6}}, int64[4] s = {{1, 1, {MUCH}, {MUCH}}}",
          "c = AffineGrid(w, s)", HEAD.replace("17", "20"))  # fmt: skip
_constant("product_of_2_to_20", "int64[2] s = {1048576, 1048576}", "r = ConstantOfShape(s) c = MatMul(r, r)")
_constant("sum_over_10_to_12", f"int64[1] s = {{{MUCH}}}", "r = ConstantOfShape(s) c = ReduceSum<keepdims = 0>(r)")
_constant("cumulative_sum", f"int64[1] s = {{{MUCH}}}, int64 a = {{0}}", "r = ConstantOfShape(s) c = CumSum(r, a)")
_constant("non_zero_of_10_to_12", f"int64[1] s = {{{MUCH}}}",
          "r = ConstantOfShape<value = float[1] {1}>(s) n = NonZero(r) c = Cast<to = 1>(n)")  # fmt: skip
_constant("gather_of_gathers", "int64[2] s = {100000, 100000}, float[1] w = {1}",
          "i = ConstantOfShape<value = int64[1] {0}>(s) c = Gather(w, i)")  # fmt: skip
_constant("sequence_of_10_to_9", "int64[1] s = {1000000000}",
          "r = ConstantOfShape(s) q = SplitToSequence(r) c = ConcatFromSequence<axis = 0>(q)")  # fmt: skip
_constant("split_of_10_to_12", f"int64[1] s = {{{MUCH}}}",
          "r = ConstantOfShape(s) c, d = Split<axis = 0>(r)")  # fmt: skip
_constant("many_of_10_to_7", "int64[1] s = {10000000}",
          " ".join(f"r{i} = ConstantOfShape<value = float[1] {{{i}}}>(s)" for i in range(40))
          + " c = Sum(" + ", ".join(f"r{i}" for i in range(40)) + ")")  # fmt: skip


def _doubling(name: str, step: Callable[[str, str], str], kind: str = "float[2] w = {1, 2}") -> None:
    body = " ".join(step("w" if not i else f"a{i - 1}", f"a{i}") for i in range(40))
    _constant(name, kind, f"{body} c = ReduceSum<keepdims = 0>(a39)")


_doubling("concat_that_doubles", lambda a, b: f"{b} = Concat<axis = 0>({a}, {a})")
_doubling("outer_sums", lambda a, b: f"{b}_ = Reshape({a}, s) {b}__ = Add({a}, {b}_) {b} = Flatten<axis = 0>({b}__)",
          "float[2] w = {1, 2}, int64[2] s = {-1, 1}")  # fmt: skip


def _steps(first: str, count: int, step: str) -> str:
    """``step`` again and again, on what the one before has made."""
    names = [first, *(f"a{i}" for i in range(count))]
    return " ".join(step.format(made=b, x=a) for a, b in itertools.pairwise(names))


@hostile("run", "optimize")
def strings_that_double() -> str:
    head = HEAD.replace("17", "20")
    steps = _steps("w", 45, "{made} = StringConcat({x}, {x})")
    return f'{head}g (float[1] x) => (y, z) <string[1] w = {{"ab"}}> {{ {steps} y = Identity(a44) z = Relu(x) }}'


@hostile("run", "optimize")
def concat_that_doubles_at_run_time() -> str:
    steps = _steps("x", 36, "{made} = Concat<axis = 0>({x}, {x})")
    return f"{HEAD}g (float[2] x) => (float[N] y) {{ {steps} y = Relu(a35) }}"


@hostile("run", "optimize")
def shape_given_at_run_time() -> str:
    return f"{HEAD}g (int8[8] x) => (y) {{ i = Cast<to = 7>(x) s = Mul(i, i) t = Mul(s, s) y = ConstantOfShape(t) }}"
