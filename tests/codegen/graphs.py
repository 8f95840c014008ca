"""Random graphs of the fuzzer as C: ``python -m tests.codegen.graphs START COUNT [--sanitize]``.

They are compared with the numpy executor; all graphs of a call are one library. An integer that differs, or a float
beyond the fuzzer's tolerance, is a failure.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from eqsat.codegen.compiler import native_isas
from eqsat.codegen.generate import generate
from eqsat.codegen.isa import PORTABLE, SCALAR, Isa
from eqsat.errors import CodegenError
from eqsat.execute.executor import Executor
from eqsat.execute.inputs import complete_inputs
from eqsat.model.load import load
from tests.codegen import nodes
from tests.codegen.__main__ import SANITIZERS
from tests.fuzz import generator
from tests.fuzz.check import DisagreementError, compare


def prepare(seed: int, isas: Sequence[Isa]) -> nodes.Prepared | None:
    """A random graph as C; None if C cannot hold it."""
    model = load(generator.generate(seed))
    arrays = complete_inputs(model, seed=seed)
    try:
        emitted = generate(model, name=f"graph{seed}", isas=isas, embedded=False)
    except CodegenError:
        return None
    expected = Executor(model).run(arrays)
    return nodes.Prepared(str(seed), emitted, dict(arrays), [expected[y.name] for y in emitted.outputs])


def failures(seeds: Sequence[int], sanitize: bool = False) -> tuple[int, list[str]]:
    """How many graphs ran, and what differs."""
    isas = (SCALAR, PORTABLE) if sanitize else native_isas()
    ready = [found for seed in seeds if (found := prepare(seed, isas)) is not None]
    library = nodes.compiled(ready, SANITIZERS if sanitize else ())
    lines = []
    for prepared in ready:
        names = [y.name for y in prepared.emitted.outputs]
        found = dict(zip(names, nodes.call(library, prepared), strict=True))
        try:
            compare(f"graph {prepared.name}", dict(zip(names, prepared.expected, strict=True)), found)
        except DisagreementError as error:
            lines.append(str(error))
    return len(ready), lines


if __name__ == "__main__":
    start, count = int(sys.argv[1]), int(sys.argv[2])
    ran, wrong = failures(range(start, start + count), "--sanitize" in sys.argv)
    print("\n".join([*wrong, f"{ran} graphs, {len(wrong)} failures"]))
    sys.exit(1 if wrong else 0)
