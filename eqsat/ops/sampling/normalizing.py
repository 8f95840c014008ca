"""Normalisations: one value per channel, or one along the last axes."""

from __future__ import annotations

from eqsat.ops.sampling.chance import Rejected
from eqsat.ops.sampling.node import SampledNode
from eqsat.schema.types import Shape

_EPSILONS = (1e-5, 1e-3, 0.125, 0.5)


def _epsilon(node: SampledNode) -> None:
    node.near("epsilon", *_EPSILONS)


def _image(node: SampledNode, least: int = 2) -> Shape:
    shape = node.known(0)
    if shape is None:
        wish = node.shape if node.shape is not None and len(node.shape) >= least else None
        shape = node.draw(0, wish if wish is not None else node.chance.shape(least=least))
    if len(shape) < least:
        raise Rejected("no channels")
    return shape


def batch(node: SampledNode) -> None:
    _epsilon(node)
    channels = _image(node)[1]
    for i in (1, 2, 3):
        node.draw(i, (channels,))
    node.draw(4, (channels,), fill="positive")


def mean_variance(node: SampledNode) -> None:
    """Over the axes of an image's channels, or over some others."""
    chance, shape = node.chance, _image(node, 1)
    some = tuple(a for a in range(len(shape)) if chance.happens(0.5)) or (len(shape) - 1,)
    node.attr("axes", (0, 2, 3) if len(shape) >= 4 and chance.happens(0.4) else some)


def instance(node: SampledNode) -> None:
    _epsilon(node)
    channels = _image(node, 3)[1]
    for i in (1, 2):
        node.draw(i, (channels,))


def layer(node: SampledNode) -> None:
    _epsilon(node)
    shape = _image(node, 1)
    axis = node.attr("axis", node.chance.one_of((-1, len(shape) - 1, node.chance.number(0, len(shape) - 1))))
    if not -len(shape) <= axis < len(shape):
        raise Rejected("no such axis")
    for i in range(1, node.count):
        if node.has(i):
            node.draw(i, shape[axis:])


def group(node: SampledNode) -> None:
    _epsilon(node)
    channels = _image(node, 3)[1]
    node.attr("num_groups", node.chance.one_of([g for g in range(1, channels + 1) if channels % g == 0]))
    for i in (1, 2):
        node.draw(i, (channels,))
