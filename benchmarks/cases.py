"""What ``extracted_cost`` compares: the light networks and the graphs on which greedy loses, each with its targets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import onnx

from benchmarks import graphs
from benchmarks.models import LIGHT, light


@dataclass(frozen=True)
class Case:
    """A model and the accelerators it may use.

    Attributes:
        name: Unique.
        targets: Names of shipped targets besides the host.
        build: Makes the model.
        heavy: Whether that needs more than a second or 100 MB.
        optimum: Counts that the best program has, where they are known: ``composites``, ``regions``, ``host``.
    """

    name: str
    targets: tuple[str, ...]
    build: Callable[[], onnx.ModelProto]
    heavy: bool = False
    optimum: dict[str, int] = field(default_factory=dict)


def _network(name: str) -> Case:
    return Case(name, ("dnnl",), lambda: light(name), heavy=name in ("bvlc_alexnet", "vgg19", "zfnet512"))


def _regions(k: int, first: bool) -> Case:
    name = f"regions_{k}_{'first' if first else 'last'}"
    best = {"regions": 2, "host": -(-k // 4)}
    return Case(name, ("toy_regions",), lambda: graphs.region_order(k, first=first), optimum=best)


def _spelling(spelling: str) -> Case:
    best = {"composites": 1, "regions": 1, "host": 0}
    return Case(f"dense_{spelling}", ("toy_matmul",), lambda: graphs.dense_spelling(spelling), optimum=best)


CASES: tuple[Case, ...] = (
    Case(
        "chains",
        ("toy_chain",),
        graphs.overlapping_chains,
        optimum={"composites": 6, "regions": 3, "host": 2},
    ),
    *(_regions(k, first) for k in (1, 4, 16, 64) for first in (True, False)),
    Case(
        "shared_sum",
        ("toy_shared",),
        graphs.shared_sum,
        optimum={"composites": 2, "regions": 2, "host": 0},
    ),
    *map(_spelling, graphs.SPELLINGS),
    Case("ccompiler", ("ccompiler",), graphs.ccompiler_example, optimum={"regions": 3, "host": 2}),
    Case("residual_chain_10", ("dnnl",), lambda: graphs.residual_chain(10)),
    *map(_network, LIGHT),
)
"""All cases, small ones first."""


def case(name: str) -> Case:
    """The case of a name.

    Raises:
        ValueError: There is none.
    """
    for found in CASES:
        if found.name == name:
            return found
    raise ValueError(f"a case must be one of {', '.join(c.name for c in CASES)}, got {name!r}")
