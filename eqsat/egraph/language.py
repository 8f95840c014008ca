"""The e-graph's language: one egglog constructor for each operator, arity and number of outputs in use.

A value has sort ``T``. ``type``, ``cval`` and ``nums`` map a class to its type, to the small constant that it equals,
and to the known facts about its numbers (0 if it is not constant); ``element`` maps it to the number that all of its
elements equal. ``(Filled t k)`` is a name for the constant of type ``t`` whose elements all equal number ``k``: large
constants are told apart by their tensors, so that zeros plus zeros would be another class each time and sums with them
would grow without end. An operator with several used outputs is one e-node of the tuple sort ``M``; ``(out m k)``
projects. For each constructor a table ``made_...`` remembers which rule made an e-node first; egglog keeps its keys
canonical, so the answer survives merges. An operator of very many operands is a leaf, ``(Wide k)``: its operands are
kept in Python (:class:`eqsat.egraph.encode.Encoding`). A table, a query and a type signature of hundreds of columns
would cost the square of their number, and every smaller arity that rules could build would need its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from eqsat.ops.properties import is_commutative
from eqsat.schema.declared_operators import result_count
from eqsat.schema.opset import Schema, find_schema
from eqsat.schema.types import OpKey

_LAST = (1 << 62) - 1
FIRST_KNOWN = f"(& (+ (min (& (- old 1) {_LAST}) (& (- new 1) {_LAST})) 1) {_LAST})"
"""The merge of ids, of which 0 means unknown: the smallest other id, which was assigned first.

A class may contain an expression of itself, such as ``c + 0``. The bounds of that are wider than those of the class,
and would become wider without end if a later answer replaced an earlier one. (0 - 1 wraps to the largest number.)
"""

PRELUDE = (
    "(sort T)",
    "(sort M)",
    "(constructor Const (i64) T)",
    "(constructor Input (i64) T)",
    "(constructor out (M i64) T)",
    "(constructor ref (i64) T)",
    "(constructor Wide (i64) T)",
    "(constructor Filled (i64 i64) T)",
    "(constructor WideM (i64) M)",
    "(function type (T) i64 :merge old)",
    "(function cval (T) i64 :merge old)",
    "(relation isc (T))",
    "(relation iscm (M))",
    "(relation live (T))",
    "(relation livem (M))",
    "(function const_type (i64) i64 :merge old)",
    "(relation const_small (i64))",
    f"(function nums (T) i64 :merge {FIRST_KNOWN})",
    "(function const_nums (i64) i64 :merge old)",
    "(function element (T) i64 :merge old)",
    "(function nums_element (i64) i64 :merge old)",
    "(relation unrounded (i64))",
    "(relation large (i64))",
    "(function part (i64 i64) i64 :merge old)",
    "(ruleset analysis)",
    "(ruleset settle)",
    "(ruleset commute)",
    '(rule ((= e (Const c)) (= t (const_type c))) ((set (type e) t) (isc e)) :ruleset analysis :name "const type")',
    '(rule ((= e (Const c)) (const_small c)) ((set (cval e) c)) :ruleset analysis :name "const value")',
    '(rule ((= e (Const c)) (= n (const_nums c))) ((set (nums e) n)) :ruleset analysis :name "const numbers")',
    "(rule ((isc e) (= n (nums e)) (= k (nums_element n))) ((set (element e) k)) "
    ':ruleset analysis :name "equal elements")',
    "(rule ((isc e) (= n (nums e)) (= k (nums_element n)) (unrounded n) (= t (type e)) (large t)) "
    '((union e (Filled t k))) :ruleset analysis :name "filled")',
    '(rule ((live e)) ((set (nums e) 0)) :ruleset analysis :name "live numbers")',
    '(rule ((= c (cval e))) ((union e (Const c))) :ruleset analysis :name "folded")',
    '(rule ((= e (out m k)) (iscm m)) ((isc e)) :ruleset analysis :name "const part")',
    '(rule ((= e (Input k))) ((live e)) :ruleset analysis :name "live input")',
    '(rule ((= e (out m k)) (livem m)) ((live e)) :ruleset analysis :name "live part")',
)

MOST_OPERANDS = 48
"""With more operands an operator is a leaf of the e-graph, which rules cannot look into."""

ABSENT = "(Const 0)"
ORIGINAL = 0
"""Rule number of the model's own e-nodes."""
COMMUTED = 1
"""Rule number of copies with swapped operands."""


