"""Demand tables: types and constant values, evaluated in Python once for each distinct signature.

For each constructor two egglog rules write the signature of an e-node whose operands' facts are known
(attribute id and type ids; constant ids where a value decides the type) into a ``need`` relation; Python
answers each new row once, and a third rule joins the answer. The number of Python calls is thus the
number of distinct layer configurations, not of nodes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from eqsat.egraph import magnitudes
from eqsat.egraph.encode import Encoding
from eqsat.egraph.engine import Engine, FactRow
from eqsat.egraph.equal_elements import element_of_result
from eqsat.egraph.free_constants import GATHERINGS, propagation
from eqsat.egraph.intern import SMALL, Numbers, Tables
from eqsat.egraph.known_sizes import KnownSizes
from eqsat.egraph.language import ORIGINAL, Constructor, commutation
from eqsat.egraph.made_constants import residues
from eqsat.errors import EqsatError, LimitError
from eqsat.model.inference.infer import infer_types
from eqsat.ops.evaluate import fold
from eqsat.ops.interval_arithmetic import operator_bounds
from eqsat.ops.operators import has
from eqsat.ops.properties import contracted_inputs, is_deterministic, value_inputs
from eqsat.ops.traits import Trait
from eqsat.schema.dtypes import FLOATS
from eqsat.schema.types import GraphAttr, TensorType, type_of


def analysis_rules(c: Constructor) -> list[str]:
    """Declarations and rules that derive type, constness and small values of one constructor's e-nodes."""
    if c.composite:
        return []
    by_value = set(value_inputs(c.op))
    node = f"(= {'m' if c.outputs else 'e'} {c.call('a', c.operands)})"
    facts = [f"(= f{i} ({'cval' if i in by_value else 'type'} x{i}))" for i in range(c.inputs)]
    columns = ["a"] + [f"f{i}" for i in range(c.inputs)]
    keys, sorts = " ".join(columns), " ".join(["i64"] * len(columns))
    name = c.name
    rules = [
        *_demand_table(f"type_{name}", sorts),
        f"(rule ({node} {' '.join(facts)}) ((need_type_{name} {keys})) :ruleset analysis)",
    ]
    answer = f"{node} {' '.join(facts)} (= r (type_{name} {keys}))"
    if c.outputs:
        rules.append(f"(rule ({answer} (= e (out m k)) (= t (part r k))) ((set (type e) t)) :ruleset analysis)")
    else:
        rules.append(f"(rule ({answer}) ((set (type e) r)) :ruleset analysis)")
    rules += propagation(c)
    rules += magnitudes.propagation(c)
    live = "(livem m)" if c.outputs else "(live e)"
    if is_deterministic(c.op):
        rules += [f"(rule ({node} (live {x})) ({live}) :ruleset analysis)" for x in c.operands]
    else:
        rules.append(f"(rule ({node}) ({live}) :ruleset analysis)")
    if c.first_stands_alone:
        made = c.first.made("a", c.operands, str(ORIGINAL))
        union = f"((union e {c.first.call('a', c.operands)}) {made})"
        rules.append(f"(rule ({node} (= e (out m 0))) {union} :ruleset analysis)")
    settled = "(iscm m) (livem m)" if c.outputs else "(isc e) (live e)"
    # An expression that is constant needs no further rewriting; a product with zero would otherwise grow without end.
    rules.append(f"(rule ({node} {settled}) ((subsume {c.call('a', c.operands)})) :ruleset settle)")
    if has(c.op, Trait.BY_TYPE):
        return [
            *rules,
            *_demand_table(f"value_{name}", "i64 i64"),
            f"(rule ({node} (= t (type x0))) ((need_value_{name} a t)) :ruleset analysis)",
            f"(rule ({node} (= t (type x0)) (= r (value_{name} a t))) ((set (cval e) r)) :ruleset analysis)",
        ]
    if not is_deterministic(c.op) or not c.inputs:
        return rules
    constant = " ".join(f"(isc x{i})" for i in range(c.inputs))
    rules.append(f"(rule ({node} {constant}) (({'iscm m' if c.outputs else 'isc e'})) :ruleset analysis)")
    values = " ".join(f"(= f{i} (cval x{i}))" for i in range(c.inputs))
    rules += [
        *_demand_table(f"value_{name}", sorts),
        f"(rule ({node} {values}) ((need_value_{name} {keys})) :ruleset analysis)",
    ]
    numbers = " ".join(f"(= f{i} (nums x{i}))" for i in range(c.inputs))
    known = f"{node} {numbers} (= r (nums_{name} {keys}))"
    rules += [
        *_demand_table(f"nums_{name}", sorts),
        f"(rule ({node} {constant} {numbers}) ((need_nums_{name} {keys})) :ruleset analysis)",
        f"(rule ({known}{' (= e (out m k))' if c.outputs else ''}) ((set (nums e) r)) :ruleset analysis)",
    ]
    known = f"{node} {values} (= r (value_{name} {keys}))"
    if c.outputs:
        rules.append(f"(rule ({known} (= e (out m k)) (= v (part r k))) ((set (cval e) v)) :ruleset analysis)")
    else:
        rules.append(f"(rule ({known}) ((set (cval e) r)) :ruleset analysis)")
    return rules


