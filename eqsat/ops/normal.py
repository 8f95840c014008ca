"""The normal form of a node's attributes and inputs, so that equal meanings are spelled equally.

Against the schema's defaults (see :mod:`eqsat.schema.attributes`) these depend on the inputs: axes are counted from the
front, windows have explicit strides, dilations and kernel, and attributes without effect have their default. The
declaration of an operator lists its forms; :mod:`eqsat.model.normalize` applies them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from string import ascii_letters

from eqsat.schema.attributes import attr, default_attrs
from eqsat.schema.dtypes import FLOAT8
from eqsat.schema.types import Attrs, AttrValue, Dim, OpKey, TensorType


@dataclass(frozen=True, slots=True)
class Given:
    """A node in the form that the normal forms read.

    Attributes:
        op: The operator.
        attrs: Its attributes, the schema's defaults filled in.
        inputs: Types of its inputs, None for an absent or unknown one.
        outputs: Number of its outputs in use.
    """

    op: OpKey
    attrs: Attrs
    inputs: Sequence[TensorType | None]
    outputs: int

    def rank(self, i: int = 0) -> int | None:
        known = self.inputs[i] if i < len(self.inputs) else None
        return None if known is None else known.rank

    def default(self, name: str) -> AttrValue | None:
        return attr(default_attrs(self.op), name)


Changes = Mapping[str, AttrValue | None]
"""Attributes to change for the normal form, with their new values; None removes one."""
NormalForm = Callable[[Given], Changes]
_NOTHING: Changes = {}


@dataclass(frozen=True, slots=True)
class Axes:
    """An input that lists axes of the first one.

    Attributes:
        input: Its position.
        ordered: Whether their order means something: it is one axis, or another input has one entry for each.
        of_result: Whether they are axes of the result, which has one more for each.
    """

    input: int
    ordered: bool = False
    of_result: bool = False


def axis(operand: int = 0, *, more: int = 0) -> NormalForm:
    """The attribute ``axis`` counted from the front of an operand, which has ``more`` axes in the result."""

    def form(given: Given) -> Changes:
        rank = given.rank(operand)
        return _NOTHING if rank is None else _counted(given.attrs, rank + more)

    return form


def axes(given: Given) -> Changes:
    """The attribute ``axes`` counted from the front."""
    listed, rank = attr(given.attrs, "axes"), given.rank()
    if listed is None or rank is None:
        return _NOTHING
    return {"axes": tuple(a + rank if -rank <= a < 0 else a for a in listed)}


def quantization_axis(given: Given) -> Changes:
    """The axis means nothing where there is one scale."""
    scale = given.inputs[1] if len(given.inputs) > 1 else None
    if scale is None or scale.shape is None:
        return _NOTHING
    if scale.elements == 1 and len(scale.shape) < 2:
        return {"axis": 1}
    rank = given.rank()
    return _NOTHING if rank is None else _counted(given.attrs, rank)


def permutation(given: Given) -> Changes:
    """Without ``perm`` the axes are reversed."""
    rank = given.rank()
    return _NOTHING if rank is None or attr(given.attrs, "perm") is not None else {"perm": tuple(reversed(range(rank)))}


def range_of_shape(given: Given) -> Changes:
    """``start`` and ``end`` within the rank; no ``end`` where it is the last axis."""
    rank = given.rank()
    if rank is None:
        return _NOTHING
    start, end, _ = slice(attr(given.attrs, "start", 0), attr(given.attrs, "end")).indices(rank)
    return {"start": start, "end": None if end == rank else end}


def hidden_size(given: Given) -> Changes:
    """The size of the state is that of the recurrent weights."""
    if attr(given.attrs, "hidden_size") is not None:
        return _NOTHING
    weights = given.inputs[2].shape if len(given.inputs) > 2 and given.inputs[2] is not None else None
    size = weights[-1] if weights else None
    return {"hidden_size": size if isinstance(size, int) else None}


def seed_in_training(given: Given) -> Changes:
    """A seed means nothing where nothing is drawn."""
    return {"seed": None if len(given.inputs) < 3 else attr(given.attrs, "seed")}


def momentum_in_training(given: Given) -> Changes:
    """The momentum means nothing in inference."""
    return _NOTHING if attr(given.attrs, "training_mode", 0) else {"momentum": given.default("momentum")}


def saturation(given: Given) -> Changes:
    """``saturate`` means something where the result, of the type ``to`` or of the second input's, has 8 bits."""
    like = given.inputs[1] if len(given.inputs) > 1 else None
    target = attr(given.attrs, "to", None if like is None else like.dtype)
    return _NOTHING if target is None or target in FLOAT8 else {"saturate": given.default("saturate")}


def storage_order(given: Given) -> Changes:
    """The order in which positions are counted has no meaning if the positions are not read."""
    return {"storage_order": 0} if given.outputs == 1 else _NOTHING


def parts(given: Given) -> Changes:
    """Without sizes, the number of parts is that of the outputs."""
    if len(given.inputs) < 2 and attr(given.attrs, "num_outputs") is None:
        return {"num_outputs": given.outputs}
    return _NOTHING


def summation(given: Given) -> Changes:
    """An equation without blanks, with its result, in the first letters.

    An ellipsis that means the same known axes everywhere becomes letters as well.
    """
    written = attr(given.attrs, "equation")
    if not isinstance(written, str):
        return _NOTHING
    left, arrow, result = written.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(given.inputs):
        return _NOTHING
    if not arrow:
        labels = left.replace(",", "").replace(".", "")
        result = ("..." if "..." in left else "") + "".join(c for c in sorted(set(labels)) if labels.count(c) == 1)
    if "..." in result:
        dots = _after_ellipses(terms, given)
        terms, result = [term.replace("...", dots) for term in terms], result.replace("...", dots)
    labels = dict.fromkeys("".join((*terms, result)).replace("...", ""))
    if not all(label in ascii_letters for label in labels):
        return _NOTHING
    names = str.maketrans(dict(zip(labels, ascii_letters, strict=False)))
    return {"equation": f"{','.join(terms)}->{result}".translate(names)}


def _after_ellipses(terms: Sequence[str], given: Given) -> str:
    """Unused letters for the axes of all ellipses of the operands, or an ellipsis."""
    hidden = set[tuple[Dim, ...]]()
    for term, known in zip(terms, given.inputs, strict=True):
        before, dots, after = term.partition("...")
        if not dots:
            continue
        if known is None or known.shape is None or len(before) + len(after) > len(known.shape):
            return "..."
        hidden.add(known.shape[len(before) : len(known.shape) - len(after)])
    axes = hidden.pop() if len(hidden) == 1 else (None,)
    unused = [c for c in ascii_letters if not any(c in term for term in terms)]
    return "..." if None in axes or len(axes) > len(unused) else "".join(unused[: len(axes)])


def _counted(attrs: Attrs, rank: int) -> Changes:
    given = attr(attrs, "axis")
    # Axes beyond the rank are left unchanged, so that the checks refuse them.
    return {"axis": given + rank} if isinstance(given, int) and -rank <= given < 0 else _NOTHING
