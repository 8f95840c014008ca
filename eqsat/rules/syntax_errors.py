"""What a syntax error means, in the words of the rule language instead of the parser's terminals."""

from __future__ import annotations

from collections.abc import Iterable

from lark import Token
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

RESERVED = frozenset((
    "rule", "let", "where", "because", "target", "host", "composite", "supports", "cost", "call", "annotate", "within",
    "and", "or", "not", "in", "if", "else", "for", "true", "false", "inf",
))  # fmt: skip
"""Words that cannot be names."""

_INFIX = frozenset((
    "PLUS", "STAR", "SLASH", "FLOOR", "PERCENT", "AT", "COMPARATOR", "OR", "AND", "IN", "NOT", "POWER", "VBAR", "IF",
    "DOT", "PAREN", "SQUARE", "MINUS",
))  # fmt: skip
_TERM = frozenset((
    "NAME", "NUMBER", "STRING", "PAREN", "PAREN_LINE", "SQUARE", "SQUARE_LINE", "MINUS", "TRUE", "FALSE", "INF", "NOT",
))  # fmt: skip
_AMBIGUOUS = frozenset(("PAREN_LINE", "SQUARE_LINE", "PAREN", "SQUARE", "MINUS", "NOT", "POWER", "STAR"))
_DECLARATIONS = frozenset(("RULE", "TARGET", "HOST", "OPERATOR", "LET_FILE"))
_GROUPS = (("a term", _TERM), ("an operator such as `+`", _INFIX))
_WORDS = {
    "NAME": "a name",
    "NUMBER": "a number",
    "STRING": 'a string ("...")',
    "PAREN": "`(`",
    "SQUARE": "`[`",
    "RPAR": "`)`",
    "RSQB": "`]`",
    "_COMMA": "`,`",
    "COMMA": "`,`",
    "COLON": "`:`",
    "EQUAL": "`=`",
    "ARROW": "`=>`",
    "BOTH": "`<=>`",
    "STAR": "`*`",
    "POWER": "`**`",
    "LET_FILE": "`let`",
    "LET_TARGET": "`let`",
    "$END": "the end of the declaration",
}


def explain(error: UnexpectedInput, text: str) -> tuple[int, int, str, str, str]:
    """Line, column, requirement, what was found, and a hint."""
    if isinstance(error, UnexpectedCharacters):
        return _characters(error, text)
    assert isinstance(error, UnexpectedToken)
    token: Token = error.token
    expected = set(error.accepts or error.expected)
    if token.type == "$END":
        lines = text.split("\n")
        last = max((i for i, line in enumerate(lines) if line.strip()), default=0)
        line, column = last + 1, len(lines[last].rstrip()) + 1
        return line, column, f"{_words(expected)} is required", "the end of the file", _unclosed(text)
    is_thin_arrow = token.value == ">" and text[: token.start_pos].endswith("-")
    hint = "a rule's sides are separated by `=>`" if is_thin_arrow else _hint(token, expected)
    return token.line or 1, token.column or 1, f"{_words(expected)} is required", f"`{_shown(token)}`", hint


def _shown(token: Token) -> str:
    return token if len(token) <= 40 else f"{token[:37]}..."


def _words(expected: Iterable[str]) -> str:
    left = set(expected)
    words = []
    for name, group in _GROUPS:
        if group - _AMBIGUOUS <= left:
            words.append(name)
            left -= group
    if "an operator such as `+`" in words:
        # After a complete term almost anything may follow; what continues it is not what was forgotten.
        left -= {"NAME", "NUMBER", "STRING", "TRUE", "FALSE", "INF", "PAREN_LINE", "SQUARE_LINE"}
        closing = [w for t, w in (("RPAR", "`)`"), ("RSQB", "`]`"), ("ARROW", "`=>`")) if t in left]
        if closing:
            words = [*(["`,`"] if left & {"COMMA", "_COMMA"} else []), *closing, *words]
            left = set()
    if left - {"$END"} <= _DECLARATIONS:
        left -= {"$END"}
    elif "$END" in left:
        left -= _DECLARATIONS
    for token in sorted(left):
        word = _WORDS.get(token, f"`{token.lower()}`")
        if token not in ("PAREN_LINE", "SQUARE_LINE") and word not in words:
            words.append(word)
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words) or "nothing more"


def _hint(token: Token, expected: set[str]) -> str:
    if token.type == "EQUAL" and {"COMPARATOR", "BECAUSE"} & expected:
        return "equality is `==`"
    if token.type == "EQUAL":
        return "attributes are given inside the operator's parentheses, conditions compare with `==`"
    if token.type in ("LET_FILE", "LET_TARGET"):
        return "a `let` belongs to the rule or composite that is indented less than it"
    if token in RESERVED and "NAME" in expected and token.type not in ("TRUE", "FALSE", "INF"):
        return f"`{token}` is a reserved word and cannot be a name"
    if token.type in ("PAREN_LINE", "SQUARE_LINE"):
        return "a bracket that begins a line does not continue the line before"
    if token.type == "COLON" and expected == {"EQUAL"}:
        return "coarse kernels are declared by `composite NAME : CLASS`, what computes them in C by `by FAMILY`"
    if token.type == "COLON" and "=>" not in token:
        return "`name: Operator(...)` binds a node; put it into parentheses inside a larger term"
    if token.type in ("RULE", "WHERE", "LET") and "ARROW" in expected:
        return "a rule needs `=>` and a right side"
    if token.type == "NAME" and "ARROW" in expected and "RPAR" not in expected:
        return "a rule's sides are separated by `=>`; operands by commas inside parentheses"
    if token.type in ("NAME", "NUMBER", "STRING") and "RPAR" in expected:
        return "operands are separated by commas"
    return ""


def _characters(error: UnexpectedCharacters, text: str) -> tuple[int, int, str, str, str]:
    line, column = error.line, error.column
    position = error.pos_in_stream if error.pos_in_stream is not None else 0
    rest = text[position : text.find("\n", position) if "\n" in text[position:] else len(text)]
    character = text[position : position + 1]
    requirement, hint = "text of the rule language is required", ""
    if character == '"':
        return line, column, 'a string that ends with `"` on its line is required', "none", ""
    if character.isdigit():
        word = rest.split()[0] if rest.split() else character
        return (
            line,
            column,
            "a number is required",
            f"`{word}`",
            "write `2 * x`, not `2x`; hexadecimal numbers are not read",
        )
    hints = {
        "'": 'strings are written "..."',
        "&": "write `and`",
        "!": "write `not`, or `!=` to compare",
        ";": "nothing separates rules; `#` begins a comment",
        "{": "lists are written [...]",
        "^": "a power is written `**` in expressions, `Pow(x, y)` in patterns",
    }
    hint = hints.get(character, "")
    shown = character if character.isprintable() else f"U+{ord(character):04X}" if character else ""
    return line, column, requirement, f"the character `{shown}`", hint


def _unclosed(text: str) -> str:
    return "a bracket is not closed" if text.count("(") > text.count(")") or text.count("[") > text.count("]") else ""
