"""The egglog text to which a rule compiles, for people.

Without a model, each operator has the arity that the pattern gives it.
"""

from __future__ import annotations

from collections.abc import Iterator

from eqsat.egraph.compile_rules import Compiler
from eqsat.egraph.language import Constructor
from eqsat.egraph.query import trim
from eqsat.rules.ast import Composite, Match, Rest, Rule, operands
from eqsat.rules.expand import Clause, expand
from eqsat.rules.tree import walk
from eqsat.schema.types import OpKey

_REST = 2  # operands that `xs...` represents in the text


def egg_text(definition: Rule | Composite) -> str:
    """The egglog commands of a rule or of a target's composite, one paragraph per clause.

    The relations ``match_``, ``need_`` and ``yes_`` are the demand tables: the matches, the signatures that Python must
    answer, and its answers.
    """
    roots = definition.left if isinstance(definition, Rule) else definition.patterns
    constructors: dict[OpKey, list[Constructor]] = {}
    for clause in expand(roots):
        for constructor in _needed(clause):
            known = constructors.setdefault(constructor.op, [])
            if constructor not in known:
                known.append(constructor)
    compiler = Compiler(constructors)
    if isinstance(definition, Rule):
        clauses = list(compiler.rule(definition, 1))
    else:
        clauses = list(compiler.composite(definition, "", 1))
    paragraphs = []
    for i, clause in enumerate(clauses):
        clause.key = definition.name.replace(".", "_") + (f"_{i}" if len(clauses) > 1 else "")
        # If operators of the right side turn out to be constants, there is one more rule of the second stage.
        paragraphs.append("\n".join([*clause.commands(), *clause.apply_commands(frozenset())]))
    return "\n\n".join(paragraphs) + "\n"


def _needed(clause: Clause) -> Iterator[Constructor]:
    matches = [part for part in walk(clause.roots, operands) if isinstance(part, Match)]
    outputs: dict[Match, int] = {}
    for match in matches:
        outputs[match.node] = max(outputs.get(match.node, 0), match.output + 1 if match.output else 0)
    for match in matches:
        args = trim(match.args, clause.absent)
        rest = bool(args) and isinstance(args[-1], Rest)
        inputs = len(args) - 1 + _REST if rest else len(args)
        yield Constructor(match.ops[0], inputs, outputs[match.node])
