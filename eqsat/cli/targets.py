"""``eqsat targets``: lists accelerators, shows what one can do, checks a user's file, and explains placements."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eqsat.cli.calibrate import calibrate
from eqsat.cli.console import echo, echo_json, fold
from eqsat.cli.shared_options import debug_option, declarations_option
from eqsat.cli.targets_why import why

if TYPE_CHECKING:
    from eqsat.rules.ast import Condition, Target


@click.group(short_help="List, show, check, calibrate and explain targets.")
def targets() -> None:
    """Targets say which kernels an accelerator has and what they cost; docs/targets.md describes their files."""


targets.add_command(calibrate)
targets.add_command(why)


@targets.command("list", short_help="List the shipped targets.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@debug_option
def list_(as_json: bool) -> None:
    """List the shipped targets."""
    from eqsat.cli.tables import print_table
    from eqsat.targets.find_targets import list_targets, load_targets

    found = [next(t for t in load_targets(name) if t.name == name) for name in list_targets()]
    if as_json:
        echo_json([_as_dict(target) for target in found])
        return
    print_table(
        ("target", ">composites", ">operators", "summary"),
        [
            (t.name, str(len(t.composites)), _operators(t), ("the host: " if t.is_host else "") + t.summary)
            for t in found
        ],
    )


@targets.command(short_help="Show what a target can do and what it costs.")
@click.argument("name", metavar="NAME|FILE")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@declarations_option
@debug_option
def show(name: str, as_json: bool) -> None:
    """Show the numbers, operators and composites of a target, with the conditions under which it takes them.

    \b
    eqsat targets show dnnl
    eqsat targets show my_npu.target
    """
    for target in _asked(name):
        if as_json:
            echo_json(_as_dict(target))
        else:
            lines = _lines(target)
            echo(next(lines), head=target.name, bold=True)
            echo(fold("\n".join(lines), indent=11))


@targets.command(short_help="Check target files.")
@click.argument("files", nargs=-1, required=True, metavar="NAME|FILE...")
@declarations_option
@debug_option
def check(files: tuple[str, ...]) -> int:
    """Check target files (shipped ones by name) against the operators' schemas, and report every mistake.

    If a composite of your own is written as an operator, the operator is executed and compared with the pattern. Of
    the other patterns and of plain operators, instances are drawn: one without any may never match.

    Warnings name what is allowed but probably not intended. The exit code is 1 only after an error.
    """
    from eqsat.check.gate import require_believed
    from eqsat.check.matching import unmatched
    from eqsat.codegen.family_names import unknown_families
    from eqsat.errors import EqsatError
    from eqsat.rules.claims import strange_claims
    from eqsat.rules.reader import read_mistakes
    from eqsat.targets.find_targets import read_target_file, target_path
    from eqsat.targets.validate import doubts, problems

    wrong = 0
    for file in files:
        try:
            declared = read_target_file(target_path(file))
            found: list[EqsatError] = []
            for target in declared:
                found += [*problems(target), *unknown_families(target)]
            undecided = () if found else (*require_believed(strange_claims(declared)), *unmatched(declared))
        except EqsatError as error:
            undecided = ()
            declared, found = (), (read_mistakes([Path(file)], targets=True) if Path(file).is_file() else []) or [error]
        wrong += len(found)
        for problem in found:
            echo(f": {problem}", head="error", colour="red", err=True)
        for doubt in (*(text for target in declared for text in doubts(target)), *undecided):
            echo(f": {doubt}", head="warning", colour="yellow", err=True)
        if not found:
            names = ", ".join(_counted(t) for t in declared)
            echo(f"{file}: ", nl=False)
            echo(f", {names}", head="OK", colour="green")
    return 1 if wrong else 0


def _counted(target: Target) -> str:
    """``c with 18 composites and 20 families``."""
    composites, families = len(target.composites), len(target.families)
    text = f"{target.name} with {composites} composite{'' if composites == 1 else 's'}"
    return text + (f" and {families} famil{'y' if families == 1 else 'ies'}" if families else "")


def _asked(name: str) -> list[Target]:
    """The targets that were asked for, without the host that always comes along."""
    from eqsat.targets.find_targets import HOST, load_targets

    found = load_targets(name)
    return [t for t in found if not t.is_host] or [t for t in found if t.name == HOST or t.is_host]


def _operators(target: Target) -> str:
    """How many plain operators a target takes."""
    if any(not entry.ops for entry in target.supports):
        return "all"
    return str(len({op for entry in target.supports for op in entry.ops}))


def _lines(target: Target) -> Iterator[str]:
    from eqsat import units
    from eqsat.rules.listing import composite_patterns, short_place
    from eqsat.rules.print_term import flat

    kind = "the host" if target.is_host else "an accelerator"
    yield f"  {kind}  {short_place(target.place)}"
    if target.summary:
        yield f"  {target.summary}"
    yield ""
    for dtype, rate in target.peak:
        yield f"  peak       {dtype:<9} {rate:.4g} MAC/s"
    yield f"  bandwidth  {target.bandwidth:.4g} B/s"
    yield f"  launch     {units.seconds(target.launch)} per kernel"
    if not target.is_host:
        yield f"  dispatch   {units.seconds(target.dispatch)} per region"
        yield f"  link       {target.link_bandwidth:.4g} B/s, {units.seconds(target.link_latency)}"
    yield ""
    for entry in target.supports:
        yield f"  supports   {', '.join(map(str, entry.ops)) or '*'}"
        if entry.family:
            yield f"    by       {entry.family}"
        yield from _conditions(entry.where)
        if entry.cost is not None:
            yield f"    cost     {flat(entry.cost)}"
    if target.families:
        yield ""
    for family in target.families:
        yield f"  family     {', '.join(family.names) or '*'}"
        yield from _conditions(family.where)
        yield f"    cost     {flat(family.cost)}"
    patterns = composite_patterns(target)
    for composite in target.composites:
        yield ""
        yield f"  composite  {composite.name} : {composite.numerics}  {short_place(composite.place)}"
        for line in composite.doc.splitlines():
            yield f"    # {line}"
        for line in patterns.get(str(composite.place), "").splitlines():
            yield f"    {line}"
        if composite.family:
            yield f"    by       {composite.family}"
        yield from _conditions(composite.where)
        if composite.cost is not None:
            yield f"    cost     {flat(composite.cost)}"
        if composite.call is not None:
            yield f"    call     {composite.call}"
        if composite.written is not None:
            yield f"    as       {composite.written.operator.op}"


def _conditions(where: tuple[Condition, ...]) -> Iterator[str]:
    from eqsat.rules.print_term import flat

    for condition in where:
        because = f"   because {condition.because}" if condition.because else ""
        yield f"    where    {flat(condition.expr)}{because}"


def _as_dict(target: Target) -> dict[str, Any]:
    from eqsat.report.as_json import plain
    from eqsat.rules.listing import short_place
    from eqsat.rules.print_term import flat

    def conditions(where: tuple[Condition, ...]) -> list[dict[str, str | None]]:
        return [{"condition": flat(c.expr), "because": c.because} for c in where]

    numbers = ("bandwidth", "launch", "dispatch", "link_bandwidth", "link_latency")
    return plain(
        {
            "name": target.name,
            "host": target.is_host,
            "summary": target.summary,
            "place": short_place(target.place),
            "peak": dict(target.peak),
            **{number: getattr(target, number) for number in numbers},
            "supports": [
                {
                    "operators": [str(op) for op in entry.ops] or ["*"],
                    "by": entry.family or None,
                    "where": conditions(entry.where),
                    "cost": None if entry.cost is None else flat(entry.cost),
                }
                for entry in target.supports
            ],
            "families": [
                {
                    "names": list(family.names) or ["*"],
                    "where": conditions(family.where),
                    "cost": flat(family.cost),
                }
                for family in target.families
            ],
            "composites": [
                {
                    "name": composite.name,
                    "numerics": str(composite.numerics),
                    "place": short_place(composite.place),
                    "doc": composite.doc,
                    "results": [name or "y" for name in composite.results],
                    "by": composite.family or None,
                    "where": conditions(composite.where),
                    "cost": None if composite.cost is None else flat(composite.cost),
                    "call": composite.call,
                    "as": None if composite.written is None else str(composite.written.operator.op),
                }
                for composite in target.composites
            ],
            "rules": list(target.rules),
            "prepare": list(target.prepare),
        }
    )
