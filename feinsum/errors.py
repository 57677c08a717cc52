"""The exceptions of feinsum: each says what is wrong, where, what was found and what to do."""

from __future__ import annotations


class FeinsumError(Exception):
    """Base of every error that feinsum raises on purpose."""


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


class DatabaseError(FeinsumError, RuntimeError):
    """A store of records that cannot be opened, read or written, or a record that is not one."""


class ValidationError(FeinsumError, ValueError):
    """Arguments of a kernel that do not fit it, or a kernel whose results are wrong."""


class ArgumentError(ValidationError, TypeError):
    """An argument of a kind that a call does not take, such as text in place of an array."""


class SearchError(FeinsumError, ValueError):
    """A sampler that does not exist, a budget out of range, or a recorded landscape that is malformed."""


class JobError(FeinsumError, ValueError):
    """A job file that cannot be read or is malformed, or a shard that does not exist."""
