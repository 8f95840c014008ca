"""Matrix products."""

from __future__ import annotations

from string import ascii_lowercase

from eqsat.ops.sampling.chance import Chance, Rejected
from eqsat.ops.sampling.node import SampledNode
from eqsat.schema.types import Shape


def gemm_sizes(node: SampledNode, a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int, int]:
    """Rows, sum and columns of a product of two matrices, drawn where they are not known.

    Args:
        node: The product.
        a: Number of the left operand, and whether it is transposed.
        b: Of the right operand.
    """
    (a_number, a_turned), (b_number, b_turned) = a, b
    chance, left, right = node.chance, node.known(a_number), node.known(b_number)
    wish = node.shape if node.shape is not None and len(node.shape) == 2 else None
    if any(s is not None and len(s) != 2 for s in (left, right)):
        raise Rejected("no matrix")
    rows = left[1 if a_turned else 0] if left else wish[0] if wish else chance.number(1, 4)
    columns = right[0 if b_turned else 1] if right else wish[1] if wish else chance.number(1, 5)
    inner = left[0 if a_turned else 1] if left else right[1 if b_turned else 0] if right else chance.number(1, 5)
    return rows, inner, columns


def gemm(node: SampledNode) -> None:
    chance = node.chance
    a_turned = node.attr("transA", int(chance.happens(0.4)))
    b_turned = node.attr("transB", int(chance.happens(0.4)))
    for name in ("alpha", "beta"):
        if chance.happens(0.4):
            node.real(name, 1.0, 0.5, 2.0)
    rows, inner, columns = gemm_sizes(node, (0, a_turned), (1, b_turned))
    node.draw(0, (inner, rows) if a_turned else (rows, inner))
    node.draw(1, (columns, inner) if b_turned else (inner, columns))
    if node.has(2):
        shapes: list[Shape] = [(columns,), (columns,), (rows, columns), (1, columns), (rows, 1), (1,), ()]
        node.draw(2, chance.one_of(shapes))


def matmul(node: SampledNode) -> None:
    chance = node.chance
    left, right = node.known(0), node.known(1)
    wish = node.shape if node.shape is not None and len(node.shape) >= 2 else None
    batch: Shape = wish[:-2] if wish else ()
    if wish is None and left is None and right is None and chance.happens(0.35):
        batch = chance.shape(chance.number(1, 2))
    rows = wish[-2] if wish else chance.number(1, 4)
    columns = wish[-1] if wish else chance.number(1, 5)
    if left:
        inner, batch = left[-1], left[:-2] if len(left) > 2 else batch
    elif right:
        inner = right[max(len(right) - 2, 0)]
    else:
        inner = chance.number(1, 5)
    vectors = wish is None and chance.happens(0.12)
    order = (0, 1) if node.kind(0) in ("known", "node") or node.kind(1) not in ("known", "node") else (1, 0)
    for i in order:
        matrix = (rows, inner) if i == 0 else (inner, columns)
        own = chance.weighted({batch: 0.6, (): 0.4}) if i == 1 else batch
        node.draw(i, (inner,) if vectors and chance.happens(0.5) else (*own, *matrix))
    for i in (2, 3):
        if node.has(i):
            node.draw(i, ())


def einsum(node: SampledNode) -> None:
    chance = node.chance
    written = node.attr("equation", _equation(chance, node.count, node.shape))
    terms, _, result = written.partition("->")
    sizes: dict[str, int] = dict(zip(result, node.shape, strict=False)) if node.shape else {}
    operands = terms.split(",")
    if len(operands) != node.count or not (terms + result).replace(",", "").isalpha():
        raise Rejected("another kind of equation")
    for i, labels in enumerate(operands):
        known = node.known(i)
        if known is not None and len(known) != len(labels):
            raise Rejected("an operand of another rank")
        sizes |= dict(zip(labels, known or (), strict=False))
    for i, labels in enumerate(operands):
        node.draw(i, tuple(sizes.setdefault(label, chance.number(1, 4)) for label in labels))


def _equation(chance: Chance, operands: int, shape: Shape | None) -> str:
    """Labels of kinds: in the result and in one operand, in the result and in all, in all operands, in one."""
    letters = iter(ascii_lowercase)

    def some(most: int) -> list[str]:
        return [next(letters) for _ in range(chance.number(0, most))]

    shared, summed = some(2), some(2) if operands > 1 else []
    own = [some(2) for _ in range(operands)]
    kept = [*shared, *(label for labels in own for label in labels)]
    if shape is not None:
        while len(kept) < len(shape):
            own[0].append(next(letters))
            kept.append(own[0][-1])
        kept = kept[: len(shape)]
    elif chance.happens(0.15) and kept:
        kept = kept[1:]
    terms = [chance.shuffled([*shared, *labels, *summed]) for labels in own]
    return ",".join("".join(labels) for labels in terms) + "->" + "".join(chance.shuffled(kept))
