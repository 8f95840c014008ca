"""The methods for ranges are named alike wherever users meet them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import click

from eqsat.cli.quantize import quantize
from eqsat.quantization.methods import ANY_METHOD, METHODS, Method

REFERENCE = Path(__file__).parents[2] / "docs" / "quantization-reference.md"


def test_every_method_has_an_entry() -> None:
    assert get_args(Method) == tuple(METHODS)


def test_the_command_line_offers_and_explains_all() -> None:
    option = next(parameter for parameter in quantize.params if parameter.name == "method")
    assert isinstance(option, click.Option) and isinstance(option.type, click.Choice)
    assert tuple(option.type.choices) == ANY_METHOD
    assert all(f"{name}: {method.summary}" in (option.help or "") for name, method in METHODS.items())


def test_the_reference_explains_all() -> None:
    table = REFERENCE.read_text("utf-8").split("| method | a tensor's range |")[1].split("\n\n")[0]
    rows = dict(re.findall(r'^\| `"(\w+)"` \| (.*) \|$', table, re.MULTILINE))
    assert tuple(rows) == ANY_METHOD
    for name, method in METHODS.items():
        assert rows[name].startswith(method.summary)
