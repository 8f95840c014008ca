"""lark's parse tree to terms and declarations: most grammar rules are a node of their parts, the others a method."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from typing import Any

from lark import Token, v_args
from lark.tree import Meta
from lark.visitors import Transformer_NonRecursive

from eqsat.rules import ast
from eqsat.rules import declarations as s
from eqsat.rules.infix import InfixReader
from eqsat.rules.source import Source, Sources
from eqsat.rules.tree import DEEPEST, Place, Span, parts

_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


def _number(text: str) -> int | float:
    plain = text.replace("_", "")
    return int(plain) if plain.isdigit() else float(plain)


def _unescape(text: str) -> str:
    r"""``\"``, ``\\``, ``\n`` and ``\t`` of a string."""
    return _ESCAPE.sub(lambda escape: {"n": "\n", "t": "\t"}.get(escape[1], escape[1]), text)


def _given(items: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(item for item in items if item is not None)


_TERMS: dict[str, Callable[..., ast.Term]] = {
    "name": ast.Name,
    "optional": ast.Optional,
    "rest": ast.Rest,
    "spread": ast.Spread,
    "string": lambda string, _: string,
    "infinity": lambda place: ast.Number(math.inf, "inf", place),
    "tuple": lambda *c: ast.Sequence(_given(c[:-1]), False, c[-1]),
    "list": lambda *c: ast.Sequence(_given(c[:-1]), True, c[-1]),
    "comprehension": ast.Comprehension,
    "apply": lambda callee, args, place: ast.Apply(callee, args or (), place),
    "index": ast.Index,
    "slice": ast.Slice,
    "member": ast.Member,
    "choice": lambda *c: ast.Alternatives(c[:-1], c[-1]),
    "conditional": ast.Conditional,
    "bind": ast.Bind,
    "keyword": ast.Keyword,
}
"""Made of the parts of a grammar rule, without words and signs, and of its place."""
_CLAUSES: dict[str, Callable[..., Any]] = {
    "root": lambda target, value, _, span: s.Root(target, value, span),
    "condition": lambda expr, because, *at: ast.Condition(expr, because and because.value, *at),
    "where": lambda *c: s.Where(c[:-2], c[-1]),
    "by": s.By,
    "cost": lambda expr, _, span: s.Cost(expr, span),
    "call": lambda *c: s.Call(c[:-2], c[-1]),
    "annotate": lambda *c: s.Annotate(c[:-2], c[-1]),
    "written": lambda root, _, span: s.WrittenClause(root, span),
    "assignment": lambda name, term, place, _: (name, term, place),
    "summary": s.Text,
    "region_call": lambda name, *c: s.RegionCall(name, c[:-2], *c[-2:]),
}
"""Made of the parts of a grammar rule, without words and signs, of its place and its lines."""
_LISTS = ("arguments", "roots", "operators", "names")


@v_args(meta=True)
class TreeTransformer(Transformer_NonRecursive[Token, Any]):
    """It is not recursive, so that it transforms texts of any depth.

    Raises:
        RuleError: A literal is not a number or name that can be.
    """

    def __init__(self, source: Source, sources: Sources, keep_parentheses: bool = False) -> None:
        super().__init__()
        self.source = source
        self.sources = sources
        self.keep_parentheses = keep_parentheses
        # By identity; the nodes are kept so that no identity is used again.
        self._depths: dict[int, int] = {}
        self._nodes: list[ast.Term] = []

    def _place(self, at: Meta | Token) -> Place:
        return Place(self.source.name, at.line or 1, at.column or 1)

    def _span(self, meta: Meta) -> Span:
        return Span(meta.line, meta.end_line)

    def _numeric(self, token: Token) -> int | float:
        if len(token) > 400:
            raise self.sources.error(self._place(token), "a number of at most 400 digits is required")
        value = _number(token)
        if isinstance(value, float) and math.isinf(value):
            raise self.sources.error(
                self._place(token),
                "a number that a 64-bit float can hold is required",
                actual=str(token),
                hint="infinity is `inf`",
            )
        return value

    # -- terms
    def __default__(self, data: str, children: list[Any], meta: Meta) -> Any:
        if data in _LISTS:
            return _given(children)
        kept = [
            x if not isinstance(x, Token) else str(x) if x.type == "NAME" else self._string(x)
            for x in children
            if not isinstance(x, Token) or x.type in ("NAME", "STRING")
        ]
        term = _TERMS.get(data)
        if term is not None:
            return self._made(term(*kept, self._place(meta)))
        return _CLAUSES[data](*kept, self._place(meta), self._span(meta))

    def _string(self, token: Token) -> ast.String:
        return ast.String(_unescape(token[1:-1]), str(token), self._place(token))

    def number(self, meta: Meta, c: list[Any]) -> ast.Term:
        return ast.Number(self._numeric(c[0]), str(c[0]), self._place(meta))

    def truth(self, meta: Meta, c: list[Any]) -> ast.Term:
        return ast.Truth(c[0].type == "TRUE", self._place(meta))

    def parenthesis(self, meta: Meta, c: list[Any]) -> ast.Term:
        keep = self.keep_parentheses and not isinstance(c[1], ast.Parentheses)
        return self._made(ast.Parentheses(c[1], self._place(meta))) if keep else c[1]

    def _made(self, node: ast.Term) -> ast.Term:
        """Returns a node, unless it is too deep for code that walks it recursively."""
        inner = parts(node)
        if inner:
            depth = 1 + max([self._depths.get(id(part), 0) for part in inner])
            if depth > DEEPEST:
                raise self._too_deep(node.place)
            self._depths[id(node)] = depth
            self._nodes.append(node)
        return node

    def _too_deep(self, place: Place) -> Exception:
        return self.sources.error(
            place,
            f"a term nested at most {DEEPEST} levels deep is required",
            actual="a deeper one",
            hint="name its parts with `let`, each by itself",
        )

    def infix(self, meta: Meta, c: list[Any]) -> ast.Term:
        def misplaced(token: Token) -> Exception:
            return self.sources.error(
                self._place(token), "a value is required", actual="`not`", hint="put `not ...` into parentheses"
            )

        if sum(isinstance(x, Token) for x in c) > 2 * DEEPEST:
            raise self._too_deep(self._place(meta))
        return InfixReader(c, self._place, self._made, misplaced).read()

    # -- clauses
    def dotted(self, meta: Meta, c: list[Any]) -> tuple[str, Place]:
        return ".".join(c), self._place(meta)

    def numerics(self, meta: Meta, c: list[Any]) -> s.NumericsClause:
        word, amount, unit = (c[0], self._numeric(c[1]), c[2]) if len(c) == 3 else (c[0], None, "")
        return s.NumericsClause(str(word), amount, str(unit), self._place(meta))

    def let(self, meta: Meta, c: list[Any]) -> s.Let:
        _, (name, place), parameters, body = c
        seen: set[str] = set()
        for token in parameters or ():
            if token in seen:
                requirement = f"each parameter of `{name}` must have a name of its own"
                raise self.sources.error(self._place(token), requirement, actual=f"`{token}` twice")
            seen.add(token)
        names = None if parameters is None else tuple(map(str, parameters))
        return s.Let(name, names, body, place, self._span(meta))

    target_let = let
    file_let = let

    def parameters(self, meta: Meta, c: list[Any]) -> tuple[Token, ...]:
        return _given(c[1:])

    def left(self, meta: Meta, c: list[Any]) -> s.Side:
        return s.Side("", c[0])

    def right(self, meta: Meta, c: list[Any]) -> s.Side:
        return s.Side(str(c[0]), c[1])

    pattern = left

    # -- declarations
    def rule(self, meta: Meta, c: list[Any]) -> s.Definition:
        word, (name, place), numerics, *clauses = c
        return s.Definition(str(word), name, numerics, tuple(clauses), place, self._span(meta))

    composite = rule

    def operand(self, meta: Meta, c: list[Any]) -> s.Formal:
        return s.Formal(str(c[0]), c[1] if len(c) > 1 else None, None, self._place(meta))

    def attribute(self, meta: Meta, c: list[Any]) -> s.Formal:
        return s.Formal(str(c[0]), None, c[-1], self._place(meta))

    def operator(self, meta: Meta, c: list[Any]) -> s.OperatorDeclaration:
        _, (name, place), _, *formals, body = c
        return s.OperatorDeclaration(name, _given(formals), body, place, self._span(meta))

    def supports(self, meta: Meta, c: list[Any]) -> s.Entry:
        word, names, *clauses = c
        listed = None if isinstance(names, Token) else names
        return s.Entry(str(word), listed, tuple(clauses), self._place(meta), self._span(meta))

    family = supports

    def setting(self, meta: Meta, c: list[Any]) -> s.Setting:
        section = str(c[0]) if isinstance(c[0], Token) else ""
        return s.Setting(section, tuple(c[1:] if section else c), self._place(meta), self._span(meta))

    def target(self, meta: Meta, c: list[Any]) -> s.TargetDeclaration:
        word, (name, place), *items = c
        return s.TargetDeclaration(name, word.type == "HOST", tuple(items), place, self._span(meta))

    def start(self, meta: Meta, c: list[Any]) -> s.File:
        return s.File(tuple(c))
