"""The vector functions of ``vectors.h.jinja`` over the whole range of float32: errors in units in the last place."""

from __future__ import annotations

import ctypes
import math

import numpy as np
import pytest

from eqsat.codegen.isa import ALL, Isa
from eqsat.codegen.isa_names import finish
from tests.codegen.kernels.vectors.harness import INCLUDES, compiled, runnable

_erf = np.vectorize(math.erf, otypes=[np.float64])
FUNCTIONS = {
    "abs": (np.abs, 0.0, None),
    "sqrt": (np.sqrt, 0.5, None),
    "exp": (np.exp, 1.0, None),
    "low_exp": (np.exp, 1.0, (-np.inf, 40.0)),
    "expm1": (np.expm1, 2.0, (-np.inf, 80.0)),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), 3.0, None),
    "tanh": (np.tanh, 3.0, None),
    "erf": (_erf, 2.0, None),
    "log": (np.log, 2.0, None),
    "sin": (np.sin, 2.0, (-1e30, 1e30)),
    "cos": (np.cos, 2.0, (-1e30, 1e30)),
    "atan": (np.arctan, 3.0, None),
    "asin": (np.arcsin, 3.0, None),
    "acos": (np.arccos, 3.0, None),
    "softplus": (lambda x: np.logaddexp(0, x), 3.0, None),
    "mish": (lambda x: x * np.tanh(np.logaddexp(0, x)), 5.0, (-87.0, np.inf)),
}
"""Exact function, greatest error in ulp, range."""
RELATIVE_TO_ARGUMENT = {
    "gelu": (lambda x: 0.5 * x * (1 + _erf(x / math.sqrt(2))), 2.0),
    "gelu_tanh": (lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))), 2.0),
}
_LENGTH = 1 << 18
_UNDEFINED = ("-fsanitize=undefined", "-fsanitize-undefined-trap-on-error")
"""What is undefined in C ends the test: that of scalars, which compilers do not check in vectors."""


