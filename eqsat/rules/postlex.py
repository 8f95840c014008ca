"""The meaning of layout in a rule file: where a bracket cannot continue the line before, and what a ``let`` belongs to.

Elsewhere line breaks and indentation have no meaning.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, pairwise

from lark import Token
from lark.lark import PostLex

_HEADERS = ("RULE", "TARGET", "HOST", "COMPOSITE", "OPERATOR")
_BEFORE = {"AS": ("NAME", "PAREN"), "BY": ("NAME",), "FAMILY": ("NAME", "STAR"), "OPERATOR": ("NAME",)}
"""For each word the tokens that may follow on its line if it is a keyword; otherwise it is a name."""


class LineMarks(PostLex):
    """Marks the tokens whose meaning depends on layout: a bracket that begins a line, and a ``let``.

    The unit of ``within 1 lsb`` is on the same line, so that a forgotten unit is not read from the next line.
    ``family`` begins an entry and ``operator`` a declaration where they begin a line before a name, ``as`` a clause
    where it begins one of a composite, ``by`` where a name follows on its line; elsewhere they are names.
    """

    always_accept = ()

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        depth, last_line = 0, 0
        enclosing: list[Token] = []
        before = ("", "")
        for token, following in pairwise(chain(stream, (None,))):
            assert token is not None
            line = token.line or 0
            begins_line = line > last_line
            last_line = token.end_line or line
            if token.type in _BEFORE and not (
                (begins_line or token.type == "BY")
                and following
                and following.line == line
                and following.type in _BEFORE[token.type]
            ):
                token = Token.new_borrow_pos("NAME", token.value, token)
            if before == ("WITHIN", "NUMBER") and token.type == "NAME" and (token == "lsb" or not begins_line):
                token = Token.new_borrow_pos("LSB", token.value, token)
            before = (before[1], token.type)
            if token.type in _HEADERS:
                # A header closes all brackets, so that a forgotten one does not spoil the rest of the file.
                depth = 0
                enclosing = [t for t in enclosing if token.type == "COMPOSITE" and t.type in ("TARGET", "HOST")]
                enclosing.append(token)
            elif token.type in ("SUPPORTS", "FAMILY"):
                enclosing = enclosing[:1]
            elif token.type == "LET":
                if begins_line:
                    while enclosing and (token.column or 1) <= (enclosing[-1].column or 1):
                        enclosing.pop()
                if not enclosing:
                    token = Token.new_borrow_pos("LET_FILE", token.value, token)
                elif enclosing[-1].type in ("TARGET", "HOST"):
                    token = Token.new_borrow_pos("LET_TARGET", token.value, token)
            elif token.type in ("PAREN", "SQUARE"):
                if depth == 0 and begins_line:
                    token = Token.new_borrow_pos(f"{token.type}_LINE", token.value, token)
                depth += 1
            elif token.type in ("RPAR", "RSQB"):
                depth = max(0, depth - 1)
            yield token
