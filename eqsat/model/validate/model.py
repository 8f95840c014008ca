"""Checks a model before other code trusts it: one clear error for the first mistake.

``onnx.checker`` runs after it and does not suffice: for operators without a schema at the model's opset it only reports
the missing schema, it treats an unsorted graph like a cycle, and it does not tell what was meant. The only repair is to
sort nodes that are not in topological order, which does not change the meaning of a model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, MutableSequence, Sequence
from contextlib import contextmanager

import onnx

from eqsat.errors import ModelError
from eqsat.model.read.sources import UncheckedModel
from eqsat.model.validate.declared import check_declared
from eqsat.model.validate.extent import all_nodes, check_calls, check_nesting, check_symbol
from eqsat.model.validate.fatal import call, least_of_calls, require_least
from eqsat.model.validate.node import check_call, check_node, check_text, require_text
from eqsat.model.validate.order import needed_first
from eqsat.model.validate.tensor_data import check_strings
from eqsat.schema import opset
from eqsat.schema.declared_operators import find_declared
from eqsat.schema.opset import canonical_domain, did_you_mean
from eqsat.schema.types import OpKey


def check(source: UncheckedModel) -> None:
    """Checks a model, and sorts its nodes.

    Raises:
        ModelError: The first mistake, with its node or tensor.
    """
    _Checker(source).check()


def validate(source: UncheckedModel) -> None:
    """Runs ``onnx.checker``; functions of other opsets, which it refuses, must have been inlined.

    Raises:
        ModelError: It finds a mistake that :func:`check` did not find.
    """
    with _shapes_everywhere(source.proto.graph):
        try:
            onnx.checker.check_model(source.proto)
        except onnx.checker.ValidationError as error:
            what = " ".join(str(error).strip().split("\n\n==>")[0].split())
            raise ModelError("a valid ONNX model is required", place=source.place, actual=what) from error


@contextmanager
def _shapes_everywhere(graph: onnx.GraphProto) -> Iterator[None]:
    """Temporarily gives inputs and outputs of unknown rank or type one, because ``onnx.checker`` requires it."""
    shapeless, typeless = [], []
    for value in (*graph.input, *graph.output):
        kind = value.type.WhichOneof("value")
        if kind is None:
            typeless.append(value)
            value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
            value.type.tensor_type.shape.SetInParent()
        elif kind == "tensor_type" and not value.type.tensor_type.HasField("shape"):
            shapeless.append(value)
            value.type.tensor_type.shape.SetInParent()
    yield
    for value in shapeless:
        value.type.tensor_type.ClearField("shape")
    for value in typeless:
        value.ClearField("type")


class _Checker:
    def __init__(self, source: UncheckedModel) -> None:
        self.source = source
        self.model = source.proto
        self.functions = {(f.domain, f.name, f.overload): f for f in self.model.functions}

    def check(self) -> None:
        model, graph = self.model, self.model.graph
        check_nesting(model, self.source.at("the graph"))
        self._texts()
        self.least = least_of_calls(model.functions)
        if not model.ir_version:
            raise ModelError("a model with an IR version is required", place=self.source.place, actual="none")
        # Old IR versions require that initializers are inputs too; nothing else depends on the version.
        model.ir_version = opset.IR_VERSION
        versions = self._versions(model.opset_import, "the model")
        for name in _duplicates(i.name for i in graph.input):
            raise self._error("every input needs a unique name", f"input {name!r}")
        for value in graph.input:
            if not value.type.WhichOneof("value"):
                raise self._error("an input with a type is required", f"input {value.name!r}", "none")
        for name in _duplicates(o.name for o in graph.output):
            raise self._error("every output needs a unique name", f"output {name!r}")
        if not graph.output:
            raise self._error("a graph with outputs is required", "the graph", "none")
        self._graph(graph, {}, versions, set())
        self._functions()

    def _texts(self) -> None:
        """Names outside of nodes are UTF-8."""
        model = self.model
        names = [graph_or_model.doc_string for graph_or_model in (model, model.graph)]
        names += [model.graph.name, model.producer_name, model.producer_version, model.domain]
        names += [e.domain for e in model.opset_import]
        for entry in (*model.metadata_props, *model.graph.metadata_props):
            names += [entry.key, entry.value]
        for function in model.functions:
            names += [function.domain, function.name, function.overload, *function.input, *function.output]
            names += [*function.attribute, *(a.name for a in function.attribute_proto)]
            names += [e.domain for e in function.opset_import]
            names += [text for entry in function.metadata_props for text in (entry.key, entry.value)]
        for name in names:
            require_text(name, self.source.at("the model"))

    def _functions(self) -> None:
        for name in _duplicates(f"{f.domain}.{f.name}:{f.overload}" for f in self.model.functions):
            raise self._error("every function needs a unique name", f"function {name!r}")
        calls: dict[tuple[str, str, str], list[tuple[str, str, str]]] = {}
        for function in self.model.functions:
            place = f"function {function.domain}.{function.name}"
            versions = self._versions(function.opset_import, place)
            key = (canonical_domain(function.domain), function.name, function.overload)
            require_least(function.attribute_proto, self.least.get(key, {}), self.source.at(place))
            known = dict.fromkeys(function.input, place)
            attributes = set(function.attribute) | {a.name for a in function.attribute_proto}
            self._nodes(function.node, known, dict(known), versions, place, attributes)
            for output in function.output:
                self._require_known(output, known, f"output of {place}")
            key = (function.domain, function.name, function.overload)
            calls[key] = [
                k for n in all_nodes(function.node) if (k := (n.domain, n.op_type, n.overload)) in self.functions
            ]
        callees_first, circle = needed_first(calls)
        if circle:
            names = " -> ".join(f"{domain}.{name}" for domain, name, _ in circle)
            raise self._error("functions that do not call themselves are required", "functions", names)
        check_calls(self.model, {key: calls[key] for key in callees_first}, self.source.at("functions"))

    def _versions(self, imports: Iterable[onnx.OperatorSetIdProto], place: str) -> dict[str, int]:
        versions: dict[str, int] = {}
        for entry in imports:
            domain = canonical_domain(entry.domain)
            entry.domain = domain
            versions[domain] = entry.version
            latest = onnx.defs.onnx_opset_version() if not domain else None
            if latest is not None and not 1 <= entry.version <= latest:
                requirement = f"an opset from 1 to {latest} is required"
                raise self._error(requirement, place, str(entry.version), "a newer `onnx` package may know it")
        return versions

    def _graph(
        self, graph: onnx.GraphProto, outer: dict[str, str], versions: dict[str, int], attributes: set[str]
    ) -> None:
        for name in (
            graph.name,
            *(v.name for v in (*graph.input, *graph.output, *graph.value_info, *graph.initializer)),
        ):
            require_text(name, self.source.at("the graph"))
        for value in (*graph.input, *graph.output, *graph.value_info):
            for d in value.type.tensor_type.shape.dim:
                require_text(d.dim_param, self.source.at(f"tensor {value.name!r}"))
                check_symbol(d.dim_param, self.source.at(f"tensor {value.name!r}"))
        own = {value.name: "input" for value in graph.input}
        for tensor in graph.initializer:
            own[tensor.name] = "initializer"
            check_strings(tensor, self.source.at(f"tensor {tensor.name!r}"))
        known = outer | own
        self._nodes(graph.node, known, own, versions, "the graph", attributes)
        for output in graph.output:
            self._require_known(output.name, known, "graph output")

    def _nodes(
        self,
        nodes: MutableSequence[onnx.NodeProto],
        known: dict[str, str],
        own: dict[str, str],
        versions: dict[str, int],
        where: str,
        attributes: set[str],
    ) -> None:
        """Checks nodes one after the other; ``own`` are the names of this graph only (others may be shadowed)."""
        defined: dict[str, int] = {}
        for i, node in enumerate(nodes):
            check_text(node, self.source.at(f"node {i} of {where}"))
            node.domain = canonical_domain(node.domain)
            for name in node.output:
                if not name:
                    continue
                if name in defined or name in own:
                    first = _label(nodes[defined[name]], defined[name]) if name in defined else f"an {own[name]}"
                    hint = f"{first} has the same name"
                    raise self._error("every tensor needs a unique name", _label(node, i), f"{name!r} again", hint)
                defined[name] = i
        order = self._order(nodes, known, defined, where)
        if order is not None:
            copies = [onnx.NodeProto.FromString(nodes[i].SerializeToString()) for i in order]
            del nodes[:]
            nodes.extend(copies)
        for i, node in enumerate(nodes):
            self._node(node, i, known, versions, attributes)
            known.update(dict.fromkeys((n for n in node.output if n), "output of a node"))

    def _order(
        self, nodes: Sequence[onnx.NodeProto], known: dict[str, str], defined: dict[str, int], where: str
    ) -> list[int] | None:
        """The topological order closest to the present order; None if the nodes are already in order."""
        reads: list[list[int]] = []
        sorted_already = True
        for i, node in enumerate(nodes):
            needs: list[int] = []
            for name in _reads(node):
                if name in defined:
                    needs.append(defined[name])
                    sorted_already &= defined[name] < i
                elif name not in known and name in node.input:
                    known_here = [*known, *defined]
                    raise self._error(
                        "the input of a node must be computed somewhere",
                        _label(node, i),
                        f"{name!r}, which is not an input, an initializer or an output of a node",
                        did_you_mean(name, known_here),
                    )
            reads.append(needs)
        if sorted_already:
            return None
        order, circle = needed_first(dict(enumerate(reads)))
        if circle:
            names = " <- ".join(_label(nodes[i], i) for i in circle)
            raise self._error("a graph without cycles is required", where, names)
        return order

    def _node(
        self, node: onnx.NodeProto, i: int, known: dict[str, str], versions: dict[str, int], attributes: set[str]
    ) -> None:
        place = _label(node, i)
        for name in _duplicates(a.name for a in node.attribute):
            raise self._error("every attribute may be given once", place, f"{name!r} twice")
        for attribute in node.attribute:
            if attribute.ref_attr_name and attribute.ref_attr_name not in attributes:
                known_names = ", ".join(sorted(attributes)) or "none, because this is not a function"
                actual = f"a reference to {attribute.ref_attr_name!r}"
                raise self._error("an attribute of the function is required", place, actual, f"it has {known_names}")
            for graph in ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs):
                self._graph(graph, known, versions, attributes)
        function = self.functions.get((node.domain, node.op_type, node.overload))
        if function is not None:
            check_call(node, function, self.source.at(place))
            require_least(node.attribute, self.least.get(call(node), {}), self.source.at(place))
            return
        declared = find_declared(OpKey(node.domain, node.op_type))
        if declared is not None and declared.place:
            check_declared(node, declared, self.source.at(place))
            return
        if node.domain not in opset.OPSETS:
            opset.check_domain(node.domain, place=self.source.at(place))
            return  # an unknown custom operator, which is not changed
        if node.domain not in versions:
            if node.domain == opset.MICROSOFT:
                versions[node.domain] = self.model.opset_import.add(domain=node.domain, version=1).version
            else:
                domain = node.domain or "ai.onnx"
                raise self._error(f"an opset import of domain {domain!r} is required", place, "none")
        check_node(node, versions[node.domain], self.source.at(place))

    def _require_known(self, name: str, known: dict[str, str], what: str) -> None:
        if name not in known:
            raise self._error(
                "the output of a graph must be computed somewhere",
                f"{what} {name!r}",
                "a name that is not a node's output, an input or an initializer",
                did_you_mean(name, known),
            )

    def _error(self, requirement: str, place: str, actual: str = "", hint: str = "") -> ModelError:
        return ModelError(requirement, place=self.source.at(place), actual=actual, hint=hint)


# ---- details -------------------------------------------------------------------------------------


def _label(node: onnx.NodeProto, index: int) -> str:
    return label(node.name, node.op_type, next((o for o in node.output if o), ""), index)


def label(name: str | None, op_type: str, output: str | None, index: int) -> str:
    """The name of a node in messages: its name, otherwise its position and output."""
    if name:
        return f"node {name!r} ({op_type})"
    return f"node {index} ({op_type}, output {output!r})"


def _duplicates(names: Iterable[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def _reads(node: onnx.NodeProto) -> list[str]:
    """Names the node reads, with those that its subgraphs take from outside."""
    names = [n for n in node.input if n]
    for attribute in node.attribute:
        if attribute.HasField("g"):
            names += _captured(attribute.g)
        for graph in attribute.graphs:
            names += _captured(graph)
    return names


def _captured(graph: onnx.GraphProto) -> list[str]:
    own = (
        {i.name for i in graph.input} | {t.name for t in graph.initializer} | {o for n in graph.node for o in n.output}
    )
    reads = [name for node in graph.node for name in _reads(node)] + [o.name for o in graph.output]
    return [name for name in reads if name not in own]
