"""Where the shipped rules are: inside an installed package, or at the top of a checkout."""

from __future__ import annotations

from pathlib import Path


def rules_dir() -> Path:
    """The folder of the shipped ``*.rules``, ``prelude.rules`` and ``targets/``.

    Raises:
        FileNotFoundError: The installation lacks it.
    """
    package = Path(__file__).resolve().parent.parent
    for candidate in (package / "_rules", package.parent / "rules"):
        if candidate.is_dir():
            return candidate
    raise FileNotFoundError(
        f"this installation of eqsat lacks its rules: neither {package / '_rules'} nor rules/ is there"
    )
