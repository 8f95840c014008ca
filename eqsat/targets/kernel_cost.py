"""The cost of a kernel on a target, in seconds: the roofline of the target file, or the expression of an entry.

Williams, Waterman and Patterson, "Roofline: an insightful visual performance model for multicore architectures",
CACM 52(4), 2009: a kernel is bound by arithmetic or by memory, whichever takes longer; each kernel costs its launch on
top. Bytes are those of the tensors that cross the kernel's border, weights and other constants included; what a
composite keeps inside is free, which is what makes it worth choosing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from eqsat.errors import ModelError, OptimizationError, TargetError
from eqsat.model.inference.infer import infer_body
from eqsat.model.macs import macs
from eqsat.ops.own_operators import ANNOTATIONS, CHANNELS_FIRST, CHANNELS_LAST
from eqsat.rules.ast import Composite, Expr, Supports, Target
from eqsat.rules.evaluation import NodeFacts, TensorFacts, Unknown, evaluate, holds, uses
from eqsat.schema.body import Body, BodyNode
from eqsat.schema.free_sizes import at_sizes
from eqsat.schema.types import Attrs, OpKey, TensorType, TensorTypes
from eqsat.targets.condition_names import ABSENT, bind_operands
from eqsat.targets.families import evaluates_function, family_entry, rates
from eqsat.targets.refusal import refusal
from eqsat.targets.tensor_bytes import UNKNOWN_ELEMENTS, size_in_bytes, static
from eqsat.targets.work import Work, read_of, work_of


class CostModel:
    """Prices of kernels and copies on several targets.

    Args:
        targets: The host first, as :func:`eqsat.targets.find_targets.load_targets` gives them.
        unknown_elements: Elements assumed of a tensor whose shape depends on data; best the number of elements of the
            model's largest tensor, as such tensors are selections from others.
        bindable: Whether a symbol in a shape can be bound. If the sizes of the inputs are known, none can: then it
            is a name for what depends on data.
        sizes: At which sizes costs are taken, by symbol. A cost is the mean over several.

    >>> from eqsat.targets.find_targets import load_targets
    >>> from eqsat.schema.types import OpKey, TensorType
    >>> import onnx_ir as ir
    >>> costs = CostModel(load_targets("dnnl"))
    >>> x = TensorType(ir.DataType.FLOAT, (1000, 1000))
    >>> f"{costs.operator(0, OpKey('', 'Relu'), (), [TensorFacts(x)], [x]):.3g}"
    '0.000801'
    """

    def __init__(
        self,
        targets: Sequence[Target],
        *,
        unknown_elements: int = UNKNOWN_ELEMENTS,
        bindable: bool = True,
        sizes: Sequence[Mapping[str, int]] = (),
    ) -> None:
        self.targets = tuple(targets)
        self.sizes: tuple[Mapping[str, int], ...] = tuple(sizes) or ({},)
        self.bindable = bindable
        self.unknown_elements = unknown_elements
        self._entries = [_Entries(t) for t in targets]
        self._operators: dict[Any, float] = {}
        self._body_macs: dict[Any, int] = {}
        self._families: dict[Any, float] = {}

    # ---- kernels ---------------------------------------------------------------------------------

    def operator(
        self,
        target: int,
        op: OpKey,
        attrs: Attrs,
        inputs: Sequence[TensorFacts | None],
        outputs: TensorTypes,
        *,
        place: str = "",
    ) -> float:
        """Seconds of one plain operator, ``inf`` if the target does not run it.

        Args:
            target: Index of the target.
            inputs: Facts of the operands, None where absent.
            outputs: Types of the results, None for one without readers.
            place: Where the operator is, for messages; its name by default.

        Raises:
            OptimizationError: The size of a tensor is a symbol that the user can bind.
            TargetError: The target file's own expression gives no cost.
        """
        if op in ANNOTATIONS:
            return 0.0
        entries = self._entries[target]
        key = (target, op, attrs, tuple(_fact_key(f, entries.looks_at_values) for f in inputs), tuple(outputs))
        if key not in self._operators:
            entry = self._entry(target, op, attrs, inputs, outputs)
            self._operators[key] = math.inf
            if entry is not None:
                what = place or str(op)
                self._operators[key] = self.mean(
                    lambda sizes: self._operator(target, entry, op, attrs, inputs, outputs, what, sizes)
                )
        return self._operators[key]

    def work(
        self, target: int, op: OpKey, attrs: Attrs, inputs: Sequence[TensorFacts | None], outputs: TensorTypes
    ) -> Work:
        """The work of a plain operator: what it computes and moves, and the target's times for both.

        Raises:
            OptimizationError: The size of a tensor is a symbol that the user can bind.
        """
        given = tuple(None if f is None else i for i, f in enumerate(inputs))
        body = Body(len(inputs), (BodyNode(op, attrs, given, len(outputs)),), (len(inputs),))
        return self.work_of_body(target, body, inputs, outputs)

    def work_of_body(self, target: int, body: Body, inputs: Sequence[TensorFacts | None], outputs: TensorTypes) -> Work:
        """The same for a composite; each number is the mean over the sizes."""
        exact = all(t is None or t.is_static for t in (*(f.type for f in inputs if f is not None), *outputs))
        found = []
        for sizes in self.sizes:
            facts = [self._sized_facts(f, f"input {i}", "a report", sizes) for i, f in enumerate(inputs)]
            results = [self._sized(t, f"output {i}", "a report", sizes) for i, t in enumerate(outputs)]
            if len(body.nodes) == 1:
                node, types = body.nodes[0], [None if f is None else f.type for f in facts]
                count = counted_macs(node.op, node.attrs, types, results, exact)
            else:
                count = self._macs_of_body(body, facts, exact)
            read = read_of(body, [None if f is None else f.type for f in facts], results)
            found.append(self._symbols(target, count, read, results))
        return work_of(found)

    def launch(self, target: int) -> float:
        """Seconds to start one kernel on the target."""
        return self.targets[target].launch

    def mean(self, cost: Callable[[Mapping[str, int]], float]) -> float:
        """The mean cost over the sizes."""
        costs = [cost(sizes) for sizes in self.sizes]
        return costs[0] if len(costs) == 1 else math.fsum(costs) / len(costs)

    def sized(
        self, operands: Sequence[TensorFacts | None], place: str, sizes: Mapping[str, int]
    ) -> list[TensorFacts | None]:
        """Facts of operands at some of the sizes at which costs are taken, as :meth:`mean` gives them."""
        return [self._sized_facts(f, f"input {i}", place, sizes) for i, f in enumerate(operands)]

    def family(
        self, target: int, op: OpKey, attrs: Attrs, inputs: Sequence[TensorFacts | None], outputs: TensorTypes
    ) -> str:
        """Family of kernels that computes a plain operator; empty if the target's file names none."""
        if not self._entries[target].name_families:
            return ""
        entry = self._entry(target, op, attrs, inputs, outputs)
        return "" if entry is None else entry.family

    def _entry(
        self, target: int, op: OpKey, attrs: Attrs, inputs: Sequence[TensorFacts | None], outputs: TensorTypes
    ) -> Supports | None:
        """The first entry whose conditions hold."""
        entries = self._entries[target].of(op)
        env = bind_operands(op, attrs, inputs, outputs) if entries else {}
        return next((e for e in entries if holds(e.where, env) is None), None)

    def _operator(
        self,
        target: int,
        entry: Supports,
        op: OpKey,
        attrs: Attrs,
        inputs: Sequence[TensorFacts | None],
        outputs: TensorTypes,
        place: str,
        sizes: Mapping[str, int],
    ) -> float:
        sized = [self._sized_facts(f, f"input {i}", place, sizes) for i, f in enumerate(inputs)]
        results = [self._sized(t, f"output {i}", place, sizes) for i, t in enumerate(outputs)]
        types = [None if f is None else f.type for f in sized]
        exact = all(t is None or t.is_static for t in (*(f.type for f in inputs if f is not None), *outputs))
        symbols = self._symbols(target, counted_macs(op, attrs, types, results, exact), types, results)
        # An expression over shapes has no value where no shape is known: then the bytes that are known count.
        known = any(t is not None for t in results) and all(f is None or f.type is not None for f in sized)
        if entry.cost is not None and known:
            return self.evaluated(entry.cost, bind_operands(op, attrs, sized, results) | symbols, str(op))
        output = next((t for t in results if t is not None), None)
        if entry.family and output is not None:
            given = tuple(None if f is None else i for i, f in enumerate(sized))
            body = Body(len(sized), (BodyNode(op, attrs, given, len(results)),), (len(sized),))
            return self._by_family(target, entry.family, symbols, body, sized, output)
        return roofline(symbols)

    def why_not(
        self, target: int, op: OpKey, attrs: Attrs, inputs: Sequence[TensorFacts | None], outputs: TensorTypes
    ) -> str:
        """Why a target does not run a plain operator, as a phrase for reports; empty if it does."""
        entries = self._entries[target].of(op)
        return refusal(self.targets[target], op, entries, bind_operands(op, attrs, inputs, outputs))

    def composite(
        self,
        target: int,
        composite: Composite,
        env: Mapping[str, object],
        body: Body,
        inputs: Sequence[TensorFacts | TensorType | None],
        *outputs: TensorType,
        place: str = "",
    ) -> float:
        """Seconds of one instance of a composite. Whether its conditions hold was settled when it was matched.

        Args:
            target: Index of the target.
            env: The values of the pattern's names.
            body: Its definition with the attributes that matched.
            inputs: Facts or types of its inputs; facts where a shape inside depends on an input's value.
            outputs: Types of its results.
            place: Where it is, for messages; its name by default.

        Raises:
            OptimizationError: The size of a tensor is a symbol that the user can bind.
            TargetError: The target file's own expression gives no cost.
        """
        name = place or f"{self.targets[target].name}.{composite.name}"
        return self.mean(lambda sizes: self._composite(target, composite, env, body, inputs, outputs, name, sizes))

    def _composite(
        self,
        target: int,
        composite: Composite,
        env: Mapping[str, object],
        body: Body,
        inputs: Sequence[TensorFacts | TensorType | None],
        outputs: Sequence[TensorType],
        name: str,
        sizes: Mapping[str, int],
    ) -> float:
        facts = [TensorFacts(f) if isinstance(f, TensorType) else f for f in inputs]
        sized = [self._sized_facts(f, f"input {i}", name, sizes) for i, f in enumerate(facts)]
        results = [
            self._static(output, f"output {i}" if len(outputs) > 1 else "the output", name, sizes)
            for i, output in enumerate(outputs)
        ]
        types = [None if f is None else f.type for f in sized]
        exact = all(f is None or f.type is None or f.type.is_static for f in facts)
        symbols = self._symbols(target, self._macs_of_body(body, sized, exact), types, results)
        if composite.cost is None and composite.family:
            return self._by_family(target, composite.family, symbols, body, sized, results[0])
        if composite.cost is None:
            return roofline(symbols)
        known = {n: self._sized_value(v, f"`{n}`", name, sizes) for n, v in env.items()}
        return self.evaluated(composite.cost, known | symbols, name)

    def evaluated(self, cost: Expr, env: Mapping[str, object], what: str) -> float:
        """Value of the expression of an entry or a composite over the names that it may use.

        Raises:
            TargetError: It has no value, or one that is not a cost.
        """
        return priced(cost, env, what)

    def _by_family(
        self,
        target: int,
        name: str,
        symbols: dict[str, float],
        body: Body,
        inputs: Sequence[TensorFacts | None],
        output: TensorType,
    ) -> float:
        """Seconds of a kernel of generated code, by the entry of its family."""
        key = (target, name, body, tuple(_fact_key(f, False) for f in inputs), output)
        if key not in self._families:
            anchor, functions, converts = self._anchor(body, inputs)
            x = inputs[0] if inputs and inputs[0] is not None else ABSENT
            env: dict[str, object] = {"x": x, "y": TensorFacts(output)}
            env |= {} if anchor is None else {"node": NodeFacts(*anchor)}
            is_across = converts and x.type is not None and x.type.shape == output.shape
            scattered = size_in_bytes(x.type) if is_across and x.type is not None else 0
            # A kernel without elements takes no time, and has no sizes to divide by.
            there = anchor is not None and output.elements
            entry = family_entry(self.targets[target], name, env) if there else None
            env |= {**symbols, "functions": functions, "scattered": scattered}
            self._families[key] = roofline(symbols) if entry is None else priced(entry.cost, env, name)
        return self._families[key]

    def _anchor(self, body: Body, inputs: Sequence[TensorFacts | None]) -> tuple[tuple[OpKey, Attrs] | None, int, bool]:
        """The operator of a body with the most work, elementary functions in all, whether the layout changes.

        An empty body has no such operator.
        """
        most, anchor, functions = -1, None, 0
        for node, given, made in _typed_nodes(body, inputs, exact=False):
            work = counted_macs(node.op, node.attrs, given, made, exact=False)
            if work > most:
                most, anchor = work, (node.op, node.attrs)
            if made[0] is not None and evaluates_function(node.op, made[0].dtype):
                functions += made[0].elements or 0
        layouts = {node.op for node in body.nodes} & {CHANNELS_FIRST.op, CHANNELS_LAST.op}
        return anchor, functions, len(layouts) == 1

    # ---- copies ----------------------------------------------------------------------------------

    def copy_in(self, target: int, kind: TensorType) -> float:
        """Seconds from the host's memory into the target's; 0 for the host itself."""
        described = self.targets[target]
        if described.is_host:
            return 0.0
        size = self.mean(lambda sizes: size_in_bytes(self._static(kind, "a copied tensor", described.name, sizes)))
        return described.link_latency + size / described.link_bandwidth

    def copy_out(self, target: int, kind: TensorType) -> float:
        """Seconds from the target's memory into the host's; the link is as fast in both directions."""
        return self.copy_in(target, kind)

    def dispatch(self, target: int) -> float:
        """Seconds to start a region on the target; 0 for the host."""
        described = self.targets[target]
        return 0.0 if described.is_host else described.dispatch

    # ---- details ---------------------------------------------------------------------------------

    def _sized(self, kind: TensorType | None, what: str, place: str, sizes: Mapping[str, int]) -> TensorType | None:
        return None if kind is None else self._static(kind, what, place, sizes)

    def _static(self, kind: TensorType, what: str, place: str, sizes: Mapping[str, int]) -> TensorType:
        return static(at_sizes(kind, sizes), self.unknown_elements, what=what, place=place, bindable=self.bindable)

    def _sized_facts(
        self, facts: TensorFacts | None, what: str, place: str, sizes: Mapping[str, int]
    ) -> TensorFacts | None:
        if facts is None or facts.type is None or facts.type.is_static:
            return facts
        return TensorFacts(self._sized(facts.type, what, place, sizes), facts.value, facts.is_const, facts.is_present)

    def _sized_value(self, value: object, what: str, place: str, sizes: Mapping[str, int]) -> object:
        if isinstance(value, NodeFacts) and value.output is not None:
            return replace(value, output=self._sized_facts(value.output, what, place, sizes))
        return self._sized_facts(value, what, place, sizes) if isinstance(value, TensorFacts) else value

    def _symbols(self, target: int, work: int, inputs: TensorTypes, outputs: TensorTypes) -> dict[str, float]:
        """Facts for cost expressions about the kernel and the target."""
        there = [t for t in (*inputs, *outputs) if t is not None]
        numbers = rates(self.targets[target], there[0] if there else None)
        return {"macs": work, "bytes": sum(map(size_in_bytes, there)), **numbers}

    def _macs_of_body(self, body: Body, inputs: Sequence[TensorFacts | None], exact: bool) -> int:
        by_value = any(f is not None and f.value is not None for f in inputs)
        key = (body, tuple(_fact_key(f, by_value) for f in inputs))
        if key not in self._body_macs:
            typed = _typed_nodes(body, inputs, exact)
            self._body_macs[key] = sum(counted_macs(n.op, n.attrs, given, made, exact) for n, given, made in typed)
        return self._body_macs[key]


