"""Writes ``rules/verdicts.json``, the verdicts of the prover on shipped rules, and their table in the documentation.

    python -m tests.proofs.verdicts [--renew]

Rules whose verdict is stored keep it, so that a run that was stopped goes on; with ``--renew`` all are proven again, as
after a change of the prover.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path

from eqsat.cli.tables import print_table
from eqsat.files import replacing
from eqsat.proofs.proved import prove
from eqsat.rules.ast import Rule
from eqsat.rules.claims import claims_of
from eqsat.rules.location import rules_dir
from eqsat.rules.reader import read_files
from eqsat.rules.selection import shipped_rules
from eqsat.rules.verdicts import Trust, key_of, stored_verdict, verdicts_file
from eqsat.targets.find_targets import read_target_file, targets_dir

PAGE = Path(__file__).parents[2] / "docs" / "write-a-rule.md"
BEGIN, END = "<!-- verdicts: written by make verdicts -->\n", "<!-- verdicts: end -->\n"
COLUMNS = ("proven", "bounded", "decided", "executed", "undecided", "refuted", "none")

Verdicts = list[tuple[Rule, Trust | None]]


def shipped() -> Verdicts:
    """The shipped rules with their stored verdicts, also those of targets and proofs; a rule ``<=>`` is two."""
    # The last two folders hold what no search has by default: the rules of targets, and those of proofs.
    further = [path for folder in ("kernels", "proofs") for path in sorted((rules_dir() / folder).glob("*.rules"))]
    rules = [rule for file in read_files([*shipped_rules(), *further]) for rule in file.rules]
    targets = [target for file in sorted(targets_dir().glob("*.target")) for target in read_target_file(file)]
    return [(rule, stored_verdict([rule])) for rule in (*rules, *claims_of(targets))]


def table(verdicts: Verdicts) -> str:
    """Markdown: how many rules of each shipped file have which verdict, and the share of those proven."""
    counts: dict[str, Counter[str]] = {}
    for rule, verdict in verdicts:
        file = Path(rule.place.file).resolve().relative_to(rules_dir().resolve())
        counts.setdefault(f"`{file.as_posix()}`", Counter())[verdict or "none"] += 1
    counts["all"] = sum(counts.values(), Counter())
    shown = [c for c in COLUMNS if counts["all"][c]]
    lines = [f"| file | rules | {' | '.join(shown)} | proven or bounded |", "|---" * (len(shown) + 3) + "|"]
    for name, found in counts.items():
        share = (found["proven"] + found["bounded"]) / found.total()
        numbers = " | ".join(str(found[c]) for c in shown)
        lines.append(f"| {name} | {found.total()} | {numbers} | {share:.0%} |")
    return "\n".join(lines) + "\n"


def with_table(page: str, verdicts: Verdicts) -> str:
    """The page with this table in the place of its own."""
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    return f"{head}{begin}\n{table(verdicts)}\n{end}{tail}"


def write(verdicts: Verdicts) -> None:
    entries = [(key_of(rule), rule.name, verdict) for rule, verdict in verdicts if verdict]
    lines = [f"{json.dumps(key)}: {json.dumps([name, verdict])}" for key, name, verdict in entries]
    with replacing(verdicts_file()) as file:
        file.write(("{\n" + ",\n".join(lines) + "\n}\n").encode())
    PAGE.write_text(with_table(PAGE.read_text("utf-8"), verdicts), "utf-8")


def main() -> None:
    """Proves, writes after each rule, and prints how many have which verdict."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--renew", action="store_true", help="prove all rules again")
    verdicts: Verdicts = shipped()
    if parser.parse_args().renew:
        verdicts[:] = [(rule, None) for rule, _ in verdicts]
    for k, (rule, verdict) in enumerate(verdicts):
        if verdict is None:
            verdicts[k] = (rule, prove(rule).trust)
            write(verdicts)
    # Also where nothing is left to prove: rules may come with their verdicts.
    write(verdicts)
    counts = Counter(verdict or "none" for _, verdict in verdicts)
    print_table(("verdict", "rules"), [(verdict, str(n)) for verdict, n in counts.most_common()])


if __name__ == "__main__":
    main()
