"""Protocols: what the package of a language offers, what a built program offers, and the data of a build and of a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from feinsum.errors import FeinsumError

if TYPE_CHECKING:
    from feinsum.devices import Device
    from feinsum.languages.calling.signature import Signature
    from feinsum.languages.diagnostics import Diagnostic
    from feinsum.languages.source import SourceText
    from feinsum.tune.subject import Subject

INSTANCES: Final = "E"
"""The name of the axis that counts instances."""
CHOICES: Final = {
    "route": ("auto", "einsum", "general"),
    "tune": ("never", "missing", "always"),
    "check": ("bounds", None),
}
"""The values that keywords of :func:`feinsum.build` may have."""


@dataclass(frozen=True)
class BuildRequest:
    """How a function is to be built: the arguments of :func:`feinsum.build`, with the device found.

    :raises FeinsumError: if `route`, `tune` or `check` is none of :data:`CHOICES`, or `sizes` is not a mapping.
    """

    device: Device
    database: Any = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    tune: str = "never"
    route: str = "auto"
    check: str | None = None

    def __post_init__(self) -> None:
        for name, known in CHOICES.items():
            if (value := getattr(self, name)) not in known:
                *others, last = map(repr, known)
                raise FeinsumError(f"{name} is {value!r}; it is {', '.join(others)} or {last}")
        if not isinstance(self.sizes, Mapping):
            raise FeinsumError(f"sizes is {self.sizes!r}; it has a length for each name, as in {{'n': 1000}}")


class ProgramCall(NamedTuple):
    """The arguments of a call of a built function; see :meth:`feinsum.Built.__call__`."""

    arguments: Mapping[str, Any]
    instances: int | None = None
    queue: Any = None
    wait_for: Any = None
    out: Any = None


class ProgramRunner(Protocol):
    """A function built for a device by the package of its language."""

    @property
    def route(self) -> str:
        """``"general"``, ``"einsum"``, or ``"auto"`` as long as it is not decided."""

    @property
    def sizes(self) -> Mapping[str, Any]:
        """The sizes of sub-groups and work-groups, as :meth:`feinsum.Program.interpret` takes them; empty without such."""

    @property
    def source(self) -> str:
        """The OpenCL C source."""

    def call(self, call: ProgramCall) -> Any:
        """Run the function; returns the arrays that it wrote or made."""

    def ir(self, name: str | None = None) -> str:
        """The function after a pass, by default the last, in the language itself.

        :raises ValidationError: if there is no such pass.
        """

    def explain(self) -> str:
        """The route and its reasons."""


class Language(Protocol):
    """The package of a language."""

    def read(self, source: SourceText, strict: bool) -> tuple[tuple[Any, ...], tuple[Diagnostic, ...]]:
        """The functions of a text and its warnings.

        :raises LanguageError: with every error of the text.
        """

    def show(self, functions: Any) -> str:
        """The canonical text of functions."""

    def signature(self, function: Any) -> Signature[Any]:
        """The parameters and results of a function."""

    def interpret(
        self, function: Any, source: SourceText, arguments: Mapping[str, Any], count: int | None, sizes: Any
    ) -> Any:
        """Execute a function with numpy; see :meth:`feinsum.Program.interpret`."""

    def build(self, function: Any, source: SourceText, request: BuildRequest) -> ProgramRunner:
        """Build a function for a device; see :func:`feinsum.build`."""

    def sample_arguments(
        self, function: Any, sizes: Mapping[str, int], seed: int, count: int | None, given: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Random arguments in place of those that are not given; see :func:`feinsum.languages.trying.try_out`."""

    @property
    def subject_at(self) -> Callable[[Any, SourceText, Mapping[str, int], str], Subject] | None:
        """Makes the tuner's subject of a program at some lengths, with a name; None if the language has nothing to tune."""
