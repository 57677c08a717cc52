"""Candidate selection: `generate` times a few candidates of the ladder against each other for an einsum without a record.

Half of the predictions of the cost model are off by a third, and its fastest prediction is often a wrong one.  So a few
candidates that are expected to be fast and differ from each other (:mod:`feinsum.candidates.shortlist`) are built at
the same time, proved, and run alternately for some milliseconds::

    write 0 | write 1 | write 2 | prove 0 | prove 1 | prove 2 | alternating runs
            | build 0 ....... build 2 ....|

The first candidate is what the ladder would take without a selection; it is taken unless another one is clearly faster.
Processes that select on one device hold a lock while they time (:mod:`feinsum.build.device_lock`).
There is no selection for very short kernels, for arrays that are too large to try, where kernels have to loop over an
index, and where the einsum itself has a record; a doubted record (:mod:`feinsum.candidates.searches`) is a candidate.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, replace

from feinsum.apart import limit_s
from feinsum.build.cache import kernel_cache
from feinsum.build.device_lock import lock_device
from feinsum.build.kernel_builder import KernelBuild, KernelJob
from feinsum.candidates.ladder import ConfigurationChoice
from feinsum.candidates.searches import LEAST_S
from feinsum.candidates.shortlist import CANDIDATES, select_candidates
from feinsum.compile.executable import Executable
from feinsum.ending import calling
from feinsum.errors import DeviceError, reason

logger = logging.getLogger(__name__)

VARIABLE = "FEINSUM_SELECT"
"""The environment variable of candidate selection: ``now`` (the default), ``off``, or the largest number of candidates."""
_DEPRECATED = "FEINSUM_HEAT"
"""Its name up to release 0.2, whose value is a number of candidates; 1 is off."""
DEPRECATION = f"{_DEPRECATED} is deprecated, and release 0.4 ignores it; set {VARIABLE} to now, off or a number"
_BEGIN_S = {"cpu": 1.0}
"""Seconds of `generate` after which no other source is written, by kind of device: on a CPU a call shall not take much
longer than a second."""
_BEGIN_ELSEWHERE_S = 3.0
_BEGIN_SHARE = 1.5
"""This many times the time of the first source is allowed in any case, as chains on slow hosts take long."""
_PATIENCE_S = 0.5
"""Seconds for which a selection waits for compilers once a kernel is there, unless that took longer."""
_RUNS_S = 0.15
"""The seconds that the alternating runs take."""
_LOCK_S = 2.0
"""Seconds to wait for the lock while other processes select on the same device."""
_MOST_S = 0.25
"""The longest expected time of a kernel with a selection; :data:`LEAST_S` is the shortest."""
_MOST_BYTES = {"cpu": 512 << 20}
"""The most bytes of arrays, by kind of device; long axes are cut to fit."""
_MOST_BYTES_ELSEWHERE = 2 << 30
_MOST_LOOPS = 12
"""The largest number of indices of an einsum with a selection: with more, writing a source and compiling it take seconds.
On a Zen 5 Intel's compiler takes 0.1 s for the first kernel that reverses 18 axes of length 2, and 5 s for another."""
_MARGIN = 0.97
"""A candidate replaces the first one if it takes less than this share of its time."""


def candidates_of(
    job: KernelJob, first: ConfigurationChoice, others: Iterator[ConfigurationChoice]
) -> list[ConfigurationChoice]:
    """The choices to try against each other, the first of the ladder foremost; that alone where there is no selection."""
    known = first.record is not None and first.record.einsum_key == job.canonical.key and not first.is_doubted
    most, lengths = candidates_wanted(), None if known else _cut(job)
    e = job.canonical.einsum
    if most < 2 or lengths is None or first.expected_s is None or job.looped or len(e.indexing.indices) > _MOST_LOOPS:
        return [first]
    share = e.array_bytes(e.sizes_from(lengths)) / e.array_bytes(e.sizes_from(job.lengths))
    found = select_candidates(first, others, most)
    times = [choice.expected_s * share for choice in found if choice.expected_s is not None]
    # The time of a record that is doubted is known: that it takes long is what may be gained.
    longest = max(times) if any(choice.is_doubted for choice in found) else times[0]
    return found if longest >= LEAST_S and times[0] <= _MOST_S else [first]


def candidates_wanted() -> int:
    """The largest number of candidates; 1 if selection is off."""
    name, text = VARIABLE, os.environ.get(VARIABLE, "").strip()
    if not text and (text := os.environ.get(_DEPRECATED, "").strip()):
        name = _DEPRECATED
        warnings.warn(DEPRECATION, DeprecationWarning, stacklevel=2)
    if text == "off":
        return 1
    if text.isdecimal():
        return int(text)
    if text not in ("", "now"):
        logger.warning("%s=%r is not 'now', 'off' or a number of candidates; using 'now'", name, text)
    return CANDIDATES


@dataclass(frozen=True)
class Winner:
    """The fastest candidate of a selection.

    :ivar choice: it has the times of all.
    :ivar program: the name of its entry in the cache.
    """

    choice: ConfigurationChoice
    executable: Executable
    program: str


