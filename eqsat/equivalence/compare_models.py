"""Compares two models: a proof where there is one, otherwise an input that tells them apart, or neither."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

import numpy as np

from eqsat.check.gate import require_believed
from eqsat.equivalence.candidates import groups
from eqsat.equivalence.closure import CONGRUENT, ROUNDED
from eqsat.equivalence.join import JoinedModels, join
from eqsat.equivalence.places import first_apart
from eqsat.equivalence.prove import Proof, Prover
from eqsat.equivalence.refute import refuted
from eqsat.equivalence.tensor_values import Observed, observe
from eqsat.equivalence.tensors import Tensors
from eqsat.equivalence.verdict import Counterexample, DivergencePoint, Equivalence, Joint
from eqsat.errors import EqsatError
from eqsat.execute.difference import compare_values, is_integer
from eqsat.execute.executor import Executor
from eqsat.execute.inputs import complete_inputs
from eqsat.model.load import GivenModel
from eqsat.report.trust import TrustInRules, trust_of
from eqsat.rules.selection import NumericsClass
from eqsat.rules.verdicts import weakest_verdict
from eqsat.schema.chosen_sizes import samples as sizes_of
from eqsat.schema.declared_operators import declared
from eqsat.schema.free_sizes import within
from eqsat.stages.clock import Clock
from eqsat.stages.event import Progress
from eqsat.stages.options import SearchOptions

SAMPLES = 3
"""Inputs on which both models are executed."""
TRACED = 2
"""Inputs on which all tensors are looked at."""
SCALES: tuple[tuple[float, ...], ...] = ((1.0,), (8.0,), (), (0.1,), (30.0,))
"""Factors of the numbers that are drawn, by input; by default, the models' own numbers."""
NEAR = 1 / 4
"""Share of the numbers of such an input that are equal to the models' own, or between two of them."""
MOST_SCALE = 1e6
"""Greater numbers in a model, such as those of masks, are not thresholds of inputs."""

GivenInputs = dict[str, Any]


def equivalence(
    a: GivenModel,
    b: GivenModel,
    options: SearchOptions,
    *,
    samples: int = SAMPLES,
    seed: int = 0,
    progress: Progress | None = None,
) -> Equivalence:
    """Whether two models are equal.

    Args:
        a: The first one.
        b: The second one.
        options: Rules, sizes, limits.
        samples: On how many inputs both are executed.
        seed: Of these inputs.
        progress: Receives events.

    Raises:
        ModelError: One is broken, or they differ in inputs or outputs.
        RuleError: A rule is wrong.
    """
    clock = Clock(options.time_limit, progress)
    with clock.stage("load"):
        both = join(a, b, options)
    notes = both.notes
    strange = [] if options.trust else both.first.strange
    if strange:
        with clock.paused(), clock.stage("check"), declared(both.first.operators):
            notes = (*notes, *require_believed(strange))
    with declared(both.first.operators), within(both.first.sizes):
        found = _compared(both, options, clock, samples, seed)
    return replace(found, notes=(*notes, *found.notes), seconds=dict(clock.seconds))


