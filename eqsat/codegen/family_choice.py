"""The kernel family that computes a node: the chosen one, otherwise the most specialised that accepts it."""

from __future__ import annotations

from eqsat.codegen.kernel import Family
from eqsat.codegen.kernels.shared.families import entry_name, families, find, undecided
from eqsat.codegen.kernels.vectors.winograd import ASKED, WINOGRAD
from eqsat.codegen.problems import Problems
from eqsat.codegen.program import Program, ProgramNode
from eqsat.codegen.shapes import operand_type
from eqsat.ops.evaluate import has_meaning
from eqsat.schema.declared_operators import find_reference


def decide(node: ProgramNode, family: str) -> None:
    """Notes the family of a node, and that it may be as inaccurate as the family is."""
    node.family = family
    if family == WINOGRAD.name:
        node.attributes = {**node.attributes, ASKED: 1}


def decide_entry(node: ProgramNode, entry: str, received: bool) -> None:
    """Notes the family that a host's entry names.

    Args:
        node: The node.
        entry: The name in the host's target file.
        received: Whether the program receives sizes.
    """
    for known in families(node.operator):
        free = received or any(True for _ in node.depends_on())
        if free and known.rank == 0:
            continue  # Chosen where the conditions of faster kernels are unknown.
        if entry_name(known.name) == entry:
            decide(node, known.name)


def family_of(node: ProgramNode) -> Family | None:
    """The family of a node, None if there is none.

    The conditions of a host's entry should imply what its family accepts. If they are weaker, the program is still
    right: another family computes the node, and the conversions that it needs are inserted.
    """
    task = node.provisional_task()
    decided = next((f for f in families(node.operator) if f.name == node.family), None) if node.family else None
    if decided is None or not decided.accepts(task):
        return find(task)
    return decided


def check_families(program: Program, problems: Problems) -> None:
    """Reports the nodes that no family computes."""
    for node in program.nodes:
        if family_of(node) is None:
            report(node, problems)


def report(node: ProgramNode, problems: Problems, because: str = "") -> None:
    """Reports a node that no family computes.

    Args:
        node: The node.
        problems: Receives it.
        because: Why nothing else can compute it.
    """
    if find_reference(node.operator) is not None or not has_meaning(node.operator):
        problems.add_operator(node.operator, node.name, because)
        return
    types = ", ".join("-" if x is None else str(operand_type(x)) for x in node.inputs)
    reasons = " and ".join(filter(None, (undecided(node.provisional_task()), because)))
    problems.add(f"no kernel for {node.describe()} of ({types}){f', because {reasons}' if reasons else ''}", node.name)
