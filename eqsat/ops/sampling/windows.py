"""Convolutions and pools: a window slides over the spatial dimensions."""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.ops.sampling.chance import Rejected
from eqsat.ops.sampling.node import SampledNode
from eqsat.schema.types import Shape

_MOST_PADDING = 2  # on one side of a dimension
_ONE_STEP = 2 * _MOST_PADDING + 1


def _spatial(node: SampledNode) -> int:
    """Number of spatial dimensions."""
    for shape in (node.known(0), node.shape):
        if shape is not None and len(shape) >= 3:
            return len(shape) - 2
    for name, share in (("kernel_shape", 1), ("strides", 1), ("dilations", 1), ("pads", 2)):
        if name in node.required:
            return len(node.attrs[name]) // share
    return node.chance.weighted({1: 0.25, 2: 0.6, 3: 0.15})


class _Window:
    """The attributes of a window, drawn."""

    def __init__(self, node: SampledNode, n: int, *, whole: Sequence[int] | None = None) -> None:
        chance = node.chance
        self.n = n
        kernel = tuple(whole) if whole is not None else tuple(chance.number(1, 3) for _ in range(n))
        named = whole is not None or "kernel_shape" in node.required or chance.happens(0.7)
        self.kernel: tuple[int, ...] = tuple(node.attr("kernel_shape", kernel)) if named else kernel
        usual = chance.happens(0.5)
        # A window as large as the image may have padding only if it makes one step.
        padded = whole is not None and chance.happens(0.25)
        strides = (_ONE_STEP,) * n if padded else tuple(1 if usual else chance.number(1, 3) for _ in range(n))
        self.strides = tuple(node.attr("strides", strides))
        plain = chance.happens(0.7)
        dilations = tuple(1 if plain else chance.number(1, 2) for _ in range(n))
        self.dilations: tuple[int, ...] = tuple(node.attr("dilations", dilations))
        none = not padded if whole is not None else chance.happens(0.4)
        self.pads = tuple(
            0 if none else chance.number(0, min(_MOST_PADDING, self.kernel[i % n] - 1)) for i in range(2 * n)
        )
        said = node.attrs.get("auto_pad")
        self.auto = "pads" not in node.required and (said not in (None, "NOTSET") or chance.happens(0.1))
        if self.auto:
            self.pads = (0,) * (2 * n)
            node.attr("auto_pad", chance.one_of(("VALID", "SAME_UPPER", "SAME_LOWER")))
        else:
            self.pads = tuple(node.attr("pads", self.pads))
        if any(len(drawn) != n for drawn in (self.kernel, self.strides, self.dilations)) or len(self.pads) != 2 * n:
            raise Rejected("attributes of a window of other dimensions are required")

    def input(self, i: int, output: int) -> int:
        """The size of an input dimension that gives an output of this size."""
        extent = self.dilations[i] * (self.kernel[i] - 1) + 1
        return max((output - 1) * self.strides[i] + extent - self.pads[i] - self.pads[i + self.n], 1)


def _wished(node: SampledNode, n: int) -> Shape | None:
    return node.shape if node.shape is not None and len(node.shape) == n + 2 else None


def convolution(node: SampledNode) -> None:
    outputs = convolution_shapes(node, 0, 1)
    if node.op.name == "Conv":
        if node.has(2):
            node.draw(2, (outputs,))
    else:
        for i in (2, 3):
            if node.has(i):
                node.draw(i, ())


