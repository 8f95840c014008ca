"""What each rule does on a model, for ``eqsat rules list --on``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eqsat.cli.console import echo, echo_json
from eqsat.rules.listing import Listed

if TYPE_CHECKING:
    from eqsat.search import Search


def print_effects(listed: Sequence[Listed], files: Sequence[Path], model: Path, *, as_json: bool) -> None:
    """Prints, for each of the listed rules, how often it matched and applied, and what of it was chosen.

    Args:
        files: The rule files that run, alone; the shipped ones if there are none.

    Raises:
        ModelError, OptimizationError: The model cannot be searched.
    """
    from eqsat.cli.tables import print_table
    from eqsat.search import Search

    search = Search.of(model, rules=list(files), default_rules=not files, free_sizes=True, numerics="approximate")
    summary = search.extract(verify=False).summary
    made: Counter[str] = Counter()
    if search.found is not None:
        made.update(search.snapshot.rules[node.rule] for node in search.snapshot.nodes)
    found = {row.name: row for row in summary.rules}
    names = [rule.name for entry in listed for rule in entry.rules]
    rows: list[dict[str, Any]] = []
    for name in names:
        row = found.get(name)
        counts = (row.matches, row.applied, made[name], row.chosen) if row is not None else (0, 0, 0, 0)
        keys = ("matches", "applied", "new_enodes", "chosen")
        remark = _remark(row) or (_refusal(search, name) if row is not None and not row.applied else "")
        rows.append({"name": name, **dict(zip(keys, counts, strict=True)), "remark": remark})
    if as_json:
        echo_json(rows)
        return
    print_table(
        ("rule", ">matches", ">applied", ">new e-nodes", ">chosen", "not applied because"),
        [
            (r["name"], str(r["matches"]), str(r["applied"]), str(r["new_enodes"]), str(r["chosen"]), r["remark"])
            for r in rows
        ],
    )
    for note in summary.notes:
        echo(f"note: {note}")


def _remark(row: Any) -> str:
    if row is None or not row.matches:
        return "the pattern does not occur"
    said = row.mismatch or row.misfit or row.undecided_condition
    if said:
        return str(said).splitlines()[0]
    if row.held_back:
        return f"held back for {row.held_back} rounds: too many matches"
    return ""


def _refusal(search: Search, name: str) -> str:
    """What the nearest match of a rule lacks."""
    from eqsat.reasons import nearest

    place = nearest(search, next(rule for rule in search.loaded.rules if rule.name == name))
    return "no match meets its conditions" if place is None else str(place)
