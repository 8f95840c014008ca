"""Runs an instance through a real saturation, and executes all expressions that the e-graph then holds to be equal.

The left side is executed node by node. Each of its values sits in a class of the saturated e-graph; what the rule
added there (an e-node with the rule's number, or another value of the left side) must compute the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import onnx_ir as ir

from eqsat.check.instance import Instance, application, show
from eqsat.check.oracle import Oracle, Unsupported, require_defined
from eqsat.check.precision import OWN, Arithmetic
from eqsat.egraph.language import COMMUTED, Constructor
from eqsat.egraph.saturate import Additions, Limits, RuleStatistics, Saturation
from eqsat.egraph.snapshot import ENode, Snapshot, snapshot
from eqsat.ops.evaluate import TensorValue
from eqsat.ops.sampling.chance import Rejected
from eqsat.ops.undefined import NotANumber, Undefined
from eqsat.schema.attributes import op_key
from eqsat.schema.types import TensorType

ROUNDS = 2
"""Rounds of saturation: one fires the rule, another lets it meet what it has made."""


@dataclass(frozen=True)
class Claim:
    """Two computations that are equal according to the e-graph.

    Attributes:
        name: The value of the left side.
        left: The value of the left side.
        program: The right side as text.
        right: The value of the right side; None if executing it fails.
        failure: Why it does.
        folded: Whether it only states that eqsat folded a constant as this oracle would.
    """

    name: str
    left: np.ndarray
    program: str
    right: np.ndarray | None
    failure: str = ""
    folded: bool = False


@dataclass
class Audit:
    """One instance, saturated.

    Attributes:
        statistics: Of the rule.
        left_values: Values of the left side by name, once it has been executed.
    """

    instance: Instance
    oracle: Oracle
    model: ir.Model
    statistics: RuleStatistics
    egraph: Snapshot
    left_values: dict[str, np.ndarray] = field(default_factory=dict)
    _programs: dict[int, str] = field(default_factory=dict)
    _live: set[int] = field(default_factory=set)
    _folded: set[int] = field(default_factory=set)

    @staticmethod
    def of(instance: Instance, oracle: Oracle) -> Audit:
        """Saturates the instance with its rule."""
        model = instance.model()
        limits, bounds = Limits(iterations=ROUNDS, nodes=2_000), Additions(bounds=instance.bounds())
        saturation = Saturation(model, [instance.rule], [], limits, bounds)
        saturation.run()
        return Audit(instance, oracle, model, saturation.statistics[0], snapshot(saturation))

    def class_of(self, name: str) -> int:
        """The class of a value of the left side."""
        return next(c for value, c in self.egraph.refs.items() if value.name == name)

    # ---- types ------------------------------------------------------------------------------------

    def wrong_types(self, values: dict[int, TensorValue]) -> Iterator[str]:
        """Where type inference and execution disagree."""
        for eclass, value in sorted(values.items()):
            known = self.egraph.types[eclass]
            if known is None or isinstance(value, tuple):
                continue
            found = TensorType(ir.DataType.from_numpy(value.dtype), tuple(value.shape))
            if found != known:
                yield f"{self.program(eclass)}: inferred {known}, executed {found}"

    # ---- values -----------------------------------------------------------------------------------

    def execute(self, arithmetic: Arithmetic = OWN) -> tuple[dict[int, TensorValue], list[Claim]]:
        """Values of the classes, and everything the rule claims.

        Raises:
            Rejected: The left side cannot be executed or is not defined on its data.
        """
        lefts = self._left(arithmetic)
        if arithmetic is OWN:
            self.left_values = {value.name or "": array for value, array in lefts.items()}
        values: dict[int, TensorValue] = {}
        claims: list[Claim] = []
        names: dict[int, str] = {}
        for value, eclass in self.egraph.refs.items():
            if value not in lefts:
                continue
            if eclass in values:
                claims.append(Claim(value.name or "", lefts[value], names[eclass], values[eclass]))
            else:
                values[eclass] = lefts[value]
                names[eclass] = value.name or ""
        self._programs = dict(names)
        live = self._live_values()
        self._live = {eclass for value, eclass in self.egraph.refs.items() if value in live}
        self._folded = {n.eclass for n in self.egraph.nodes if n.kind == "const"}
        pending = [n for n in self.egraph.nodes if n.kind != "input"]
        pending.sort(key=lambda n: n.kind == "const")
        while True:
            later = []
            for node in pending:
                if any(c is not None and c not in values for c in node.children):
                    later.append(node)
                elif node.eclass not in values:
                    found = self._run(node, values, arithmetic)
                    if isinstance(found, str):
                        claims.append(Claim("", np.empty(0), self.text(node), None, found))
                    elif found is not None:
                        values[node.eclass] = found
                        self._programs[node.eclass] = self.text(node)
                elif node.rule > COMMUTED or node.kind in ("const", "part"):
                    claims += self._claim(node, values, names, arithmetic)
            if len(later) == len(pending):
                return values, claims
            pending = later

    def _claim(
        self, node: ENode, values: dict[int, TensorValue], names: dict[int, str], arithmetic: Arithmetic
    ) -> Iterator[Claim]:
        found = self._run(node, values, arithmetic)
        left = values[node.eclass]
        if found is None or isinstance(left, tuple):
            return
        if isinstance(found, np.ndarray) and Constructor(node.op, len(node.children), node.outputs).is_commutative:
            # The order of operands is the operator's business: a rule also matches the other one.
            other = self._run(replace(node, children=node.children[::-1]), values, arithmetic)
            found = other if isinstance(other, np.ndarray) and _same_bits(other, left) else found
        name = names.get(node.eclass, "")
        folded = node.eclass in self._folded and node.eclass not in self._live
        if isinstance(found, str):
            yield Claim(name, left, self.text(node), None, found)
        else:
            yield Claim(name or self.program(node.eclass), left, self.text(node), found, folded=folded)

    def _live_values(self) -> set[ir.Value]:
        """Values of the left side that depend on its inputs."""
        live = set(self.model.graph.inputs)
        for node in self.model.graph:
            if any(v in live for v in node.inputs):
                live.update(node.outputs)
        return live

    def _left(self, arithmetic: Arithmetic) -> dict[ir.Value, np.ndarray]:
        feed = self.instance.inputs()
        values: dict[ir.Value, np.ndarray] = {}
        for value in self.model.graph.inputs:
            values[value] = arithmetic.of(feed[value.name or ""])
        for value in self.model.graph.initializers.values():
            assert value.const_value is not None
            values[value] = arithmetic.of(value.const_value.numpy())
        from eqsat.schema.attributes import to_attrs

        for node in self.model.graph:
            op, attrs = op_key(node), to_attrs(node)
            inputs = [None if v is None else values[v] for v in node.inputs]
            try:
                require_defined(op, attrs, inputs)
                with np.errstate(all="ignore"):
                    results = self.oracle(op, attrs, inputs, len(node.outputs))
            except (Unsupported, Undefined) as error:
                raise Rejected(f"{op}: {error}") from None
            except Exception as error:  # the oracle's own exceptions have no common base
                raise Rejected(f"{op} cannot be executed: {error}") from None
            for value, result in zip(node.outputs, results, strict=True):
                assert result is not None
                values[value] = arithmetic.of(np.asarray(result))
        return values

    def _run(self, node: ENode, values: dict[int, TensorValue], arithmetic: Arithmetic) -> TensorValue | str | None:
        """The value of an e-node; a text if it fails, None if it is unknown."""
        if node.kind == "const":
            constant = self.egraph.tables.constants[node.number].numpy()
            return None if constant is None else arithmetic.of(constant)
        if node.kind == "part":
            return values[node.children[0]][node.number] if node.children[0] is not None else None
        inputs = [None if c is None else values[c] for c in node.children]
        try:
            require_defined(node.op, node.attrs, inputs)
            with np.errstate(all="ignore"):
                results = self.oracle(node.op, node.attrs, inputs, max(node.outputs, 1))
        except Unsupported:
            return None
        except NotANumber as error:
            raise Rejected(f"{node.op}: {error}") from None
        except Undefined as error:
            return str(error)
        except Exception as error:  # the oracle's own exceptions have no common base
            return f"it cannot be executed: {_first_line(error)}"
        arrays = tuple(arithmetic.of(np.asarray(r)) for r in results if r is not None)
        return arrays if node.outputs else arrays[0]

    # ---- text -------------------------------------------------------------------------------------

    def program(self, eclass: int) -> str:
        """A class as an expression, in the names of the left side."""
        if eclass in self._programs:
            return self._programs[eclass]
        return f"value {eclass}"

    def text(self, node: ENode) -> str:
        """An e-node as an expression over the left side's values."""
        if node.kind == "const":
            constant = self.egraph.tables.constants[node.number]
            array = constant.numpy()
            return "-" if array is None else f"{constant.type}({show(array)})"
        operands = ["-" if c is None else self.program(c) for c in node.children]
        if node.kind == "part":
            return f"{operands[0]}[{node.number}]"
        return application(node.op, node.attrs, operands)


def _same_bits(x: np.ndarray, y: np.ndarray) -> bool:
    return x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()


def _first_line(error: Exception) -> str:
    lines: Sequence[str] = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
