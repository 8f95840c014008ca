"""Reads rule and target files: text to rules and targets, type-checked against the operators' schemas.

>>> from eqsat.rules.reader import read_text
>>> read_text("rule double : exact  x + x => 2 * x").rules[0].name
'double'
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from eqsat.bounds import without_collection
from eqsat.errors import EqsatError, RuleError, TargetError
from eqsat.rules import ast, rules_cache
from eqsat.rules.location import PRELUDE, rules_dir
from eqsat.schema.declared_operators import DeclaredOperator, Function, declared, declared_here

if TYPE_CHECKING:
    from eqsat.rules.reading import DeclaredNames, Reading

MOST_BYTES = 2_000_000
"""Most bytes of one file; the shipped ones together have less than a tenth of it."""
_DECLARATION = re.compile(r"^[ \t]*operator[ \t]", re.MULTILINE)
"""A file that declares operators contains this; others may contain it as well."""
_RULE_FILES = re.compile(r'\brules\s*"([^"\n\0]*)"')
"""Names of rule files that a target may have."""


def read_file(path: str | os.PathLike[str]) -> ast.RuleFile:
    """Reads one ``.rules``, ``.target`` or ``.egg`` file.

    Raises:
        RuleError, TargetError: It cannot be read, or says something that cannot be.
    """
    return read_files([path])[0]


def read_files(paths: Iterable[str | os.PathLike[str]]) -> list[ast.RuleFile]:
    """Reads several files; names of rules and targets must be unique.

    The operators that one file declares are known in all of them.

    Raises:
        RuleError, TargetError: One cannot be read, or two declare the same name.
    """
    return _read_texts(_texts(paths, targets=False))


def _texts(paths: Iterable[str | os.PathLike[str]], *, targets: bool) -> list[_Text]:
    return [_Text.of(Path(path), is_target=targets or Path(path).suffix == ".target") for path in paths]


def _read_texts(texts: Sequence[_Text]) -> list[ast.RuleFile]:
    from eqsat.rules.reading import DeclaredNames

    known = DeclaredNames()
    with declared([operator for text in texts for operator in _operators(text)]):
        return [_read_text(text, known) for text in texts]


def read_mistakes(paths: Iterable[str | os.PathLike[str]], *, targets: bool = False) -> list[EqsatError]:
    """All errors of several files, of each declaration the first; :func:`read_files` raises the first of all.

    What depends on a declaration with an error is left out.

    Args:
        paths: The files.
        targets: Whether the files are read as target files, independently of their names.
    """
    from eqsat.rules.reading import DeclaredNames
    from eqsat.rules.source import position_of

    found: list[EqsatError] = []
    known = DeclaredNames()
    with ExitStack() as scope:
        texts: list[_Text] = []
        for path in paths:
            try:
                (text,) = _texts([path], targets=targets)
                texts.append(text)
                scope.enter_context(declared(_operators(text, [])))
            except EqsatError as error:
                found.append(error)
        for text in texts:
            mistakes: list[EqsatError] = []
            try:
                _read_text(text, known, mistakes)
            except EqsatError as error:
                mistakes.append(error)
            found += sorted(mistakes, key=position_of)
    return list({(error.place, error.requirement): error for error in found}.values())


def read_operators(paths: Iterable[str | os.PathLike[str]], *, targets: bool = False) -> tuple[DeclaredOperator, ...]:
    """The operators that rule and target files declare, read before everything else in them.

    A pipe can be read once only, and is left to :func:`read_files`.

    Args:
        paths: The files.
        targets: Whether the files are read as target files, independently of their names.

    Raises:
        RuleError, TargetError: A file cannot be read, or a declaration is wrong.
    """
    stamped = tuple((Path(path), file_stamp(Path(path))) for path in paths if not Path(path).is_fifo())
    return _read_operators_once(stamped, targets, declared_here())


def read_unchanged(paths: Iterable[str | os.PathLike[str]], *, targets: bool = False) -> list[ast.RuleFile]:
    """As :func:`read_files`, but files that have not changed are read only once.

    Reading the shipped ones takes longer than optimizing a small model.
    """
    return _read_once(tuple((Path(path), file_stamp(Path(path))) for path in paths), targets, declared_here())


@lru_cache(maxsize=64)
def _read_once(
    stamped: tuple[tuple[Path, tuple[int, int] | None], ...], targets: bool, known: tuple[DeclaredOperator, ...]
) -> list[ast.RuleFile]:
    texts = _texts([path for path, _ in stamped], targets=targets)
    with without_collection():
        return _read_or_found(texts, known)


def _read_or_found(texts: Sequence[_Text], known: tuple[DeclaredOperator, ...]) -> list[ast.RuleFile]:
    if known or any(_DECLARATION.search(text.content) for text in texts):
        return _read_texts(texts)  # Operators are functions of this process.
    key = _key(texts)
    found = rules_cache.find(key)
    if found is None:
        found = _read_texts(texts)
        rules_cache.keep(key, found)
    return found


def _key(texts: Sequence[_Text]) -> str:
    """The name under which the contents of some texts are in the cache on disk."""
    prelude = rules_dir() / PRELUDE
    named = [(text.name, text.content) for text in texts]
    # A target may name rule files, which are looked for at two places.
    rules = [
        (str(path), path.is_file())
        for text in texts
        for name in _RULE_FILES.findall(text.content)
        for path in (Path(text.name).parent / name, rules_dir() / name)
    ]
    named.append((str(prelude), prelude.read_text(encoding="utf-8") if prelude.exists() else ""))
    return rules_cache.key_of(named, (rules, [text.is_prelude for text in texts]))


@lru_cache(maxsize=64)
def _read_operators_once(
    stamped: tuple[tuple[Path, tuple[int, int] | None], ...], targets: bool, known: tuple[DeclaredOperator, ...]
) -> tuple[DeclaredOperator, ...]:
    texts = (_Text.of(path, is_target=targets or path.suffix == ".target") for path, _ in stamped)
    return tuple(operator for text in texts for operator in _operators(text))


def file_stamp(path: Path) -> tuple[int, int] | None:
    """A value that changes when a file does; None for a missing file, for which reading raises the error."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def read_text(text: str, name: str = "<text>") -> ast.RuleFile:
    """Reads the text of a rule or target file.

    Args:
        text: Contents of the file.
        name: Name of the file in places and errors; one that ends in ``.egg`` makes it raw egglog.

    Raises:
        RuleError, TargetError: The text contains a mistake.
    """
    from eqsat.rules.reading import DeclaredNames

    return _read_text(_Text(text, name), DeclaredNames())


