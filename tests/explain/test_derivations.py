"""Every derivation, replayed from the e-nodes of the input with numpy, computes what its class computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat import op
from eqsat.audit.class_values import Values
from eqsat.audit.input_samples import sample
from eqsat.egraph.language import COMMUTED
from eqsat.egraph.snapshot import Snapshot
from eqsat.explain.derivations import Derivations, RuleApplication, needed
from eqsat.search import Search


def x(*shape: int):
    return eqsat.input("x", shape)


def weights(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0.5, 1.5, shape).astype(np.float32)


def convolution():
    y = op.Conv(x(1, 3, 8, 8), weights(4, 3, 3, 3), weights(4), pads=[1, 1, 1, 1])
    y = op.BatchNormalization(y, weights(4), weights(4, seed=1), weights(4, seed=2), weights(4, seed=3))
    return op.Relu(op.Relu(y * weights(4, 1, 1, seed=4)))


def layouts():
    y = op.Transpose(op.Transpose(x(2, 3, 4), perm=[0, 2, 1]), perm=[2, 1, 0])
    return op.Sigmoid(op.Reshape(op.Reshape(y, np.array([12, 2])), np.array([4, 6])) + np.float32(0))


def normalization():
    y = x(2, 6)
    centred = y - op.ReduceMean(y, np.array([-1]))
    variance = op.ReduceMean(centred * centred, np.array([-1]))
    return centred / op.Sqrt(variance + np.float32(1e-5)) * weights(6) + weights(6, seed=1)


def several_outputs():
    a, b = op.Split(x(2, 6), axis=1, num_outputs=2)
    return op.Concat(a * np.float32(2) * np.float32(3), op.Relu(b) + op.Relu(b), axis=1)


def attention():
    y = x(1, 4, 8)
    q, k, v = (op.MatMul(y, weights(8, 8, seed=i)) for i in range(3))
    scores = op.MatMul(q, op.Transpose(k, perm=[0, 2, 1])) / np.float32(8)
    return op.MatMul(op.Softmax(scores, axis=-1), v)


CASES: dict[str, Callable[[], Any]] = {
    f.__name__: f for f in (convolution, layouts, normalization, several_outputs, attention)
}


class Replay:
    """Computes e-nodes from those of the input, one match after another."""

    def __init__(self, search: Search, seed: int) -> None:
        self.snapshot: Snapshot = search.snapshot
        constants = self.snapshot.tables.constants
        self.values = Values(self.snapshot, sample(search.model, constants, seed), seed, 1 << 20)
        self.checked = 0
        waiting = [n for n, node in enumerate(self.snapshot.nodes) if node.rule <= COMMUTED]
        while waiting:
            ready = [n for n in waiting if self.values.ready(self.snapshot.nodes[n])]
            if not ready:
                break
            for n in ready:
                self.values.of.setdefault(self.snapshot.nodes[n].eclass, self.value(n))
            waiting = [n for n in waiting if n not in set(ready)]

    def value(self, n: int):
        found = self.values.compute(self.snapshot.nodes[n])
        assert found is not None, (self.snapshot.nodes[n], self.values.skipped)
        return found

    def match(self, match: RuleApplication) -> None:
        nodes = self.snapshot.nodes
        for n in (*match.sites, *match.built):
            assert self.values.ready(nodes[n]), f"{nodes[n]} starts from what the chain has not made"
            self.compare(nodes[n].eclass, self.value(n))
        for left, right in zip(match.left, match.right, strict=False):
            if right >= 0 and self.values.ready(nodes[right]):
                assert nodes[left].eclass == nodes[right].eclass
                self.compare(nodes[left].eclass, self.value(left))
                self.compare(nodes[left].eclass, self.value(right))
                self.checked += 1

    def compare(self, eclass: int, found) -> None:
        for expected, part in zip(self.values.of.setdefault(eclass, found), found, strict=False):
            if expected is not None and part is not None:
                np.testing.assert_allclose(part[0], expected[0], rtol=1e-5, atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("target", (None, "dnnl", "ethos_n", "ccompiler"))
@pytest.mark.parametrize("case", CASES)
def test_replayed_derivations_compute_their_classes(case: str, target: str | None) -> None:
    search = Search.of(eqsat.graph(CASES[case]()), [target] if target else [])
    nodes = search.snapshot.nodes
    made = [n for n, node in enumerate(nodes) if node.rule > COMMUTED]
    chains = Derivations(search.saturation, search.snapshot).of(made)
    assert made
    replay = Replay(search, 0)
    for n, chain in chains.items():
        rules = [m for m in chain if m.clause is not None]
        assert rules, nodes[n]
        assert n in rules[-1].built
        assert rules[-1].clause is not None and rules[-1].clause.number == nodes[n].rule
        for match in rules:
            replay.match(match)
    assert replay.checked


def test_a_chain_unites_a_node_with_what_it_stands_for() -> None:
    search = Search.of(eqsat.graph(op.Relu(op.Relu(op.Relu(x(4))))))
    nodes = search.snapshot.nodes
    relus = [n for n, node in enumerate(nodes) if node.op.name == "Relu"]
    innermost = next(n for n in relus if nodes[n].eclass != nodes[n].children[0])
    derivations = Derivations(search.saturation, search.snapshot)
    outer = next(n for n in relus if n != innermost)
    replay = Replay(search, 0)
    chain = derivations.chain(innermost, outer)
    assert chain
    for match in chain:
        replay.match(match)


def test_a_derivation_has_no_match_that_another_makes_needless() -> None:
    first, both, unused = (
        RuleApplication(None, (0,), (1,)),
        RuleApplication(None, (0,), (1, 2)),
        RuleApplication(None, (0,), (5,)),
    )
    last = RuleApplication(None, (1, 2), (3,))
    made = {1, 2, 3, 5}
    assert needed([first, both, unused, last], made) == [both, last]
    assert needed([both, last], made) == [both, last]
    assert needed([last], made) == [last]
    # What makes the end in another way does not replace the match that made it.
    assert needed([first, RuleApplication(None, (1,), (2, 3)), last], made)[-1] is last


def test_no_match_of_a_derivation_can_be_left_out() -> None:
    search = Search.of(eqsat.graph(several_outputs()))
    made = [n for n, node in enumerate(search.snapshot.nodes) if node.rule > COMMUTED]
    for chain in Derivations(search.saturation, search.snapshot).of(made).values():
        there = {n for match in chain for n in match.built}
        given = {site for match in chain for site in match.sites} - there
        for left_out in chain[:-1]:
            known = set(given)
            for match in chain[:-1] * len(chain):
                if match is not left_out and known.issuperset(match.sites):
                    known.update(match.built)
            assert not known.issuperset(chain[-1].sites)
