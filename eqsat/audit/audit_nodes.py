"""Computes every e-node of a saturated e-graph and compares it with the value of its class."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property

import ml_dtypes
import numpy as np

from eqsat.audit.class_values import ClassParts, ValueOfWorlds, Values, spread
from eqsat.audit.expressions import ENodeText
from eqsat.audit.input_samples import sample
from eqsat.audit.report import SAMPLES, AuditReport, Disagreement, ShownValue, Union
from eqsat.audit.unions import Edge, Unions
from eqsat.egraph.language import COMMUTED, ORIGINAL
from eqsat.egraph.saturate import Saturation
from eqsat.egraph.snapshot import ENode, Snapshot, snapshot
from eqsat.rules.ast import Numerics
from eqsat.schema.dtypes import FLOATS

ELEMENTS = 1 << 22
"""Classes with more elements are left out: 32 MiB for each world."""


def audit(saturation: Saturation, samples: int = SAMPLES, elements: int = ELEMENTS) -> AuditReport:
    """Compares all e-nodes of each class.

    Args:
        saturation: A saturated e-graph.
        samples: On how many inputs.
        elements: E-nodes of tensors with more elements are skipped.
    """
    taken = snapshot(saturation)
    found = _Audit(saturation, taken, samples, elements).run()
    if not found.ok:
        unions = Unions(saturation.recorded())
        found = _Audit(saturation, unions.snapshot, samples, elements, unions).run()
    return found


@dataclass(frozen=True, slots=True)
class _Difference:
    index: tuple[int, ...]
    expected: ShownValue
    found: ShownValue
    tolerance: float


class _Audit:
    def __init__(
        self, saturation: Saturation, taken: Snapshot, samples: int, elements: int, unions: Unions | None = None
    ) -> None:
        self.saturation = saturation
        self.snapshot = taken
        self.samples = samples
        self.elements = elements
        self.unions = unions
        self.text = ENodeText(taken)
        definitions = {clause.number: clause.definition for clause, _ in saturation.clauses()}
        self._numerics = {number: d.numerics for number, d in definitions.items()}
        self._places = {number: str(d.place) for number, d in definitions.items()}
        self._compared: set[int] = set()
        self._skipped: Counter[str] = Counter()
        self._found: dict[int, Disagreement] = {}
        self._classes = 0

    def run(self) -> AuditReport:
        for seed in range(self.samples):
            self._sample(seed)
        return AuditReport(
            len(self._compared),
            self._classes,
            self.samples,
            dict(sorted(self._skipped.items())),
            tuple(self._found.values()),
        )

    def _sample(self, seed: int) -> None:
        inputs = sample(self.saturation.model, self.snapshot.tables.constants, seed)
        values = Values(self.snapshot, inputs, seed, self.elements)
        given = self._fill(values)
        self._classes = max(self._classes, len(values.of))
        values.skipped.clear()
        wrong: set[int] = set()
        for n in given.order:
            node = self.snapshot.nodes[n]
            if n in given.by.values() or not self._is_claim(node):
                continue
            parts = values.compute(node)
            if parts is None:
                continue
            self._compared.add(n)
            difference = self._difference(node, values.of[node.eclass], parts)
            if difference is not None and (self._is_beyond(node, values) or self._is_open(node, values, difference)):
                continue
            if difference is not None:
                wrong.add(n)
                if n not in self._found:
                    self._found[n] = self._told(n, given.by[node.eclass], difference, seed)
        self._skipped |= values.skipped
        if self.unions is not None:
            self._explain(wrong, set(given.by.values()))

    def _is_claim(self, node: ENode) -> bool:
        """Whether an e-node is there because it is held for equal, and not by the model's own folding in its type."""
        rule = node.rule
        if node.kind == "const":
            return True
        if rule > COMMUTED:
            numerics = self._numerics.get(rule)
            return numerics is None or numerics.kind != "approximate"
        return not all(c is None or self.snapshot.constant[c] for c in node.children)

    def _fill(self, values: Values) -> _Given:
        """Gives each class the value of the model's own e-node, otherwise that of a rule's e-node."""
        given = _Given({}, [])
        nodes = self.snapshot.nodes
        computed = {n.eclass for n in nodes if n.rule == ORIGINAL and n.kind != "const" and self._is_claim(n)}
        waiting = sorted(range(len(nodes)), key=lambda n: (nodes[n].rule != ORIGINAL, nodes[n].kind != "const", n))
        own = True
        while waiting:
            later: list[int] = []
            changed = False
            for n in waiting:
                node = nodes[n]
                mine = node.rule == ORIGINAL and not (node.kind == "const" and node.eclass in computed)
                if not values.ready(node) or (own and not mine):
                    later.append(n)
                    continue
                given.order.append(n)
                changed = True
                if node.eclass not in values.of:
                    parts = values.compute(node)
                    if parts is not None:
                        values.of[node.eclass] = parts
                        given.by[node.eclass] = n
                        # E-nodes of the model come before those that rules made.
                        own = True
            if not changed and not own:
                break
            if not changed:
                own = False
            waiting = later
        return given

    # ---- comparing --------------------------------------------------------------------------------

    def _difference(self, node: ENode, expected: ClassParts, found: ClassParts) -> _Difference | None:
        for one, other in zip(expected, found, strict=False):
            if one is not None and other is not None:
                difference = self._of_values(node, one, other)
                if difference is not None:
                    return difference
        return None

    def _is_beyond(self, node: ENode, values: Values) -> bool:
        """Whether an operand has left even the wide types, so that its readers are unknown."""
        operands = [values.of[c][0] for c in node.children if c is not None and not self.snapshot.constant[c]]
        return any(v is not None and v[0].dtype.kind == "f" and not np.isfinite(v[0]).all() for v in operands)

    def _is_open(self, node: ENode, values: Values, difference: _Difference) -> bool:
        """Whether the model itself has an infinity or no number there: a constant may have come before its operator."""
        shape = values.shape(node.eclass)
        for other in self.snapshot.nodes:
            if other.eclass != node.eclass or other.rule != ORIGINAL or other.kind != "op" or not values.ready(other):
                continue
            parts = values.compute(other)
            value = parts[0][0] if parts and parts[0] is not None else None
            of_class = value is not None and value.dtype.kind == "f" and value.shape == shape
            if value is not None and of_class and not np.isfinite(value[difference.index]):
                return True
        return False

    def _of_values(self, node: ENode, expected: ValueOfWorlds, found: ValueOfWorlds) -> _Difference | None:
        a, b = expected[0], found[0]
        if a.shape != b.shape:
            return _Difference((), f"of shape {a.shape}", f"of shape {b.shape}", 0.0)
        if not a.size:
            return None
        wide_a, wide_b = a.astype(np.longdouble), b.astype(np.longdouble)
        with np.errstate(all="ignore"):
            allowed = self._tolerance(node, expected, found)
            apart = np.abs(wide_a - wide_b) > allowed
        # Powers of a constant, which rules may build, leave even the wide types in the end.
        beyond = (np.abs(wide_a) > _FAR) | ((wide_a != 0) & (np.abs(wide_a) < 1 / _FAR))
        same = (wide_a == wide_b) | np.isnan(wide_a) | beyond
        wrong = ~same & (apart | ~np.isfinite(wide_a) | ~np.isfinite(wide_b))
        if not wrong.any():
            return None
        index = tuple(int(i) for i in np.argwhere(wrong)[0])
        return _Difference(index, a[index].item(), b[index].item(), float(np.broadcast_to(allowed, a.shape)[index]))

    def _tolerance(self, node: ENode, expected: ValueOfWorlds, found: ValueOfWorlds) -> np.ndarray:
        """How far two spellings of a class may be apart, by the weakest of the rules."""
        numerics = self._weakest
        kind = self.snapshot.types[node.eclass]
        size = np.abs(expected[0].astype(np.longdouble))
        units = float(numerics.lsb) if numerics is not None else 0.0
        if kind is None or kind.dtype not in FLOATS:
            moved = 0.0 if numerics is not None and numerics.kind == "exact" else _moved(expected, found)
            return np.asarray(units + 2 * moved + np.zeros_like(size))
        unit = float(ml_dtypes.finfo(kind.dtype.numpy()).eps)
        if numerics is not None and numerics.kind == "exact":
            # A value computed from constants is a constant, rounded to its type; other values are only rounded to
            # float64.
            folded = self._computes_constants(node)
            rounding = unit if folded else float(np.finfo(np.float64).eps)
            least = float(ml_dtypes.finfo(kind.dtype.numpy()).smallest_normal) if folded else 0.0
            # Rounding to its type is not a difference: log(1 + exp(x)) may be x in float32, but 2e-9 more in float64.
            unseen = unit / 2 * size
            # Values have been moved by the unit of their type.
            return unseen + 8 * rounding * size + 16 * _moved(expected, found) * (rounding / unit) + least
        return 16 * _moved(expected, found) + (32 + units) * unit * size

    def _computes_constants(self, node: ENode) -> bool:
        """Whether an e-node, or a node in the body of its composite, has only constants as operands."""
        known = [c is None or self.snapshot.constant[c] for c in node.children]
        if all(known) or node.composite is None:
            return all(known)
        for inner in node.composite.body.nodes:
            of_constants = all(i is None or known[i] for i in inner.inputs)
            if of_constants and inner.inputs:
                return True
            known += [of_constants] * inner.outputs
        return False

    @cached_property
    def _weakest(self) -> Numerics | None:
        """The weakest class of all rules that made something; None if something other than rules made it.

        A rule that is exact may have matched an operand in another spelling than the one that gave its class the value,
        so that one rule over the reals is enough to move all values.
        """
        numbers = {node.rule for node in self.snapshot.nodes} - {ORIGINAL, COMMUTED}
        known = [self._numerics.get(n) for n in numbers]
        rules = [k for k in known if k is not None]
        if len(rules) < len(known):
            return None
        if not rules:
            return Numerics("exact")
        weakest = max(rules, key=lambda k: _ORDER.index(k.kind))
        return Numerics(weakest.kind, max(k.lsb for k in rules))

    # ---- telling ----------------------------------------------------------------------------------

    def _told(self, n: int, reference: int, difference: _Difference, seed: int) -> Disagreement:
        node = self.snapshot.nodes[n]
        kind = self.snapshot.types[node.eclass]
        return Disagreement(
            tensor=self.text.names(node.eclass),
            type=str(kind) if kind is not None else "tuple",
            rule=self._rule(node),
            place=self._places.get(node.rule, ""),
            expected=self.text.of(self.snapshot.nodes[reference]),
            found=self.text.of(node),
            index=difference.index,
            expected_value=difference.expected,
            found_value=difference.found,
            tolerance=difference.tolerance,
            sample=seed,
            chain=(),
        )

    def _rule(self, node: ENode) -> str:
        if node.rule in (ORIGINAL, COMMUTED):
            return "constant folding" if node.kind == "const" else "the model's own operator"
        return self.snapshot.rules[node.rule]

    def _explain(self, wrong: set[int], references: set[int]) -> None:
        """Adds the chains of unions of the e-nodes that differ on this sample."""
        assert self.unions is not None
        for n in wrong:
            if not self._found[n].chain:
                edges = self.unions.chain(n, lambda k: k in references or (k in self._compared and k not in wrong))
                self._found[n] = replace(self._found[n], chain=tuple(self._union(e) for e in edges))

    def _union(self, edge: Edge) -> Union:
        nodes = self.snapshot.nodes
        return Union(edge.rule, edge.place, self.text.of(nodes[edge.left]), self.text.of(nodes[edge.right]))


@dataclass(frozen=True, slots=True)
class _Given:
    """The e-node that gave each class its value, and all computable e-nodes in an order of their operands."""

    by: dict[int, int]
    order: list[int]


_FAR = 1e200

_ORDER = ("exact", "lsb", "real", "approximate")


def _moved(expected: ValueOfWorlds, found: ValueOfWorlds) -> np.ndarray:
    return np.maximum(spread(expected), spread(found))
