"""Where a rule is wrong: the narrowest statement about its operands that holds wherever its sides differ.

Statements about whole instances (element types, ranks, sizes, attributes) and about elements (their signs, special
values, which of two is less) are tried on instances on which the sides differ and on instances on which they agree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from eqsat.check.audit import Claim
from eqsat.check.instance import Instance, application
from eqsat.check.instance_data import literals
from eqsat.check.verdict import widened
from eqsat.ops.operators import has
from eqsat.ops.traits import Trait
from eqsat.rules.ast import Rule

CLEAR = 0.7
"""Largest share of agreeing elements of which a statement may be true and still be informative."""
SHARP = 0.1
"""The same for each of several statements, one of which is true wherever the sides differ."""
MOST_ELEMENTS = 100
"""Elements of one instance, so that a large instance does not count more than many small ones."""
MOSTLY = 0.8
"""Least share of differing elements of which a statement must be true to be informative if it is not true of all."""
_FEWEST = 2
"""Instances that must speak for a statement: what fewer have in common may be by chance."""
_MOST_STATEMENTS = 3


@dataclass
class Domain:
    """Collects instances of a rule, and describes those on which it is wrong.

    Attributes:
        wrong: For each instance and statement, whether it is true of each differing element.
        right: The same for the agreeing elements.
    """

    rule: Rule
    wrong: list[tuple[int, dict[str, np.ndarray]]] = field(default_factory=list)
    right: list[tuple[int, dict[str, np.ndarray]]] = field(default_factory=list)

    def add(self, instance: Instance, values: Mapping[str, np.ndarray], claim: Claim, differs: np.ndarray) -> None:
        """Adds one comparison.

        Args:
            instance: What was drawn.
            values: Of its leaves and operators by name.
            claim: The two sides.
            differs: Where they differ, an array of the shape of the left side.
        """
        flat = differs.reshape(-1)
        sides = (np.flatnonzero(flat)[:MOST_ELEMENTS], self.wrong), (np.flatnonzero(~flat)[:MOST_ELEMENTS], self.right)
        statements = dict(self._statements(instance, values, claim, differs.shape))
        if claim.right is not None and claim.right.shape == claim.left.shape and claim.left.dtype.kind == "f":
            statements["both sides are zeros, of different signs"] = differs & (claim.left == 0) & (claim.right == 0)
        for indices, kept in sides:
            if indices.size:
                kept.append(
                    (
                        indices.size,
                        {
                            text: np.broadcast_to(truth, differs.shape).reshape(-1)[indices]
                            for text, truth in statements.items()
                        },
                    )
                )

    def text(self) -> str:
        """``only where ...`` or ``mostly where ...``, empty if nothing tells the two apart."""
        if not self.wrong or not self.right:
            return ""
        texts = list(dict.fromkeys(text for _, truths in self.wrong for text in truths))
        shares = {text: self._share_of_right(text) for text in texts}
        several = self._cover([text for text in texts if shares[text] <= SHARP])
        if several:
            return "only where " + ", or where ".join(several)
        always = [text for text in texts if all(np.all(truths.get(text, False)) for _, truths in self.wrong)]
        best = min(always, key=shares.__getitem__, default="")
        if best and shares[best] <= CLEAR and len(self.wrong) >= _FEWEST:
            return f"only where {best}"
        sharp = {text: self._share_of_wrong(text) for text in texts if shares[text] <= SHARP}
        best = max(sharp, key=sharp.__getitem__, default="")
        return f"mostly where {best}" if best and sharp[best] >= MOSTLY else ""

    def _share_of_wrong(self, text: str) -> float:
        return float(np.mean([np.mean(truths.get(text, False)) for _, truths in self.wrong]))

    def _share_of_right(self, text: str) -> float:
        return float(np.mean([np.mean(truths.get(text, False)) for _, truths in self.right]))

    def _cover(self, texts: list[str]) -> list[str]:
        """The fewest statements, found greedily, such that one is true of each differing element."""
        left = [np.ones(size, bool) for size, _ in self.wrong]
        found: list[str] = []
        while any(np.any(rest) for rest in left):
            if len(found) == _MOST_STATEMENTS:
                return []
            gains = {
                text: [
                    int(np.sum(rest & truths.get(text, False)))
                    for rest, (_, truths) in zip(left, self.wrong, strict=True)
                ]
                for text in texts
            }
            sure = [text for text, gain in gains.items() if sum(g > 0 for g in gain) >= _FEWEST]
            best = max(sure, key=lambda text: sum(gains[text]), default=None)
            if best is None:
                return []
            found.append(best)
            left = [rest & ~truths.get(best, np.False_) for rest, (_, truths) in zip(left, self.wrong, strict=True)]
        return found

    # ---- statements -----------------------------------------------------------------------------------

    def _statements(
        self, instance: Instance, values: Mapping[str, np.ndarray], claim: Claim, shape: tuple[int, ...]
    ) -> Iterator[tuple[str, np.ndarray | bool]]:
        named = _named(instance, values, claim.name)
        yield from self._of_instance(instance)
        if not all(has(step.op, Trait.ELEMENTWISE) for step in instance.steps):
            return
        numbers = literals(self.rule)
        with np.errstate(all="ignore"):
            elements = {n: v for n, v in named.items() if v.dtype.kind in "fiu" and _fits(v.shape, shape)}
            for name, array in elements.items():
                yield from _of_element(name, array, numbers)
            names = list(elements)
            for i, a in enumerate(names):
                for b in names[i + 1 :]:
                    x, y = elements[a], elements[b]
                    if x.dtype == y.dtype:
                        yield f"{a} < {b}", x < y
                        yield f"{b} < {a}", y < x
                        yield f"{a} != {b}", x != y
                        yield f"{a} == {b}", x == y

    def _of_instance(self, instance: Instance) -> Iterator[tuple[str, bool]]:
        for site, step in instance.sites.items():
            bundle = dict(step.attrs)
            for bind in site.attrs:
                value = bundle.get(bind.attribute)
                if bind.name is None or not isinstance(value, int | float):
                    continue
                for number in dict.fromkeys((0.0, *literals(self.rule))):
                    yield f"{bind.name} != {number:g}", value != number
                    yield f"{bind.name} == {number:g}", value == number
                    yield f"{bind.name} < {number:g}", value < number
                    yield f"{bind.name} > {number:g}", value > number
        unnamed = [leaf.array for leaf in instance.leaves if leaf.constant and leaf.name.startswith("_")]
        zeros = any(a.dtype.kind == "f" and np.any((a == 0) & np.signbit(a)) for a in unnamed)
        yield "the constant that equals 0 is -0.0", zeros
        leaves = {leaf.name: leaf.array for leaf in instance.leaves if not leaf.name.startswith("_")}
        for name, array in leaves.items():
            yield f"{name} has integers", array.dtype.kind in "iu"
            yield f"{name} has unsigned integers", array.dtype.kind == "u"
            yield f"{name} is {array.dtype.name}", True
            yield f"{name} is empty", array.size == 0
            yield f"{name} has more than one element", array.size > 1
            yield f"{name}.rank == {array.ndim}", True
            yield f"{name}.rank > 1", array.ndim > 1
            for i, size in enumerate(array.shape):
                yield f"{name}.shape[{i}] == 1", size == 1
                yield f"{name}.shape[{i}] > 1", size > 1
        for a, first in leaves.items():
            for b, second in leaves.items():
                if a < b:
                    yield f"{a}.shape != {b}.shape", first.shape != second.shape
                    yield f"{a}.rank < {b}.rank", first.ndim < second.ndim
                    yield f"{b}.rank < {a}.rank", second.ndim < first.ndim


def differing(left: np.ndarray, right: np.ndarray, atol: float | None) -> np.ndarray:
    """Where two sides differ; everywhere if their types or shapes differ.

    Args:
        atol: Largest difference that is ignored; None if bits must be equal.
    """
    if left.shape != right.shape or left.dtype != right.dtype:
        return np.ones(left.shape, bool)
    left, right = widened(left), widened(right)
    if left.dtype.kind not in "fiu":
        return np.asarray(left != right)
    if left.dtype.kind in "iu" and not atol:
        return np.asarray(left != right)
    with np.errstate(all="ignore"):
        x, y = left.astype(np.float64), right.astype(np.float64)
        if atol is not None:
            return np.asarray(np.isfinite(x) & ~(np.abs(x - y) <= atol))
        same = (x == y) | (np.isnan(x) & np.isnan(y))
        return np.asarray(~same | ((x == 0) & (np.signbit(x) != np.signbit(y))))


def _named(instance: Instance, values: Mapping[str, np.ndarray], root: str) -> dict[str, np.ndarray]:
    """Values by the text that an author knows: names of the rule, and inner expressions of the left side."""
    texts = {leaf.name: leaf.name for leaf in instance.leaves}
    found = {leaf.name: leaf.array for leaf in instance.leaves if not leaf.name.startswith("_")}
    for step in instance.steps:
        text = application(step.op, step.attrs, [texts.get(i, i) if i else "-" for i in step.inputs])
        texts[step.outputs[0]] = text
        if step.outputs[0] != root and step.outputs[0] in values and len(text) <= 60 and "_" not in text:
            found[text] = values[step.outputs[0]]
    return found


def _of_element(name: str, array: np.ndarray, numbers: tuple[float, ...]) -> Iterator[tuple[str, np.ndarray]]:
    if array.dtype.kind == "f":
        wide = array.astype(np.float64)
        yield f"{name} is NaN", np.isnan(wide)
        yield f"{name} is infinite", np.isinf(wide)
        yield f"{name} is NaN or infinite", ~np.isfinite(wide)
        yield f"{name} is -0.0", (wide == 0) & np.signbit(wide)
        yield f"{name} is not an integer", wide != np.floor(wide)
        yield f"abs({name}) is beyond 1e4", np.abs(wide) > 1e4
        yield f"abs({name}) is below 1e-4, and {name} != 0", (np.abs(wide) < 1e-4) & (wide != 0)
    else:
        info = np.iinfo(array.dtype)
        yield f"{name} is the least number of its type", array == info.min
        yield f"{name} is the greatest number of its type", array == info.max
        yield f"{name} is odd", array % 2 != 0
        half = info.max // 2
        yield f"{name} is beyond half of the range of its type", (array > half) | (array < -half - 1)
    for number in dict.fromkeys((0.0, *numbers, *(-n for n in numbers))):
        yield f"{name} == {number:g}", array == number
        yield f"{name} < {number:g}", array < number
        yield f"{name} > {number:g}", array > number


def _fits(shape: tuple[int, ...], result: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(shape, result) == result
    except ValueError:
        return False
