"""The baseline against what TVM was measured to do: 0.11.1 (Relay) and 0.27 (Relax).

The counts of networks are those of TVM 0.27 with the pattern table ``tvm_patterns.target`` on the light networks with
random weights. (Equal weights, as the files have them, make TVM share the functions of equal regions.)
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import onnx
import pytest

from benchmarks import baseline, graphs
from benchmarks.baseline import Flow, relax, relay
from benchmarks.baseline.expr import from_model
from benchmarks.baseline.partition import Partition
from benchmarks.baseline.relay_import import as_relay, fold_scale_backward
from benchmarks.baseline.tables import tables
from benchmarks.models import light, light_path
from eqsat.model.load import load
from eqsat.rules.ast import Target
from eqsat.targets.find_targets import load_targets
from eqsat.targets.kernel_cost import CostModel

TVM_PATTERNS = Path(baseline.__file__).parent / "tvm_patterns.target"


ONE_PATTERN = Path(__file__).parent / "data" / "matmul_add_relu.target"


def _costs(*targets: str | Path | Target) -> CostModel:
    return CostModel(load_targets(list(targets)))


def _partition(model: onnx.ModelProto, target: str | Path | Target, flow: Flow) -> Partition:
    return baseline.partition(load(model), _costs(target), flow)


# ---- networks ----------------------------------------------------------------------------------------

NETWORKS = {
    "bvlc_alexnet": (6, 23),
    "densenet121": (121, 488),
    "inception_v1": (39, 42),
    "inception_v2": (70, 232),
    "resnet50": (22, 84),
    "shufflenet": (34, 128),
    "squeezenet": (10, 16),
    "vgg19": (8, 9),
    "zfnet512": (4, 21),
}
"""Regions and operators on the host, from TVM 0.27."""


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in NETWORKS if n not in ("bvlc_alexnet", "vgg19", "zfnet512")])
def test_networks(name: str) -> None:
    found = baseline.partition(load(light(name)), _costs(TVM_PATTERNS), "relax", split_biases=True)
    assert (len(found.regions), found.host_operators) == NETWORKS[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bvlc_alexnet", "vgg19", "zfnet512"])
def test_big_networks(name: str) -> None:
    """From the file: the baseline, unlike TVM, does not look at weights."""
    found = baseline.partition(load(light_path(name)), _costs(TVM_PATTERNS), "relax", split_biases=True)
    assert (len(found.regions), found.host_operators) == NETWORKS[name]


@pytest.mark.parametrize(("name", "expected"), [("resnet50", (3, 4)), ("shufflenet", (22, 63))])
def test_networks_with_sums_as_additions(name: str, expected: tuple[int, int]) -> None:
    model = load(graphs.with_additions(light(name)))
    found = baseline.partition(model, _costs(TVM_PATTERNS), "relax", split_biases=True)
    assert (len(found.regions), found.host_operators) == expected


def test_inception_with_folded_scales() -> None:
    """With the multiplication and addition per channel folded into the convolutions beforehand."""
    model = load(light("inception_v2"))
    as_relay(model)
    assert not any(node.op_type in ("Mul", "Add", "BatchNormalization") for node in model.graph)
    found = baseline.partition(model, _costs(TVM_PATTERNS), "relax", split_biases=True)
    assert (len(found.regions), found.host_operators) == (39, 25)


def test_scales_are_not_folded_by_relax() -> None:
    model = load(light("inception_v2"))
    fold_scale_backward(model)
    assert sum(node.op_type == "Mul" for node in model.graph) == 69, "only after BatchNormalization, which stays"


# ---- graphs where greedy loses -------------------------------------------------------------------------


@pytest.mark.parametrize("flow", ["relay", "relax"])
def test_every_order_of_overlapping_pairs_strands_operators(flow: Flow) -> None:
    _, toy = load_targets("toy_chain")
    orders = list(itertools.permutations(toy.composites))
    assert len(orders) == 6
    for order in orders:
        found = _partition(graphs.overlapping_chains(), replace(toy, composites=order), flow)
        stranded = found.host_operators - found.host_counts()["Softmax"]
        assert (found.composites, stranded) == (5, 2)


@pytest.mark.parametrize("k", [1, 2, 4, 16, 64])
def test_regions_depend_on_program_order(k: int) -> None:
    for first, regions in ((True, k + 1), (False, 2)):
        model = graphs.region_order(k, first=first)
        assert len(_partition(model, "toy_regions", "relax").regions) == regions
        # Relay gives the tuple of the results a target, too, and so joins what it holds.
        assert len(_partition(model, "toy_regions", "relay").regions) == 2
        table = tables(_costs("toy_regions"))
        loaded = load(model)
        as_relay(loaded)
        found = relay.partition(from_model(loaded), table, non_call_targets=False)
        assert len(found.regions) == regions


@pytest.mark.parametrize(
    ("flow", "composites", "host"),
    [("relay", 0, {"Add": 1, "Relu": 1, "Sigmoid": 1}), ("relax", 1, {"Sigmoid": 1})],
)
def test_a_shared_sum(flow: Flow, composites: int, host: dict[str, int]) -> None:
    found = _partition(graphs.shared_sum(), "toy_shared", flow)
    assert (found.composites, found.host_counts()) == (composites, host)
    if flow == "relax":
        (call,) = [e for e in found.program.bindings if e.composite is not None]
        assert len(call.results) == 2, "the sum is given out as well"


@pytest.mark.parametrize("flow", ["relay", "relax"])
@pytest.mark.parametrize("spelling", graphs.SPELLINGS)
def test_spellings(spelling: str, flow: Flow) -> None:
    """Of the ways to write relu(x @ w + b), the pattern matmul + add + relu takes the one it spells."""
    found = _partition(graphs.dense_spelling(spelling), ONE_PATTERN, flow)
    assert found.composites == (spelling == "plain")


def test_ccompiler() -> None:
    model = graphs.ccompiler_example()
    assert len(_partition(model, "ccompiler", "relay").regions) == 3
    loaded = load(model)
    as_relay(loaded)
    unmerged = relay.partition(from_model(loaded), tables(_costs("ccompiler")), merge=False)
    assert len(unmerged.regions) == 4
    assert unmerged.host_counts() == {"Div": 2}


def test_conventions() -> None:
    """What is counted: calls that are left; no constants, tuples, projections."""
    found = baseline.partition(load(light("squeezenet")), _costs(TVM_PATTERNS), "relax", split_biases=True)
    expected = {"MaxPool": 3, "Concat": 8, "Dropout": 1, "ReduceMean": 1, "Reshape": 2, "Softmax": 1}
    assert found.host_counts() == expected


def test_relax_reads_the_order_of_the_program() -> None:
    """Shuffling the nodes changes what Relax makes of a program, not what Relay does without tuples."""
    counts = set()
    for seed in range(6):
        model = graphs.shuffled(graphs.region_order(4, first=True), seed)
        counts.add(len(relax.partition(from_model(load(model)), tables(_costs("toy_regions"))).regions))
    assert len(counts) > 1
