"""The choice of a device: all devices of the machine, and the one that a user names by a word, a variable or a pyopencl
object."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from feinsum._checkout import how_to_install
from feinsum.apart import run_in_thread
from feinsum.devices import icd
from feinsum.devices.handle import Device, invisible
from feinsum.devices.icd import activate, enabling, users_choice
from feinsum.devices.json_store import provide_cache, unwritable
from feinsum.devices.opencl import Address, enumerate_devices
from feinsum.devices.probe import probe
from feinsum.devices.profile import KINDS
from feinsum.devices.vendors.runtimes import preference
from feinsum.errors import DeviceError, UnknownDeviceError

if TYPE_CHECKING:
    import pyopencl as cl

    Choice: TypeAlias = str | Device | cl.Device | cl.Context | cl.CommandQueue | None

VARIABLE = "FEINSUM_DEVICE"

_known: tuple[Device, ...] | None = None
_idle: tuple[str, ...] = ()
_lock = threading.Lock()


def devices(refresh: bool = False) -> tuple[Device, ...]:
    """Every OpenCL device of this machine, usable or not, the best first; with `refresh` they are probed again.

    A device of which nothing has changed since stays the same object.

    Drivers are looked for where the system, conda and pip install them (:mod:`feinsum.devices.icd`), unless the
    environment variable ``OCL_ICD_VENDORS`` names some.  The first call on a machine takes seconds.
    """
    global _known, _idle  # the drivers of a process are fixed once OpenCL has been called
    with _lock:
        if _known is None or refresh:
            _known, _idle = run_in_thread(_probed_devices, refresh, _known or ())
        return _known


def idle_drivers() -> tuple[str, ...]:
    """A line for each driver that can be opened and has no device, with what would enable some."""
    devices()
    return tuple(f"{Path(library).name} has no device here: {enabling(library)}" for library in _idle)


def device(choice: Choice = None) -> Device:
    """The device that `choice` means.

    :param choice: None for the environment variable ``FEINSUM_DEVICE`` or, without it, the best device: a GPU before a
        CPU, the maker's runtime before others.  ``"cpu"``, ``"gpu"``, an id or a part of an id, name or platform, in any
        case: the best that fits; ``"gpu:1"`` is the second best, and so on.  A pyopencl device, context or queue, which is
        then used.  A :class:`Device` is returned.
    :raises DeviceError: if nothing fits, or nothing that fits is usable; it says what there is.
    """
    if isinstance(choice, Device):
        return choice
    if choice is None:
        choice = os.environ.get(VARIABLE) or ""
    if isinstance(choice, str):
        return _chosen_device(choice.strip().lower(), devices())
    return _adopted(choice)


def find_again(id: str, address: Address | None) -> Device:
    """The device that was pickled: at its address, or else the first usable of its id.

    :raises DeviceError: if there is none here; it says what there is.
    """
    there = [device for device in devices() if device.profile.id == id and device._address == address and device.usable]
    return there[0] if there else device(id)


def describe_devices(refresh: bool = False) -> list[dict[str, Any]]:
    """One row of plain data for each device: id, word, name, platform, kind, usable, why, profile, and known peaks."""
    return [
        {
            "id": device.profile.id,
            "word": device.word,
            "name": device.profile.name,
            "platform": device.profile.platform,
            "kind": device.profile.kind,
            "usable": device.usable,
            "why": device.why,
            "profile": device.profile.to_dict(),
            "peaks": None if device.known_peaks is None else device.known_peaks.to_dict(),
        }
        for device in devices(refresh)
    ]


def way_out(works: bool = False) -> str:
    """Advice for a user without a usable device, or without the one that was asked for, where another works."""
    full = unwritable()
    if full:
        return f"{full}, and drivers need room for what they compile: make some, or set XDG_CACHE_HOME and TMPDIR"
    # Without its value, since `activate` has put a directory of ours in place of the user's.
    only = [f"{icd.VARIABLE} is set, so feinsum loads only the drivers that it names"] if users_choice() else []
    runtime = f"{how_to_install('cpu')} brings one for x86-64 CPUs that needs no root and no system package"
    return "; ".join((*idle_drivers(), *only, *([] if works else [runtime])))


def _probed_devices(refresh: bool, before: Iterable[Device]) -> tuple[tuple[Device, ...], tuple[str, ...]]:
    provide_cache()
    found = probe(refresh)
    activate(found.libraries)
    # Where pyopencl is loaded its drivers may be too, and then they are not to be changed any more.
    visible = {address for address, _ in enumerate_devices()} if "pyopencl" in sys.modules else None
    met: Counter[str] = Counter()
    made = []
    for f in found.findings:
        why = f.why or ("" if visible is None or f.address in visible else invisible())
        new = Device(f.profile, f.address, why, number=met[f.profile.id])
        made.append(next((old for old in before if _same_device(old, new)), new))
        met[f.profile.id] += 1
    return tuple(sorted(made, key=_device_rank)), found.idle


def _same_device(one: Device, other: Device) -> bool:
    """Whether nothing that was probed of two devices differs."""
    return all(getattr(one, name) == getattr(other, name) for name in ("profile", "_address", "why", "number"))


def _device_rank(device: Device) -> tuple[bool, int, bool, int, int]:
    """Less is better; among GPUs, one with memory of its own before one that shares the host's."""
    profile = device.profile
    return (
        not device.usable,
        KINDS.index(profile.kind),
        profile.host_unified_memory,
        preference(profile.runtime),
        -profile.compute_units,
    )


