"""``eqsat rules``: lists rules, shows one and its program, executes, proves and explains rules, and formats files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from eqsat.cli.console import echo, echo_json, fold
from eqsat.cli.discover import discover
from eqsat.cli.rules_why import why
from eqsat.cli.search_options import targets_option
from eqsat.cli.shared_options import MODEL, debug_option, declarations_option, json_option, seed_option
from eqsat.cli.streams import InputPath

if TYPE_CHECKING:
    from eqsat.rules.listing import Listed

_FILES = InputPath()
SAMPLES = 40
"""As in ``eqsat.check.checked``, which takes long to import; a test compares."""
_TRUST_COLOURS = {"proven": "green", "bounded": "green", "decided": "green", "refuted": "red"}
_COLOURS = {"holds": "green", "undecided": "yellow", "refuted": "red"}


@click.group(short_help="List, show, check, prove, explain and format rules.")
def rules() -> None:
    """Rules say which programs are equal; docs/rules.md describes their language."""


@rules.command("list", short_help="List the rules.")
@click.argument("files", nargs=-1, type=_FILES)
@click.option("--sets", is_flag=True, help="List the named sets of operators instead.")
@click.option("--on", "model", type=MODEL, metavar="MODEL", help="List what each rule does on a model.")
@click.option(
    "--gain", is_flag=True, help="With --on: also show how much more the result costs without each rule. Takes long."
)
@targets_option
@declarations_option
@json_option()
@debug_option
def list_(
    files: tuple[Path, ...], sets: bool, model: Path | None, gain: bool, targets: tuple[str, ...], as_json: bool
) -> None:
    """List the rules of FILES, or the shipped ones: name, numerics class, proof, file and line, comment.

    The proof is the verdict of ``eqsat rules prove``. Shipped rules have stored verdicts; other rules have one after
    they were proven, or executed before a search used them.

    With --on, only these rules run on MODEL. The list shows how often each matched, on how many distinct signatures its
    conditions held, how many e-nodes only it added, how many kernels of the result it made, and the time it took. With
    --gain, the search runs once more without each rule that applied, and rules are sorted by how much more the result
    then costs.
    """
    if model is None and (gain or targets):
        raise click.UsageError("--gain and --target need a model: give it with --on")
    from eqsat.rules.listing import short_place
    from eqsat.rules.verdicts import known_verdict

    if sets:
        _list_sets(files, as_json)
        return
    listed = _read(files)
    if model is not None:
        from eqsat.cli.rules_on import print_effects

        print_effects(listed, files, model, targets=targets, gain=gain, as_json=as_json)
        return
    if as_json:
        rows = [
            {
                "name": r.name,
                "numerics": str(r.numerics),
                "proof": known_verdict(entry.rules),
                "place": short_place(r.place),
                "doc": r.doc,
            }
            for entry in listed
            for r in entry.rules[:1]
        ]
        echo_json(rows)
        return
    from eqsat.cli.tables import print_table

    print_table(
        ("rule", "numerics", "proof", "place", "remark"),
        [
            (
                entry.name,
                str(entry.rules[0].numerics),
                known_verdict(entry.rules) or "-",
                short_place(entry.rules[0].place),
                _remark(entry),
            )
            for entry in listed
        ],
    )


@rules.command(short_help="Show rules, or the programs that they compile to.")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option(
    "-r", "--rules", "files", multiple=True, type=_FILES, help="The file to search instead of the shipped files."
)
@click.option("--egg", is_flag=True, help="Show the egglog program that a rule compiles to.")
@declarations_option
@debug_option
def show(names: tuple[str, ...], files: tuple[Path, ...], egg: bool) -> None:
    """Show the text of rules as it stands in their files.

    \b
    eqsat rules show fold_batchnorm_into_conv
    eqsat rules show --egg double
    """
    from eqsat.errors import RuleError
    from eqsat.rules.listing import short_place
    from eqsat.schema.opset import did_you_mean

    by_name = {entry.name: entry for entry in _read(files)}
    for i, name in enumerate(names):
        entry = by_name.get(name.removesuffix(".reverse"))
        if entry is None:
            raise RuleError(
                "the name of a rule is required",
                actual=f"`{name}`",
                hint=did_you_mean(name, by_name) or "`eqsat rules list` lists them",
            )
        if i:
            echo()
        echo(f"# {short_place(entry.rules[0].place)}")
        if egg:
            from eqsat.egraph.show import egg_text

            echo("\n".join(egg_text(rule) for rule in entry.rules), nl=False)
        else:
            echo(entry.text)


@rules.command(short_help="Execute rules on random instances.")
@click.argument("files", nargs=-1, required=True, type=_FILES, metavar="FILE...")
@click.option("--rule", "names", multiple=True, metavar="NAME", help="Check this rule only. May be repeated.")
@click.option(
    "--samples",
    type=click.IntRange(min=1),
    default=SAMPLES,
    show_default=True,
    metavar="N",
    help="Instances of each rule.",
)
@seed_option("the instances")
@declarations_option
@json_option()
@debug_option
def check(files: tuple[Path, ...], names: tuple[str, ...], samples: int, seed: int, as_json: bool) -> int:
    """Execute both sides of the rules in FILES; for target files, of the rules that belong to the target.

    A wrong rule is printed with a counterexample; the exit code is then 1.

    \b
    eqsat rules check my.rules
    eqsat rules check my.rules --rule hard_tanh --samples 200 --seed 1
    """
    from eqsat.check.checked import check_rules
    from eqsat.errors import EqsatError
    from eqsat.rules.reader import read_mistakes

    try:
        found = check_rules(files, names=names, samples=samples, seed=seed)
    except EqsatError:
        mistakes = read_mistakes(files)
        if not mistakes:
            raise
        for mistake in mistakes:
            echo(f": {mistake}", head="error", colour="red", err=True)
        return 1
    refuted = sum(checked.verdict == "refuted" for checked in found)
    if as_json:
        echo_json([checked.as_dict() for checked in found])
        return 1 if refuted else 0
    for checked in found:
        head, _, text = str(checked).partition(" ")
        echo(f" {text}", head=head, colour=_COLOURS[checked.verdict])
    counts = [f"{verdict}: {n}" for verdict in _COLOURS if (n := sum(c.verdict == verdict for c in found))]
    echo(f"rules: {len(found)}{''.join(f', {count}' for count in counts)}")
    return 1 if refuted else 0


rules.add_command(discover)
rules.add_command(why)


@rules.command(short_help="Prove rules, and execute those that are not proven.")
@click.argument("files", nargs=-1, type=_FILES, metavar="[FILE]...")
@click.option("--rule", "names", multiple=True, metavar="NAME", help="Prove this rule only. May be repeated.")
@declarations_option
@json_option()
@debug_option
def prove(files: tuple[Path, ...], names: tuple[str, ...], as_json: bool) -> int:
    """Print the strongest statement about each rule of FILES, or about each shipped rule.

    A rule is proven for all ranks and sizes, proven for all values at bounded ranks and sizes, decided by exact
    arithmetic, executed, or refuted. The exit code is 1 if a rule is refuted.

    \b
    eqsat rules prove my.rules
    eqsat rules prove --rule unary_of_transpose
    """
    from eqsat.proofs.proved import WORDS, prove_rules

    found = prove_rules(files or None, names=names)
    if as_json:
        echo_json([proven.as_dict() for proven in found])
        return int(any(proven.trust == "refuted" for proven in found))
    for proven in found:
        head, _, text = str(proven).partition(" ")
        echo(f" {text}", head=head, colour=_TRUST_COLOURS.get(proven.trust, "yellow"))
    counts = [f"{trust}: {n}" for trust in WORDS if (n := sum(p.trust == trust for p in found))]
    echo(f"rules: {len(found)}{''.join(f', {count}' for count in counts)}")
    return int(any(proven.trust == "refuted" for proven in found))


@rules.command("format", short_help="Put rule and target files into canonical form.")
@click.argument("files", nargs=-1, required=True, type=_FILES)
@click.option("--check", is_flag=True, help="Write nothing; the exit code is 1 if a file would change.")
@declarations_option
@debug_option
def format_(files: tuple[Path, ...], check: bool) -> int:
    """Rewrite FILES in canonical form; comments stay.

    All of them are read first: if one is wrong, none is written.
    """
    from eqsat.files import replacing
    from eqsat.rules.format import format_file
    from eqsat.rules.reader import read_file

    changed: list[tuple[Path, str]] = []
    for path in files:
        read_file(path)
        text = path.read_text(encoding="utf-8")
        formatted = format_file(text, str(path))
        if formatted != text:
            changed.append((path, formatted))
    for path, formatted in changed:
        if not check:
            with replacing(path) as file:
                file.write(formatted.encode())
        echo(f"{'would change' if check else 'formatted'}  {path}")
    echo(f"{len(changed)} of {len(files)} files {'would change' if check else 'changed'}")
    return 1 if check and changed else 0


def _list_sets(files: tuple[Path, ...], as_json: bool) -> None:
    from eqsat.cli.tables import print_table
    from eqsat.errors import RuleError
    from eqsat.ops.sets import operator_sets

    if files:
        hint = "named sets of operators are the same for all files"
        raise RuleError("no files are required with --sets", actual=str(files[0]), hint=hint)
    found = operator_sets().values()
    if as_json:
        echo_json([{"name": n.name, "doc": n.doc, "operators": [str(op) for op in n.operators]} for n in found])
        return
    print_table(("set", "description", "operators"), [(n.name, n.doc, str(len(n.operators))) for n in found])
    for entry in found:
        echo()
        echo(fold(f"{entry.name}: {', '.join(map(str, entry.operators))}"))


def _read(files: tuple[Path, ...]) -> list[Listed]:
    from eqsat.rules.listing import list_rules
    from eqsat.rules.selection import shipped_rules

    return list_rules(list(files) or shipped_rules())


def _remark(entry: Listed) -> str:
    return " ".join(entry.rules[0].doc.split())
