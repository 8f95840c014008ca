"""Every case that the numpy kernels are tested with, recorded so that C kernels can be tested with it.

The test functions run with a ``check`` that notes operator, attributes and inputs and computes nothing but the
executor's own result, which is what C must agree with.
"""

from __future__ import annotations

import importlib
import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
import pytest

from eqsat.ops.evaluate import TensorValue
from eqsat.ops.schemas import defaults, since_version
from eqsat.schema.types import OpKey
from tests.ops import oracle

MODULES = (
    "binary", "casting", "convolution", "gathering", "interpolation", "matmul", "normalization", "pooling", "qlinear",
    "quantization", "recurrent", "reductions", "resize", "shaping", "signal", "unary",
)  # fmt: skip


@dataclass(frozen=True)
class Record:
    """One evaluation of an operator.

    Attributes:
        test: Where it comes from.
        operator: The operator.
        attributes: With defaults.
        inputs: Arrays, None where absent.
        results: What the numpy kernel computes.
    """

    test: str
    operator: OpKey
    attributes: Mapping[str, Any]
    inputs: tuple[np.ndarray | None, ...]
    results: tuple[TensorValue, ...]


class _Enough(BaseException):
    """Raised instead of what only another judge could say."""


@cache
def records(module: str) -> tuple[Record, ...]:
    """The cases of ``tests/ops/families/test_<module>.py``."""
    found: list[Record] = []
    loaded = importlib.import_module(f"tests.ops.families.test_{module}")
    with mock.patch.multiple(loaded, **_stand_ins(loaded, module, found)), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, function in sorted(vars(loaded).items()):
            if name.startswith("test_") and callable(function):
                for arguments in _arguments(function):
                    _attempt(function, arguments)
    return tuple(found)


def _attempt(function: Callable[..., object], arguments: Mapping[str, Any]) -> None:
    """Run a test for its cases; whether it passes is for the executor's own tests."""
    try:
        function(**arguments)
    except (Exception, _Enough, pytest.skip.Exception):
        return


def _stand_ins(module: ModuleType, label: str, found: list[Record]) -> dict[str, Any]:
    def check(
        name: str,
        inputs: Sequence[np.ndarray | None],
        attrs: Mapping[str, Any] | None = None,
        *,
        outputs: int = 1,
        domain: str = "",
        version: int | None = None,
        **rest: Any,
    ) -> tuple[Any, ...]:
        op = OpKey(domain, name)
        results = oracle.run_ours(op, attrs or {}, inputs, outputs, version)
        if since_version(op, version) == since_version(op):
            attributes = {**defaults(op), **oracle.canonical(attrs or {})}
            found.append(Record(label, op, attributes, tuple(inputs), results))
        return results

    def other(*arguments: Any, **named: Any) -> Any:
        raise _Enough

    stand_ins = {"check": check, "run_ort": other, "run_reference": other}
    return {name: function for name, function in stand_ins.items() if hasattr(module, name)}


def _arguments(function: Callable[..., object]) -> Iterator[dict[str, Any]]:
    """Arguments that a test's parameters give it."""
    choices: list[list[dict[str, Any]]] = []
    for mark in getattr(function, "pytestmark", ()):
        if mark.name == "parametrize":
            names = mark.args[0] if not isinstance(mark.args[0], str) else mark.args[0].replace(" ", "").split(",")
            choices.append([dict(zip(names, v if len(names) > 1 else (v,), strict=True)) for v in mark.args[1]])
    code = function.__code__
    wanted = set(code.co_varnames[: code.co_argcount])
    for combination in itertools.product(*choices):
        arguments = {name: value for chosen in combination for name, value in chosen.items()}
        if set(arguments) == wanted:
            yield arguments
