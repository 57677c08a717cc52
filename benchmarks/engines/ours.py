"""feinsum as an engine, and the peaks of its device measured between the runs of all engines."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator, Mapping
from logging.handlers import BufferingHandler
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from benchmarks.engines.problem import Problem, Values
from benchmarks.peers.base import CORES, Engine

if TYPE_CHECKING:
    import feinsum as fe


@contextlib.contextmanager
def _warnings_noted() -> Iterator[None]:
    """Add what feinsum logs meanwhile to the message of an exception, as errors refer to the log."""
    notes, logger = BufferingHandler(1000), logging.getLogger("feinsum")
    notes.setLevel(logging.WARNING)
    logger.addHandler(notes)
    try:
        yield
    except Exception as error:
        raise RuntimeError(f"{error}: {' | '.join(note.getMessage() for note in notes.buffer)}") from error
    finally:
        logger.removeHandler(notes)


@contextlib.contextmanager
def unseen(e: fe.BatchedEinsum) -> Iterator[None]:
    """Hide from the ladder all records of this very einsum, at whatever lengths of its long axes."""
    import feinsum as fe
    from feinsum.candidates.records import Inquiry

    look_up, key = Inquiry._look_up, fe.canonicalize_einsum(e).key

    def others(inquiry: Inquiry, question: Any) -> Any:
        return [(kind, record) for kind, record in look_up(inquiry, question) if record.einsum_key != key]

    with patch.object(Inquiry, "_look_up", others):
        yield


class _Counted:
    """An executable that counts its runs."""

    def __init__(self, executable: Any) -> None:
        self._executable = executable
        self.runs = 0

    def enqueue(self, queue: Any, buffers: Mapping[str, Any], lengths: Mapping[str, int]) -> list[Any]:
        self.runs += 1
        return self._executable.enqueue(queue, buffers, lengths)  # type: ignore[no-any-return]


def einsum_of(problem: Problem) -> tuple[fe.BatchedEinsum, dict[str, int]]:
    """The einsum of a problem, and the lengths of its long axes."""
    import feinsum as fe

    arrays = {
        name: fe.array(name, [problem.axes[letter] for letter in term], problem.dtype)
        for row in problem.rows
        for name, term in zip(row, problem.terms, strict=True)
    }
    e = fe.batched_einsum(problem.subscripts, [[arrays[name] for name in row] for row in problem.rows])
    return e, e.sizes_from(problem.lengths)


class Feinsum(Engine):
    """The best known kernel of an einsum.

    On a CPU it is timed by device events, as in tuning.  On a GPU runs are enqueued together for as long as those of peers,
    in a queue that takes no times, so that their launches overlap, too.
    """

    packages = ("loopy", "pyopencl", "numpy")
    sides = ("cpu", "gpu")

    def __init__(self) -> None:
        super().__init__()
        self._probe: Any = None

    def versions(self) -> dict[str, str]:
        import feinsum

        return {"feinsum": feinsum.__version__, **super().versions()}  # feinsum itself may be only on PYTHONPATH

    def take(self, problem: Problem, **how: Any) -> dict[str, Any]:
        """Generate a kernel.

        :param how: ``database``, see :func:`feinsum.generate`; ``hidden``, whether to hide the records of this very einsum;
            ``tune_s``, how many seconds to tune before, not at all if there are none.
        """
        import pyopencl as cl

        import feinsum as fe
        from feinsum.compile.executable import build_executable
        from feinsum.registry import find_space
        from feinsum.validate import length_values

        self._sets = []
        e, sizes = einsum_of(problem)
        self._device = fe.device(problem.device)
        database, tune_s = how.get("database"), how.get("tune_s")
        if tune_s:
            fe.autotune(e, self._device, database, sizes, timeout=tune_s, progress=False)
        start = time.perf_counter()
        with _warnings_noted(), unseen(e) if how.get("hidden") else contextlib.nullcontext():
            self._kernel = fe.generate(e, self._device, database, sizes)
        generate_s = time.perf_counter() - start
        canonical = fe.canonicalize_einsum(e)
        self._values = length_values(canonical.einsum, canonical.renaming.lengths(problem.lengths))
        self._executable = _Counted(build_executable(self._device.context, self._kernel.program))
        self._queue = cl.CommandQueue(self._device.context)
        self._inputs = problem.inputs()
        self._sets = self._buffer_sets(problem, canonical)
        return {
            "rung": self._kernel.rung,
            "space": self._kernel.space,
            "space_version": find_space(self._kernel.space).version,
            "configuration": self._kernel.configuration,
            "generate_s": generate_s,
        }

    def first(self) -> dict[str, Any]:
        """A call with numpy arrays, as a user writes it; copies included."""
        found = self._kernel(self._inputs)
        self._result = list(found) if self._kernel.einsum.b > 1 else [found]
        return {}

    def turn(self, seconds: float) -> dict[str, Any]:
        """See :class:`Engine`."""
        from feinsum.timing import time_executable

        if self._device.profile.kind != "cpu":
            return super().turn(seconds)
        self._executable.runs, start_cpu = 0, time.process_time()
        timing = time_executable(self._executable, self._device.queue, self._sets, self._values, seconds=seconds)  # type: ignore[arg-type]
        cpu_s = (time.process_time() - start_cpu) / self._executable.runs / CORES
        return {"samples_s": list(timing.samples_s), "cpu_s": cpu_s}

    def runs_per_sample(self) -> int:
        self._run_s = self.sample(1)
        return self._batch()

    def wait(self) -> None:
        self._queue.finish()

    def _run(self) -> None:
        self._turn += 1
        self._executable.enqueue(self._queue, self._sets[self._turn % len(self._sets)], self._values)

    def peaks(self, device: str) -> dict[str, float]:
        """One sample of the figures of :class:`feinsum.devices.Peaks`; the first call takes longer."""
        import feinsum as fe
        from feinsum.devices.microbenchmarks import PeakProbe

        if self._probe is None:
            chosen = fe.device(device)
            self._probe = PeakProbe(chosen.profile, chosen.context, chosen.cl_device)
        return self._probe.sample()  # type: ignore[no-any-return]

    def outputs(self) -> list[Values]:
        return self._result

    def _buffer_sets(self, problem: Problem, canonical: Any) -> list[dict[str, Any]]:
        """Copies of the inputs, with outputs and scratch memory, named as in the program.

        Where a kernel that is called has them on large pages they are here, as the arrays of peers are.
        """
        import pyopencl as cl

        from feinsum.compile.executable import Executable
        from feinsum.compile.pages import large_pages

        context = self._device.context
        executable: Executable = self._executable._executable
        scratch = executable.scratch(context, self._values)
        pages = large_pages(context)
        names = canonical.renaming.arrays
        nbytes = self._kernel.einsum.dtype.itemsize
        for letter in problem.output:
            nbytes *= problem.lengths[letter]

        def copy_of(values: Values) -> Any:
            buffer = pages.new_buffer(values.nbytes)
            cl.enqueue_copy(self._device.queue, buffer, values)
            return buffer

        # Peers store the result of every run in the memory that the one before had, so here it is the same, too.
        same = scratch | {name: pages.new_buffer(nbytes) for name in canonical.einsum.output_names}
        return [
            {names[name]: copy_of(values) for name, values in self._inputs.items()} | same for _ in range(problem.copies)
        ]
