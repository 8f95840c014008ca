"""Operators of users' domains: declared in Python, and collected from all that may declare them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from eqsat.arguments import require_kind
from eqsat.errors import RuleError
from eqsat.files import execute_file
from eqsat.rules import ast
from eqsat.rules.reader import file_stamp, read_operators, read_text
from eqsat.schema.declared_operators import DeclaredOperator, Function, Reference, declared, merged
from eqsat.schema.types import TensorType

Declaration = str | os.PathLike[str] | DeclaredOperator | ast.Rule | ast.Target
"""A source of declarations: a rule or target file, a Python file, which is executed, an operator, or a rule or target
that was read.
"""


def operator(
    declaration: str,
    *,
    reference: Callable[..., Any] | None = None,
    types: Callable[..., Any] | None = None,
    results: int = 1,
) -> DeclaredOperator:
    """Declares an operator of your own domain.

    Args:
        declaration: As in a rule file, ``"acme.ScaledRelu(x: floats, alpha = 1.0) = Relu(x) * alpha"``; without the
            body for an operator that a Python function computes.
        reference: The function: called with the arrays by position and the attributes by name, it returns an array, or
            a tuple of them. Equal operands must give equal results.
        types: Called in the same way with an ``eqsat.TensorType`` for each operand, it returns the types of the
            results; by default that of the first operand.
        results: Number of results that the function returns.

    Returns:
        The operator, for ``declarations=[...]`` and :func:`declarations`.

    Raises:
        ArgumentError: An argument is of another kind.
        RuleError: The declaration is wrong, or has two meanings or none.

    Examples:
        >>> import eqsat, numpy as np
        >>> sinc = eqsat.operator("acme.Sinc(x: floats)", reference=lambda x: np.sinc(x).astype(x.dtype))
        >>> with eqsat.declarations(sinc):
        ...     y = eqsat.op("acme").Sinc(eqsat.input("x", (2, 3)))
        >>> y.shape
        (2, 3)
    """
    from eqsat.rules import declarations as s
    from eqsat.rules.build_operator import MOST_RESULTS, read_signature
    from eqsat.rules.parse import parse
    from eqsat.rules.scope import Frame
    from eqsat.rules.source import Sources

    require_kind("declaration", declaration)
    for argument, value in (("reference", reference), ("types", types)):
        if value is not None:
            require_kind(argument, value)
    caller = sys._getframe(1)
    name = f"{caller.f_code.co_filename}:{caller.f_lineno}"
    source, sources = Sources.of(f"operator {declaration}", name)
    found = parse(source, sources).declarations
    if len(found) != 1 or not isinstance(found[0], s.OperatorDeclaration):
        raise RuleError(
            "the declaration of one operator is required",
            place=name,
            actual=f"`{declaration}`",
            hint='for example eqsat.operator("acme.ScaledRelu(x: floats, alpha = 1.0) = Relu(x) * alpha")',
        )
    written = found[0]
    if reference is None:
        if types is not None or results != 1:
            raise RuleError("`types` and `results` must come with a `reference`", place=written.name)
        (function,) = read_text(f"operator {declaration}", name).operators
        return function
    if written.body is not None:
        raise RuleError(
            "one meaning of an operator is required, a body or a reference",
            place=written.name,
            actual="both",
            hint="leave out `= ...` or reference=",
        )
    if isinstance(results, bool) or not isinstance(results, int) or not 1 <= results <= MOST_RESULTS:
        raise RuleError(f"from 1 to {MOST_RESULTS} results are required", place=written.name, actual=repr(results))
    signature, dtypes = read_signature(written, Frame(), sources)
    if types is None and (not signature.inputs or results != 1):
        raise RuleError(
            "`types` are required where they are not those of the first operand alone",
            place=written.name,
            actual="none",
            hint="types=lambda x: eqsat.TensorType(x.dtype, x.shape)",
        )
    stated = _like_first if types is None else types
    return Reference(signature.op, signature.inputs, signature.attributes, reference, stated, results, dtypes, name)


def _like_first(first: TensorType, *others: TensorType, **attributes: object) -> TensorType:
    return first


def operators_of(declarations: Iterable[Declaration]) -> tuple[DeclaredOperator, ...]:
    """All operators that some files, operators, rules and targets declare, each once.

    Raises:
        RuleError: One is declared in two ways.
        RuleError, TargetError: A file cannot be read, or a declaration is wrong.
    """
    found: list[DeclaredOperator] = []
    for given in declarations:
        if isinstance(given, Function | Reference):
            found.append(given)
        elif isinstance(given, ast.Rule | ast.Target):
            found += given.operators
        elif not isinstance(given, str | os.PathLike):
            raise RuleError("a file, an operator, a rule or a target is required", actual=repr(given)[:200])
        elif Path(given).suffix == ".py":
            found += _of_python(Path(given), file_stamp(Path(given)))
        else:
            found += read_operators([given])
    return tuple(merged(found).values())


@contextmanager
def declarations(*given: Declaration) -> Iterator[None]:
    """Makes operators known to everything that runs inside: building graphs, loading, running and optimizing models.

    Args:
        given: Rule, target and Python files (which are executed), and operators that :func:`operator` returns.

    Raises:
        RuleError, TargetError: As :func:`operators_of`.
    """
    with declared(operators_of(given)):
        yield


@lru_cache(maxsize=64)
def _of_python(path: Path, stamp: tuple[int, int] | None) -> tuple[DeclaredOperator, ...]:
    """The operators among the names of a Python file, which is executed again only if it changes."""
    module = execute_file(path, "eqsat_operators", "a Python file with operators", RuleError)
    found = tuple(v for v in vars(module).values() if isinstance(v, Function | Reference))
    if not found:
        raise RuleError(
            "a Python file that declares an operator is required",
            place=str(path),
            actual="none",
            hint='my_operator = eqsat.operator("acme.Sinc(x)", reference=...)',
        )
    return found
