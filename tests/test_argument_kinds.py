"""Arguments of the wrong kind: one message of eqsat's own with what is allowed, for every public function."""

from __future__ import annotations

import re
from collections.abc import Callable
from inspect import Parameter, signature
from typing import Any, TypedDict, Unpack

import numpy as np
import onnx_ir as ir
import pytest

import eqsat
from eqsat.arguments import KINDS, with_options
from eqsat.codegen.generation_options import Generation, ProgramOptions
from eqsat.errors import ArgumentError, ModelError
from eqsat.stages.options import (
    ProofArguments,
    ReasonArguments,
    ResultArguments,
    SearchArguments,
    SearchOptions,
)

_TEXT = '<ir_version: 10, opset_import: ["": 21]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
X = np.ones(2, np.float32)
SAMPLES = [{"x": X}]

PUBLIC: list[Callable[..., Any]] = [
    eqsat.load,
    eqsat.optimize,
    eqsat.quantize,
    eqsat.run,
    eqsat.compile,
    eqsat.write_c,
    eqsat.compare,
    eqsat.save,
    eqsat.discover_rules,
    eqsat.explain_placement,
    eqsat.explain_rule,
    eqsat.check_rules,
    eqsat.prove_rules,
    eqsat.prove,
    eqsat.Result.explain,
    eqsat.Result.run,
    eqsat.Result.save,
    eqsat.Result.codegen,
    eqsat.Result.report,
]


SHARED: list[tuple[Callable[..., Any], type, type, dict[str, Any]]] = [
    (eqsat.optimize, SearchArguments, SearchOptions, {"trust": False}),
    (eqsat.quantize, ResultArguments, SearchOptions, {"trust": False}),
    (eqsat.prove, ProofArguments, SearchOptions, {"trust": False, "time_limit": 60.0}),
    (eqsat.explain_rule, ReasonArguments, SearchOptions, {"trust": False}),
    (eqsat.explain_placement, ReasonArguments, SearchOptions, {"trust": False}),
    (eqsat.compile, Generation, ProgramOptions, {}),
    (eqsat.write_c, Generation, ProgramOptions, {}),
]
"""Functions with the keywords that they share with others, where their defaults stand, and their own defaults."""


class Odd:
    """A value that is of no kind."""


@pytest.mark.parametrize("function", PUBLIC, ids=lambda f: f.__qualname__)
def test_every_function_checks_every_argument_that_has_a_kind(function: Callable[..., Any]) -> None:
    names = [name for name in signature(function).parameters if name in KINDS]
    for name in names:
        with pytest.raises(ArgumentError, match=f"{name}: .* is required; got Odd"):
            function(**{name: Odd()})


@pytest.mark.parametrize(
    ("function", "keywords", "options", "others"), SHARED, ids=lambda x: getattr(x, "__name__", "")
)
def test_shared_keywords_are_those_of_the_options(
    function: Callable[..., Any], keywords: type, options: type, others: dict[str, Any]
) -> None:
    stated, found = signature(options).parameters, signature(function).parameters
    assert keywords.__annotations__.keys() <= stated.keys() & found.keys()
    for name in keywords.__annotations__:
        assert found[name].default == others.get(name, stated[name].default)
        assert found[name].annotation == stated[name].annotation
    assert all(p.kind is not Parameter.VAR_KEYWORD for p in found.values())
    if "arguments that are not named here" not in (function.__doc__ or ""):
        assert all(re.search(rf"\b{name}\b", function.__doc__ or "") for name in found), "help explains every keyword"
    with pytest.raises(TypeError, match=rf"^{function.__name__}\(\) got an unexpected keyword argument 'free_sizes'$"):
        function(_TEXT, free_sizes=True)


def test_shared_keywords_reach_the_search(tmp_path: Any) -> None:
    with pytest.raises(eqsat.EqsatError, match=r"missing\.rules"):
        eqsat.optimize(_TEXT, rules=[tmp_path / "missing.rules"])
    with pytest.raises(eqsat.EqsatError, match="time_limit"):
        eqsat.prove(_TEXT, _TEXT, time_limit=-1)
    with pytest.raises(eqsat.EqsatError, match="threads"):
        eqsat.compile(_TEXT, threads=0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rules": "my.rules"}, r"a list of rule files or rules is required; got 'my.rules'\n.*rules=\['my.rules'\]"),
        ({"dims": [1]}, r"dims: a mapping .* got list \[1\]\n.*for example dims=\{\"batch\": 1\}"),
        ({"dims": {1: 2}}, "dims: a mapping"),
        ({"values": [1]}, "values: a mapping"),
        ({"verify": "no"}, "verify: True or False is required; got 'no'"),
        ({"default_rules": None}, "default_rules: True or False"),
        ({"progress": 3}, "progress: a function"),
        ({"partition_functions": {"a": 1}}, "a mapping from composite to function"),
        ({"rules": [1]}, r"rules: a list of rule files or rules is required; got list \[1\]"),
        ({"targets": {"dnnl"}}, r"targets: a target .* or a list of them, is required; got set \{'dnnl'\}"),
        ({"targets": [None]}, "targets: a target by name"),
        ({"host": ["cpu"]}, r"host: a host by name, .* got list \['cpu'\]"),
    ],
)
def test_messages_of_optimize(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=f"(?s){message}"):
        eqsat.optimize(_TEXT, **arguments)


