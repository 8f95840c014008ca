"""Kernels one by one beside the result as a whole: only what is undefined is left out of the comparison."""

from __future__ import annotations

import numpy as np
import pytest

import eqsat
from eqsat import op
from eqsat.model.expression import Tensor
from eqsat.schema.attributes import make_attrs
from eqsat.schema.types import OpKey
from eqsat.search import Search
from eqsat.verify.oracle import Failed, UndefinedConversion, own
from eqsat.verify.programs import Programs
from eqsat.verify.sides import Perturbation
from eqsat.verify.whole import is_explained, is_put_together, run_input

INT32 = 6


def programs_of(*outputs: Tensor) -> Programs:
    search = Search.of(eqsat.graph(list(outputs)))
    result = search.extract("best")
    verifier = search.verifier(result.plan, result.model)
    verifier.run()
    return verifier.programs


def casts() -> Programs:
    x = eqsat.input("x", (3,))
    return programs_of(op.Cast(x, to=INT32) + np.int32(1), op.Neg(x))


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3e9])
def test_what_follows_from_a_cast_of_what_does_not_fit_is_not_compared(value: float) -> None:
    x = np.array([1, value, 2], np.float32)
    anything = np.array([7, 8, 9], np.int32)
    assert is_put_together(casts(), {"x": x}, [anything, -x])
    assert not is_put_together(casts(), {"x": x}, [anything, x])


def test_what_fits_is_compared() -> None:
    x = np.array([1, 5, 2], np.float32)
    assert is_put_together(casts(), {"x": x}, [np.array([2, 6, 3], np.int32), -x])
    assert not is_put_together(casts(), {"x": x}, [np.array([2, 6, 4], np.int32), -x])


def test_what_cannot_be_evaluated_is_not_excused() -> None:
    x, y = eqsat.input("x", (2,), "int32"), eqsat.input("y", (2,), "int32")
    divided = programs_of(x / y)
    a, zeros = np.array([4, 6], np.int32), np.array([2, 0], np.int32)
    assert is_put_together(divided, {"x": a, "y": a}, [np.ones(2, np.int32)])
    assert not is_put_together(divided, {"x": a, "y": zeros}, [np.ones(2, np.int32)])


def test_the_oracle_tells_them_apart() -> None:
    cast, divide = OpKey("", "Cast"), OpKey("", "Div")
    with pytest.raises(UndefinedConversion, match="a float that the integer type cannot hold"):
        own(cast, make_attrs(cast, {"to": INT32}), [np.array([np.inf], np.float32)], 1)
    with pytest.raises(Failed, match="division by zero") as caught:
        own(divide, (), [np.ones(1, np.int32), np.zeros(1, np.int32)], 1)
    assert not isinstance(caught.value, UndefinedConversion)


def rounded(length: int) -> Tensor:
    """Products that are rounded to steps again and again, so that a change of the last digit may arrive as a step."""
    rng = np.random.default_rng(0)
    y, zero = eqsat.input("x", (8, 256)), np.int8(0)
    for _ in range(length):
        w = rng.standard_normal((256, 256)).astype(np.float32) / 16
        y = op.DequantizeLinear(op.QuantizeLinear(op.MatMul(y, w), np.float32(0.05), zero), np.float32(0.05), zero)
        y = op.Gelu(y) * np.float32(1.7)
    return y


@pytest.mark.slow
def test_steps_that_tiny_changes_take_as_well_are_explained_and_others_are_not() -> None:
    programs = programs_of(rounded(12))
    arrays = {"x": np.random.default_rng(1).standard_normal((8, 256)).astype(np.float32)}
    (same,), _ = run_input(programs, arrays, own)
    step = 0.05 * 1.7
    for seed in (10, 11, 12):
        (other,), _ = run_input(programs, arrays, own, noise=Perturbation(1e-5, seed))
        assert (np.abs(other - same) > step / 4).mean() > 0.01  # chaos
        assert is_explained(programs, arrays, [other], "real")
        assert not is_explained(programs, arrays, [other + np.float32(2 * step)], "real")
        wrong = other.copy()
        wrong[3] = wrong[2]
        assert not is_explained(programs, arrays, [wrong], "real")
        wrong = other.copy()
        wrong[:, 5] = 0
        assert not is_explained(programs, arrays, [wrong], "real")


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.longdouble])
@pytest.mark.parametrize("shape", [(), (7,), (3, 20_000)])
def test_noise_reaches_all_elements_and_no_farther_than_it_may(
    shape: tuple[int, ...], dtype: type[np.floating]
) -> None:
    value = np.asarray(np.random.default_rng(0).standard_normal(shape)).astype(dtype)
    if shape:
        value[..., 1], value[..., 2] = np.inf, 0
    moved = Perturbation(1e-2, 3).on(value)
    assert isinstance(moved, np.ndarray) and moved.dtype == dtype and moved.shape == shape
    free = np.isfinite(value) & (value != 0)
    assert np.array_equal(moved[~free], value[~free])
    apart = np.abs(moved[free] - value[free]) / np.abs(value[free])
    assert apart.max() <= 1.1e-2 and (apart > 0).mean() > 0.9
    assert np.array_equal(moved, Perturbation(1e-2, 3).on(value))