class _Entries:
    """A target's ``supports`` by operator."""

    def __init__(self, target: Target) -> None:
        self._all = target.supports
        self._by_op: dict[OpKey, tuple[Supports, ...]] = {}
        looked = [c.expr for s in target.supports for c in s.where] + [s.cost for s in target.supports if s.cost]
        self.name_families = any(s.family for s in target.supports)
        self.looks_at_values = bool(uses(*looked).values)

    def of(self, op: OpKey) -> tuple[Supports, ...]:
        if op not in self._by_op:
            self._by_op[op] = tuple(s for s in self._all if not s.ops or op in s.ops)
        return self._by_op[op]


def _fact_key(facts: TensorFacts | None, with_value: bool) -> Any:
    """The facts about an operand that a cost can depend on, hashable."""
    if facts is None:
        return None
    value = facts.value if with_value else None
    return facts.type, facts.is_const, facts.is_present, None if value is None else _content(value)


def _content(value: np.ndarray) -> Any:
    content = tuple(value.ravel().tolist()) if value.dtype == object else value.tobytes()
    return str(value.dtype), value.shape, content


def _typed_nodes(
    body: Body, inputs: Sequence[TensorFacts | None], exact: bool
) -> Iterator[tuple[BodyNode, TensorTypes, TensorTypes]]:
    """The nodes of a body with the types of their operands and results.

    Estimated sizes need not fit together: a residual may have another batch than the convolution that it is added to.
    Then the nodes count up to the first that they do not fit, whose results have no type.
    """
    types = [None if f is None else f.type for f in inputs]
    constants = [None if f is None else f.value for f in inputs]
    nodes, first = body.nodes, body.inputs
    while True:
        try:
            values = infer_body(Body(body.inputs, nodes, ()), types, constants)
            break
        except ModelError:
            if exact:
                raise
            nodes = nodes[:-1]
    values += [None] * sum(node.outputs for node in body.nodes[len(nodes) :])
    for node in body.nodes[: len(nodes) + 1]:
        yield node, [None if i is None else values[i] for i in node.inputs], values[first : first + node.outputs]
        first += node.outputs


