"""The kinds of arguments of public functions: one message for an argument of another kind.

Python would accept them all and fail somewhere inside, with a traceback that names nothing the caller knows. A name
means the same in every public function, so one table by name serves them all. What an argument may be beyond its kind
(a name that exists, a number in range) is checked where it is used.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter, signature
from numbers import Integral, Real
from typing import Any, ParamSpec, TypeVar

from eqsat.errors import ArgumentError

_P = ParamSpec("_P")
_R = TypeVar("_R")

MOST_SHOWN = 60
"""Characters of a wrong argument that the message shows."""


@dataclass(frozen=True, slots=True)
class ArgumentKind:
    """A kind of argument.

    Attributes:
        accepts: Whether a value is of this kind.
        wording: The kind in words, for ``... is required``.
        example: An example in Python.
    """

    accepts: Callable[[Any], bool]
    wording: str
    example: str = ""


def _is_mapping(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(name, str) for name in value)


def _is_list(value: Any) -> bool:
    return isinstance(value, Collection) and not isinstance(value, (str, bytes, os.PathLike, Mapping))


def _is_list_of_names(value: Any) -> bool:
    return _is_list(value) and all(isinstance(name, str) for name in value)


def _is_rule(value: Any) -> bool:
    return _is_path(value) or type(value).__name__ == "Rule"


def _is_list_of_rules(value: Any) -> bool:
    return _is_list(value) and all(map(_is_rule, value))


def _is_target(value: Any) -> bool:
    return _is_path(value) or type(value).__name__ == "Target"


def _is_targets(value: Any) -> bool:
    return _is_target(value) or (isinstance(value, (list, tuple)) and all(map(_is_target, value)))


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool) or type(value).__name__ == "bool"


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not _is_bool(value)


def _is_count(value: Any) -> bool:
    return isinstance(value, Integral) and not _is_bool(value)


def _is_path(value: Any) -> bool:
    return isinstance(value, (str, os.PathLike))


_SWITCH = ArgumentKind(_is_bool, "True or False")
_PATH = ArgumentKind(_is_path, "a path")
_NUMBER = ArgumentKind(_is_number, "a number")
_COUNT = ArgumentKind(_is_count, "a whole number")
_SEED = ArgumentKind(lambda value: _is_count(value) and value >= 0, "a whole number, 0 or more,")
_NAME = ArgumentKind(lambda value: isinstance(value, str), "a name")

KINDS: Mapping[str, ArgumentKind] = {
    "inputs": ArgumentKind(_is_mapping, "a mapping from input name to array", '{"x": array}'),
    "dims": ArgumentKind(
        _is_mapping, "a mapping from dimension to size", 'dims={"batch": 1} or dims={"batch": (1, 64)}'
    ),
    "values": ArgumentKind(_is_mapping, "a mapping from input name to value", 'values={"sr": 16000}'),
    "partition_functions": ArgumentKind(
        lambda value: _is_mapping(value) and all(callable(function) for function in value.values()),
        "a mapping from composite to function",
        'partition_functions={"dnnl.conv2d_relu": function}',
    ),
    "rules": ArgumentKind(_is_list_of_rules, "a list of rule files or rules", 'rules=["my.rules"]'),
    "targets": ArgumentKind(
        _is_targets, "a target by name, by path or as read from a file, or a list of them,", 'targets=["dnnl"]'
    ),
    "host": ArgumentKind(_is_target, "a host by name, by path or as read from a file", 'host="ort"'),
    "declarations": ArgumentKind(_is_list, "a list of files or operators", 'declarations=["my.rules"]'),
    "backends": ArgumentKind(_is_list, "a list of backends or Python files", 'backends=["my_backend.py"]'),
    "vendors": ArgumentKind(_is_list_of_names, "a list of targets by name", 'vendors=["dnnl"]'),
    "isas": ArgumentKind(_is_list_of_names, "a list of instruction sets by name", 'isas=["avx2"]'),
    "ops": ArgumentKind(
        lambda value: isinstance(value, str) or _is_list_of_names(value), "a list of domains", 'ops=["onnx"]'
    ),
    "skip": ArgumentKind(_is_list_of_names, "a list of names of nodes", 'skip=["conv_1"]'),
    "nodes": ArgumentKind(_is_list_of_names, "a list of names of nodes", 'nodes=["conv_1"]'),
    "names": ArgumentKind(_is_list_of_names, "a list of names of rules", 'names=["my_rule"]'),
    "operators": ArgumentKind(_is_list_of_names, "a list of operators by name", 'operators=["Conv"]'),
    "progress": ArgumentKind(
        lambda value: callable(value) or isinstance(value, bool),
        "a function of an event, or True or False",
        "progress=print",
    ),
    "sources": ArgumentKind(
        lambda value: _is_rule(value) or _is_list_of_rules(value),
        "a rule file, a rule, or a list of them",
        'sources=["my.rules"]',
    ),
    "declaration": ArgumentKind(
        lambda value: isinstance(value, str),
        "the text of a declaration",
        'eqsat.operator("acme.ScaledRelu(x: floats, alpha = 1.0) = Relu(x) * alpha")',
    ),
    **dict.fromkeys(("reference", "types"), ArgumentKind(callable, "a function")),
    "name": _NAME,
    "seed": _SEED,
    "path": _PATH,
    "folder": _PATH,
    **dict.fromkeys(("percentile", "rtol", "atol"), _NUMBER),
    **dict.fromkeys(
        ("samples", "noise_samples", "check_samples", "steps", "opset", "places", "sweep", "size", "variables"),
        _COUNT,
    ),
    **dict.fromkeys(
        ("audit", "verify", "default_rules", "winograd", "select", "flat", "symmetric", "per_channel", "balance"),
        _SWITCH,
    ),
    **dict.fromkeys(("simulate", "trust", "prove"), _SWITCH),
}
"""By the name of an argument. None is allowed wherever it is the default."""


def checks_arguments(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorates a public function: its arguments are of the kinds that their names have.

    Raises:
        ArgumentError: One is not; nothing was done.
    """
    parameters = signature(function)
    defaults = {name: p.default for name, p in parameters.parameters.items()}

    @wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        # What does not fit the signature is Python's own error, raised by the call below.
        given = dict(zip(defaults, args, strict=False)) | kwargs
        for name, value in given.items():
            if name in KINDS and value is not defaults.get(name):
                require_kind(name, value)
        return function(*args, **kwargs)

    return call


