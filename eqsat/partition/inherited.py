"""What kernels inherit from the nodes of the input: names, documentation and metadata.

Profilers, lists of layers that a quantizer excludes, and people know nodes by name. A kernel that is a node of the
input, the same operator with the same result, therefore keeps its name, documentation and metadata. Any other kernel
gets the name of a node whose result it computes, and a composite knows the names of the nodes that it consists of.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import onnx_ir as ir

from eqsat.egraph.encode import Encoding
from eqsat.egraph.snapshot import ENode, Snapshot
from eqsat.ops.operators import has
from eqsat.ops.traits import Trait
from eqsat.partition.plan import PlanNode
from eqsat.schema.attributes import op_key
from eqsat.schema.body import Body, BodyNode
from eqsat.schema.metadata import PREFIX
from eqsat.schema.types import OpKey


class Heritage:
    """The nodes of the input, by the classes of their results.

    Args:
        snapshot: The e-graph.
        encoding: How the input got into it.
        names: By class the name that its value will have, where it is one of the input.
    """

    def __init__(self, snapshot: Snapshot, encoding: Encoding, names: dict[int, str]) -> None:
        self._snapshot = snapshot
        self._names = names
        self._by_class: dict[int, list[ir.Node]] = {}
        self._by_name: dict[str, ir.Node] = {}
        for value in encoding.values:
            node = value.producer()
            if node is not None:
                self._by_class.setdefault(snapshot.refs[value], []).append(node)
                self._by_name[value.name or ""] = node
        self._readers: dict[tuple[OpKey, int], list[ENode]] | None = None

    def given(self, node: PlanNode, enode: ENode) -> PlanNode:
        """A kernel with its inheritance."""
        results = [v for v in node.outputs if v is not None]
        same = next(self._nodes(results, _single(node)), None)
        if same is not None:
            return replace(node, name=same.name or "", source=same)
        named = next((n for n in self._nodes(results) if n.name), None)
        inner = () if node.body is None else self._inside(node.body, enode, node.outputs)
        return replace(node, name=named.name or "" if named is not None else "", inner=inner)

    def _nodes(self, classes: Iterable[int], op: OpKey | None = None) -> Iterator[ir.Node]:
        """Nodes of the input with one of these results; first those whose result gives the value its name."""
        for eclass in classes:
            producer = self._by_name.get(self._names.get(eclass, ""))
            for node in (*(() if producer is None else (producer,)), *self._by_class.get(eclass, ())):
                if op is None or op_key(node) == op:
                    yield node

    # ---- inside of composites ---------------------------------------------------------------------

    def _inside(self, body: Body, enode: ENode, produced: Sequence[int | None]) -> tuple[str, ...]:
        """For each operator of a composite the name of its node in the input; empty if it has none."""
        classes: dict[int, int | None] = dict(enumerate(enode.children[: body.inputs]))
        classes.update(zip(body.results, produced, strict=False))
        names: list[str] = []
        count = body.inputs
        for node in body.nodes:
            if node.outputs == 1 and classes.get(count) is None:
                classes[count] = self._class_of(node, [None if i is None else classes.get(i) for i in node.inputs])
            made = [eclass for i in range(node.outputs) if (eclass := classes.get(count + i)) is not None]
            found = next(self._nodes(made, node.op), None)
            names.append(found.name or "" if found is not None else "")
            count += node.outputs
        return tuple(names) if any(names) else ()

    def _class_of(self, node: BodyNode, operands: Sequence[int | None]) -> int | None:
        """The class of an operator's result, found from those of its operands that are known."""
        known = [c for c in operands if c is not None]
        if not known:
            return None
        if self._readers is None:
            self._readers = {}
            for other in self._snapshot.nodes:
                for child in dict.fromkeys(other.children if other.kind == "op" and not other.outputs else ()):
                    if child is not None:
                        self._readers.setdefault((other.op, child), []).append(other)
        commutes = has(node.op, Trait.COMMUTATIVE)
        found = [e for e in self._readers.get((node.op, known[0]), ()) if _reads(e.children, operands, commutes)]
        alike = [e for e in found if e.attrs == node.attrs]
        return next((e.eclass for e in (*alike, *found)), None)


def _reads(children: Sequence[int | None], operands: Sequence[int | None], commutes: bool) -> bool:
    """Whether an operator has these operands, where they are known."""
    if commutes:
        return all(c is None or c in children for c in operands)
    return len(children) >= len(operands) and all(o is None or o == c for o, c in zip(operands, children, strict=False))


def _single(node: PlanNode) -> OpKey:
    """The operator that a kernel is; a composite of one operator is that operator."""
    if node.body is not None and len(node.body.nodes) == 1:
        return node.body.nodes[0].op
    return node.op


def own_metadata(node: ir.Node) -> dict[str, str]:
    """Documentation and metadata that others have written on a node."""
    return {key: value for key, value in node.metadata_props.items() if not key.startswith(PREFIX)}
