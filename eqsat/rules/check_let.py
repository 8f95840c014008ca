"""Checks of a ``let`` that many rules may use, where it is written: operators and their attributes exist.

What its parameters are, and the names it leaves to the rule, is known only where it is used.
"""

from __future__ import annotations

from collections.abc import Iterator

from eqsat.rules import syntax as s
from eqsat.rules.arguments import check_keyword
from eqsat.rules.callee import dotted_name, known, operator
from eqsat.rules.scope import Context, Frame
from eqsat.rules.source import Sources


def check_let(let: s.Let, frame: Frame, sources: Sources) -> None:
    """Checks the operators in the body of a ``let`` outside of rules.

    Raises:
        RuleError: There is no such operator, or it has no such attribute.
    """
    context = Context(sources)
    hidden = set(let.parameters or ())
    for term in walk(let.body):
        if not isinstance(term, s.Apply):
            continue
        name = dotted_name(term.callee)
        # Other words may be macros, functions, or operators that a rule binds.
        if name is None or name in hidden or not name.rpartition(".")[2][:1].isupper() or frame.lookup(name):
            continue
        found = known(operator(name, term.callee.place, context, frame))
        for arg in term.args:
            if isinstance(arg, s.Keyword):
                check_keyword(arg, found, context)


def walk(term: s.Term) -> Iterator[s.Term]:
    """A term and all its parts."""
    yield term
    for part in _parts(term):
        if part is not None:
            yield from walk(part)


def _parts(term: s.Term) -> tuple[s.Term | None, ...]:
    match term:
        case s.Keyword() | s.Bind():
            return (term.value,)
        case s.Choice():
            return term.options
        case s.Apply():
            return (term.callee, *term.args)
        case s.Index():
            return (term.of, term.index)
        case s.Slice():
            return (term.of, term.start, term.stop)
        case s.Member():
            return (term.of,)
        case s.Unary():
            return (term.operand,)
        case s.Binary():
            return (term.left, term.right)
        case s.Compare():
            return (term.first, *(e for _, e in term.rest))
        case s.Conditional():
            return (term.then, term.condition, term.otherwise)
        case s.Sequence():
            return term.items
        case s.Comprehension():
            return (term.item, term.source, term.condition)
        case _:
            return ()
