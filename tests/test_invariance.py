"""Order must not matter: of rule files, of rules, of nodes. Neither cost nor outputs may change."""

from __future__ import annotations

import random

import numpy as np
import onnx
import pytest

from benchmarks.models import light
from eqsat.execute.inputs import complete_inputs
from eqsat.model.load import load
from eqsat.rules.reader import read_files
from eqsat.rules.selection import shipped_rules
from eqsat.search import Search
from tests.fuzz.check import compare
from tests.fuzz.generator import generate


def reordered(model: onnx.ModelProto, rng: random.Random) -> onnx.ModelProto:
    """The model with its nodes in a random topological order, and its initializers shuffled."""
    waiting = list(model.graph.node)
    known = {i.name for i in [*model.graph.input, *model.graph.initializer]} | {""}
    order = []
    while waiting:
        ready = [n for n in waiting if all(i in known for i in n.input)]
        node = rng.choice(ready)
        waiting.remove(node)
        order.append(node)
        known.update(node.output)
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    del changed.graph.node[:], changed.graph.initializer[:]
    changed.graph.node.extend(order)
    initializers = list(model.graph.initializer)
    rng.shuffle(initializers)
    changed.graph.initializer.extend(initializers)
    return changed


def outcome(model, rules=None):
    result = Search.of(model, ["dnnl"], rules=rules or (), default_rules=rules is None, time_limit=60).extract()
    arrays = complete_inputs(load(model), seed=3)
    return result.cost, result.run(arrays)


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [*range(1, 4), *(pytest.param(s, marks=pytest.mark.heavy) for s in (0, *range(4, 24)))]
)
def test_random_graphs(seed):
    model = generate(1000 + seed)
    cost, outputs = outcome(model)
    rng = random.Random(seed)
    files = shipped_rules()
    rng.shuffle(files)
    rules = [rule for file in read_files(shipped_rules()) for rule in file.rules]
    rng.shuffle(rules)
    for other_model, other_rules in ((model, files), (model, rules), (reordered(model, rng), None)):
        other_cost, other = outcome(other_model, other_rules)
        assert other_cost == pytest.approx(cost, rel=1e-6)
        compare("another order", outputs, {name: other[name] for name in outputs})


@pytest.mark.slow
@pytest.mark.parametrize("name", ["squeezenet", "shufflenet", pytest.param("inception_v1", marks=pytest.mark.heavy)])
def test_networks(name):
    model = light(name)
    cost, outputs = outcome(model)
    rng = random.Random(0)
    rules = [rule for file in read_files(shipped_rules()) for rule in file.rules]
    rng.shuffle(rules)
    for other_model, other_rules in ((model, rules), (reordered(model, rng), None)):
        other_cost, other = outcome(other_model, other_rules)
        assert other_cost == pytest.approx(cost, rel=1e-6)
        for key, value in outputs.items():
            np.testing.assert_allclose(other[key], value, rtol=0, atol=1e-4 * np.abs(value).max())
