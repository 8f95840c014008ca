"""Groups of tensors, of both models, that may be equal: the places at which the models are cut into pieces."""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.equivalence.tensor_values import Sign, may_be_equal
from eqsat.equivalence.tensors import Tensors

ClassGroup = list[int]
"""Numbers of tensors, in order."""


def groups(tensors: Tensors, signs: tuple[dict[str, list[Sign]], dict[str, list[Sign]]]) -> list[ClassGroup]:
    """The groups by their first tensor, without constants.

    Args:
        tensors: Tensors of both models.
        signs: Fingerprints of their values, by name.
    """
    buckets: dict[object, list[tuple[int, list[Sign]]]] = {}
    for k in range(len(tensors.values)):
        seen = signs[tensors.side[k]].get(tensors.name(k))
        if tensors.fixed[k] or seen is None or tensors.type(k) is None or not all(seen):
            continue
        buckets.setdefault(tuple(sign[:2] for sign in seen), []).append((k, seen))
    found: list[ClassGroup] = []
    for members in buckets.values():
        found += _alike(members)
    # Joined tensors belong together even if their values are unknown.
    grouped = {k for group in found for k in group}
    joined: dict[int, ClassGroup] = {}
    for k in range(len(tensors.values)):
        if k not in grouped and not tensors.fixed[k]:
            joined.setdefault(tensors.joined.find(k), []).append(k)
    found += joined.values()
    return sorted(group for group in found if {tensors.side[k] for k in group} == {0, 1})


def _alike(members: Sequence[tuple[int, list[Sign]]]) -> list[ClassGroup]:
    found: list[tuple[list[Sign], ClassGroup]] = []
    # By the first sum, so that only neighbours are compared.
    ordered = sorted(members, key=lambda member: (member[1][0][4].real if len(member[1][0]) > 4 else 0.0, member[0]))
    for k, seen in ordered:
        group = next((g for first, g in reversed(found[-8:]) if may_be_equal(first, seen)), None)
        if group is None:
            found.append((seen, [k]))
        else:
            group.append(k)
    return [sorted(group) for _, group in found]
