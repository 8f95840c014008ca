"""Sizes that the caller writes as expressions of other dimensions, such as ``T = P + S``."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Mapping, Sequence

from eqsat.errors import ModelError
from eqsat.model.symbols import identifier, require_known

LONGEST = 200
"""Characters of an expression."""


def expanded(
    given: Mapping[str, str],
    numbers: Mapping[str, int],
    known: Sequence[str],
    written: Mapping[str, str],
    place: str = "",
) -> dict[str, str]:
    """Rewrites expressions in symbols that have neither a number nor an expression.

    Args:
        given: Expressions by symbol.
        numbers: Sizes by symbol.
        known: All symbols.
        written: Symbol by name in the file, where these differ.
        place: The file, for messages.

    Raises:
        ModelError: One is not an expression of symbols, or depends on itself.
    """
    texts = {name: _read(text, name, known, written, place) for name, text in given.items()}
    numerals = {name: str(size) for name, size in numbers.items()}
    done: dict[str, str] = {}

    def expand(name: str, around: Collection[str]) -> str:
        if name in numerals or name not in texts:
            return numerals.get(name, name)
        if name in around:
            loop = " -> ".join(f"`{n}`" for n in (*around, name))
            raise ModelError("expressions of other dimensions are required", place=place, actual=loop)
        if name not in done:
            done[name] = re.sub(r"\b[^\W\d]\w*\b(?!\()", lambda m: f"({expand(m[0], (*around, name))})", texts[name])
        return done[name]

    return {name: expand(name, ()) for name in texts}


def _read(text: str, name: str, known: Sequence[str], written: Mapping[str, str], place: str) -> str:
    """An expression as dimensions are written: with ``floor(a/b)`` for ``a // b``."""
    plain = re.sub(r"[^\W\d][\w.]*", lambda match: written.get(match[0]) or identifier(match[0]), text)
    try:
        if len(text) > LONGEST:
            raise SyntaxError
        read = _dimension(ast.parse(plain.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ModelError(
            f"a size for the dimension `{name}` is required, or an expression of other dimensions",
            place=place,
            actual=repr(text[:80]),
            hint=f"a range, for generated C, is a tuple: dims={{{name!r}: (1, 8)}}"
            if ".." in text
            else "an expression has names of dimensions, whole numbers, +, -, * and // by a number, such as "
            f'dims={{{name!r}: "2*N + 1"}}, on the command line --dim {name}=2*N+1',
        ) from None
    for symbol in re.findall(r"\b[^\W\d]\w*\b(?!\()", read):
        require_known(symbol, known, place)
    return read


def _dimension(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return str(value)
        case ast.Name(id=name):
            return name
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return f"(-{_dimension(operand)})"
        case ast.BinOp(left=left, op=ast.FloorDiv(), right=ast.Constant(value=int(value))) if value > 0:
            return f"floor(({_dimension(left)})/{value})"
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() as op, right=right):
            sign = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}[type(op)]
            return f"({_dimension(left)} {sign} {_dimension(right)})"
        case _:
            raise SyntaxError
