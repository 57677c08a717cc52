"""The jobs of a batch on several devices at once: a lane for each, and one line of jobs before lanes of equal devices.

Devices of one id share records, so one of them does a job for all; devices of different ids do all jobs each.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from feinsum.devices import Device, device, devices
from feinsum.errors import FeinsumError, UnknownDeviceError

if TYPE_CHECKING:
    from feinsum.tune.jobs import Job

Result = TypeVar("Result")


def several(words: str | None) -> tuple[Device, ...]:
    """The devices that a list of words means; ``"all"`` is every usable device of the best one's kind.

    :raises DeviceError: if one fits nothing, or two mean the same.

    >>> several("all")[0] is several(None)[0]
    True
    """
    if words is not None and words.strip().lower() == "all":
        kind = device().profile.kind
        return tuple(one for one in devices() if one.usable and one.profile.kind == kind)
    chosen = tuple(map(device, [None] if words is None else words.split(",")))
    for k, one in enumerate(chosen):
        if one in chosen[:k]:
            raise UnknownDeviceError(f"'{words}' means {one} twice; number equal devices, as in gpu:0,gpu:1")
    return chosen


def in_lanes(
    jobs: Sequence[Job],
    lanes: Sequence[Device],
    work: Callable[[Callable[[], Job | None], Callable[[Result], None]], None],
    tell: Callable[[Result], None],
) -> list[Result]:
    """Do jobs on several devices at once, and yield their results in the order in which they ended.

    :param work: takes jobs until there is none, and tells the result of each; called by a thread for each lane.
    :param tell: called with each result as soon as there is one, by one thread at a time.
    """
    lines = {lane.id: deque(jobs) for lane in lanes}
    results: list[Result] = []
    lock = threading.Lock()

    def told(result: Result) -> None:
        with lock:
            results.append(result)
            tell(result)

    def do(lane: Device) -> None:
        line = lines[lane.id]

        def next_job() -> Job | None:
            try:
                return replace(line.popleft(), device=lane.word)
            except IndexError:
                return None

        work(next_job, told)

    with ThreadPoolExecutor(len(lanes), "feinsum-lane") as pool:
        running = [pool.submit(do, lane) for lane in lanes]
        try:
            wait(running)
        except KeyboardInterrupt:  # jobs under way come to their end, and no other begins
            for line in lines.values():
                line.clear()
            raise
    for lane in running:
        if isinstance(error := lane.exception(), FeinsumError):
            raise error
        lane.result()
    return results