@dataclass(frozen=True, slots=True)
class _Text:
    """The content of a file, its name for places, and whether it is the shipped prelude."""

    content: str
    name: str
    is_prelude: bool = False

    @classmethod
    def of(cls, path: Path, *, is_target: bool) -> _Text:
        """Reads a file.

        Raises:
            RuleError, TargetError: It cannot be read.
        """
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
            return cls(_decoded(content, path, kind), str(path), _is_prelude(path))
        except FileNotFoundError:
            raise kind(requirement, place=str(path), actual="no such file") from None
        except OSError as error:
            raise kind(requirement, place=str(path), actual=error.strerror or "something that cannot be read") from None


def _decoded(content: bytes, path: Path, kind: type[EqsatError]) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        line, column = before.count(b"\n") + 1, len(before[before.rfind(b"\n") + 1 :].decode("utf-8")) + 1
        is_wide = content.startswith((b"\xff\xfe", b"\xfe\xff"))
        raise kind(
            "text in UTF-8 is required",
            place=f"{path}:{line}:{column}",
            actual=f"the byte 0x{content[error.start]:02X}" + (", as UTF-16 begins" if is_wide else ""),
            hint="save the file as UTF-8 in the editor that wrote it",
        ) from None


def _is_prelude(path: Path) -> bool:
    if path.name != PRELUDE:
        return False
    try:
        return path.samefile(rules_dir() / PRELUDE)
    except OSError:
        return False


def _read_text(text: _Text, known: DeclaredNames, mistakes: list[EqsatError] | None = None) -> ast.RuleFile:
    if text.name.endswith(".egg"):
        return ast.RuleFile(text.name, egg=text.content)
    with _shallow(text.name):
        return _reading(text, mistakes).read(known)


def _operators(text: _Text, mistakes: list[EqsatError] | None = None) -> tuple[Function, ...]:
    """The operators that a text declares; a text without the word is not parsed."""
    if text.name.endswith(".egg") or _DECLARATION.search(text.content) is None:
        return ()
    with _shallow(text.name):
        return _reading(text, mistakes).operators()


def _reading(text: _Text, mistakes: list[EqsatError] | None) -> Reading:
    from eqsat.rules.reading import Reading

    return Reading(text.content, text.name, is_prelude=text.is_prelude, mistakes=mistakes)


@contextmanager
def _shallow(name: str) -> Iterator[None]:
    try:
        yield
    except RecursionError:
        # The last guard: `let`s inside of each other, each nested to the greatest depth.
        kind = TargetError if name.endswith(".target") else RuleError
        raise kind("terms that are nested less deeply are required", place=name) from None
