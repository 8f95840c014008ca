"""The searches of a model's bodies: each body is a model of its own, with a share of the time.

The e-graph of the model around it contains the bodies of the input. The programs found here take their place in the
result, and their costs count in the operators' costs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import onnx_ir as ir

from eqsat.control.before import cost_before
from eqsat.control.body_as_model import body_model
from eqsat.control.put_back import to_body
from eqsat.errors import EqsatError, VerificationError
from eqsat.extract.body_costs import BodyCost, BodyCosts
from eqsat.model.write.too_new import Newer, TooNewError
from eqsat.result import Result
from eqsat.simplify.site import BodySite, sites
from eqsat.stages.clock import Clock
from eqsat.stages.load import LoadedInput, inside
from eqsat.stages.options import Objective


@dataclass(frozen=True)
class FoundProgram:
    """A program that a search found.

    Attributes:
        result: The program; a model with the bodies' programs in their place.
        inner: The programs of its bodies.
    """

    result: Result
    inner: tuple[Inner, ...] = ()


@dataclass(frozen=True)
class Inner:
    """The program of a body.

    Attributes:
        site: The body in the input.
        found: Its program.
        check: Executes it against the body of the input.
    """

    site: BodySite
    found: FoundProgram
    check: Callable[[FoundProgram, int], Result]

    def checked(self, seed: int) -> Inner:
        """Itself, after it has been executed.

        Raises:
            VerificationError: It does not compute the same as the body of the input.
        """
        try:
            return Inner(self.site, FoundProgram(self.check(self.found, seed), self.found.inner), self.check)
        except VerificationError as error:
            place = f"the {self.site}, {error.place}" if error.place else f"the {self.site}"
            raise VerificationError(error.requirement, place=place, actual=error.actual, hint=error.hint) from error


class Searched(Protocol):
    """The search of one body."""

    @property
    def untouched(self) -> str:
        """Why the body is left unchanged; empty if it is not."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """The parts that were left out, a sentence each."""
        ...

    def find(self, objective: Objective, seed: int, counts: dict[str, int]) -> FoundProgram:
        """A program, which is not executed; regions are numbered on from ``counts``."""
        ...

    def checked(self, found: FoundProgram, seed: int) -> Result:
        """The result with its verification."""
        ...


LEAST_SHARE = 0.1
"""Share of the remaining time for even the smallest body; larger bodies get the rest."""

S = TypeVar("S", bound=Searched)


@dataclass(frozen=True)
class Nested(Generic[S]):
    """The searches of all bodies of a model that can be searched.

    Attributes:
        searches: Searches by body.
        best: The best programs.
        counts: Number of the last region in these, by target.
        notes: On bodies that stay as they are, a sentence each.
        newer: Operators that are too new in bodies without a program within the opset.
        unchanged: Costs of the bodies that stay unchanged.
    """

    searches: tuple[tuple[BodySite, S], ...] = ()
    best: tuple[Inner, ...] = ()
    counts: Mapping[str, int] | None = None
    notes: tuple[str, ...] = ()
    newer: Mapping[ir.Graph, Sequence[Newer]] = field(default_factory=dict)
    unchanged: Mapping[ir.Graph, BodyCost] = field(default_factory=dict)

    @property
    def costs(self) -> BodyCosts:
        """The costs of the best programs and of unchanged bodies."""
        return self.costs_of(self.best)

    @property
    def graphs(self) -> frozenset[ir.Graph]:
        """The bodies that programs replace."""
        return frozenset(inner.site.graph for inner in self.best)

    def costs_of(self, inner: Sequence[Inner]) -> BodyCosts:
        """The same costs for other programs."""
        return BodyCosts({**self.unchanged, **{one.site.graph: body_cost(one.found.result) for one in inner}})

    def find(
        self, objective: Objective, seed: int, counts: dict[str, int] | None
    ) -> tuple[tuple[Inner, ...], dict[str, int]]:
        """Programs of all bodies, and the number of the last named region by target.

        Args:
            objective: The kind of programs.
            seed: Seed of random ones.
            counts: Numbers of the last regions so far; None in the main graph, where numbers begin.
        """
        if objective == "best":
            return self.best, dict(self.counts or {}) if counts is None else counts
        counts = {} if counts is None else counts
        return _found(self.searches, objective, seed, counts), counts


def search_bodies(
    loaded: LoadedInput,
    clock: Clock,
    search: Callable[[LoadedInput, Clock], S],
    counts: dict[str, int],
    models: Sequence[ir.Model],
) -> Nested[S]:
    """Searches the bodies of a model, each with a share of the time according to its size.

    Args:
        loaded: The model.
        clock: Clock of the composition.
        search: Searches one body.
        counts: Number of the last named region by target; those of the bodies are added.
        models: The models whose bodies are searched: the model, and other programs of its pieces.
    """
    places = [(site, model) for model in models for site in sites(model.graph)]
    sizes = [sum(1 for _ in ir.traversal.RecursiveGraphIterator(site.graph)) for site, _ in places]
    left = sum(sizes) + len(loaded.model.graph)
    searches: list[tuple[BodySite, S]] = []
    notes: list[str] = []
    best: list[Inner] = []
    newer: dict[ir.Graph, Sequence[Newer]] = {}
    unchanged: dict[ir.Graph, BodyCost] = {}
    for (site, model), size in zip(places, sizes, strict=True):
        part, left = size / max(left, 1), left - size
        body: LoadedInput | None = None
        try:
            body = inside(loaded, body_model(site, model))
            found = search(body, clock.share(max(part, LEAST_SHARE)))
            if not found.untouched:
                best += _found([(site, found)], "best", 0, counts)
                searches.append((site, found))
            notes += [f"in the {site}: {note}" for note in found.notes]
        except VerificationError:
            raise
        except TooNewError as error:
            newer[site.graph] = error.found
        except EqsatError as error:
            notes.append(f"the {site} is left unchanged: {' '.join(str(error).split(' hint: ')[0].split())}")
        if body is not None and not (searches and searches[-1][0] is site):
            unchanged.update(_as_it_is(site, body))
    return Nested(tuple(searches), tuple(best), counts, tuple(notes), newer, unchanged)


def _as_it_is(site: BodySite, body: LoadedInput) -> dict[ir.Graph, BodyCost]:
    """The cost of an unchanged body; empty if it is unknown, and the operator is opaque."""
    try:
        once, _ = cost_before(body.given, body.targets, body.sizes)
    except EqsatError:
        return {}
    return {site.graph: BodyCost(once, once, once)}


def bodies_of(inner: Sequence[Inner]) -> tuple[dict[ir.Graph, ir.Graph], list[ir.Function]]:
    """The replacement of each body, and the functions that these call."""
    graphs: dict[ir.Graph, ir.Graph] = {}
    functions: list[ir.Function] = []
    for number, one in enumerate(inner):
        graphs[one.site.graph], called = to_body(one.site, one.found.result.model.clone(), number)
        functions += called
    return graphs, functions


def _found(
    searches: Sequence[tuple[BodySite, S]], objective: Objective, seed: int, counts: dict[str, int]
) -> tuple[Inner, ...]:
    return tuple(Inner(site, search.find(objective, seed, counts), search.checked) for site, search in searches)


def body_cost(result: Result) -> BodyCost:
    """Seconds of one run of a body."""
    return BodyCost(result.baseline_cost, result.cost, result.summary.bound)
