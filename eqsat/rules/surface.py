"""lark's parse tree to terms and declarations: most grammar rules are a node of their parts, the others a method."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from lark import Token, v_args
from lark.tree import Meta
from lark.visitors import Transformer_NonRecursive

from eqsat.rules import ast
from eqsat.rules import syntax as s
from eqsat.rules.infix import InfixReader
from eqsat.rules.quoting import unescape
from eqsat.rules.source import Source, Sources
from eqsat.rules.tree import Place, Span, parts

DEEPEST = 60
"""How deep terms may be nested; what is built from them is walked recursively."""


def _number(text: str) -> int | float:
    plain = text.replace("_", "")
    return int(plain) if plain.isdigit() else float(plain)


def _given(items: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(item for item in items if item is not None)


_TERMS: dict[str, Callable[..., ast.Term]] = {
    "name": ast.Name,
    "optional": ast.Optional,
    "rest": ast.Rest,
    "spread": ast.Spread,
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
_LISTS = ("arguments", "roots", "operators")


@v_args(meta=True)
class Surface(Transformer_NonRecursive[Token, Any]):
    """Not recursive, so that the depth of a text is no matter here.

    Raises:
        RuleError: A literal is no number or name that can be.
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
        kept = [str(x) if isinstance(x, Token) else x for x in children if not isinstance(x, Token) or x.type == "NAME"]
        return self._made(_TERMS[data](*kept, self._place(meta)))

    def number(self, meta: Meta, c: list[Any]) -> ast.Term:
        return ast.Number(self._numeric(c[0]), str(c[0]), self._place(meta))

    def string(self, meta: Meta, c: list[Any]) -> ast.Term:
        return self._string(c[0])

    def _string(self, token: Token) -> ast.String:
        return ast.String(unescape(token[1:-1]), str(token), self._place(token))

    def truth(self, meta: Meta, c: list[Any]) -> ast.Term:
        return ast.Truth(c[0].type == "TRUE", self._place(meta))

    def parenthesis(self, meta: Meta, c: list[Any]) -> ast.Term:
        keep = self.keep_parentheses and not isinstance(c[1], ast.Parentheses)
        return self._made(ast.Parentheses(c[1], self._place(meta))) if keep else c[1]

    def _made(self, node: ast.Term) -> ast.Term:
        """A node, unless it is too deep for what walks it recursively."""
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
        return ".".join(str(t) for t in c), self._place(meta)

    def numerics(self, meta: Meta, c: list[Any]) -> s.Numerics:
        place = self._place(meta)
        return (
            s.Numerics("within", self._numeric(c[1]), str(c[2]), place)
            if len(c) == 3
            else s.Numerics(str(c[0]), None, "", place)
        )

    def parameters(self, meta: Meta, c: list[Any]) -> Any:
        return tuple(c[1:])

    def let(self, meta: Meta, c: list[Any]) -> s.Let:
        _, name, parameters, body = c
        if parameters is not None:
            seen: set[str] = set()
            for token in (t for t in parameters if t is not None):
                if str(token) in seen:
                    raise self.sources.error(
                        self._place(token),
                        f"each parameter of `{name}` must have a name of its own",
                        actual=f"`{token}` twice",
                    )
                seen.add(str(token))
            parameters = tuple(str(t) for t in parameters if t is not None)
        return s.Let(str(name), parameters, body, self._place(name), self._span(meta))

    target_let = let
    file_let = let

    def root(self, meta: Meta, c: list[Any]) -> s.Root:
        first, second = c
        return s.Root(None, first, self._span(meta)) if second is None else s.Root(first, second, self._span(meta))

    def condition(self, meta: Meta, c: list[Any]) -> s.Condition:
        because = None if c[1] is None else self._string(c[1]).value
        return s.Condition(c[0], because, self._place(meta), self._span(meta))

    def where(self, meta: Meta, c: list[Any]) -> s.Where:
        return s.Where(tuple(c[1:]), self._span(meta))

    def by(self, meta: Meta, c: list[Any]) -> s.By:
        return s.By(str(c[1]), self._place(meta), self._span(meta))

    def cost(self, meta: Meta, c: list[Any]) -> s.Cost:
        return s.Cost(c[1], self._span(meta))

    def call(self, meta: Meta, c: list[Any]) -> s.Call:
        return s.Call(tuple(self._string(t) for t in c[1:]), self._span(meta))

    def annotate(self, meta: Meta, c: list[Any]) -> s.Annotate:
        return s.Annotate(tuple(c[1:]), self._span(meta))

    # -- declarations
    def rule(self, meta: Meta, c: list[Any]) -> s.Rule:
        (name, place), numerics = c[1], c[2]
        arrow = next(i for i, x in enumerate(c) if isinstance(x, Token) and x.type in ("ARROW", "BOTH"))
        return s.Rule(
            name,
            numerics,
            tuple(c[3 : arrow - 1]),
            c[arrow - 1],
            c[arrow].type == "BOTH",
            c[arrow + 1],
            tuple(c[arrow + 2 :]),
            place,
            self._span(meta),
        )

    def setting(self, meta: Meta, c: list[Any]) -> s.Setting:
        section = str(c[0]) if isinstance(c[0], Token) else ""
        return s.Setting(section, tuple(c[1:] if section else c), self._place(meta), self._span(meta))

    def assignment(self, meta: Meta, c: list[Any]) -> tuple[str, ast.Term, Place]:
        return str(c[0]), c[1], self._place(meta)

    def summary(self, meta: Meta, c: list[Any]) -> s.Text:
        return s.Text(str(c[0]), self._string(c[1]), self._place(meta), self._span(meta))

    def region_call(self, meta: Meta, c: list[Any]) -> s.RegionCall:
        return s.RegionCall(str(c[0]), tuple(self._string(t) for t in c[2:]), self._place(meta), self._span(meta))

    def supports(self, meta: Meta, c: list[Any]) -> s.Supports:
        ops = None if isinstance(c[1], Token) else c[1]
        return s.Supports(ops, tuple(c[2:]), self._place(meta), self._span(meta))

    def names(self, meta: Meta, c: list[Any]) -> Any:
        return tuple((str(name), self._place(name)) for name in c)

    def family(self, meta: Meta, c: list[Any]) -> s.Family:
        names = None if isinstance(c[1], Token) else c[1]
        return s.Family(names, tuple(c[2:]), self._place(meta), self._span(meta))

    def composite(self, meta: Meta, c: list[Any]) -> s.Composite:
        name, numerics = c[1], c[2]
        body = next(i for i, x in enumerate(c) if i > 2 and not isinstance(x, s.Let))
        pattern, span = c[body]
        return s.Composite(
            str(name),
            numerics,
            tuple(c[3:body]),
            pattern,
            span,
            tuple(c[body + 1 :]),
            self._place(name),
            self._span(meta),
        )

    def pattern(self, meta: Meta, c: list[Any]) -> tuple[ast.Term, Span]:
        return c[0], self._span(meta)

    def target(self, meta: Meta, c: list[Any]) -> s.Target:
        return s.Target(str(c[1]), c[0].type == "HOST", tuple(c[2:]), self._place(c[1]), self._span(meta))

    def start(self, meta: Meta, c: list[Any]) -> s.File:
        return s.File(tuple(c))
