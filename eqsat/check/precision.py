"""In which floats an instance is computed: in its own, in wider ones, or with disturbances."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_FLOATS = tuple(map(np.dtype, (np.float16, np.float32, np.float64)))


@dataclass(frozen=True)
class Arithmetic:
    """Changes applied to each value.

    Attributes:
        widest: Narrower floats become this type; None changes none.
        reach: Largest disturbance, relative to the value.
        rng: Source of the disturbances.
    """

    widest: np.dtype | None = None
    reach: float = 0.0
    rng: np.random.Generator | None = None

    def of(self, array: np.ndarray) -> np.ndarray:
        """A value as this arithmetic has it."""
        if self.widest is None or array.dtype not in _FLOATS:
            return array
        wide = array.astype(np.promote_types(self.widest, array.dtype))
        if self.rng is None or not self.reach:
            return wide
        return wide * (1 + self.reach * self.rng.uniform(-1, 1, wide.shape)).astype(wide.dtype)


OWN = Arithmetic()
