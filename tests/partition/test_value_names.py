"""Names of values and of functions: what users gave stays, everything else gets out of its way."""

from __future__ import annotations

import numpy as np

from tests.partition.checks import check
from tests.partition.plans import Builder, body


def test_odd_and_colliding_names():
    b = Builder()
    x = b.input("in put/0:ü\n", (2, 3))
    c = b.constant(np.ones((30, 3), np.float32)[:2], "dnnl_0")
    big = b.constant(np.arange(60, dtype=np.float32).reshape(20, 3), "Relu_0")
    y = b.node("Relu", x, target=1)  # unnamed: would be Relu_0
    z = b.node("Relu", y, target=0)
    w = b.node("Add", z, c, target=1, name="in put/0:ü\n")  # an input has that name
    v = b.node("Concat", w, big, target=2, name="{}", axis=0)
    u = b.node("Neg", v, target=0, name="{}")  # twice
    b.output(b.node("Abs", u, target=1, name='"quoted"'), "cpu_0")
    model = check(*b.build())
    names = [v.name for n in model.graph for v in n.outputs]
    assert "{}" in names and "{}_1" in names and "Relu_1" in names
    assert "Relu_0" in model.graph.initializers


def test_names_of_functions():
    """One definition bears the composite's name; several are named after their operators, whatever the order."""
    attrs = {"kernel_shape": [1, 1], "strides": [1, 1], "pads": [0] * 4, "dilations": [1, 1]}
    plain = body(2, ("Conv", (0, 1), attrs), ("Relu", (2,)))
    strided = body(2, ("Conv", (0, 1), attrs | {"strides": [2, 2]}), ("Relu", (2,)))
    biased = body(3, ("Conv", (0, 1, 2), attrs), ("Relu", (3,)))
    summed = body(3, ("Conv", (0, 1), attrs), ("Add", (3, 2)), ("Relu", (4,)))

    def names(*uses):
        b = Builder()
        x = b.input("x", (1, 2, 4, 4))
        w = b.constant(np.ones((2, 2, 1, 1), np.float32))
        extra = b.constant(np.ones(2, np.float32))
        for k, (name, definition) in enumerate(uses):
            operands = (x, w, extra)[: definition.inputs] if definition is not summed else (x, w, x)
            b.output(b.composite(name, definition, *operands), f"y{k}")
        model = check(*b.build())
        return {f.name for f in model.functions.values() if f.domain == "eqsat.dnnl.composite"}

    assert names(("conv", plain), ("conv", strided)) == {"conv"}
    assert names(("conv", plain), ("conv", biased)) == {"conv_relu", "conv_bias_relu"}
    assert names(("conv", biased), ("conv", strided), ("conv", plain)) == {"conv_relu", "conv_bias_relu"}
    # Another composite is really called so; its name is not touched.
    taken = names(("conv", plain), ("conv", biased), ("conv_relu", summed))
    assert taken == {"conv_relu", "conv_relu_1", "conv_bias_relu"}


def test_attributes_of_the_same_name_stay_apart():
    definition = body(
        1, ("ReduceSum", (0,), {"keepdims": 1}), ("Concat", (0, 0), {"axis": 0}), ("Concat", (2, 2), {"axis": 1})
    )
    b = Builder()
    x = b.input("x", (2, 3))
    b.output(b.composite("two", definition, x), "y")
    other = body(
        1, ("ReduceSum", (0,), {"keepdims": 0}), ("Concat", (0, 0), {"axis": 1}), ("Concat", (2, 2), {"axis": 0})
    )
    b.output(b.composite("two", other, x), "z")
    model = check(*b.build())
    function = model.functions["eqsat.dnnl.composite", "two", ""]
    assert set(function.attributes) == {"keepdims", "noop_with_empty_axes", "axis", "concat_axis"}
