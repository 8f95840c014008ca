"""Runs a piece on all its samples, and follows a difference backwards until it is certain or gone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from eqsat.ops.evaluate import TensorValue
from eqsat.verify.examine import Examiner
from eqsat.verify.judge_values import ValueDifference
from eqsat.verify.leaf_samples import EQUAL, EXTREME, LEAST, MIXED, ORDINARY, POSITIVE, TINY, ZEROS, Style, scaled
from eqsat.verify.leaves import factors, obstacle, sample
from eqsat.verify.pieces import ComparedPiece, deepened, uncut
from eqsat.verify.sides import LeafValues
from eqsat.verify.thresholds import thresholds

SMALL = 64
"""Elements up to which a tensor gets several samples of a style."""
SAMPLES = 13
"""Number of samples per piece, about."""
EVALUATIONS = 3
"""Evaluations per sample: both sides, and again in float64."""

IN_NETWORK = Style("the numbers it has in the network", "natural")

Found = tuple[ComparedPiece, ValueDifference, Style]


class UndecidedTrial(Exception):
    """A difference on drawn numbers that the budget does not suffice to follow backwards."""


@dataclass
class Trials:
    """Executes pieces.

    Attributes:
        natural: Values that classes have in the network, by class.
        budget: Remaining work that may be spent on following differences backwards.
        seed: Seed of the drawn numbers.
        used: Names of the styles that were drawn.
    """

    examiner: Examiner
    natural: Mapping[int, TensorValue]
    budget: int
    seed: int = 0
    used: dict[str, None] = field(default_factory=dict)

    def settle(self, piece: ComparedPiece, *, thorough: bool) -> Found | None:
        """A difference that remains for all computations of the leaves; None if there is none.

        Raises:
            UndecidedTrial: See there.
        """
        found = self.differs(piece, thorough=thorough)
        steps = 1
        while found is not None and found[1] is not IN_NETWORK:
            moved = self._moved(piece, steps)
            deeper = moved or uncut(self.examiner.programs, piece)
            if deeper is None:
                break
            self.budget -= EVALUATIONS * deeper.work(self.examiner.programs) * 2
            if self.budget < 0 or obstacle(self.examiner.programs, deeper):
                if moved is None:
                    break
                raise UndecidedTrial
            again = self.differs(deeper, thorough=True, first=found[1])
            if again is None:
                self.budget -= EVALUATIONS * deeper.work(self.examiner.programs) * SAMPLES
                return None
            piece, found, steps = deeper, again, 2 * steps
        return None if found is None else (piece, *found)

    def in_network(self, piece: ComparedPiece) -> LeafValues | None:
        """The values of the leaves in the network, if they were kept."""
        if all(c in self.natural for c in piece.leaves):
            return {c: self.natural[c] for c in piece.leaves}
        return None

    def natural_difference(self, piece: ComparedPiece, *, precise: bool) -> ValueDifference | None:
        """The difference on the numbers that the network has, if it remains when both sides begin at the network's
        inputs.

        Where the network has rounded leaves that belong together, the sides may differ by the precision lost before the
        piece.
        """
        natural = self.in_network(piece)
        if natural is None:
            return None
        self.used[IN_NETWORK.name] = None
        found = self.examiner.examine(piece, IN_NETWORK, natural, precise=precise)[0]
        whole = None if found is None else uncut(self.examiner.programs, piece)
        inputs = None if whole is None or obstacle(self.examiner.programs, whole) else self.in_network(whole)
        if whole is None or inputs is None:
            return found
        return self.examiner.examine(whole, IN_NETWORK, inputs, precise=precise)[0]

    def differs(
        self, piece: ComparedPiece, *, thorough: bool, first: Style | None = None
    ) -> tuple[ValueDifference, Style] | None:
        """The first sample on which the sides of a piece differ.

        Args:
            thorough: Whether to use all styles, or only two.
            first: The first style.
        """
        points = thresholds(self.examiner.programs, piece)
        if first is None:
            found = self.natural_difference(piece, precise=True)
            if found is not None:
                return found, IN_NETWORK
        for number, style in enumerate(self._styles(piece, thorough, first)):
            drawn = self._sample(piece, style, points, number)
            if drawn is None:
                continue
            found, values = self._examined(piece, style, drawn)
            if found is not None:
                return found, style
            for factor in factors(self.examiner.programs, piece, values) if style is ORDINARY else ():
                more = self._sample(piece, scaled(factor), points, number)
                if more is not None:
                    found, _ = self._examined(piece, scaled(factor), more)
                    if found is not None:
                        return found, scaled(factor)
        return None

    def _sample(self, piece: ComparedPiece, style: Style, points: Sequence[float], number: int) -> LeafValues | None:
        return sample(self.examiner.programs, piece, style, points, number, self.seed)

    def _examined(
        self, piece: ComparedPiece, style: Style, drawn: LeafValues
    ) -> tuple[ValueDifference | None, dict[int, TensorValue]]:
        self.used[style.name if not style.name[-1].isdigit() else "numbers scaled to reach the thresholds"] = None
        return self.examiner.examine(piece, style, drawn, precise=True)

    def _styles(self, piece: ComparedPiece, thorough: bool, first: Style | None) -> Iterator[Style]:
        if first is not None:
            yield first
        yield from (ORDINARY, MIXED)
        if not thorough:
            return
        yield from (POSITIVE, ZEROS, EQUAL, EXTREME, TINY, LEAST)
        kinds = [self.examiner.programs.type(c) for c in piece.leaves]
        if min((k.elements or 0 for k in kinds if k is not None), default=0) < SMALL:
            yield from (*[MIXED] * 5, *[EXTREME] * 2)

    def _moved(self, piece: ComparedPiece, steps: int) -> ComparedPiece | None:
        """The piece with its leaves moved backwards this many times; None if they cannot be moved."""
        last: ComparedPiece | None = None
        for _ in range(steps):
            deeper = deepened(self.examiner.programs, last or piece)
            if deeper is None:
                break
            last = deeper
        return last
