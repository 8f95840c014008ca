"""What a greedy partitioner makes of a model: TVM's passes over eqsat's target files and cost model.

``partition(model, costs, "relay")`` is MergeComposite, AnnotateTarget, MergeCompilerRegions and PartitionGraph after
the passes of ``partition_for_dnnl``; ``"relax"`` is FuseOpsByPattern and MergeCompositeFunctions after the ONNX
importer and FoldBatchnormToConv2D.

Conventions of the counts: an operator is a call that is left over when constants are folded, whatever it does (a
reshape counts, a dropout in Relax as well); tuples and projections are none; a region is one call of one accelerator.
"""

from __future__ import annotations

from typing import Literal

import onnx_ir as ir

from benchmarks.baseline import relax, relay
from benchmarks.baseline.expr import from_model
from benchmarks.baseline.partition import Partition
from benchmarks.baseline.relax_import import as_relax
from benchmarks.baseline.relay_import import as_relay
from benchmarks.baseline.tables import tables
from eqsat.targets.kernel_cost import CostModel

Flow = Literal["relay", "relax"]

FLOWS: tuple[Flow, ...] = ("relay", "relax")


def partition(model: ir.Model, costs: CostModel, flow: Flow = "relay", *, split_biases: bool = False) -> Partition:
    """Partitions a model greedily.

    Args:
        model: With shapes; is used up.
        costs: The targets, the host first.
        flow: Which of TVM's two generations.
        split_biases: Relax only: biases as additions, as its importer leaves them and TVM's own pattern tables expect
            them. Else they are operands of the convolutions again, as the patterns of target files expect.

    Raises:
        OptimizationError: TVM fails on this program, or shapes are not known.
    """
    if flow == "relay":
        as_relay(model)
        return relay.partition(from_model(model), tables(costs))
    as_relax(model, split_biases=split_biases)
    return relax.partition(from_model(model), tables(costs))
