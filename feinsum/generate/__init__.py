"""`generate`: the fastest kernel known for a batched einsum on a device."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from feinsum.apart import none_overdue, run_in_thread
from feinsum.canonicalization import canonicalize_einsum
from feinsum.devices import Device
from feinsum.devices import device as choose_device
from feinsum.devices.json_store import unwritable
from feinsum.devices.opencl import wake_compiler
from feinsum.effects import collector_paused
from feinsum.einsum import BatchedEinsum, require_einsum
from feinsum.errors import DeviceError, TransformError, ValidationError, reason
from feinsum.interrupts import load_module
from feinsum.lengths import require_mapping

if TYPE_CHECKING:
    import os

    import pyopencl as cl

    from feinsum.build.freshness import StoreHandle
    from feinsum.build.kernel_builder import KernelJob
    from feinsum.candidates.ladder import ConfigurationChoice
    from feinsum.compile.executable import Executable
    from feinsum.database import Database
    from feinsum.generate.answers import LadderAnswer
    from feinsum.kernel.kernel import Kernel

logger = logging.getLogger(__name__)

_EXPECTED_BYTES = 64 << 20
"""The assumed size of the arrays of an einsum with long axes of unknown length: larger than caches."""


def generate(
    e: BatchedEinsum,
    device: Device | str | cl.Device | cl.CommandQueue | None = None,
    database: Database | str | os.PathLike[str] | None = None,
    sizes: Mapping[str, int] | None = None,
    tune: str = "never",
    *,
    timeout: float = 60.0,
    looped: str = "",
) -> Kernel:
    """The fastest kernel known for `e` on a device.

    The second call for the same einsum, sizes and device returns the same kernel, as long as no better record was added.
    Kernels are kept on disk as well, in the user's cache directory (:mod:`feinsum.build.cache`).  Where the einsum
    has no record, up to four kernels are built and timed against each other for some milliseconds; the environment variable
    ``FEINSUM_SELECT`` is ``off`` for the first guess (:mod:`feinsum.generate.candidate_selection`).

    A candidate that takes too long is passed over: ``FEINSUM_CANDIDATE_TIMEOUT`` says after how many seconds, 60
    unless given (:mod:`feinsum.apart`).  What the caller's signal handlers raise reaches the caller at once.

    :param device: see :func:`feinsum.device`.
    :param database: where to look for records besides those that come with feinsum; None is the store of the user.
    :param sizes: lengths expected of long axes.  They rank records and never limit what the kernel accepts.
    :param tune: ``"never"``; ``"missing"`` to tune first where no record is exact; ``"always"`` to tune first.
    :param timeout: seconds of tuning; the first trial that succeeds is finished, however late that is.
    :param looped: indices over which the kernel shall loop, one value at a time, around its vectors, registers and tiles;
        a wish, which is ignored where kernels that do so are expected to take twice as long.  :meth:`Kernel.divides` says
        whether it was granted.
    :raises DeviceError: if there is no usable device, or none of our kernels runs on it.
    :raises ValidationError: if `tune` is none of the three, or `looped` names no index.
    """
    from feinsum.build.freshness import StoreHandle, place_key
    from feinsum.generate.answers import hold, recall
    from feinsum.kernel.kernel import Kernel

    began = time.perf_counter()
    require_einsum(e)
    require_mapping(sizes)
    if tune not in ("never", "missing", "always"):
        raise ValidationError(f"tune is {tune!r}; it is 'never', 'missing' or 'always'")
    chosen = choose_device(device)
    # The text of a length differs from that of equal values which are no lengths, and it can always be a key.
    lengths = tuple(sorted((name, str(length)) for name, length in (sizes or {}).items()))
    if unknown := set(looped) - set(e.indexing.indices):
        raise ValidationError(f"looped is {looped!r}; '{e.subscripts}' has no index '{min(unknown)}'")
    key = (e, lengths, chosen.queue, place_key(database), "".join(sorted(looped)))
    if tune == "never" and (known := recall(key, database)) is not None:
        return known
    job, expected = _job(e, sizes, chosen, looped)
    place = StoreHandle(database)
    if tune == "always" or (tune == "missing" and run_in_thread(_missing, job, place)):
        from feinsum.tune.autotune import autotune

        autotune(job.canonical.given, chosen, place.stores.working or database, e.sizes_from(expected), timeout=timeout)
        place = StoreHandle(database)  # tuning made the store if there was none
    glance, answer, executable = run_in_thread(_stored_or_new_answer, job, place, began)
    kernel = Kernel(e, job, answer.origin, executable)
    hold(key, kernel, job, answer, glance)
    return kernel


def _stored_or_new_answer(job: KernelJob, place: StoreHandle, began: float) -> tuple[Any, LadderAnswer, Executable]:
    """A glance at the store, then the answer that some process stored, or else what is found now, and its executable."""
    from feinsum.generate.answers import store_answer, stored_answer

    glance = place.glance()
    answer = stored_answer(job, place)
    executable = None if answer is None else job.load(answer.program, check=answer.origin.rung != "exact")
    asked = (job.canonical.given.subscripts, job.device.id)
    if answer is not None and executable is not None:
        logger.info("'%s' on %s: the kernel at rung '%s' is in the cache", *asked, answer.origin.rung)
    else:
        logger.info("'%s' on %s: the cache has no kernel, so candidates are looked for", *asked)
    if answer is None or executable is None:
        wake_compiler(job.device.context)
        with collector_paused:
            answer, executable, lasting = _first_working_choice(job, place, began)
        if lasting:
            store_answer(answer, job, place)
    return glance, answer, executable


def is_stored(
    e: BatchedEinsum,
    sizes: Mapping[str, int] | None,
    device: Device,
    database: Database | str | os.PathLike[str] | None = None,
) -> bool:
    """Whether :func:`generate` would find the kernel in the disk cache."""
    from feinsum.build.freshness import StoreHandle
    from feinsum.generate.answers import stored_answer

    return stored_answer(_job(e, sizes, device)[0], StoreHandle(database)) is not None


def expected_rung(
    e: BatchedEinsum,
    device: Device,
    database: Database | str | os.PathLike[str] | None = None,
    sizes: Mapping[str, int] | None = None,
) -> tuple[str, float | None]:
    """The rung on which :func:`generate` would stop, and the seconds expected there; nothing is built.

    The seconds are those of the record on the rung "exact", and None where they are unknown.
    """
    return run_in_thread(_expected_rung_of, e, device, database, sizes)


def _expected_rung_of(
    e: BatchedEinsum, device: Device, database: Database | str | os.PathLike[str] | None, sizes: Mapping[str, int] | None
) -> tuple[str, float | None]:
    from feinsum.build.freshness import StoreHandle
    from feinsum.generate.answers import stored_answer

    job, _ = _job(e, sizes, device)
    place = StoreHandle(database)
    answer = stored_answer(job, place)
    if answer is not None:
        origin = answer.origin
    else:
        load_module("loopy")
        from feinsum.candidates.ladder import candidates

        with collector_paused:
            found = next(candidates(job.instance, place.stores), None)
        if found is None:
            return "generic", None
        origin = found.origin
    known_s = origin.record.median_s if origin.record is not None and origin.expected_s is None else origin.expected_s
    return origin.rung, known_s


def _job(
    e: BatchedEinsum, sizes: Mapping[str, int] | None, device: Device, looped: str = ""
) -> tuple[KernelJob, dict[str, int]]:
    """The job of making a kernel, and the lengths expected by index of `e`."""
    from feinsum.build.kernel_builder import KernelJob, nonempty

    canonical = canonicalize_einsum(nonempty(e))
    expected = {letter: max(1, length) for letter, length in e.resolve(expected_sizes(e, sizes)).items()}
    letters = "".join(sorted({canonical.renaming.indices[x] for x in looped}))
    return KernelJob(canonical, canonical.renaming.lengths(expected), device, letters), expected


def _first_working_choice(job: KernelJob, place: StoreHandle, began: float) -> tuple[LadderAnswer, Executable, bool]:
    """Go down the ladder to the first choice that works, or the fastest of a selection; the last says whether the answer
    may be stored.

    An answer that involves spaces of another package may not: their sources are not part of our fingerprint.  Nor may one
    for which a space took too long, or one that replaces an exact record's kernel: it was built here when it was tuned, so
    its present failure may pass.
    """

    load_module("loopy")  # first, as the modules below import it or parts of it
    from feinsum.candidates.ladder import candidates
    from feinsum.candidates.records import Inquiry
    from feinsum.generate.answers import LadderAnswer
    from feinsum.generate.candidate_selection import candidates_of, run_selection
    from feinsum.registry import matching_spaces

    stores, count = place.stores, place.count()
    inquiry = Inquiry(stores, job.device.profile)
    ours = none_overdue() and all(
        s.function.__module__.startswith("feinsum.transforms.") for s in matching_spaces(job.canonical.einsum)
    )
    # Of each rung the best record, as others are not rivals; all of them where no one of these works.
    brief = _ladder_choices(job, candidates(job.instance, stores, inquiry, of_rung=1))
    first = next(brief, None)
    tried: list[ConfigurationChoice] = []
    if first is not None and len(selected := candidates_of(job, first, brief)) > 1:
        first = None
        winner, tried = run_selection(job, selected, began)
        if winner is not None:
            answer = LadderAnswer(winner.choice.origin, winner.program, inquiry.questions, count, inquiry.digest)
            return answer, winner.executable, ours
    may_pass = False
    for choice in _following(first, tried, _ladder_choices(job, candidates(job.instance, stores, inquiry))):
        try:
            executable, program = job.make(choice.origin, check=choice.rung != "exact")
        except MemoryError:
            raise
        except Exception as error:  # whatever a space makes us do
            logger.warning("%s %s is passed over: %s", choice.space.name, dict(choice.configuration), reason(error))
            may_pass = may_pass or (choice.rung == "exact" and isinstance(error, TransformError))
            continue
        return (
            LadderAnswer(choice.origin, program, inquiry.questions, count, inquiry.digest),
            executable,
            ours and not may_pass,
        )
    given = job.canonical.given.subscripts
    full = unwritable()
    raise DeviceError(f"no kernel for '{given}' works on {job.device}; {full or 'the log says what was tried'}")


def _following(
    first: ConfigurationChoice | None, tried: Sequence[ConfigurationChoice], choices: Iterator[ConfigurationChoice]
) -> Iterator[ConfigurationChoice]:
    """The first choice, if there is one, then all others that were not tried."""
    known = [(choice.space.name, choice.configuration) for choice in ([first] if first else tried)]
    if first is not None:
        yield first
    yield from (choice for choice in choices if (choice.space.name, choice.configuration) not in known)


def _ladder_choices(job: KernelJob, known: Iterator[ConfigurationChoice]) -> Iterator[ConfigurationChoice]:
    """The choices of the ladder, after those that loop over the wanted indices."""
    if not job.looped:
        yield from known
        return
    from feinsum.build.looping import looping

    ladder = list(known)
    yield from looping(job.instance, job.looped, ladder)
    yield from ladder


def expected_sizes(e: BatchedEinsum, sizes: Mapping[str, int] | None) -> dict[str, int]:
    """Lengths for the long axes: those given, and for the others one with which its arrays take 64 MiB at most."""
    given = dict(sizes or {})
    axes = {letter: axis for letter, axis in e.index_sizes.items() if isinstance(axis, str)}
    known = {key if key in e.long_axes else axes.get(key, key) for key in given}
    missing = [name for name in e.long_axes if name not in known]
    length = 1
    while missing and length < 1 << 40 and e.array_bytes(given | dict.fromkeys(missing, 2 * length)) <= _EXPECTED_BYTES:
        length *= 2
    return given | dict.fromkeys(missing, length)


def _missing(job: KernelJob, place: StoreHandle) -> bool:
    from feinsum.registry import matching_spaces

    current = [(s.name, s.version) for s in matching_spaces(job.canonical.einsum)]
    profile = job.device.profile
    return place.stores.best(job.canonical.key, job.lengths, profile.id, driver=profile.driver, spaces=current) is None
