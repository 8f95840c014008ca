"""Explains syntax errors in the words of the rule language instead of the parser's terminals."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from lark import Token
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from eqsat.rules.source import STRING_OR_COMMENT
from eqsat.rules.unit_hints import plain_number, without_unit
from eqsat.schema.opset import did_you_mean, operator_names

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
_HEADER = re.compile(r"^[ \t]*(rule|target|host|operator|composite)\b", re.MULTILINE)
_CLAUSES = ("cost", "where", "call", "by", "annotate", "supports", "because")
_KERNELS = (
    "`composite NAME : CLASS` declares a kernel that replaces several operators, `by FAMILY` the C that computes it"
)
_CONDITIONS_LAST = "conditions come last: after both sides of a rule, or after the pattern of a composite"
_ITEMS = "rule|target|host|composite"
_WORDS_OF_ITEMS = ("composite", "family", "link", "peak", "prepare", "rules", "summary", "supports")
"""Words that begin an item of a target and have another word after them."""
_CLOSING = {"(": "`)`", "[": "`]`"}
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
    "LSB": "`lsb`",
    "BOTH": "`<=>`",
    "STAR": "`*`",
    "POWER": "`**`",
    "LET_FILE": "`let`",
    "LET_TARGET": "`let`",
    "DOT": "`.`",
    "$END": "the end of the declaration",
}


class Explained(NamedTuple):
    """A syntax error in words, and where it is."""

    line: int
    column: int
    requirement: str
    actual: str
    hint: str


class _Before(NamedTuple):
    """The text before an unexpected token.

    Attributes:
        word: The last token, or a part of it that identifies it.
        end: End of that token.
        bracket: Position of the innermost open bracket; -1 if there is none.
    """

    word: str
    end: int
    bracket: int

    @classmethod
    def of(cls, text: str, position: int) -> _Before:
        """The text from the header above on, since a header closes all brackets."""
        headers = [m.start() for m in _HEADER.finditer(text, 0, position) if m.start(1) < position]
        first = headers[-1] if headers else 0
        # Of equal length, so that positions stay valid.
        code = STRING_OR_COMMENT.sub(lambda m: ("#" if m[0][0] == "#" else '"') * len(m[0]), text[first:position])
        code = re.sub("#+", lambda m: " " * len(m[0]), code)
        open_: list[int] = []
        for i, character in enumerate(code):
            if character in "([":
                open_.append(first + i)
            elif character in ")]" and open_:
                open_.pop()
        word = re.search(r"(\w+|\S)\s*\Z", code)
        return cls(word[1] if word else "", first + len(code.rstrip()), open_[-1] if open_ else -1)


def explain(error: UnexpectedInput, text: str) -> Explained:
    """The words for an error of the parser."""
    if isinstance(error, UnexpectedCharacters):
        return Explained(*_characters(error, text))
    assert isinstance(error, UnexpectedToken)
    token: Token = error.token
    expected = set(error.accepts or error.expected)
    is_end = token.type == "$END"
    position = len(text) if is_end else token.start_pos or 0
    before = _Before.of(text, position)
    closing = _CLOSING[text[before.bracket]] if before.bracket >= 0 else ""
    requirement = f"{_words(expected)} is required"
    line, column = token.line or 1, token.column or 1
    unclosed = ""
    if closing and (is_end or expected & {"RPAR", "RSQB"}):
        unclosed = (
            f"a bracket is not closed: `{text[before.bracket]}` at {':'.join(map(str, _at(text, before.bracket)))}"
        )
    if is_end:
        wrong = _united(text, before, position) or _bare_operator(text, before, expected)
        wrong = wrong or _wrong_word(text, before, expected) or _wrong_sign(text, expected)
        hint = unclosed or _end_hint(before, expected)
        return wrong or Explained(*_at(text, before.end), requirement, "the end of the file", hint)
    special = _united(text, before, position) or _wrong_name(text, before, token)
    special = special or _bare_operator(text, before, expected) or _wrong_word(text, before, expected)
    if special is not None:
        return special
    actual, hint = f"`{_shown(token)}`", _hint(token, expected, before, text)
    is_word = re.fullmatch(r"[\w)\]\"?.]+", before.word) is not None
    is_complete = is_word and before.word not in RESERVED - {"true", "false", "inf"}
    is_incomplete = str(token) in RESERVED and not is_complete
    if "\n" in text[before.end : position] and (unclosed or len(expected) == 1 or is_incomplete):
        # Something missing is reported at the end of the previous line.
        if is_incomplete:
            hint = _end_hint(before, expected)
        if unclosed:
            requirement, hint = f"{closing} is required", unclosed
        line, column = _at(text, before.end)
        actual = f"the end of the line, then {actual}"
    elif token.type == "EQUAL" and {"COMPARATOR", "BECAUSE"} & expected:
        requirement = "`==` is required in a condition"
    elif token.value == ">" and text[: token.start_pos].endswith("-"):
        hint = "a rule's sides are separated by `=>`"
    return Explained(line, column, requirement, actual, hint or unclosed)


def _at(text: str, position: int) -> tuple[int, int]:
    """Line and column of a position."""
    return text.count("\n", 0, position) + 1, position - text.rfind("\n", 0, position)


def _end_hint(before: _Before, expected: set[str]) -> str:
    """The advice for a text that ends too early."""
    if before.word == ",":
        return "something follows each comma: go on with it, or remove the comma"
    if "ARROW" in expected:
        return "a rule needs `=>` and a right side"
    if expected == {"ELSE"}:
        return "conditions follow the word `where`; a value that depends on one is `a if condition else b`"
    if "LET" in expected:
        return "a pattern follows the header of a rule or composite"
    return f"go on after `{before.word}`, or remove it" if before.word else ""


def _wrong_sign(text: str, expected: set[str]) -> Explained | None:
    """The error of a rule whose sides are separated by ``=`` or ``==``, where its end lacks the right sign."""
    if "ARROW" not in expected:
        return None
    header = [m for m in _HEADER.finditer(text) if m[1] == "rule"]
    start = text.find("\n", header[-1].end()) if header else -1
    code = STRING_OR_COMMENT.sub(lambda m: " " * len(m[0]), text[start:]) if start >= 0 else ""
    depth = 0
    for sign in re.finditer(r"[(\[)\]]|(?<![=<>!])==?(?![=>])|^\s*let\b.*$", code, re.MULTILINE):
        if sign[0] in "([":
            depth += 1
        elif sign[0] in ")]":
            depth -= 1
        elif depth <= 0 and sign[0] in ("=", "=="):
            place = _at(text, start + sign.start())
            return Explained(
                *place, "`=>` or `<=>` is required", f"`{sign[0]}`", "a rule's sides are separated by `=>`"
            )
    return None


def _wrong_name(text: str, before: _Before, token: Token) -> Explained | None:
    """The error of a name in a header with a character that names do not have, as ``my-npu``."""
    start = text.rfind("\n", 0, before.end) + 1
    header = re.match(rf"\s*(?:{_ITEMS})\s+([\w.]+)\Z", text[start : before.end])
    if header is None or token.start_pos != before.end or token.type not in ("MINUS", "SLASH", "NUMBER", "PLUS", "AT"):
        return None
    whole = re.match(r"[^\s:]+", text[start + header.start(1) :])
    assert whole is not None
    meant = re.sub(r"\W", "_", whole[0])
    requirement = "a name of letters, digits and `_` is required"
    return Explained(*_at(text, start + header.start(1)), requirement, f"`{whole[0][:40]}`", f"write `{meant[:40]}`")


def _wrong_word(text: str, before: _Before, expected: set[str]) -> Explained | None:
    """The error of an item of a target that begins with an unknown word, which reads as a setting: ``support Add``."""
    start = text.rfind("\n", 0, before.end) + 1
    item = re.match(r"[ \t]+(\w+)[ \t]+\w+\Z", text[start : before.end])
    if expected != {"EQUAL"} or item is None or item[1] in _WORDS_OF_ITEMS:
        return None
    listed = ", ".join(f"`{word}`" for word in _WORDS_OF_ITEMS[:-1])
    requirement = f"{listed} or `{_WORDS_OF_ITEMS[-1]}` is required"
    return Explained(
        *_at(text, start + item.start(1)),
        requirement,
        f"`{item[1]}`",
        _KERNELS if item[1] == "kernel" else did_you_mean(item[1], _WORDS_OF_ITEMS),
    )


def _bare_operator(text: str, before: _Before, expected: set[str]) -> Explained | None:
    """The error of operators that a target lists without a word before them; the first reads as a setting."""
    item = re.search(r"^[ \t]+([A-Z]\w*)(?:\s*,)?(?:\s+\w+)?\Z", text[: before.end], re.MULTILINE)
    if item is None or "EQUAL" not in expected or item[1] not in operator_names():
        return None
    return Explained(
        *_at(text, item.start(1)),
        "a word such as `supports` is required before an operator",
        f"`{item[1]}`",
        f"write `supports {item[1]}`, with all operators of the line; `composite NAME : CLASS` declares larger kernels",
    )


def _united(text: str, before: _Before, position: int) -> Explained | None:
    """The error of a number with a unit, where the unexpected token is the unit or follows it."""
    # A unit at the end of a line reads as the first word of an item, whose second one is on the next line.
    above = re.search(r"[ \t]*(?:#[^\n]*)?\n\s*\w+\Z", text[: before.end])
    for last in (before.end, *([] if above is None else [above.start()])):
        start = text.rfind("\n", 0, last) + 1
        stop = text.find("\n", last)
        for number in re.finditer(r"(?<![\w.])[0-9]", text[start : stop if stop >= 0 else len(text)]):
            first = start + number.start()
            found = without_unit(text[first:])
            end = first + len(found[0]) if found is not None else first
            # The unit ends before the token, or it is the token or begins with it, as in `GB/s`.
            if found is not None and (end == last or first < position < end):
                return Explained(*_at(text, first), *plain_number(*found))
    return None


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


def _hint(token: Token, expected: set[str], before: _Before, text: str) -> str:
    if expected == {"STRING"} and token.type not in ("$END", "STRING"):
        stop = text.find("\n", token.start_pos or 0)
        rest = text[token.start_pos or 0 : stop if stop >= 0 else len(text)].split("#")[0].strip()
        return f'quotes are missing: `{before.word} "{rest[:60]}"`'
    if token.type == "EQUAL" and before.word in _CLAUSES:
        return f"`{before.word}` has no `=`"
    if token.type in ("SQUARE", "SQUARE_LINE", "PAREN", "PAREN_LINE") and "STAR" in expected and "NAME" in expected:
        return "names are listed without brackets, separated by commas"
    if token.type == "FLOOR":
        return "`#` begins a comment"
    if token.type == "STRING" and expected == {"NAME"}:
        return "names are written without quotes"
    if before.word == "const" and "RPAR" in expected:
        return f"constness is a condition after the pattern: `where const({token})`"
    if token.type in ("IF", "BECAUSE"):
        return "write conditions after the word `where`, which follows a pattern or an operator"
    if "LSB" in expected:
        return "as in `within 1 lsb`: units of the last place of the result"
    if expected <= {"COLON", "DOT"} and "COLON" in expected:
        return "a numerics class follows the name: `: exact`, `: real`, `: approximate` or `: within 1 lsb`"
    if expected - {"$END"} <= _DECLARATIONS:
        return _declaration_hint(token, text)
    if token.type == "EQUAL" and {"COMPARATOR", "BECAUSE"} & expected:
        return "equality is `==`"
    if token.type == "EQUAL":
        return "attributes are given inside the operator's parentheses, conditions compare with `==`"
    if token.type in ("LET_FILE", "LET_TARGET"):
        return "a `let` belongs to the rule or composite that is indented less than it"
    if token in RESERVED and "NAME" in expected and token.type not in ("TRUE", "FALSE", "INF"):
        is_early = token.type == "WHERE" and "LET" in expected
        return _CONDITIONS_LAST if is_early else f"`{token}` is a reserved word and cannot be a name"
    if token.type in ("PAREN_LINE", "SQUARE_LINE"):
        return "a bracket that begins a line does not continue the line before"
    if token.type == "COLON" and expected == {"EQUAL"}:
        return _KERNELS
    if token.type == "NUMBER" and "EQUAL" in expected and before.bracket < 0:
        return f"write `{before.word} = {token}`"
    if token.type == "COLON" and "LET" in expected:
        return "a pattern follows the header, indented; the header ends without `:`"
    if token.type == "COLON" and "=>" not in token:
        return "`name: Operator(...)` binds a node; put it into parentheses inside a larger term"
    if token.type in ("RULE", "WHERE", "LET") and "ARROW" in expected:
        return "a rule needs `=>` and a right side"
    if token.type == "NAME" and "ARROW" in expected and "RPAR" not in expected:
        return "a rule's sides are separated by `=>`; operands by commas inside parentheses"
    if token.type in ("NAME", "NUMBER", "STRING") and "RPAR" in expected:
        return "operands are separated by commas"
    return ""


def _declaration_hint(token: Token, text: str) -> str:
    """The part that is missing in an incomplete declaration."""
    if token.value in ("//", "/"):
        return "`#` begins a comment"
    guess = did_you_mean(token.value, ("rule", "target", "host", "operator", "let"))
    after = text[token.end_pos or 0 :].lstrip()
    if guess:
        return guess
    if after.startswith(":"):
        return f"a rule begins with the word: `rule {_shown(token)} : CLASS`"
    return "a declaration comes first: `rule NAME : CLASS`, or `target NAME` above the settings of a target"


def _characters(error: UnexpectedCharacters, text: str) -> tuple[int, int, str, str, str]:
    line, column = error.line, error.column
    position = error.pos_in_stream if error.pos_in_stream is not None else 0
    rest = text[position : text.find("\n", position) if "\n" in text[position:] else len(text)]
    character = text[position : position + 1]
    requirement, hint = "text of the rule language is required", ""
    if character == '"':
        hint = 'close it with `"`; a long text is several strings, one after the other'
        return line, column, 'a string that ends with `"` on its line is required', "none", hint
    if character.isdigit():
        united = without_unit(rest)
        if united is not None and not re.match(r"\w", rest[len(united[0]) :]):
            return line, column, *plain_number(*united)
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
        **dict.fromkeys("{}", "lists are written [...]; what belongs to a header is indented and has no braces"),
        **dict.fromkeys("\u201c\u201d\u201e\u2018\u2019\u00ab\u00bb", 'strings are written "..."'),
        **dict.fromkeys("\u2192\u21d2", "a rule's sides are separated by `=>`"),
        **dict(
            zip(
                "\u2264\u2265\u2260\u00d7\u00b7\u2212",
                ("write `<=`", "write `>=`", "write `!=`", "write `*`", "write `*`", "write `-`"),
                strict=True,
            )
        ),
        "^": "a power is written `**` in expressions, `Pow(x, y)` in patterns",
    }
    hint = hints.get(character, "")
    shown = character if character.isprintable() else f"U+{ord(character):04X}" if character else ""
    return line, column, requirement, f"the character `{shown}`", hint
