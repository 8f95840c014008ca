"""Random programs for the partitioners: written as data, so that TVM can be asked about the same ones.

A program has tensors of one shape; a node is ``[result, operator, operand, ...]``; a pattern is ``"_"``, ``["Relu",
pattern]`` or ``["|", pattern, pattern]``, and the patterns of one table are tried in order.
"""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import onnx_ir as ir

from benchmarks.baseline.expr import Expr, Program
from benchmarks.baseline.partition import Tables
from benchmarks.baseline.price import body_of
from eqsat.ops.evaluate import evaluate, evaluate_body
from eqsat.rules import ast
from eqsat.schema.types import OpKey, TensorType

BINARY = ("Add", "Mul", "Sub")
UNARY = ("Relu", "Tanh", "Exp", "Sigmoid")
SHAPE = (8, 8)

Data = dict[str, Any]

_PLACE = ast.Place("random", 1, 1)
_TYPE = TensorType(ir.DataType.FLOAT, SHAPE)


def random_program(rng: random.Random) -> Data:
    """A program with shared values, several outputs and a table of one to five patterns."""
    inputs = ["p", "q", "r"][: rng.randint(1, 3)]
    values = list(inputs)
    nodes: list[list[str]] = []

    def operand() -> str:
        return rng.choice(values[-4:] if rng.random() < 0.7 else values)

    for i in range(rng.randint(3, 14)):
        kind = rng.random()
        if kind < 0.55:
            nodes.append([f"v{i}", rng.choice(BINARY[:2] if rng.random() < 0.8 else BINARY), operand(), operand()])
        elif kind < 0.95:
            nodes.append([f"v{i}", rng.choice(UNARY[:1] if rng.random() < 0.6 else UNARY), operand()])
        else:
            nodes.append([f"v{i}", "Concat", operand(), operand()])
        values.append(f"v{i}")
    read = {operand for node in nodes for operand in node[2:]}
    outputs = [node[0] for node in nodes if node[0] not in read]
    others = [node[0] for node in nodes if node[0] in read]
    if others and rng.random() < 0.3:
        outputs.append(rng.choice(others))
    rng.shuffle(outputs)
    patterns = [[f"p{i}", _random_root(rng)] for i in range(rng.randint(1, 4))]
    if rng.random() < 0.5:
        patterns.append(["add", ["Add", "_", "_"]])
    return {"inputs": inputs, "nodes": nodes, "outputs": outputs, "patterns": patterns}


def _random_pattern(rng: random.Random, depth: int) -> Any:
    if depth == 0 or rng.random() < 0.35:
        return "_"
    if rng.random() < 0.5:
        return [rng.choice(BINARY[:2]), _random_pattern(rng, depth - 1), _random_pattern(rng, depth - 1)]
    return ["Relu" if rng.random() < 0.7 else rng.choice(UNARY), _random_pattern(rng, depth - 1)]


def _random_root(rng: random.Random) -> Any:
    def root(depth: int) -> Any:
        while (pattern := _random_pattern(rng, depth)) == "_":
            pass
        return pattern

    first = root(rng.randint(1, 3))
    return ["|", first, root(2)] if rng.random() < 0.2 else first


def as_program(data: Data) -> Program:
    """The program; ``Concat`` is cut to the common shape again by an operator after it."""
    exprs = {name: Expr("input", types=(_TYPE,), name=name) for name in data["inputs"]}
    bindings = []
    for name, op, *operands in data["nodes"]:
        args = tuple(exprs[o] for o in operands)
        if op == "Concat":
            rows = TensorType(ir.DataType.FLOAT, (len(args) * SHAPE[0], SHAPE[1]))
            joined = Expr("call", OpKey("", "Concat"), (("axis", 0),), args, (rows,), f"{name}.all")
            starts, ends, axes = (_constant(v) for v in (0, SHAPE[0], 0))
            bindings += [joined, Expr("call", OpKey("", "Slice"), (), (joined, starts, ends, axes), (_TYPE,), name)]
        else:
            bindings.append(Expr("call", OpKey("", op), (), args, (_TYPE,), name))
        exprs[name] = bindings[-1]
    return Program([exprs[n] for n in data["inputs"]], bindings, [exprs[n] for n in data["outputs"]])


def _constant(number: int) -> Expr:
    kind = TensorType(ir.DataType.INT64, (1,))
    return Expr("constant", types=(kind,), value=ir.tensor(np.array([number], np.int64)))


def as_tables(data: Data, supported: tuple[str, ...] = ()) -> Tables:
    """One target ``t`` with the patterns as composites, and some operators that it runs by themselves."""
    return table([(name, as_pattern(p)) for name, p in data["patterns"]], supported)


def table(patterns: list[tuple[str, ast.Pattern]], supported: tuple[str, ...] = ()) -> Tables:
    """One target ``t`` without conditions."""
    composites = tuple(
        ast.Composite(name, ast.Numerics("exact"), (pattern,), (), None, None, _PLACE) for name, pattern in patterns
    )
    target = ast.Target("t", "", False, (), 1, 1, 1, 1, 1, (), composites, _PLACE)
    return Tables(
        (target,),
        evaluate=lambda expr, found: None,
        names=lambda composite, found: {},
        accepts=lambda composite, names: True,
        supports=lambda of, call: call.op.name in supported,
    )


_lines = itertools.count(1)


def as_pattern(data: Any) -> ast.Pattern:
    """A pattern of the rule language; each wildcard is another one, as in TVM."""
    place = ast.Place("random", next(_lines), 1)
    if data == "_":
        return ast.Wildcard(place)
    if isinstance(data, str):
        return ast.Name(data, place)
    if data[0] == "|":
        return ast.Alternatives((as_pattern(data[1]), as_pattern(data[2])), place)
    return ast.Match((OpKey("", data[0]),), None, tuple(map(as_pattern, data[1:])), (), None, 0, place)


def run(program: Program, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Executes a partitioned program, composites by their bodies."""
    values: dict[Expr, Any] = {e: inputs[e.name] for e in program.inputs}

    def of(expr: Expr | None) -> Any:
        if expr is None:
            return None
        if expr.kind == "constant" and expr.value is not None:
            return expr.value.numpy()
        return values[expr]

    for expr in program.bindings:
        args = [of(a) for a in expr.args]
        if expr.kind == "tuple":
            values[expr] = args
        elif expr.kind == "item":
            values[expr] = args[0][expr.index]
        else:
            if len(args) == 1 and isinstance(args[0], list) and expr.args[0] and expr.args[0].kind == "tuple":
                args = args[0]
            if expr.composite is not None:
                results = evaluate_body(body_of(expr), args)
            elif expr.op.domain == "relax":
                results = (np.stack(args),)
            else:
                results = evaluate(expr.op, expr.attrs, args, len(expr.types))
            values[expr] = results[0] if len(results) == 1 else list(results)
    return [of(o) for o in program.outputs]