def _demand_table(name: str, sorts: str) -> tuple[str, str]:
    """The table of the questions of rules, and the table of Python's answers."""
    return f"(relation need_{name} ({sorts}))", f"(function {name} ({sorts}) i64 :merge old)"


class Facts:
    """Answers the demands of one e-graph.

    Attributes:
        calls: Number of signatures evaluated in Python.
        known_sizes: Facts about sizes from the model's own nodes.
        contradictions: Messages of type inference for e-nodes that cannot be typed.
    """

    def __init__(self, engine: Engine, tables: Tables) -> None:
        self.engine = engine
        self.tables = tables
        self.calls = 0
        self.contradictions: dict[str, str] = {}
        self._constructors: dict[Constructor, None] = {}
        self._served: dict[tuple[str, Constructor], dict[tuple[int, ...], tuple[int, ...] | None]] = {}
        # Rows of demand tables that were read. Fewer than answers: some of these were given before egglog asked.
        self._read: dict[tuple[str, Constructor], int] = defaultdict(int)
        self._constants = 0
        self._types = 0
        self._numbers = 0
        self._pending: list[FactRow] = []
        self.known_sizes = KnownSizes(tables)
        self._priming = False

    def declare(self, constructor: Constructor) -> None:
        """Declares the analysis of a constructor, which costs egglog a dozen rules, when it has its first e-node."""
        if constructor.composite or constructor in self._constructors:
            return
        self._constructors[constructor] = None
        self.engine.run_text([*commutation(constructor), *analysis_rules(constructor)])
        if constructor.first_stands_alone:
            self.declare(constructor.first)

    def saturate(self) -> None:
        """Runs the analysis until no demand is left."""
        self.announce_constants()
        while True:
            self.engine.step("analysis", saturate=True)
            if not self._serve():
                break
        self.engine.step("settle")

    def announce_constants(self) -> None:
        """Writes what egglog reads of the constants, types and numbers interned since the last call."""
        tables = self.tables
        facts: list[FactRow] = []
        for number in range(self._constants, len(self.tables.constants)):
            constant = self.tables.constants[number]
            facts.append(("const_type", (number,), self.tables.types.id(constant.type)))
            facts.append(("const_nums", (number,), self.tables.numbers.id(Numbers(number))))
            if constant.is_small or number == 0:
                facts.append(("const_small", (number,), None))
        self._constants = len(tables.constants)
        for number in range(self._types, len(tables.types)):
            known = tables.types[number]
            if known is not None and known.dtype in FLOATS:
                facts.append(("is_float", (number,), None))
            if known is not None and (known.elements or 0) > SMALL:
                facts.append(("large", (number,), None))
            if known is not None:
                facts += [(function, (number,), exponent) for function, exponent in magnitudes.of_type(known)]
        self._types = len(tables.types)
        for number in range(max(self._numbers, 1), len(tables.numbers)):
            known_numbers = tables.numbers[number]
            element = None if known_numbers is None else tables.element(known_numbers)
            magnitude = None if known_numbers is None else magnitudes.of_numbers(tables, known_numbers)
            if magnitude is not None:
                facts.append(("nums_magnitude", (number,), magnitude))
            if known_numbers is not None and element is not None:
                facts.append(("nums_element", (number,), tables.elements.id(element)))
                if tables.constants[known_numbers.constant].residue is None:
                    facts.append(("unrounded", (number,), None))
            facts += [
                (g.matters, (number,), None) for g in GATHERINGS if element is None or element.numpy() != g.neutral
            ]
        self._numbers = len(tables.numbers)
        self.engine.set_facts(facts)

    def prime(self, encoding: Encoding) -> tuple[list[int | None], list[int | None]]:
        """Answers the model's own nodes in their order.

        Returns:
            Type id and constant id of each value, None where unknown.
        """
        tables = self.tables
        types: list[int | None] = [None] * len(encoding.values)
        values: list[int | None] = [None] * len(encoding.values)
        for k, value in enumerate(encoding.values):
            if value.const_value is not None and value.is_initializer():
                number = tables.constants.of_tensor(value.const_value)
                types[k] = tables.types.id(tables.constants[number].type)
                values[k] = number if tables.constants[number].is_small else None
        for value in encoding.inputs:
            kind = type_of(value)
            types[encoding.number[value]] = None if kind is None else tables.types.id(kind)
        facts: list[FactRow] = []
        # The roundings of the model's own operators are part of its meaning.
        self._priming = True
        try:
            for index, node in enumerate(encoding.nodes):
                if index % 256 == 0:
                    self.engine.look_at_clock()
                c = node.constructor
                known = [(0, 0) if o is None else (types[o], values[o]) for o in node.operands]
                by_value = value_inputs(c.op)
                for kind, target, key in (
                    ("type", types, tuple(v if i in by_value else t for i, (t, v) in enumerate(known))),
                    ("value", values, tuple(t if has(c.op, Trait.BY_TYPE) else v for t, v in known)),
                ):
                    if None in key or (kind == "value" and not self._folds(c)):
                        continue
                    found = self._answer(kind, c, (node.number, *(k for k in key if k is not None)), facts)
                    for k, part in zip(node.results, found or (), strict=False):
                        target[k] = part or None
                self.known_sizes.follow(encoding, index, types, values)
        finally:
            self._priming = False
        self._tell(facts)
        return types, values

    def has_infinities(self, encoding: Encoding) -> bool:
        """Whether the model contains a constant that is not finite.

        Weights are not checked: infinite ones are too rare for a pass over all of them.
        """
        tables = self.tables
        weights = {
            o for n in encoding.nodes for i, o in enumerate(n.operands) if i in contracted_inputs(n.constructor.op)
        }
        large = {tables.constants.of_tensor(v.const_value) for k, v in enumerate(encoding.values)
                 if v.const_value is not None and v.is_initializer() and k not in weights}  # fmt: skip
        candidates = (k for k in range(1, len(tables.constants)) if tables.constants[k].is_small or k in large)
        return any(tables.is_infinite(Numbers(k)) for k in candidates)

    def _tell(self, facts: list[FactRow]) -> None:
        """Writes answers, and the answers that they depend on."""
        self.announce_constants()
        self.engine.set_facts([*self._pending, *facts])
        self._pending = []

    @staticmethod
    def _folds(c: Constructor) -> bool:
        return has(c.op, Trait.BY_TYPE) or (is_deterministic(c.op) and c.inputs > 0)

    def _serve(self) -> bool:
        frozen = self.engine.tables()
        facts: list[FactRow] = []
        for c in self._constructors:
            for kind in ("type", "value", "nums"):
                table = frozen.get(f"need_{kind}_{c.name}")
                if table is None or len(table.rows) == self._read[kind, c]:
                    continue
                self._read[kind, c] = len(table.rows)
                for key in self.engine.integers(table.rows):
                    self._answer(kind, c, key, facts)
        self._tell(facts)
        return bool(facts)

    def _answer(self, kind: str, c: Constructor, key: tuple[int, ...], facts: list[FactRow]) -> tuple[int, ...] | None:
        """Answers a signature once and adds new facts for egglog to ``facts``."""
        served = self._served.setdefault((kind, c), {})
        if key in served:
            return served[key]
        self.calls += 1
        found = served[key] = self._ask(kind, c, key)
        if found is None:
            return None
        if kind == "nums":
            facts.append((f"nums_{c.name}", key, found[0]))
            return found
        number = found[0]
        if c.outputs:
            number = self.tables.tuples.id(found)
            facts += [("part", (number, k), part) for k, part in enumerate(found) if part]
        if (number or c.outputs) and not c.is_wide:
            facts.append((f"{kind}_{c.name}", key, number))
        return found

    def _ask(self, kind: str, c: Constructor, key: tuple[int, ...]) -> tuple[int, ...] | None:
        if kind == "nums":
            return self._numbers_of(c, key)
        return self._infer(c, key) if kind == "type" else self._values_of(c, key)

    def _numbers_of(self, c: Constructor, key: tuple[int, ...]) -> tuple[int, ...] | None:
        """The known facts about the numbers in a constant expression, for all of its outputs together."""
        tables = self.tables
        operands = [tables.numbers[k] for k in key[1:]]
        if any(o is None for o in operands):
            return None
        given = [o for o in operands if o is not None]
        types = [tables.constants[o.constant].type for o in given]
        # An operand without a constant is absent or not computed, which cannot be told apart here; but an operator
        # without the operand computes something else.
        if all(o.constant and o.bounds is None and tables.constants[o.constant].is_small for o in given):
            value = self._answer("value", c, (key[0], *(o.constant for o in given)), self._pending)
            if value is not None and not c.outputs:
                return (tables.numbers.id(Numbers(value[0])),)
        attrs = tables.attrs[key[0]]
        bounds = operator_bounds(c.op, attrs, [tables.bounds(o) for o in given], types)
        element = element_of_result(c.op, attrs, [tables.element(o) for o in given])
        return (tables.numbers.id(Numbers(0, bounds, element)),)

    def _infer(self, c: Constructor, key: tuple[int, ...]) -> tuple[int, ...] | None:
        """Type ids of an e-node's outputs by its signature; None where unknown, 0 for an unknown output."""
        by_value = set(value_inputs(c.op))
        types: list[TensorType | None] = []
        values: list[np.ndarray | None] = []
        for i, fact in enumerate(key[1:]):
            if i in by_value:
                constant = self.tables.constants[fact]
                types.append(constant.type)
                values.append(constant.numpy())
            else:
                types.append(self.tables.types[fact])
                values.append(None)
        attrs = self.tables.attrs[key[0]]
        if any(isinstance(v, GraphAttr) for _, v in attrs):
            return None
        try:
            found = infer_types(c.op, attrs, types, values, max(c.outputs, 1))
        except EqsatError as error:
            self.contradictions.setdefault(str(c.op), str(error))
            return None
        return self.type_ids(found)

    def type_ids(self, found: Sequence[TensorType | None]) -> tuple[int, ...] | None:
        """Ids of inferred types; types of unknown rank count as unknown."""
        ids = tuple(self.tables.types.id(t) if t is not None and t.shape is not None else 0 for t in found)
        return ids if any(ids) else None

    def _values_of(self, c: Constructor, key: tuple[int, ...]) -> tuple[int, ...] | None:
        attrs = self.tables.attrs[key[0]]
        if has(c.op, Trait.BY_TYPE):
            return self._static_shape(c, key)
        if any(isinstance(v, GraphAttr) for _, v in attrs):
            return None
        constants = [self.tables.constants[k] for k in key[1:]]
        by_value = set(value_inputs(c.op))
        kinds = (k if i in by_value else self.tables.types.id(constants[i].type) for i, k in enumerate(key[1:]))
        found = self._answer("type", c, (key[0], *kinds), self._pending)
        if found is None:
            return None
        types = [self.tables.types[t] for t in found]
        if any(t is None or t.elements is None or t.elements > SMALL for t in types):
            return None
        try:
            with np.errstate(all="ignore"):
                results = fold(c.op, attrs, [k.numpy() for k in constants], max(c.outputs, 1))
        except LimitError:
            return None
        except EqsatError as error:
            self.contradictions.setdefault(str(c.op), str(error))
            return None
        rest: Sequence[np.ndarray | None] | None = [None] * len(types)
        if not self._priming:
            rest = residues(self.tables, c.op, attrs, key[1:], results, types)
        if rest is None:
            return None
        return tuple(
            self.tables.constants.of_array(np.asarray(r), t.dtype, x) if r is not None and t is not None else 0
            for r, t, x in zip(results, types, rest, strict=True)
        )

    def _static_shape(self, c: Constructor, key: tuple[int, ...]) -> tuple[int, ...] | None:
        kind = self.tables.types[key[1]]
        if kind is None or not kind.is_static or kind.shape is None:
            return None
        attrs = dict(self.tables.attrs[key[0]])
        if c.op.name == "Size":
            value = np.asarray(kind.elements, dtype=np.int64)
        else:
            start, end = attrs.get("start", 0), attrs.get("end")
            assert isinstance(start, int) and (end is None or isinstance(end, int))
            value = np.asarray(kind.shape[start:end], dtype=np.int64)
        return (self.tables.constants.of_array(value, ir.DataType.INT64),)
