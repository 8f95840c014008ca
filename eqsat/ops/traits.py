"""The kinds of operators: each kind is a trait that an operator's declaration names.

A kind that rules and target files may name (see :mod:`eqsat.ops.sets`) has its name in lower case there.
"""

from __future__ import annotations

from enum import Flag


class Trait(Flag):
    """Kinds of operators; an operator of two kinds has their union."""

    NONE = 0
    ELEMENTWISE = 1 << 0
    """An element of the result depends on the elements at its place, with broadcasting."""
    UNARY = 1 << 1 | ELEMENTWISE
    """Elementwise, of one operand."""
    BROADCASTS = 1 << 2 | ELEMENTWISE
    """Elementwise, of operands that stretch each other."""
    COMMUTATIVE = 1 << 3
    """Any order of the operands gives the same result; see :func:`eqsat.ops.properties.is_commutative`."""
    REDUCTION = 1 << 4
    """Reduces over axes."""
    MOVES = 1 << 5
    """Moves, copies, generates or selects elements by place: no arithmetic on them."""
    FORWARDS = 1 << 6
    """Returns its operand, without a copy, or annotates it at no cost."""
    SELECTS = 1 << 7
    """Compares elements, or chooses among them by comparison, so that infinities stay unchanged."""
    SUMS = 1 << 8
    """Adds, so that a finite number plus an infinity is that infinity in any order."""
    PARAMETRIC = 1 << 9
    """A parameter determines the amount of work, even for small operands."""
    RANDOM = 1 << 10
    """Draws random numbers."""
    BENDS = 1 << 11
    """Its formula changes at some number."""
    ELEMENTARY = 1 << 12
    """Evaluates an elementary function for each element."""
    OWN_ATTRIBUTES = 1 << 13
    """Its kernel in ``onnx.reference`` cannot refer to a function's attribute: the values stay in the definition."""
    LINEAR = 1 << 14
    """Adds up elements or products of elements: applied to magnitudes it gives the magnitude of the terms."""
    CONVERTS = 1 << 15
    """Rounds numbers to integers of a scale, or gives the numbers that these integers represent."""
    INDEXES = 1 << 16
    """An operand after the first gives the positions where elements are read or written."""
    BY_TYPE = 1 << 17
    """The type of its operand alone determines its result."""
    POLES = 1 << 18
    """Infinite or undefined somewhere, even for small operands."""
    POSITIVE = 1 << 19
    """Its result is above zero, and rounds to it."""
    KEEPS_FROM_ZERO = 1 << 20
    """Its result is zero only if an operand is."""
    SIZES = 1 << 21
    """Sizes are computed with it: the inference of shapes follows its results where they are known."""

    REARRANGES = 1 << 22
    """Its result has the elements of its first operand, each once, perhaps in another type."""
    LOOKS_UP = 1 << 23
    """Its second operand has positions along an axis of the first, from which it reads."""
    TOTAL = 1 << 24
    """It computes something for all operands of its types."""
    FITS = 1 << 25
    """It fails only if the shapes of its operands do not fit together."""
    FINDS_ENDLESS = 1 << 26
    """Tells infinite or undefined elements from others."""
    FIXED = 1 << 27
    """The standard fixes each element of its result to the bit, where it does not leave it open."""
    EXACT = 1 << 28
    """Computes numbers that need no rounding, because the type of its operand has them."""
    ROUNDS = 1 << 29
    """Computes and rounds, though it selects or moves as well."""
    TAKES_SIZES = 1 << 30
    """The first operand whose value shapes its result holds sizes or numbers of copies, not axes or positions, and
    generated C may have sizes in its place."""
    DIVIDES = 1 << 31
    """Divides its first operand by the second."""
    HAS_BODIES = 1 << 32
    """Executes graphs that are attributes."""
    CONTROL = 1 << 33 | HAS_BODIES
    """Branches, and loops whose bodies compute tensors: no sequences, whose elements have no types."""


NONE = Trait.NONE
ELEMENTWISE = Trait.ELEMENTWISE
UNARY = Trait.UNARY
BROADCASTS = Trait.BROADCASTS
COMMUTATIVE = Trait.COMMUTATIVE
REDUCTION = Trait.REDUCTION
MOVES = Trait.MOVES
FORWARDS = Trait.FORWARDS
SELECTS = Trait.SELECTS
SUMS = Trait.SUMS
PARAMETRIC = Trait.PARAMETRIC
RANDOM = Trait.RANDOM
BENDS = Trait.BENDS
ELEMENTARY = Trait.ELEMENTARY
OWN_ATTRIBUTES = Trait.OWN_ATTRIBUTES
LINEAR = Trait.LINEAR
CONVERTS = Trait.CONVERTS
SIZES = Trait.SIZES
INDEXES = Trait.INDEXES
BY_TYPE = Trait.BY_TYPE
POLES = Trait.POLES
POSITIVE = Trait.POSITIVE
KEEPS_FROM_ZERO = Trait.KEEPS_FROM_ZERO
REARRANGES = Trait.REARRANGES
LOOKS_UP = Trait.LOOKS_UP
TOTAL = Trait.TOTAL
FITS = Trait.FITS
FINDS_ENDLESS = Trait.FINDS_ENDLESS
FIXED = Trait.FIXED
EXACT = Trait.EXACT
ROUNDS = Trait.ROUNDS
TAKES_SIZES = Trait.TAKES_SIZES
DIVIDES = Trait.DIVIDES
HAS_BODIES = Trait.HAS_BODIES
CONTROL = Trait.CONTROL
