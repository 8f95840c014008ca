"""Whether any program of an e-graph can be written at an opset; asked before the search for the cheapest."""

from __future__ import annotations

from eqsat.egraph.encode import Encoding
from eqsat.extract.from_egraph import MappedProblem, Pricing
from eqsat.extract.problem import Problem
from eqsat.model.write.too_new import Newer, TooNewError


def require_old_enough(formulation: MappedProblem, pricing: Pricing, encoding: Encoding) -> None:
    """Checks that the outputs can be computed by operators that are not too new.

    Args:
        formulation: The problem.
        pricing: With the newest opset.
        encoding: Of the model.

    Raises:
        TooNewError: They cannot. It names the operators of the model for which no rule has another form.
    """
    newest = pricing.newest
    if newest is None:
        return
    problem, snapshot = formulation.problem, formulation.snapshot
    possible = computable(problem)
    if all(possible[root] for root in problem.roots):
        return
    others = {int(c) for c in problem.node_class}
    alone: list[Newer] = []
    every: list[Newer] = []
    own = iter(formulation.original_nodes)
    for node in encoding.nodes:
        classes = [snapshot.refs[encoding.values[r]] for r in node.results]
        if all(map(snapshot.is_fixed, classes)):
            continue
        enode = snapshot.nodes[next(own)]
        position = formulation.position.get(enode.eclass)
        needed = pricing.too_new(enode)
        if needed is None or position is None or possible[position]:
            continue
        made = encoding.values[node.results[0]].producer()
        assert made is not None
        found = newest.inside(enode.attrs) or [Newer.of(made, needed)]
        every += found
        alone += [] if position in others else found
    if every:
        raise TooNewError(alone or every, newest.bound)


def computable(problem: Problem) -> list[bool]:
    """Per class whether some program computes it."""
    missing = [len(children) for children in problem.children]
    readers: list[list[int]] = [[] for _ in range(problem.classes)]
    for node, children in enumerate(problem.children):
        for child in children:
            readers[child].append(node)
    found = [False] * problem.classes
    ready = [node for node, count in enumerate(missing) if not count]
    while ready:
        klass = int(problem.node_class[ready.pop()])
        if found[klass]:
            continue
        found[klass] = True
        for node in readers[klass]:
            missing[node] -= 1
            if not missing[node]:
                ready.append(node)
    return found
