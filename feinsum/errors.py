"""The exceptions of feinsum: each names the cause, the place, the value found and the remedy."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from feinsum.languages.diagnostics import Diagnostic, Note


def told(error: BaseException) -> str:
    """The type and the text of an exception, also of one whose text cannot be had."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception as other:
        return f"{type(error).__name__}, the text of which raises {type(other).__name__}"


class FeinsumError(Exception):
    """Base of every error that feinsum raises on purpose."""


def reason(error: Exception) -> str:
    """The text of an error of feinsum's, or type and text of another."""
    return str(error) if isinstance(error, FeinsumError) else told(error)


def is_shortage(error: BaseException) -> bool:
    """Whether memory is short; an array larger than all memory, asked of numpy, is the caller's mistake and no shortage."""
    size = math.prod(getattr(error, "shape", ())) * getattr(getattr(error, "dtype", None), "itemsize", 0)
    most = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else size
    return isinstance(error, MemoryError) and size <= most


def require_of_system(error: Exception) -> None:
    """Raise again what the system did not raise: a ``TimeoutError`` of a signal handler is an OSError without a number."""
    if isinstance(error, OSError) and error.errno is None:
        raise error


class SubscriptError(FeinsumError, ValueError):
    """Subscripts that do not follow the grammar of :func:`numpy.einsum`."""


class ShapeError(FeinsumError, ValueError):
    """Axes whose lengths, number or names contradict each other."""


class DTypeError(FeinsumError, TypeError):
    """A data type that is not a numeric type of OpenCL, or two types for one array."""


class MatchError(FeinsumError, ValueError):
    """A loopy kernel in which the wanted einsum cannot be seen; the message names instruction, rule and reason."""


class TransformError(FeinsumError, ValueError):
    """A rewrite whose preconditions do not hold, or a configuration outside its space."""


class SpaceError(TransformError):
    """A transform space that failed by itself: whatever it raised that is no refusal."""


class DeviceError(FeinsumError, RuntimeError):
    """No such OpenCL device, or one that cannot build and run a kernel."""


class UnknownDeviceError(DeviceError):
    """A name that fits none of the devices there are."""


class DatabaseError(FeinsumError, RuntimeError):
    """A store of records that cannot be opened, read or written, or a record that is not one."""


class UnknownStoreError(DatabaseError):
    """A name of a store that names none, or something else."""


class ValidationError(FeinsumError, ValueError):
    """Arguments of a kernel that do not fit it, or a kernel whose results are wrong."""


class ArgumentError(ValidationError, TypeError):
    """An argument of a kind that a call does not take, such as text in place of an array."""


class SearchError(FeinsumError, ValueError):
    """A sampler that does not exist, a budget out of range, or a recorded landscape that is malformed."""


class JobError(FeinsumError, ValueError):
    """A job file that cannot be read or is malformed, or a shard that does not exist."""


class LanguageError(FeinsumError, ValueError):
    """A malformed program in one of feinsum's languages; the message shows every error with its line and a caret.

    :ivar diagnostics: the errors, in order of place; the attributes of the first one are those of the exception too.
    """

    def __init__(self, diagnostics: Sequence[Diagnostic], more: int = 0) -> None:
        super().__init__(tuple(diagnostics), more)
        self.diagnostics, self.more = tuple(diagnostics), more

    def __str__(self) -> str:
        rest = [f"... and {self.more} more errors"] if self.more else []
        return "\n".join([*map(str, self.diagnostics), *rest])

    @property
    def line(self) -> int:
        """From 1."""
        return self.diagnostics[0].line

    @property
    def column(self) -> int:
        """From 1."""
        return self.diagnostics[0].column

    @property
    def end_line(self) -> int:
        """The line of the last character that is meant."""
        return self.diagnostics[0].end_line

    @property
    def end_column(self) -> int:
        """The column of the last character that is meant."""
        return self.diagnostics[0].end_column

    @property
    def rule(self) -> str:
        """The id of the rule that is broken."""
        return self.diagnostics[0].rule

    @property
    def notes(self) -> tuple[Note, ...]:
        """Where to look for the cause."""
        return self.diagnostics[0].notes
