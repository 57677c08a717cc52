"""A device to compute on: its profile, and the OpenCL objects that are made when they are first asked for."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

from feinsum.devices.icd import VARIABLE
from feinsum.devices.opencl import Address, locate
from feinsum.devices.peaks import Peaks, are_old, remember_peaks, remembered_peaks
from feinsum.devices.profile import DeviceProfile
from feinsum.errors import DeviceError

if TYPE_CHECKING:
    import pyopencl as cl

    from feinsum.devices.vendors.vendor import Vendor

_log = logging.getLogger(__name__)

_contexts: dict[cl.Device, cl.Context] = {}
"""One context for each device of this process, so that arrays can pass between kernels."""
_contexts_lock = threading.Lock()


class Device:
    """An OpenCL device.  Made by :func:`feinsum.devices` and :func:`feinsum.device`; safe to share between threads.

    A pickled device is, in the process that restores it, the one of the same id there, with a queue of its own; a copy is
    the device itself.

    :ivar profile: its identity and limits.
    :ivar why: why it cannot be used; empty if it can.
    :ivar number: which of equal devices it is, from 0; they have one id, and so share records.
    """

    def __init__(
        self,
        profile: DeviceProfile,
        address: Address | None = None,
        why: str = "",
        cl_device: cl.Device | None = None,
        context: cl.Context | None = None,
        queue: cl.CommandQueue | None = None,
        number: int = 0,
    ) -> None:
        self.profile = profile
        self.why = why
        self.number = number
        self._address = address
        self._cl_device = cl_device
        self._context = context
        self._queue = queue
        self._peaks: Peaks | None = None
        self._lock = threading.RLock()

    @property
    def usable(self) -> bool:
        """Whether it built and ran our test kernels."""
        return not self.why

    @property
    def id(self) -> str:
        """The id of the profile."""
        return self.profile.id

    @property
    def vendor(self) -> Vendor | None:
        """The extensions of its maker to OpenCL that feinsum knows; None if there are none."""
        from feinsum.devices.vendors.known_vendors import vendor_of

        return vendor_of(self.profile)

    @property
    def word(self) -> str:
        """The word by which :func:`feinsum.device` finds this one: its id, and its number where it is not the first of that
        id."""
        return f"{self.id}:{self.number}" if self.number else self.id

    @property
    def cl_device(self) -> cl.Device:
        """The device as pyopencl sees it.

        :raises DeviceError: if the device is unusable, or this process does not see it.
        """
        with self._lock:
            if self.why:
                raise DeviceError(f"{self} cannot be used: {self.why}")
            if self._cl_device is None and self._address is not None:
                self._cl_device = locate(self._address)
            if self._cl_device is None:
                raise DeviceError(f"{self} cannot be used: {invisible()}")
            return self._cl_device

    @property
    def context(self) -> cl.Context:
        """The context that all users of this device in this process share, or the one it was made from."""
        with self._lock:
            if self._context is None:
                self._context = _shared_context(self.cl_device)
            return self._context

    @property
    def queue(self) -> cl.CommandQueue:
        """An in-order queue whose events carry times, or the queue it was made from."""
        with self._lock:
            if self._queue is None:
                self._queue = _profiling_queue(self.context, self.cl_device)
            return self._queue

    @property
    def known_peaks(self) -> Peaks | None:
        """The peaks if they were ever measured on this machine, in any process; None otherwise."""
        with self._lock:
            if self._peaks is None:
                self._peaks = remembered_peaks(self.profile)
            return self._peaks

    @property
    def peaks(self) -> Peaks:
        """The highest rates that the device reaches; measured at first use, which takes about four seconds.

        :raises DeviceError: if the device is unusable or fails meanwhile.
        """
        with self._lock:
            return self.known_peaks or self._measure_peaks()

    def doubt_peaks(self) -> bool:
        """Measure the peaks again, since a kernel was faster than they allow, unless they were measured just now.

        :returns: whether they were measured again.
        :raises DeviceError: if the device fails meanwhile.
        """
        with self._lock:
            if not are_old(self.profile):
                return False
            _log.warning(
                "the peaks of %s are exceeded, so they were taken on a busy machine: measuring them again", self.id
            )
            self._measure_peaks()
            return True

    def _measure_peaks(self) -> Peaks:
        with self._lock:
            self._peaks = _measured_peaks(self)
            remember_peaks(self.profile, self._peaks)
            return self._peaks

    def __reduce__(self) -> tuple[Any, ...]:
        from feinsum.devices.device_choice import find_again

        return find_again, (self.profile.id, self._address)

    def __copy__(self) -> Device:
        return self

    def __deepcopy__(self, memo: object) -> Device:
        return self

    def _repr_html_(self) -> str:
        from feinsum.report.displays import device_html

        return device_html(self)

    def __str__(self) -> str:
        return f"{self.profile.name} ({self.word})"

    def __repr__(self) -> str:
        return f"<Device {self.word}{' unusable: ' + self.why if self.why else ''}>"


def measure_peaks(device: Device, refresh: bool = False) -> Peaks:
    """The peaks of `device`; with `refresh` they are measured again whatever is remembered.

    :raises DeviceError: if the device is unusable or fails meanwhile.
    """
    return device._measure_peaks() if refresh else device.peaks


def invisible() -> str:
    """The message for a device that was probed but that this process does not see."""
    return (
        "this process called OpenCL before feinsum could name its driver; "
        f"call feinsum.devices() before other users of OpenCL, or set {VARIABLE} beforehand"
    )


def _measured_peaks(device: Device) -> Peaks:
    from feinsum.devices.microbenchmarks import benchmark_peaks  # numpy and the kernels, only where something is measured

    return benchmark_peaks(device.profile, device.context, device.cl_device)


def _profiling_queue(context: cl.Context, device: cl.Device) -> cl.CommandQueue:
    import pyopencl as cl

    return cl.CommandQueue(context, device, properties=cl.command_queue_properties.PROFILING_ENABLE)


def _shared_context(device: cl.Device) -> cl.Context:
    import pyopencl as cl

    with _contexts_lock:
        if device not in _contexts:
            _contexts[device] = cl.Context([device])
        return _contexts[device]