def samples() -> np.ndarray:
    """Floats evenly over all bit patterns, and densely where the functions change."""
    bits = np.linspace(0, 2**32 - 1, _LENGTH // 2).astype(np.uint64).astype(np.uint32)
    reach = np.repeat([0.1, 1, 1, 5, 110, 110, 9000, 9000], _LENGTH // 16)
    dense = np.random.default_rng(3).uniform(-1, 1, _LENGTH // 2) * reach
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1e-45, -1e-45, 88.7228, -103.97], np.float32)
    x = np.concatenate([bits.view(np.float32), dense.astype(np.float32)])
    x[: len(special)] = special
    return x


def apply(name: str, isa: Isa, *operands: np.ndarray) -> np.ndarray:
    """A function of vectors on arrays, whose length is a multiple of 16."""
    names = [f"x{k}" for k in range(len(operands))]
    loaded = ", ".join(f"LD@({x} + i)" for x in names)
    body, helpers = finish(f"for (int i = 0; i < n; i += {isa.lanes()}) ST@(y + i, {name}@({loaded}));", isa)
    target = f'__attribute__((target("{isa.target}"))) ' if isa.target else ""
    head = f"{target}void f({', '.join(f'const float *{x}' for x in names)}, float *y, int n)"
    library = compiled(INCLUDES + "\n".join(helpers) + f"\n{head};\n{head} {{ {body} }}\n", "-O2", _UNDEFINED)
    y = np.empty_like(operands[0])
    library.f(*(ctypes.c_void_p(a.ctypes.data) for a in (*operands, y)), len(y))
    return y


def spacing(y: np.ndarray) -> np.ndarray:
    """Distance to the next float at exact values."""
    return np.spacing(np.maximum(np.abs(y), np.finfo(np.float32).tiny).astype(np.float32)).astype(np.float64)


def agree(x, found, exact, unit, most):
    with np.errstate(over="ignore"):
        rounded = exact.astype(np.float32)
    special = ~np.isfinite(rounded) | ~np.isfinite(unit)
    np.testing.assert_array_equal(found[special], rounded[special])
    error = np.abs(found[~special].astype(np.float64) - exact[~special]) / unit[~special]
    worst = int(np.argmax(error))
    assert error[worst] <= most, f"{error[worst]:.3f} ulp at {x[~special][worst]!r}"


@pytest.mark.parametrize("isa", ALL, ids=lambda isa: isa.name)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_error(name, isa):
    if isa not in runnable():
        pytest.skip(f"no {isa.name} here")
    exact, most, limits = FUNCTIONS[name]
    x = samples()
    found = apply(name, isa, x)
    if limits is not None:
        keep = (x >= limits[0]) & (x <= limits[1])
        x, found = x[keep], found[keep]
    with np.errstate(all="ignore"):
        y = exact(x.astype(np.float64))
        agree(x, found, y, spacing(y), most)


@pytest.mark.parametrize("isa", ALL, ids=lambda isa: isa.name)
@pytest.mark.parametrize("name", RELATIVE_TO_ARGUMENT)
def test_error_relative_to_argument(name, isa):
    if isa not in runnable():
        pytest.skip(f"no {isa.name} here")
    exact, most = RELATIVE_TO_ARGUMENT[name]
    x = samples()
    x = x[np.abs(x) < 1e12]
    found = apply(name, isa, np.concatenate([x, np.zeros(-len(x) % 16, np.float32)]))[: len(x)]
    with np.errstate(all="ignore"):
        agree(x, found, exact(x.astype(np.float64)), spacing(x), most)


def pairs() -> tuple[np.ndarray, np.ndarray]:
    """Numbers of all magnitudes, each special one with each other, bases with exponents whose power is a float.

    Vectors are of special numbers or of others, as one number may leave all lanes to the C library.
    """
    rng = np.random.default_rng(4)
    special = np.array(
        [0, 1, 2, 3, 0.5, 1e-45, 1e-40, 1e-38, 3e38, 4194303, 4194304.5, 16777217, np.inf, np.nan, 7, 0.1]
    )
    special = np.concatenate([special, -special])
    finite = special[np.isfinite(special)]
    grids = [np.meshgrid(v, v) for v in (special, finite, np.resize(finite[np.abs(finite) < 4e6], 32))]
    wide = rng.permutation(samples())[: 1 << 15]
    other = rng.permutation(wide)
    small, whole = rng.uniform(-9, 9, len(wide)), rng.integers(-9, 9, len(wide))
    with np.errstate(all="ignore"):
        near = rng.uniform(-150, 129, len(wide)) / np.log2(np.abs(wide))
        x = np.concatenate([*(g[0].ravel() for g in grids), wide, np.abs(wide), small, small, wide])
        y = np.concatenate([*(g[1].ravel() for g in grids), near, near, whole, rng.permutation(small), other])
        return x.astype(np.float32), y.astype(np.float32)


@pytest.mark.parametrize("isa", ALL, ids=lambda isa: isa.name)
def test_powers_are_near_the_exact_ones(isa: Isa):
    if isa not in runnable():
        pytest.skip(f"no {isa.name} here")
    x, y = pairs()
    found = apply("power", isa, x, y)
    with np.errstate(all="ignore"):
        exact = np.power(x.astype(np.float64), y.astype(np.float64))
        agree(x, found, exact, spacing(exact), 1.0)
    zero = exact == 0
    np.testing.assert_array_equal(np.signbit(found[zero]), np.signbit(exact[zero]))


@pytest.mark.parametrize("isa", ALL, ids=lambda isa: isa.name)
def test_remainders_are_exact(isa: Isa):
    if isa not in runnable():
        pytest.skip(f"no {isa.name} here")
    x, y = pairs()
    # Quotients that are integers or nearly so, up to those that only the C library has exactly.
    rng = np.random.default_rng(5)
    b = rng.standard_normal(1 << 15).astype(np.float32)
    a = np.nextafter(b * rng.integers(1, 1 << 30, len(b)) // (1 << rng.integers(0, 30, len(b))), np.inf)
    with np.errstate(all="ignore"):
        x, y = np.concatenate([x, a.astype(np.float32), b * 3, b]), np.concatenate([y, b, b, b])
        exact = np.fmod(x, y)
    found = apply("remainder", isa, x, y)
    np.testing.assert_array_equal(found, exact)
    np.testing.assert_array_equal(np.signbit(found[exact == 0]), np.signbit(exact[exact == 0]))


@pytest.mark.parametrize("isa", ALL, ids=lambda isa: isa.name)
def test_extremes_carry_nan(isa):
    if isa not in runnable():
        pytest.skip(f"no {isa.name} here")
    values = np.array([np.nan, -1.0, 0.0, 3.0, np.inf, -np.inf, 2.0, -np.nan] * 2, np.float32)
    for name, exact in (("maximum", np.maximum), ("minimum", np.minimum)):
        for other in (1.0, np.nan):
            loop = f"ST@(y, {name}@(LD@(x), SPLAT@({'NAN' if other != other else '1.0f'})));"
            body, helpers = finish(
                f"for (int i = 0; i < n; i += {isa.lanes()}, x += {isa.lanes()}, y += {isa.lanes()}) {loop}", isa
            )
            target = f'__attribute__((target("{isa.target}"))) ' if isa.target else ""
            head = f"{target}void f(const float *x, float *y, int n)"
            library = compiled(INCLUDES + "\n".join(helpers) + f"\n{head};\n{head} {{ {body} }}\n", "-O2", ())
            y = np.empty_like(values)
            library.f(ctypes.c_void_p(values.ctypes.data), ctypes.c_void_p(y.ctypes.data), len(values))
            np.testing.assert_array_equal(y, exact(values, np.float32(other)))
