"""``-`` for the standard streams, so that commands can be parts of a pipe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

STDIN, STDOUT = Path("/dev/stdin"), Path("/dev/stdout")


class InputPath(click.Path):
    """A file to read, or ``-``; the function that reads it says whether it exists and has the right format."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return STDIN if value == "-" else super().convert(value, param, ctx)


class OutputPath(click.Path):
    """A file to write, or ``-``."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return STDOUT if value == "-" else super().convert(value, param, ctx)


class FolderPath(click.Path):
    """A folder to write to. Standard output is none: ``-`` would become a folder of that name."""

    def __init__(self) -> None:
        super().__init__(file_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "-":
            self.fail("several files are written: the name of a folder is required, not `-`", param, ctx)
        return super().convert(value, param, ctx)


def check_output(output: Path | None, as_json: bool) -> bool:
    """Tries the place of a model before the work; returns whether standard output is needed for it.

    Raises:
        ModelError: The model could not be written there.
        click.BadParameter: Standard output cannot hold both the model and JSON.
    """
    if output is None:
        return False
    from eqsat.model.save import check_place

    check_place(output)
    if output == STDOUT and as_json:
        raise click.BadParameter("standard output cannot hold both the model and JSON", param_hint="'-o' / '--json'")
    return output == STDOUT
