"""The rewrites that TensorRight takes from XLA's algebraic simplifier, as rules of eqsat: proven, and implied by ours?

    python -m benchmarks.proofs [--only NAME ...] [--json FILE]

TensorRight (Arora et al., POPL 2025, doi 10.1145/3704865) counts 175 rewrites in XLA's simplifier, expresses 121 of
them and proves 115 for all ranks and sizes. ``xla/xla.rules`` says those of its public list with ONNX's operators,
``xla/xla_false.rules`` has a false variant of each, and ``NOT_EXPRESSED`` says why some have no counterpart. Columns:

- ``verdict``: as ``eqsat rules prove`` gives it; what is kept from earlier runs is not used. JSON has ``how`` as well.
- ``seconds``: of CPU time for that.
- ``implied``: whether eqsat's shipped rules make all that the rule makes, on three instances, in the same class.
- ``false variant``: its verdict.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.executor import table
from benchmarks.fresh_cache import fresh_cache
from benchmarks.output import write_json
from eqsat.check.instance import Instance
from eqsat.check.lints import adds_nothing
from eqsat.check.rule import check_rule
from eqsat.proofs.proved import prove
from eqsat.rules.ast import Rule
from eqsat.rules.reader import read_files
from eqsat.rules.selection import allowed, shipped_rules

FOLDER = Path(__file__).parent / "xla"
XLA, EXPRESSED_BY_TENSORRIGHT, PROVEN_BY_TENSORRIGHT = 175, 121, 115
NOT_EXPRESSED = {
    "broadcast_07": "counting from zero to a known number is a constant, which is folded without a rule",
    "concat_01": "both sides are the same Concat",
    "conv_01": "ONNX has no padding between elements",
    "divmod_06": "both sides are constants",
    "divmod_07": "both sides are constants",
    "divmod_08": "both sides are constants",
    "dyslice_05": "false for Gather, whose negative indices count from the end",
    "dyupslice_04": "an update at a place that is data has no static shape for its slice",
    "generalize_01": "ONNX has no padding between elements, and no dilation of inputs",
    "iota_01": "both sides are constants",
    "pad_02": "ONNX has no padding between elements",
}
FALSE_OF_NONE = ("dot_05",)
"""Rules without a false variant: an empty sum is zero whatever is summed."""


def read(name: str) -> dict[str, Rule]:
    """Rules of a file by name."""
    return {rule.name: rule for file in read_files([FOLDER / name]) for rule in file.rules}


def is_implied(rule: Rule, shipped: Sequence[Rule]) -> bool | None:
    """Whether shipped rules make all that a rule makes, None if no instance was found."""
    instances: list[Instance] = []
    check_rule(rule, instances=6, observe=lambda instance, *_: instances.append(instance))
    known = [r for r in shipped if allowed(r.numerics, rule.numerics.kind)]
    return adds_nothing(rule, known, instances) if instances else None


def rows(names: Sequence[str] = ()) -> list[dict[str, Any]]:
    """One row a rule."""
    true, false = read("xla.rules"), read("xla_false.rules")
    shipped = [rule for file in read_files(shipped_rules()) for rule in file.rules]
    found = []
    for name, rule in true.items():
        if names and name not in names:
            continue
        begin = time.process_time()
        proof = prove(rule)
        seconds = time.process_time() - begin
        variant = false.get(f"{name}_false")
        found.append(
            {
                "rule": name,
                "class": str(rule.numerics),
                "verdict": proof.trust,
                "seconds": round(seconds, 2),
                "implied": {True: "yes", False: "no", None: "?"}[is_implied(rule, shipped)],
                "false variant": prove(variant).trust if variant else "none",
                "how": " ".join(proof.detail.split()),
            }
        )
        print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return found


def totals(found: Sequence[dict[str, Any]]) -> list[str]:
    """The sums that are stated beside TensorRight's."""
    verdicts = Counter(row["verdict"] for row in found)
    proven = verdicts["proven"] + verdicts["bounded"]
    variants = Counter(row["false variant"] for row in found)
    listed = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
    seconds = [row["seconds"] for row in found]
    return [
        f"TensorRight: of {XLA} rewrites of XLA {EXPRESSED_BY_TENSORRIGHT} expressed, {PROVEN_BY_TENSORRIGHT} proven",
        f"eqsat: of {len(found) + len(NOT_EXPRESSED)} that it lists {len(found)} expressed, "
        f"{proven} proven or bounded ({listed})",
        f"implied by the shipped rules: {sum(row['implied'] == 'yes' for row in found)}",
        f"false variants refuted: {variants['refuted']} of {sum(variants.values()) - variants['none']}",
        f"CPU time of the proofs: {sum(seconds):.1f} s, at most {max(seconds):.1f} s a rule",
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these rules")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows")
    given = parser.parse_args(arguments)
    if unknown := sorted(set(given.only) - set(read("xla.rules"))):
        parser.error(f"a name of a rule of {FOLDER.name}/xla.rules is required; found: {unknown[0]}")
    warnings.simplefilter("ignore", RuntimeWarning)
    with fresh_cache():
        found = rows(given.only)
    print(table([{key: value for key, value in row.items() if key != "how"} for row in found]))
    print("\n".join(totals(found)))
    if given.only == []:
        print("\nnot expressed:")
        print("\n".join(f"  {name}: {why}" for name, why in NOT_EXPRESSED.items()))
    if given.json:
        write_json(given.json, {"rows": found, "not expressed": NOT_EXPRESSED})
    return 0


if __name__ == "__main__":
    sys.exit(main())