def _chosen_device(word: str, known: Iterable[Device]) -> Device:
    known = tuple(known)
    # The message does not repeat what may hold a password; names of processors have spaces around an @.
    if re.search(r"//|\S@|\bpassword\b", word):
        raise DeviceError("a URL is no device; pass the URL of a store of records as database=")
    fitting = _fitting_devices(word, known)
    usable = next((device for device in fitting if device.usable), None)
    if usable is not None:
        return usable
    wanted = f"no OpenCL device fits {word!r}" if word else "there is no usable OpenCL device"
    if fitting and word:
        wanted = f"no OpenCL device that fits {word!r} is usable"
    there = "; ".join(f"{device}{': ' + device.why if device.why else ''}" for device in (fitting or known)) or "none"
    works = any(device.usable for device in known)
    # A kind may be missing on one machine of many; any other word that fits nothing is a slip.
    is_unknown = word and not fitting and word.partition(":")[0] not in KINDS and works
    message = ".  ".join(filter(None, (wanted, f"Found: {there}", way_out(works))))
    raise (UnknownDeviceError if is_unknown else DeviceError)(message)


def _fitting_devices(word: str, known: Iterable[Device]) -> list[Device]:
    """The devices that a word means, the best first; one of them where it ends in a number."""
    known = tuple(known)
    fitting = [device for device in known if device.profile.id.lower() == word]
    numbered = re.fullmatch(r"(.+):(\d{1,4})", word)
    if not fitting and numbered is not None:
        fitting = [device for device in _fitting_devices(numbered[1], known) if device.usable][int(numbered[2]) :][:1]
    return fitting or [device for device in known if _fits_word(word, device)]


def _fits_word(word: str, device: Device) -> bool:
    profile = device.profile
    if word in KINDS:
        return profile.kind == word
    return any(word in text.lower() for text in (profile.id, profile.name, profile.platform))


def _adopted(choice: cl.Device | cl.Context | cl.CommandQueue) -> Device:
    """A device of the user's own, with what was probed of it if the loader lists it."""
    import pyopencl as cl

    context = queue = None
    if isinstance(choice, cl.CommandQueue):
        queue, context, handle = choice, choice.context, choice.device
    elif isinstance(choice, cl.Context):
        context, handle = choice, choice.devices[0]
    elif isinstance(choice, cl.Device):
        handle = choice
    else:
        raise DeviceError(
            f"a device is chosen by a word, a feinsum.Device or a pyopencl device, context or queue, not by {choice!r}"
        )
    address = next((address for address, other in enumerate_devices() if other == handle), None)
    known = next((device for device in devices() if address is not None and device._address == address), None)
    if known is None:
        from feinsum.devices.inquiry import read_profile

        return Device(read_profile(handle), address, "", handle, context, queue)
    if known.why:
        raise DeviceError(f"{known} cannot be used: {known.why}")
    return Device(known.profile, address, "", handle, context, queue, known.number)
