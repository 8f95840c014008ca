"""DynamicQuantizeLSTM in C for every instruction set, against ONNX Runtime and the numpy executor.

A difference in the last place can move a state to the next of 256 levels. So what is compared has few steps, and sizes
at which vectors and words of four bytes do not come out even.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest

from eqsat.codegen.isa import ALL, Isa
from eqsat.codegen.runtime import CModel
from eqsat.model.load import load
from tests.codegen.kernels.joined_cases import Joined, joined
from tests.codegen.kernels.vectors.test_recurrent_conditions import STRICT, UNDEFINED
from tests.ops.contrib_cases import Case, dynamic_quantize_lstm
from tests.quantization.runtime import needs_exact_products

NAME, FIXED = "DynamicQuantizeLSTM", (1, 2, 3, 7, 8, 9, 10, 11)
SHAPES = {
    "one_row": (3, 1, 7, 32),
    "rows": (3, 5, 64, 24),
    "odd": (4, 2, 5, 19),
    "one_element": (3, 1, 1, 1),
    "wide": (2, 3, 33, 65),
}
"""Steps, batch, features, hidden elements."""


def built(shape: tuple[int, int, int, int], kind: type, direction: str, seed: int, zero: int = 0) -> Case:
    rng = np.random.default_rng(seed)
    time, batch, features, n = shape
    d = 2 if direction == "bidirectional" else 1

    def some(*sizes: int) -> np.ndarray:
        return rng.standard_normal(sizes).astype(np.float32)

    def weights(rows: int) -> list[np.ndarray]:
        lowest = 0 if kind is np.uint8 else -127  # -128 is no weight of ONNX Runtime's quantizer
        return [
            rng.integers(lowest, lowest + 255, (d, rows, 4 * n)).astype(kind),
            (0.02 + 0.01 * rng.random((d, 4 * n))).astype(np.float32) / rows**0.5,
            np.full((d, 4 * n), zero, kind),
        ]

    (w, ws, wz), (r, rs, rz) = weights(features), weights(n)
    lengths = rng.integers(1, time + 1, batch).astype(np.int32) if seed % 2 else None
    states = [some(d, batch, n), some(d, batch, n)] if seed % 3 else [None, None]
    inputs = [some(time, batch, features), w, r, some(d, 8 * n), lengths, *states, None, ws, wz, rs, rz]
    return Case(NAME, inputs, {"direction": direction, "hidden_size": n}, 3, FIXED)


def cases() -> list[Case]:
    made = list(dynamic_quantize_lstm())
    for seed, shape in enumerate(SHAPES.values()):
        for number, direction in enumerate(("forward", "reverse", "bidirectional")):
            kind = (np.int8, np.uint8)[(seed + number) % 2]
            made.append(built(shape, kind, direction, seed + number, zero=128 if kind is np.uint8 else 0))
    return made


@functools.cache
def every_case() -> Joined:
    return joined({f"{n}: {case}": (case.model(), case.feed()) for n, case in enumerate(cases())})


@needs_exact_products
@pytest.mark.parametrize("isa", ALL, ids=lambda isa: isa.name)
def test_values(isa: Isa) -> None:
    compiled = every_case().compiled(isa)
    kernels = [k.family for k in compiled.emitted.kernels if k.task.operator.name == NAME]
    assert kernels == ["recurrent bytes"] * len(cases())
    every_case().check(compiled, lambda size: 2e-5 * max(1.0, size))


@pytest.mark.slow
@pytest.mark.parametrize("with_lengths", [False, True])
def test_free_sizes(with_lengths: bool) -> None:
    case = built((4, 2, 5, 19), np.int8, "bidirectional", 3 if with_lengths else 6)
    model = case.model({0: ["T", "B", 5]} | ({4: ["B"]} if with_lengths else {}))
    compiled = CModel(load(model), dims={"T": (1, 6), "B": (1, 4)}, flags=(*STRICT, *UNDEFINED))
    for time, batch in ((1, 1), (4, 3), (6, 4)):
        rng = np.random.default_rng(time)
        given = {"i0": rng.standard_normal((time, batch, 5)).astype(np.float32)}
        if with_lengths:
            given["i4"] = rng.integers(1, time + 1, batch).astype(np.int32)
        fixed = CModel(load(model), dims={"T": time, "B": batch})
        for found, wanted in zip(compiled.run(given).values(), fixed.run(given).values(), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5)


def test_threads_share_directions() -> None:
    case = built((9, 4, 64, 96), np.int8, "bidirectional", 6)
    alone, shared = CModel(load(case.model())), CModel(load(case.model()), threads=2)
    assert shared.emitted.shared == 1
    expected = alone.run(case.feed())
    for name, found in shared.run(case.feed()).items():
        np.testing.assert_array_equal(found, expected[name], err_msg=name)
