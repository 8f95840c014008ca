"""Reads one text: declarations in the order of the file, each in the scope of the previous ones.

This imports the parser and all builders. :mod:`eqsat.rules.reader` imports it only for new texts, because most
processes find everything that they need in the user's cache.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from functools import cache

from eqsat.errors import EqsatError
from eqsat.rules import ast
from eqsat.rules import declarations as s
from eqsat.rules.build_definition import define
from eqsat.rules.build_operator import build_operator, definition_rule
from eqsat.rules.build_rule import build_rule
from eqsat.rules.build_target import build_target
from eqsat.rules.location import PRELUDE, rules_dir
from eqsat.rules.parse import parse
from eqsat.rules.recovery import parse_recovering
from eqsat.rules.scope import Frame
from eqsat.rules.source import Source, Sources
from eqsat.schema.declared_operators import Function, declared, declared_here, merged

MOST_LETS = 1_000
"""Most definitions of one file: each name is looked up among all earlier ones."""
MOST_OPERATORS = 1_000
"""Most operators that one file declares."""


class Reading:
    """One text while it is read, declaration by declaration."""

    def __init__(
        self, content: str, name: str, *, is_prelude: bool = False, mistakes: list[EqsatError] | None = None
    ) -> None:
        self.name = name
        self.source, self.sources = Sources.of(content, name)
        self.sources.mistakes = mistakes
        if mistakes is None:
            self.declarations = parse(self.source, self.sources).declarations
        else:
            self.declarations = parse_recovering(self.source, self.sources)
        self.frame = Frame()
        if not is_prelude:
            prelude, self.frame = _prelude()
            self.sources.add(prelude)
        lets = [d for d in self.declarations if isinstance(d, s.Let)]
        if len(lets) > MOST_LETS:
            raise self.sources.error(
                lets[MOST_LETS].place, f"at most {MOST_LETS:,} `let`s in one file are required", actual=f"{len(lets):,}"
            )
        operators = [d for d in self.declarations if isinstance(d, s.OperatorDeclaration)]
        if len(operators) > MOST_OPERATORS:
            raise self.sources.error(
                operators[MOST_OPERATORS].place,
                f"at most {MOST_OPERATORS:,} operators in one file are required",
                actual=f"{len(operators):,}",
            )
        self.frames = iter(define(lets, self.frame, self.sources, local=False))

    def operators(self) -> tuple[Function, ...]:
        """The operators alone; each may use those before it."""
        found: list[Function] = []
        for declaration in self.declarations:
            if isinstance(declaration, s.Let):
                self.frame = next(self.frames)
            elif isinstance(declaration, s.OperatorDeclaration):
                with self.sources.recovering(declaration.name), declared(found):
                    found.append(build_operator(declaration, self.frame, self.source, self.sources))
        return tuple(merged(found).values())

    def read(self, known: DeclaredNames) -> ast.RuleFile:
        """All declarations of the text."""
        rules: list[ast.Rule] = []
        targets: list[ast.Target] = []
        source, sources = self.source, self.sources
        operators: list[Function] = []
        with ExitStack() as scope:
            for declaration in self.declarations:
                sources.in_target = isinstance(declaration, s.TargetDeclaration)
                with sources.recovering(declaration.name if isinstance(declaration, s.OperatorDeclaration) else ""):
                    match declaration:
                        case s.Let():
                            self.frame = next(self.frames)
                        case s.OperatorDeclaration():
                            function = build_operator(declaration, self.frame, source, sources)
                            scope.enter_context(declared([function]))
                            rule = definition_rule(declaration, function, self.frame, source, sources)
                            operators.append(function)
                            if known.is_first(function):
                                known.add("rule", rule.name, rule.place, sources)
                                rules.append(rule)
                        case s.Definition():
                            for rule in build_rule(declaration, self.frame, source, sources):
                                known.add("rule", rule.name, rule.place, sources)
                                rules.append(rule)
                        case s.TargetDeclaration():
                            target = build_target(declaration, self.frame, source, sources)
                            known.add("target", target.name, target.place, sources)
                            targets.append(target)
            everything = declared_here()
        if everything:
            rules = [replace(rule, operators=everything) for rule in rules]
            targets = [replace(target, operators=everything) for target in targets]
        return ast.RuleFile(self.name, tuple(rules), tuple(targets), operators=tuple(merged(operators).values()))


class DeclaredNames:
    """Names declared so far, over all files that are read together."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], ast.Place] = {}
        self._operators: set[Function] = set()

    def is_first(self, operator: Function) -> bool:
        """Whether an operator is declared for the first time; declarations in several files are the same."""
        if operator in self._operators:
            return False
        self._operators.add(operator)
        return True

    def add(self, kind: str, name: str, place: ast.Place, sources: Sources) -> None:
        first = self._known.setdefault((kind, name), place)
        if first is not place:
            raise sources.error(
                place,
                f"each {kind} must have a name of its own",
                actual=f"`{name}`, which {first} has too",
                hint="rename one of the two",
            )


@cache
def _prelude() -> tuple[Source, Frame]:
    """The text of the prelude and its definitions."""
    path = rules_dir() / PRELUDE
    source, sources = Sources.of(path.read_text(encoding="utf-8") if path.exists() else "", str(path))
    lets = []
    for declaration in parse(source, sources).declarations:
        if not isinstance(declaration, s.Let):
            raise sources.error(declaration.place, "only `let`s are required in the prelude")
        lets.append(declaration)
    return source, [Frame(), *define(lets, Frame(), sources, local=False)][-1]
