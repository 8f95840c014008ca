"""A second registration for an operator is refused; otherwise the order of imports would decide."""

from __future__ import annotations

import pytest

from eqsat.codegen import elementwise_spelling
from eqsat.schema.types import OpKey


def test_spellings(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {OpKey("", "Einsum"): lambda node: None}
    monkeypatch.setattr(elementwise_spelling, "_SPELLINGS", known)
    elementwise_spelling.spelled("Hardmax")(lambda node: None)
    with pytest.raises(ValueError, match="Einsum has two spellings"):
        elementwise_spelling.spelled("Einsum")(lambda node: None)
