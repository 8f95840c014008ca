"""What rounding costs is paid once, by the programs that round; checked against the values that they compute."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache

import numpy as np
import onnx_ir as ir
import pytest

import eqsat
from eqsat import op
from eqsat.egraph.approximate import Approximation
from eqsat.execute.trace import Trace
from eqsat.extract.problem import Choice, Problem
from eqsat.extract.program_cost import program_cost
from eqsat.extract.solve import solve
from eqsat.quantization.budget import Charged, approximated, charge, find_roundings
from eqsat.quantization.calibrate import calibrate
from eqsat.quantization.noise import Noise, measure_noise, measure_sqnr
from eqsat.quantization.ranges import ranges
from eqsat.quantization.scheme import Scheme, make_scheme
from eqsat.search import Search
from tests.quantization.networks import NETWORKS, built, he, samples


def branches() -> ir.Model:
    """Moved integers read in several places, a split, a concatenation, a weight with two readers."""
    x = eqsat.input("x", (1, 8, 6, 6))
    w = he(8, 4, 3, 3, seed=1)
    a, b = op.Split(op.Relu(op.Conv(x, he(8, 8, 1, 1, seed=2))), axis=1, num_outputs=2)
    left = op.Conv(a, w, pads=[1, 1, 1, 1])
    right = op.Conv(op.MaxPool(b, kernel_shape=[3, 3], pads=[1, 1, 1, 1]), w, pads=[1, 1, 1, 1])
    return built(op.GlobalAveragePool(op.Concat(left, right, op.Transpose(a, perm=[0, 1, 3, 2]), axis=1)))


CASES = {**NETWORKS, "branches": branches}


class Prepared:
    """A network with everything up to the problem that is solved."""

    def __init__(self, name: str, target: str = "") -> None:
        self.model = CASES[name]()
        self.data = samples(self.model, 12)
        self.scheme: Scheme = make_scheme(self.model, ranges(calibrate(self.model, self.data)))
        self.noise: Noise = measure_noise(self.model, self.scheme, self.data, limit=None)
        tensors = [self.scheme.tensors[i] for i in approximated(self.scheme)]
        self.search = Search.of(
            self.model,
            target or (),
            approximations=[
                Approximation(t.name, t.quantizer.scale, t.quantizer.zero, t.quantizer.axis) for t in tensors
            ],
        )
        roundings = find_roundings(self.search.snapshot, self.scheme)
        self.weights = np.array([self.noise.weights[list(u)].sum(axis=0) for u in roundings.units])
        self.charged: Charged = charge(self.search.formulation, roundings, self.weights, self.noise.outputs)


prepared = cache(Prepared)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_random_programs_pay_for_what_they_round(name: str) -> None:
    given = prepared(name)
    limited = given.charged.limited([math.inf])
    problem = given.charged.formulation.problem
    seen = set()
    for seed in range(12):
        found = given.search.extract("random", seed, limited=limited)
        rounded = given.charged.rounded(found.choices)
        spent = sum(float(problem.budgets[0].weight[c.node]) for c in found.choices.values())
        predicted = float(given.noise.weights[rounded].sum())
        assert spent == pytest.approx(predicted, rel=1e-9)
        units = {u for u, members in enumerate(given.charged.roundings.units) if set(members) & set(rounded)}
        # Constants without noise of their own round nothing.
        visible = {u for u in units if given.weights[u].any()}
        by_value = {u for u in rounded_by_value(given, found.model) if given.weights[u].any()}
        assert visible <= by_value
        # A tensor and a multiple of it have the same integers, whichever of them was rounded.
        own = [integers for u in visible for integers in integers_of(given, u)]
        for unit in by_value - visible:
            assert any(np.array_equal(a, b) for a in integers_of(given, unit) for b in own), unit
        seen.add(frozenset(units))
    assert len(seen) >= 3


def integers_of(given: Prepared, unit: int) -> list[np.ndarray]:
    """What the tensors of a unit are rounded to on the first sample."""
    sample = {name: array[0] for name, array in given.data.items()}
    exact = {}
    Trace(given.model).observe(sample, lambda name, value: exact.__setitem__(name, np.array(value)))
    tensors = [given.scheme.tensors[i] for i in given.charged.roundings.units[unit]]
    return [t.quantizer.quantize(exact[t.name]) for t in tensors if t.name in exact]


def rounded_by_value(given: Prepared, program: ir.Model) -> set[int]:
    """Units of whose tensors a program has the integers, by looking at all values that it computes or reads."""
    sample = {name: array[0] for name, array in given.data.items()}
    exact = {}
    Trace(given.model).observe(sample, lambda name, value: exact.__setitem__(name, np.array(value)))
    constants = Trace(given.model).constants
    held: list[np.ndarray] = []
    Trace(program).observe(sample, lambda name, value: held.append(np.array(value)))
    read = {v.name for node in program.graph for v in node.inputs if v is not None}
    held += [v.const_value.numpy() for n, v in program.graph.initializers.items() if n in read and v.const_value]
    found = set()
    for unit, members in enumerate(given.charged.roundings.units):
        for i in members:
            tensor = given.scheme.tensors[i]
            value = exact.get(tensor.name, constants.get(tensor.name))
            assert value is not None
            if tensor.kind == "bias":
                continue
            for integers in held:
                same = integers.dtype == tensor.quantizer.dtype and integers.size == value.size
                if same and any(_close(a, value, tensor) for a in _layouts(integers, value)):
                    found.add(unit)
    return found


def _layouts(integers: np.ndarray, value: np.ndarray) -> Iterator[np.ndarray]:
    """The integers in the value's shape; constant ones may have been transposed, and axes of one element dropped."""
    if np.squeeze(integers).shape == np.squeeze(value).shape:
        yield integers.reshape(value.shape)
    if integers.ndim == 2 and integers.T.shape == value.shape:
        yield integers.T


