"""Answers of the ladder, remembered: by this process as kernels, and on disk as the names of entries of the cache."""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from feinsum.build.cache import kernel_cache, make_key
from feinsum.build.fingerprint import code_fingerprint, curated_fingerprint
from feinsum.build.freshness import StoreHandle, evidence
from feinsum.build.kernel_builder import KernelJob
from feinsum.candidates.origin import Origin
from feinsum.candidates.records import Question
from feinsum.database.curated import contributed_folders
from feinsum.errors import ValidationError

if TYPE_CHECKING:
    from feinsum.kernel.kernel import Kernel

_MOST_KERNELS = 512


@dataclass(frozen=True)
class LadderAnswer:
    """An answer of the ladder, and the facts on which it depends.

    :ivar program: the name of the entry of the cache that holds the program.
    :ivar questions: the questions that the stores were asked.
    :ivar count, evidence: see :mod:`feinsum.build.freshness`.
    """

    origin: Origin
    program: str
    questions: tuple[Question, ...]
    count: str | None
    evidence: str

    def refreshed(self, job: KernelJob, place: StoreHandle) -> LadderAnswer | None:
        """This answer with the present number of records, if it still holds or that cannot be known.

        None if other records are to be considered.
        """
        count = place.count()
        if count is not None and count == self.count:
            return self
        now = evidence(place.stores, self.questions, job.device.profile)
        if place.stores.partial:  # the records behind this answer are still the best known
            return self
        return replace(self, count=count) if now == self.evidence else None

    def to_json(self) -> dict[str, Any]:
        """Plain data for :func:`json.dumps`."""
        return {**asdict(self), "origin": self.origin.to_json()}

    @staticmethod
    def from_json(data: Any) -> LadderAnswer:
        """The answer that :meth:`to_json` wrote.

        :raises ValidationError: if `data` is not of that form.
        """
        try:
            questions = tuple(map(Question.from_json, data["questions"]))
            origin = Origin.from_json(data["origin"])
            return LadderAnswer(origin, str(data["program"]), questions, data["count"], str(data["evidence"]))
        except (KeyError, TypeError, ValueError) as error:
            raise ValidationError(f"not a stored answer: {error}") from None


def stored_answer(job: KernelJob, place: StoreHandle) -> LadderAnswer | None:
    """The answer that some process stored, if it still holds."""
    key = _answer_key(job, place)
    entry = kernel_cache().get(key)
    if entry is None:
        return None
    try:
        found = LadderAnswer.from_json(entry.data)
    except ValidationError:
        return None
    answer = found.refreshed(job, place)
    if answer is not None and answer.count != found.count:
        store_answer(answer, job, place)
    return answer


def store_answer(answer: LadderAnswer, job: KernelJob, place: StoreHandle) -> None:
    """Store an answer for all processes."""
    kernel_cache().put(_answer_key(job, place), answer.to_json())


def _answer_key(job: KernelJob, place: StoreHandle) -> str:
    wish = {"looped": job.looped} if job.looped else {}
    records = curated_fingerprint(_record_folders())
    return make_key("answer", job.facts | wish | {"store": repr(place.location), "curated": records})


@lru_cache(maxsize=1)
def _record_folders() -> tuple[str, ...]:
    """The folders of records of installed packages, remembered on disk until a package is installed.

    To read the metadata of all packages takes 7 to 70 ms.
    """
    key = make_key("records", {"code": code_fingerprint(), "path": sys.path})
    entry = kernel_cache().get(key)
    if entry is None:
        found = list(map(str, contributed_folders()))
        kernel_cache().put(key, {"folders": found})
    else:
        found = entry.data.get("folders", [])
    return tuple(found)


@dataclass
class _Held:
    kernel: Kernel
    job: KernelJob
    answer: LadderAnswer
    glance: Any


_held: OrderedDict[Hashable, _Held] = OrderedDict()
"""The kernels that this process generated, those used last at the end."""
_lock = threading.Lock()


def recall(key: Hashable, database: Any) -> Kernel | None:
    """The kernel that this process generated for a key, if no record was added since that changes the answer."""
    with _lock:
        held = _held.get(key)
        if held is None:
            return None
        _held.move_to_end(key)
    place = StoreHandle(database)
    glance = place.glance()
    if glance is not None and glance == held.glance:
        return held.kernel
    answer = held.answer.refreshed(held.job, place)
    if answer is None:
        return None
    held.answer, held.glance = answer, glance
    return held.kernel


def hold(key: Hashable, kernel: Kernel, job: KernelJob, answer: LadderAnswer, glance: Any) -> None:
    """Keep a kernel for :func:`recall`.

    :param glance: that of the store before the answer was looked for.
    """
    with _lock:
        _held[key] = _Held(kernel, job, answer, glance)
        while len(_held) > _MOST_KERNELS:
            _held.popitem(last=False)
