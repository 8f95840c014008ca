"""The effect of each rule on a model, for ``eqsat rules list --on``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eqsat.cli.console import echo, echo_json
from eqsat.rules.listing import Listed
from eqsat.stages.event import Event

if TYPE_CHECKING:
    from eqsat.search import Search


def print_effects(
    listed: Sequence[Listed],
    files: Sequence[Path],
    model: Path,
    *,
    targets: Sequence[str] = (),
    gain: bool = False,
    as_json: bool,
) -> None:
    """Prints, for each of the listed rules, how often it matched and applied, and what of it was chosen.

    Args:
        files: The rule files that run, alone; the shipped ones if there are none.
        targets: Accelerators.
        gain: Search once more without each rule that applied, and sort the rules by what that costs.

    Raises:
        ModelError, OptimizationError: The model cannot be searched.
    """
    from eqsat import units
    from eqsat.cli.progress import showing_progress
    from eqsat.cli.tables import print_table
    from eqsat.reasons import cost_without
    from eqsat.search import Search

    search = Search.of(
        model,
        targets=list(targets),
        rules=list(files),
        default_rules=not files,
        free_sizes=True,
        numerics="approximate",
    )
    result = search.extract(verify=False)
    summary = result.summary
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
        seconds = 0.0 if row is None else row.seconds
        rows.append({"name": name, **dict(zip(keys, counts, strict=True)), "seconds": seconds, "remark": remark})
    if gain:
        with showing_progress(as_json) as progress:
            for i, r in enumerate(rows):
                if progress is not None:
                    progress(Event("gain", step=i, steps=len(rows)))
                # Rules that applied nowhere changed nothing.
                r["gain"] = cost_without(search, r["name"]) - result.cost if r["applied"] else 0.0
        rows.sort(key=lambda r: (-r["gain"], -r["applied"]))
    if as_json:
        echo_json(rows)
        return
    columns = (">matches", ">applied", ">new e-nodes", ">chosen", *([">gain"] if gain else []), ">time")
    print_table(
        ("rule", *columns, "not applied because"),
        [
            (
                r["name"],
                *(str(r[key]) for key in ("matches", "applied", "new_enodes", "chosen")),
                *([_gain(r["gain"], result.cost)] if gain else []),
                units.seconds(r["seconds"]),
                r["remark"],
            )
            for r in rows
        ],
    )
    for note in summary.notes:
        echo(f"note: {note}")


def _gain(seconds: float, cost: float) -> str:
    """The additional cost of a program without a rule, in seconds and as a share of the cost."""
    from eqsat import units

    share = f" ({units.percent(seconds / cost)})" if seconds and cost else ""
    return f"{'-' if seconds < 0 else ''}{units.seconds(abs(seconds))}{share}"


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
    """The missing requirement of a rule's nearest match."""
    from eqsat.reasons import nearest

    place = nearest(search, next(rule for rule in search.loaded.rules if rule.name == name))
    return "no match meets its conditions" if place is None else str(place)
