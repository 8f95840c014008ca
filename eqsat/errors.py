"""The errors a user can meet, each one sentence of four parts: where, what was required, what was found, what to do.

Every public function raises one of these for bad input and nothing else; the command line prints
``str(error)`` and exits with code 1.
"""

from __future__ import annotations

import sys
import warnings

from eqsat.text import name_of


class EqsatError(Exception):
    """Base of all errors that are due to the input, and not to a defect of eqsat.

    Args:
        requirement: What was required, as a sentence without the final stop.
        place: Where: a file with line and column, a node or a tensor by its name.
        actual: What was found instead.
        hint: What to do about it.
        excerpt: The line of the input in question, with a caret below it where that helps.
    """

    def __init__(
        self, requirement: str, *, place: str = "", actual: str = "", hint: str = "", excerpt: str = ""
    ) -> None:
        self.requirement = requirement
        self.place = place
        self.actual = actual
        self.hint = hint
        self.excerpt = excerpt
        super().__init__(str(self))

    def __str__(self) -> str:
        # Names in it may come from the input, and this may be printed on a terminal.
        head = f"{name_of(self.place)}: " if self.place else ""
        found = f"; got {_lines(self.actual)}" if self.actual else ""
        excerpt = "".join(f"\n    {name_of(line)}" for line in self.excerpt.splitlines())
        hint = f"\n  hint: {_lines(self.hint)}" if self.hint else ""
        return f"{head}{_lines(self.requirement)}{found}{excerpt}{hint}"


def _lines(text: str) -> str:
    return "\n".join(map(name_of, text.split("\n")))


def reason(error: Exception) -> str:
    """The message of another library's exception, on one line."""
    return (" ".join(str(error).split()) or type(error).__name__)[:300]


class Note(UserWarning):
    """A message for the user although the call succeeds: a warning in Python, a line on stderr of a command."""


def note(text: str, category: type[Note] = Note) -> None:
    """Warns the caller of eqsat, at the line of the call."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == __package__:
        frame, level = frame.f_back, level + 1
    warnings.warn(name_of(text), category, stacklevel=level)


class ArgumentError(EqsatError):
    """An argument of a public function that is of the wrong kind, such as a list where a mapping is required."""


class ModelError(EqsatError):
    """A model that cannot be loaded, checked, upgraded or saved."""


class RuleError(EqsatError):
    """A rule file that cannot be read, or a rule that contradicts the operators' schemas."""


class TargetError(EqsatError):
    """A target file that cannot be read, an unknown target, or a request that no target can serve."""


class ExecutionError(EqsatError):
    """A model that cannot be executed on the given inputs."""


class OptimizationError(EqsatError):
    """A request to the optimizer that cannot be fulfilled, such as a graph whose shapes are not known."""


class AuditError(OptimizationError):
    """An e-graph that holds expressions for equal which compute different values: one of its rules is wrong."""


class VerificationError(OptimizationError):
    """A result that differs from its input model: a rule, a folded constant or a kernel is wrong."""


class QuantizationError(EqsatError):
    """Calibration data that do not fit the model, or a quantization that cannot be carried out."""


class CodegenError(EqsatError):
    """A model that cannot become C code, or C code that cannot be compiled or loaded."""


class LimitError(EqsatError):
    """A model that asks for more memory, time or work than it may have."""


class BackendError(CodegenError):
    """A backend that cannot be found or loaded, or that fails."""


class BackendWarning(Note):
    """A backend that was given and executes nothing."""