def run_selection(
    job: KernelJob, choices: Sequence[ConfigurationChoice], began: float
) -> tuple[Winner | None, list[ConfigurationChoice]]:
    """The winner among some choices, if any works, and those that do not.

    :param began: when `generate` began, by :func:`time.perf_counter`.
    """
    failed: list[ConfigurationChoice] = []
    with contextlib.ExitStack() as stack:
        built = _built(job, choices, began, stack, failed)
        able: list[tuple[ConfigurationChoice, KernelBuild]] = []
        proofs = job.proofs if built else []
        for choice, kernel_build in built:
            with _passing_over(choice, failed):
                kernel_build.prove(proofs)
                able.append((choice, kernel_build))
        if not able:
            return None, failed
        times = _time_executables(job, [kernel_build.executable for _, kernel_build in able])
        best = min(range(len(able)), key=lambda k: times[k] * (1 if k else _MARGIN))
        choice, kernel_build = able[best]
        for (tried, _), time_s in zip(able, times, strict=True):
            logger.info("%s %s: %.4g ms", tried.space.name, dict(tried.configuration), time_s * 1e3)
        kernel_build.keep()
    known = [(c.space.name, t) for (c, _), t in zip(able, times, strict=True) if 0 < t < math.inf]
    told = tuple(sorted(known, key=lambda each: each[1]))
    return Winner(replace(choice, selection=told), kernel_build.executable, kernel_build.key), failed


def _built(
    job: KernelJob,
    choices: Sequence[ConfigurationChoice],
    began: float,
    stack: contextlib.ExitStack,
    failed: list[ConfigurationChoice],
) -> list[tuple[ConfigurationChoice, KernelBuild]]:
    """The candidates that build, in their order; compilers run in parallel, sources are written one after another."""
    asked: dict[Future[None], tuple[ConfigurationChoice, KernelBuild]] = {}
    last = began + _BEGIN_S.get(job.device.profile.kind, _BEGIN_ELSEWHERE_S)
    for choice in choices:
        if asked and time.perf_counter() > last and not choice.is_doubted:
            break
        with _passing_over(choice, failed):
            kernel_build = stack.enter_context(job.kernel_build(choice.origin))
            kernel_build.write()
            now = time.perf_counter()
            last = last if asked else max(last, now + (_BEGIN_SHARE - 1) * (now - began))
            asked[_begun(kernel_build.build)] = choice, kernel_build
    able, left = set(), set(asked)
    end = latest = time.perf_counter() + limit_s()
    while left:
        # A record that is doubted must not lose because its compiler is slow.
        until = latest if any(asked[future][0].is_doubted for future in left) else end
        done, left = wait(left, max(0.0, until - time.perf_counter()), FIRST_COMPLETED)
        if not done:
            break
        for future in done:
            with _passing_over(asked[future][0], failed):
                future.result()
                able.add(future)
                now = time.perf_counter()
                end = min(end, now + max(_PATIENCE_S, now - began))
    return [each for future, each in asked.items() if future in able]


def _begun(task: Callable[[], None]) -> Future[None]:
    """A task that a thread has begun; it is not waited for at the end of the process longer than drivers are."""
    future: Future[None] = Future()

    def run() -> None:
        try:
            with calling:
                task()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(None)

    threading.Thread(target=run, daemon=True, name="feinsum-selection").start()
    return future


@contextlib.contextmanager
def _passing_over(choice: ConfigurationChoice, failed: list[ConfigurationChoice]) -> Iterator[None]:
    """Pass over a candidate that fails inside the block."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:  # whatever a space makes us do
        failed.append(choice)
        logger.warning("%s %s is passed over: %s", choice.space.name, dict(choice.configuration), reason(error))


def _time_executables(job: KernelJob, executables: Sequence[Executable]) -> list[float]:
    """The time of each executable, in seconds; that of one alone is not taken, and told as 0."""
    from feinsum.timing.candidate_timing import time_candidates
    from feinsum.validate.draws import scalars_of
    from feinsum.validate.noise import noisy_sets
    from feinsum.validate.proof_lengths import length_values

    e, lengths, device = job.canonical.einsum, _cut(job), job.device
    untimed = [0.0, *[math.inf] * (len(executables) - 1)]
    if len(executables) == 1 or lengths is None:
        return untimed
    try:
        with calling:
            sets = noisy_sets(e, lengths, device.queue, device.profile, _most_candidate_bytes(job))
            parameters = {**length_values(e, lengths), **scalars_of(e, 0, "even")}
            cache = kernel_cache()
            with lock_device(cache.directory if cache.limit_bytes else None, device.id, _LOCK_S):
                return time_candidates(executables, device.queue, sets, parameters, seconds=_RUNS_S)
    except DeviceError as error:
        logger.info("no candidate selection for '%s': %s", e, error)
        return untimed


def _cut(job: KernelJob) -> dict[str, int] | None:
    """The lengths at which kernels are tried: those expected, long axes cut so that all arrays fit; None if they do not."""
    e, lengths = job.canonical.einsum, dict(job.lengths)
    able = [x for x, axis in e.index_sizes.items() if not isinstance(axis, int)]
    while e.array_bytes(e.sizes_from(lengths)) > _most_candidate_bytes(job):
        longest = max(able, key=lambda x: lengths[x], default=None)
        if longest is None or lengths[longest] == 1:
            return None
        lengths[longest] = -(-lengths[longest] // 2)
    return lengths


def _most_candidate_bytes(job: KernelJob) -> int:
    profile = job.device.profile
    return min(_MOST_BYTES.get(profile.kind, _MOST_BYTES_ELSEWHERE), profile.global_memory_bytes // 8)
