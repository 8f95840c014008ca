"""The right side of a rule as steps over egglog variables, so that egglog can build it.

The layout is static: constructors and operands. Parts that depend on the matched facts (attributes, constants, types of
the intermediate values) are computed once per signature by :mod:`eqsat.egraph.template`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eqsat.egraph.language import ABSENT, Constructor, has_variadic_outputs
from eqsat.egraph.query import Query
from eqsat.errors import RuleError
from eqsat.ops.properties import value_inputs
from eqsat.rules.absent_operands import NEG, Remainder, remainder
from eqsat.rules.ast import Build, Name, Number, Place, Rest, TemplateTerm, TensorTerm
from eqsat.rules.ast import Sequence as Listed
from eqsat.schema.opset import find_schema
from eqsat.schema.types import OpKey


@dataclass(frozen=True, slots=True)
class OperandOrigin:
    """The origin of an operand: an egglog variable, or an earlier step (and one of its outputs)."""

    variable: str | None = None
    step: int | None = None
    output: int = 0


@dataclass(frozen=True, slots=True)
class ConstantStep:
    """A number or a computed constant; its id is one output column of the answer."""

    template: Number | TensorTerm


@dataclass(frozen=True, slots=True)
class BuildStep:
    """An operator; its attribute id is one output column of the answer."""

    template: Build
    constructor: Constructor
    operands: tuple[OperandOrigin | None, ...]


RightSideStep = ConstantStep | BuildStep


@dataclass(frozen=True, slots=True)
class StepOrder:
    """Steps in order and, per root, the origin of its new value.

    Attributes:
        constant: Operators that may have only constant operands, so that they make a constant.
    """

    steps: tuple[RightSideStep, ...]
    roots: tuple[OperandOrigin, ...]
    constant: tuple[int, ...] = ()

    @property
    def by_numbers(self) -> list[str]:
        """egglog variables that may be operands of a constant."""
        found: dict[str, None] = {}
        for i in self.constant:
            step = self.steps[i]
            assert isinstance(step, BuildStep)
            for operand in step.operands:
                if operand is not None and operand.variable is not None:
                    found.setdefault(operand.variable)
        return list(found)

    @property
    def variables(self) -> list[str]:
        """egglog variables read, in order of first use."""
        used: dict[str, None] = {}
        for operand in [*self._operands(), *self.roots]:
            if operand.variable is not None:
                used.setdefault(operand.variable)
        return list(used)

    @property
    def by_value(self) -> list[str]:
        """egglog variables that decide a type by their value."""
        found: dict[str, None] = {}
        for step in self.steps:
            if isinstance(step, BuildStep):
                for i in value_inputs(step.constructor.op):
                    if i < len(step.operands):
                        operand = step.operands[i]
                        if operand is not None and operand.variable is not None:
                            found.setdefault(operand.variable)
        return list(found)

    def _operands(self) -> Iterator[OperandOrigin]:
        for step in self.steps:
            if isinstance(step, BuildStep):
                yield from (o for o in step.operands if o is not None)

    def actions(self, rule: int, folded: frozenset[int] = frozenset()) -> list[str]:
        """egglog actions; output column i is the variable ``o{i}``, step i's value ``b{i}``.

        Args:
            folded: Operators that a constant replaces; their column gives it.
        """
        needed = self._needed(folded)
        actions = []
        for i, step in enumerate(self.steps):
            if isinstance(step, BuildStep) and i in needed and i not in folded:
                operands = [self.expression(o, folded) for o in step.operands]
                actions.append(f"(let b{i} {step.constructor.call(f'o{i}', operands)})")
                actions.append(step.constructor.made(f"o{i}", operands, str(rule)))
        return actions

    def _needed(self, folded: frozenset[int]) -> set[int]:
        """Steps that are read where some are folded."""
        needed: set[int] = set()
        waiting = [o.step for o in self.roots if o.step is not None]
        while waiting:
            i = waiting.pop()
            step = self.steps[i]
            if i not in needed and isinstance(step, BuildStep) and i not in folded:
                waiting += [o.step for o in step.operands if o is not None and o.step is not None]
            needed.add(i)
        return needed

    def expression(self, operand: OperandOrigin | None, folded: frozenset[int] = frozenset()) -> str:
        """The egglog expression of an operand."""
        if operand is None:
            return ABSENT
        if operand.variable is not None:
            return operand.variable
        assert operand.step is not None
        step = self.steps[operand.step]
        if isinstance(step, ConstantStep) or operand.step in folded:
            return f"(Const o{operand.step})"
        return f"(out b{operand.step} {operand.output})" if step.constructor.outputs else f"b{operand.step}"


class LayoutBuilder:
    """Lays out the templates of one clause over one of its queries.

    Args:
        constants: egglog variables that are required to be constant.
    """

    def __init__(
        self,
        query: Query,
        absent: frozenset[str],
        operators: Mapping[str, OpKey],
        place: Place,
        constants: Sequence[str] = (),
    ) -> None:
        self.query = query
        self.constants = frozenset(constants)
        self.absent = absent
        self.operators = operators
        self.place = place
        self._steps: list[RightSideStep] = []
        self._known: dict[Any, int] = {}
        self._sizes: dict[Build, int] = {}

    def layout(self, templates: Sequence[TemplateTerm]) -> StepOrder:
        for template in templates:
            self._count_outputs(template)
        roots = []
        for template in templates:
            root = self._operand(template)
            if root is None:
                raise RuleError("a right side that is present is required", place=str(self.place), actual="absent")
            roots.append(root)
        return StepOrder(tuple(self._steps), tuple(roots), self._constant_steps())

    def _constant_steps(self) -> tuple[int, ...]:
        """Steps that may make a constant although no root is constant: each root has another leaf that may not be
        constant.
        """
        leaves = self.query.leaves_of
        roots = [leaves(root) - self.constants for root in self.query.roots]
        found: dict[int, frozenset[str]] = {}
        for i, step in enumerate(self._steps):
            if not isinstance(step, BuildStep):
                continue
            read: set[str] = set()
            for operand in step.operands:
                if operand is None or self._is_literal(operand):
                    continue
                if operand.variable is not None:
                    read |= leaves(operand.variable)
                elif operand.step in found:
                    read |= found[operand.step]
                else:
                    break
            else:
                if not any(root <= read for root in roots):
                    found[i] = frozenset(read)
        return tuple(found)

    def _is_literal(self, operand: OperandOrigin) -> bool:
        return operand.step is not None and isinstance(self._steps[operand.step], ConstantStep)

    def _count_outputs(self, template: TemplateTerm | None) -> None:
        """Notes the number of outputs of each built operator: as many as the templates name, its attributes specify, or
        its schema demands.
        """
        if isinstance(template, Build):
            key = template.node
            op = template.op if isinstance(template.op, OpKey) else self.operators[template.op]
            schema = find_schema(op)
            least = 1 if schema is None else schema.min_output
            self._sizes[key] = max(self._sizes.get(key, 1), template.output + 1, self._said(template), least)
            for arg in template.args:
                self._count_outputs(arg)

    def _said(self, template: Build) -> int:
        """The number of outputs that a Split's own attribute or operand prescribes, 0 where it is not known here."""
        if template.op != OpKey("", "Split"):
            return 0
        attrs = dict(template.attrs)
        if "num_outputs" in attrs:
            said = attrs["num_outputs"]
            return said.value if isinstance(said, Number) and isinstance(said.value, int) else 0
        sizes = template.args[1] if len(template.args) > 1 else None
        if isinstance(sizes, TensorTerm) and isinstance(sizes.value, Listed):
            return len(sizes.value.items)
        # The sizes, or the number, of a matched node: as many outputs as that has.
        sites = [s for s in self.query.sites if s.constructor.op == template.op]
        if isinstance(sizes, Name) and sizes.name not in self.absent:
            variable = self.query.tensors.get(sizes.name)
            return max((s.constructor.outputs for s in sites if s.operands[1:] == (variable,)), default=0)
        return max((s.constructor.outputs for s in sites if s.match.bind in template.spread), default=0)

    def _operand(self, template: TemplateTerm | None) -> OperandOrigin | None:
        if template is None:
            return None
        if isinstance(template, Name):
            if template.name in self.absent:
                return None
            return OperandOrigin(variable=self.query.tensors[template.name])
        if isinstance(template, Number | TensorTerm):
            return OperandOrigin(step=self._step(template, ConstantStep(template)))
        assert isinstance(template, Build), f"{template} cannot stand here"
        return self._build(template)

    def _build(self, template: Build) -> OperandOrigin | None:
        op = template.op if isinstance(template.op, OpKey) else self.operators[template.op]
        operands: list[OperandOrigin | None] = []
        for arg in template.args:
            if isinstance(arg, Rest):
                operands += [self._each(arg, OperandOrigin(variable=v)) for v in self.query.rests[arg.name]]
            else:
                operands.append(self._operand(arg))
        left = remainder(op, [operand is not None for operand in operands])
        if left is not None:
            return self._remaining(left, template, operands)
        while operands and operands[-1] is None:
            operands.pop()
        size = self._sizes[template.node]
        outputs = size if size > 1 or has_variadic_outputs(op) else 0
        step = BuildStep(template, Constructor(op, len(operands), outputs), tuple(operands))
        return OperandOrigin(step=self._step(template.node, step), output=template.output)

    def _each(self, rest: Rest, operand: OperandOrigin) -> OperandOrigin:
        """One of several operands, with the operator that is applied to each."""
        if rest.each is None:
            return operand
        template = Build(rest.each, (), (), (), 0, rest.place)
        step = BuildStep(template, Constructor(rest.each, 1), (operand,))
        return OperandOrigin(step=self._step((rest.each, operand), step))

    def _remaining(
        self, left: Remainder, template: Build, operands: list[OperandOrigin | None]
    ) -> OperandOrigin | None:
        """Arithmetic with an absent operand."""
        if left == Remainder.UNDEFINED:
            raise RuleError("a divisor is required", place=str(template.place), actual="an absent operand")
        if left != Remainder.NEGATED:
            return {Remainder.LEFT: operands[0], Remainder.RIGHT: operands[-1]}.get(left)
        negated = Build(NEG, template.args[1:], (), (), 0, template.place)
        step = BuildStep(negated, Constructor(NEG, 1), (operands[1],))
        return OperandOrigin(step=self._step(("neg", template.node), step))

    def _step(self, key: Any, step: RightSideStep) -> int:
        if key not in self._known:
            self._known[key] = len(self._steps)
            self._steps.append(step)
        return self._known[key]