def _compared(both: JoinedModels, options: SearchOptions, clock: Clock, count: int, seed: int) -> Equivalence:
    a, b = both.first.model, both.second.model
    with clock.stage("execute"):
        drawn, notes = _drawn(both, count, seed)
        seen = observe(a, drawn[:TRACED]), observe(b, [_for_second(both, x) for x in drawn[:TRACED]])
        executed, difference, said = _executed(both, drawn, seen, options.numerics)
        notes += said
    tensors = Tensors.of(a, b, both.inputs)
    ends = _ends(tensors, both)
    grouped = groups(tensors, (seen[0].signs, seen[1].signs))
    cuts = {k: number for number, group in enumerate(grouped) for k in group}
    alike = [pair for pair in ends if difference is None or (pair[0] in cuts and cuts[pair[0]] == cuts.get(pair[1]))]
    with clock.stage("prove"):
        rounded = options.numerics != "exact"
        proof = Prover(tensors, grouped, alike, both.rules, clock, rounded=rounded).run()
    proven = [tensors.joined.same(*pair) for pair in ends]
    apart = [pair for pair, done in zip(ends, proven, strict=True) if not done]
    differing = [pair for pair in apart if pair not in alike]
    places = first_apart(tensors, differing or apart, cuts if differing else {})
    verdict = "equal" if all(proven) else "different" if difference is not None else "not proven"
    numbers = {rule.name: rule.numerics.kind for rule in both.rules}
    if difference is not None and verdict == "equal":
        wrong = refuted(proof, ends, (difference.inputs, _for_second(both, difference.inputs)))
        if wrong is None:
            notes.append(
                f"rounding, which the models magnify, shows on input {difference.number}: {difference.difference}"
            )
        else:
            verdict, places, proven = "different", [_refuted_place(proof, *wrong)], [False] * len(ends)
    trust = trust_of(proof.used, both.rules)
    return Equivalence(
        verdict,
        _weakest(proof.used, numbers),
        tuple((*names, done) for names, done in zip(both.outputs, proven, strict=True)),
        _joints(proof, trust, numbers),
        len({k for k in range(len(tensors.values)) if not tensors.fixed[k] and tensors.joined.find(k) != k}),
        tuple(sorted(proof.used)),
        tuple(places),
        None if verdict == "equal" else difference,
        executed,
        both.inputs,
        tuple(notes),
        proof.over,
        proof.enodes,
        trust=trust,
    )


def _ends(tensors: Tensors, both: JoinedModels) -> list[tuple[int, int]]:
    named = [{v.name: tensors.number[v] for v in m.graph.outputs} for m in tensors.models]
    return [(named[0][x], named[1][y]) for x, y in both.outputs]


# ---- inputs ---------------------------------------------------------------------------------------


def _drawn(both: JoinedModels, count: int, seed: int) -> tuple[list[GivenInputs], list[str]]:
    """Inputs of several sizes and magnitudes, as far as they can be drawn."""
    found: list[GivenInputs] = []
    model, sizes = both.first.model, list(sizes_of(both.first.sizes))
    numbers = [number for number in _constants(both) if number < MOST_SCALE]
    for i in range(count):
        try:
            arrays = complete_inputs(model, dims=sizes[i % len(sizes)], seed=seed + i)
        except EqsatError as error:
            return found, [f"no inputs were drawn: {error.requirement}"]
        scales = SCALES[i % len(SCALES)]
        rng = np.random.default_rng([seed, i])
        near = () if scales else _thresholds(numbers)
        scales = scales or (1.0, *(2 * number for number in numbers if 2 * number > 1))
        found.append({name: _scaled(array, scales, near, rng) for name, array in arrays.items()})
    return found, []


def _constants(both: JoinedModels) -> list[float]:
    """Magnitudes of the models' single numbers, where programs may have thresholds."""
    numbers: set[float] = set()
    for model in (both.first.model, both.second.model):
        for value in model.graph.initializers.values():
            tensor = value.const_value
            if tensor is not None and tensor.size == 1 and tensor.dtype.is_floating_point():
                numbers.add(abs(float(tensor.numpy().reshape(()))))
    return sorted(numbers)


def _thresholds(numbers: Sequence[float]) -> Sequence[float]:
    """These numbers, and those halfway between two neighbours, where a threshold that moved shows; of both signs."""
    found = {*numbers, *((a + b) / 2 for a, b in itertools.pairwise(numbers))}
    return sorted({sign * number for number in found for sign in (1, -1)})


