"""Precedence of signs: a flat row of operands and signs to a tree (Pratt, "Top down operator precedence", POPL 1973).

From loose to tight: ``or``, ``and``, ``not``, comparisons (chained), ``+ -``, ``* / // % @``, ``-x``, ``**``, as in
Python.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from eqsat.rules import ast
from eqsat.rules.ast import Place

if TYPE_CHECKING:
    from lark import Token

OR, AND, NOT, COMPARE, SUM, PRODUCT, UNARY, POWER = range(1, 9)
LEVELS = {"or": OR, "and": AND, "+": SUM, "-": SUM, "**": POWER} | dict.fromkeys(("*", "/", "//", "%", "@"), PRODUCT)
"""Precedence of signs between two operands; all others are comparisons."""


class InfixReader:
    """Reads one row.

    Args:
        made: Called with each node, which it returns; it limits the depth.
        error: Makes the error for a misplaced ``not``.
    """

    def __init__(
        self,
        row: list[ast.Term | Token],
        place: Callable[[Token], Place],
        made: Callable[[ast.Term], ast.Term],
        error: Callable[[Token], Exception],
    ) -> None:
        self.row = row
        self.place = place
        self.made = made
        self.error = error
        self.position = 0

    def read(self, least: int = 0) -> ast.Term:
        """The term that begins here, up to the first sign that binds less tightly than ``least``."""
        left = self._operand(least)
        while (sign := self._sign()) is not None:
            level = LEVELS.get(sign.value, COMPARE)
            if level < least:
                break
            if level == COMPARE:
                left = self._comparison(left)
                continue
            self.position += 1
            # A power binds its right side as loosely as a sign: 2 ** -x.
            right = self.read(UNARY if level == POWER else level + 1)
            node = ast.Binary(sign.value, left, right, left.place, self.place(sign))
            left = self.made(node)
        return left

    def _sign(self) -> Token | None:
        found = self.row[self.position] if self.position < len(self.row) else None
        assert found is None or isinstance(found, str)
        return found

    def _operand(self, least: int) -> ast.Term:
        token = self.row[self.position]
        self.position += 1
        if not isinstance(token, str):
            return token
        if token.type == "NOT" and least > NOT:
            raise self.error(token)
        operand = self.read(NOT if token.type == "NOT" else UNARY)
        return self.made(ast.Unary(token.value, operand, self.place(token)))

    def _comparison(self, first: ast.Term) -> ast.Term:
        rest: list[tuple[str, ast.Term]] = []
        while (sign := self._sign()) is not None and sign.value not in LEVELS:
            self.position += 1
            words = sign.value
            if sign.type == "NOT":
                words = "not in"
                self.position += 1
            rest.append((words, self.read(SUM)))
        return self.made(ast.Compare(first, tuple(rest), first.place))
