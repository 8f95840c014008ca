"""Stored verdicts of the prover, so that listing rules needs neither the solver nor its time.

``rules/verdicts.json`` has the verdict on each shipped rule, under a hash of the rule. So a changed rule has no verdict
until ``make verdicts`` is run. Verdicts on other rules enter the user's cache when they are proven, or executed before
a search uses them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Literal, get_args

from eqsat.rules import rules_cache
from eqsat.rules.ast import Rule, RuleFile
from eqsat.rules.location import rules_dir
from eqsat.rules.stored import to_text
from eqsat.rules.tree import Span, without_places

Trust = Literal["proven", "bounded", "decided", "executed", "undecided", "refuted"]
"""Verdicts of the prover, from the strongest to the weakest."""

_FOLDER = "verdicts"
_MOST_KEPT = 4_096
_ROOMS = ("proofs", "check", "egraph", "execute")
"""Rooms on which verdicts depend."""


def verdicts_file() -> Path:
    return rules_dir() / "verdicts.json"


def content_of(rule: Rule) -> str | None:
    """The contents of a rule, without comments and places; None for rules about operators that are Python functions."""
    nowhere = Span(1, 1)
    plain: Rule = replace(
        without_places(rule), span=nowhere, doc="", where=tuple(replace(c, span=nowhere) for c in rule.where)
    )
    return to_text([RuleFile("", (without_places(plain),))])


def key_of(rule: Rule) -> str | None:
    """The key under which the verdict on a rule is stored."""
    text = content_of(rule)
    return None if text is None else hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def stored_verdict(rules: Iterable[Rule]) -> Trust | None:
    """The weakest stored verdict on some shipped rules; None if one of them has none."""
    return weakest_verdict([_stored().get(key_of(rule) or "") for rule in rules])


def known_verdict(rules: Iterable[Rule]) -> Trust | None:
    """The weakest verdict on some rules, stored or from the cache; None if one of them has none."""
    return weakest_verdict([stored_verdict([rule]) or _kept(rule) for rule in rules])


def weakest_verdict(verdicts: Iterable[Trust | None]) -> Trust | None:
    """The weakest of some verdicts; None if one is unknown, or if there are none."""
    found = list(verdicts)
    known: list[Trust] = [trust for trust in found if trust is not None]
    order: tuple[Trust, ...] = get_args(Trust)
    return max(known, key=order.index) if known and len(known) == len(found) else None


def keep_verdict(rule: Rule, verdict: Trust, *, only_first: bool = False) -> None:
    """Keeps a verdict in the user's cache.

    Args:
        only_first: Leave one that is there.
    """
    key = _kept_key(rule)
    if key is not None and not (only_first and _kept(rule)):
        rules_cache.keep_text(_FOLDER, key, verdict, _MOST_KEPT)


def _kept(rule: Rule) -> Trust | None:
    key = _kept_key(rule)
    text = None if key is None else rules_cache.find_text(_FOLDER, key)
    return next((verdict for verdict in get_args(Trust) if verdict == text), None)


def _kept_key(rule: Rule) -> str | None:
    text = content_of(rule)
    return None if text is None else rules_cache.key_of([("rule", text)], (), rooms=_ROOMS)


@cache
def _stored() -> dict[str, Trust]:
    """The stored verdicts by key; empty where the file is missing, since a verdict is information only."""
    try:
        entries = json.loads(verdicts_file().read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return {key: verdict for key, (_, verdict) in entries.items() if verdict in get_args(Trust)}