def _scaled(array: Any, scales: Sequence[float], near: Sequence[float], rng: np.random.Generator) -> Any:
    """Floating-point numbers times a factor; if there are several factors, one is drawn for each number.

    Args:
        near: Numbers that replace a share of them.
    """
    if not isinstance(array, np.ndarray) or array.dtype.kind in "biuOUS":
        return array
    if is_integer(array.dtype):
        return array
    factors = rng.choice(np.asarray(scales), array.shape) if len(scales) > 1 else scales[0]
    drawn = array.astype(np.float64) * factors
    if near:
        drawn = np.where(rng.random(array.shape) < NEAR, rng.choice(np.asarray(near), array.shape), drawn)
    return drawn.astype(array.dtype)


def _for_second(both: JoinedModels, arrays: Mapping[str, Any]) -> GivenInputs:
    return {second: arrays[first] for first, second in both.inputs}


def _executed(
    both: JoinedModels, drawn: Sequence[GivenInputs], seen: tuple[Observed, Observed], numerics: NumericsClass
) -> tuple[int, Counterexample | None, list[str]]:
    """The number of inputs on which both models were executed, the first on which they differ, and why there are no
    more.

    Args:
        seen: The runs on the first inputs.
    """
    runs = list(zip(seen[0].outputs, seen[1].outputs, strict=False))
    failure = seen[0].failure or seen[1].failure
    a, b = Executor(both.first.model), Executor(both.second.model)
    for i, arrays in enumerate(drawn):
        try:
            if i >= len(runs):
                runs.append((a.run(arrays), b.run(_for_second(both, arrays))))
        except EqsatError as error:
            failure = str(error)
            break
        left, right = runs[i]
        for first, second in both.outputs:
            difference = compare_values(first, left[first], right[second], numerics=numerics)
            if not difference.agrees and (SCALES[i % len(SCALES)] or _is_finite(left[first], right[second])):
                return i + 1, Counterexample(i, arrays, difference), []
    return len(runs), None, [f"the models cannot be executed on all inputs: {failure}"] if failure else []


def _is_finite(*values: Any) -> bool:
    """Whether no value has overflowed, as programs may that are equal otherwise."""
    arrays = [v for v in values if isinstance(v, np.ndarray) and v.dtype.kind in "fc"]
    return all(bool(np.isfinite(array).all()) for array in arrays)


def _refuted_place(proof: Proof, left: int, right: int) -> DivergencePoint:
    rules = next((step.rules for step in proof.steps if (step.left, step.right) == (left, right)), ())
    names = ", ".join(rule for rule in rules if rule != CONGRUENT)
    reason = f"joined by {names or 'equal operators'}, which is wrong here: the values differ by more than rounding"
    tensors = proof.tensors
    return DivergencePoint(
        tensors.name(left), tensors.name(right), (tensors.operator(left), tensors.operator(right)), reason
    )


# ---- the verdict ----------------------------------------------------------------------------------


def _weakest(used: Iterable[str], numerics: Mapping[str, str]) -> NumericsClass:
    """The weakest class of some rules; constants that were computed with other roundings are equal over the reals."""
    found: NumericsClass = "exact"
    order: tuple[NumericsClass, ...] = get_args(NumericsClass)
    classes = {numerics.get(name, "real" if name == ROUNDED else "exact") for name in used}
    for kind in order:
        found = kind if kind in classes else found
    return found


def _joints(proof: Proof, trust: TrustInRules, numerics: Mapping[str, str]) -> tuple[Joint, ...]:
    tensors = proof.tensors
    joints = []
    # If no rule was needed, the tensors are computed in the same way.
    for step in sorted(proof.steps, key=lambda s: (s.right, s.left)):
        if not set(step.rules) - {CONGRUENT}:
            continue
        operators = (tensors.operator(step.left), tensors.operator(step.right))
        names = (tensors.name(step.left), tensors.name(step.right))
        sides = tensors.side[step.left], tensors.side[step.right]
        model = "" if sides[0] != sides[1] else ("first", "second")[sides[0]]
        proven = weakest_verdict(trust.verdicts[rule] for rule in step.rules if rule in trust.verdicts)
        joints.append(Joint(*names, operators, step.rules, _weakest(step.rules, numerics), model, proven))
    return tuple(joints)