def with_options(
    options: type, origin: Callable[..., object], **others: object
) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Decorates a function whose further keywords are a ``TypedDict``: it receives all of them, and its signature,
    which ``help`` shows and other decorators read, names each with its default.

    Args:
        options: The ``TypedDict``.
        origin: A function or class with parameters of the same names, which states their defaults.
        others: Defaults that differ from those.
    """
    stated = signature(origin).parameters
    added = [
        stated[name].replace(kind=Parameter.KEYWORD_ONLY, default=others.get(name, stated[name].default))
        for name in options.__annotations__
    ]
    defaults = {parameter.name: parameter.default for parameter in added}

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        own = signature(function)
        first = [p for p in own.parameters.values() if p.kind is not Parameter.VAR_KEYWORD]
        whole = own.replace(parameters=[*first, *added])

        @wraps(function)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            unknown = next((name for name in kwargs if name not in whole.parameters), None)
            if unknown is not None:
                raise TypeError(f"{function.__name__}() got an unexpected keyword argument {unknown!r}")
            for name, default in defaults.items():
                kwargs.setdefault(name, default)
            return function(*args, **kwargs)

        vars(call)["__signature__"] = whole
        return call

    return decorate


def require_kind(name: str, value: Any) -> None:
    """Requires an argument to be of the kind that its name has.

    Raises:
        ArgumentError: It is not.
    """
    kind = KINDS[name]
    if not kind.accepts(value):
        raise ArgumentError(f"{kind.wording} is required", place=name, actual=_shown(value), hint=_hint(kind, value))


def _hint(kind: ArgumentKind, value: Any) -> str:
    """How the argument is written; a name or path alone is shown as the list that was meant."""
    key, _, _ = kind.example.partition("=[")
    if _is_path(value) and kind.example.endswith('"]'):
        return f"{key}=[{os.fspath(value)!r}]"
    return f"for example {kind.example}" if kind.example else ""


def _shown(value: Any) -> str:
    """The value if that is short, with its type where that is the point."""
    if isinstance(value, (str, int, float, type(None))):
        text = repr(value)
    elif isinstance(value, (list, tuple, set, dict)) and len(repr(value)) <= MOST_SHOWN:
        text = f"{type(value).__name__} {value!r}"
    else:
        text = type(value).__name__
    return text if len(text) <= MOST_SHOWN else text[: MOST_SHOWN - 3] + "..."
