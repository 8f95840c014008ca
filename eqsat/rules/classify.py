"""Whether a term is a tensor that operators compute, or a value that is known when rules run.

``b - mean`` is an operator as soon as one of its names is a tensor; ``e * 2`` over a bound attribute, lists, and
everything after a member access (``w.rank - 2``) are expressions.
"""

from __future__ import annotations

from eqsat.rules import ast
from eqsat.rules.builtin_functions import FUNCTIONS
from eqsat.rules.element_types import DTYPE_LISTS, DTYPES
from eqsat.rules.scope import Closure, Context, Frame, Local, ScopedLet


def is_tensor(term: ast.Term, frame: Frame, context: Context) -> bool:
    """Whether a term is a tensor. Unbound names count as tensors, so that they are reported as unbound."""
    match term:
        case ast.Name():
            return _is_name_tensor(term, frame, context)
        case ast.Apply():
            return _is_application_tensor(term, frame, context)
        case ast.Index():
            return is_tensor(term.of, frame, context)
        case ast.Unary():
            return term.op == "-" and is_tensor(term.operand, frame, context)
        case ast.Binary():
            if term.op in ("and", "or"):
                return False
            return term.op == "@" or is_tensor(term.left, frame, context) or is_tensor(term.right, frame, context)
        case ast.Conditional():
            return is_tensor(term.then, frame, context) or is_tensor(term.otherwise, frame, context)
        case ast.Optional() | ast.Rest() | ast.Bind() | ast.Alternatives() | ast.Spread() | ast.Keyword():
            return True
        case _:
            return False


def _is_name_tensor(term: ast.Name, frame: Frame, context: Context) -> bool:
    entry = frame.lookup(term.name)
    if isinstance(entry, Local):
        return entry.kind in ("tensor", "tensors")
    if isinstance(entry, Closure):
        return is_tensor(entry.term, entry.frame, context)
    if isinstance(entry, ScopedLet) and not entry.is_macro:
        if entry in context.pattern_names:
            return True
        with context.expanding(entry, term.place):
            return is_tensor(entry.let.body, entry.frame, context)
    bound = context.bindings.get(term.name)
    if bound is not None:
        return bound.kind != "attribute"
    return term.name not in DTYPES and term.name not in DTYPE_LISTS and term.name not in context.symbols


def _is_application_tensor(term: ast.Apply, frame: Frame, context: Context) -> bool:
    if not isinstance(term.callee, ast.Name):
        return True
    name = term.callee.name
    entry = frame.lookup(name)
    if isinstance(entry, ScopedLet) and entry.is_macro:
        with context.called(entry, term, frame) as (body, inner):
            return is_tensor(body, inner, context)
    return name in context.bindings or name not in FUNCTIONS