def convolution_shapes(node: SampledNode, data: int, weight: int) -> int:
    """Draws image, weight and attributes of a convolution; returns the number of output channels."""
    chance, n = node.chance, _spatial(node)
    window, wish = _Window(node, n), _wished(node, n)
    shape, kernel = node.known(data), node.known(weight)
    outputs = kernel[0] if kernel else wish[1] if wish else chance.number(1, 6)
    group = node.attrs.get("group")
    if shape is None:
        if group is None:
            group = chance.one_of([g for g in range(1, 5) if outputs % g == 0]) if chance.happens(0.4) else 1
        channels = group * chance.number(1, 3)
        batch = wish[0] if wish else chance.number(1, 2)
        out = wish[2:] if wish else tuple(chance.number(1, 5) for _ in range(n))
        shape = node.draw(data, (batch, channels, *(window.input(i, o) for i, o in enumerate(out))))
    if len(shape) < 3:
        raise Rejected("no image")
    if group is None:
        group = chance.one_of([g for g in range(1, 5) if outputs % g == 0 and shape[1] % g == 0])
    group = node.attr("group", group)
    if group < 1 or shape[1] % group:
        raise Rejected("no groups")
    if kernel is None and outputs % group:
        outputs = group * chance.number(1, 2)
    return node.draw(weight, (outputs, shape[1] // group, *window.kernel))[0]


def convolution_output(node: SampledNode, data: int, weight: int) -> Shape:
    """The shape of the result, once image, weight and attributes are drawn."""
    shape, kernel = node.known(data), node.known(weight)
    if shape is None or kernel is None:
        raise Rejected("no image")
    n = len(shape) - 2
    strides, dilations = (node.attrs.get(name, (1,) * n) for name in ("strides", "dilations"))
    pads = node.attrs.get("pads", (0,) * (2 * n))
    sizes = []
    for i, size in enumerate(shape[2:]):
        extent = dilations[i] * (kernel[i + 2] - 1) + 1
        if node.attrs.get("auto_pad", "NOTSET").startswith("SAME"):
            sizes.append(-(-size // strides[i]))
        else:
            sizes.append((size + pads[i] + pads[i + n] - extent) // strides[i] + 1)
    return (shape[0], kernel[0], *sizes)


def transposed_convolution(node: SampledNode) -> None:
    chance, n = node.chance, _spatial(node)
    window, wish = _Window(node, n), _wished(node, n)
    shape = node.known(0)
    group = node.attr("group", chance.weighted({1: 0.7, 2: 0.3}))
    if shape is None:
        batch = wish[0] if wish else chance.number(1, 2)
        shape = node.draw(0, (batch, group * chance.number(1, 3), *(chance.number(1, 4) for _ in range(n))))
    if chance.happens(0.3):
        node.attr("output_padding", tuple(chance.number(0, s - 1) for s in window.strides))
    outputs = wish[1] if wish and wish[1] % group == 0 else group * chance.number(1, 3)
    node.draw(1, (shape[1], outputs // group, *window.kernel))
    if node.has(2):
        node.draw(2, (outputs,))


def pool(node: SampledNode) -> None:
    chance, n = node.chance, _spatial(node)
    shape = node.known(0)
    wish = _wished(node, n)
    if shape is None and chance.happens(0.45):
        # A window as large as the image.
        batch, channels = wish[:2] if wish else (chance.number(1, 2), chance.number(1, 4))
        shape = node.draw(0, (batch, channels, *(chance.number(1, 4) for _ in range(n))))
        window = _Window(node, n, whole=shape[2:] if len(shape) == n + 2 else None)
    else:
        window = _Window(node, n)
    node.attr("kernel_shape", window.kernel)
    if node.op.name == "AveragePool":
        node.attr("count_include_pad", int(chance.happens(0.4)))
    elif node.op.name == "LpPool":
        node.attr("p", chance.number(1, 3))
    elif node.op.name == "MaxPool" and node.outputs > 1:
        node.attr("storage_order", int(chance.happens(0.3)))
    if not window.auto and chance.happens(0.2):
        node.attr("ceil_mode", 1)
    out = wish[2:] if wish else tuple(chance.number(1, 4) for _ in range(n))
    batch, channels = wish[:2] if wish else (chance.number(1, 2), chance.number(1, 4))
    node.draw(0, (batch, channels, *(window.input(i, o) for i, o in enumerate(out))))


def global_pool(node: SampledNode) -> None:
    n = _spatial(node)
    if node.op.name == "GlobalLpPool":
        node.attr("p", node.chance.number(1, 3))
    wish = _wished(node, n)
    first = wish[:2] if wish else (node.chance.number(1, 2), node.chance.number(1, 4))
    node.draw(0, (*first, *(node.chance.number(1, 4) for _ in range(n))))
