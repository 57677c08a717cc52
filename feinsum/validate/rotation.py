"""Sets of buffers to time with, which tell afterwards whether all that was timed was done, and done right.

A kernel that finds its work done may skip it, and is quick.  So that there is never anything to be found, the inputs of
one run are not those of the next, while an output is used again only after an odd number of runs: what it holds by then
is another result.  For m = 3 outputs, and 4 inputs of which every other one is of the kind B::

    run       0    1    2    3    4    5    6    7
    inputs    A0   B1   A2   B3   A0   B1   A2   B3
    output    0    1    2    0    1    2    0    1       each is A, then B, then A

Before the first run outputs hold unforeseeable finite numbers.  After the timing outputs are compared, computed
once more, from the other kind of inputs, and compared again.  Where the memory is too small for two sets of inputs, outputs
are filled again before that.

Where an output is updated, what a run should leave depends on all runs before.  So outputs get the content that their
workload says before each of these two comparisons, which then are of one more run each.  If updates let numbers grow
without bound, outputs get that content now and then while the kernel is timed, too, between two runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from feinsum.validate.guarded import digests, fill_buffer, finite_byte
from feinsum.validate.verdict import Verdict

if TYPE_CHECKING:
    from feinsum.compile.executable import Executable
    from feinsum.devices import DeviceProfile
    from feinsum.validate.case import Case


class Rotation:
    """The sets for :func:`feinsum.timing.time_executable`; it remembers what each output was last computed from.

    :param workloads: one, or two of the same subject and lengths with different inputs, in turns.
    :param count: how many outputs there are; odd for two workloads.
    """

    def __init__(self, workloads: Sequence[Case], count: int) -> None:
        self._workloads = tuple(workloads)
        self._queue = workloads[0].queue
        self._outputs = [workloads[0].outputs() for _ in range(count)]
        self._inputs: list[dict[str, Any]] = []
        self._digests: list[dict[str, bytes]] = []
        self._sets: list[dict[str, Any]] = []
        self._last: dict[int, int] = {}
        self._latest = -1
        self._present: list[dict[str, Any]] = []
        self._restored_after = workloads[0].runs_until_large
        self._runs: dict[int, int] = {}

    @staticmethod
    def make(workload: Case, profile: DeviceProfile) -> Rotation:
        """One for a workload on a device: with a second draw of inputs, unless there is no room for it."""
        count, room = workload.sets_to_rotate(profile), workload.room(profile)
        if room < 2:
            return Rotation([workload], count)
        odd = count | 1
        return Rotation([workload, workload.another()], odd if odd <= room else odd - 2)

    def begin(self, executable: Executable) -> None:
        """Prepare the memory for an executable: what others left in it is gone."""
        while len(self._inputs) < len(self._outputs) + len(self._workloads) - 1:
            self._inputs.append(self._workloads[len(self._inputs) % len(self._workloads)].upload())
        self._digests = self._digests or self._digests_now()
        if not self._present:
            self._present = [workload.upload_present() for workload in self._workloads]
        scratch = executable.scratch(self._queue.context, self._workloads[0].parameters)
        turns = range(math.lcm(len(self._inputs), len(self._outputs)))
        pairs = [(turn % len(self._inputs), turn % len(self._outputs)) for turn in turns]
        self._sets = [{**self._inputs[i], **self._outputs[o], **scratch} for i, o in pairs]
        self._spoil()

    def _spoil(self) -> None:
        """Fill the outputs with finite numbers."""
        value = finite_byte()
        for outputs in self._outputs:
            for buffer in outputs.values():
                fill_buffer(self._queue, buffer, value, 0, buffer.size)
        for number in range(len(self._outputs)):
            self._restore(number, 0)
        self._last = {}

    def _restore(self, number: int, kind: int) -> None:
        """Give those of a set of outputs that are updated the content that a workload says."""
        import pyopencl as cl

        for name, present in self._present[kind].items():
            cl.enqueue_copy(self._queue, self._outputs[number][name], present)
        self._runs[number] = 0

    def _kind(self, turn: int) -> int:
        return turn % len(self._inputs) % len(self._workloads)

    def _digests_now(self) -> list[dict[str, bytes]]:
        """The digests that show whether inputs were written to, for each set by name."""
        found = iter(digests(self._queue, [buffer for inputs in self._inputs for buffer in inputs.values()]))
        return [{name: next(found) for name in inputs} for inputs in self._inputs]

    def __len__(self) -> int:
        return len(self._sets)

    def __getitem__(self, turn: int) -> dict[str, Any]:
        number = turn % len(self._outputs)
        self._last[number] = self._latest = turn
        if self._restored_after is not None:
            self._runs[number] += 1
            if self._runs[number] > self._restored_after:
                self._restore(number, 0)
        return self._sets[turn]

    def check(self, executable: Executable) -> Verdict:
        """Compare what the runs left with what they should have.

        Inputs that were overwritten are drawn again, so that the next executable finds its own.
        """
        if self._present[0]:
            self._run_again(executable)
        verdict = self._judge()
        if not verdict.ok:
            return verdict
        # What was computed once and then skipped is right by chance where the last run wanted what the first one did.
        if len(self._workloads) == 1:
            self._spoil()
        self._run_again(executable)
        return self._judge()

    def _run_again(self, executable: Executable) -> None:
        """One run for each set of outputs, from the kind of inputs that is next; what is updated is restored before."""
        first = self._latest + 1
        for turn in range(first, first + len(self._outputs)):
            place = turn % len(self)
            buffers = self[place]
            self._restore(place % len(self._outputs), self._kind(place))
            executable.enqueue(self._queue, buffers, self._workloads[self._kind(place)].parameters)
        self._queue.finish()

    def _judge(self) -> Verdict:
        worst = 0.0
        for number, turn in sorted(self._last.items()):
            verdict = self._workloads[self._kind(turn)].judge(self._outputs[number])
            if not verdict.ok:
                return Verdict(f"while it is timed, {verdict.message}", np.inf)
            worst = max(worst, verdict.worst)
        for now, before in zip(self._digests_now(), self._digests, strict=True):
            changed = [name for name in now if now[name] != before[name]]
            if changed:
                self._inputs, self._digests = [], []
                return Verdict(f"while it is timed, it overwrites its input '{changed[0]}'", np.inf)
        return Verdict("", worst)
