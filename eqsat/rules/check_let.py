"""Checks of a ``let`` that many rules may use, where it is written: operators and their attributes exist.

What its parameters are, and the names it leaves to the rule, is known only where it is used.
"""

from __future__ import annotations

from collections.abc import Iterator

from eqsat.rules import ast
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
        if not isinstance(term, ast.Apply):
            continue
        name = dotted_name(term.callee)
        # Other words may be macros, functions, or operators that a rule binds.
        if name is None or name in hidden or not name.rpartition(".")[2][:1].isupper() or frame.lookup(name):
            continue
        found = known(operator(name, term.callee.place, context, frame))
        for arg in term.args:
            if isinstance(arg, ast.Keyword):
                check_keyword(arg, found, context)


def walk(term: ast.Term) -> Iterator[ast.Term]:
    """A term and all its parts."""
    yield term
    for part in _parts(term):
        if part is not None:
            yield from walk(part)


def _parts(term: ast.Term) -> tuple[ast.Term | None, ...]:
    match term:
        case ast.Keyword() | ast.Bind():
            return (term.value,)
        case ast.Alternatives():
            return term.options
        case ast.Apply():
            return (term.callee, *term.args)
        case ast.Index():
            return (term.of, term.index)
        case ast.Slice():
            return (term.of, term.start, term.stop)
        case ast.Member():
            return (term.of,)
        case ast.Unary():
            return (term.operand,)
        case ast.Binary():
            return (term.left, term.right)
        case ast.Compare():
            return (term.first, *(e for _, e in term.rest))
        case ast.Conditional():
            return (term.then, term.condition, term.otherwise)
        case ast.Sequence():
            return term.items
        case ast.Comprehension():
            return (term.item, term.source, term.condition)
        case _:
            return ()
