"""The protocol of a vendor: what devices of one maker can do beyond OpenCL C, as data and as the text of instructions.

The probe tries whether a device's driver builds an instruction; a profile lists the names of those that it builds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from feinsum.devices.vendors.units import MatrixUnit

if TYPE_CHECKING:
    import pyopencl as cl

    from feinsum.devices.profile import DeviceProfile


@dataclass(frozen=True)
class AsyncCopies:
    """Copies from global to local memory that no work-item waits for.

    They pass through no register, and several tiles may be under way at once: a group of copies is *committed*, and later
    waited for by the number of groups that may still be under way.

    :ivar name: its name among the instructions of a profile.
    :ivar function: the beginning of the names of functions that copy, unique among vendors.
    :ivar widest_bytes: the most bytes of one copy; such a copy has to begin at multiples of this.
    :ivar copy: returns the statement that begins a copy, given the number of bytes and three expressions of C: a pointer to
        local memory, a pointer to global memory, and how many bytes are read; the others become zeros.
    :ivar commit: the statement that closes a group of copies.
    :ivar wait: the statement that waits until at most ``{left}`` groups of a work-item's copies are under way.
    :ivar keep_loads: a statement without code, past which the compiler moves no load.
    """

    name: str
    function: str
    widest_bytes: int
    copy: Callable[[int, str, str, str], str]
    commit: str
    wait: str
    keep_loads: str


@dataclass(frozen=True)
class Shuffles:
    """Exchange of values between the lanes of a sub-group, from register to register.

    :ivar name: its name among the instructions of a profile.
    :ivar most_lanes: the size of the largest sub-group that exchanges values; smaller ones are powers of two.
    :ivar functions: the OpenCL C functions that `call` calls, by name.
    :ivar call: returns an expression for a value of another lane, from five arguments.  The first says which lane that is:
        ``"idx"`` number `by`, ``"up"`` this one less `by`, ``"bfly"`` this one xor `by`.  The others are the lanes of the
        sub-group, the bits (32 for a uint, 64 for a ulong), and the value and `by` as expressions of C.
    """

    name: str
    most_lanes: int
    functions: Mapping[str, str]
    call: Callable[[str, int, int, str, str], str]


class Vendor(Protocol):
    """The extensions of one maker's devices to OpenCL.

    :ivar runtime: the runtime of its devices, see :attr:`feinsum.devices.DeviceProfile.runtime`.
    :ivar sub_group_sizes: the sizes of the sub-groups that can execute the instructions.
    :ivar schedulers: the schedulers of a compute unit; each issues instructions of its own sub-groups.
    :ivar reserved_local_bytes: local memory that the driver takes from each work-group.
    :ivar matrix_units: all matrix units, those for numbers of two bytes included.
    :ivar sub_group_barrier: the statement after which the lanes of a sub-group see what others wrote to local memory.
    """

    runtime: str
    sub_group_sizes: tuple[int, ...]
    schedulers: int
    reserved_local_bytes: int
    matrix_units: tuple[MatrixUnit, ...]
    copies: AsyncCopies | None
    shuffles: Shuffles | None
    sub_group_barrier: str

    def pause(self, nanoseconds: str) -> str:
        """The statement that makes a sub-group wait for about `nanoseconds`, an expression of C."""

    def hide(self, name: str, size: int) -> str:
        """The statement that makes the compiler forget what it knows of an integer variable of `size` bytes."""

    def facts(self, device: cl.Device) -> Mapping[str, Any]:
        """The fields of a profile that this vendor's driver can tell; empty for devices of other vendors."""

    def build_options(self, device: cl.Device) -> tuple[str, ...]:
        """The compiler options on which the text of instructions relies; empty for devices of other vendors."""

    def promised(self, profile: DeviceProfile) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The names of the matrix units, and of the other instructions, that a device should have.

        The probe then tries whether its driver builds them.
        """
