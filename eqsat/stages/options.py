"""The options of a search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypedDict

from eqsat.bounds import check_seconds
from eqsat.egraph.limits import check_limits
from eqsat.model.read.given_sizes import GivenSize
from eqsat.partition.partition_functions import PartitionFunction
from eqsat.rules.ast import Rule, Target
from eqsat.rules.selection import NumericsClass
from eqsat.rules.user_operators import Declaration

Objective = Literal["best", "worst", "random"]


class SharedArguments(TypedDict, total=False):
    """The keywords of all public functions that search; :class:`SearchOptions` explains them."""

    rules: Sequence[str | Path | Rule]
    default_rules: bool
    dims: Mapping[str, GivenSize] | None
    values: Mapping[str, Any] | None
    declarations: Sequence[Declaration]
    time_limit: float
    trust: bool


class ProofArguments(SharedArguments, total=False):
    """Keywords of :func:`eqsat.prove`."""

    numerics: NumericsClass


class LimitedArguments(SharedArguments, total=False):
    """Keywords of functions that search for a program."""

    host: str | Path | Target | None
    iterations: int | None
    enodes: int | None


class ReasonArguments(ProofArguments, LimitedArguments, total=False):
    """Keywords of :func:`eqsat.explain_rule` and :func:`eqsat.explain_placement`."""

    ops: str | Sequence[str]


class ResultArguments(LimitedArguments, total=False):
    """Keywords of :func:`eqsat.quantize`."""

    opset: int | None
    partition_functions: Mapping[str, PartitionFunction] | None


class SearchArguments(ReasonArguments, ResultArguments, total=False):
    """Keywords of :func:`eqsat.optimize`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """The arguments of :func:`eqsat.optimize` that say which programs are searched, and for how long.

    Attributes:
        targets: Accelerators by name or target file.
        host: What runs all that no accelerator takes, by name or target file; None for ``cpu``.
        rules: Rule files, or rules, in addition to the shipped ones.
        default_rules: Whether the shipped rules are applied.
        dims: Sizes for symbolic dimensions, or ranges of them.
        values: Values for inputs, which become constants.
        free_sizes: Whether symbolic dimensions of inputs may stay free; otherwise all of them must be bound.
        numerics: How far rules may change values.
        ops: Domains of the operators that rules and composites may bring into the result, with `onnx` for the
            standard; empty for all.
        opset: The newest ONNX opset that a program may need; None for any.
        time_limit: Seconds for saturation and extraction.
        iterations: Limit of saturation rounds; None for the default.
        enodes: Limit of the e-graph's size; None for the default.
        partition_functions: Functions that annotate the calls of composites, by name of the composite.
        declarations: What declares operators, besides the targets and rules.
        trust: Whether rules that do not ship are used without being executed before.

    Raises:
        OptimizationError: A limit is invalid.
    """

    targets: str | Sequence[str | Path | Target] = ()
    host: str | Path | Target | None = None
    rules: Sequence[str | Path | Rule] = ()
    default_rules: bool = True
    dims: Mapping[str, GivenSize] | None = None
    values: Mapping[str, Any] | None = None
    free_sizes: bool = False
    numerics: NumericsClass = "real"
    ops: str | Sequence[str] = ()
    opset: int | None = None
    time_limit: float = 30.0
    iterations: int | None = None
    enodes: int | None = None
    partition_functions: Mapping[str, PartitionFunction] | None = field(default=None)
    declarations: Sequence[Declaration] = ()
    trust: bool = True

    def __post_init__(self) -> None:
        check_seconds(self.time_limit)
        check_limits(self.iterations, self.enodes)
