"""Finding targets: the shipped files by name, any file by path, with numbers changed on the way.

A target is asked for as ``"dnnl"``, ``"my/npu.target"`` or, as TVM's command line had it, as a composite string
``"ethos_n, dnnl -launch=5e-6 -peak.float32=60e9, cpu"``. The host comes first in the result whatever order was given
for; the accelerators keep theirs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from eqsat.errors import TargetError
from eqsat.rules.ast import Target
from eqsat.rules.location import rules_dir
from eqsat.rules.reader import read_unchanged
from eqsat.schema.opset import did_you_mean
from eqsat.targets.validate import NUMBERS, validate

HOST = "cpu"
"""The default host: a runtime that has a kernel for each operator."""
GENERATED = "c"
"""The host on which a model runs as generated C."""
SUFFIX = ".target"
_OPTIONS = re.compile(r"(?P<what>.*?)(?P<options>(?:(?:^|\s+)-{1,2}[A-Za-z][^\s=]*(?:=\S*)?)*)\s*$", re.DOTALL)
_OPTION = re.compile(r"-{1,2}(?P<key>[^\s=]+)(?:=(?P<value>\S*))?")


def targets_dir() -> Path:
    """The folder of the shipped target files."""
    return rules_dir() / "targets"


def list_targets() -> tuple[str, ...]:
    """Names of the shipped targets, sorted."""
    return tuple(sorted(p.stem for p in targets_dir().glob(f"*{SUFFIX}")))


def load_targets(
    targets: str | Path | Target | Sequence[str | Path | Target] = (), host: str | Path | Target | None = None
) -> list[Target]:
    """Reads targets and checks them.

    Args:
        targets: Names, paths, composite strings of both with ``-key=value``, or targets already read. The keys
            are ``bandwidth launch dispatch link.bandwidth link.latency``, ``peak`` for all element types and
            ``peak.DTYPE`` for one; ``-`` and ``_`` serve for the dot as well.
        host: The host, unless it is one of the targets.

    Returns:
        The host first; the shipped ``cpu`` if no host is named.

    Raises:
        TargetError: A target does not exist, cannot be read, is inconsistent, or is named twice; there are two hosts.
    """
    asked = targets if isinstance(targets, list | tuple) else [targets]
    given = [] if host is None else [load_host(host)]
    found = given + [target for item in asked for target in _load(item)]
    seen: dict[str, Target] = {}
    for target in found:
        if target.name in seen:
            raise TargetError(
                "each target must be named once",
                place=str(target.place),
                actual=f"`{target.name}` twice",
                hint="leave one of them out, or declare it under another name",
            )
        seen[target.name] = target
    hosts = [t for t in found if t.is_host]
    if len(hosts) > 1:
        names = " and ".join(f"`{t.name}`" for t in hosts)
        raise TargetError(
            "one host is required",
            place=str(hosts[1].place),
            actual=names,
            hint="leave one of them out: programs have one host, and all other targets are accelerators",
        )
    if not hosts:
        hosts = _load(HOST)
        if HOST in seen:
            raise TargetError(
                f"an accelerator must not be called `{HOST}`, the name of the host",
                place=str(seen[HOST].place),
                hint="declare it with `host` instead of `target` if it is one, or give it another name",
            )
    for target in (*hosts, *found):
        validate(target)
    return [*hosts, *(t for t in found if not t.is_host)]


def target_files(targets: str | Path | Target | Sequence[str | Path | Target]) -> list[Path | Target]:
    """The files among what :func:`load_targets` takes, without those that are shipped, and the targets already read."""
    found: list[Path | Target] = []
    for item in targets if isinstance(targets, list | tuple) else [targets]:
        if isinstance(item, Path | Target):
            found.append(item)
        elif not isinstance(item, str):
            continue  # :func:`load_targets` refuses it.
        elif _is_path(item):
            found.append(Path(item))
        else:
            whats = (_OPTIONS.match(part.strip()) for part in item.split(","))
            names = [match["what"].strip() for match in whats if match is not None]
            found += [Path(name) for name in names if name not in list_targets() and Path(name).is_file()]
    return found


def _is_path(item: str) -> bool:
    """Whether a text is a path as a whole, also where that contains commas or blanks."""
    return item.endswith(SUFFIX) and Path(item).is_file()


def load_host(host: str | Path | Target) -> Target:
    """A host by name or file.

    Raises:
        TargetError: The target does not exist, cannot be read, or is an accelerator.
    """
    found = load_targets(host)
    accelerators = [t for t in found if not t.is_host]
    if accelerators:
        raise TargetError(
            "a host is required, which runs everything that no accelerator takes",
            place=str(accelerators[0].place),
            actual=f"`{accelerators[0].name}`, an accelerator",
            hint=f"`{HOST}`, `{GENERATED}`, or a file that `eqsat targets calibrate` writes",
        )
    return found[0]


def read_target_file(path: str | Path) -> tuple[Target, ...]:
    """All targets that a file declares.

    Raises:
        TargetError, RuleError: It cannot be read, or declares no target.
    """
    (content,) = read_unchanged([path], targets=True)
    if not content.targets:
        raise TargetError(
            "a file that declares a target is required",
            place=str(path),
            actual="rules only" if content.rules else "nothing that is declared",
            hint="`target NAME` begins one, its settings follow; docs/targets.md shows a whole file",
        )
    return content.targets


def _load(item: object) -> list[Target]:
    if isinstance(item, Target):
        return [item]
    if isinstance(item, Path):
        return list(read_target_file(item))
    if not isinstance(item, str):
        raise TargetError("a target by name, by path or as read from a file is required", actual=repr(item))
    if _is_path(item):
        return list(read_target_file(item))
    parts = [part.strip() for part in item.split(",")]
    if not all(parts):
        raise TargetError(
            "target names separated by single commas are required",
            actual=f"`{item}`",
            hint=f"write `{','.join(part for part in parts if part)}`" if any(parts) else "",
        )
    return [target for part in parts for target in _load_part(part)]


def _load_part(part: str) -> list[Target]:
    """One target of a composite string, with its options."""
    match = _OPTIONS.match(part)
    assert match is not None
    what = match["what"].strip()
    if not what:
        raise TargetError(
            "a target before its options is required", actual=f"`{part}`", hint=f"for example `dnnl {part.strip()}`"
        )
    options = [(m["key"], m["value"]) for m in _OPTION.finditer(match["options"])]
    targets = read_target_file(target_path(what))
    if options and len(targets) > 1:
        raise TargetError(
            "options need a file with one target",
            place=what,
            actual=f"{len(targets)} targets",
            hint="change the numbers in the file, or put each target into its own file",
        )
    return [_with_options(target, options) for target in targets]


def target_path(what: str) -> Path:
    """The file of a shipped target by its name, or a path unchanged.

    Raises:
        TargetError: It is neither the name of a shipped target nor looks like a path.
    """
    known = list_targets()
    if what in known:
        return targets_dir() / f"{what}{SUFFIX}"
    if what.endswith(SUFFIX) or "/" in what or "\\" in what or Path(what).is_file():
        return Path(what)
    raise TargetError(
        f"a target by name or the path of a *{SUFFIX} file is required",
        actual=f"`{what}`",
        hint=did_you_mean(what, known) or f"shipped targets: {', '.join(known)}",
    )


def _with_options(target: Target, options: Sequence[tuple[str, str | None]]) -> Target:
    for key, text in options:
        place = f"{target.name} -{key}"
        name = re.sub(r"[.\-]", "_", key)
        peak = dict(target.peak)
        keys = {**{n: n for n in NUMBERS}, "latency": "link_latency", "peak": "peak"}
        keys |= {f"peak_{dtype}": f"peak_{dtype}" for dtype in peak}
        if name not in keys:
            shown = [k.replace("_", ".", 1) if k.startswith(("link_", "peak_")) else k for k in keys if k != "latency"]
            raise TargetError(
                "one of the target's numbers is required",
                place=target.name,
                actual=f"`-{key}`",
                hint=did_you_mean(name.replace("_", "."), shown) or f"its numbers: {', '.join(shown)}",
            )
        target = _changed(target, keys[name], _number(text, place), peak)
        try:
            validate(target)
        except TargetError as error:
            # The file may be right; the number given here is wrong.
            raise TargetError(error.requirement, place=place, actual=error.actual, hint=error.hint) from None
    return target


def _changed(target: Target, field: str, value: float, peak: Mapping[str, float]) -> Target:
    if not field.startswith("peak"):
        return replace(target, **{field: value})
    only = field.removeprefix("peak").removeprefix("_")
    return replace(target, peak=tuple((d, value if only in ("", d) else rate) for d, rate in peak.items()))


def _number(text: str | None, place: str) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if math.isnan(value):
        raise TargetError(
            "a number is required, as in `-launch=5e-6`", place=place, actual=f"`{text}`" if text else "nothing"
        )
    return value
