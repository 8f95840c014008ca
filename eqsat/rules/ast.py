"""What a rule file says, as plain data: the reader makes it, the compiler and the checker consume it.

Three small languages meet in a rule. *Patterns* (left sides, composites) match e-nodes; *templates*
(right sides) build them; *expressions* (conditions, computed attributes, costs) are evaluated in Python
over shapes, types, attributes and small constants, and are terms of :mod:`eqsat.rules.syntax` as they stand.
``let`` macros are expanded by the reader and do not occur here, and neither does ``maybe(Op)(x, ...)``, which is
``Alternatives((Op(x, ...), x))``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from eqsat.rules.syntax import Number, Place, Term
from eqsat.schema.types import Attrs, OpKey

Expr = Term
"""One whose names are resolved and whose macros are expanded."""


# ---- patterns ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Var:
    """A tensor by name: in a pattern it binds (the same name twice must be the same value), in a template it is used.

    ``optional`` (``x?``, patterns only) also matches an absent input.
    """

    name: str
    place: Place
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Wildcard:
    """``_``: any value, not bound."""

    place: Place


@dataclass(frozen=True, slots=True)
class Rest:
    """``xs...`` as the last operand: the remaining operands of a variadic operator, in a pattern or a template.

    ``each`` (``Abs(xs...)`` where one operand is taken, templates only) is applied to every one of them.
    """

    name: str
    place: Place
    each: OpKey | None = None


@dataclass(frozen=True, slots=True)
class AttrBind:
    """``perm=p`` in a pattern: binds the attribute (``name`` a new or an already bound name), or requires it
    to equal an expression (``axis=1``, ``perm=[0, 2, 1]``).
    """

    attribute: str
    name: str | None
    equals: Expr | None
    place: Place


@dataclass(frozen=True, slots=True)
class Match:
    """An operator pattern.

    Attributes:
        ops: One operator, or several for ``(op: Add | Mul)(x, c)``.
        op_name: Name bound to the operator that matched (usable as the operator of a template), or None.
        args: Operands by position; None is an operand that must be absent. Operands given by the schema's
            name (``Clip(x, min=lo)``) are already in their positions.
        attrs: Constraints and bindings of attributes; attributes not named are unconstrained.
        bind: ``c`` of ``c: Conv(...)``: gives expressions ``c.strides``, templates ``**c``, and the
            node's value as tensor ``c``; or None.
        output: Which output (``Split(x, s)[1]``); 0 unless indexed.
    """

    ops: tuple[OpKey, ...]
    op_name: str | None
    args: tuple[Pattern | None, ...]
    attrs: tuple[AttrBind, ...]
    bind: str | None
    output: int
    place: Place


@dataclass(frozen=True, slots=True)
class Alternatives:
    """``A | B``: either matches; names bound in one alternative only are absent in the other.

    The same object at two places of a pattern (a ``let`` used twice) is one value: the same alternative at both.

    Attributes:
        bind: Name of the value, whichever matched (``c: (A | B)``, or a ``let``), or None.
    """

    options: tuple[Pattern, ...]
    place: Place
    bind: str | None = None


Pattern = Var | Wildcard | Number | Rest | Match | Alternatives


# ---- templates ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Build:
    """An operator to build.

    Attributes:
        op: The operator, or the name bound by ``(op: Add | Mul)``.
        args: Operands by position; None leaves an optional input absent.
        attrs: Attribute values.
        spread: Names of bound nodes whose attributes are taken over (``**c``), before ``attrs`` override them.
        output: Which output is meant; 0 unless indexed.
        name: The ``let`` name under which expressions may ask for its shape, or None.
    """

    op: OpKey | str
    args: tuple[Template | None, ...]
    attrs: tuple[tuple[str, Expr], ...]
    spread: tuple[str, ...]
    output: int
    place: Place
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Tensor:
    """A constant computed from an expression: ``split=[2, u.shape[-1]]`` for a named input, or ``tensor(expr, dtype)``.

    ``dtype`` None means: int64 for integers in an operand whose schema is int64, else the neighbours' type.
    """

    value: Expr
    dtype: Expr | None
    place: Place


Template = Var | Number | Rest | Build | Tensor


# ---- rules and targets ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Condition:
    """One comma-separated condition of ``where``, with the text of ``because``, if any."""

    expr: Expr
    because: str | None
    place: Place


@dataclass(frozen=True, slots=True)
class Numerics:
    """How far a rule may change values: ``exact``, ``real``, ``lsb`` (within ``lsb`` units), ``approximate``."""

    kind: Literal["exact", "real", "lsb", "approximate"]
    lsb: int = 0

    def __str__(self) -> str:
        return f"within {self.lsb} lsb" if self.kind == "lsb" else self.kind


@dataclass(frozen=True, slots=True)
class Rule:
    """``left[i] = right[i]`` for each root. A ``<=>`` rule is read as two rules, the second named ``NAME.reverse``.

    Attributes:
        left: Operators, or alternatives of operators.
        doc: The comment lines right above or below the header, without the comment sign.
    """

    name: str
    numerics: Numerics
    left: tuple[Match | Alternatives, ...]
    right: tuple[Template, ...]
    where: tuple[Condition, ...]
    place: Place
    doc: str = ""


@dataclass(frozen=True, slots=True)
class Composite:
    """A coarse kernel of a target: what it computes, when it applies, what it costs, how it is called.

    Attributes:
        pattern: Its definition, an operator or alternatives of operators; the leaves in order of first
            occurrence are its inputs.
        cost: In seconds, over ``macs bytes peak bandwidth launch`` and the pattern's names; None means
            ``launch + max(macs / peak, bytes / bandwidth)``.
        call: C call with ``{expr}`` holes, or None.
        call_parts: The call as text and the expressions between.
        annotations: What its result bears, the one next to it first.
        generated: Whether it exists in generated code only (``kernel`` instead of ``composite``).
    """

    name: str
    numerics: Numerics
    pattern: Match | Alternatives
    where: tuple[Condition, ...]
    cost: Expr | None
    call: str | None
    place: Place
    doc: str = ""
    call_parts: tuple[str | Expr, ...] = ()
    annotations: tuple[tuple[OpKey, Attrs], ...] = ()
    generated: bool = False


@dataclass(frozen=True, slots=True)
class Supports:
    """Plain operators that a target executes one at a time; in conditions and costs ``x`` is the first operand,
    ``y`` the output, ``node`` the node, and the operands also go by their schema names.

    ``ops`` is empty for ``supports *`` (every operator; the host).
    """

    ops: tuple[OpKey, ...]
    where: tuple[Condition, ...]
    cost: Expr | None
    place: Place


@dataclass(frozen=True, slots=True)
class Family:
    """What kernels of some families of generated code cost; the expressions are over the kernel as a whole.

    Attributes:
        names: Of the families, with ``_`` for blanks; empty for ``family *``.
        cost: Over ``macs bytes functions scattered peak bandwidth launch``, the first operand ``x``, the result ``y``
            and the anchor ``node``.
    """

    names: tuple[str, ...]
    where: tuple[Condition, ...]
    cost: Expr
    place: Place


@dataclass(frozen=True, slots=True)
class Target:
    """One target file.

    Attributes:
        peak: MAC/s by dtype name; bandwidth: byte/s of its own memory; launch: seconds a kernel;
        dispatch: seconds to start a region; link_bandwidth byte/s and link_latency seconds to the host.
        is_host: Declared ``host cpu`` instead of ``target cpu``.
        kernels: Of a host, what generated code has instead of single operators; optimizing a model ignores it.
        families: Of a host, what kernels of generated code cost.
    """

    name: str
    summary: str
    is_host: bool
    peak: tuple[tuple[str, float], ...]
    bandwidth: float
    launch: float
    dispatch: float
    link_bandwidth: float
    link_latency: float
    supports: tuple[Supports, ...]
    composites: tuple[Composite, ...]
    place: Place
    doc: str = ""
    kernels: tuple[Composite, ...] = ()
    families: tuple[Family, ...] = ()


@dataclass(frozen=True, slots=True)
class RuleFile:
    """Everything one file declares. ``egg`` is the text of a raw ``*.egg`` file."""

    path: str
    rules: tuple[Rule, ...] = ()
    targets: tuple[Target, ...] = ()
    egg: str | None = field(default=None)
