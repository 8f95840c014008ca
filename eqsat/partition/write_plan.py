"""The chosen program as a standard ONNX model: regions and composites become model-local functions.

The main graph holds the host's nodes and one call for each region of an accelerator. A region's function calls
composites and plain operators, a composite's function is made of standard operators; so every ONNX tool can
check, run, show or inline the result (ONNX standard, "Functions" in IR.md).

ONNX Runtime 1.31 and ``onnx.reference`` require more than the standard: a function must be listed after the functions
that it calls, and must return neither an input nor a value twice.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import onnx_ir as ir

from eqsat.egraph.intern import SMALL
from eqsat.errors import OptimizationError
from eqsat.model.inference.infer import infer_body
from eqsat.model.kept_floats import KEPT, may_be_rounded
from eqsat.model.outputs import required_outputs
from eqsat.model.unused_names import Namer
from eqsat.partition.call_sizes import DimensionNames, with_list
from eqsat.partition.calls import add_called_functions, all_nodes
from eqsat.partition.composites import Composites
from eqsat.partition.inherited import own_metadata
from eqsat.partition.kept_remarks import keep_remarks
from eqsat.partition.loadable import spell_for_function
from eqsat.partition.onnx_nodes import (
    function_domain,
    is_optional_output,
    make_attributes,
    make_node,
    make_value,
    set_type,
)
from eqsat.partition.plan import Plan, PlanNode, PlanRegion
from eqsat.partition.subgraphs import captured_ids, operands, reads
from eqsat.partition.value_names import output_name, value_names
from eqsat.schema import opset
from eqsat.schema.attributes import tensor_of
from eqsat.schema.metadata import (
    CALL,
    COMPOSITE,
    COST,
    FAMILY,
    INPUTS,
    NAME,
    NODES,
    OUTPUTS,
    REGION,
    RULE,
    SIZES,
    TARGET,
    TARGETS,
    TRUSTED_CALL,
    VERSION,
)
from eqsat.schema.types import CONSTANT, OpKey, TensorType
from eqsat.version import __version__

EMBEDDED_ELEMENTS = 16
"""Constants up to this size (shapes, scales, bounds) are written into a region's function, where they are read more
easily than as one of its inputs."""

_IDENTITY = OpKey("", "Identity")

_Scope = dict[int, ir.Value]


def to_model(plan: Plan, regions: Sequence[PlanRegion], original: ir.Model) -> ir.Model:
    """Writes a program as a model.

    Args:
        plan: The program.
        regions: Its regions in execution order, from :func:`eqsat.partition.regions.regions`.
        original: The model from which the program came, at the pinned opset. It supplies what a plan does not contain
            (documentation, functions that are still called) and is not changed.

    Returns:
        A model with the original's inputs and outputs by name, type and order. Tensors are shared with the original.

    Raises:
        OptimizationError: The original is of another opset, or has functions with names of eqsat's functions.
    """
    version = original.opset_imports.get("", opset.PINNED_OPSET)
    if version != opset.PINNED_OPSET:
        raise OptimizationError(
            f"a model at opset {opset.PINNED_OPSET} is required", place=original.graph.name or "", actual=str(version)
        )
    return _Writer(plan, original).write(regions)


class _Writer:
    def __init__(self, plan: Plan, original: ir.Model) -> None:
        self.plan = plan
        self.original = original
        self.may_be_rounded = may_be_rounded(original)
        self.names = value_names(plan)
        self.outer_names = {*self.names.of.values(), *(output_name(plan, i) for i in range(len(plan.outputs)))}
        self.node_namer = Namer()
        self.labels = _labels(plan, self.node_namer)
        self.composites = Composites(
            (plan.targets[node.target], node.op.name, node.body, _present(node))
            for node in plan.nodes
            if node.body is not None
        )
        self.scope: _Scope = {}
        self.initializers: list[ir.Value] = []
        self.nodes: list[ir.Node] = []
        self.functions: list[ir.Function] = []

    def write(self, regions: Sequence[PlanRegion]) -> ir.Model:
        plan, original = self.plan, self.original
        inputs = [_declaration(value, self.names.of[vid]) for vid, value in plan.inputs]
        self.scope.update({vid: value for (vid, _), value in zip(plan.inputs, inputs, strict=True)})
        self._host_values()
        for region in regions:
            if region.target == 0:
                self._host_region(region)
            elif region.outputs:
                self._region(region)
        outputs = self._outputs()
        functions = [
            *add_called_functions(self.nodes, [*self.composites.functions, *self.functions], original),
            *self.composites.functions,
            *self.functions,
        ]
        identifiers = [f.identifier() for f in functions]
        if len(set(identifiers)) < len(identifiers):
            twice = next(i for i in identifiers if identifiers.count(i) > 1)
            raise OptimizationError(
                "functions of the input model must not have the names of eqsat's own",
                actual=f"{twice[0]}.{twice[1]}",
                hint="inline a partitioned model before optimizing it again",
            )
        domains = {node.domain for node in all_nodes(self.nodes)} | {"", *(f.domain for f in functions)}
        domains.update(domain for f in functions for domain in f.opset_imports)
        imports = {d: original.opset_imports.get(d, opset.opset_version(d)) for d in sorted(domains)}
        graph = ir.Graph(
            inputs,
            outputs,
            nodes=self.nodes,
            initializers=self.initializers,
            doc_string=original.graph.doc_string,
            opset_imports=imports,
            name=original.graph.name or "graph",
            metadata_props=dict(original.graph.metadata_props),
        )
        model = ir.Model(
            graph,
            ir_version=opset.IR_VERSION,
            producer_name=original.producer_name or "eqsat",
            producer_version=original.producer_version if original.producer_name else __version__,
            domain=original.domain,
            model_version=original.model_version,
            doc_string=original.doc_string,
            functions=functions,
            metadata_props={**original.metadata_props, TARGETS: ",".join(plan.targets), VERSION: __version__},
        )
        keep_remarks(model, original.graph)
        return model

    # ---- the main graph ---------------------------------------------------------------------------

    def _host_values(self) -> None:
        """Declares the values of the main graph before anything defines them; outputs as the model declares them."""
        declared: set[int] = set()
        for i, (vid, value) in enumerate(self.plan.outputs):
            name = output_name(self.plan, i)
            if i not in self.names.aliases and vid not in self.scope and self.names.of.get(vid) == name:
                self.scope[vid] = _declaration(value, name)
                declared.add(vid)
        for node in self.plan.nodes:
            for vid in node.outputs:
                if vid is None:
                    continue
                if vid in declared:
                    set_type(self.scope[vid], self.plan.types.get(vid))
                else:
                    self.scope[vid] = make_value(self.names.of[vid], self.plan.types.get(vid))

    def _read(self, vid: int) -> ir.Value:
        """A value of the main graph; a constant becomes an initialiser when first read."""
        if vid not in self.scope:
            tensor = self.plan.constants[vid]
            value = ir.Value(
                name=self.names.of[vid],
                type=ir.TensorType(tensor.dtype),
                shape=ir.Shape(tensor.shape.numpy()),
                const_value=tensor,
            )
            if tensor not in self.may_be_rounded:
                value.meta[KEPT] = True
            self.scope[vid] = value
            self.initializers.append(value)
        return self.scope[vid]

    def _host_region(self, region: PlanRegion) -> None:
        marks = {TARGET: self.plan.targets[0], REGION: region.name}
        for index in region.nodes:
            node = self.plan.nodes[index]
            for vid in reads(self.plan, node):
                self._read(vid)
            self.nodes.append(self._kernel(index, self.scope, marks))

    def _outputs(self) -> list[ir.Value]:
        """The graph outputs, with an Identity on the host for those that no node produces."""
        by_name: dict[str, ir.Value] = {value.name or "": value for value in self.scope.values()}
        results = []
        for i, (vid, original) in enumerate(self.plan.outputs):
            name = output_name(self.plan, i)
            if i in self.names.aliases:
                value = _declaration(original, name)
                set_type(value, self.plan.types.get(vid))
                node = make_node(
                    _IDENTITY,
                    [],
                    [self._read(vid)],
                    [value],
                    name=self.node_namer.keep(name),
                    metadata={TARGET: self.plan.targets[0]},
                )
                self.nodes.append(node)
                by_name[name] = value
            results.append(by_name[name])
        return results

    # ---- regions ------------------------------------------------------------------------------------

    def _region(self, region: PlanRegion) -> None:
        """Adds a region's function and its call."""
        target = self.plan.targets[region.target]
        scope: _Scope = {}
        formal: list[ir.Value] = []
        actual: list[ir.Value] = []
        body: list[ir.Node] = []
        nodes = [self.plan.nodes[i] for i in region.nodes]
        constants = dict.fromkeys(v for node in nodes for v in reads(self.plan, node) if v in self.plan.constants)
        for vid in (*region.inputs, *constants):
            if vid in constants and self.plan.constants[vid].size <= EMBEDDED_ELEMENTS:
                body.append(self._embedded(vid, scope))
                continue
            outer = self._read(vid)
            scope[vid] = ir.Value(
                name=outer.name, type=outer.type, shape=outer.shape.copy() if outer.shape is not None else None
            )
            formal.append(scope[vid])
            actual.append(outer)
        for index in region.nodes:
            for vid in self.plan.nodes[index].outputs:
                if vid is not None:
                    scope[vid] = make_value(self.names.of[vid], self.plan.types.get(vid))
            body.append(self._kernel(index, scope, {}))
        op = OpKey(function_domain(target), region.name)
        domains = dict.fromkeys(("", *(node.domain for node in all_nodes(body))))
        graph = ir.Graph(
            formal,
            [scope[vid] for vid in region.outputs],
            nodes=body,
            opset_imports={d: self.original.opset_imports.get(d, opset.opset_version(d)) for d in domains},
            name=region.name,
        )
        spell_for_function(graph)
        function = ir.Function(op.domain, op.name, graph=graph, attributes=())
        marks = {TARGET: target, REGION: region.name}
        function.metadata_props.update(marks)
        self.functions.append(function)
        results = [self.scope[vid] for vid in region.outputs]
        call = self.plan.region_calls[region.target] if self.plan.region_calls else ""
        if call:
            marks[CALL] = self._region_call(call.replace(NAME, region.name), region)
        made = make_node(op, [], actual, results, name=self.node_namer.keep(region.name), metadata=marks)
        if call:
            made.meta[TRUSTED_CALL] = marks[CALL]
        self.nodes.append(made)

    def _region_call(self, call: str, region: PlanRegion) -> str:
        """The C call of a region, with holes for each of its operands, results and sizes."""
        types = self.plan.types
        names = DimensionNames([types.get(v) for v in region.inputs], [types.get(v) for v in region.outputs])
        call = with_list(call, INPUTS, [f"{{{i}}}" for i in range(len(region.inputs))])
        call = with_list(call, OUTPUTS, [f"{{result{i}}}" for i in range(len(region.outputs))])
        return with_list(call, SIZES, names.holes())

    def _embedded(self, vid: int, scope: _Scope) -> ir.Node:
        tensor = self.plan.constants[vid]
        value = ir.Value(
            name=self.names.of[vid], type=ir.TensorType(tensor.dtype), shape=ir.Shape(tensor.shape.numpy())
        )
        if tensor not in self.may_be_rounded:
            value.meta[KEPT] = True
        scope[vid] = value
        attribute = ir.AttrTensor("value", tensor_of(tensor.numpy(), tensor.dtype))
        return make_node(CONSTANT, [attribute], [], [value], name=self.node_namer.keep(value.name or ""))

    def _kernel(self, index: int, scope: _Scope, marks: dict[str, str]) -> ir.Node:
        """One kernel: a plain operator, or the call of a composite's function."""
        node = self.plan.nodes[index]
        metadata = {**({} if node.source is None else own_metadata(node.source)), **marks}
        used = {i for i, v in enumerate(node.outputs) if v is not None}
        required = required_outputs(node.op, node.attrs, len(node.inputs), used) if node.body is None else used
        count = max(len(node.outputs), *(i + 1 for i in required), 0)
        outputs = [self._output(node, i, scope, i in required) for i in range(count)]
        inputs = operands(node)
        if node.body is not None:
            target = self.plan.targets[node.target]
            call = self.composites.call(target, node.op.name, node.body, _present(node))
            op, attributes = call.op, list(call.attributes)
            inputs = tuple(inputs[i] for i in call.operands)
            metadata[COMPOSITE] = node.op.name
            if node.inner:
                metadata[NODES] = json.dumps(node.inner, ensure_ascii=False)
        else:
            op = node.op
            captured = {name: scope[vid] for name, vid in captured_ids(self.plan, node).items()}
            attributes = make_attributes(op, node.attrs, captured, self.outer_names)
        if node.call is not None:
            metadata[CALL] = node.call
        if node.family:
            metadata[FAMILY] = node.family
        if node.rule:
            metadata[RULE] = node.rule
        metadata[COST] = repr(float(node.cost))
        label = next((v.name for v in outputs if v.name), op.name)
        made = make_node(
            op,
            attributes,
            [None if v is None else scope[v] for v in inputs],
            outputs,
            name=self.labels.get(index) or self.node_namer.keep(label),
            metadata=metadata,
        )
        made.doc_string = None if node.source is None else node.source.doc_string
        if CALL in metadata:
            made.meta[TRUSTED_CALL] = metadata[CALL]
        return made

    def _output(self, node: PlanNode, index: int, scope: _Scope, required: bool) -> ir.Value:
        vid = node.outputs[index] if index < len(node.outputs) else None
        if vid is not None:
            return scope[vid]
        if node.body is None and not required and is_optional_output(node.op, index):
            return ir.Value(name="")
        return make_value(self.names.namer.number(node.op.name), self._unread_type(node, index))

    def _unread_type(self, node: PlanNode, index: int) -> TensorType | None:
        """The type of a composite's result that nothing reads; a C call needs a place for it."""
        if node.body is None:
            return None
        types = self.plan.types
        body = node.body.without({i for i, v in enumerate(node.inputs) if v is None})
        values = [self.plan.constants.get(v) if v is not None else None for v in node.inputs]
        small = [v.numpy() if v is not None and v.size <= SMALL else None for v in values]
        inferred = infer_body(body, [None if v is None else types.get(v) for v in node.inputs], small)
        return inferred[body.results[index]]


def _labels(plan: Plan, namer: Namer) -> dict[int, str]:
    """Names that kernels have from nodes of the input, each used once: kernels that are such nodes come first."""
    labels: dict[int, str] = {}
    for index in sorted(range(len(plan.nodes)), key=lambda i: plan.nodes[i].source is None):
        name = plan.nodes[index].name
        if name and name not in namer.taken:
            labels[index] = namer.keep(name)
    return labels


def _present(node: PlanNode) -> tuple[bool, ...]:
    return tuple(v is not None for v in node.inputs)


def _declaration(value: ir.Value, name: str) -> ir.Value:
    """A graph input or output declared as in the original."""
    return ir.Value(name=name, type=value.type, shape=value.shape.copy() if value.shape is not None else None)