def counted_macs(op: OpKey, attrs: Attrs, inputs: TensorTypes, outputs: TensorTypes, exact: bool) -> int:
    """MACs of an operator; if they cannot be counted, one for each element of its largest tensor.

    Args:
        exact: Whether the sizes are those of the model, and not estimates that need not fit together.
    """
    try:
        return macs(op, attrs, inputs, outputs)
    except OptimizationError:
        pass
    except (ArithmeticError, LookupError, ValueError):
        if exact:
            raise
    return max((t.elements or 0 for t in (*inputs, *outputs) if t is not None), default=0)


def roofline(s: Mapping[str, float]) -> float:
    """Seconds where an entry gives no expression of its own."""
    return s["launch"] + max(s["macs"] / s["peak"], s["bytes"] / s["bandwidth"])


def priced(cost: Expr, env: Mapping[str, object], what: str) -> float:
    """Value of a cost expression.

    Raises:
        TargetError: The expression has no value, or one that is not a cost.
    """
    requirement = f"the cost of {what} must be a number of seconds, 0 or more"
    try:
        value = evaluate(cost, env)
    except Unknown as unknown:
        raise TargetError(requirement, place=str(cost.place), actual=f"nothing: {unknown}") from None
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value) or value < 0:
        raise TargetError(requirement, place=str(cost.place), actual=str(value))
    return float(value)
