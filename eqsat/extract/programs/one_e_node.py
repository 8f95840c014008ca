"""Outputs of one operator are computed by one e-node.

An operator with several used outputs is an e-node of a tuple, but its first output also exists as an e-node of its own,
because patterns match that form. An optimal program never has both. A random or costly one may, and would run the
operator twice: once with its first output only, which not every operator allows.
"""

from __future__ import annotations

from collections.abc import Mapping

from eqsat.egraph.snapshot import ENode
from eqsat.extract.from_egraph import MappedProblem
from eqsat.extract.problem import Choice
from eqsat.extract.program_cost import needed

_Key = tuple[object, ...]


def together(formulation: MappedProblem, choices: Mapping[int, Choice]) -> dict[int, Choice]:
    """The program with first outputs read from the tuple where that is computed anyway, children first."""
    snapshot, problem = formulation.snapshot, formulation.problem
    tuples: dict[_Key, tuple[int, Choice]] = {}
    for klass, choice in choices.items():
        node = snapshot.nodes[formulation.node[choice.node]] if klass < len(formulation.eclass) else None
        if node is not None and node.kind == "op" and node.outputs:
            tuples.setdefault(_key(node), (formulation.eclass[klass], choice))
    changed = dict(choices)
    for klass, choice in choices.items():
        node = snapshot.nodes[formulation.node[choice.node]] if klass < len(formulation.eclass) else None
        if node is None or node.kind != "op" or node.outputs or _key(node) not in tuples:
            continue
        holder, made = tuples[_key(node)]
        for candidate, owner in enumerate(problem.node_class.tolist()):
            part = snapshot.nodes[formulation.node[candidate]] if owner == klass else None
            if part is not None and part.kind == "part" and part.number == 0 and part.children[0] == holder:
                changed[klass] = Choice(candidate, made.target)
    program = needed(problem, changed)
    return dict(choices) if program is None else program


def _key(node: ENode) -> _Key:
    return node.op, node.attrs, node.children