def _close(integers: np.ndarray, value: np.ndarray, tensor) -> bool:
    """Within the noise that may have come in before: far closer than different tensors are."""
    error = tensor.quantizer.dequantize(integers) - value
    return float(np.sqrt(np.mean(error**2))) < 0.06 * float(np.sqrt(np.mean(value**2)))


@pytest.mark.slow
@pytest.mark.parametrize("target", ["", "dnnl", "ethos_n"])
@pytest.mark.parametrize("name", CASES)
def test_random_programs_have_the_predicted_error(name: str, target: str) -> None:
    # Composites round inside what no class outside of them holds.
    given = prepared(name, target)
    limited = given.charged.limited([math.inf])
    for seed in range(5):
        found = given.search.extract("random", seed, limited=limited)
        predicted = given.noise.predict(given.charged.rounded(found.choices))
        actual = measure_sqnr(given.model, found.model, given.data)
        for output in predicted:
            if math.isinf(predicted[output]):
                assert actual[output] > 120  # exact but for the order of sums
            else:
                # A tensor counts with all of its readers, though some may read it as floats: then there is less noise.
                assert predicted[output] - 2.5 <= actual[output] <= predicted[output] + 9


def test_no_budget_is_kept_by_accident() -> None:
    # Nothing is rounded at 0, and whatever is needed for the cheapest program at infinity.
    given = prepared("residual")
    for limit, rounds in ((0.0, False), (math.inf, True)):
        limited = given.charged.limited([limit])
        found = given.search.extract(limited=limited, share=0.5)
        assert bool(given.charged.rounded(found.choices)) == rounds


@pytest.mark.parametrize("name", ["convolution", "perceptron"])
def test_extraction_within_a_budget_is_optimal(name: str) -> None:
    given = prepared(name)
    problem = given.charged.formulation.problem
    # The least cost at each level of noise, over more programs than there are reasonable ones.
    everything = list(programs(problem))
    spent = [sum(float(problem.budgets[0].weight[c.node]) for c in p.values()) for p in everything]
    costs = [program_cost(problem, p) for p in everything]
    assert len(everything) >= 4
    levels = sorted(set(spent))
    for limit in [0.0, *np.quantile(levels, [0.1, 0.3, 0.5, 0.7, 0.9]).tolist(), levels[-1], math.inf]:
        limited = given.charged.limited([limit])
        found = solve(limited.formulation.problem, incumbent=given.search.formulation.original)
        best = min(c for c, s in zip(costs, spent, strict=True) if s <= limit * (1 + 1e-9))
        assert found.cost == pytest.approx(best, rel=1e-6)
        tied = solve(limited.solved, incumbent=given.search.formulation.original)
        assert program_cost(problem, tied.choices) <= best * (1 + 3e-5)
        assert tied.bound - limited.slack <= best * (1 + 1e-9)


def programs(problem: Problem) -> Iterator[dict[int, Choice]]:
    """All programs on the host, each once."""
    options: dict[int, list[int]] = {}
    for node, klass in enumerate(problem.node_class.tolist()):
        options.setdefault(klass, []).append(node)
    # Alternatives that differ in nothing but the e-node are one.
    for klass, nodes in options.items():
        best: dict[tuple, int] = {}
        for n in nodes:
            key = (problem.children[n], tuple(float(b.weight[n]) for b in problem.budgets))
            if key not in best or problem.cost[n, 0] < problem.cost[best[key], 0]:
                best[key] = n
        options[klass] = list(best.values())

    def extend(chosen: dict[int, int], todo: list[int]) -> Iterator[dict[int, int]]:
        todo = [k for k in todo if k not in chosen]
        if not todo:
            yield dict(chosen)
            return
        for n in options.get(todo[0], ()):
            chosen[todo[0]] = n
            if not _cyclic(problem, chosen, todo[0]):
                yield from extend(chosen, [*todo[1:], *problem.children[n]])
            del chosen[todo[0]]

    for found in extend({}, list(problem.roots)):
        yield {k: Choice(n, 0) for k, n in found.items()}


def _cyclic(problem: Problem, chosen: dict[int, int], start: int) -> bool:
    todo, seen = list(problem.children[chosen[start]]), set()
    while todo:
        klass = todo.pop()
        if klass == start:
            return True
        if klass in chosen and klass not in seen:
            seen.add(klass)
            todo += problem.children[chosen[klass]]
    return False
