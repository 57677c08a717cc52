"""Building: a function of a program as something to call with arrays; `build(program)` is where every language ends."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from feinsum.devices import device as choose_device
from feinsum.kernel.array_adapter import Copied
from feinsum.languages.calling.adapter import call_with_foreign_arrays
from feinsum.languages.calling.arguments import check_count, refuse_keywords, refuse_positions
from feinsum.languages.calling.protocols import BuildRequest, ProgramCall, ProgramRunner
from feinsum.languages.calling.signature import one_or_all
from feinsum.languages.diagnostics import recursion_guard
from feinsum.languages.program import LANGUAGES, Program, program

if TYPE_CHECKING:
    import pyopencl as cl

    from feinsum.database import Database
    from feinsum.devices import Device


class Built:
    """A function on a device.  Made by :func:`build`; thread-safe.

    :ivar program: the program, and `function` the name of the function.
    :ivar device: where it runs.
    """

    def __init__(self, program: Program, function: str, device: Device, runner: ProgramRunner) -> None:
        self.program, self.function, self.device = program, function, device
        self._runner = runner
        self._signature = LANGUAGES[program.language].load().signature(program.function(function))
        self._copied: Sequence[Copied] = ()

    def __repr__(self) -> str:
        return f"Built({self.function!r}, device={self.device.id!r}, route={self.route!r})"

    def __call__(
        self,
        arguments: Mapping[str, Any] | None = None,
        /,
        *others: Any,
        count: int | None = None,
        queue: cl.CommandQueue | None = None,
        wait_for: Sequence[Any] | None = None,
        out: Any = None,
        **named: Any,
    ) -> Any:
        """Run it on arrays of one library: numpy, pyopencl, torch, JAX, or another that speaks DLPack and is on the host.

        Arrays that are written are updated in place; new ones are of the library of the arguments.

        :param named: an argument for each parameter; arrays have the shapes of their memrefs, a group is a list of them.
        :param arguments: the same as a mapping, for names that are also those of the parameters below.
        :param count: the number of instances; by default what the sizes say that the group id is an index of, or 1.
        :param queue: the queue to use; by default the device's.
        :param wait_for: events to wait for.
        :param out: of the declarative language, unless a parameter has this name: where to put the results, an array of
            the library of the arguments or a tuple of them, which share no memory with those.
        :returns: the arrays that were written: one of them, or a tuple in order of declaration.  Arrays of the host have
            the results on return, those of pyopencl when their events have happened.
        :raises ValidationError, ShapeError, DTypeError: naming the argument that does not fit, before any launch.
        :raises LanguageError: if it was built with ``check="bounds"`` and an index is out of bounds, at its line.
        """
        if others or (arguments is not None and not isinstance(arguments, Mapping)):
            refuse_positions(self._signature.parameters)
        given = named if not arguments else {**arguments, **named} if named else arguments
        if count is not None:
            check_count(count)
        if out is not None and "out" in self._signature.parameters:  # an argument as any other
            given, out = {**given, "out": out}, None
        if out is not None:
            refuse_keywords({} if self._signature.results else {"out": out}, "results are written to the arguments")
            out = one_or_all(out) if isinstance(out, (list, tuple)) else out

        def run(seen: Mapping[str, Any], into: Any) -> Any:
            with recursion_guard(self.program.source):
                return self._runner.call(ProgramCall(seen, count, queue, wait_for, into))

        results, self._copied = call_with_foreign_arrays(run, given, out, self._signature.written, self.device)
        return results

    @property
    def route(self) -> str:
        """``"general"``, ``"einsum"``, or ``"auto"`` until the first call has compared the two."""
        return self._runner.route

    @property
    def sizes(self) -> dict[str, Any]:
        """The sizes of sub-groups and work-groups, with which the interpreter computes what the kernel does."""
        return dict(self._runner.sizes)

    @property
    def source(self) -> str:
        """The OpenCL C source."""
        return self._runner.source

    def ir(self, name: str | None = None) -> str:
        """The function behind a pass, by default the last, in the language itself.

        :raises ValidationError: if there is no such pass.
        """
        return self._runner.ir(name)

    def explain(self) -> str:
        """The route and its reasons, by lines of the program; the copies of the last call."""
        return "\n".join(
            [self._runner.explain(), *(f"copied: {one.name} {one.why}, {one.nbytes} bytes" for one in self._copied)]
        )


def build(
    p: Program | str | os.PathLike[str],
    function: str | None = None,
    device: Device | str | cl.Device | cl.CommandQueue | None = None,
    database: Database | str | os.PathLike[str] | None = None,
    sizes: Mapping[str, int] | None = None,
    tune: str = "never",
    route: str = "auto",
    *,
    check: str | None = None,
) -> Built:
    """Make a function of a program ready to run on a device.

    >>> import numpy as np
    >>> import feinsum as fe
    >>> p = fe.program("func @double(%x: memref<f32x?>) { %two = constant 2.0 : f32  %z = constant 0.0 : f32 axpby.n %two,%x,%z,%x }")
    >>> fe.build(p)(x=np.arange(3, dtype=np.float32))
    array([0., 2., 4.], dtype=float32)

    :param p: a program, or what :func:`feinsum.program` takes.
    :param function: its name; not needed where there is one only.
    :param device: see :func:`feinsum.device`.
    :param database: where to look for records besides those that come with feinsum.
    :param sizes: lengths expected of sizes that the program leaves open, by parameter and mode: ``{"C.2": 1000}``; of the
        immediate language ``{"E": items}``.
    :param tune: as for :func:`feinsum.generate`, where the function is an einsum.
    :param route: ``"einsum"`` has einsums computed by the kernels of :func:`feinsum.generate`, ``"general"`` by one that is
        made of the instructions; ``"auto"`` decides by record, or else by timing both at the first call.  Of the immediate
        language ``"general"`` launches each instruction, the others raise instructions to larger einsums.
    :param check: ``"bounds"`` has every index checked as the kernel runs, for debugging; this is slow.
    :raises LanguageError: if the function cannot be compiled, at the line.
    :raises FeinsumError: if `route`, `tune` or `check` is none of these, or the function is no einsum and should be one.
    :raises ValidationError: if a keyword means nothing to the language, or one of `sizes` to the program.
    :raises DeviceError: if the device has not what the function needs.
    """  # noqa: E501
    request = BuildRequest(choose_device(device), database, sizes or {}, tune, route, check)
    one = p if isinstance(p, Program) else program(p)
    found, language = one.function(function), LANGUAGES[one.language].load()
    with recursion_guard(one.source):
        runner = language.build(found, one.source, request)
        language.signature(found).check_sizes(request.sizes)
        return Built(one, found.name, request.device, runner)