@pytest.mark.parametrize("given", [X, [X], None, 3])
def test_inputs_are_a_mapping(given: Any) -> None:
    result = eqsat.optimize(_TEXT)
    for function in (result.run, lambda x: eqsat.run(_TEXT, x), eqsat.compile(_TEXT).run):
        with pytest.raises(ArgumentError, match="inputs: a mapping from input name to array is required"):
            function(given)


@pytest.mark.parametrize(
    "given", [{"skip": [0]}, {"skip": "conv"}, {"operators": "Relu"}, {"percentile": "a"}, {"samples": "a"}]
)
def test_messages_of_quantize(given: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match=f"{next(iter(given))}: .* is required"):
        eqsat.quantize(_TEXT, SAMPLES, **given)


def test_rules_and_targets_of_the_wrong_kind() -> None:
    mistaken: Any = 1
    for check in (eqsat.check_rules, eqsat.prove_rules):
        with pytest.raises(
            ArgumentError, match=r"sources: a rule file, a rule, or a list of them is required; got list"
        ):
            check([mistaken])
    with pytest.raises(ArgumentError, match="targets: a target by name"):
        eqsat.explain_rule(_TEXT, "relu_twice", mistaken)


@pytest.mark.parametrize("seed", [None, -1, 0.5, "0", True])
def test_seeds(seed: Any) -> None:
    for function in (eqsat.compare, eqsat.prove):
        with pytest.raises(ArgumentError, match="seed: a whole number, 0 or more, is required; got"):
            function(_TEXT, _TEXT, seed=seed)


def test_arguments_that_are_right_pass() -> None:
    dims: dict[str, Any] = {}
    result = eqsat.optimize(_TEXT, rules=(), dims=dims, values={}, verify=np.bool_(True), seed=np.int64(3))
    np.testing.assert_array_equal(result.run({"x": -X})["y"], 0 * X)
    assert eqsat.compare(_TEXT, _TEXT, {"x": X}, rtol=np.float32(0.5)).agrees


def test_what_is_no_model_is_not_saved(tmp_path: Any) -> None:
    result: Any = eqsat.optimize(_TEXT)
    with pytest.raises(ArgumentError, match=r"(?s)onnx_ir.Model is required; got Result.*result.save\(path\)"):
        eqsat.save(result, tmp_path / "a.onnx")
    with pytest.raises(ModelError, match=r"ends with one of .onnx, .* is required; got `.txt`"):
        result.save(tmp_path / "a.txt")
    with pytest.raises(ModelError, match="got no suffix"):
        result.save(tmp_path / "a")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("package", ["torch.nn.modules.linear", "keras.src.models", "sklearn.pipeline"])
def test_a_network_that_is_not_exported_says_how(package: str) -> None:
    network: Any = type("Network", (), {"__module__": package})()
    with pytest.raises(ModelError, match=f"a module of {package.partition('.')[0]}\n  hint: export it first"):
        eqsat.optimize(network)


def test_what_torch_exports_is_a_model() -> None:
    # torch.onnx.ONNXProgram has the exported onnx_ir model as an attribute.
    program: Any = type("ONNXProgram", (), {"model": ir.from_onnx_text(_TEXT)})()
    np.testing.assert_array_equal(eqsat.run(program, {"x": X})["y"], X)


def test_all_errors_have_one_public_base() -> None:
    with pytest.raises(eqsat.EqsatError):
        eqsat.optimize("no.onnx")


class _Shared(TypedDict, total=False):
    limit: int
    trust: bool


def test_a_function_receives_all_shared_keywords_with_the_stated_defaults() -> None:
    def origin(limit: int = 30, trust: bool = True) -> None:
        """States the defaults."""

    @with_options(_Shared, origin, trust=False)
    def function(first: int, *, own: int = 1, **given: Unpack[_Shared]) -> dict[str, object]:
        return {"first": first, "own": own, **given}

    assert function(0) == {"first": 0, "own": 1, "limit": 30, "trust": False}
    assert function(0, limit=2, trust=True) == {"first": 0, "own": 1, "limit": 2, "trust": True}
    assert [(p.name, p.default) for p in signature(function).parameters.values()][1:] == [
        ("own", 1),
        ("limit", 30),
        ("trust", False),
    ]
