"""Signatures of functions that share keywords: griffe reads sources, in which these are one ``**`` parameter.

``eqsat.arguments.with_options`` gives such a function a signature with each of them, which is written here.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

import griffe


class SharedKeywords(griffe.Extension):
    """Replaces the parameter for shared keywords by these keywords."""

    def on_function_instance(self, *, func: griffe.Function, **_: Any) -> None:
        """Called for each function that was read."""
        last = next((p for p in func.parameters if p.kind is griffe.ParameterKind.var_keyword), None)
        if last is None or not str(last.annotation).startswith("Unpack[") or func.parent is not func.module:
            return
        found = inspect.signature(getattr(import_module(func.module.path), func.name)).parameters
        added = [p for p in found.values() if p.name not in func.parameters]
        if last.name in found or not added:
            return
        del func.parameters[last.name]
        for p in added:
            kind = griffe.ParameterKind.keyword_only
            made = griffe.Parameter(p.name, annotation=p.annotation, kind=kind, default=repr(p.default))
            func.parameters.add(made)