@dataclass(frozen=True)
class Constructor:
    """One egglog constructor.

    Attributes:
        inputs: Number of operands, absent ones in the middle included.
        outputs: 0 for one plain value, otherwise the size of the tuple.
        composite: Whether ``op`` is (target, composite name).
    """

    op: OpKey
    inputs: int
    outputs: int = 0
    composite: bool = False

    @cached_property
    def name(self) -> str:
        domain = "".join(c if c.isalnum() else "_" for c in self.op.domain)
        if self.composite:
            # The name of a composite may end with a number, such as `conv_2`, so the number of results comes before it.
            return f"composite_{self.outputs or ''}_{domain}__{self.op.name}_{self.inputs}"
        # `a.b` and `a_b` are two domains; targets have no dots in their names.
        domain = "_".join(part.replace("_", "_u") for part in self.op.domain.split("."))
        domain = "".join(c if c.isalnum() else "_" for c in domain)
        head = f"{domain}__" if domain else ""
        tail = f"_{self.outputs}" if self.outputs else ""
        return f"{head}{self.op.name}_{self.inputs}{tail}"

    @property
    def is_wide(self) -> bool:
        """Whether the operator is a leaf, because it has too many operands."""
        return self.inputs > MOST_OPERANDS and not self.composite

    @property
    def sort(self) -> str:
        return "M" if self.outputs else "T"

    @property
    def first_stands_alone(self) -> bool:
        """Whether the first output may be computed without the others."""
        return self.outputs > 0 and not self.composite and not has_variadic_outputs(self.op)

    @property
    def first(self) -> Constructor:
        """The plain form that computes the first output only."""
        return Constructor(self.op, self.inputs)

    @property
    def is_commutative(self) -> bool:
        return not self.composite and self.inputs == 2 and not self.outputs and is_commutative(self.op)

    @cached_property
    def operands(self) -> list[str]:
        return [f"x{i}" for i in range(self.inputs)]

    def call(self, attrs: str, operands: list[str] | tuple[str, ...]) -> str:
        return f"({self.name} {' '.join([attrs, *operands])})"

    def made(self, attrs: str, operands: list[str] | tuple[str, ...], rule: str) -> str:
        return f"(set (made_{self.name} {' '.join([attrs, *operands])}) {rule})"


def has_variadic_outputs(op: OpKey) -> bool:
    """Whether the number of outputs is part of the operator's meaning (Split, TopK, If, Loop)."""
    schema = find_schema(op)
    if schema is None:
        return result_count(op) > 1
    if not schema.outputs:
        return False
    return schema.min_output > 1 or schema.outputs[-1].option == Schema.FormalParameterOption.Variadic


def declare(constructor: Constructor) -> list[str]:
    """egglog commands that declare a constructor and its provenance table."""
    c = constructor
    sorts = " ".join(["i64"] + ["T"] * c.inputs)
    return [f"(constructor {c.name} ({sorts}) {c.sort})", f"(function made_{c.name} ({sorts}) i64 :merge old)"]


def commutation(constructor: Constructor) -> list[str]:
    """The egglog rule that swaps the operands of a commutative operator."""
    c = constructor
    if not c.is_commutative:
        return []
    swapped = ["x1", "x0"]
    return [
        f"(rule ((= e {c.call('a', c.operands)})) "
        f"((union e {c.call('a', swapped)}) {c.made('a', swapped, str(COMMUTED))}) "
        f':ruleset commute :name "commute {c.name}")'
    ]
