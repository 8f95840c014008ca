"""The names that conditions and costs of a ``supports`` entry may use.

``x`` is the first operand, ``y`` the first result, ``node`` the node with its attributes. Operands and results also
go by their names in the operator's schema (``Conv``: ``X W B Y``; a result without readers is absent); a variadic
operand is the list of all that there are (``Concat``: ``inputs``).
"""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.rules.evaluation import NodeFacts, TensorFacts
from eqsat.rules.signatures import Signature, signature
from eqsat.schema.types import Attrs, OpKey, TensorType

ABSENT = TensorFacts(None, None, False, False)


def bind_operands(
    op: OpKey, attrs: Attrs, inputs: Sequence[TensorFacts | None], outputs: Sequence[TensorType | None]
) -> dict[str, object]:
    """The environment in which an entry's expressions are evaluated."""
    given = [ABSENT if f is None else f for f in inputs]
    results = [ABSENT if t is None else TensorFacts(t) for t in outputs]
    env: dict[str, object] = {}
    found = signature(op)
    if found is not None:
        _bind(env, found, given, results)
    env["x"] = given[0] if given else ABSENT
    env["y"] = results[0] if results else ABSENT
    env["node"] = NodeFacts(op, attrs)
    return env


def _bind(env: dict[str, object], found: Signature, given: list[TensorFacts], results: list[TensorFacts]) -> None:
    for formal, values in ((found.outputs, results), (found.inputs, given)):
        for i, parameter in enumerate(formal):
            if parameter.variadic:
                env[parameter.name] = tuple(values[i:])
            else:
                env[parameter.name] = values[i] if i < len(values) else ABSENT
