"""The protocol of a vendor: what devices of one maker can do beyond OpenCL C, as data and as the text of instructions.

Whether a device's driver builds an instruction is tried by the probe; a profile then lists its name.
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

    :ivar name: in the instructions of a profile.
    :ivar function: the beginning of the names of functions that copy; no other vendor has it.
    :ivar widest_bytes: the most bytes of one copy; places of this many are multiples of them.
    :ivar copy: the statement that begins to copy, of the number of bytes, a pointer to local memory, a pointer to global
        memory, and how many bytes are read; the others become zeros.  All but the first are expressions of C.
    :ivar commit: the statement that closes a group of copies.
    :ivar wait: the statement that waits until at most ``{left}`` groups of a work-item's copies are under way.
    :ivar keep_loads: a statement of no code past which the compiler moves no load.
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

    :ivar name: in the instructions of a profile.
    :ivar most_lanes: of the largest sub-group that exchanges them; smaller ones are powers of two.
    :ivar functions: the OpenCL C functions that `call` calls, by name.
    :ivar call: an expression for a value of another lane, of five arguments.  The first says of which lane: ``"idx"``
        number `by`, ``"up"`` this one less `by`, ``"bfly"`` this one xor `by`.  The others are the lanes of the sub-group,
        bits (32 of a uint, 64 of a ulong), the value and `by` as expressions of C.
    """

    name: str
    most_lanes: int
    functions: Mapping[str, str]
    call: Callable[[str, int, int, str, str], str]


class Vendor(Protocol):
    """What one maker's devices can do.

    :ivar runtime: of its devices, see :attr:`feinsum.devices.DeviceProfile.runtime`.
    :ivar sub_group_sizes: the sizes of sub-groups for which the instructions are.
    :ivar schedulers: of a compute unit; each issues instructions of its own sub-groups.
    :ivar reserved_local_bytes: local memory that the driver takes of each work-group.
    :ivar matrix_units: as data, those for numbers of two bytes included.
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
        """The statement that makes a sub-group wait for about as long as a variable says."""

    def hide(self, name: str, size: int) -> str:
        """The statement by which the compiler forgets what it knows of an integer variable of `size` bytes."""

    def facts(self, device: cl.Device) -> Mapping[str, Any]:
        """The fields of a profile that this vendor's drivers know best; empty for devices of other vendors."""

    def build_options(self, device: cl.Device) -> tuple[str, ...]:
        """Options of the compiler on which the text of instructions relies; none for devices of other vendors."""

    def promised(self, profile: DeviceProfile) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The names of what a device should have, as its profile lists them: matrix units, and other instructions.

        Whether its driver builds them is tried.
        """
