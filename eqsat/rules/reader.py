"""Reads rule and target files: text to rules and targets, type-checked against the operators' schemas.

>>> from eqsat.rules.reader import read_text
>>> read_text("rule double : exact  x + x => 2 * x").rules[0].name
'double'
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from functools import cache, lru_cache
from pathlib import Path

from eqsat.errors import RuleError, TargetError
from eqsat.rules import ast
from eqsat.rules import declarations as s
from eqsat.rules.build_definition import define
from eqsat.rules.build_rule import build_rule
from eqsat.rules.build_target import build_target
from eqsat.rules.location import rules_dir
from eqsat.rules.parse import parse
from eqsat.rules.scope import Frame
from eqsat.rules.source import Source, Sources

PRELUDE = "prelude.rules"
"""The file in the shipped rules whose ``let``s hold everywhere."""

MOST_BYTES = 2_000_000
"""Of one file; the shipped ones together have less than a tenth of it."""
MOST_LETS = 1_000
"""Of one file: each name is looked up among all that are defined before it."""


def read_file(path: str | os.PathLike[str]) -> ast.RuleFile:
    """Reads one ``.rules``, ``.target`` or ``.egg`` file.

    Raises:
        RuleError, TargetError: It cannot be read, or says something that cannot be.
    """
    return read_files([path])[0]


def read_files(paths: Iterable[str | os.PathLike[str]], *, targets: bool = False) -> list[ast.RuleFile]:
    """Reads several files, in which rules and targets have names of their own.

    Args:
        paths: The files.
        targets: Whether target files were asked for, whatever the names of the files end in.

    Raises:
        RuleError, TargetError: One cannot be read, or two declare the same name.
    """
    known = _Names()
    return [_read(Path(path), known, is_target=targets or Path(path).suffix == ".target") for path in paths]


def read_unchanged(paths: Iterable[str | os.PathLike[str]], *, targets: bool = False) -> list[ast.RuleFile]:
    """As :func:`read_files`, but once only as long as the files stay as they are.

    Reading the shipped ones takes longer than optimizing a small model.
    """
    return _read_once(tuple((Path(path), _stamp(Path(path))) for path in paths), targets)


@lru_cache(maxsize=64)
def _read_once(stamped: tuple[tuple[Path, tuple[int, int] | None], ...], targets: bool) -> list[ast.RuleFile]:
    return read_files([path for path, _ in stamped], targets=targets)


def _stamp(path: Path) -> tuple[int, int] | None:
    """What changes when a file does; None for a file that is not there, which reading it says."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def read_text(text: str, name: str = "<text>") -> ast.RuleFile:
    """Reads the text of a rule or target file.

    Args:
        text: What the file holds.
        name: Name of the file in places and errors; one that ends in ``.egg`` makes it raw egglog.

    Raises:
        RuleError, TargetError: It says something that cannot be.
    """
    return _read_text(text, name, _Names(), is_prelude=False)


def _read(path: Path, known: _Names, *, is_target: bool) -> ast.RuleFile:
    kind = TargetError if is_target else RuleError
    requirement = f"a {'target' if is_target else 'rule'} file is required"
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode) and not stat.S_ISFIFO(mode):
                raise kind(requirement, place=str(path), actual="a device or the like")
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise kind(
                f"a file of at most {MOST_BYTES:,} bytes is required",
                place=str(path),
                actual="a larger one",
                hint="several files may be given",
            )
        text = content.decode("utf-8")
    except FileNotFoundError:
        raise kind(requirement, place=str(path), actual="no such file") from None
    except UnicodeDecodeError as error:
        raise kind(f"{requirement} in UTF-8", place=str(path), actual=f"byte {error.start} that is none") from None
    except OSError as error:
        raise kind(requirement, place=str(path), actual=error.strerror or "something that cannot be read") from None
    return _read_text(text, str(path), known, is_prelude=_is_prelude(path))


def _is_prelude(path: Path) -> bool:
    if path.name != PRELUDE:
        return False
    try:
        return path.samefile(rules_dir() / PRELUDE)
    except OSError:
        return False


def _read_text(text: str, name: str, known: _Names, *, is_prelude: bool) -> ast.RuleFile:
    try:
        return _declared(text, name, known, is_prelude=is_prelude)
    except RecursionError:
        # The last guard: `let`s inside of each other, each of them nested as deeply as it may be.
        kind = TargetError if name.endswith(".target") else RuleError
        raise kind("terms that are nested less deeply are required", place=name) from None


def _declared(text: str, name: str, known: _Names, *, is_prelude: bool) -> ast.RuleFile:
    if name.endswith(".egg"):
        return ast.RuleFile(name, egg=text)
    source, sources = Sources.of(text, name)
    declarations = parse(source, sources).declarations
    frame = Frame()
    if not is_prelude:
        prelude, frame = _prelude()
        sources.add(prelude)
    rules: list[ast.Rule] = []
    targets: list[ast.Target] = []
    lets = [d for d in declarations if isinstance(d, s.Let)]
    if len(lets) > MOST_LETS:
        raise sources.error(
            lets[MOST_LETS].place, f"at most {MOST_LETS:,} `let`s in one file are required", actual=f"{len(lets):,}"
        )
    frames = iter(define(lets, frame, sources, local=False))
    for declaration in declarations:
        sources.in_target = isinstance(declaration, s.Target)
        match declaration:
            case s.Let():
                frame = next(frames)
            case s.Definition():
                for rule in build_rule(declaration, frame, source, sources):
                    known.add("rule", rule.name, rule.place, sources)
                    rules.append(rule)
            case s.Target():
                target = build_target(declaration, frame, source, sources)
                known.add("target", target.name, target.place, sources)
                targets.append(target)
    return ast.RuleFile(name, tuple(rules), tuple(targets))


class _Names:
    """Names declared so far, over all files that are read together."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], ast.Place] = {}

    def add(self, kind: str, name: str, place: ast.Place, sources: Sources) -> None:
        first = self._known.setdefault((kind, name), place)
        if first is not place:
            raise sources.error(
                place, f"each {kind} must have a name of its own", actual=f"`{name}`, which {first} has too"
            )


@cache
def _prelude() -> tuple[Source, Frame]:
    """The text of the prelude and what it defines."""
    path = rules_dir() / PRELUDE
    source, sources = Sources.of(path.read_text(encoding="utf-8") if path.exists() else "", str(path))
    lets = []
    for declaration in parse(source, sources).declarations:
        if not isinstance(declaration, s.Let):
            raise sources.error(declaration.place, "only `let`s are required in the prelude")
        lets.append(declaration)
    return source, [Frame(), *define(lets, Frame(), sources, local=False)][-1]
