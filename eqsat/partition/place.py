"""Annotations that rules place: wherever the left side occurs in the model, the right side replaces it.

The pattern is matched in an e-graph of the unchanged model and of these rules only, so that operand order does not
matter and every form of pattern and condition is available. There is one round, so that a rule whose right side
contains its left (``x * y => StopFusion(x * y)``) applies once to each product. The results are then written into the
model. The saturation that follows does not use these rules: for it, the values before and after an annotation are
different, and no composite reaches across. An annotation that a value already has is not placed again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import onnx_ir as ir

from eqsat.egraph.limits import Limits, RuleStatistics
from eqsat.egraph.saturate import Saturation
from eqsat.egraph.snapshot import ENode, Snapshot, snapshot
from eqsat.model.load import load
from eqsat.model.unused_names import Namer
from eqsat.ops.own_operators import ANNOTATIONS
from eqsat.partition.onnx_nodes import make_attributes, make_node, set_type
from eqsat.rules import ast
from eqsat.rules.ast import Rule
from eqsat.rules.tree import walk
from eqsat.schema import opset
from eqsat.schema.attributes import op_key, tensor_of, to_attrs
from eqsat.schema.types import Attrs, OpKey

_OWN_RULES = 2
"""Rule numbers below are the model itself and commutativity."""
_ALL_MATCHES = 1 << 62


def split(rules: Sequence[Rule]) -> tuple[list[Rule], list[Rule]]:
    """Rules that place annotations, and all others."""
    placing = [rule for rule in rules if places_annotations(rule)]
    return placing, [rule for rule in rules if rule not in placing]


@lru_cache(maxsize=4096)
def places_annotations(rule: Rule) -> bool:
    """Whether the right side of a rule has more annotations than its left.

    Every other rule says that two programs are equal, and the cheaper one is taken. An annotation is not work and makes
    no program cheaper, so extraction would never choose it: such a rule is an instruction instead.
    """
    bound = {m.op_name for m in walk(rule.left, ast.operands, once=True) if isinstance(m, ast.Match) and _annotates(m)}
    built = [t.op for t in walk(rule.right, ast.operands) if isinstance(t, ast.Build)]
    return sum(op in ANNOTATIONS or op in bound for op in built) > sum(map(_matched, rule.left))


def _annotates(match: ast.Match) -> bool:
    return any(op in ANNOTATIONS for op in match.ops)


def _matched(pattern: ast.Pattern | None) -> int:
    """How many annotations a pattern matches, whichever of its alternatives it is."""
    if isinstance(pattern, ast.Alternatives):
        return max(map(_matched, pattern.options), default=0)
    return _annotates(pattern) + sum(map(_matched, pattern.args)) if isinstance(pattern, ast.Match) else 0


@dataclass(frozen=True, slots=True)
class CarriedOut:
    """The changes of rules to a model.

    Attributes:
        saturation: The e-graph of the model and of these rules.
        egraph: Its e-nodes.
        made: The e-node of each new node, by its first result.
        renamed: Former names of the first results of other nodes, where they changed.
    """

    saturation: Saturation
    egraph: Snapshot
    made: Mapping[str, int]
    renamed: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class AnnotatedModel:
    """A model to which such rules were applied.

    Attributes:
        model: The given one if nothing changed, otherwise a new one, loaded as well.
        statistics: Statistics of each rule.
        carried_out: The changes; None if nothing changed.
    """

    model: ir.Model
    statistics: tuple[RuleStatistics, ...] = ()
    carried_out: CarriedOut | None = None


def place(model: ir.Model, rules: Sequence[Rule]) -> AnnotatedModel:
    """Applies rules that place annotations, or that prepare a model.

    Args:
        model: Loaded; not changed.
        rules: All of them are applied, in their order if several match one value.
    """
    if not rules:
        return AnnotatedModel(model)
    result = model.clone()
    saturation = Saturation(result, rules, (), Limits(iterations=1, nodes=_ALL_MATCHES, matches=_ALL_MATCHES))
    saturation.run()
    statistics = tuple(saturation.statistics)
    writer = _Writer(result, snapshot(saturation))
    own = {node: _name(node) for node in result.graph}
    for node in own:
        for value in node.outputs:
            writer.place(value)
    made = {_name(node): number for node, number in writer.made_nodes.items() if node.graph is not None}
    if not made:
        return AnnotatedModel(model, statistics)
    renamed = {_name(node): name for node, name in own.items() if _name(node) != name}
    return AnnotatedModel(load(result), statistics, CarriedOut(saturation, writer.egraph, made, renamed))


def _name(node: ir.Node) -> str:
    return next((value.name for value in node.outputs if value.name), "")


class _Writer:
    def __init__(self, model: ir.Model, egraph: Snapshot) -> None:
        self.graph = model.graph
        self.egraph = egraph
        self.numbers = {id(enode): number for number, enode in enumerate(egraph.nodes)}
        everywhere = ir.traversal.RecursiveGraphIterator(model.graph)
        leaves = (*self.graph.inputs, *self.graph.initializers.values())
        self.namer = Namer(v.name for v in (*leaves, *(o for n in everywhere for o in n.outputs)) if v.name)
        self.current: dict[int, ir.Value] = {}
        """Class -> the value that represents it, annotations included; for all values defined so far."""
        self.made_nodes: dict[ir.Node, int] = {}
        """For each node that was made the number of its e-node."""
        for value in leaves:
            if value in egraph.refs:
                self.current[egraph.refs[value]] = value

    def place(self, value: ir.Value) -> None:
        """Replaces a value by the result of the rules."""
        eclass = self.egraph.refs.get(value)
        if eclass is None:
            return
        self.current[eclass] = value
        made = [n for n in self.made(eclass) if not self.egraph.constant[eclass]]
        # Nodes that are built from the value itself come after its replacement.
        for enode in sorted(made, key=lambda n: (self._reads(n, eclass), n.rule)):
            self._replace(self.current[eclass], eclass, enode)

    def made(self, eclass: int) -> list[ENode]:
        nodes = (self.egraph.nodes[n] for n in self.egraph.classes[eclass])
        return [n for n in nodes if n.rule >= _OWN_RULES or (n.kind == "part" and self._is_made_tuple(n))]

    def _is_made_tuple(self, part: ENode) -> bool:
        holder = part.children[0]
        assert holder is not None
        return all(self.egraph.nodes[n].rule >= _OWN_RULES for n in self.egraph.classes[holder])

    def _reads(self, enode: ENode, eclass: int) -> bool:
        """Whether the value of an e-node is built from a class."""
        seen: set[int] = set()
        left = [enode]
        while left:
            for child in left.pop().children:
                if child == eclass:
                    return True
                if child is not None and child not in seen and child not in self.current:
                    seen.add(child)
                    left += self.made(child)
        return False

    def _replace(self, old: ir.Value, eclass: int, enode: ENode) -> None:
        built = _Built(self, {eclass})
        new = built.value_of(enode)
        producer = old.producer()
        assert producer is not None
        if new is None or new is old or _same(new.producer(), producer):
            built.discard()
            return
        nodes = built.nodes
        self.graph.insert_after(producer, nodes)
        self.made_nodes.update(zip(nodes, built.numbers, strict=True))
        survives = False
        for reader, index in list(old.uses()):
            if reader in nodes:
                survives = True
            else:
                reader.replace_input_with(index, new)
        is_output = old.is_graph_output()
        for i, output in enumerate(self.graph.outputs):
            if output is old:
                self.graph.outputs[i] = new
        if is_output or not survives:
            name = old.name
            old.name = self.namer.keep(f"{name}_value")
            new.name = name
        self.current[eclass] = new

    def constant(self, eclass: int) -> ir.Value | None:
        leaves = (self.egraph.nodes[n] for n in self.egraph.classes[eclass])
        number = next((n.number for n in leaves if n.kind == "const"), None)
        found = self.egraph.value[eclass] or (None if number is None else self.egraph.tables.constants[number])
        if found is None or found.tensor is None:
            return None
        tensor = tensor_of(found.tensor.numpy(), found.tensor.dtype, self.namer.keep("constant"))
        value = ir.Value(name=tensor.name, const_value=tensor)
        set_type(value, found.type)
        self.graph.register_initializer(value)
        self.current[eclass] = value
        return value


class _Built:
    """The nodes of one right side, not yet in the graph.

    Args:
        writer: The values defined so far.
        open_: Classes that must not be built, because the new nodes replace them.
    """

    def __init__(self, writer: _Writer, open_: set[int]) -> None:
        self.writer = writer
        self.open = open_
        self.nodes: list[ir.Node] = []
        self.numbers: list[int] = []
        self.found: dict[int, ir.Value] = {}
        self.tuples: dict[int, ir.Node] = {}

    def value_of(self, enode: ENode) -> ir.Value | None:
        """The value of an e-node, with the nodes that it needs; None if it needs itself."""
        if enode.kind != "part":
            return self._node(enode, enode.eclass, 0)
        holder = enode.children[0]
        assert holder is not None
        if holder in self.tuples:
            value = self.tuples[holder].outputs[enode.number]
            set_type(value, self.writer.egraph.types[enode.eclass])
            return value
        whole = next((n for n in self.writer.made(holder) if n.kind == "op"), None)
        value = None if whole is None else self._node(whole, enode.eclass, enode.number)
        if value is not None and (node := value.producer()) is not None:
            self.tuples[holder] = node
        return value

    def discard(self) -> None:
        """Removes the nodes from the readers of the values that they would have read."""
        for node in self.nodes:
            for index in range(len(node.inputs)):
                node.replace_input_with(index, None)

    def _node(self, enode: ENode, eclass: int, index: int) -> ir.Value | None:
        inputs: list[ir.Value | None] = []
        for child in enode.children:
            value = None if child is None else self._value(child)
            if child is not None and value is None:
                return None
            inputs.append(value)
        if enode.op in ANNOTATIONS and (bearer := inputs[0]) is not None and _bears(bearer, enode.op, enode.attrs):
            return bearer
        writer = self.writer
        outputs = [ir.Value(name=writer.namer.keep(enode.op.name.lower())) for _ in range(max(enode.outputs, 1))]
        set_type(outputs[index], writer.egraph.types[eclass])
        self.nodes.append(make_node(enode.op, make_attributes(enode.op, enode.attrs), inputs, outputs))
        self.numbers.append(writer.numbers[id(enode)])
        writer.graph.opset_imports.setdefault(enode.op.domain, opset.opset_version(enode.op.domain))
        return outputs[index]

    def _value(self, eclass: int) -> ir.Value | None:
        known = self.writer.current.get(eclass) or self.found.get(eclass) or self.writer.constant(eclass)
        if known is not None or eclass in self.open:
            return known
        self.open.add(eclass)
        values = (self.value_of(enode) for enode in self.writer.made(eclass))
        value = next((v for v in values if v is not None), None)
        self.open.discard(eclass)
        if value is not None:
            self.found[eclass] = value
        return value


def _same(a: ir.Node | None, b: ir.Node) -> bool:
    return a is not None and (op_key(a), to_attrs(a), list(a.inputs)) == (op_key(b), to_attrs(b), list(b.inputs))


def _bears(value: ir.Value, op: OpKey, attrs: Attrs) -> bool:
    """Whether a value has an annotation already, with or without others after it."""
    node = value.producer()
    while node is not None and op_key(node) in ANNOTATIONS:
        if (op_key(node), to_attrs(node)) == (op, attrs):
            return True
        first = node.inputs[0]
        node = None if first is None else first.producer()
    return False
