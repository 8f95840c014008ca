"""Asks TVM about random programs; what it says is ``data/tvm_relax_0.27.json``.

    pip install apache-tvm==0.27.0.post1
    python -m tests.benchmarks.make_tvm_relax [SEED [COUNT [FILE]]]

TVM is not a dependency of the tests: its answers are committed. Each is a program and how many composites and regions
``FuseOpsByPattern`` and ``MergeCompositeFunctions`` make and how many operators they leave, or the error with which
they fail; a result that uses what it does not define is a failure too.
"""

from __future__ import annotations

import importlib
import json
import random
import sys
from pathlib import Path
from typing import Any

from tests.benchmarks.programs import SHAPE, random_program

FILE = Path(__file__).parent / "data" / "tvm_relax_0.27.json"

_NAMES = {"Add": "add", "Mul": "multiply", "Sub": "subtract", "Relu": "nn.relu", "Tanh": "tanh", "Exp": "exp"}
_NAMES["Sigmoid"] = "sigmoid"


def ask(data: dict[str, Any]) -> dict[str, Any]:
    """What TVM makes of a program."""
    relax: Any = importlib.import_module("tvm.relax")
    transform: Any = importlib.import_module("tvm.relax.transform")
    patterns = [(f"t.{name}", _pattern(pattern)) for name, pattern in data["patterns"]]
    module = transform.DeadCodeElimination()(_module(relax, data))
    try:
        module = transform.FuseOpsByPattern(patterns, bind_constants=True, annotate_codegen=False)(module)
        composites = sum(not hasattr(call.op, "name") for call in _calls(relax, module))
        module = transform.MergeCompositeFunctions()(module)
        relax.analysis.well_formed(module)
    except Exception as error:  # TVM's errors have no common base
        return {"error": str(error).strip().splitlines()[-1][:120]}
    calls = _calls(relax, module)
    regions = sum(not hasattr(call.op, "name") for call in calls)
    return {"composites": composites, "regions": regions, "host": len(calls) - regions}


def _module(relax: Any, data: dict[str, Any]) -> Any:
    builder = relax.BlockBuilder()
    kind = relax.TensorType if hasattr(relax, "TensorType") else relax.TensorStructInfo
    values = {name: relax.Var(name, kind(SHAPE, "float32")) for name in data["inputs"]}
    with builder.function("main", [values[name] for name in data["inputs"]]):
        with builder.dataflow():
            for name, op, *operands in data["nodes"]:
                args = [values[o] for o in operands]
                if op == "Concat":
                    joined = builder.emit(relax.op.concat(args, axis=0))
                    cut = relax.op.strided_slice(joined, axes=[0], begin=[0], end=[SHAPE[0]])
                    values[name] = builder.emit(cut)
                else:
                    function: Any = relax.op
                    for part in _NAMES[op].split("."):
                        function = getattr(function, part)
                    values[name] = builder.emit(function(*args))
            result = builder.emit_output(relax.Tuple([values[o] for o in data["outputs"]]))
        builder.emit_func_output(result)
    return builder.get()


def _pattern(data: Any) -> Any:
    dpl: Any = importlib.import_module("tvm.relax.dpl")
    if isinstance(data, str):
        return dpl.wildcard()
    if data[0] == "|":
        return _pattern(data[1]) | _pattern(data[2])
    return dpl.is_op(f"relax.{_NAMES[data[0]]}")(*map(_pattern, data[1:]))


def _calls(relax: Any, module: Any) -> list[Any]:
    """Calls of the main function; what is called has a `name` if it is an operator, a `name_hint` if a function."""
    bindings = [b for block in module["main"].body.blocks for b in block.bindings]
    return [b.value for b in bindings if isinstance(b.value, relax.Call)]


def main() -> None:
    """Writes the file, one program a line."""
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 400
    path = Path(sys.argv[3]) if len(sys.argv) > 3 else FILE
    rng = random.Random(seed)
    lines = []
    for _ in range(count):
        data = random_program(rng)
        lines.append(json.dumps(data | {"tvm": ask(data)}, separators=(",", ":")))
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n", "utf-8")
    print(f"{count} programs, {sum('error' in json.loads(line)['tvm'] for line in lines)} of them fail")


if __name__ == "__main__":
    main()
