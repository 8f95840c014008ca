"""Which rules run: the shipped files or the user's, filtered by how far they may change values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from eqsat.errors import RuleError
from eqsat.rules.ast import Numerics, Rule
from eqsat.rules.claims import claims_of
from eqsat.rules.location import rules_dir
from eqsat.rules.reader import read_files, read_unchanged
from eqsat.schema.opset import did_you_mean

NumericsClass = Literal["exact", "lsb", "real", "approximate"]
"""From strict to loose; each allows all before it."""

_ORDER: tuple[str, ...] = get_args(NumericsClass)


@dataclass(frozen=True, slots=True)
class RuleSelection:
    """Attributes:
    rules: In order of files and of rules in them.
    egg: Texts of raw egglog files.
    """

    rules: tuple[Rule, ...]
    egg: tuple[str, ...]


def allowed(numerics: Numerics, limit: NumericsClass) -> bool:
    """Whether a rule of one class may run under another."""
    return _ORDER.index(numerics.kind) <= _ORDER.index(limit)


def shipped_rules() -> list[Path]:
    """The shipped rule files, sorted by name; the prelude holds macros only and is read by the reader itself."""
    return sorted(p for p in rules_dir().glob("*.rules") if p.name != "prelude.rules")


def select_rules(
    sources: Sequence[str | Path | Rule], numerics: NumericsClass, default_rules: bool = False
) -> RuleSelection:
    """Reads rule files and keeps the rules that the numerics class allows.

    Args:
        sources: Files and single rules.
        numerics: The loosest class that may run.
        default_rules: Whether the shipped files come first; a file that is also in ``sources`` is read once.

    Raises:
        RuleError: A file cannot be read, or the class is unknown.
    """
    if numerics not in _ORDER:
        raise RuleError(f"a numerics class ({', '.join(_ORDER)}) is required", place="numerics", actual=repr(numerics))
    paths = [Path(s) for s in sources if not isinstance(s, Rule)]
    if default_rules:
        shipped = shipped_rules()
        known = {path.resolve() for path in shipped}
        paths = [*shipped, *(path for path in paths if path.resolve() not in known)]
    read = read_unchanged(paths)
    rules = [rule for file in read for rule in file.rules] + [s for s in sources if isinstance(s, Rule)]
    egg = tuple(file.egg for file in read if file.egg is not None)
    return RuleSelection(tuple(rule for rule in rules if allowed(rule.numerics, numerics)), egg)


def named_rules(rules: Sequence[Rule], names: Sequence[str]) -> list[Rule]:
    """The rules of these names, all without names; the name of a rule ``<=>`` means both of its directions.

    Raises:
        RuleError: There is no rule of a name.
    """
    known = list(dict.fromkeys(name for rule in rules for name in (rule.name, rule.name.removesuffix(".reverse"))))
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known) or "`eqsat rules list FILE` lists them"
            raise RuleError("the name of a rule is required", actual=f"`{name}`", hint=hint)
    return [r for r in rules if not names or r.name in names or r.name.removesuffix(".reverse") in names]


def rules_in(sources: Sequence[str | Path | Rule]) -> list[Rule]:
    """The rules of files and of the files that their targets name, what these targets claim, then single rules.

    Raises:
        RuleError, TargetError: A file cannot be read.
    """
    files = read_files([Path(s) for s in sources if not isinstance(s, Rule)])
    targets = [target for file in files for target in file.targets]
    further = dict.fromkeys(path for target in targets for path in (*target.prepare, *target.rules))
    read = [*files, *(read_files([Path(path) for path in further]) if further else ())]
    own = [rule for file in read for rule in file.rules]
    return [*own, *claims_of(targets), *(s for s in sources if isinstance(s, Rule))]
